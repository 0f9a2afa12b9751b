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
//! Polygons with more corners are cut into fans of triangles. Positions are RAS mm; a PLY or VTK file whose comment or
//! title says `SPACE=LPS`, as Slicer's do, is turned. Landmarks (`.csv`, `.fcsv`, `.txt`) are clouds.

mod gifti;
mod obj;
mod ply;
mod stl;
#[cfg(test)]
mod tests;
mod vtk;

use std::io::Write;
use std::path::Path;

use ffdp_image::io::{LandmarkSpace, read_landmarks, write_atomically, write_landmarks};
use ffdp_image::{Error, Result};

use crate::shape::{Cells, Position, Shape};

/// Numbers for every point, written beside a shape (PLY and VTK).
pub type Scalars<'a> = (&'a str, &'a [f64]);

/// Names of files that shapes are read from and written to.
pub const EXTENSIONS: [&str; 8] = ["ply", "vtk", "obj", "stl", "gii", "csv", "fcsv", "txt"];

/// Reads a shape; its name says in which format.
///
/// # Errors
/// [`Error::Io`] when it cannot be read; [`Error::File`] for an unknown format and for a damaged file: wrong counts,
/// indices beyond the points, coordinates that are not finite, data that end too early.
pub fn read_shape(path: impl AsRef<Path>) -> Result<Shape> {
    let path = path.as_ref();
    let extension = extension(path)?;
    if matches!(extension.as_str(), "csv" | "fcsv" | "txt") {
        return Shape::cloud(read_landmarks(path, &LandmarkSpace::Ras)?);
    }
    let bytes = std::fs::read(path).map_err(|source| Error::io(path, "read", source))?;
    let read = match extension.as_str() {
        "ply" => ply::read(&bytes),
        "vtk" => vtk::read(&bytes),
        "obj" => obj::read(&bytes),
        "stl" => stl::read(&bytes),
        _ => gifti::read(&bytes),
    };
    let (points, cells) = read.map_err(|damage| damage.at(path))?;
    let in_file = |source| Error::InFile { path: path.to_path_buf(), source: Box::new(source) };
    Shape::new(points, cells).map_err(in_file)
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
    let extension = extension(path)?;
    let only_triangles = matches!(extension.as_str(), "stl" | "gii");
    if only_triangles && !matches!(shape.cells, Cells::Triangles(_)) {
        let what = format!("a .{extension} file holds triangles only");
        return Err(Error::invalid(what, path, "write .ply, .vtk or .obj"));
    }
    if !scalars.is_empty() && !matches!(extension.as_str(), "ply" | "vtk") {
        let what = format!("a .{extension} file holds no numbers for points");
        return Err(Error::invalid(what, path, "write .ply or .vtk"));
    }
    let bytes = match extension.as_str() {
        "ply" => ply::bytes(shape, scalars),
        "vtk" => vtk::bytes(shape, scalars),
        "obj" => obj::bytes(shape),
        "stl" => stl::bytes(shape),
        "gii" => gifti::bytes(shape),
        _ => return write_landmarks(path, &shape.points, &LandmarkSpace::Ras),
    };
    write_atomically(path, |file| file.write_all(&bytes))
}

fn extension(path: &Path) -> Result<String> {
    let extension =
        path.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
    if EXTENSIONS.contains(&extension.as_str()) {
        return Ok(extension);
    }
    Err(Error::File {
        path: path.to_path_buf(),
        what: format!("the name of a shape must end in one of .{}", EXTENSIONS.join(", .")),
        value: format!("{extension:?}"),
        fix: "convert it, or rename it".into(),
    })
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
        let fix = "the file is damaged or of a kind that is not read; write it again".into();
        Error::File { path: path.to_path_buf(), what: self.what, value: self.value, fix }
    }
}

/// The triangles of a polygon.
fn fan(corners: &[u32]) -> impl Iterator<Item = [u32; 3]> + '_ {
    corners.windows(2).skip(1).map(|pair| [corners[0], pair[0], pair[1]])
}

/// The pieces of a line through several points.
fn pieces(points: &[u32]) -> impl Iterator<Item = [u32; 2]> + '_ {
    points.windows(2).map(|pair| [pair[0], pair[1]])
}

/// Surfaces come first: files hold lines and single points beside them for display.
fn cells_of(triangles: Vec<[u32; 3]>, edges: Vec<[u32; 2]>) -> Cells {
    match () {
        () if !triangles.is_empty() => Cells::Triangles(triangles),
        () if !edges.is_empty() => Cells::Edges(edges),
        () => Cells::None,
    }
}

/// Points of a file whose title or comment says `SPACE=LPS`.
fn to_ras(points: &mut [Position], says: &str) {
    if says.contains("SPACE=LPS") {
        points.iter_mut().for_each(|p| *p = [-p[0], -p[1], p[2]]);
    }
}
