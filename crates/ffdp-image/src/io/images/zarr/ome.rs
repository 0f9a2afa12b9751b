//! What the metadata of an OME-Zarr mean: axes by their type, units, and where each level lies.
//!
//! A position in the file is `scale * index + translation`, an axis each. Axes have no anatomy before RFC-4; where
//! none is given, x grows to the left, y to the back and z upwards, as ITK reads such files. Lengths become mm here.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::super::header::Components;
use super::super::units::unit_in_mm;
use super::array::read_json;
use super::store;
use crate::error::{Error, Result};
use crate::image::{Affine, Geometry, Matrix3};
use crate::io::zarr_name::address;

/// The group of attributes in which we keep what OME-NGFF has no place for.
pub const OWN: &str = "ffdp";

/// Placements that differ by less than this part of a voxel are the same; other tools write f32.
const SAME: f64 = 1e-4;

/// An image: its axes and levels.
#[derive(Clone, Debug)]
pub struct Multiscale {
    /// The group's folder, and the file with its metadata.
    folder: PathBuf,
    pub file: PathBuf,
    /// The name of the version: `OME-Zarr 0.5`.
    pub version: &'static str,
    pub is_labels: bool,
    pub axes: Vec<Axis>,
    levels: Vec<Level>,
    own: Option<Own>,
    pub warnings: Vec<String>,
}

/// One axis of the arrays.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    pub name: String,
    pub kind: Kind,
    unit: Option<String>,
    /// The column of a direction matrix, where the anatomy is known.
    towards: Option<[f64; 3]>,
}

/// What an axis runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// x, y or z: 0, 1, 2.
    Space(usize),
    Time,
    Channel,
    /// Components of displacements (RFC-5).
    Displacement,
}

#[derive(Clone, Debug)]
struct Level {
    path: String,
    scale: Vec<f64>,
    translation: Vec<f64>,
}

/// The grid of level 0 to the bit, as decimal numbers.
#[derive(Clone, Debug, Deserialize, serde::Serialize)]
pub struct Own {
    pub spacing_mm: String,
    pub origin_mm: String,
    pub direction: String,
}

/// The same as numbers.
struct OwnNumbers {
    spacing_mm: [f64; 3],
    origin_mm: [f64; 3],
    direction: Matrix3,
}

#[derive(Deserialize)]
struct RawMultiscale {
    #[serde(default)]
    axes: Vec<RawAxis>,
    /// From version 0.6 on.
    #[serde(default, rename = "coordinateSystems")]
    systems: Vec<RawSystem>,
    #[serde(default)]
    datasets: Vec<RawDataset>,
    #[serde(default, rename = "coordinateTransformations")]
    transformations: Vec<Value>,
}

#[derive(Deserialize)]
struct RawSystem {
    name: String,
    axes: Vec<RawAxis>,
}

impl RawMultiscale {
    /// As before 0.6: with the axes of the system to which the levels lead, the first one where they name none. What leads from there to other
    /// systems is no placement.
    fn flattened(mut self) -> Self {
        if self.systems.is_empty() {
            return self;
        }
        let first = self.datasets.first().and_then(|dataset| dataset.transformations.first());
        let name = first.and_then(|step| step["output"]["name"].as_str());
        let at = self.systems.iter().position(|system| Some(system.name.as_str()) == name);
        self.axes = self.systems.swap_remove(at.unwrap_or(0)).axes;
        self.transformations.clear();
        self
    }
}

#[derive(Deserialize)]
struct RawDataset {
    path: String,
    #[serde(default, rename = "coordinateTransformations")]
    transformations: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub enum RawAxis {
    /// Version 0.3.
    Name(String),
    Full {
        name: String,
        r#type: Option<String>,
        unit: Option<String>,
        #[serde(alias = "anatomicalOrientation")]
        orientation: Option<Value>,
    },
}

const REPAIR: &str = "repair the metadata, or convert the image anew";

impl Multiscale {
    /// The image in a folder; of the layout that bioformats2raw writes, the first one.
    ///
    /// # Errors
    /// [`Error::Io`] without such a folder, [`Error::File`] where it holds no image.
    pub fn open(folder: &Path) -> Result<Self> {
        let (v3_file, v2_file) = (folder.join("zarr.json"), folder.join(".zattrs"));
        if address(folder).is_none() && !folder.is_dir() {
            let kind = match folder.exists() {
                true => std::io::ErrorKind::NotADirectory,
                false => std::io::ErrorKind::NotFound,
            };
            return Err(Error::io(folder, "open", kind.into()));
        }
        let there =
            |file: &Path| store::exists(file).map_err(|source| Error::io(file, "look for", source));
        let (file, is_v3) = match there(&v3_file)? {
            true => (v3_file, true),
            false if there(&v2_file)? => (v2_file, false),
            false => {
                let fix = "name the folder of an OME-Zarr image";
                let value = "neither zarr.json nor .zattrs";
                return Err(Error::file(folder, "the folder must be an OME-Zarr", value, fix));
            }
        };
        let json = read_json(&file)?;
        let attributes = if is_v3 { &json["attributes"] } else { &json };
        let ome = attributes.get("ome").unwrap_or(attributes);
        let Some(first) = ome["multiscales"].as_array().and_then(|all| all.first()) else {
            if !ome["bioformats2raw.layout"].is_null() {
                let mut image = Self::open(&folder.join("0"))?;
                image.warnings.push("the first image (0) of several is read".to_string());
                return Ok(image);
            }
            let what = "the group must hold an image (multiscales)";
            let is_transform =
                ["scene", "coordinateTransformations"].iter().any(|key| !ome[*key].is_null());
            let (value, fix) = match is_transform {
                true => ("a transform", "pass it as one: ffdp apply -t, ffdp compose -t"),
                false => {
                    ("none", "name the folder of an image inside it, such as plate.zarr/A/1/0")
                }
            };
            return Err(Error::file(&file, what, value, fix));
        };
        let raw = RawMultiscale::deserialize(first).map_err(|reason| {
            Error::file(&file, "multiscales must be as OME-NGFF has them", reason, REPAIR)
        })?;
        let own = attributes.get(OWN).and_then(|own| Own::deserialize(own).ok());
        let is_labels = !ome["image-label"].is_null();
        let version = match (is_v3, ome["version"].as_str()) {
            (false, _) => "OME-Zarr 0.4",
            (true, Some(version)) if version.starts_with("0.6") => "OME-Zarr 0.6",
            (true, _) => "OME-Zarr 0.5",
        };
        Self::of(folder, &file, raw.flattened(), version, is_labels, own)
    }

    fn of(
        folder: &Path,
        file: &Path,
        raw: RawMultiscale,
        version: &'static str,
        is_labels: bool,
        own: Option<Own>,
    ) -> Result<Self> {
        // Before 0.3 all arrays had five axes.
        let names = || "tczyx".chars().map(|name| RawAxis::Name(name.to_string())).collect();
        let raw_axes: Vec<RawAxis> = if raw.axes.is_empty() { names() } else { raw.axes };
        let axes = axes(raw_axes).map_err(|value| {
            let what = "the axes must be 1 to 3 of space, and at most one each of time and channel";
            Error::file(file, what, value, REPAIR)
        })?;
        let count = axes.len();
        let failed = |value: String| {
            let what = format!("a level must have a scale and translation of {count} axes");
            Error::file(file, &what, value, REPAIR)
        };
        let common = transformation(&raw.transformations, count).map_err(failed)?;
        let mut levels = Vec::new();
        for dataset in raw.datasets {
            let Transformation { mut scale, mut translation } =
                transformation(&dataset.transformations, count).map_err(failed)?;
            for i in 0..count {
                translation[i] = common.scale[i] * translation[i] + common.translation[i];
                scale[i] *= common.scale[i];
            }
            let inside = !dataset.path.split('/').any(|part| part == "..")
                && !Path::new(&dataset.path).is_absolute();
            if !inside {
                return Err(Error::file(file, "a level lies in the folder", dataset.path, REPAIR));
            }
            levels.push(Level { path: dataset.path, scale, translation });
        }
        if levels.is_empty() {
            return Err(Error::file(
                file,
                "an image has at least one level (datasets)",
                "none",
                REPAIR,
            ));
        }
        let (folder, file, warnings) = (folder.to_path_buf(), file.to_path_buf(), Vec::new());
        Ok(Self { folder, file, version, is_labels, axes, levels, own, warnings })
    }

    pub fn levels(&self) -> usize {
        self.levels.len()
    }

    /// The folder of a level's array.
    pub fn array(&self, level: usize) -> PathBuf {
        self.folder.join(&self.levels[level].path)
    }

    /// The axis of the arrays that is of a kind.
    pub fn axis(&self, kind: Kind) -> Option<usize> {
        self.axes.iter().position(|axis| axis.kind == kind)
    }

    /// The axes of space in the order of the file, each with its voxel axis (0 is x).
    pub fn space(&self) -> impl Iterator<Item = (usize, &Axis)> {
        self.axes.iter().filter_map(|axis| match axis.kind {
            Kind::Space(j) => Some((j, axis)),
            _ => None,
        })
    }

    /// How the components of displacements lie; meant for images that have three.
    pub fn components(&self) -> Components {
        let mut components = Components::ZYX_MM;
        for (i, (j, axis)) in self.space().enumerate() {
            components.axes[i] = j;
            components.unit_mm[i] = axis.millimetres(&mut Vec::new());
        }
        components
    }

    /// Scale and translation of the finest level along an axis, in the unit of the file.
    pub fn placement(&self, axis: usize) -> (f64, f64) {
        (self.levels[0].scale[axis], self.levels[0].translation[axis])
    }

    /// Seconds between volumes.
    pub fn time_step_seconds(&self, level: usize) -> f64 {
        let Some(axis) = self.axis(Kind::Time) else { return 0.0 };
        let factor = match self.axes[axis].unit.as_deref() {
            Some("second") => 1.0,
            Some("millisecond") => 1e-3,
            Some("microsecond") => 1e-6,
            Some("minute") => 60.0,
            Some("hour") => 3600.0,
            _ => return 0.0,
        };
        self.levels[level].scale[axis] * factor
    }

    /// The grid of a level whose array has this shape.
    ///
    /// # Errors
    /// [`Error::InFile`] for scales that are no spacing.
    pub fn geometry(&self, level: usize, shape: &[usize]) -> Result<(Geometry, Vec<String>)> {
        let mut warnings = Vec::new();
        let mut size = [1; 3];
        let (mut spacing, mut start) = ([1.0; 3], [0.0; 3]);
        let mut direction = direction(&self.axes);
        let placed = self.axes.iter().any(|axis| axis.towards.is_some());
        for (i, axis) in self.axes.iter().enumerate() {
            let Kind::Space(j) = axis.kind else { continue };
            let mm = axis.millimetres(&mut warnings);
            size[j] = shape[i];
            spacing[j] = self.levels[level].scale[i] * mm;
            start[j] = self.levels[level].translation[i] * mm;
        }
        let own = self.own.as_ref().and_then(Own::numbers);
        let own = own.filter(|own| self.agrees(own, &mut warnings));
        if let Some(own) = &own {
            direction = own.direction;
        } else if !placed {
            warnings.retain(|warning| !warning.is_empty());
        }
        let linear = direction.map(|row| std::array::from_fn(|j| row[j] * spacing[j]));
        let origin =
            direction.map(|row| row.iter().zip(&start).map(|(part, start)| part * start).sum());
        let array = self.array(level);
        let at = Error::in_file(&array);
        // Before columns are normalised, which would make negative scales positive.
        let unplaced = Geometry::new(size, spacing).map_err(&at)?;
        let mut geometry =
            Geometry::from_affine(size, Affine::from_parts(linear, origin)).map_err(at)?;
        if let Some(own) = own.filter(|_| level == 0) {
            (geometry.spacing_mm, geometry.origin_mm) = (own.spacing_mm, own.origin_mm);
            geometry.direction = own.direction;
        } else {
            geometry.spacing_mm = unplaced.spacing_mm;
        }
        Ok((geometry, warnings))
    }

    /// Whether our own placement is still that of level 0: another tool may have moved the image.
    fn agrees(&self, own: &OwnNumbers, warnings: &mut Vec<String>) -> bool {
        let OwnNumbers { spacing_mm: spacing, origin_mm: origin, direction } = own;
        let level = &self.levels[0];
        let agree = self.axes.iter().enumerate().all(|(i, axis)| {
            let Kind::Space(j) = axis.kind else { return true };
            let mm = axis.millimetres(&mut Vec::new());
            let (scale, start) = (level.scale[i] * mm, level.translation[i] * mm);
            (scale - spacing[j]).abs() <= SAME * spacing[j]
                && (start - along(direction, origin, j)).abs() <= SAME * (spacing[j] + start.abs())
        });
        if !agree {
            warnings.push(
                "scale and translation were changed since ffdp wrote the image; they are used, without a direction"
                    .to_string(),
            );
        }
        agree
    }
}

impl Axis {
    /// Of its unit.
    pub fn millimetres(&self, warnings: &mut Vec<String>) -> f64 {
        let unit = self.unit.as_deref().unwrap_or("");
        match unit_in_mm(unit) {
            Some(mm) => mm,
            None => {
                let name = &self.name;
                warnings.push(match unit {
                    "" => format!("axis {name} has no unit; taken as millimetres"),
                    other => {
                        format!("unit {other} of axis {name} is unknown; taken as millimetres")
                    }
                });
                1.0
            }
        }
    }
}

/// Where x, y and z grow, in RAS: as the axes say, else x to the left, y to the back, z upwards.
pub fn direction(axes: &[Axis]) -> Matrix3 {
    let mut direction = [[-1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, 1.0]];
    for axis in axes {
        if let (Kind::Space(j), Some(towards)) = (axis.kind, axis.towards) {
            (0..3).for_each(|row| direction[row][j] = towards[row]);
        }
    }
    direction
}

/// The part of a position along column `j` of a direction: what the file's axis `j` says of it.
pub fn along(direction: &Matrix3, position: &[f64; 3], j: usize) -> f64 {
    let inverse = Affine::<(), ()>::from_parts(*direction, [0.0; 3]).inverse();
    let linear = inverse.map_or(*direction, |inverse| inverse.linear());
    linear[j].iter().zip(position).map(|(part, p)| part * p).sum()
}

impl Own {
    pub fn of(geometry: &Geometry) -> Self {
        let text =
            |numbers: &[f64]| numbers.iter().map(f64::to_string).collect::<Vec<_>>().join(" ");
        Self {
            spacing_mm: text(&geometry.spacing_mm),
            origin_mm: text(&geometry.origin_mm),
            direction: text(geometry.direction.as_flattened()),
        }
    }

    fn numbers(&self) -> Option<OwnNumbers> {
        let numbers = |text: &str| -> Option<Vec<f64>> {
            let number = |word: &str| word.parse::<f64>().ok().filter(|number| number.is_finite());
            text.split(' ').map(number).collect()
        };
        let triple = |text: &str| <[f64; 3]>::try_from(numbers(text)?).ok();
        let direction = numbers(&self.direction).filter(|numbers| numbers.len() == 9)?;
        let direction: Matrix3 =
            std::array::from_fn(|i| std::array::from_fn(|j| direction[3 * i + j]));
        let (spacing_mm, origin_mm) = (triple(&self.spacing_mm)?, triple(&self.origin_mm)?);
        Some(OwnNumbers { spacing_mm, origin_mm, direction })
    }
}

/// Axes with their kinds, or those that do not do.
pub fn axes(raw: Vec<RawAxis>) -> std::result::Result<Vec<Axis>, String> {
    let mut axes: Vec<(Axis, bool)> = Vec::new();
    for axis in raw {
        let (name, kind, unit, orientation) = match axis {
            RawAxis::Name(name) => (name, None, None, None),
            RawAxis::Full { name, r#type, unit, orientation } => (name, r#type, unit, orientation),
        };
        // By its name only where it has no type.
        let by_name = match name.as_str() {
            "x" | "y" | "z" => "space",
            "t" => "time",
            _ => "channel",
        };
        let (kind, is_space) = match kind.as_deref().unwrap_or(by_name) {
            "space" => (Kind::Space(0), true),
            "time" => (Kind::Time, false),
            "displacement" => (Kind::Displacement, false),
            _ => (Kind::Channel, false),
        };
        let towards = orientation
            .as_ref()
            .and_then(|value| towards(value["value"].as_str().or(value.as_str()).unwrap_or("")));
        axes.push((Axis { name, kind, unit, towards }, is_space));
    }
    // x, y and z by name; other names in order, the last one x.
    let spaces: Vec<usize> = (0..axes.len()).filter(|i| axes[*i].1).collect();
    let named: Option<Vec<usize>> =
        spaces.iter().map(|i| "xyz".find(&axes[*i].0.name.to_lowercase())).collect();
    let in_order = (0..spaces.len()).rev().collect();
    for (i, j) in spaces.iter().zip(named.unwrap_or(in_order)) {
        axes[*i].0.kind = Kind::Space(j);
    }
    let axes: Vec<Axis> = axes.into_iter().map(|(axis, _)| axis).collect();
    let twice = (1..axes.len()).any(|i| axes[..i].iter().any(|axis| axis.kind == axes[i].kind));
    match (1..=3).contains(&spaces.len()) && !twice {
        true => Ok(axes),
        false => {
            let list = axes.iter().map(|axis| format!("{} ({:?})", axis.name, axis.kind));
            Err(list.collect::<Vec<_>>().join(", "))
        }
    }
}

/// The direction in RAS of an anatomical orientation of RFC-4.
fn towards(value: &str) -> Option<[f64; 3]> {
    Some(match value {
        "left-to-right" => [1.0, 0.0, 0.0],
        "right-to-left" => [-1.0, 0.0, 0.0],
        "posterior-to-anterior" => [0.0, 1.0, 0.0],
        "anterior-to-posterior" => [0.0, -1.0, 0.0],
        "inferior-to-superior" => [0.0, 0.0, 1.0],
        "superior-to-inferior" => [0.0, 0.0, -1.0],
        _ => return None,
    })
}

/// The orientation of RFC-4 of a column of a direction matrix; none where it is oblique.
pub fn orientation(column: [f64; 3]) -> Option<&'static str> {
    const NAMES: [[&str; 2]; 3] = [
        ["right-to-left", "left-to-right"],
        ["anterior-to-posterior", "posterior-to-anterior"],
        ["superior-to-inferior", "inferior-to-superior"],
    ];
    let axis = (0..3).find(|i| (column[*i].abs() - 1.0).abs() < 1e-6)?;
    Some(NAMES[axis][usize::from(column[axis] > 0.0)])
}

/// `scale x + translation`, along each axis.
struct Transformation {
    scale: Vec<f64>,
    translation: Vec<f64>,
}

/// That of a list; scales of 1 and no translation without any.
fn transformation(list: &[Value], axes: usize) -> std::result::Result<Transformation, String> {
    let (mut scale, mut translation) = (vec![1.0; axes], vec![0.0; axes]);
    for step in list {
        let numbers = |name: &str| -> std::result::Result<Vec<f64>, String> {
            let numbers =
                step[name].as_array().map(|list| list.iter().map(Value::as_f64).collect());
            let numbers: Option<Vec<f64>> = numbers.flatten();
            numbers.filter(|numbers| numbers.len() == axes).ok_or_else(|| step.to_string())
        };
        match step["type"].as_str() {
            Some("identity") => {}
            Some("sequence") => {
                let steps = step["transformations"].as_array().ok_or_else(|| step.to_string())?;
                let inner = transformation(steps, axes)?;
                for i in 0..axes {
                    scale[i] *= inner.scale[i];
                    translation[i] = translation[i] * inner.scale[i] + inner.translation[i];
                }
            }
            Some("scale") => {
                for (i, factor) in numbers("scale")?.into_iter().enumerate() {
                    (scale[i], translation[i]) = (scale[i] * factor, translation[i] * factor);
                }
            }
            Some("translation") => {
                let shift = numbers("translation")?;
                translation.iter_mut().zip(shift).for_each(|(all, shift)| *all += shift);
            }
            _ => return Err(step.to_string()),
        }
    }
    Ok(Transformation { scale, translation })
}
