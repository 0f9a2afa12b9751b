//! The moving image and its labels as a result shows them, piece by piece.

use std::ops::Range;
use std::path::Path;

use burn::tensor::{Device, Tensor};

use super::Registration;
use super::warp::{Warp, pieces, values};
use crate::fields::Fields;
use crate::processes::Processes;
use crate::start::Start;
use ffdp_burn::ops::Interpolation;
use ffdp_image::error::Result;
use ffdp_image::image::{Geometry, Planes, index_affine, upload_each};
use ffdp_image::io::images::{LabelWriter, VolumeWriter};
use ffdp_image::metrics::{DiceScores, OverlapCounts};
use ffdp_parallel::{Axis, DisplacementBounds, ReadSampler, Sharded, narrow};

/// Voxels of the moving image that are held for them, about, unless that is less than this part of it.
const READ: usize = 1 << 24;
const READ_PART: usize = 8;

/// What a transform is held on that is evaluated anew wherever it is read.
const COARSE: usize = 8;

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

impl Registration {
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
    /// As [`Registration::write_warped`]; [`Error::Invalid`](ffdp_image::Error::Invalid) for values that are no labels.
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

    /// The overlap of labels on the fixed grid and of those on the moving one where the run began; on rank 0.
    ///
    /// # Errors
    /// As [`Registration::write_warped_labels`].
    pub fn overlap_before(
        &self,
        (moving, ids): (&mut dyn Planes, &[i32]),
        fixed: &mut dyn Planes,
    ) -> Result<Option<DiceScores>> {
        if !self.processes.is_first() {
            return Ok(None);
        }
        let mut counts = OverlapCounts::default();
        let placed = self.before()?;
        let meaning = moving.labels().clone();
        placed.each_piece(moving, Interpolation::Nearest, |planes, values| {
            counts.add(&labels_on(fixed, planes)?, &meaning.read(&values)?)
        })?;
        Ok(Some(counts.dice().counting_lost(ids)))
    }

    /// Shows planes of the fixed grid that are `wanted`, one after the other, with what is seen there of the moving image
    /// where the run began, in its own intensities; on rank 0, and nothing on the others.
    ///
    /// # Errors
    /// Those of reading, and [`Error::Device`](ffdp_image::Error::Device) when values cannot be read back.
    pub fn show_before(
        &self,
        moving: &mut dyn Planes,
        wanted: impl Fn(usize) -> bool,
        mut each: impl FnMut(usize, &[f32]),
    ) -> Result<()> {
        if !self.processes.is_first() {
            return Ok(());
        }
        let placed = self.before()?;
        let mut show = placed.plane_sampler(moving, Interpolation::Linear)?;
        for planes in pieces(&self.fixed).filter(|planes| planes.clone().any(&wanted)) {
            let w = placed.warp.as_ref().map(|warp| warp.piece(&planes)).transpose()?;
            let bounds = match &w {
                Some(w) => DisplacementBounds::read(&Sharded::whole(w.clone()))?.remove(0),
                None => DisplacementBounds::NONE,
            };
            let seen = show(&planes, (w.as_ref(), &bounds), &self.home)?;
            for plane in planes.clone().filter(|plane| wanted(*plane)) {
                let at = plane - planes.start;
                each(plane, &values(narrow(seen.clone(), Axis::Z.dim(), at..at + 1))?);
            }
        }
        Ok(())
    }

    /// Where the run began, for one process.
    pub(super) fn before(&self) -> Result<Self> {
        let Start { affine, deformation } = &self.start;
        let warp = deformation.as_ref().map(|given| {
            let coarse = self.fixed.resized(self.fixed.size.map(|n| n.div_ceil(COARSE)))?;
            let fields = Fields::of_start(given.clone(), &coarse, &self.home)?;
            Ok(Warp::new(fields, &self.fixed, &Processes::alone()))
        });
        Ok(Self { affine: *affine, warp: warp.transpose()?, ..self.clone() })
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
