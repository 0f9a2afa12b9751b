//! Names of images inside an OME-Zarr: `image.zarr`, `image.zarr#1`, `image.zarr#1,c=0,t=3`, `image.zarr#c=0`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// What is named after the `#`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Of the pyramid, 0 the finest.
    pub level: usize,
    pub channel: Option<usize>,
    pub time: Option<usize>,
}

/// The address that a name is, `http://` or `https://`.
pub fn address(path: &Path) -> Option<&str> {
    path.to_str().filter(|name| name.starts_with("http://") || name.starts_with("https://"))
}

/// The folder and what follows the last `#`, if anything does. A name that exists as it is has no choice.
fn split(path: &Path) -> (PathBuf, Option<String>) {
    let whole = || (path.to_path_buf(), None);
    let Some(name) = path.file_name().filter(|_| !path.exists()) else { return whole() };
    let bytes = name.as_encoded_bytes();
    let Some(at) = bytes.iter().rposition(|&byte| byte == b'#') else { return whole() };
    let Ok(choice) = std::str::from_utf8(&bytes[at + 1..]) else { return whole() };
    // SAFETY: the bytes are cut before an ASCII character, where an encoded name may be cut.
    let name = unsafe { OsStr::from_encoded_bytes_unchecked(&bytes[..at]) };
    (path.with_file_name(name), Some(choice.to_string()))
}

/// The folder that a name means, without level, channel and time.
pub fn dataset_folder(path: &Path) -> PathBuf {
    split(path).0
}

/// Whether a name without a choice ends in `.zarr`.
pub fn is_zarr_name(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("zarr"))
}

/// Whether a name means an OME-Zarr: a folder that holds one, an address, or one that ends in `.zarr`, with or without a
/// choice.
pub fn is_named(path: &Path) -> bool {
    let folder = dataset_folder(path);
    let has_choice = folder != path;
    is_zarr_name(&folder)
        || address(&folder).is_some()
        || folder.is_dir() && (has_choice || holds_zarr(&folder))
}

/// Whether a folder is one of Zarr.
pub fn holds_zarr(folder: &Path) -> bool {
    [".zattrs", ".zgroup", ".zarray", "zarr.json"].iter().any(|name| folder.join(name).exists())
}

/// Folder and choice.
///
/// # Errors
/// [`Error::File`] for a choice that cannot be understood.
pub fn parse(path: &Path) -> Result<(PathBuf, Choice)> {
    let (folder, text) = split(path);
    let mut choice = Choice::default();
    for (i, part) in text.iter().flat_map(|text| text.split(',')).enumerate() {
        let part = part.trim();
        let number = |text: &str| text.trim().parse::<usize>().ok();
        let known = match part.split_once('=') {
            None if i == 0 => number(part).map(|level| choice.level = level),
            Some(("c", k)) => number(k).map(|k| choice.channel = Some(k)),
            Some(("t", k)) => number(k).map(|k| choice.time = Some(k)),
            _ => None,
        };
        if known.is_none() {
            let what = "after # stands a level, c=CHANNEL or t=TIME, each from 0";
            let fix = "write, for example, image.zarr#1,c=0,t=0";
            return Err(Error::file(path, what, format!("{part:?}"), fix));
        }
    }
    Ok((folder, choice))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_or_refused_with_the_form() {
        let of = |level, channel, time| Choice { level, channel, time };
        for (text, expected) in [
            ("a.zarr", of(0, None, None)),
            ("a.zarr#2", of(2, None, None)),
            ("a.zarr#1,c=3,t=4", of(1, Some(3), Some(4))),
            ("a.zarr#t=4", of(0, None, Some(4))),
        ] {
            assert_eq!(parse(Path::new(text)).unwrap(), (PathBuf::from("a.zarr"), expected));
            assert!(is_named(Path::new(text)));
        }
        for text in ["a.zarr#", "a.zarr#x", "a.zarr#1,2", "a.zarr#-1", "a.zarr#z=1"] {
            let message = parse(Path::new(text)).unwrap_err().to_string();
            assert!(message.contains("image.zarr#1,c=0,t=0"), "{message}");
        }
        assert!(!is_named(Path::new("a.nii#1")) && !is_named(Path::new("a#b.nii.gz")));
    }
}
