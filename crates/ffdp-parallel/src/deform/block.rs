//! A shard with the planes around it that its gradient depends on, and what it sees.
//!
//! The planes around it are recomputed, not exchanged: only the displacement there comes from the
//! neighbours, once an iteration. It stays in three pieces, below, own and above, because joining
//! them would move as much memory as a step of the iteration does.

use std::ops::Range;

use burn::Tensor;
use burn::tensor::Device;

use crate::layout::{Axis, Layout};
use crate::ring::BlockSampler;
use crate::sharded::{Sharded, join, narrow};

/// What came from another device: the planes below a shard, and those above it.
pub(super) type Neighbours = [Option<Tensor<5>>; 2];

/// Where a block lies: the planes of a shard, and up to `width` more on either side within the volume.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub axis: Axis,
    pub own: Range<usize>,
    /// The own planes with those around them.
    pub all: Range<usize>,
    width: usize,
    extent: usize,
}

#[derive(Clone)]
/// Something on the planes of a block: below the own ones, on them, and above.
pub(super) struct Pieces {
    pub below: Option<Tensor<5>>,
    pub own: Tensor<5>,
    pub above: Option<Tensor<5>>,
}

impl Block {
    /// That of shard `k`.
    pub fn new(layout: &Layout, k: usize, width: usize) -> Self {
        let (own, extent) = (layout.planes(k), layout.extent());
        let all = own.start.saturating_sub(width)..(own.end + width).min(extent);
        Self { axis: layout.axis(), own, all, width, extent }
    }

    /// The block with fewer planes around it.
    pub fn within(&self, width: usize) -> Self {
        let all = self.own.start.saturating_sub(width)..(self.own.end + width).min(self.extent);
        Self { all, width, ..self.clone() }
    }

    /// The shards that have planes of the block, each with those, counted from its own start.
    pub fn all_shards(
        &self,
        layout: &Layout,
    ) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        layout.overlaps(&self.all).into_iter()
    }

    /// The block with more planes around it.
    pub fn wider(&self, more: usize) -> Self {
        self.within(self.width + more)
    }

    /// The planes around the seam below the shard that the block below it has as well.
    pub fn shared(&self) -> Option<Range<usize>> {
        let seam = self.own.start;
        let shared = || seam.saturating_sub(self.width)..(seam + self.width).min(self.extent);
        (seam > 0 && self.width > 0).then(shared)
    }

    /// `planes` of a tensor on all planes of the block.
    pub fn narrow(&self, tensor: &Tensor<5>, planes: &Range<usize>) -> Tensor<5> {
        let first = self.all.start;
        narrow(tensor.clone(), self.axis.dim(), planes.start - first..planes.end - first)
    }

    /// The moving image on the own planes, as `own` displaces them; what is on those around them means
    /// nothing yet.
    pub fn show_own(&self, own: &Tensor<5>, sampler: &BlockSampler) -> Tensor<5> {
        if self.axis == Axis::Z {
            let margins = [self.own.start - self.all.start, self.all.end - self.own.end];
            return sampler.sample_between(self.own.start, own, margins);
        }
        self.padded(sampler.sample(self.own.start, own))
    }

    /// What is on the own planes, with zeros on those around them.
    pub fn padded(&self, own: Tensor<5>) -> Tensor<5> {
        let zeros = |planes: Range<usize>| {
            let mut dims = own.dims();
            dims[self.axis.dim()] = planes.len();
            (!planes.is_empty()).then(|| Tensor::zeros(dims, (&own.device(), own.dtype())))
        };
        let [below, _, above] = self.pieces();
        let [below, above] = [below, above].map(zeros);
        join([below, Some(own), above].into_iter().flatten().collect(), self.axis.dim())
    }

    /// Planes of the whole.
    pub fn extent(&self) -> usize {
        self.extent
    }

    /// The planes below the own ones, these, and those above.
    pub fn pieces(&self) -> [Range<usize>; 3] {
        [self.all.start..self.own.start, self.own.clone(), self.own.end..self.all.end]
    }
}

/// A volume with the planes that blocks have around their own.
pub(super) struct Around {
    /// With planes of other ranks.
    pub volume: Sharded,
    /// Planes on either side.
    pub width: usize,
    /// Of every shard what came from other devices, where that was sent.
    pub came: Vec<Neighbours>,
}

impl Around {
    /// What block `k`, which has no more planes around it, has of the volume, on its device.
    pub fn pieces(&self, k: usize, block: &Block, device: &Device) -> Pieces {
        let window =
            |planes: Range<usize>| (!planes.is_empty()).then(|| self.volume.window(planes, device));
        let [below, above] = match block.width == self.width {
            true => self.came[k].clone(),
            false => [None, None],
        };
        let [start, own, end] = block.pieces();
        Pieces {
            own: self.volume.window(own, device),
            below: below.or_else(|| window(start)),
            above: above.or_else(|| window(end)),
        }
    }

    /// The same, joined.
    pub fn joined(&self, k: usize, block: &Block, device: &Device) -> Tensor<5> {
        match &self.came[k] {
            [None, None] => self.volume.window(block.all.clone(), device),
            _ => self.pieces(k, block, device).joined([block, block]),
        }
    }
}

impl Pieces {
    /// Of what lies on the planes of a block.
    pub fn of(tensor: &Tensor<5>, block: &Block) -> Self {
        let piece =
            |planes: Range<usize>| (!planes.is_empty()).then(|| block.narrow(tensor, &planes));
        let [below, _, above] = block.pieces();
        let own = block.narrow(tensor, &block.own);
        Self { below: piece(below), own, above: piece(above) }
    }

    /// Joined, on the planes of `inner`, a block with no more planes around it than `block`, on which the pieces lie.
    pub fn joined(&self, [block, inner]: [&Block; 2]) -> Tensor<5> {
        let parts = block.pieces().into_iter().zip([
            self.below.as_ref(),
            Some(&self.own),
            self.above.as_ref(),
        ]);
        let part = |(planes, piece): (Range<usize>, Option<&Tensor<5>>)| {
            let wanted = planes.start.max(inner.all.start)..planes.end.min(inner.all.end);
            let local =
                wanted.start.checked_sub(planes.start)?..wanted.end.checked_sub(planes.start)?;
            let piece = piece.filter(|_| local.start < local.end)?;
            Some(narrow(piece.clone(), block.axis.dim(), local))
        };
        join(parts.filter_map(part).collect(), block.axis.dim())
    }

    /// Piece by piece with another on the same planes.
    pub fn zip(self, other: Self, each: impl Fn(Tensor<5>, Tensor<5>) -> Tensor<5>) -> Self {
        let neighbours = |a: Option<Tensor<5>>, b: Option<Tensor<5>>| Some(each(a?, b?));
        Self {
            below: neighbours(self.below, other.below),
            own: each(self.own, other.own),
            above: neighbours(self.above, other.above),
        }
    }

    /// Piece by piece.
    pub fn map(self, each: impl Fn(Tensor<5>) -> Tensor<5>) -> Self {
        let Self { below, own, above } = self;
        Self { below: below.map(&each), own: each(own), above: above.map(&each) }
    }

    /// The moving image on the block, as the pieces of the displacement show it; `own` is
    /// [`Block::show_own`], where that is known.
    pub fn show(&self, block: &Block, sampler: &BlockSampler, own: Option<Tensor<5>>) -> Tensor<5> {
        let mut moved = own.unwrap_or_else(|| block.show_own(&self.own, sampler));
        for (planes, field) in block.pieces().into_iter().zip([&self.below, &None, &self.above]) {
            let Some(field) = field else { continue };
            let piece = sampler.sample(planes.start, field);
            let first = block.all.start;
            moved = assign(moved, block.axis, planes.start - first..planes.end - first, piece);
        }
        moved
    }

    /// The gradient to the displacement on the planes of `inner`, a block with fewer planes around it,
    /// from that to the moved image on `block`.
    pub fn pull_back(
        &self,
        [block, inner]: [&Block; 2],
        sampler: &BlockSampler,
        to_moved: &Tensor<5>,
    ) -> Self {
        let wanted = inner.pieces();
        let outer = block.pieces();
        let piece = |i: usize, field: &Tensor<5>| {
            let planes = &wanted[i];
            let first = outer[i].start;
            let field =
                narrow(field.clone(), block.axis.dim(), planes.start - first..planes.end - first);
            if block.axis == Axis::Z {
                // Where it lies: the own planes of it would be a copy of a shard.
                let margins = [planes.start - block.all.start, block.all.end - planes.end];
                return sampler.gradient_between(planes.start, &field, to_moved.clone(), margins);
            }
            sampler.gradient(planes.start, &field, block.narrow(to_moved, planes))
        };
        let neighbours = |i: usize, field: &Option<Tensor<5>>| {
            let field = field.as_ref().filter(|_| !wanted[i].is_empty());
            field.map(|field| piece(i, field))
        };
        Self {
            below: neighbours(0, &self.below),
            own: piece(1, &self.own),
            above: neighbours(2, &self.above),
        }
    }
}

/// Planes of a tensor that are written anew.
pub(super) fn assign(
    tensor: Tensor<5>,
    axis: Axis,
    planes: Range<usize>,
    values: Tensor<5>,
) -> Tensor<5> {
    let mut region = tensor.dims().map(|extent| 0..extent);
    region[axis.dim()] = planes;
    tensor.slice_assign(region, values)
}
