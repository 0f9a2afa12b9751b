//! Shapes in files: PLY, VTK (legacy polydata), OBJ, STL, GIfTI.
//!
//! | format | written as | cells | colours or scalars |
//! |---|---|---|---|
//! | `.ply` | binary, little endian, f32 | points, edges, triangles | ours as a property `quality` |
//! | `.vtk` | binary, version 3.0, f32 | points, lines, triangles | ours as point data |
//! | `.obj` | text | points, lines, triangles | |
//! | `.stl` | binary, f32; corners are merged where they are equal | triangles | |
//! | `.gii` | GIfTI 1.0, gzipped base64 | triangles | |
//!
//! Polygons with more corners are cut into fans of triangles, strips into their triangles. Positions are RAS mm; a PLY,
//! VTK, OBJ or STL file whose comment or title says `SPACE=LPS`, as Slicer's do, is turned. All but GIfTI are written
//! with `SPACE=RAS`. Landmarks (`.csv`, `.fcsv`, `.txt`, `.mrk.json`) are clouds. A file may be packed with gzip
//! (`.gii.gz`).

mod gifti;
mod obj;
mod ply;
mod stl;
#[cfg(test)]
mod tests;
mod vtk;

use std::borrow::Cow;
use std::io::{Read, Write};
use std::path::Path;

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

use ffdp_image::io::{LandmarkSpace, read_landmarks, write_atomically, write_landmarks};
use ffdp_image::{Error, Result};

use crate::shape::{Cells, Position, Shape};

/// Numbers for every point, written with a shape (PLY and VTK).
pub type Scalars<'a> = (&'a str, &'a [f64]);

/// Names of files that shapes are read from and written to.
pub const EXTENSIONS: [&str; 9] =
    ["ply", "vtk", "obj", "stl", "gii", "csv", "fcsv", "txt", "mrk.json"];

/// Names without a packed end that are lists of landmarks.
const LANDMARKS: [&str; 4] = ["csv", "fcsv", "txt", "mrk.json"];

/// A packed file may be so many times as long as it is: what is longer is no mesh.
const LARGEST_RATIO: u64 = 1100;

/// Reads a shape; its name says in which format.
///
/// # Errors
/// [`Error::Io`] when it cannot be read; [`Error::File`] for an unknown format and for a damaged file: wrong counts,
/// indices beyond the points, coordinates that are not finite, data that end too early.
pub fn read_shape(path: impl AsRef<Path>) -> Result<Shape> {
    let path = path.as_ref();
    let Kind { extension, .. } = kind(path)?;
    if LANDMARKS.contains(&extension) {
        return Shape::cloud(read_landmarks(path, &LandmarkSpace::OfFile)?);
    }
    let bytes = std::fs::read(path).map_err(|source| Error::io(path, "read", source))?;
    let read = unpacked(&bytes).and_then(|bytes| parse(&bytes, extension, path));
    let (points, cells) = read.map_err(|damage| damage.at(path))?;
    Shape::new(points, cells).map_err(Error::in_file(path))
}

fn parse(bytes: &[u8], extension: &str, path: &Path) -> Result<Content, Damage> {
    match extension {
        "ply" => ply::read(bytes),
        "vtk" => vtk::read(bytes),
        "obj" => obj::read(bytes),
        "stl" => stl::read(bytes),
        _ => gifti::read(bytes, path.parent().unwrap_or(Path::new(""))),
    }
}

/// The content of a file that may be packed.
fn unpacked(bytes: &[u8]) -> Result<Cow<'_, [u8]>, Damage> {
    if !is_gzip(bytes) {
        return Ok(bytes.into());
    }
    let mut content = Vec::new();
    let limit = LARGEST_RATIO * bytes.len() as u64;
    let read = MultiGzDecoder::new(bytes).take(limit).read_to_end(&mut content);
    read.map_err(|error| Damage::new("a packed file must hold whole gzip streams", error))?;
    Ok(content.into())
}

fn is_gzip(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x1f, 0x8b])
}

/// Writes a shape, whole or not at all; its name says in which format.
///
/// # Errors
/// [`Error::Io`] when it cannot be written; [`Error::Invalid`] for a format that does not hold such cells.
pub fn write_shape(path: impl AsRef<Path>, shape: &Shape) -> Result<()> {
    write_shape_with(path, shape, &[])
}

/// The same with numbers for every point.
///
/// # Errors
/// As [`write_shape`], and [`Error::Invalid`] for a format that holds no numbers.
///
/// # Panics
/// If there is not one number a point.
pub fn write_shape_with(path: impl AsRef<Path>, shape: &Shape, scalars: &[Scalars]) -> Result<()> {
    let path = path.as_ref();
    let count = shape.points.len();
    assert!(scalars.iter().all(|(_, v)| v.len() == count), "one number for each of {count} points");
    let Kind { extension, packed } = kind(path)?;
    let only_triangles = matches!(extension, "stl" | "gii");
    if only_triangles && !matches!(shape.cells, Cells::Triangles(_)) {
        let what = format!("a .{extension} file holds triangles only");
        return Err(Error::invalid(what, path, "write .ply, .vtk or .obj"));
    }
    if !scalars.is_empty() && !matches!(extension, "ply" | "vtk") {
        let what = format!("a .{extension} file holds no numbers for points");
        return Err(Error::invalid(what, path, "write .ply or .vtk"));
    }
    let bytes = match extension {
        "ply" => ply::bytes(shape, scalars),
        "vtk" => vtk::bytes(shape, scalars),
        "obj" => obj::bytes(shape),
        "stl" => stl::bytes(shape),
        "gii" => gifti::bytes(shape),
        _ => return write_landmarks(path, &shape.points, &LandmarkSpace::Ras),
    };
    write_atomically(path, |file| {
        if !packed {
            return file.write_all(&bytes);
        }
        let mut packer = GzEncoder::new(file, Compression::default());
        packer.write_all(&bytes)?;
        packer.finish().map(drop)
    })
}

/// What the name of a file says.
struct Kind {
    /// One of [`EXTENSIONS`].
    extension: &'static str,
    /// Whether it ends in `.gz`.
    packed: bool,
}

fn kind(path: &Path) -> Result<Kind> {
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase());
    let name = name.unwrap_or_default();
    let (name, packed) = name.strip_suffix(".gz").map_or((&*name, false), |name| (name, true));
    let ends = |end: &&str| name.strip_suffix(end).is_some_and(|start| start.ends_with('.'));
    let extension = EXTENSIONS.into_iter().find(ends);
    // Lists of points are small, and are read as text.
    match extension.filter(|end| !packed || !LANDMARKS.contains(end)) {
        Some(extension) => Ok(Kind { extension, packed }),
        None => Err(unknown(path, name)),
    }
}

fn unknown(path: &Path, name: &str) -> Error {
    let fix = match name.rsplit('.').next() {
        Some("pial" | "white" | "inflated" | "sphere" | "orig" | "smoothwm" | "surf") => {
            "a surface of FreeSurfer: convert it with mris_convert --to-scanner to .surf.gii"
        }
        Some("vtp" | "vtu") => "save it from ParaView or Slicer as .ply, or as legacy .vtk",
        Some("mz3" | "off" | "glb" | "gltf" | "3mf" | "dae") => "convert it to .ply",
        _ => "convert it, or rename it",
    };
    let what = format!("the name of a shape must end in one of .{}", EXTENSIONS.join(", ."));
    Error::file(path, what, format!("{name:?}"), fix)
}

/// What a file holds, not yet checked as a shape.
type Content = (Vec<Position>, Cells);

/// What is wrong in a file, before it is known which.
#[derive(Debug)]
struct Damage {
    what: String,
    value: String,
}

impl Damage {
    fn new(what: impl Into<String>, value: impl std::fmt::Display) -> Self {
        Self { what: what.into(), value: value.to_string() }
    }

    fn at(self, path: &Path) -> Error {
        let fix = "the file is damaged or of a kind that is not read; write it again";
        Error::file(path, self.what, self.value, fix)
    }
}

/// The triangles of a polygon.
fn fan(corners: &[u32]) -> impl Iterator<Item = [u32; 3]> + '_ {
    corners.windows(2).skip(1).map(|pair| [corners[0], pair[0], pair[1]])
}

/// The triangles of a strip, each of which shares two corners with the one before; every second one is turned, so that all
/// have the same outside. Those of no area, which join strips, are left out.
fn strip(corners: &[u32]) -> impl Iterator<Item = [u32; 3]> + '_ {
    let triangles = corners.array_windows::<3>().enumerate();
    let turned = triangles.map(|(i, &[a, b, c])| if i % 2 == 0 { [a, b, c] } else { [b, a, c] });
    turned.filter(|[a, b, c]| a != b && b != c && c != a)
}

/// The pieces of a line through several points.
fn pieces(points: &[u32]) -> impl Iterator<Item = [u32; 2]> + '_ {
    points.windows(2).map(|pair| [pair[0], pair[1]])
}

/// Surfaces come first: files hold lines and single points with them for display.
fn cells_of(triangles: Vec<[u32; 3]>, edges: Vec<[u32; 2]>) -> Cells {
    match () {
        () if !triangles.is_empty() => Cells::Triangles(triangles),
        () if !edges.is_empty() => Cells::Edges(edges),
        () => Cells::None,
    }
}

/// Points of a file whose title, comment or field says `SPACE=LPS`, as Slicer's do.
fn to_ras(points: &mut [Position], says: &str) {
    if says.contains("SPACE=LPS") {
        points.iter_mut().for_each(|p| *p = [-p[0], -p[1], p[2]]);
    }
}
