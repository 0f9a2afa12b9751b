//! Transform files: what this crate writes, what others wrote, and what is damaged.

mod kinds;
mod kinds_expected;
mod lta;
mod ngff;
mod reject;
mod write;

use std::fs;
use std::path::PathBuf;

use super::*;

/// A folder that vanishes with the test.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("temporary"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).expect("writable");
        path
    }
}

/// The only part of a file, which must be affine.
fn affine(path: &Path) -> Affine<Physical, Physical> {
    match read_transform_file(path).expect("readable").as_slice() {
        [TransformPart::Affine(map)] => *map,
        parts => panic!("{} parts", parts.len()),
    }
}

fn assert_maps(case: &str, ours: &Affine<Physical, Physical>, expected: [[f64; 4]; 3]) {
    for (a, b) in ours.rows().iter().flatten().zip(expected.iter().flatten()) {
        // Entries up to 100, computed with a few sums in f64.
        assert!((a - b).abs() < 1e-12 * 100.0, "{case}: {:?} {expected:?}", ours.rows());
    }
}
