//! The grid on which a network sees images.

use std::path::Path;

use ffdp_image::image::{Affine, Geometry};
use ffdp_image::io::write_text;
use ffdp_image::{Error, Result};
use serde::{Deserialize, Serialize};

use super::GridCompat;
use crate::data::Dataset;

/// How the training had its images; saved with a run as `input.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputGrid {
    /// Anatomical direction in which each voxel axis grows, for example "RAS".
    pub axes: String,
    /// Voxels along x, y, z over the whole field of view; `None` keeps each image's own.
    pub size: Option<[usize; 3]>,
    /// How the network's displacements are meant.
    #[serde(default)]
    pub compat: GridCompat,
}

impl InputGrid {
    /// Of a data set.
    pub fn of(dataset: &Dataset) -> Self {
        Self {
            axes: dataset.axes.clone(),
            size: dataset.preparation.size,
            compat: GridCompat::Consistent,
        }
    }

    /// # Errors
    /// A file that cannot be read or holds something else.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| Error::io(path, "read", error))?;
        serde_json::from_str(&text).map_err(|error| {
            let what = format!("{}: {error}", path.display());
            Error::invalid(what, text, "take it from the run again")
        })
    }

    /// # Errors
    /// A file that cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        write_text(path, &serde_json::to_string_pretty(self).expect("plain values"))
    }

    /// # Errors
    /// Axis codes that are none.
    pub fn check(&self) -> Result<()> {
        let any = Geometry::new([2; 3], [1.0; 3])?;
        with_axes(&any, &self.axes).map(|_| ())
    }

    /// The grid for a fixed image: its axes in the order of the training, at the training's size.
    /// Axes are permuted and turned round, so voxels stay where they are unless the size changes.
    ///
    /// # Errors
    /// Axis codes that are none.
    pub fn grid(&self, fixed: &Geometry) -> Result<Geometry> {
        let grid = with_axes(fixed, &self.axes)?;
        match self.size {
            Some(size) if size != grid.size => grid.resized(size),
            _ => Ok(grid),
        }
    }
}

/// The same voxels with axes that grow as `axes` says.
fn with_axes(from: &Geometry, axes: &str) -> Result<Geometry> {
    let codes: Vec<char> = from.axis_codes().chars().collect();
    // Of each wanted axis, the axis of the image along the same line, and whether it runs the same way.
    let found: Vec<(usize, bool)> = axes
        .chars()
        .filter_map(|wanted| {
            let along = codes.iter().position(|&code| line_of(code) == line_of(wanted))?;
            Some((along, codes[along] == wanted))
        })
        .collect();
    let found = <[(usize, bool); 3]>::try_from(found).map_err(|_| not_axes(axes))?;
    let mut order = found.map(|(axis, _)| axis);
    order.sort_unstable();
    if order != [0, 1, 2] || axes.chars().count() != 3 {
        return Err(not_axes(axes));
    }
    let to_mm = from.voxel_to_mm();
    let linear = to_mm
        .linear()
        .map(|row| found.map(|(axis, same)| if same { row[axis] } else { -row[axis] }));
    let mut corner = [0.0; 3];
    for (axis, same) in found {
        corner[axis] = if same { 0.0 } else { from.size[axis] as f64 - 1.0 };
    }
    let size = found.map(|(axis, _)| from.size[axis]);
    Geometry::from_affine(size, Affine::from_parts(linear, to_mm.apply(corner)))
}

fn not_axes(axes: &str) -> Error {
    let what = "input.json: axes must be three anatomical directions such as RAS";
    Error::invalid(what, axes, "take the file from the run again")
}

/// The anatomical line of a direction: 0 left-right, 1 back-front, 2 down-up.
fn line_of(code: char) -> Option<usize> {
    ["LR", "PA", "IS"].iter().position(|line| line.contains(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(axes: &str, size: Option<[usize; 3]>) -> InputGrid {
        InputGrid { axes: axes.into(), size, compat: GridCompat::Consistent }
    }

    #[test]
    fn axes_are_permuted_and_turned_without_moving_a_voxel() {
        // Columns: x grows to the left, y upwards, z to the front.
        let linear = [[-1.0, 0.0, 0.0], [0.0, 0.0, 3.0], [0.0, 2.0, 0.0]];
        let from = Geometry::from_affine([4, 5, 6], Affine::from_parts(linear, [7.0, 8.0, 9.0]));
        let from = from.expect("a grid");
        assert_eq!(from.axis_codes(), "LSA");
        let grid = input("RAS", None).grid(&from).expect("a grid");
        assert_eq!((grid.axis_codes().as_str(), grid.size), ("RAS", [4, 6, 5]));
        // Voxel (1, 2, 3) there is (4 - 1 - 1, 3, 2) here.
        let (here, there) = (from.voxel_to_mm().apply([2.0, 3.0, 2.0]), grid.voxel_to_mm());
        assert_eq!(there.apply([1.0, 2.0, 3.0]), here);
        for wrong in ["RAX", "RRS", "RA", "RASR"] {
            assert!(input(wrong, None).grid(&from).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_field_of_view_stays_at_another_size() {
        let from = Geometry::new([40, 50, 60], [1.0, 1.0, 1.0]).expect("a grid");
        let input = input("LPS", Some([20, 25, 20]));
        let grid = input.grid(&from).expect("a grid");
        assert_eq!((grid.size, grid.axis_codes().as_str()), ([20, 25, 20], "LPS"));
        assert_eq!(grid.spacing_mm, [2.0, 2.0, 3.0]);
    }
}
