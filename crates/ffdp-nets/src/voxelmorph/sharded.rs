//! VoxelMorph on a mesh; read `sharded.rs` of the crate first.

use std::ops::Range;

use burn::tensor::Tensor;
use burn::tensor::activation::leaky_relu;

use super::{ConvUnit, LEVELS, SLOPE, VoxelMorph, nearest_x2};
use crate::activations::{PlaneRun, Slabs};
use crate::layers::MaxPool3d;
use crate::sharded::{conv3d, cropped, each, integrated, padded_pair};
use ffdp_image::Result;
use ffdp_parallel::{Sharded, parts::narrow};

impl VoxelMorph {
    /// [`VoxelMorph::forward`] of images in several parts, with the network of every place.
    ///
    /// # Errors
    /// When a velocity that is integrated cannot be read.
    ///
    /// # Panics
    /// If the images are cut differently or have more than one channel.
    pub(crate) fn forward_sharded(
        networks: &[&Self],
        moving: &Sharded,
        fixed: &Sharded,
    ) -> Result<Sharded> {
        let layout = moving.layout();
        assert!(
            networks[0].control_spacing.is_none(),
            "VoxelMorph: control points are predicted of images in one piece, not of {}",
            layout.count()
        );
        // Pooling finds its pairs at home.
        let mut x = padded_pair("VoxelMorph", moving, fixed, 1 << LEVELS, 2);
        let finest = x.cuts().clone();
        let mut skips = Vec::with_capacity(LEVELS);
        for level in 0..LEVELS {
            let features = unit(&x, &each(networks, |network| &network.encoder[level]));
            x = features.in_pairs(&finest.at(2 << level), |_, pairs| MaxPool3d.forward(pairs));
            skips.push(features);
        }
        x = unit(&x, &each(networks, |network| &network.decoder[0]));
        for (level, skip) in skips.into_iter().rev().enumerate() {
            let behind = each(networks, |network| match network.decoder.get(level + 1) {
                Some(unit) => unit,
                None => &network.last[0],
            });
            x = joined_unit(&x, &skip, &behind);
        }
        for i in 1..networks[0].last.len() {
            x = unit(&x, &each(networks, |network| &network.last[i]));
        }
        let flow = conv3d(&x, &each(networks, |network| &network.head));
        integrated(cropped(&flow, layout), networks[0].integration_steps)
    }
}

fn unit(x: &Slabs, units: &[&ConvUnit]) -> Slabs {
    conv3d(x, &each(units, |unit| &unit.conv)).map(|_, y| leaky_relu(y, SLOPE))
}

/// The unit behind a join: of `x` at twice its resolution and `skip`, each with the weights of its channels.
fn joined_unit(x: &Slabs, skip: &Slabs, units: &[&ConvUnit]) -> Slabs {
    let (cuts, precision) = (skip.cuts(), units[0].conv.precision);
    let coarse = |planes: &Range<usize>| planes.start / 2..planes.end.div_ceil(2);
    let doubled = x.through(
        cuts,
        |planes| vec![PlaneRun::Planes(coarse(planes))],
        |_, planes, window| {
            let first = planes.start - 2 * coarse(&planes).start;
            narrow(nearest_x2(window), skip.dim(), first..first + planes.len())
        },
    );
    let [own, joined] = [x, skip].map(|volume| volume.dims()[1]);
    let weight = |k: usize, channels: Range<usize>| {
        units[k].conv.weight.val().narrow(1, channels.start, channels.len())
    };
    let of_x = doubled.conv3d(|k| weight(k, 0..own), precision);
    let of_skip = skip.conv3d(|k| weight(k, own..own + joined), precision);
    let y = of_x.zip_map(of_skip, Tensor::add);
    y.map(|k, y| leaky_relu(units[k].conv.shifted(y), SLOPE))
}
