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

/// On CUDA the first run rehearses, so that kernels are compiled while files are read; the second one finds them.
#[test]
fn a_second_run_does_not_rehearse() {
    if !std::env::var("FFDP_TEST_DEVICES").is_ok_and(|devices| devices.contains("cuda")) {
        ffdp_kit::testing::skipped("FFDP_TEST_DEVICES does not name cuda");
        return;
    }
    let folder = Folder::new();
    write_pair(&folder, 24, 5);
    let rehearses = |out: &str| {
        let run = Command::new(env!("CARGO_BIN_EXE_ffdp"))
            .args(["register", "-f", &folder.path("fixed.nii.gz")])
            .args(["-m", &folder.path("moving.nii.gz"), "-o", &folder.path(out)])
            .args(["-v", "--device", "cuda", "--aligned", "--shrink", "2", "--iterations", "10"])
            .env("XDG_CACHE_HOME", folder.path("cache"))
            .output()
            .expect("the binary starts");
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "{said}");
        said.contains("kernels compiled by a rehearsal")
    };
    assert_eq!(["first", "second"].map(rehearses), [true, false]);
}
