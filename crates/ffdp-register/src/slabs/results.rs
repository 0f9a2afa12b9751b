//! What a registration of slabs has found, written slab by slab.

use std::ops::Range;
use std::path::Path;

use burn::tensor::{Device, Tensor};

use crate::fields::Fields;
use crate::processes::Processes;
use crate::report::StageReport;
use crate::run::Outcome;
use crate::source::window_of;
use ffdp_burn::ops::{
    GridSampleOptions, Interpolation, Padding, bspline_part, extremes, grid_sample, jacobian,
    longest_squared, sum_of_all,
};
use ffdp_burn::transform::{BsplineTransform, affine_tensor, map_vectors};
use ffdp_image::error::Result;
use ffdp_image::image::{
    Affine, Geometry, Physical, Planes, Voxel, check_planes, download, index_affine, index_linear,
    runs, upload_each,
};
use ffdp_image::io::images::{DisplacementWriter, LabelWriter, VolumeWriter};
use ffdp_image::metrics::{DiceScores, OverlapCounts};
use ffdp_parallel::{Axis, DeviceMesh, DisplacementBounds, Holders, ReadSampler, Sharded, narrow};

/// Voxels that are computed and written at a time, unless that is fewer planes than the next number.
const PIECE: usize = 1 << 20;
/// With each piece the planes that are held for it are put together anew.
const PIECE_PLANES: usize = 8;
/// Voxels of the moving image that are held for them, about, unless that is less than this part of it.
const READ: usize = 1 << 24;
const READ_PART: usize = 8;

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
    pub(super) spline: Option<BsplineTransform>,
}

/// What [`register_slabs`](super::register_slabs) found: the map `phi(x) = A (x + w(x))` from fixed to
/// moving.
#[derive(Clone, Debug)]
pub struct SlabRegistration {
    /// `A`, in RAS mm.
    pub affine: Affine<Physical, Physical>,
    /// `w`, on the grid of the fixed image; `None` without a deformable stage, or if it was undone.
    pub warp: Option<Warp>,
    /// As in [`Registration`](crate::Registration), where the last deformable stage gives it.
    pub inverse: Option<Warp>,
    /// As in [`Registration`](crate::Registration).
    pub spline: Option<BsplineTransform>,
    /// One report per stage.
    pub stages: Vec<StageReport>,
    /// As in [`Registration`](crate::Registration).
    pub loss_before: f64,
    /// The same with the result.
    pub loss_after: f64,
    /// As in [`Registration`](crate::Registration).
    pub contrast: Option<f64>,
    /// Whether it is worth anything.
    pub outcome: Outcome,
    /// Of the fixed image.
    pub(super) fixed: Geometry,
    pub(super) home: Device,
    pub(super) processes: Processes,
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
        let Fields { mut parts, geometry, work, holders, spline } = fields;
        let (fixed, processes) = (fixed.clone(), processes.clone());
        Self { field: parts.remove(0), geometry, fixed, work, holders, processes, spline }
    }

    /// Does something with runs of planes of the fixed grid, one after the other, on rank 0: `each(planes, w on them
    /// and on up to `more` on either side, the first of these planes)`, in voxels of that grid and on a device.
    fn each_piece(
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
        if let (Some(spline), true) = (&self.spline, self.geometry != self.fixed) {
            let like = (device, field.shards()[0].dtype());
            let (coefficients, control) = spline.control_grid(&self.fixed, like)?;
            let (start, size) = ([planes.start, 0, 0], [planes.len(), h, w]);
            return Ok(bspline_part(coefficients, &control, start, size));
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

    /// Shows planes of the fixed grid that are `wanted`, one after the other, on rank 0: the Jacobian determinants of the
    /// map, by central differences, and the displacement in mm, `[4, H, W]`.
    ///
    /// # Errors
    /// [`Error::Device`](ffdp_image::Error::Device) when values cannot be read back.
    pub fn show(
        &self,
        wanted: impl Fn(usize) -> bool,
        mut each: impl FnMut(usize, &[f32]),
    ) -> Result<()> {
        let linear = self.fixed.voxel_to_mm().linear();
        self.each_piece(1, |planes, block, first| {
            if !planes.clone().any(&wanted) {
                return Ok(());
            }
            let both = [jacobian(block.clone()), map_vectors(block, &linear)];
            for plane in planes.clone().filter(|plane| wanted(*plane)) {
                let at = plane - first..plane - first + 1;
                let seen = both.iter().map(|x| narrow(x.clone(), Axis::Z.dim(), at.clone()));
                each(plane, &values(Tensor::cat(seen.collect(), 1))?);
            }
            Ok(())
        })
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

/// An image whose values are shifted by a constant.
struct Shifted<'a> {
    planes: &'a mut dyn Planes,
    by: f32,
    values: Vec<f32>,
}

impl Planes for Shifted<'_> {
    fn geometry(&self) -> &Geometry {
        self.planes.geometry()
    }

    fn read(&mut self, z: Range<usize>) -> Result<&[f32]> {
        let Self { planes, by, values } = self;
        let read = planes.read(z)?;
        if *by == 0.0 {
            return Ok(read);
        }
        values.clear();
        values.extend(read.iter().map(|value| value + *by));
        Ok(values)
    }
}

impl SlabRegistration {
    /// The moving image on the fixed grid, in its own intensities and `beyond` where it does not reach, written as
    /// float32; `moving` is read anew, as far as the map reaches. `each` is shown what is written, run of planes by run
    /// of planes, on rank 0.
    ///
    /// # Errors
    /// Those of reading and writing, and [`Error::Device`](ffdp_image::Error::Device) when values cannot be read back.
    pub fn write_warped(
        &self,
        path: impl AsRef<Path>,
        (moving, beyond): (&mut dyn Planes, f32),
        mut each: impl FnMut(&Range<usize>, &[f32]),
    ) -> Result<()> {
        let first = self.processes.is_first();
        let mut file = first.then(|| VolumeWriter::create(path, &self.fixed)).transpose()?;
        // Samplers read 0 beyond an image.
        let mut shifted = Shifted { planes: moving, by: -beyond, values: Vec::new() };
        self.each_piece(&mut shifted, Interpolation::Linear, |planes, mut values| {
            values.iter_mut().for_each(|value| *value += beyond);
            each(planes, &values);
            file.as_mut().expect("pieces come to rank 0, which has the file").write(&values)
        })?;
        file.map_or(Ok(()), VolumeWriter::finish)
    }

    /// Labels on the moving grid, seen on the fixed one and written: each voxel gets the label of the nearest. Returns
    /// their overlap with `fixed` labels, if there are any; on rank 0. `ids` are all of the moving ones
    /// ([`label_ids`](ffdp_image::image::label_ids)); other ranks than 0 need none.
    ///
    /// # Errors
    /// As [`SlabRegistration::write_warped`]; [`Error::Invalid`](ffdp_image::Error::Invalid) for values that are no labels.
    pub fn write_warped_labels(
        &self,
        path: impl AsRef<Path>,
        (moving, ids): (&mut dyn Planes, &[i32]),
        mut fixed: Option<&mut dyn Planes>,
    ) -> Result<Option<DiceScores>> {
        let first = self.processes.is_first();
        let mut file = first.then(|| LabelWriter::create(path, &self.fixed, ids)).transpose()?;
        let mut counts = OverlapCounts::default();
        let meaning = moving.labels().clone();
        self.each_piece(moving, Interpolation::Nearest, |planes, values| {
            let labels = meaning.read(&values)?;
            if let Some(fixed) = &mut fixed {
                counts.add(&labels_on(*fixed, planes)?, &labels)?;
            }
            file.as_mut().expect("pieces come to rank 0, which has the file").write(&labels)
        })?;
        file.map_or(Ok(()), LabelWriter::finish)?;
        Ok((first && fixed.is_some()).then(|| counts.dice().counting_lost(ids)))
    }

    /// The overlap of labels on the fixed grid and of those on the moving one under an affine map alone (RAS mm); on
    /// rank 0.
    ///
    /// # Errors
    /// As [`SlabRegistration::write_warped_labels`].
    pub fn overlap_under(
        &self,
        affine: &Affine<Physical, Physical>,
        (moving, ids): (&mut dyn Planes, &[i32]),
        fixed: &mut dyn Planes,
    ) -> Result<Option<DiceScores>> {
        if !self.processes.is_first() {
            return Ok(None);
        }
        let mut counts = OverlapCounts::default();
        let placed = Self { affine: *affine, warp: None, ..self.clone() };
        let meaning = moving.labels().clone();
        placed.each_piece(moving, Interpolation::Nearest, |planes, values| {
            counts.add(&labels_on(fixed, planes)?, &meaning.read(&values)?)
        })?;
        Ok(Some(counts.dice().counting_lost(ids)))
    }

    /// Shows planes of the fixed grid that are `wanted`, one after the other, with what is seen there of the moving image
    /// under an affine map alone (RAS mm), in its own intensities; on rank 0, and nothing on the others.
    ///
    /// # Errors
    /// Those of reading, and [`Error::Device`](ffdp_image::Error::Device) when values cannot be read back.
    pub fn show_under(
        &self,
        affine: &Affine<Physical, Physical>,
        moving: &mut dyn Planes,
        wanted: impl Fn(usize) -> bool,
        mut each: impl FnMut(usize, &[f32]),
    ) -> Result<()> {
        if !self.processes.is_first() {
            return Ok(());
        }
        let placed = Self { affine: *affine, warp: None, ..self.clone() };
        let mut show = placed.plane_sampler(moving, Interpolation::Linear)?;
        for planes in pieces(&self.fixed).filter(|planes| planes.clone().any(&wanted)) {
            let seen = show(&planes, (None, &DisplacementBounds::NONE), &self.home)?;
            for plane in planes.clone().filter(|plane| wanted(*plane)) {
                let at = plane - planes.start;
                each(plane, &values(narrow(seen.clone(), Axis::Z.dim(), at..at + 1))?);
            }
        }
        Ok(())
    }

    /// Shows runs of planes of the fixed grid, on rank 0, with what is seen there of an image on the moving grid.
    fn each_piece(
        &self,
        moving: &mut dyn Planes,
        how: Interpolation,
        mut each: impl FnMut(&Range<usize>, Vec<f32>) -> Result<()>,
    ) -> Result<()> {
        let mut show = self.plane_sampler(moving, how)?;
        match &self.warp {
            None if self.processes.is_first() => pieces(&self.fixed).try_for_each(|planes| {
                let none = (None, &DisplacementBounds::NONE);
                each(&planes, values(show(&planes, none, &self.home)?)?)
            }),
            None => Ok(()),
            Some(warp) => warp.each_piece(0, |planes, part, _| {
                let bounds = DisplacementBounds::read(&Sharded::whole(part.clone()))?[0];
                each(planes, values(show(planes, (Some(&part), &bounds), &part.device())?)?)
            }),
        }
    }

    /// What shows the moving image on planes of the fixed grid under the affine map and a displacement on them, which
    /// keeps within bounds. Planes are best asked for in order.
    fn plane_sampler(
        &self,
        moving: &mut dyn Planes,
        how: Interpolation,
    ) -> Result<impl FnMut(&Range<usize>, Displaced, &Device) -> Result<Tensor<5>>> {
        let grid = moving.geometry().clone();
        let map = index_affine(&self.fixed, &grid, &self.affine);
        let most = READ.max(grid.len() / READ_PART);
        let mut sampler = ReadSampler::new([self.fixed.dims(), grid.dims()], map, most, how)?;
        let [_, h, w] = grid.dims();
        Ok(move |planes: &Range<usize>, displaced: Displaced, device: &Device| {
            let read_planes = |z: Range<usize>| {
                let dims = [1, 1, z.len(), h, w];
                Ok(upload_each(moving.read(z)?, |value| value, dims, device))
            };
            sampler.sample(planes, displaced, device, read_planes)
        })
    }
}

/// A displacement, if there is one, and its bounds.
type Displaced<'a> = (Option<&'a Tensor<5>>, &'a DisplacementBounds);

/// The labels on planes of a map.
fn labels_on(map: &mut dyn Planes, planes: &Range<usize>) -> Result<Vec<i32>> {
    let values = map.read(planes.clone())?.to_vec();
    map.labels().read(&values)
}

/// Runs of planes that are computed and written one after the other.
fn pieces(grid: &Geometry) -> impl Iterator<Item = Range<usize>> {
    runs(grid, PIECE.max(PIECE_PLANES * grid.size[0] * grid.size[1]))
}

/// Values on the host.
fn values<const D: usize>(part: Tensor<D>) -> Result<Vec<f32>> {
    download(part, "a slab")
}
