//! Where a volume is cut: its size, the axis of the cuts, and the cuts themselves.
//!
//! Pure arithmetic on the host: every other file of the crate asks it which planes belong to whom.

use std::ops::Range;

use ffdp_image::error::{Error, Result};

/// The axis along which a volume is cut into shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Axis {
    /// Columns, fastest in memory.
    X,
    /// Rows.
    Y,
    /// Planes, slowest in memory, by default: a shard is then a slab of the file, and a halo is
    /// contiguous.
    #[default]
    Z,
}

impl Axis {
    /// The dimension of a tensor `[N, C, D, H, W]`.
    pub fn dim(self) -> usize {
        4 - self.component()
    }

    /// The component of a point or a displacement (x, y, z).
    pub fn component(self) -> usize {
        match self {
            Self::X => 0,
            Self::Y => 1,
            Self::Z => 2,
        }
    }
}

/// The cuts of a volume. Shard `k` holds the planes `cuts[k]..cuts[k + 1]` along the axis ("plane" is
/// meant across whichever axis is cut).
///
/// A process that shares a volume with others has the layout of a [`part`](Layout::part): planes are counted
/// from the first of the volume wherever they lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    size: [usize; 3],
    axis: Axis,
    cuts: Vec<usize>,
}

impl Layout {
    /// `shards` parts whose thicknesses differ by at most one plane, the thicker ones first.
    /// `size` is (D, H, W).
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is no shard, or more of them than planes.
    pub fn balanced(size: [usize; 3], axis: Axis, shards: usize) -> Result<Self> {
        let extent = size[axis.dim() - 2];
        if shards == 0 || shards > extent {
            return Err(Error::invalid(
                format!("the number of shards must lie in 1..={extent}, the planes along {axis:?}"),
                shards,
                "use fewer shards, or cut along a longer axis",
            ));
        }
        let (thin, thicker) = (extent / shards, extent % shards);
        let cuts = (0..=shards).map(|k| k * thin + k.min(thicker)).collect();
        Ok(Self { size, axis, cuts })
    }

    /// Parts of the given thicknesses, in planes, in order.
    ///
    /// # Errors
    /// [`Error::Invalid`] when one is 0 or they do not add up to the planes of `size` (D, H, W).
    pub fn uneven(size: [usize; 3], axis: Axis, thicknesses: &[usize]) -> Result<Self> {
        let extent = size[axis.dim() - 2];
        if thicknesses.contains(&0) || thicknesses.iter().sum::<usize>() != extent {
            return Err(Error::invalid(
                format!("thicknesses of shards must be positive and add up to {extent} planes"),
                thicknesses,
                "give every plane to exactly one shard",
            ));
        }
        let mut cuts = vec![0];
        cuts.extend(thicknesses.iter().scan(0, |end, thickness| {
            *end += thickness;
            Some(*end)
        }));
        Ok(Self { size, axis, cuts })
    }

    /// Some of the shards, alone.
    ///
    /// # Panics
    /// If there are none, or not so many.
    pub fn part(&self, shards: Range<usize>) -> Self {
        let count = self.count();
        let sound = shards.start < shards.end && shards.end <= count;
        assert!(sound, "layout: shards {shards:?} of {count}");
        Self { cuts: self.cuts[shards.start..=shards.end].to_vec(), ..self.clone() }
    }

    /// The same volume with these shards alone, by their cuts.
    pub(super) fn with_cuts(&self, cuts: Vec<usize>) -> Self {
        assert!(cuts.len() > 1 && cuts.windows(2).all(|pair| pair[0] < pair[1]), "{cuts:?}");
        Self { cuts, ..self.clone() }
    }

    /// The planes of all shards: those of the volume, or of the part.
    pub fn held(&self) -> Range<usize> {
        self.cuts[0]..self.cuts[self.count()]
    }

    /// Extent (D, H, W) of the whole volume.
    pub fn size(&self) -> [usize; 3] {
        self.size
    }

    /// The axis that is cut.
    pub fn axis(&self) -> Axis {
        self.axis
    }

    /// Number of shards.
    pub fn count(&self) -> usize {
        self.cuts.len() - 1
    }

    /// Planes of the whole volume along the axis.
    pub fn extent(&self) -> usize {
        self.size[self.axis.dim() - 2]
    }

    /// Voxels of the whole volume.
    pub fn voxels(&self) -> usize {
        self.size.iter().product()
    }

    /// The planes of shard `k`.
    pub fn planes(&self, k: usize) -> Range<usize> {
        self.cuts[k]..self.cuts[k + 1]
    }

    /// The planes of each shard.
    pub fn all_planes(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        (0..self.count()).map(|k| self.planes(k))
    }

    /// Extent (D, H, W) of shard `k`.
    pub fn shard_size(&self, k: usize) -> [usize; 3] {
        let mut size = self.size;
        size[self.axis.dim() - 2] = self.planes(k).len();
        size
    }

    /// Planes of the thickest shard.
    pub fn thickest(&self) -> usize {
        self.all_planes().map(|planes| planes.len()).max().unwrap_or(0)
    }

    /// The cuts between two shards: the first plane of every shard but the first.
    pub fn seams(&self) -> &[usize] {
        &self.cuts[1..self.count()]
    }

    /// The shards that hold a part of `window`, each with that part counted from its own start.
    pub fn overlaps(&self, window: &Range<usize>) -> Vec<(usize, Range<usize>)> {
        let part = |(k, planes): (usize, Range<usize>)| {
            let (start, end) = (planes.start.max(window.start), planes.end.min(window.end));
            (start < end).then(|| (k, start - planes.start..end - planes.start))
        };
        self.all_planes().enumerate().filter_map(part).collect()
    }
}
