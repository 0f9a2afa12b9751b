# Short names for what is done often; `just` lists them.
default:
    @just --list

# Train a registration network on seeded synthetic brains.
train *ARGS:
    cargo run --example transmorph -- --loss lncc {{ARGS}}

# The whole test suite on the CPU, and on the machine's Vulkan or Metal if there is one.
test:
    cargo test --workspace --features wgpu

# The same on an NVIDIA GPU, which has to be there.
test-cuda:
    FFDP_TEST_DEVICES=cuda cargo test --workspace --features cuda

# The Python package: its wheel, built, installed in a fresh environment and tested.
test-python:
    crates/ffdp-python/test

# Time every op against Burn's own ops with autodiff.
bench *ARGS:
    cargo bench --bench ops -- {{ARGS}}

# The tables of the documentation, from measurements and code.
tables:
    cargo run --example tables

# The guide as a book in target/book; needs mdBook.
guide: tables
    scripts/guide

# Format, lint, document: what CI checks besides the tests.
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

# Executables for a GPU machine without Rust, in .gpu/ (see scripts/gpu-bundle).
gpu-bundle:
    scripts/gpu-bundle
