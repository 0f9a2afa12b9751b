//! Networks on a mesh: every device holds a part of the images and of all activations, and all weights.
//!
//! ```text
//! images in parts ─ layers on parts (slabs) ─ displacement in parts ─ warp, loss (parallel)
//! weights on every device ────────┘        gradients of the weights: one sum over the devices
//! ```
//! The forward passes (`network/sharded.rs`, `transmorph/sharded.rs`, `voxelmorph/sharded.rs`) are those of the whole networks,
//! layer by layer, with the modules' own functions on what each device has. All of it is on one tape, also
//! what travels: `loss.backward()` gives the gradients of everything. A mesh of one runs the serial network.
//!
//! A device's memory for `K` devices is that of the whole for its part of the planes, plus the planes around
//! it, which are joined to its part while they are read (`ops/conv3d/between.rs`), and the weights with their
//! optimiser, which do not shrink. A decoder's skip is not joined either: the first convolution of a level is the
//! sum of two. VoxelMorph keeps what it doubles.

use burn::tensor::Tensor;
use ffdp_image::Result;
use ffdp_parallel::{Cuts, Layout, Sharded, ops::exp, parts::narrow};

use crate::activations::{PlaneRun, Slabs};
use crate::layers::{Conv3d, append_zeros};

/// A part of the network of every place.
pub(crate) fn each<'a, A, B>(of: &[&'a A], part: impl Fn(&'a A) -> &'a B) -> Vec<&'a B> {
    of.iter().map(|network| part(network)).collect()
}

/// The layer at every place.
pub(crate) fn conv3d(x: &Slabs, layers: &[&Conv3d]) -> Slabs {
    let y = x.conv3d(|k| layers[k].weight.val(), layers[0].precision);
    y.map(|k, y| layers[k].shifted(y))
}

/// Both images as two channels, zeros appended until every extent is a multiple of `multiple`; cut anew,
/// between multiples of `unit`.
///
/// # Panics
/// If the images are cut differently or have more than one channel; `network` is named.
pub(crate) fn padded_pair(
    network: &str,
    moving: &Sharded,
    fixed: &Sharded,
    multiple: usize,
    unit: usize,
) -> Slabs {
    let (layout, dims) = (moving.layout(), moving.dims());
    assert!(
        layout == fixed.layout() && dims == fixed.dims() && dims[1] == 1,
        "{network}: moving and fixed must both be [N, 1, D, H, W] and cut alike, got {dims:?} {layout:?} \
         and {:?} {:?}",
        fixed.dims(),
        fixed.layout()
    );
    let (dim, extent) = (layout.axis().dim(), layout.extent());
    let padded = extent.next_multiple_of(multiple);
    let cuts = Cuts::balanced(padded, unit, layout.count());
    let [moving, fixed] = [moving, fixed].map(Slabs::of);
    let windows = |image: &Slabs| {
        image.fetch_one(&cuts, |_, planes| {
            let inside = planes.start.min(extent)..planes.end.min(extent);
            vec![PlaneRun::Planes(inside.clone()), PlaneRun::Zeros(planes.len() - inside.len())]
        })
    };
    let pairs = windows(&moving).into_iter().zip(windows(&fixed)).collect();
    moving.made_of(&cuts, pairs, |_, _, (moving, fixed)| {
        let pair = Tensor::cat(vec![moving, fixed], 1);
        let missing = |axis: usize| match axis {
            _ if axis < 2 || axis == dim => 0,
            _ => dims[axis].next_multiple_of(multiple) - dims[axis],
        };
        append_zeros(pair, std::array::from_fn(missing))
    })
}

/// A flow without the voxels that were appended, cut as `layout` says.
pub(crate) fn cropped(flow: &Slabs, layout: &Layout) -> Sharded {
    let dim = layout.axis().dim();
    let parts =
        flow.fetch_one(&Cuts::of(layout), |_, planes| vec![PlaneRun::Planes(planes.clone())]);
    let shards = parts.into_iter().map(|part| {
        let others = (2..5).filter(|axis| *axis != dim);
        others.fold(part, |part, axis| narrow(part, axis, 0..layout.size()[axis - 2]))
    });
    Sharded::new(shards.collect(), layout.clone())
}

/// The flow as a displacement: itself, or integrated.
pub(crate) fn integrated(flow: Sharded, steps: Option<usize>) -> Result<Sharded> {
    match steps {
        None => Ok(flow),
        Some(steps) => exp(&flow, steps),
    }
}
