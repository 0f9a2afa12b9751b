//! One synthetic subject: the anatomy, seen through a random warp.

use rayon::prelude::*;

use super::anatomy::Anatomy;
use super::intensities::sample_intensities;
use super::phantom::PhantomSettings;
use super::structure::Structure;
use super::warp::Diffeomorphism;
use crate::Result;
use crate::image::{Geometry, LabelMap, Volume};

/// An image with the label map whose intensities it has, on one grid.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Intensities in 0..1, background 0.
    pub image: Volume,
    /// Ids of [`Structure`], background 0.
    pub labels: LabelMap,
}

/// The subject of a seed: one anatomy, warped by a diffeomorphism of its own, with intensities and noise
/// of its own.
///
/// The labels are the continuous anatomy at warped positions, so nothing is interpolated, and
/// any size and spacing shows the same subject. Subjects of neighbouring seeds are independent:
/// number them `base_seed + index`.
///
/// # Errors
/// Settings that do not validate.
pub fn subject(settings: &PhantomSettings, seed: u64) -> Result<Subject> {
    settings.validate()?;
    let warp = Diffeomorphism::random(&settings.warp, seed)?;
    let labels = warped_anatomy(settings.geometry()?, |p| warp.apply(p))?;
    Ok(Subject { image: sample_intensities(&labels, settings, seed)?, labels })
}

/// The anatomy at `map(p)` for every voxel centre p (mm).
pub(crate) fn warped_anatomy(
    geometry: Geometry,
    map: impl Fn([f64; 3]) -> [f64; 3] + Sync,
) -> Result<LabelMap> {
    let anatomy = Anatomy::default();
    let to_mm = geometry.voxel_to_mm();
    let [nx, ny, _] = geometry.size;
    let mut ids = vec![0i32; geometry.len()];
    ids.par_chunks_mut(nx).enumerate().for_each(|(row, line)| {
        for (x, id) in line.iter_mut().enumerate() {
            let point = to_mm.apply([x as f64, (row % ny) as f64, (row / ny) as f64]);
            *id = anatomy.structure(map(point)).map_or(0, Structure::id);
        }
    });
    LabelMap::new(ids, geometry)
}
