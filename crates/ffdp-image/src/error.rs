//! What can go wrong outside the caller's control, and how to mend it.
//!
//! Every variant carries the datum itself (which file, which value) and, where a user can act, what
//! to do about it. Caller's bugs inside tensor operations panic instead; see each op's `# Panics`.

use std::io;
use std::path::{Path, PathBuf};

/// A result whose error is, unless said otherwise, this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The world's fault: a file, a setting, an image or a device that cannot be worked with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused an operation on a file.
    #[error("could not {action} {}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was attempted, as a verb: "read", "create", "rename".
        action: &'static str,
        /// The system's own reason.
        source: io::Error,
    },

    /// A NIfTI file is damaged, or of a kind that is not read here.
    #[error("{}: {what}, got {value}; {fix}", path.display())]
    Nifti {
        /// The file.
        path: PathBuf,
        /// The rule that was broken.
        what: String,
        /// The value found in the file.
        value: String,
        /// What the user can do.
        fix: String,
    },

    /// A file of another kind (transform, landmarks) is damaged, or holds what cannot be used.
    #[error("{}: {what}, got {value}; {fix}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The rule that was broken, with the line where there are lines.
        what: String,
        /// The value found in the file.
        value: String,
        /// What the user can do.
        fix: String,
    },

    /// Another error, found while reading a file.
    #[error("{}: {source}", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        source: Box<Error>,
    },

    /// A value (setting, geometry, argument) is outside what has a meaning.
    #[error("{what}, got {value}; {fix}")]
    Invalid {
        /// The rule that was broken: "spacing must lie in 1e-9..1e6 mm".
        what: String,
        /// The offending value.
        value: String,
        /// What the user can do.
        fix: String,
    },

    /// An image holds NaN or infinite voxels.
    #[error(
        "{what} holds {nan} NaN and {infinite} infinite voxels, the first at voxel \
         (x, y, z) = {first:?}; repair the image or set them to zero (--nan-policy zero|mask)"
    )]
    NonFinite {
        /// Which image.
        what: String,
        /// Number of NaN voxels.
        nan: usize,
        /// Number of infinite voxels.
        infinite: usize,
        /// Voxel index (x, y, z) of the first of either.
        first: [usize; 3],
    },

    /// A label map holds values that are no integers, or do not fit 32 bits.
    #[error(
        "{}: {count} voxels are no integer labels in the range of i32, the first at voxel \
         (x, y, z) = {first:?} with value {value}; pass an intensity image as an image, or \
         threshold it first",
        path.display()
    )]
    NotLabels {
        /// The file.
        path: PathBuf,
        /// Number of offending voxels.
        count: usize,
        /// Voxel index (x, y, z) of the first.
        first: [usize; 3],
        /// Value of the first.
        value: f64,
    },

    /// An affine map cannot be inverted reliably.
    #[error(
        "{what} is singular or nearly so: condition number {condition:.3e} exceeds {limit:.0e}; \
         check the image's orientation and spacing, or the transform file"
    )]
    Singular {
        /// Which map.
        what: String,
        /// Its condition number (ratio of the largest to the smallest singular value).
        condition: f64,
        /// The largest one accepted.
        limit: f64,
    },

    /// Two arrays that belong together differ in shape.
    #[error("{what}: expected {expected:?}, got {got:?}")]
    Shape {
        /// What the shapes belong to.
        what: String,
        /// The shape required.
        expected: Vec<usize>,
        /// The shape found.
        got: Vec<usize>,
    },

    /// Two images that must share a voxel grid do not.
    #[error(
        "{what} is on another grid: sizes {expected_size:?} and {got_size:?}{}; resample it first: \
         ffdp apply -i IMAGE -r REFERENCE -o RESULT",
        corners(*distance_voxels, *tolerance_voxels)
    )]
    Grid {
        /// Which image.
        what: String,
        /// Size (x, y, z) of the reference grid.
        expected_size: [usize; 3],
        /// Size (x, y, z) of the grid found.
        got_size: [usize; 3],
        /// Largest distance between corresponding corners, in voxels of the reference.
        distance_voxels: f64,
        /// The distance accepted, in voxels.
        tolerance_voxels: f64,
    },

    /// Two images do not overlap enough in physical space.
    #[error(
        "fixed and moving overlap by {overlap_percent:.2} % of the smaller image, at least \
         {required_percent} % is needed; fixed spans {fixed_box_mm:.1?} mm, moving spans \
         {moving_box_mm:.1?} mm (RAS, low and high corner): check the headers, or start from an \
         initial transform that aligns the centres"
    )]
    NoOverlap {
        /// Low and high corner of the fixed image, RAS mm.
        fixed_box_mm: [[f64; 3]; 2],
        /// Low and high corner of the moving image, RAS mm.
        moving_box_mm: [[f64; 3]; 2],
        /// Part of the smaller grid that lies inside the larger one.
        overlap_percent: f64,
        /// The least that was asked for.
        required_percent: f64,
    },

    /// Something does not fit into memory or onto the disk; found out before starting.
    #[error("{what} needs {needed_bytes} bytes, {available_bytes} are available; {fix}")]
    TooLarge {
        /// What was to be stored.
        what: String,
        /// Bytes needed.
        needed_bytes: u64,
        /// Bytes there.
        available_bytes: u64,
        /// What the user can do.
        fix: String,
    },

    /// A device failed to run or to hand back a result.
    #[error("device failure while {action}: {reason}")]
    Device {
        /// What was being done.
        action: String,
        /// The backend's own words.
        reason: String,
    },

    /// One of several processes is gone.
    #[error("{rank} is lost: {reason}")]
    LostRank {
        /// Its number and its host.
        rank: String,
        /// What is known.
        reason: String,
    },

    /// What ended another process of a run ends this one.
    #[error("{rank}: {message}")]
    OnRank {
        /// Its number and its host.
        rank: String,
        /// What it said.
        message: String,
    },
}

/// How far corners are from each other, where both grids have as many voxels.
fn corners(distance_voxels: f64, tolerance_voxels: f64) -> String {
    match distance_voxels.is_finite() {
        true => format!(
            ", largest corner distance {distance_voxels:.3} voxels (accepted {tolerance_voxels})"
        ),
        false => String::new(),
    }
}

impl Error {
    /// An [`Error::Invalid`]: the rule, the value that breaks it, the way out.
    pub fn invalid(
        what: impl Into<String>,
        value: impl std::fmt::Debug,
        fix: impl Into<String>,
    ) -> Self {
        Self::Invalid { what: what.into(), value: format!("{value:?}"), fix: fix.into() }
    }

    /// An [`Error::Invalid`] for a flag or an entry that was given where it has no effect: why, and what would give it one.
    pub fn without_effect(
        given: impl std::fmt::Display,
        because: impl std::fmt::Display,
        fix: &str,
    ) -> Self {
        Self::Invalid {
            what: "every flag must have an effect".to_string(),
            value: format!("{given} without one: {because}"),
            fix: format!("leave it out, or {fix}"),
        }
    }

    /// An [`Error::File`] on `path`: the rule, the value that breaks it, the way out.
    pub fn file(
        path: &Path,
        what: impl Into<String>,
        value: impl ToString,
        fix: impl Into<String>,
    ) -> Self {
        let (what, value, fix) = (what.into(), value.to_string(), fix.into());
        Self::File { path: path.to_path_buf(), what, value, fix }
    }

    /// An [`Error::Io`] on `path`.
    pub fn io(path: &Path, action: &'static str, source: io::Error) -> Self {
        Self::Io { path: path.to_path_buf(), action, source }
    }

    /// Makes of an error an [`Error::InFile`] on `path`.
    pub fn in_file(path: &Path) -> impl Fn(Self) -> Self {
        move |source| Self::InFile { path: path.to_path_buf(), source: Box::new(source) }
    }

    /// An [`Error::Device`] from a backend's error.
    pub fn device(action: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self::Device { action: action.into(), reason: reason.to_string() }
    }
}
