//! Which rank holds which planes of a volume, and how the others come by them.

use std::ops::Range;
use std::sync::Arc;

use burn::Tensor;
use burn::tensor::{DType, Device, TensorData};

use super::ranks::{Ranks, combine};
use crate::collective::{broadcast, reduce, try_all_reduce};
use crate::cuts::Cuts;
use crate::exchange::Reduction;
use crate::layout::Layout;
use crate::ring::DisplacementBounds;
use crate::sharded::{Sharded, join, narrow};
use crate::transfer::to_device;
use ffdp_image::error::{Error, Result};

/// The ranks that hold a volume, and the planes of each.
#[derive(Clone, Debug)]
pub struct Holders(Option<(Arc<dyn Ranks>, Cuts)>);

impl Holders {
    /// One process, which holds all.
    pub const ALONE: Self = Self(None);

    /// Several, by the planes of each.
    ///
    /// # Panics
    /// If there are cuts for another number of ranks.
    pub fn new(ranks: Arc<dyn Ranks>, cuts: Cuts) -> Self {
        let (places, count) = (cuts.places(), ranks.count());
        assert!(places == count, "holders: planes of {places} ranks for {count}");
        Self(Some((ranks, cuts)))
    }

    /// Whether others hold a part.
    pub fn are_several(&self) -> bool {
        self.0.is_some()
    }

    /// How many they are.
    pub fn count(&self) -> usize {
        self.0.as_ref().map_or(1, |(ranks, _)| ranks.count())
    }

    /// The ranks and the planes of each; none where there is one process.
    pub(crate) fn team(&self) -> Option<&(Arc<dyn Ranks>, Cuts)> {
        self.0.as_ref()
    }

    /// The planes that this rank wants of a volume of which it holds `volume`, where each rank knows the
    /// `wanted` of all. Its own are the same tensors; the others' are shards of their own, on the devices of the
    /// first and the last of `volume`. `None` where it wants none.
    ///
    /// # Errors
    /// [`Error::LostRank`], and [`Error::Device`] when planes cannot be read.
    ///
    /// # Panics
    /// If the volume does not have this rank's planes, or no rank has those that are wanted.
    pub fn fetch(&self, volume: &Sharded, wanted: &[Range<usize>]) -> Result<Option<Sharded>> {
        let Some((ranks, cuts)) = &self.0 else { return Ok(Some(volume.clone())) };
        let (me, own) = (ranks.rank(), volume.layout().held());
        let held = cuts.planes(me);
        assert!(held == own, "fetch: rank {me} holds {held:?}, got a volume of {own:?}");
        let others = (0..ranks.count()).filter(|rank| *rank != me);
        let mut sends = Vec::new();
        for rank in others.clone() {
            if let Some(planes) = overlap(&own, &wanted[rank]) {
                sends.push((rank, bytes_of(volume, planes)?));
            }
        }
        let receives =
            others.filter_map(|rank| Some((rank, overlap(&cuts.planes(rank), &wanted[me])?)));
        let receives: Vec<(usize, Range<usize>)> = receives.collect();
        let lengths: Vec<(usize, usize)> =
            receives.iter().map(|(rank, planes)| (*rank, length(volume, planes))).collect();
        let came = ranks.exchange(sends, &lengths)?;
        let mut pieces: Vec<(Range<usize>, Tensor<5>)> = Vec::new();
        for ((_, planes), bytes) in receives.into_iter().zip(came) {
            let mesh = volume.mesh();
            let k = if planes.start < own.start { 0 } else { mesh.count() - 1 };
            let tensor = tensor_of(volume, &planes, bytes, mesh.device(k));
            pieces.push((planes, tensor));
        }
        if let Some(here) = overlap(&own, &wanted[me]) {
            let layout = volume.layout();
            pieces.extend(layout.overlaps(&here).into_iter().map(|(k, local)| {
                let first = layout.planes(k).start;
                let piece = narrow(volume.shards()[k].clone(), layout.axis().dim(), local.clone());
                (first + local.start..first + local.end, piece)
            }));
        }
        pieces.sort_by_key(|(planes, _)| planes.start);
        let (planes, shards): (Vec<_>, Vec<_>) = pieces.into_iter().unzip();
        let Some(first) = planes.first() else { return Ok(None) };
        let cuts: Vec<usize> =
            std::iter::once(first.start).chain(planes.iter().map(|planes| planes.end)).collect();
        let sound = planes.windows(2).all(|pair| pair[0].end == pair[1].start)
            && (cuts[0]..cuts[cuts.len() - 1]) == wanted[me];
        assert!(sound, "fetch: wanted {:?}, there are {planes:?}", wanted[me]);
        Ok(Some(Sharded::new(shards, volume.layout().with_cuts(cuts))))
    }

    /// The adjoint of a [`fetch`](Self::fetch) of `around`, of which this rank asked for the planes of `values`: what all
    /// ranks have for the planes of `own`, added up. One process has asked for its own.
    ///
    /// # Errors
    /// As [`Holders::fetch`].
    pub fn give_back(
        &self,
        values: Sharded,
        around: &[Range<usize>],
        own: &Layout,
    ) -> Result<Sharded> {
        let Some((ranks, cuts)) = &self.0 else { return Ok(values) };
        let me = ranks.rank();
        let others = (0..ranks.count()).filter(|rank| *rank != me);
        let mut sends = Vec::new();
        for rank in others.clone() {
            if let Some(planes) = overlap(&around[me], &cuts.planes(rank)) {
                sends.push((rank, bytes_of(&values, planes)?));
            }
        }
        let receives =
            others.filter_map(|rank| Some((rank, overlap(&around[rank], &cuts.planes(me))?)));
        let receives: Vec<(usize, Range<usize>)> = receives.collect();
        let lengths: Vec<(usize, usize)> =
            receives.iter().map(|(rank, planes)| (*rank, length(&values, planes))).collect();
        let came = ranks.exchange(sends, &lengths)?;
        let held = |planes: Range<usize>| {
            let (k, _) = values.layout().overlaps(&planes)[0];
            values.window(planes, &values.shards()[k].device())
        };
        let mut sum = Sharded::new(own.all_planes().map(held).collect(), own.clone());
        for ((_, planes), bytes) in receives.into_iter().zip(came) {
            let (k, _) = own.overlaps(&planes)[0];
            let device = sum.shards()[k].device();
            let piece = tensor_of(&values, &planes, bytes, &device);
            sum = sum.add_window(planes, &piece);
        }
        Ok(sum)
    }

    /// A rank's planes with up to `width` more on either side, where the volume has them.
    ///
    /// # Errors
    /// As [`Holders::fetch`].
    pub fn surround(&self, volume: &Sharded, width: usize) -> Result<Sharded> {
        let wanted = self.around(width, volume.layout().extent());
        let found = self.fetch(volume, &wanted)?;
        Ok(found.expect("a rank wants its own planes"))
    }

    /// Of every rank, its planes and up to `width` more on either side.
    pub fn around(&self, width: usize, extent: usize) -> Vec<Range<usize>> {
        let Some((_, cuts)) = &self.0 else { return Vec::new() };
        let around = |planes: Range<usize>| match planes.is_empty() {
            true => planes,
            false => planes.start.saturating_sub(width)..(planes.end + width).min(extent),
        };
        (0..cuts.places()).map(|rank| around(cuts.planes(rank))).collect()
    }

    /// The planes next to those of this rank, below and above, up to `width` of each.
    ///
    /// # Errors
    /// As [`Holders::fetch`].
    pub fn neighbours(&self, volume: &Sharded, width: usize) -> Result<[Option<Tensor<5>>; 2]> {
        if !self.are_several() {
            return Ok([None, None]);
        }
        let own = volume.layout().held();
        let all = self.surround(volume, width)?;
        let mesh = volume.mesh();
        let (held, last) = (all.layout().held(), mesh.count() - 1);
        let window = |planes: Range<usize>, k: usize| {
            (!planes.is_empty()).then(|| all.window(planes, mesh.device(k)))
        };
        Ok([window(held.start..own.start, 0), window(own.end..held.end, last)])
    }

    /// The values of all shards of all ranks combined, for every shard here on its own device.
    ///
    /// # Errors
    /// [`Error::LostRank`], and [`Error::Device`] when they cannot be read.
    pub fn all_reduce<const D: usize>(
        &self,
        values: Vec<Tensor<D>>,
        reduction: Reduction,
    ) -> Result<Vec<Tensor<D>>> {
        if !self.are_several() {
            return try_all_reduce(values, reduction);
        }
        let devices: Vec<Device> = values.iter().map(Tensor::device).collect();
        let total = self.combine(reduce(values, reduction), reduction)?;
        Ok(broadcast(&total, &devices))
    }

    /// The values of all ranks combined, where this rank's are.
    ///
    /// # Errors
    /// As [`Holders::all_reduce`].
    pub fn combine<const D: usize>(
        &self,
        value: Tensor<D>,
        reduction: Reduction,
    ) -> Result<Tensor<D>> {
        let Some((ranks, _)) = &self.0 else { return Ok(value) };
        let (dims, device, dtype) = (value.dims(), value.device(), value.dtype());
        let mine = value.try_into_vec_as::<f64>();
        let mine = mine.map_err(|reason| Error::device("reading what ranks combine", reason))?;
        let total = combine(ranks.as_ref(), &mine, reduction)?;
        let data = TensorData::new(total, dims).convert_dtype(dtype);
        Ok(Tensor::from_data(data, (&device, dtype)))
    }

    /// Numbers of all ranks combined one by one, the same bits on all of them.
    ///
    /// # Errors
    /// [`Error::LostRank`].
    pub fn combine_numbers(&self, mine: &[f64], reduction: Reduction) -> Result<Vec<f64>> {
        match &self.0 {
            None => Ok(mine.to_vec()),
            Some((ranks, _)) => combine(ranks.as_ref(), mine, reduction),
        }
    }

    /// The bounds of all ranks together.
    ///
    /// # Errors
    /// [`Error::LostRank`].
    pub fn union(&self, bounds: DisplacementBounds) -> Result<DisplacementBounds> {
        let Some((ranks, _)) = &self.0 else { return Ok(bounds) };
        // The smallest of what is least is the largest of its opposite.
        let mine: Vec<f64> = bounds.0.iter().flat_map(|[low, high]| [-low, *high]).collect();
        let all = combine(ranks.as_ref(), &mine, Reduction::Max)?;
        Ok(DisplacementBounds([0, 1, 2].map(|c| [-all[2 * c], all[2 * c + 1]])))
    }
}

/// The planes of both; `None` of none.
fn overlap(a: &Range<usize>, b: &Range<usize>) -> Option<Range<usize>> {
    let planes = a.start.max(b.start)..a.end.min(b.end);
    (planes.start < planes.end).then_some(planes)
}

/// Shape of `planes` of a volume.
fn dims(volume: &Sharded, planes: &Range<usize>) -> [usize; 5] {
    let mut dims = volume.dims();
    dims[volume.layout().axis().dim()] = planes.len();
    dims
}

fn dtype(volume: &Sharded) -> DType {
    volume.shards()[0].dtype()
}

fn length(volume: &Sharded, planes: &Range<usize>) -> usize {
    dims(volume, planes).into_iter().product::<usize>() * dtype(volume).size()
}

/// Planes of this rank, as they travel.
fn bytes_of(volume: &Sharded, planes: Range<usize>) -> Result<Vec<u8>> {
    let layout = volume.layout();
    let piece = |(k, local): (usize, Range<usize>)| {
        let piece = narrow(volume.shards()[k].clone(), layout.axis().dim(), local);
        to_device(piece, &Device::flex())
    };
    let pieces: Vec<Tensor<5>> = layout.overlaps(&planes).into_iter().map(piece).collect();
    to_bytes(join(pieces, layout.axis().dim()))
}

/// A tensor, as it travels.
pub(crate) fn to_bytes(tensor: Tensor<5>) -> Result<Vec<u8>> {
    let data = tensor.try_into_data();
    let data = data.map_err(|reason| Error::device("reading planes for other ranks", reason))?;
    Ok(data.as_bytes().to_vec())
}

/// Planes of another rank, as they came.
fn tensor_of(
    volume: &Sharded,
    planes: &Range<usize>,
    bytes: Vec<u8>,
    device: &Device,
) -> Tensor<5> {
    from_bytes(bytes, dims(volume, planes), dtype(volume), device)
}

/// A tensor of `dims`, as it came.
pub(crate) fn from_bytes(
    bytes: Vec<u8>,
    dims: [usize; 5],
    dtype: DType,
    device: &Device,
) -> Tensor<5> {
    // Burn may pad the rows of a tensor of several axes.
    let data = TensorData::from_bytes_vec(bytes, [dims.into_iter().product::<usize>()], dtype);
    Tensor::<1>::from_data(data, (device, dtype)).reshape(dims)
}
