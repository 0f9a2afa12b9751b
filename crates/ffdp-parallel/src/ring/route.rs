//! Which planes of the image a fixed shard can reach: from the bounds of what is added to its
//! voxels, without looking at any of them.

use std::ops::Range;

use burn::Tensor;

use super::parcel::{Cut, Parcel};
use crate::layout::Layout;
use crate::sharded::Sharded;
use ffdp_burn::ops::extremes::extremes;
use ffdp_burn::ops::{GridSampleOptions, Interpolation, Padding};
use ffdp_image::error::{Error, Result};

/// Planes on either side of the reachable ones that are taken along: positions are computed in f32
/// on a GPU, and may be off by far less than one voxel.
const ROUNDING_PLANES: f64 = 1.0;

/// A parcel is at most this many times as thick as the thickest shard of the image: a shard with
/// neighbouring planes makes one parcel, and memory stays a part of the image.
const PARCEL_SHARDS: usize = 2;

/// Planes that a parcel has room for on either side of a block, if there are as many in it.
const PARCEL_MARGIN: usize = 32;

/// The most planes in a parcel of an image in shards of so many.
pub(super) fn thickest_parcel(shard: usize) -> usize {
    PARCEL_SHARDS * shard
}

/// The same for a block of as many planes as `block` of the image: around thin shards it reaches beyond the next ones.
/// What it reaches makes one parcel unless displacements are long, and is fetched once for all that samples it.
pub(crate) fn thickest_parcel_of_block(shard: usize, block: usize) -> usize {
    thickest_parcel(shard).max(block + 2 * PARCEL_MARGIN.min(block))
}

/// The affine maps `[A|t]` of a batch (rows and columns in (x, y, z), from fixed to moving voxels)
/// and the scale `S` of the displacement, as numbers of the host.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexMap {
    /// One, or one for each entry of the batch.
    pub affine: Vec<[[f64; 4]; 3]>,
    /// `S`.
    pub scale: [[f64; 3]; 3],
}

impl IndexMap {
    /// Fixed voxels are moving voxels.
    pub fn identity() -> Self {
        let affine = vec![[[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]]];
        Self { affine, scale: GridSampleOptions::default().displacement_scale }
    }

    /// The map of an affine tensor `[1 or N, 3, 4]`, read from its device; the identity for none.
    ///
    /// # Errors
    /// [`Error::Device`] when it cannot be read.
    pub fn read(affine: Option<&Tensor<3>>, scale: [[f64; 3]; 3]) -> Result<Self> {
        let Some(affine) = affine else {
            return Ok(Self { scale, ..Self::identity() });
        };
        let values = affine.clone().detach().try_into_vec_as::<f64>();
        let values = values.map_err(|reason| Error::device("reading an affine map", reason))?;
        let row = |row: &[f64]| [row[0], row[1], row[2], row[3]];
        let affine =
            values.chunks(12).map(|map| [0, 4, 8].map(|first| row(&map[first..first + 4])));
        Ok(Self { affine: affine.collect(), scale })
    }

    /// The map where nothing moves along an axis of one voxel of a volume of `size` (D, H, W).
    pub fn without_flat_axes(self, [d, h, w]: [usize; 3]) -> Self {
        let moves = [w, h, d].map(|voxels| f64::from(u8::from(voxels > 1)));
        let scale = self.scale.map(|row| [0, 1, 2].map(|axis| row[axis] * moves[axis]));
        Self { scale, ..self }
    }

    /// Least and greatest image coordinate `component` of the voxels of a box, [low, high] by axis,
    /// moved by displacements within `bounds`.
    fn reach(
        &self,
        component: usize,
        voxels: &[[f64; 2]; 3],
        bounds: &DisplacementBounds,
    ) -> [f64; 2] {
        // A linear function is extreme at a corner: each term at one of its ends.
        let extremes = |factors: &[f64], ends: &[[f64; 2]; 3]| {
            let terms = factors.iter().zip(ends).filter(|(factor, _)| **factor != 0.0);
            terms.fold([0.0f64; 2], |[low, high], (factor, ends)| {
                let [a, b] = ends.map(|end| factor * end);
                [low + a.min(b), high + a.max(b)]
            })
        };
        let moved = extremes(&self.scale[component], &bounds.0);
        let placed = self.affine.iter().map(|map| {
            let row = &map[component];
            extremes(&row[..3], voxels).map(|end| end + row[3])
        });
        let [low, high] = placed
            .reduce(|[a, b], [c, d]| [a.min(c), b.max(d)])
            .expect("there is at least one map");
        [low + moved[0], high + moved[1]]
    }
}

/// Least and greatest value of each component (x, y, z) of a displacement, in its voxels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DisplacementBounds(pub [[f64; 2]; 3]);

impl DisplacementBounds {
    /// No displacement.
    pub const NONE: Self = Self([[0.0; 2]; 3]);

    /// Of every shard of a field. Waits for its devices.
    ///
    /// # Errors
    /// [`Error::Device`] when they cannot be read.
    pub fn read(field: &Sharded) -> Result<Vec<Self>> {
        let unread = |reason: String| Error::device("reading the bounds of a field", reason);
        let ends = field.shards().iter().map(|shard| {
            let ends = extremes(shard.clone().inner());
            // All devices are at it before one is waited for.
            shard.device().flush().map_err(|reason| unread(reason.to_string()))?;
            Ok(ends.flatten::<1>(0, 2))
        });
        let ends = ends.collect::<Result<Vec<_>>>()?;
        let ends = ends
            .into_iter()
            .map(|ends| ends.try_into_vec_as::<f64>().map_err(|reason| unread(reason.to_string())));
        let ends = ends.collect::<Result<Vec<_>>>()?.concat();
        let of_shard = |ends: &[f64]| {
            let fields = ends.chunks(6).map(Self::of_components);
            fields.reduce(Self::union).expect("a batch has a field")
        };
        Ok(ends.chunks(6 * field.dims()[0]).map(of_shard).collect())
    }

    /// From the smallest and the largest value of each component of a field. Where there is none that is a number,
    /// nothing is known.
    fn of_components(ends: &[f64]) -> Self {
        let of = |c: usize| match [ends[2 * c], ends[2 * c + 1]] {
            [low, high] if low <= high => [low, high],
            _ => [f64::NEG_INFINITY, f64::INFINITY],
        };
        Self([0, 1, 2].map(of))
    }

    /// At most `longest` voxels along (x, y, z), either way.
    pub fn within(longest: [f64; 3]) -> Self {
        Self(longest.map(|longest| [-longest, longest]))
    }

    /// Those of both.
    pub fn union(self, other: Self) -> Self {
        let both = |c: usize| {
            let ([a, b], [c, d]) = (self.0[c], other.0[c]);
            [a.min(c), b.max(d)]
        };
        Self([0, 1, 2].map(both))
    }

    /// Whether everything within `other` is within these.
    pub fn contains(&self, other: &Self) -> bool {
        let within = |([low, high], [a, b]): (&[f64; 2], &[f64; 2])| low <= a && b <= high;
        self.0.iter().zip(&other.0).all(within)
    }

    /// Those of a field times `factor`, not negative.
    pub fn scaled(self, factor: f64) -> Self {
        Self(self.0.map(|ends| ends.map(|end| factor * end)))
    }

    /// After steps of at most `longest` voxels along (x, y, z).
    pub fn grown(self, longest: [f64; 3]) -> Self {
        let grown = |c: usize| [self.0[c][0] - longest[c], self.0[c][1] + longest[c]];
        Self([0, 1, 2].map(grown))
    }
}

/// Planes of the fixed side, and how their voxels are mapped into the image.
#[derive(Clone, Copy, Debug)]
pub struct MappedPlanes<'a> {
    /// How the fixed side is cut.
    pub fixed: &'a Layout,
    /// Across the axis of the cuts; at least one.
    pub planes: &'a Range<usize>,
    /// From fixed to moving voxels.
    pub map: &'a IndexMap,
    /// Of the displacement on these planes, in fixed voxels.
    pub bounds: &'a DisplacementBounds,
}

impl MappedPlanes<'_> {
    /// What these planes sample of an image cut like `moving`, in parcels of at most `limit` planes. Those of different
    /// planes start at different places of the ring, so that no shard of the image is fetched by all at once.
    pub(super) fn parcels(
        &self,
        moving: &Layout,
        options: &GridSampleOptions,
        limit: usize,
    ) -> Vec<Parcel> {
        let window = match moving.count() {
            // The serial program.
            1 => moving.held(),
            _ => self.reachable(moving),
        };
        let count = match moving.count() {
            1 => 1,
            _ => window.len().div_ceil(limit),
        };
        let cut = |i: usize| window.start + window.len() * i / count;
        let ends = match (count, options.padding, options.interpolation) {
            (1, ..) => Cut::Plain,
            (_, _, Interpolation::Label) => Cut::Overlapping,
            (_, Padding::Border, _) => Cut::Walled,
            (_, Padding::Zeros, _) => Cut::Plain,
        };
        let mut parcels: Vec<Parcel> = (0..count)
            .map(|i| Parcel { planes: cut(i)..cut(i + 1), window: window.clone(), ends })
            .collect();
        parcels.rotate_left(self.planes.start * count / self.fixed.extent());
        parcels
    }

    /// The planes that these can reach of an image cut like `moving`; at least one.
    pub fn reachable(&self, moving: &Layout) -> Range<usize> {
        let Self { fixed, planes, map, bounds } = *self;
        let [d, h, w] = fixed.size();
        let mut voxels = [w, h, d].map(|n| [0.0, (n - 1) as f64]);
        voxels[fixed.axis().component()] = [planes.start as f64, (planes.end - 1) as f64];
        let [low, high] = map.reach(moving.axis().component(), &voxels, bounds);
        let extent = moving.extent();
        // Without bounds, anywhere.
        if !(low.is_finite() && high.is_finite()) {
            return 0..extent;
        }
        // The voxels on either side of a coordinate; casts saturate.
        let first = (low.floor() - ROUNDING_PLANES).max(0.0) as usize;
        let end = (high.floor() + 2.0 + ROUNDING_PLANES).max(0.0) as usize;
        let first = first.min(extent - 1);
        first..end.clamp(first + 1, extent)
    }
}
