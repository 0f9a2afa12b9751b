//! A volume that is cut along one axis, cut along another: what a Fourier transform along the first needs.
//!
//! ```text
//! place k, planes of z:  [rows of y: 0 | 1 | 2]        place j, rows of y:  [planes of z: 0 | 1 | 2]
//! ```
//! Every place has something for every other: between shards of a process it travels at once, between ranks in one
//! message for each pair.

use std::ops::Range;

use burn::Tensor;
use burn::tensor::{DType, Device};

use super::PeriodicGrid;
use crate::cuts::Cuts;
use crate::hosts::{from_bytes, to_bytes};
use crate::lending::{Loan, lent};
use crate::sharded::{join, narrow};
use crate::transfer::to_device;
use ffdp_image::error::Result;

/// Parts of a volume by place; none where a place has no planes.
pub(super) type Parts = Vec<Option<Tensor<5>>>;

/// Shape `[N, C, D, H, W]` of a volume and its type; ranks without a part of it know these too.
pub(super) type Whole = ([usize; 5], DType);

/// Which planes along which axis each place has.
#[derive(Clone, Debug)]
pub(super) struct Cutting {
    /// Of a tensor `[N, C, D, H, W]`.
    pub dim: usize,
    /// The planes of this process's places.
    pub here: Vec<Range<usize>>,
    devices: Vec<Device>,
    /// Those of all ranks.
    ranks: Option<Cuts>,
}

impl Cutting {
    /// That of a grid.
    pub fn of(grid: &PeriodicGrid) -> Self {
        Self {
            dim: grid.layout.axis().dim(),
            here: grid.layout.all_planes().collect(),
            devices: grid.mesh.devices().to_vec(),
            ranks: grid.holders.team().map(|(_, cuts)| cuts.clone()),
        }
    }

    /// `extent` planes along `dim`, in equal shares for the places of a grid.
    pub fn shared(grid: &PeriodicGrid, dim: usize, extent: usize) -> Self {
        let places = grid.layout.count();
        let team = grid.holders.team();
        let ranks = team.map(|(ranks, _)| Cuts::balanced(extent, 1, ranks.count()));
        let held = match (team, &ranks) {
            (Some((team, _)), Some(cuts)) => cuts.planes(team.rank()),
            _ => 0..extent,
        };
        let end = |k: usize| held.start + k * held.len() / places;
        let here = (0..places).map(|k| end(k)..end(k + 1)).collect();
        Self { dim, here, devices: grid.mesh.devices().to_vec(), ranks }
    }

    fn held(&self) -> Range<usize> {
        self.here[0].start..self.here[self.here.len() - 1].end
    }
}

impl PeriodicGrid {
    /// Parts of a volume of `whole`, cut as `from`, cut as `to`.
    pub(super) fn turned(
        &self,
        parts: &Parts,
        whole: Whole,
        from: &Cutting,
        to: &Cutting,
    ) -> Result<Parts> {
        if from.dim == to.dim {
            return Ok(parts.clone());
        }
        let owners: Vec<usize> = (0..parts.len()).filter(|&k| parts[k].is_some()).collect();
        let lenders = |(planes, device): (&Range<usize>, &Device)| {
            let loan = |owner: &usize| {
                let loan = Loan { owner: *owner, dim: to.dim, planes: planes.clone() };
                (device.clone(), loan)
            };
            match planes.is_empty() {
                true => Vec::new(),
                false => owners.iter().map(loan).collect(),
            }
        };
        let loans: Vec<_> = to.here.iter().zip(&to.devices).flat_map(lenders).collect();
        let mut lent = lent(parts, loans).into_iter();
        let [before, after] = self.received(parts, whole, from, to)?;
        let places = to.here.iter().zip(&to.devices).map(|(planes, device)| {
            if planes.is_empty() {
                return None;
            }
            let first = to.held().start;
            let of_rank = |part: &Tensor<5>| {
                let planes = planes.start - first..planes.end - first;
                to_device(narrow(part.clone(), to.dim, planes), device)
            };
            let mut pieces: Vec<Tensor<5>> = before.iter().map(of_rank).collect();
            pieces.extend(lent.by_ref().take(owners.len()));
            pieces.extend(after.iter().map(of_rank));
            Some(join(pieces, from.dim))
        });
        Ok(places.collect())
    }

    /// What ranks of lower and of higher numbers have for this one's places, in host memory.
    fn received(
        &self,
        parts: &Parts,
        (dims, dtype): Whole,
        from: &Cutting,
        to: &Cutting,
    ) -> Result<[Vec<Tensor<5>>; 2]> {
        let (Some((ranks, _)), Some(old), Some(new)) =
            (self.holders.team(), &from.ranks, &to.ranks)
        else {
            return Ok([Vec::new(), Vec::new()]);
        };
        let me = ranks.rank();
        let others = (0..ranks.count()).filter(|rank| *rank != me);
        let here: Vec<&Tensor<5>> = parts.iter().flatten().collect();
        let mut sends = Vec::new();
        for rank in others.clone().filter(|rank| !here.is_empty() && !new.planes(*rank).is_empty())
        {
            let piece = |part: &&Tensor<5>| {
                to_device(narrow((*part).clone(), to.dim, new.planes(rank)), &Device::flex())
            };
            sends.push((rank, to_bytes(join(here.iter().map(piece).collect(), from.dim))?));
        }
        let wanted = to.held();
        let senders: Vec<usize> =
            others.filter(|rank| !wanted.is_empty() && !old.planes(*rank).is_empty()).collect();
        let dims_from = |rank: usize| {
            let mut dims = dims;
            dims[from.dim] = old.planes(rank).len();
            dims[to.dim] = wanted.len();
            dims
        };
        let values = |rank: usize| dims_from(rank).into_iter().product::<usize>();
        let lengths = senders.iter().map(|&rank| (rank, values(rank) * dtype.size()));
        let lengths: Vec<(usize, usize)> = lengths.collect();
        let came = ranks.exchange(sends, &lengths)?;
        let tensors = senders.iter().zip(came).map(|(&rank, bytes)| {
            (rank, from_bytes(bytes, dims_from(rank), dtype, &Device::flex()))
        });
        let (before, after): (Vec<_>, Vec<_>) = tensors.partition(|(rank, _)| *rank < me);
        Ok([before, after].map(|side| side.into_iter().map(|(_, tensor)| tensor).collect()))
    }
}
