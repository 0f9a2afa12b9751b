//! FreeSurfer's linear transforms (`.lta`, text): a 4x4 matrix from the source, the moving image, to the destination,
//! the fixed one; between positions in RAS mm (type 1), or between voxels (type 0), with the grids of both images.
//!
//! Source: FreeSurfer 7.4, `utils/transform.cpp` (`LTAwrite`) and `include/transform.h`.

use std::path::Path;

use crate::error::{Error, Result};
use crate::image::{Affine, Geometry, Physical, Voxel};
use crate::io::images::grid_of_centre;

const CONVERT: &str = "convert it: lta_convert --inlta IN.lta --outlta OUT.lta --ltatype RAS2RAS";
const DAMAGED: &str = "it is damaged: copy or write it again";

/// Matrices between positions in mm, and between voxels.
const RAS_TO_RAS: &str = "1";
const VOXEL_TO_VOXEL: &str = "0";

/// Whether a text is one: its first line that is no comment says a type.
pub(super) fn is_lta(text: &str) -> bool {
    lines(text).next().is_some_and(|(_, line)| pair(line).is_some_and(|(key, _)| key == "type"))
}

/// The map from fixed to moving in RAS mm.
pub(super) fn read(path: &Path, text: &str) -> Result<Affine<Physical, Physical>> {
    let count = field(path, lines(text), "nxforms")?;
    if count != "1" {
        return Err(Error::file(path, "nxforms must be 1, one transform", count, CONVERT));
    }
    let map = match field(path, lines(text), "type")? {
        RAS_TO_RAS => matrix(path, text)?,
        VOXEL_TO_VOXEL => {
            let moving = grid(path, text, "src volume info")?;
            let fixed = grid(path, text, "dst volume info")?;
            let voxels: Affine<Voxel, Voxel> = matrix(path, text)?;
            moving.mm_to_voxel().then(&voxels).then(&fixed.voxel_to_mm())
        }
        other => {
            let what = "the type must be 1 (RAS to RAS) or 0 (voxel to voxel)";
            return Err(Error::file(path, what, other, CONVERT));
        }
    };
    map.inverse().map_err(Error::in_file(path))
}

/// The lines with something on them, with their numbers; comments are left out.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> + Clone {
    let lines = (1..).zip(text.lines());
    let lines = lines.map(|(number, line)| (number, line.split('#').next().unwrap_or("").trim()));
    lines.filter(|(_, line)| !line.is_empty())
}

fn pair(line: &str) -> Option<(&str, &str)> {
    line.split_once('=').map(|(key, value)| (key.trim(), value.trim()))
}

/// The first value of a name among some lines.
fn field<'a>(
    path: &Path,
    mut lines: impl Iterator<Item = (usize, &'a str)>,
    name: &str,
) -> Result<&'a str> {
    let found = lines.find_map(|(_, line)| pair(line).filter(|(key, _)| *key == name));
    found
        .map(|(_, value)| value)
        .ok_or_else(|| Error::file(path, format!("the file must have {name}"), "none", DAMAGED))
}

fn numbers<const N: usize>(text: &str) -> Option<[f64; N]> {
    let number = |word: &str| word.parse().ok().filter(|n: &f64| n.is_finite());
    let numbers: Option<Vec<f64>> = text.split_whitespace().map(number).collect();
    numbers?.try_into().ok()
}

/// The matrix after the line `1 4 4`.
fn matrix<From, To>(path: &Path, text: &str) -> Result<Affine<From, To>> {
    let is_size = |(_, line): &(usize, &str)| numbers(line) == Some([1.0, 4.0, 4.0]);
    let mut rows = lines(text).skip_while(|line| !is_size(line)).skip(1).take(4);
    let mut row = || {
        let (number, line) = rows.next().unwrap_or((0, "no line"));
        numbers::<4>(line).ok_or_else(|| {
            let what =
                format!("line {number}: four numbers must follow, in four lines after 1 4 4");
            Error::file(path, &what, format!("{line:?}"), DAMAGED)
        })
    };
    let [a, b, c, last] = [row()?, row()?, row()?, row()?];
    let unit = [0.0, 0.0, 0.0, 1.0];
    if last.iter().zip(unit).any(|(v, unit)| (v - unit).abs() > super::matrix::LAST_ROW) {
        return Err(Error::file(
            path,
            "the last row must be 0 0 0 1",
            format!("{last:?}"),
            DAMAGED,
        ));
    }
    Ok(Affine::from_rows([a, b, c]))
}

/// The grid of an image, by the lines after a title.
fn grid(path: &Path, text: &str, title: &str) -> Result<Geometry> {
    let part = lines(text).skip_while(|(_, line)| *line != title).skip(1);
    let part = part.take_while(|(_, line)| !line.ends_with("volume info"));
    if !field(path, part.clone(), "valid")?.starts_with('1') {
        let what = format!("a matrix between voxels needs a valid {title}");
        return Err(Error::file(path, &what, "valid = 0", CONVERT));
    }
    let three = |name: &str| {
        let value = field(path, part.clone(), name)?;
        numbers::<3>(value).ok_or_else(|| {
            let what = format!("{name} of the {title} must be three numbers");
            Error::file(path, &what, format!("{value:?}"), DAMAGED)
        })
    };
    let sizes = three("volume")?;
    let size = sizes.map(|n| (n >= 1.0 && n.fract() == 0.0 && n < 1e9).then_some(n as usize));
    let [Some(x), Some(y), Some(z)] = size else {
        let what = format!("volume of the {title} must be three sizes");
        return Err(Error::file(path, &what, format!("{sizes:?}"), DAMAGED));
    };
    let axes = [three("xras")?, three("yras")?, three("zras")?];
    grid_of_centre([x, y, z], three("voxelsize")?, axes, three("cras")?)
        .map_err(Error::in_file(path))
}
