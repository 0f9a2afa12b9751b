//! A folder of planes: numbered files of one format, each with one plane of the same size and type. The numbers give the
//! order; they grow in equal steps, so that no plane is missing.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::{DecodedPlanes, Format, Header, Source};
use super::{Form, ImageFormat, Jpeg, NO_SPACING, Plane, PlaneFormat, Png, Tiff, grid_as_itk};
use crate::error::{Error, Result};

/// The format.
pub struct PictureFolder;

/// Formats of files with one plane.
const PLANE_FORMATS: [(&dyn ImageFormat, &dyn PlaneFormat); 3] =
    [(&Png, &Png), (&Jpeg, &Jpeg), (&Tiff, &Tiff)];

impl ImageFormat for PictureFolder {
    fn name(&self) -> &'static str {
        "a folder of planes"
    }

    fn help(&self) -> String {
        "a folder of numbered planes (PNG, JPEG, TIFF)".to_string()
    }

    fn endings(&self) -> &'static [&'static str] {
        &[]
    }

    fn is_named(&self, path: &Path) -> bool {
        path.is_dir() && listed(path).is_ok_and(|files| !files.planes.is_empty())
    }

    fn open(&self, path: &Path) -> Result<(Source, Header)> {
        let files = listed(path)?;
        let (format, planes) = checked(path, &files.planes)?;
        let Plane { form, mut left_out } = format.plane(&planes[0])?;
        for plane in &planes[1..] {
            let found = format.plane(plane)?;
            check_same(
                path,
                FileForm { path: &planes[0], form },
                FileForm { path: plane, form: found.form },
            )?;
            left_out = left_out.or(found.left_out);
        }
        let [x, y] = form.size;
        let size = [x, y, planes.len()];
        let geometry = grid_as_itk(size, [1.0; 3]).map_err(Error::in_file(path))?;
        let name = Format::named("folder of planes");
        let mut header = Header::new(name, form.data_type, size.to_vec(), geometry);
        header.warnings.push(NO_SPACING.replace("file does", "files do"));
        left_out.note(&mut header);
        if files.others > 0 {
            let others = files.others;
            header.warnings.push(format!("{others} other files of the folder are ignored"));
        }
        let folder = path.to_path_buf();
        let decode = move |z: usize, bytes: &mut [u8]| {
            // A file may have been replaced since the folder was opened.
            let form_of_file = format.plane(&planes[z])?.form;
            check_same(
                &folder,
                FileForm { path: &planes[0], form },
                FileForm { path: &planes[z], form: form_of_file },
            )?;
            format.decode(&planes[z], bytes)
        };
        Ok((Source::decoded(path, DecodedPlanes::new(path, form.bytes(), decode)), header))
    }

    fn files(&self, path: &Path) -> Result<Vec<PathBuf>> {
        Ok(checked(path, &listed(path)?.planes)?.1)
    }
}

/// The form that a file of the folder has.
#[derive(Clone, Copy)]
struct FileForm<'a> {
    path: &'a Path,
    form: Form,
}

fn check_same(folder: &Path, expected: FileForm, found: FileForm) -> Result<()> {
    if found.form == expected.form {
        return Ok(());
    }
    let text = |Form { size: [x, y], data_type }: Form| format!("{x} x {y} {data_type:?}");
    let what = format!("planes must be like {}, {}", name(expected.path), text(expected.form));
    let value = format!("{} in {}", text(found.form), name(found.path));
    Err(Error::file(folder, &what, value, "keep the planes of one image in a folder of their own"))
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or(OsStr::new("")).to_string_lossy().into_owned()
}

/// The files of a folder.
#[derive(Default)]
struct Listed {
    planes: Vec<PathBuf>,
    /// Those that are none, hidden ones left out.
    others: usize,
}

fn listed(folder: &Path) -> Result<Listed> {
    let failed = |source| Error::io(folder, "read", source);
    let mut files = Listed::default();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        match () {
            () if name(&path).starts_with('.') || path.is_dir() => {}
            () if format_of(&path).is_some() => files.planes.push(path),
            () => files.others += 1,
        }
    }
    Ok(files)
}

fn format_of(path: &Path) -> Option<usize> {
    PLANE_FORMATS.iter().position(|(format, _)| format.is_named(path))
}

/// The name of a plane.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Numbered {
    /// What is before the number.
    before: String,
    number: u64,
    /// What is after it, in lower case.
    after: String,
}

fn numbered(path: &Path) -> Option<Numbered> {
    let name = name(path);
    let stem = path.file_stem()?.to_string_lossy().into_owned();
    let is_digit = |c: char| c.is_ascii_digit();
    let end = stem.rfind(is_digit)? + 1;
    let start = stem[..end]
        .rfind(|c| !is_digit(c))
        .map_or(0, |at| at + stem[at..].chars().next().map_or(1, char::len_utf8));
    let number = stem[start..end].parse().ok()?;
    Some(Numbered { before: stem[..start].to_string(), number, after: name[end..].to_lowercase() })
}

/// The format of all planes, and the planes in order.
fn checked(folder: &Path, planes: &[PathBuf]) -> Result<(&'static dyn PlaneFormat, Vec<PathBuf>)> {
    const FIX: &str = "keep the planes of one image, numbered, in a folder of their own";
    let first = planes.first().and_then(|first| format_of(first));
    let Some(format) = first.filter(|first| planes.iter().all(|p| format_of(p) == Some(*first)))
    else {
        let what = "the planes of a folder must be of one format";
        return Err(Error::file(folder, what, series(planes.iter().map(|p| end_of(p))), FIX));
    };
    let mut sorted = Vec::with_capacity(planes.len());
    for plane in planes {
        let Some(name_of_plane) = numbered(plane) else {
            let what = "the names of the planes of a folder must have numbers";
            return Err(Error::file(folder, what, format!("{:?}", name(plane)), FIX));
        };
        sorted.push((name_of_plane, plane));
    }
    sorted.sort();
    let ends = [&sorted[0], &sorted[sorted.len() - 1]];
    let [first, last] = ends.map(|(name, _)| (&name.before, &name.after));
    if first != last {
        let what = "a folder must hold one series of planes";
        let names = sorted.iter().map(|(name, _)| format!("{}*{}", name.before, name.after));
        return Err(Error::file(folder, what, series(names), FIX));
    }
    let step = |i: usize| sorted[i + 1].0.number - sorted[i].0.number;
    for i in 0..sorted.len() - 1 {
        if step(i) != step(0) || step(i) == 0 {
            let what = "the numbers of the planes must grow in equal steps";
            let value = format!("{} after {}", name(sorted[i + 1].1), name(sorted[i].1));
            let fix = "add the missing plane, or number the planes anew";
            return Err(Error::file(folder, what, value, fix));
        }
    }
    let planes = sorted.into_iter().map(|(_, plane)| plane.clone()).collect();
    Ok((PLANE_FORMATS[format].1, planes))
}

fn end_of(path: &Path) -> String {
    format!(".{}", path.extension().unwrap_or(OsStr::new("")).to_string_lossy().to_lowercase())
}

/// Different words, a few of them.
fn series(words: impl Iterator<Item = String>) -> String {
    let different: std::collections::BTreeSet<String> = words.collect();
    let shown: Vec<String> = different.iter().take(5).cloned().collect();
    let more = if different.len() > 5 { ", .." } else { "" };
    format!("{}: {}{more}", different.len(), shown.join(", "))
}
