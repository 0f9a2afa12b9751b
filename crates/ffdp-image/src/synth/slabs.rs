//! A subject of any size, slab by slab: labels and image, in memory proportional to a slab.

use std::ops::Range;

use super::intensity_table::IntensityTable;
use super::label_field::{LabelField, label_slices};
use super::texture::{Smoother, texture};
use super::warp::Diffeomorphism;
use crate::image::Geometry;
use crate::{Error, Result};

/// What a subject is made of.
pub struct SubjectSource<'a> {
    /// Labels at every position.
    pub field: &'a dyn LabelField,
    /// The labels are seen through this: `L(warp(p))`.
    pub warp: Option<&'a Diffeomorphism>,
    /// Intensities of the labels.
    pub table: &'a IntensityTable,
    /// Grid of the subject.
    pub geometry: Geometry,
    /// Sigma of the smoothing of the intensities, voxels; 0.75 in the FFDP paper.
    pub smoothing_voxels: f64,
    /// Seed of the texture.
    pub seed: u64,
}

/// Consecutive slices of a subject, x fastest.
#[derive(Clone, Debug, PartialEq)]
pub struct Slab {
    /// The slices.
    pub z: Range<usize>,
    /// Label ids.
    pub labels: Vec<i32>,
    /// Intensities: normal draws of each voxel's label (background 0), smoothed.
    pub image: Vec<f32>,
}

/// The slabs of a subject, from the first slice to the last; the same bits for every thickness.
pub struct Slabs<'a> {
    source: SubjectSource<'a>,
    smoother: Smoother,
    thickness: usize,
    /// First slice of the next slab.
    next: usize,
    /// Slices from `next` on that are labelled already: smoothing looks ahead.
    labels: Vec<i32>,
    /// First slice in `smoothed`.
    first_smoothed: usize,
    /// Textures smoothed in the plane; as many before `next` as smoothing looks back.
    smoothed: Vec<f32>,
}

impl<'a> Slabs<'a> {
    /// Slabs of `thickness` slices; the last one may be thinner.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a thickness of 0, a smoothing outside 0..=10 voxels, or labels
    /// without statistics.
    pub fn new(source: SubjectSource<'a>, thickness: usize) -> Result<Self> {
        if thickness == 0 {
            let what = "a slab must have at least one slice";
            return Err(Error::invalid(what, thickness, "use 32"));
        }
        if !(0.0..=10.0).contains(&source.smoothing_voxels) {
            let what = "the smoothing of intensities must lie in 0..10 voxels";
            return Err(Error::invalid(what, source.smoothing_voxels, "use 0.75, or 0 for none"));
        }
        source.table.check_covers(&source.field.ids())?;
        let smoother = Smoother::new(source.smoothing_voxels);
        let (labels, smoothed) = (Vec::new(), Vec::new());
        Ok(Self { source, smoother, thickness, next: 0, labels, first_smoothed: 0, smoothed })
    }

    /// Labels and textures up to slice `end`.
    fn advance(&mut self, end: usize) {
        let SubjectSource { field, warp, table, geometry, seed, .. } = &self.source;
        let [nx, ny, _] = geometry.size;
        let known = self.next + self.labels.len() / (nx * ny);
        let labels = label_slices(*field, *warp, geometry, known..end);
        let mut values = texture(&labels, nx * ny, known, table, *seed);
        self.smoother.in_plane(&mut values, [nx, ny]);
        self.labels.extend(labels);
        self.smoothed.extend(values);
    }
}

impl Iterator for Slabs<'_> {
    type Item = Slab;

    fn next(&mut self) -> Option<Slab> {
        let [nx, ny, nz] = self.source.geometry.size;
        let (slice_len, radius) = (nx * ny, self.smoother.radius());
        let z = self.next..(self.next + self.thickness).min(nz);
        if z.is_empty() {
            return None;
        }
        self.advance((z.end + radius).min(nz));
        let image =
            self.smoother.across(&self.smoothed, self.first_smoothed, slice_len, z.clone(), nz);
        let labels: Vec<i32> = self.labels.drain(..z.len() * slice_len).collect();
        let keep = z.end.saturating_sub(radius).max(self.first_smoothed);
        self.smoothed.drain(..(keep - self.first_smoothed) * slice_len);
        (self.first_smoothed, self.next) = (keep, z.end);
        Some(Slab { z, labels, image })
    }
}
