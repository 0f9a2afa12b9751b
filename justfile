# Short names for what is done often; `just` lists them.
default:
    @just --list

# Train a registration network on seeded synthetic brains.
train *ARGS:
    cargo run --example transmorph -- --loss lncc {{ARGS}}

# The whole test suite on the CPU.
test:
    cargo test --workspace

# The kernels on the machine's Vulkan, Metal or software driver.
test-wgpu:
    FFDP_TEST_DEVICES=wgpu cargo test --workspace --features wgpu --lib -- ops:: losses:: parallel:: register::tests::devices

# The kernels on an NVIDIA GPU.
test-cuda:
    FFDP_TEST_DEVICES=cuda cargo test --workspace --features cuda --lib -- ops:: losses:: parallel:: register::tests::devices

# Time every op against Burn's own ops with autodiff.
bench *ARGS:
    cargo bench --bench ops -- {{ARGS}}

# The tables of the documentation, from measurements and code.
tables:
    cargo run --example tables

# The guide as a book in target/book; needs mdBook.
guide: tables
    scripts/guide

# Format, lint, document: what CI checks beside the tests.
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

# Executables for a GPU machine without Rust, in .gpu/ (see scripts/gpu-bundle).
gpu-bundle:
    scripts/gpu-bundle
