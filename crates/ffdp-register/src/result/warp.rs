//! A displacement that a registration has found, in shards: read, judged and written slab by slab.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use burn::tensor::{Device, Tensor};

use crate::fields::Fields;
use crate::parametric::Parametric;
use crate::processes::Processes;
use crate::side::window_of;
use ffdp_burn::ops::{
    GridSampleOptions, Padding, extremes, grid_sample, jacobian, longest_squared, sum_of_all,
};
use ffdp_burn::transform::{Composite, Displacement, Step, affine_tensor, map_vectors};
use ffdp_image::error::Result;
use ffdp_image::image::{
    Affine, Geometry, Voxel, check_planes, download, index_affine, index_linear, runs, upload,
};
use ffdp_image::io::images::DisplacementWriter;
use ffdp_kit::TensorPlace;
use ffdp_parallel::{Axis, DeviceMesh, Sharded, hosts::Holders, parts::narrow};

/// Voxels that are computed and written at a time, unless that is fewer planes than the next number.
const PIECE: usize = 1 << 20;
/// With each piece the planes that are held for it are put together anew.
const PIECE_PLANES: usize = 8;
/// A displacement in shards, on the grid of the level that found it.
///
/// Where several processes have registered, each has its part, all of them do what is done with it at the same time,
/// and rank 0 writes.
#[derive(Clone, Debug)]
pub struct Warp {
    /// `[1, 3, D, H, W]`, components (x, y, z) in voxels of `geometry`; each shard where it rests. Of several
    /// processes, the part of this one.
    pub field: Sharded,
    /// The grid of the level.
    pub geometry: Geometry,
    /// That of the fixed image.
    pub fixed: Geometry,
    /// Where its shards are computed.
    pub(super) work: DeviceMesh,
    /// Who else has a part of it.
    pub(super) holders: Holders,
    pub(super) processes: Processes,
    /// What it is exactly, also between the voxels of the level.
    pub(super) exact: Option<Arc<dyn Parametric>>,
}

/// How far a displacement is from one that can be undone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Folding {
    /// Voxels at which the Jacobian determinant of the map is not positive.
    pub folds: u64,
    /// The smallest determinant.
    pub smallest: f64,
    /// The longest displacement, in mm.
    pub longest_mm: f64,
}

impl Warp {
    /// The first of some fields, a displacement, of a registration of images on the grid `fixed`.
    pub(super) fn new(fields: Fields, fixed: &Geometry, processes: &Processes) -> Self {
        let Fields { mut parts, geometry, work, holders, exact } = fields;
        let (fixed, processes) = (fixed.clone(), processes.clone());
        Self { field: parts.remove(0), geometry, fixed, work, holders, processes, exact }
    }

    /// Does something with runs of planes of the fixed grid, one after the other, on rank 0: `each(planes, w on them
    /// and on up to `more` on either side, the first of these planes)`, in voxels of that grid and on a device.
    pub(super) fn each_piece(
        &self,
        more: usize,
        mut each: impl FnMut(&Range<usize>, Tensor<5>, usize) -> Result<()>,
    ) -> Result<()> {
        let (layout, extent) = (self.field.layout(), self.fixed.size[2]);
        for planes in pieces(&self.fixed) {
            let around = planes.start.saturating_sub(more)..(planes.end + more).min(extent);
            let (window, _) = self.window(&around);
            let Some(field) = self.processes.to_first(&self.field, &self.holders, window)? else {
                continue;
            };
            // Where the shard is that they lie on, if it is here.
            let plane = planes.start * layout.extent() / extent;
            let k = layout.overlaps(&(plane..plane + 1)).first().map_or(0, |(k, _)| *k);
            each(&planes, self.part(&field, &around, self.work.device(k))?, around.start)?;
        }
        Ok(())
    }

    /// Whether each process has its part.
    pub(super) fn is_shared(&self) -> bool {
        self.processes.is_several()
    }

    /// The planes of the field under those of the fixed grid, and the map from voxels of these to voxels of those,
    /// both counted from their first plane.
    fn window(&self, planes: &Range<usize>) -> (Range<usize>, Affine<Voxel, Voxel>) {
        if self.geometry == self.fixed {
            return (planes.clone(), Affine::identity());
        }
        let map = index_affine(&self.fixed, &self.geometry, &Affine::identity());
        window_of(&map, planes, self.geometry.size[2])
    }

    /// `w` on planes of the fixed grid, `[1, 3, n, H, W]` in its voxels, on a device; `field` has what lies under
    /// them.
    fn part(&self, field: &Sharded, planes: &Range<usize>, device: &Device) -> Result<Tensor<5>> {
        let [_, h, w] = self.fixed.dims();
        if let (Some(exact), true) = (&self.exact, self.geometry != self.fixed) {
            let like = TensorPlace::new(device, field.shards()[0].dtype());
            return exact.planes(&self.fixed, planes.clone(), &like);
        }
        let (window, local) = self.window(planes);
        let field = field.window(window, device);
        if self.geometry == self.fixed {
            return Ok(field);
        }
        let options = GridSampleOptions {
            padding: Padding::Border,
            size: Some([planes.len(), h, w]),
            ..GridSampleOptions::default()
        };
        let affine = affine_tensor(&local, device, field.dtype());
        let field = grid_sample(field, Some(affine), None, &options);
        Ok(map_vectors(field, &index_linear(&self.geometry, &self.fixed)))
    }

    /// The vectors on planes of the fixed grid, in its voxels, in the order `[3, n, H, W]`; on all ranks.
    ///
    /// # Errors
    /// [`Error::Device`](ffdp_image::Error::Device) when they cannot be read back, [`Error::Invalid`](ffdp_image::Error::Invalid) for planes that there are not,
    /// [`Error::LostRank`](ffdp_image::Error::LostRank).
    pub fn planes(&self, planes: Range<usize>) -> Result<Vec<f32>> {
        check_planes(&planes, self.fixed.size[2])?;
        let (window, _) = self.window(&planes);
        let field = self.holders.fetch(&self.field, &vec![window; self.holders.count()])?;
        let field = field.expect("all ranks want these planes");
        values(self.part(&field, &planes, self.work.device(0))?)
    }

    /// The vectors on the grid of the fixed image, `[3, D, H, W]` in its voxels, on all ranks.
    ///
    /// # Errors
    /// As [`Warp::planes`].
    pub fn to_vec(&self) -> Result<Vec<f32>> {
        if self.is_whole() {
            return values(self.field.gather(self.work.device(0)));
        }
        let grid = &self.fixed;
        let plane = grid.size[0] * grid.size[1];
        let mut vectors = vec![0.0; 3 * grid.len()];
        for planes in pieces(grid) {
            let read = self.planes(planes.clone())?;
            for (component, values) in read.chunks(planes.len() * plane).enumerate() {
                let first = component * grid.len() + planes.start * plane;
                vectors[first..first + values.len()].copy_from_slice(values);
            }
        }
        Ok(vectors)
    }

    /// The displacement on the grid of the fixed image, in one piece on the first device; on all ranks.
    ///
    /// # Errors
    /// As [`Warp::planes`].
    pub fn displacement(&self) -> Result<Displacement> {
        let home = self.work.device(0);
        if self.is_whole() {
            return Displacement::new(self.field.gather(home), self.fixed.clone());
        }
        let [d, h, w] = self.fixed.dims();
        Displacement::new(upload(self.to_vec()?, [1, 3, d, h, w], home), self.fixed.clone())
    }

    /// Where `id + w` carries points, RAS mm: linear between voxels, beyond the grid by the values at its border; on all
    /// ranks.
    ///
    /// # Errors
    /// As [`Warp::planes`].
    pub fn map_points(&self, points: &[[f64; 3]]) -> Result<Vec<[f64; 3]>> {
        let ([x, y, extent], to_voxel) = (self.fixed.size, self.fixed.mm_to_voxel());
        // Points by the plane below them: each pair of planes is read once.
        let mut by_plane: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (index, point) in points.iter().enumerate() {
            let z = to_voxel.apply(*point)[2].clamp(0.0, (extent - 1) as f64);
            by_plane.entry(z as usize).or_default().push(index);
        }
        let mut mapped = points.to_vec();
        for (first, indices) in by_plane {
            let planes = first..(first + 2).min(extent);
            let grid = self.fixed.cropped([0, 0, first], [x, y, planes.len()])?;
            let near = Displacement::from_vec(self.planes(planes)?, grid, &Device::flex())?;
            let map = Composite::new(vec![Step::Displacement(near)]);
            let there: Vec<[f64; 3]> = indices.iter().map(|i| points[*i]).collect();
            for (index, point) in indices.into_iter().zip(map.map_points(&there)?) {
                mapped[index] = point;
            }
        }
        Ok(mapped)
    }

    /// Whether this process has all of it on the grid of the fixed image.
    fn is_whole(&self) -> bool {
        self.geometry == self.fixed && !self.holders.are_several() && !self.processes.is_several()
    }

    /// How the map folds, by central differences, and how far it reaches.
    ///
    /// # Errors
    /// [`Error::Device`](ffdp_image::Error::Device) when numbers cannot be read back.
    pub fn folding(&self) -> Result<Folding> {
        let linear = self.fixed.voxel_to_mm().linear();
        let mut folding = Folding { folds: 0, smallest: f64::INFINITY, longest_mm: 0.0 };
        self.each_piece(1, |planes, block, first| {
            let first = planes.start - first;
            let own = |x: Tensor<5>| narrow(x, Axis::Z.dim(), first..first + planes.len());
            let determinants = own(jacobian(block.clone()));
            let mm = map_vectors(own(block), &linear);
            let folds = sum_of_all(determinants.clone().lower_equal_elem(0.0).float());
            let smallest = extremes(determinants).narrow(2, 0, 1).reshape([1]);
            let numbers = Tensor::cat(vec![folds, smallest, longest_squared(mm)], 0);
            let numbers = values(numbers)?;
            folding.folds += numbers[0] as u64;
            folding.smallest = folding.smallest.min(f64::from(numbers[1]));
            folding.longest_mm = folding.longest_mm.max(f64::from(numbers[2]).sqrt());
            Ok(())
        })?;
        let Folding { folds, smallest, longest_mm } = folding;
        let [folds, smallest, longest_mm] =
            self.processes.numbers_of_first([folds as f64, smallest, longest_mm])?;
        Ok(Folding { folds: folds as u64, smallest, longest_mm })
    }

    /// Writes the displacement for ITK and ANTs, as
    /// [`write_displacement`](ffdp_image::io::images::write_displacement) does.
    ///
    /// # Errors
    /// Those of writing, and [`Error::Device`](ffdp_image::Error::Device) when the field cannot be read back.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let first = self.processes.is_first();
        let mut file = first.then(|| DisplacementWriter::create(path, &self.fixed)).transpose()?;
        for i in 0..3 {
            self.each_piece(0, |_, part, _| {
                let file = file.as_mut().expect("pieces come to rank 0, which has the file");
                let row = file.row(i);
                let component = |c: usize| -> Result<Option<Vec<f32>>> {
                    // One is needed to know how many there are.
                    let is_needed = row[c] != 0.0 || c == i;
                    is_needed.then(|| values(part.clone().narrow(1, c, 1))).transpose()
                };
                let components = [component(0)?, component(1)?, component(2)?];
                file.write(i, components.each_ref().map(Option::as_deref))
            })?;
        }
        file.map_or(Ok(()), DisplacementWriter::finish)
    }
}

/// Runs of planes that are computed and written one after the other.
pub(super) fn pieces(grid: &Geometry) -> impl Iterator<Item = Range<usize>> {
    runs(grid, PIECE.max(PIECE_PLANES * grid.size[0] * grid.size[1]))
}

/// Values on the host.
pub(super) fn values<const D: usize>(part: Tensor<D>) -> Result<Vec<f32>> {
    download(part, "a slab")
}
