//! What GPUs keep on disk (feature `persistence`): with wgpu, which this needs and which may be a processor, the choices
//! among kernels; with CUDA the compiled kernels too, whose gain was measured by hand (docs/registration.md).
//! `cargo test --workspace --features cuda,wgpu,persistence --test kept`, with or without a CUDA driver.

#[allow(dead_code)] // shared with the other commands' tests
mod support;

use std::fs;
use std::process::Command;

use support::{Folder, write_pair};

/// The first run leaves files where the user's caches are, the second one writes the same displacement.
#[test]
fn runs_share_files_in_the_cache_directory() {
    let folder = Folder::new();
    write_pair(&folder, 24, 5);
    let displacement = |out: &str| {
        let flags = ["-q", "--device", "wgpu", "--aligned", "--shrink", "2", "--iterations", "10"];
        let run = Command::new(env!("CARGO_BIN_EXE_ffdp"))
            .args(["register", "-f", &folder.path("fixed.nii.gz")])
            .args(["-m", &folder.path("moving.nii.gz"), "-o", &folder.path(out)])
            .args(flags)
            .env("XDG_CACHE_HOME", folder.path("cache"))
            .output()
            .expect("the binary starts");
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        fs::read(folder.path(&format!("{out}/warp.nii.gz"))).expect("written")
    };
    let first = displacement("first");
    let kept =
        fs::read_dir(folder.path("cache/cubecl/default.kept")).expect("kept by the first run");
    assert!(kept.count() > 0);
    assert_eq!(displacement("second"), first);
}
