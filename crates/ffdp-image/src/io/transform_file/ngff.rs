//! Transforms of OME-Zarr 0.6 (RFC-5): matrices, displacements, and sequences of them.
//!
//! A transform leads from points of one coordinate system to points of another, both in the order and the units of their
//! axes; here all is RAS mm. It stands alone in a group, as what is written here does, in a `scene`, or in an image that
//! it places. Where no system is given, axes are (z, y, x) in mm, LPS as in images without an orientation.
//!
//! A field has no direction of its own: its vectors and its grid are those of the coordinate system that it is applied in.
//! So the grid of a displacement that is oblique to (z, y, x) is written between two matrices, and reading moves them
//! into the grid again: a chain keeps its parts.
//!
//! Source: OME-NGFF 0.6, `coordinateTransformations` and `scene`.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::parts::TransformPart;
use crate::error::{Error, Result};
use crate::image::{Affine, Geometry, Matrix3, Physical};
use crate::io::atomic::AtomicFolder;
use crate::io::images::zarr::{Stored, axis, field, metadata, system, write_json};
use crate::io::images::{read_displacement, write_displacement};
use crate::io::lps::LPS_SIGNS;

/// Entries of matrices that differ by less are the same: sums of a few roundings of numbers up to 1e6.
const SAME: f64 = 1e-9;
/// Where fields lie, as the specification proposes.
const FIELDS: &str = "coordinateTransformations";
const METADATA: &str = "zarr.json";

/// The group that a name means: a folder, or the metadata in it.
fn group(path: &Path) -> Option<&Path> {
    match path.file_name() {
        Some(name) if name == METADATA => path.parent(),
        _ => path.join(METADATA).is_file().then_some(path),
    }
}

/// The transforms that a group of these metadata has.
fn listed(ome: &Value) -> Option<&Vec<Value>> {
    let image = &ome["multiscales"][0];
    let systems = image["coordinateSystems"].as_array();
    let mut axes =
        systems.into_iter().flatten().filter_map(|system| system["axes"].as_array()).flatten();
    let of_image = match axes.any(|axis| axis["type"] == "displacement") {
        // A field that says between which systems it leads: read as the field that it is.
        true => None,
        false => image["coordinateTransformations"].as_array().filter(|_| systems.is_some()),
    };
    let alone = ome["coordinateTransformations"].as_array();
    ome["scene"]["coordinateTransformations"].as_array().or(alone).or(of_image)
}

/// Whether a file or folder holds a transform of OME-Zarr that is no plain field.
pub fn holds_transform(path: &Path) -> bool {
    group(path)
        .and_then(|folder| metadata(folder).ok())
        .is_some_and(|(_, ome)| listed(&ome).is_some_and(|list| !list.is_empty()))
}

/// The metadata of a group that holds a transform and no image.
pub fn document(folder: &Path) -> Option<PathBuf> {
    let (file, ome) = metadata(group(folder)?).ok()?;
    (ome["multiscales"].is_null() && listed(&ome).is_some()).then_some(file)
}

/// Reads the one transform of a group.
///
/// # Errors
/// [`Error::File`] for another number of them, kinds that are not read, and axes that are not three of space; those of
/// [`read_displacement`].
pub fn read(path: &Path) -> Result<Vec<TransformPart>> {
    let folder = group(path).unwrap_or(path);
    let (file, ome) = metadata(folder)?;
    let step = match listed(&ome).map(Vec::as_slice) {
        Some([step]) => step,
        other => {
            let count = other.map_or(0, <[Value]>::len);
            let fix = "leave the one that leads from the fixed to the moving image";
            return Err(Error::file(&file, "a group holds one transform", count, fix));
        }
    };
    let frame = named_system(folder, &file, &ome, &step["input"])?;
    let mut chain = Chain { folder, file: &file, frame, parts: Vec::new() };
    chain.take(step)?;
    let end = named_system(folder, &file, &ome, &step["output"])?;
    let last = chain.frame.then(&end.inverse().map_err(Error::in_file(&file))?);
    if chain.parts.is_empty() || !is_identity(&last) {
        chain.parts.push(TransformPart::Affine(last));
    }
    Ok(chain.parts)
}

/// From RAS mm to the coordinate system that an end of a transform names: of this group, or of an image below it.
fn named_system(
    folder: &Path,
    file: &Path,
    ome: &Value,
    end: &Value,
) -> Result<Affine<Physical, Stored>> {
    let below = match end["path"].as_str() {
        Some(path) => Some(metadata(&inside(folder, file, path)?)?),
        None => None,
    };
    let ome = below.as_ref().map_or(ome, |(_, ome)| ome);
    let name = end["name"].as_str().or(end.as_str());
    let homes = [&ome["scene"], ome, &ome["multiscales"][0]];
    let systems = homes.iter().filter_map(|home| home["coordinateSystems"].as_array()).flatten();
    let found = systems.into_iter().find(|system| system["name"].as_str() == name);
    match found {
        Some(found) => system(file, &found["axes"]),
        None => Ok(world()),
    }
}

/// A path of the metadata, which leads below its folder.
fn inside(folder: &Path, file: &Path, path: &str) -> Result<PathBuf> {
    let is_inside =
        |path: &str| path.split(['/', '\\']).all(|part| part != ".." && !part.is_empty());
    match is_inside(path) {
        true => Ok(folder.join(path)),
        false => {
            let fix = "move what it names below this folder, and repair the metadata";
            Err(Error::file(file, "a path leads below the folder of its metadata", path, fix))
        }
    }
}

/// A transform that is read step by step.
struct Chain<'a> {
    folder: &'a Path,
    file: &'a Path,
    /// From RAS mm to where the next step begins, without the displacements before it.
    frame: Affine<Physical, Stored>,
    parts: Vec<TransformPart>,
}

impl Chain<'_> {
    fn take(&mut self, step: &Value) -> Result<()> {
        match step["type"].as_str() {
            Some("sequence") => {
                let steps = step["transformations"].as_array().ok_or_else(|| self.odd(step))?;
                steps.iter().try_for_each(|step| self.take(step))
            }
            Some("bijection") => self.take(&step["forward"]),
            Some("displacements") => self.displace(step),
            _ => {
                self.frame = self.frame.then(&matrix(step).ok_or_else(|| self.odd(step))?);
                Ok(())
            }
        }
    }

    /// A displacement on its own grid, as it lies in RAS mm before the steps that lead to it.
    fn displace(&mut self, step: &Value) -> Result<()> {
        let path = step["path"].as_str().ok_or_else(|| self.odd(step))?;
        let named = inside(self.folder, self.file, path)?;
        // Some name the array of the finest level, which may be folders below its image.
        let is_image =
            |folder: &&Path| metadata(folder).is_ok_and(|(_, ome)| !ome["multiscales"].is_null());
        let mut above = named.ancestors().take_while(|folder| *folder != self.folder);
        let folder = above.find(is_image).unwrap_or(&named);
        let (values, read) = read_displacement(folder)?;
        let back = self.frame.inverse().map_err(Error::in_file(self.file))?;
        let placed = Geometry::from_affine(read.size, field(folder)?.then(&back));
        let placed = placed.map_err(Error::in_file(self.file))?;
        // To the bit where the field says so itself.
        let geometry = if read.same_grid(&placed, SAME) { read } else { placed };
        self.parts.push(TransformPart::Displacement { values, geometry });
        Ok(())
    }

    fn odd(&self, step: &Value) -> Error {
        let what = "a transform is an identity, translation, scale, rotation, affine or mapAxis of three axes with its numbers \
             in the metadata, displacements, or a sequence or bijection of them";
        let mut value = step.to_string();
        value.truncate(value.char_indices().nth(200).map_or(value.len(), |(end, _)| end));
        Error::file(
            self.file,
            what,
            value,
            "convert it to one of them with the program that wrote it",
        )
    }
}

/// The matrix of a step that is one.
fn matrix(step: &Value) -> Option<Affine<Stored, Stored>> {
    let numbers = |list: &Value| -> Option<Vec<f64>> {
        let numbers: Option<Vec<f64>> = list.as_array()?.iter().map(Value::as_f64).collect();
        numbers.filter(|numbers| numbers.iter().all(|number| number.is_finite()))
    };
    let three = |name: &str| <[f64; 3]>::try_from(numbers(&step[name])?).ok();
    let rows = |name: &str| -> Option<[Vec<f64>; 3]> {
        let rows: Option<Vec<Vec<f64>>> = step[name].as_array()?.iter().map(numbers).collect();
        rows?.try_into().ok()
    };
    let diagonal = |d: [f64; 3]| -> Matrix3 {
        std::array::from_fn(|i| std::array::from_fn(|j| if i == j { d[i] } else { 0.0 }))
    };
    let still = [0.0; 3];
    Some(match step["type"].as_str()? {
        "identity" => Affine::identity(),
        "translation" => Affine::from_parts(diagonal([1.0; 3]), three("translation")?),
        "scale" => Affine::from_parts(diagonal(three("scale")?), still),
        "rotation" => {
            let [a, b, c] = rows("rotation")?.map(|row| <[f64; 3]>::try_from(row).ok());
            Affine::from_parts([a?, b?, c?], still)
        }
        "affine" => {
            let [a, b, c] = rows("affine")?.map(|row| <[f64; 4]>::try_from(row).ok());
            Affine::from_rows([a?, b?, c?])
        }
        "mapAxis" => {
            let from = three("mapAxis")?;
            let one = |i: usize, j: usize| if from[i] == j as f64 { 1.0 } else { 0.0 };
            Affine::from_parts(std::array::from_fn(|i| std::array::from_fn(|j| one(i, j))), still)
        }
        _ => return None,
    })
}

fn is_identity<From, To>(map: &Affine<From, To>) -> bool {
    let identity = Affine::<From, To>::identity();
    map.rows()
        .iter()
        .flatten()
        .zip(identity.rows().iter().flatten())
        .all(|(a, b)| (a - b).abs() < SAME)
}

/// From RAS mm to (z, y, x) along the columns of a direction, in mm.
fn along(direction: Matrix3) -> Result<Affine<Physical, Stored>> {
    let [x, y, z] =
        *Affine::<Physical, Physical>::from_parts(direction, [0.0; 3]).inverse()?.rows();
    Ok(Affine::from_rows([z, y, x]))
}

/// The direction of axes that grow to the left, to the back and upwards.
fn lps() -> Matrix3 {
    std::array::from_fn(|i| std::array::from_fn(|j| if i == j { LPS_SIGNS[i] } else { 0.0 }))
}

/// From RAS mm to LPS mm in the order (z, y, x).
fn world() -> Affine<Physical, Stored> {
    along(lps()).expect("signs can be inverted")
}

/// Writes a chain of matrices and displacements, the first part applied first, with fields in groups below the folder.
///
/// # Errors
/// [`Error::Invalid`] for a B-spline, [`Error::Singular`] for a matrix or a grid that cannot be inverted, [`Error::Io`].
pub fn write(path: &Path, parts: &[TransformPart]) -> Result<()> {
    let folder = AtomicFolder::create(path)?;
    let mut steps = Steps { list: Vec::new(), fields: 0, pending: Affine::identity() };
    let back = world().inverse()?;
    for part in parts {
        match part {
            TransformPart::Affine(map) => {
                steps.pending = steps.pending.then(&back.then(map).then(&world()));
            }
            TransformPart::Displacement { values, geometry } => {
                // Into the space of the grid's axes, and back.
                let frame = back.then(&along(geometry.direction)?);
                steps.pending = steps.pending.then(&frame);
                steps.flush();
                let name = format!("{FIELDS}/displacement-{}.zarr", steps.fields);
                write_group(&folder.path().join(FIELDS), &json!({}))?;
                write_displacement(folder.path().join(&name), values, geometry)?;
                steps.list.push(
                    json!({"type": "displacements", "path": name, "interpolation": "linear"}),
                );
                steps.fields += 1;
                steps.pending = frame.inverse()?;
            }
            TransformPart::Bspline { .. } => {
                return Err(Error::invalid(
                    "an OME-Zarr holds matrices and displacements",
                    "a B-spline",
                    "write a composite (.h5), or make it a displacement first (ffdp compose -o warp.nii.gz)",
                ));
            }
        }
    }
    steps.flush();
    write_group(folder.path(), &steps.document())?;
    folder.commit()
}

/// What a chain is written as.
struct Steps {
    list: Vec<Value>,
    fields: usize,
    /// The product of the matrices since the last displacement.
    pending: Affine<Stored, Stored>,
}

impl Steps {
    /// Ends the matrices that are pending.
    fn flush(&mut self) {
        let map = std::mem::replace(&mut self.pending, Affine::identity());
        if !is_identity(&map) {
            self.list.push(json!({"type": "affine", "affine": map.rows()}));
        }
    }

    /// The metadata of the group.
    fn document(mut self) -> Value {
        let mut step = match self.list.len() {
            0 => json!({"type": "identity"}),
            1 => self.list.remove(0),
            _ => json!({"type": "sequence", "transformations": self.list}),
        };
        step["input"] = json!({"name": "fixed"});
        step["output"] = json!({"name": "moving"});
        let axes: Vec<Value> = (0..3).rev().map(|j| axis(&lps(), j)).collect();
        let systems = ["fixed", "moving"].map(|name| json!({"name": name, "axes": axes}));
        json!({"ome": {
            "version": "0.6", "coordinateSystems": systems, "coordinateTransformations": [step]}})
    }
}

/// The metadata of a group of Zarr 3, whose folder is made where it is missing.
fn write_group(folder: &Path, attributes: &Value) -> Result<()> {
    let group = json!({"zarr_format": 3, "node_type": "group", "attributes": attributes});
    std::fs::create_dir_all(folder)
        .and_then(|()| write_json(&folder.join(METADATA), &group))
        .map_err(|source| Error::io(folder, "write", source))
}
