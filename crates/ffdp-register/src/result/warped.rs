//! The moving image and its labels as a result shows them: compared and shown piece by piece, to be written.

use std::ops::Range;
use std::path::Path;

use burn::tensor::{Device, Tensor};

use super::Registration;
use super::warp::{pieces, values};
use ffdp_burn::ops::Interpolation;
use ffdp_image::error::Result;
use ffdp_image::image::{Geometry, Planes, index_affine, upload_each};
use ffdp_image::io::images::VolumeWriter;
use ffdp_image::metrics::{Coverage, OverlapCounts, PairPlanes, SimilarityMeasures};
use ffdp_parallel::{
    DisplacementBounds, Sharded,
    ring::{BoundedField, ReadSampler},
};

/// Voxels of the moving image that are held for them, about, unless that is less than this part of it.
const READ: usize = 1 << 24;
const READ_PART: usize = 8;

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

/// The moving image of a result, in planes that are read as they are needed.
pub struct MovingPlanes<'a> {
    /// The image.
    pub planes: &'a mut dyn Planes,
    /// Intensity where the image does not reach.
    pub beyond: f32,
}

/// Planes of the fixed grid, with what is compared there.
#[derive(Clone, Debug)]
pub struct Shown<'a> {
    /// Their numbers.
    pub planes: Range<usize>,
    /// The fixed image.
    pub fixed: &'a [f32],
    /// The moving image as the map shows it.
    pub moved: &'a [f32],
}

/// Planes of the fixed grid, with the labels that are compared there.
#[derive(Clone, Debug)]
pub struct ShownLabels<'a> {
    /// Their numbers.
    pub planes: Range<usize>,
    /// Those of the fixed image, where it has some.
    pub fixed: Option<&'a [i32]>,
    /// Those of the moving image as the map shows them.
    pub moved: &'a [i32],
}

impl Registration {
    /// The moving image on the fixed grid, in its own intensities, written as float32; it is read anew, as far as the map
    /// reaches.
    ///
    /// # Errors
    /// Those of reading and writing, and [`Error::Device`](ffdp_image::Error::Device) when values cannot be read back.
    pub fn write_warped(&self, path: impl AsRef<Path>, mut moving: MovingPlanes) -> Result<()> {
        let first = self.processes.is_first();
        let mut file = first.then(|| VolumeWriter::create(path, &self.fixed)).transpose()?;
        self.show(&mut moving, |_, values, _| {
            file.as_mut().expect("pieces come to rank 0, which has the file").write(&values)
        })?;
        file.map_or(Ok(()), VolumeWriter::finish)
    }

    /// How alike the images are over the voxels that both cover; NaN on other ranks than 0. Both are read twice, slab by
    /// slab; `each` is shown every run of planes once, in their order.
    ///
    /// # Errors
    /// Those of reading and of `each`, and [`Error::Device`](ffdp_image::Error::Device) when values cannot be read back.
    pub fn similarity(
        &self,
        fixed: &mut dyn Planes,
        mut moving: MovingPlanes,
        mut each: impl FnMut(&Shown) -> Result<()>,
    ) -> Result<SimilarityMeasures> {
        let grid = moving.planes.geometry().clone();
        let mut is_first_sweep = true;
        SimilarityMeasures::of_runs(self.fixed.size, |add| {
            self.show(&mut moving, |planes, moved, displacement| {
                let displacement = displacement.map(|part| values(part.clone())).transpose()?;
                let grids = [&self.fixed, &grid];
                let coverage = Coverage::new(grids, &self.affine, displacement.as_deref());
                let compared = coverage.of_planes(planes.clone()).compared();
                let (fixed, moved) = (fixed.read(planes.clone())?, &moved[..]);
                if is_first_sweep {
                    each(&Shown { planes: planes.clone(), fixed, moved })?;
                }
                add(PairPlanes { fixed, moved, compared: &compared })
            })?;
            is_first_sweep = false;
            Ok(())
        })
    }

    /// The overlap of labels on the moving grid, seen on the fixed one where each voxel gets the label of the nearest, with
    /// `fixed` labels, if there are any; on rank 0. `each` is shown every run of planes, in their order.
    ///
    /// # Errors
    /// As [`Registration::similarity`]; [`Error::Invalid`](ffdp_image::Error::Invalid) for values that are no labels.
    pub fn label_overlap(
        &self,
        moving: &mut dyn Planes,
        mut fixed: Option<&mut dyn Planes>,
        mut each: impl FnMut(&ShownLabels) -> Result<()>,
    ) -> Result<Option<OverlapCounts>> {
        let mut counts = OverlapCounts::default();
        let meaning = moving.labels().clone();
        self.each_piece(moving, Interpolation::Nearest, |planes, values, _| {
            let moved = &meaning.read(&values)?[..];
            let fixed = fixed.as_mut().map(|fixed| labels_on(*fixed, planes)).transpose()?;
            let fixed = fixed.as_deref();
            fixed.map_or(Ok(()), |fixed| counts.add(fixed, moved))?;
            each(&ShownLabels { planes: planes.clone(), fixed, moved })
        })?;
        Ok((self.processes.is_first() && fixed.is_some()).then_some(counts))
    }

    /// Shows runs of planes of the fixed grid, on rank 0: the moving image and the displacement in voxels, on a
    /// device.
    fn show(
        &self,
        moving: &mut MovingPlanes,
        mut each: impl FnMut(&Range<usize>, Vec<f32>, Option<&Tensor<5>>) -> Result<()>,
    ) -> Result<()> {
        // Samplers read 0 beyond an image.
        let beyond = moving.beyond;
        let mut shifted = Shifted { planes: &mut *moving.planes, by: -beyond, values: Vec::new() };
        self.each_piece(&mut shifted, Interpolation::Linear, |planes, mut values, displacement| {
            values.iter_mut().for_each(|value| *value += beyond);
            each(planes, values, displacement)
        })
    }

    /// Shows runs of planes of the fixed grid, on rank 0, with what is seen there of an image on the moving grid and the
    /// displacement that shows it.
    fn each_piece(
        &self,
        moving: &mut dyn Planes,
        how: Interpolation,
        mut each: impl FnMut(&Range<usize>, Vec<f32>, Option<&Tensor<5>>) -> Result<()>,
    ) -> Result<()> {
        let mut show = self.plane_sampler(moving, how)?;
        match &self.warp {
            None if self.processes.is_first() => pieces(&self.fixed).try_for_each(|planes| {
                each(&planes, values(show(&planes, BoundedField::NONE, &self.home)?)?, None)
            }),
            None => Ok(()),
            // All ranks have the start.
            Some(warp) if !warp.is_shared() && !self.processes.is_first() => Ok(()),
            Some(warp) => warp.each_piece(0, |planes, part, _| {
                let bounds = DisplacementBounds::read(&Sharded::whole(part.clone()))?[0];
                let displaced = BoundedField { field: Some(&part), bounds: &bounds };
                let moved = show(planes, displaced, &part.device())?;
                each(planes, values(moved)?, Some(&part))
            }),
        }
    }

    /// What shows the moving image on planes of the fixed grid under the affine map and a displacement on them, which
    /// keeps within bounds. Planes are best asked for in order.
    fn plane_sampler(
        &self,
        moving: &mut dyn Planes,
        how: Interpolation,
    ) -> Result<impl FnMut(&Range<usize>, BoundedField, &Device) -> Result<Tensor<5>>> {
        let grid = moving.geometry().clone();
        let map = index_affine(&self.fixed, &grid, &self.affine);
        let most = READ.max(grid.len() / READ_PART);
        let mut sampler = ReadSampler::new([self.fixed.dims(), grid.dims()], map, most, how)?;
        let [_, h, w] = grid.dims();
        Ok(move |planes: &Range<usize>, displaced: BoundedField, device: &Device| {
            let read_planes = |z: Range<usize>| {
                let dims = [1, 1, z.len(), h, w];
                Ok(upload_each(moving.read(z)?, |value| value, dims, device))
            };
            sampler.sample(planes, displaced, device, read_planes)
        })
    }
}

/// The labels on planes of a map.
fn labels_on(map: &mut dyn Planes, planes: &Range<usize>) -> Result<Vec<i32>> {
    let values = map.read(planes.clone())?.to_vec();
    map.labels().read(&values)
}
