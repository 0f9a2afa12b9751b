//! Planes of a sharded volume, wherever they lie, and the way back: what halos and the ring are
//! made of.

use std::ops::Range;

use burn::Tensor;
use burn::tensor::Device;

use super::ahead::{at_once, joined_ahead};
use super::lending::{Loan, lent};
use super::sharded::{Sharded, join, narrow};
use super::transfer::to_device;

impl Sharded {
    /// The planes `window` of the whole, on one device; from as many shards as hold a part of it.
    /// A window that is a whole shard of that device is that tensor, without a copy.
    /// Differentiable.
    ///
    /// # Panics
    /// If the window is empty or leaves the volume, or the part of it that is here.
    pub fn window(&self, window: Range<usize>, device: &Device) -> Tensor<5> {
        let (layout, dim) = (self.layout(), self.layout().axis().dim());
        let held = layout.held();
        assert!(
            window.start < window.end && held.start <= window.start && window.end <= held.end,
            "sharded: window {window:?} of the planes {held:?}"
        );
        let piece =
            |(k, planes): (usize, Range<usize>)| narrow(self.shards()[k].clone(), dim, planes);
        let pieces: Vec<_> = layout.overlaps(&window).into_iter().map(piece).collect();
        joined_ahead(&pieces, dim, device).unwrap_or_else(|| {
            let pieces = pieces.into_iter().map(|piece| to_device(piece, device));
            at_once(|| join(pieces.collect(), dim))
        })
    }

    /// Several windows, each on its device: what travels does so at once, and its gradient likewise
    /// (`lending.rs`). Differentiable.
    ///
    /// # Panics
    /// As [`Sharded::window`].
    pub(super) fn windows(&self, asked: Vec<(Range<usize>, Device)>) -> Vec<Tensor<5>> {
        let (layout, dim) = (self.layout(), self.layout().axis().dim());
        let mut pieces = Vec::with_capacity(asked.len());
        let loans = asked.into_iter().flat_map(|(window, device)| {
            let held = layout.held();
            assert!(
                window.start < window.end && held.start <= window.start && window.end <= held.end,
                "sharded: window {window:?} of the planes {held:?}"
            );
            let of_window = layout.overlaps(&window);
            pieces.push(of_window.len());
            let loan = move |(owner, planes)| (device.clone(), Loan { owner, dim, planes });
            of_window.into_iter().map(loan).collect::<Vec<_>>()
        });
        let loans = loans.collect();
        let shards: Vec<_> = self.shards().iter().cloned().map(Some).collect();
        let mut planes = lent(&shards, loans).into_iter();
        pieces.into_iter().map(|n| join(planes.by_ref().take(n).collect(), dim)).collect()
    }

    /// Adds `values` to the planes `window`: the adjoint of [`Sharded::window`], for gradients off
    /// the tape. Every part travels to the device of its shard.
    ///
    /// # Panics
    /// If the values do not have the window's planes, or it leaves the volume.
    pub fn add_window(self, window: Range<usize>, values: &Tensor<5>) -> Self {
        let (layout, dim) = (self.layout().clone(), self.layout().axis().dim());
        let (planes, held) = (values.dims()[dim], layout.held());
        assert!(
            window.len() == planes && held.start <= window.start && window.end <= held.end,
            "sharded: {planes} planes for window {window:?} of the planes {held:?}"
        );
        let mut parts = layout.overlaps(&window).into_iter().peekable();
        let added = |(k, shard): (usize, Tensor<5>)| {
            let Some((_, part)) = parts.next_if(|(at, _)| *at == k) else { return shard };
            let first = layout.planes(k).start + part.start - window.start;
            let piece = narrow(values.clone(), dim, first..first + part.len());
            let device = shard.device();
            add_planes(shard, dim, part, to_device(piece, &device))
        };
        let shards = self.into_shards().into_iter().enumerate().map(added).collect();
        Self::new(shards, layout)
    }
}

/// `tensor` with `values` added to its `planes`.
fn add_planes(tensor: Tensor<5>, dim: usize, planes: Range<usize>, values: Tensor<5>) -> Tensor<5> {
    let dims = tensor.dims();
    if planes.len() == dims[dim] {
        return tensor + values;
    }
    let mut region = dims.map(|n| 0..n);
    region[dim] = planes;
    let sum = tensor.clone().slice(region.clone()) + values;
    tensor.slice_assign(region, sum)
}
