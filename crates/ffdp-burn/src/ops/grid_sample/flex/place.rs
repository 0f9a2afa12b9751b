//! Where a sample is taken, and what lies there.
//!
//! Nearly all samples of a registration lie between eight voxels of the image: a [`Cell`], which is
//! read without a thought of borders. The rest, and labels, take the general way by [`Tap`]s.

use crate::ops::grid_sample::{Interpolation, Padding};
use ffdp_kit::real::Real;

/// The two voxels along one axis between which a coordinate lies.
#[derive(Clone, Copy)]
pub(crate) struct Tap {
    /// Their indices, clamped into the image so that they can always be read.
    pub index: [usize; 2],
    /// Their weights; zero outside the image, except for labels.
    pub weight: [f64; 2],
    /// The derivatives of the weights by the coordinate.
    pub slope: [f64; 2],
    /// Whether they lie in the image, or the padding continues it there.
    pub inside: [bool; 2],
}

impl Tap {
    pub(crate) fn new(
        coordinate: f64,
        size: usize,
        interpolation: Interpolation,
        padding: Padding,
    ) -> Self {
        let last = (size - 1) as f64;
        let clamped = coordinate.clamp(0.0, last);
        let (coordinate, moves) = match padding {
            // Two voxels beyond the border everything is zero; this keeps the casts in range.
            Padding::Zeros => (coordinate.clamp(-2.0, last + 2.0), 1.0),
            Padding::Border => (clamped, f64::from(coordinate > 0.0 && coordinate < last)),
        };
        let (low, t, moves) = match interpolation {
            Interpolation::Linear => (coordinate.floor(), coordinate - coordinate.floor(), moves),
            Interpolation::Nearest => ((coordinate + 0.5).floor(), 0.0, 0.0),
            Interpolation::Label => (coordinate.floor(), coordinate - coordinate.floor(), 0.0),
        };
        let inside =
            [low, low + 1.0].map(|i| padding == Padding::Border || (0.0..=last).contains(&i));
        // Labels outside vote for the background, others add nothing.
        let [a, b] =
            inside.map(|inside| f64::from(inside || interpolation == Interpolation::Label));
        Self {
            index: [low.clamp(0.0, last) as usize, (low + 1.0).clamp(0.0, last) as usize],
            weight: [a * (1.0 - t), b * t],
            slope: [-a * moves, b * moves],
            inside,
        }
    }
}

/// One tap per axis.
pub(crate) struct Taps {
    pub x: Tap,
    pub y: Tap,
    pub z: Tap,
}

impl Taps {
    /// The eight corners: a sum of `wx wy wz I` over the taps `wx`, `wy`, `wz`.
    fn sum<T: Real>(
        &self,
        channel: &[T],
        [_, h, w]: [usize; 3],
        [wx, wy, wz]: [[f64; 2]; 3],
    ) -> f64 {
        let mut sum = 0.0;
        for (z, wz) in self.z.index.iter().zip(wz) {
            for (y, wy) in self.y.index.iter().zip(wy) {
                let row = (z * h + y) * w;
                let low = channel[row + self.x.index[0]].wide();
                let high = channel[row + self.x.index[1]].wide();
                sum += wz * wy * (wx[0] * low + wx[1] * high);
            }
        }
        sum
    }

    /// The label with the largest sum of corner weights; the smallest of those that are equal.
    fn label<T: Real>(&self, channel: &[T], [_, h, w]: [usize; 3]) -> f64 {
        let at = self;
        let votes: [(f64, f64); 8] = std::array::from_fn(|corner| {
            let [i, j, k] = [corner & 1, corner >> 1 & 1, corner >> 2];
            let weight = at.x.weight[i] * at.y.weight[j] * at.z.weight[k];
            let inside = at.x.inside[i] && at.y.inside[j] && at.z.inside[k];
            let voxel = (at.z.index[k] * h + at.y.index[j]) * w + at.x.index[i];
            (if inside { channel[voxel].wide() } else { 0.0 }, weight)
        });
        let share = |label: f64| -> f64 {
            votes.iter().filter(|(other, _)| *other == label).map(|(_, weight)| weight).sum()
        };
        let mut best = (votes[0].0, share(votes[0].0));
        for &(label, _) in &votes[1..] {
            let share = share(label);
            if share > best.1 || (share == best.1 && label < best.0) {
                best = (label, share);
            }
        }
        best.0
    }
}

/// Eight neighbouring voxels, all in the image, and the position between them.
pub(crate) struct Cell {
    /// Offset of the first voxel.
    pub first: usize,
    /// From the first voxel along x, y, z, each in 0..1.
    pub at: [f64; 3],
}

impl Cell {
    /// The cell around a coordinate (x, y, z), if it lies strictly inside the image of extent
    /// (D, H, W).
    #[inline]
    fn around(c: [f64; 3], [d, h, w]: [usize; 3]) -> Option<Self> {
        let inside = |c: f64, size: usize| c > 0.0 && c < (size - 1) as f64;
        if !(inside(c[0], w) && inside(c[1], h) && inside(c[2], d)) {
            return None;
        }
        // Positive, so that the cast rounds down.
        let [x, y, z] = c.map(|c| c as usize);
        let at = [c[0] - x as f64, c[1] - y as f64, c[2] - z as f64];
        Some(Self { first: (z * h + y) * w + x, at })
    }

    /// Offsets of the four pairs along x: at (y, z), (y + 1, z), (y, z + 1), (y + 1, z + 1).
    #[inline]
    pub fn pairs(&self, [_, h, w]: [usize; 3]) -> [usize; 4] {
        [0, w, h * w, h * w + w].map(|offset| self.first + offset)
    }

    #[inline]
    fn corners<T: Real>(&self, channel: &[T], extent: [usize; 3]) -> [[f64; 2]; 4] {
        self.pairs(extent).map(|i| {
            let pair = &channel[i..i + 2];
            [pair[0].wide(), pair[1].wide()]
        })
    }

    #[inline]
    fn value<T: Real>(&self, channel: &[T], extent: [usize; 3]) -> f64 {
        let [tx, ty, tz] = self.at;
        let [a, b, c, d] = self.corners(channel, extent).map(|[low, high]| mix(low, high, tx));
        mix(mix(a, b, ty), mix(c, d, ty), tz)
    }

    /// The derivatives along x, y, z.
    #[inline]
    fn slope<T: Real>(&self, channel: &[T], extent: [usize; 3]) -> [f64; 3] {
        let [tx, ty, tz] = self.at;
        let corners = self.corners(channel, extent);
        let [a, b, c, d] = corners.map(|[low, high]| mix(low, high, tx));
        let [ax, bx, cx, dx] = corners.map(|[low, high]| high - low);
        [
            mix(mix(ax, bx, ty), mix(cx, dx, ty), tz),
            mix(b - a, d - c, tz),
            mix(c, d, ty) - mix(a, b, ty),
        ]
    }
}

#[inline]
fn mix(a: f64, b: f64, t: f64) -> f64 {
    a + t * (b - a)
}

/// Where a sample is taken.
pub(crate) enum SamplePosition {
    /// Between eight voxels of the image.
    Inside(Cell),
    /// Anywhere.
    Anywhere(Taps),
}

impl SamplePosition {
    /// The place of a coordinate (x, y, z) in an image of extent (D, H, W).
    #[inline]
    pub fn of(
        c: [f64; 3],
        extent: [usize; 3],
        interpolation: Interpolation,
        padding: Padding,
    ) -> Self {
        if interpolation == Interpolation::Linear
            && let Some(cell) = Cell::around(c, extent)
        {
            return Self::Inside(cell);
        }
        let tap = |i: usize| Tap::new(c[i], extent[2 - i], interpolation, padding);
        Self::Anywhere(Taps { x: tap(0), y: tap(1), z: tap(2) })
    }

    /// The value of a channel there.
    #[inline]
    pub fn value<T: Real>(
        &self,
        channel: &[T],
        extent: [usize; 3],
        interpolation: Interpolation,
    ) -> f64 {
        match self {
            Self::Inside(cell) => cell.value(channel, extent),
            Self::Anywhere(taps) if interpolation == Interpolation::Label => {
                taps.label(channel, extent)
            }
            Self::Anywhere(t) => t.sum(channel, extent, [t.x.weight, t.y.weight, t.z.weight]),
        }
    }

    /// The derivatives of a channel along x, y, z there.
    #[inline]
    pub fn slope<T: Real>(&self, channel: &[T], extent: [usize; 3]) -> [f64; 3] {
        match self {
            Self::Inside(cell) => cell.slope(channel, extent),
            Self::Anywhere(taps) => {
                let (x, y, z) = (&taps.x, &taps.y, &taps.z);
                let sum = |weights| taps.sum(channel, extent, weights);
                [
                    sum([x.slope, y.weight, z.weight]),
                    sum([x.weight, y.slope, z.weight]),
                    sum([x.weight, y.weight, z.slope]),
                ]
            }
        }
    }
}
