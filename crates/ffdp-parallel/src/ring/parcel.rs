//! Runs of planes of the image that travel together, and how they differ from the whole.

use std::ops::Range;

use burn::Tensor;
use burn::tensor::{Device, TensorData};

use crate::layout::Layout;
use crate::sharded::{Sharded, join};
use crate::transfer::to_device;

/// What lies at the ends of a parcel where the window goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// Nothing.
    Plain,
    /// Planes of zeros, for [`Padding::Border`](ffdp_burn::ops::Padding::Border): the sampler clamps a
    /// coordinate beyond the parcel to its outermost plane, which must then add nothing, while
    /// one between the last plane and the next is mixed with zero, as a corner of another parcel
    /// is. Two planes at the lower end: a coordinate *on* the plane below the parcel is still
    /// inside and has the slope of the parcel's first plane.
    Walled,
    /// A plane more of the image, for labels, whose eight corners must be seen together.
    Overlapping,
}

/// Planes of zeros at the lower and the upper end of a [`Cut::Walled`] parcel.
const WALL: [usize; 2] = [2, 1];

/// Planes more at either end of a [`Cut::Overlapping`] parcel.
const OVERLAP: usize = 1;

/// Planes of the image that are sampled together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parcel {
    /// Those that no other parcel has.
    pub planes: Range<usize>,
    /// Those of all parcels of the fixed shard.
    pub window: Range<usize>,
    /// What is at its ends.
    pub ends: Cut,
}

impl Parcel {
    /// All planes that are looked at.
    pub fn plain(planes: Range<usize>) -> Self {
        Self { window: planes.clone(), planes, ends: Cut::Plain }
    }

    /// Whether parcels precede and follow in the window.
    fn continues(&self) -> [bool; 2] {
        [self.planes.start > self.window.start, self.planes.end < self.window.end]
    }

    /// Planes of zeros at either end.
    pub fn wall(&self) -> [usize; 2] {
        match self.ends {
            Cut::Walled => {
                let continues = self.continues();
                [0, 1].map(|end| if continues[end] { WALL[end] } else { 0 })
            }
            Cut::Plain | Cut::Overlapping => [0; 2],
        }
    }

    /// The planes of the image that travel.
    pub fn content(&self) -> Range<usize> {
        let more = match self.ends {
            Cut::Overlapping => self.continues().map(|continues| OVERLAP * usize::from(continues)),
            Cut::Plain | Cut::Walled => [0; 2],
        };
        self.planes.start - more[0]..self.planes.end + more[1]
    }

    /// The voxel (x, y, z) of the image at which the parcel's tensor starts.
    pub fn origin(&self, moving: &Layout) -> [f64; 3] {
        let mut origin = [0.0; 3];
        origin[moving.axis().component()] = self.content().start as f64 - self.wall()[0] as f64;
        origin
    }

    /// The parcel's tensor on a device; the shard itself where it is one.
    pub fn fetch(&self, moving: &Sharded, device: &Device) -> Tensor<5> {
        let dim = moving.layout().axis().dim();
        let image = moving.window(self.content(), device);
        let zeros = |planes: usize| {
            let mut dims = image.dims();
            dims[dim] = planes;
            (planes > 0).then(|| Tensor::zeros(dims, (&image.device(), image.dtype())))
        };
        let [low, high] = self.wall().map(zeros);
        join([low, Some(image), high].into_iter().flatten().collect(), dim)
    }
}

/// The affine map from voxels of a shard that starts at `o` to those of a parcel that starts at `s`,
/// on the device of `image`: `t + A o - s` in the place of `t`. The map itself, or none, where both
/// start at the origin.
pub(super) fn local_affine(
    affine: Option<&Tensor<3>>,
    image: &Tensor<5>,
    [o, s]: [[f64; 3]; 2],
) -> Option<Tensor<3>> {
    let device = image.device();
    let affine = affine.map(|affine| to_device(affine.clone(), &device));
    if o == [0.0; 3] && s == [0.0; 3] {
        return affine;
    }
    let constant = |values: Vec<f64>, shape: [usize; 3]| -> Tensor<3> {
        let data = TensorData::new(values, shape).convert_dtype(image.dtype());
        Tensor::from_data(data, (&device, image.dtype()))
    };
    let Some(affine) = affine else {
        let row = |i: usize| (0..4).map(move |j| f64::from(u8::from(i == j)));
        let mut rows: Vec<f64> = (0..3).flat_map(row).collect();
        (0..3).for_each(|i| rows[4 * i + 3] = o[i] - s[i]);
        return Some(constant(rows, [1, 3, 4]));
    };
    let linear = affine.clone().narrow(2, 0, 3);
    let mut translation = affine.narrow(2, 3, 1) - constant(s.to_vec(), [1, 3, 1]);
    for (axis, first) in o.into_iter().enumerate().filter(|(_, first)| *first != 0.0) {
        translation = translation + linear.clone().narrow(2, axis, 1).mul_scalar(first);
    }
    Some(Tensor::cat(vec![linear, translation], 2))
}
