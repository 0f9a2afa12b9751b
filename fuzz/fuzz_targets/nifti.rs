//! The reader of images under libFuzzer.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

#[path = "../nifti.rs"]
mod nifti;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder"));

fuzz_target!(|bytes: &[u8]| {
    let path = FOLDER.path().join("input.nii");
    std::fs::write(&path, bytes).expect("writable");
    nifti::read_in_every_way(&path);
});
