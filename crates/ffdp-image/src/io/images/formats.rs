//! What is asked of all formats of the list in `mod.rs`, the only place where they are named. What reads and writes images
//! goes through it.

use std::path::Path;

use super::FORMATS;
use super::format::{ImageFormat, START, ends_in};
use super::source::Source;

/// The format of an image: by its first bytes, else by its name.
pub(super) fn recognise(path: &Path) -> Option<&'static dyn ImageFormat> {
    let mut start = [0; START];
    let known = Source::open_file(path).and_then(|mut source| source.read_some(&mut start));
    let start = &start[..known.unwrap_or(0)];
    let by_content = FORMATS.iter().find(|format| format.begins(start));
    by_content.or_else(|| FORMATS.iter().find(|format| format.is_named(path))).copied()
}

/// The format in which a file of this name is written.
pub(super) fn written_as(path: &Path) -> Option<&'static dyn ImageFormat> {
    FORMATS.iter().find(|format| ends_in(path, format.written())).copied()
}

/// The formats that are read, as the help lists them.
pub fn read_formats() -> String {
    let named = FORMATS.iter().map(|format| format.help());
    named.collect::<Vec<_>>().join(", ")
}

/// The ends of names that are written: `.nii, .nii.gz or .zarr`.
pub fn written_endings() -> String {
    listed(FORMATS.iter().flat_map(|format| format.written()).copied())
}

/// The names of the formats: `NIfTI, OME-Zarr or NRRD`.
pub(super) fn format_names() -> String {
    listed(FORMATS.iter().map(|format| format.name()))
}

/// Whether a displacement can be written under a name.
pub fn is_displacement_name(path: impl AsRef<Path>) -> bool {
    written_as(path.as_ref()).is_some_and(|format| format.holds().displacement.is_some())
}

/// Whether the voxels of an image of this name are compressed where it is written.
pub fn is_packed_name(path: impl AsRef<Path>) -> bool {
    written_as(path.as_ref()).is_none_or(|format| format.packs(path.as_ref()))
}

fn listed<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let words: Vec<&str> = words.collect();
    match words.split_last() {
        Some((last, [])) => last.to_string(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}
