//! What one run of planes of the fixed side sees of the moving image, iteration after iteration, off
//! the tape.
//!
//! Planned once for as long as the displacement keeps within its bounds; where it pays, the planes that
//! travelled are kept. The field may come in pieces, each with its first plane: nothing of them is
//! joined.

use std::ops::Range;

use burn::Tensor;
use burn::backend::Dispatch;
use burn::tensor::{Device, TensorData};

use super::parcel::Parcel;
use super::route::thickest_parcel_of_block;
use super::{IndexMap, MappedPlanes};
use crate::layout::{Axis, Layout};
use crate::sharded::{Sharded, narrow};
use ffdp_burn::ops::GridSampleOptions;
use ffdp_burn::ops::grid_sample::Sampling;
use ffdp_burn::ops::grid_sample::block::GridSampleBlockOps;

/// Whether the planes that a sampler needs stay where they were fetched to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// For as long as the sampler: the memory of a part of the image, and no traffic.
    Planes,
    /// Only while they are read.
    Nothing,
}

/// The sampler of a run of planes on one device.
#[derive(Clone)]
pub(crate) struct BlockSampler {
    /// Where parcels are fetched from; `None` once what was fetched has taken its place.
    moving: Option<Sharded>,
    layout: Layout,
    map: IndexMap,
    device: Device,
    axis: Axis,
    parcels: Vec<Parcel>,
    kept: Option<Tensor<5>>,
}

impl BlockSampler {
    /// For planes of the fixed side, which are computed on `device`.
    pub fn new(mapped: MappedPlanes, moving: &Sharded, device: &Device, keep: Keep) -> Self {
        let MappedPlanes { fixed, planes, map, .. } = mapped;
        let of_moving = (planes.len() * moving.layout().extent()).div_ceil(fixed.extent());
        let limit = thickest_parcel_of_block(moving.layout().thickest(), of_moving);
        let parcels = mapped.parcels(moving.layout(), &GridSampleOptions::default(), limit);
        let kept = match (keep, &parcels[..]) {
            (Keep::Planes, [parcel]) => Some(parcel.fetch(moving, device)),
            _ => None,
        };
        let (layout, map, device) = (moving.layout().clone(), map.clone(), device.clone());
        let (moving, axis) = (Some(moving.clone()), fixed.axis());
        Self { moving, layout, map, device, axis, parcels, kept }
    }

    /// Whether these planes of the image are kept.
    pub fn keeps(&self, planes: &Range<usize>) -> bool {
        let (Some(_), [parcel]) = (&self.kept, &self.parcels[..]) else { return false };
        let held = parcel.content();
        held.start <= planes.start && planes.end <= held.end
    }

    /// These planes, if they are kept.
    pub fn kept_planes(&self, planes: &Range<usize>) -> Option<Tensor<5>> {
        let kept = self.kept.clone().filter(|_| self.keeps(planes))?;
        let first = self.parcels[0].content().start;
        Some(narrow(kept, self.layout.axis().dim(), planes.start - first..planes.end - first))
    }

    /// Releases the image: what is kept is all that is read.
    pub fn release(&mut self) {
        if self.kept.is_some() {
            self.moving = None;
        }
    }

    fn fetch(&self, parcel: &Parcel) -> Tensor<5> {
        let moving = self.moving.as_ref().expect("an image is released where its planes are kept");
        parcel.fetch(moving, &self.device)
    }

    /// The same with its planes on the device, for as long as this lives.
    pub fn at_hand(&self) -> Self {
        let kept = match (&self.kept, &self.parcels[..]) {
            (None, [parcel]) => Some(self.fetch(parcel)),
            (kept, _) => kept.clone(),
        };
        Self { kept, ..self.clone() }
    }

    /// The moving image where `field`, whose planes begin with `first` of the whole, displaces them.
    pub fn sample(&self, first: usize, field: &Tensor<5>) -> Tensor<5> {
        self.sample_between(first, field, [0; 2])
    }

    /// The same between `[low, high]` planes whose values mean nothing; across z.
    pub fn sample_between(
        &self,
        first: usize,
        field: &Tensor<5>,
        margins: [usize; 2],
    ) -> Tensor<5> {
        let sampling = self.sampling(field);
        let parts = self.parcels.iter().map(|parcel| {
            let (image, map) = (self.image(parcel), self.local_map(parcel, first, field));
            let (image, map) = (image.into_dispatch(), map.into_dispatch());
            let field = field.clone().into_dispatch();
            Tensor::from_dispatch(<Dispatch as GridSampleBlockOps>::grid_sample_3d_block(
                image, map, field, sampling, margins,
            ))
        });
        parts.reduce(Tensor::add).expect("a route has at least one parcel")
    }

    /// The gradient to `field` from that to what [`BlockSampler::sample`] gives.
    pub fn gradient(&self, first: usize, field: &Tensor<5>, to_moved: Tensor<5>) -> Tensor<5> {
        self.gradient_between(first, field, to_moved, [0; 2])
    }

    /// The same from that to what [`BlockSampler::sample_between`] gives; across z.
    pub fn gradient_between(
        &self,
        first: usize,
        field: &Tensor<5>,
        to_moved: Tensor<5>,
        margins: [usize; 2],
    ) -> Tensor<5> {
        let sampling = self.sampling(field);
        let parts = self.parcels.iter().map(|parcel| {
            let (image, map) = (self.image(parcel), self.local_map(parcel, first, field));
            let (image, map) = (image.into_dispatch(), map.into_dispatch());
            let (field, grad) = (field.clone().into_dispatch(), to_moved.clone().into_dispatch());
            let gradient = <Dispatch as GridSampleBlockOps>::grid_sample_3d_block_to_displacement(
                image, map, field, grad, sampling, margins,
            );
            Tensor::from_dispatch(gradient)
        });
        parts.reduce(Tensor::add).expect("a route has at least one parcel")
    }

    fn sampling(&self, field: &Tensor<5>) -> Sampling {
        let [_, _, d, h, w] = field.dims();
        let options = GridSampleOptions::default();
        Sampling {
            interpolation: options.interpolation,
            padding: options.padding,
            scale: self.map.scale,
            size: [d, h, w],
            has_affine: true,
            has_displacement: true,
            accumulation: options.accumulation,
        }
    }

    fn image(&self, parcel: &Parcel) -> Tensor<5> {
        self.kept.clone().unwrap_or_else(|| self.fetch(parcel))
    }

    /// From voxels of planes that begin with `first` to those of the parcel: `t + A o - s` in the
    /// place of `t`.
    fn local_map(&self, parcel: &Parcel, first: usize, field: &Tensor<5>) -> Tensor<3> {
        let start = parcel.origin(&self.layout);
        let column = self.axis.component();
        let entry = |map: &[[f64; 4]; 3], row: usize, c: usize| match c {
            3 => map[row][3] + map[row][column] * first as f64 - start[row],
            _ => map[row][c],
        };
        let entries = |map| (0..12).map(move |i| entry(map, i / 4, i % 4));
        let values: Vec<f64> = self.map.affine.iter().flat_map(entries).collect();
        let shape = [self.map.affine.len(), 3, 4];
        let data = TensorData::new(values, shape).convert_dtype(field.dtype());
        Tensor::from_data(data, (&self.device, field.dtype()))
    }
}
