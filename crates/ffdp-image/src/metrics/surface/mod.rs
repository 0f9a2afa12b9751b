//! How far the surfaces of labels lie apart.
//!
//! The surface of a label is a set of elements, one at each voxel corner that it passes through,
//! with an area ([`surfel`]); the distance of an element is that to the nearest element of the other
//! surface. This is the definition of DeepMind's `surface-distance` (Nikolov et al. 2018), which
//! Learn2Reg uses. A label ends where the image does.
//!
//! With distances `d_1 <= .. <= d_N` and areas `a_i` from one surface to the other, and
//! `max` over the two directions:
//! ```text
//! HD_q      = max  d_i,  i the first with a_1 + .. + a_i >= q (a_1 + .. + a_N)
//! HD90 cum. = max  (d_1 + .. + d_k) / k,  k = floor(0.9 N)             (FFDP paper, K.2)
//! ASSD      = sum over both directions of a_i d_i / sum over both of a_i
//! ```
//! Memory, for as many labels at a time as there are threads: 6 bytes for each voxel of the box around
//! it in both maps.

mod boxes;
mod codes;
mod directed;
mod rows;
mod surfel;
#[cfg(test)]
mod tests;

use rayon::join;
use rayon::prelude::*;
use serde::Serialize;

use crate::image::{Geometry, LabelMap};
use crate::{Error, Result};
use boxes::{Box3, boxes};
use codes::Codes;
use directed::Directed;
use surfel::surfel_areas;

/// Cosine between voxel axes up to which they count as orthogonal: headers hold few digits.
const ORTHOGONAL: f64 = 1e-3;

/// What distances are measured in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DistanceUnit {
    /// Millimetres, by the spacing of the fixed map.
    #[default]
    Millimetres,
    /// Voxels, whatever the spacing, as Learn2Reg has it.
    Voxels,
}

/// How far the surfaces of one label lie apart, in the [`DistanceUnit`] asked for.
///
/// NaN throughout where the label is absent in either map.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LabelSurface {
    /// The label id.
    pub id: i32,
    /// Largest distance (Hausdorff).
    pub hd100: f64,
    /// Distance that 95 % of the area do not exceed.
    pub hd95: f64,
    /// Distance that 90 % of the area do not exceed.
    pub hd90: f64,
    /// The FFDP paper's cumulative HD90: mean of the smallest 90 % of the distances.
    pub hd90_cumulative: f64,
    /// Mean distance over both surfaces, by area.
    pub assd: f64,
    /// Mean distance of the fixed surface to the moved one, by area.
    pub fixed_to_moved: f64,
    /// Mean distance of the moved surface to the fixed one, by area.
    pub moved_to_fixed: f64,
}

/// Means over the labels present in both maps of one measure: `mean(&scores, |label| label.hd95)`;
/// NaN if there is none.
pub fn surface_mean(labels: &[LabelSurface], measure: impl Fn(&LabelSurface) -> f64) -> f64 {
    let present: Vec<f64> = labels.iter().map(measure).filter(|value| !value.is_nan()).collect();
    present.iter().sum::<f64>() / present.len() as f64
}

/// The surface distances of the given labels, in that order.
///
/// # Errors
/// [`Error::Grid`] when the maps are on different grids, [`Error::Invalid`] for millimetres on a
/// grid whose axes are not orthogonal.
pub fn surface_distances(
    fixed: &LabelMap,
    moved: &LabelMap,
    ids: &[i32],
    unit: DistanceUnit,
) -> Result<Vec<LabelSurface>> {
    fixed.geometry.check_same_grid(&moved.geometry, "the moved label map")?;
    let spacing = match unit {
        DistanceUnit::Millimetres => {
            check_orthogonal(&fixed.geometry)?;
            fixed.geometry.spacing_mm
        }
        DistanceUnit::Voxels => [1.0; 3],
    };
    let areas = surfel_areas(spacing);
    let pair = Pair { maps: [&fixed.data, &moved.data], size: fixed.geometry.size, spacing, areas };
    let found = [fixed, moved].map(|map| boxes(&map.data, map.geometry.size));
    let score = |&id| match [found[0].get(&id), found[1].get(&id)] {
        [Some(&a), Some(&b)] => pair.measure(id, a.union(b)),
        _ => LabelSurface::constant(id, f64::NAN),
    };
    Ok(ids.par_iter().map(score).collect())
}

impl LabelSurface {
    /// Every measure the same.
    pub(super) fn constant(id: i32, value: f64) -> Self {
        Self {
            id,
            hd100: value,
            hd95: value,
            hd90: value,
            hd90_cumulative: value,
            assd: value,
            fixed_to_moved: value,
            moved_to_fixed: value,
        }
    }
}

/// Two label maps of one grid.
struct Pair<'a> {
    maps: [&'a [i32]; 2],
    size: [usize; 3],
    spacing: [f64; 3],
    areas: [f64; 256],
}

impl Pair<'_> {
    fn measure(&self, id: i32, within: Box3) -> LabelSurface {
        let [fixed, moved] = self.maps.map(|map| Codes::of(id, map, self.size, within));
        let between = |from, to| Directed::between(from, to, self.spacing, &self.areas);
        let (there, back) = join(|| between(&fixed, &moved), || between(&moved, &fixed));
        let larger = |measure: &dyn Fn(&Directed) -> f64| measure(&there).max(measure(&back));
        LabelSurface {
            id,
            hd100: larger(&|d| d.percentile(100.0)),
            hd95: larger(&|d| d.percentile(95.0)),
            hd90: larger(&|d| d.percentile(90.0)),
            hd90_cumulative: larger(&|d| d.mean_of_smallest(0.9)),
            assd: (there.moment + back.moment) / (there.area + back.area),
            fixed_to_moved: there.moment / there.area,
            moved_to_fixed: back.moment / back.area,
        }
    }
}

fn check_orthogonal(geometry: &Geometry) -> Result<()> {
    let largest = geometry.largest_cosine();
    if largest <= ORTHOGONAL {
        return Ok(());
    }
    Err(Error::invalid(
        "surface distances in mm need voxel axes at right angles (largest cosine between two)",
        largest,
        "resample the labels to a grid without shear",
    ))
}
