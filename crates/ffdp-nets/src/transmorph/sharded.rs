//! TransMorph on a mesh; read `sharded.rs` of the crate first.

use std::ops::Range;

use burn::tensor::Tensor;

use super::config::{PATCH, Resolution, SIZE_MULTIPLE};
use super::rolled::RolledWindows;
use super::{Decoder, DecoderBlock, Encoder, FlowHead, Stage, SwinBlock, TransMorph, Windows};
use crate::activations::{PlaneRun, Slabs};
use crate::layers::Conv3dRelu;
use crate::layers::fused::normalise;
use crate::ops::{upsample_conv3d, upsample_x2};
use crate::sharded::{conv3d, cropped, each, integrated, padded_pair};
use ffdp_image::Result;
use ffdp_parallel::{Cuts, DeviceMesh, Sharded, collective::broadcast};

impl TransMorph {
    /// [`TransMorph::forward`] of images in several parts, with the network of every place.
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
            networks[0].head.control_spacing().is_none(),
            "TransMorph: control points are predicted of images in one piece, not of {}",
            layout.count()
        );
        // Patches are not cut.
        let images = padded_pair("TransMorph", moving, fixed, SIZE_MULTIPLE, PATCH);
        let stages = encode(&each(networks, |network| &network.encoder), &images);
        let features = decode(&each(networks, |network| &network.decoder), &images, &stages);
        let flow = head(&each(networks, |network| &network.head), &features, &images);
        integrated(cropped(&flow, layout), networks[0].integration_steps)
    }
}

/// [`Encoder::forward`].
fn encode(encoders: &[&Encoder], images: &Slabs) -> Vec<Slabs> {
    // Tokens have their channels last.
    let (dim, finest) = (images.dim() - 1, images.cuts());
    let patches = finest.at(PATCH);
    let of_patches = |planes: &Range<usize>| PATCH * planes.start..PATCH * planes.end;
    let volumes =
        images.fetch_one(&patches, |_, planes| vec![PlaneRun::Planes(of_patches(planes))]);
    let mut volumes = volumes.into_iter();
    let mut tokens = Slabs::build(&patches, images.mesh(), dim, |k, _| {
        let volume = volumes.next().expect("one for each that has patches");
        encoders[k].patch_embed.forward(volume)
    });
    let stages = encoders[0].layers.len();
    let mut depth = Depth::new(encoders[0], images.dims()[0], images.mesh());
    let mut outputs = Vec::with_capacity(stages);
    for s in 0..stages {
        tokens = stage(&each(encoders, |encoder| &encoder.layers[s]), tokens, &mut depth);
        let normalised = tokens.clone().map(|k, tokens| normalise(&encoders[k].norms[s], tokens));
        outputs.push(normalised.permuted([0, 4, 1, 2, 3], images.dim()));
        if encoders[0].layers[s].downsample.is_some() {
            tokens = tokens.in_pairs(&finest.at((2 * PATCH) << s), |k, pairs| {
                let merge = encoders[k].layers[s].downsample.as_ref();
                merge.expect("copies of one network").forward(pairs)
            });
        }
    }
    outputs
}

/// [`Stage::forward`].
fn stage(stages: &[&Stage], tokens: Slabs, depth: &mut Depth) -> Slabs {
    let [_, d, h, w, _] = tokens.dims();
    let (grid, window) = ([d, h, w], stages[0].window());
    let aligned = RolledWindows::new(Windows::aligned(grid, window), &tokens);
    let shifted = RolledWindows::new(Windows::shifted(grid, window), &tokens);
    (0..stages[0].blocks.len()).fold(tokens, |tokens, i| {
        let windows = if i % 2 == 0 { &aligned } else { &shifted };
        block(&each(stages, |stage| &stage.blocks[i]), tokens, windows, depth)
    })
}

/// [`SwinBlock::forward`].
fn block(
    blocks: &[&SwinBlock],
    tokens: Slabs,
    windows: &RolledWindows,
    depth: &mut Depth,
) -> Slabs {
    let normalised = tokens.clone().map(|k, tokens| normalise(&blocks[k].norm1, tokens));
    let attended =
        windows.attend(&normalised, |k, windows, context| blocks[k].attn.forward(windows, context));
    let tokens = tokens.zip_map(depth.dropped(attended), Tensor::add);
    let refined =
        tokens.clone().map(|k, tokens| blocks[k].mlp.forward(normalise(&blocks[k].norm2, tokens)));
    tokens.zip_map(depth.dropped(refined), Tensor::add)
}

/// Stochastic depth: one draw for all parts of a sample, of all blocks in their order, sent to every place at once.
struct Depth {
    /// Of every branch to come, which of the factors that were drawn is its.
    branches: std::vec::IntoIter<Option<usize>>,
    /// Of every place, all factors of all samples, `[F N, 1, 1, 1, 1]`.
    factors: Vec<Tensor<5>>,
    samples: usize,
}

impl Depth {
    fn new(encoder: &Encoder, samples: usize, mesh: &DeviceMesh) -> Self {
        let mut drawn = Vec::new();
        let blocks = encoder.layers.iter().flat_map(|stage| &stage.blocks);
        let branches = blocks.flat_map(|block| [&block.drop_path; 2]).map(|drop| {
            let factor = drop.factor::<5>(samples, mesh.device(0))?;
            drawn.push(factor);
            Some(drawn.len() - 1)
        });
        let branches = branches.collect::<Vec<_>>().into_iter();
        let factors = match drawn.is_empty() {
            true => Vec::new(),
            false => broadcast(&Tensor::cat(drawn, 0), mesh.devices()),
        };
        Self { branches, factors, samples }
    }

    fn dropped(&mut self, branch: Slabs) -> Slabs {
        let next = self.branches.next().expect("two branches of every block");
        match next {
            None => branch,
            Some(i) => {
                branch.times(|k| self.factors[k].clone().narrow(0, i * self.samples, self.samples))
            }
        }
    }
}

/// [`Decoder::forward`].
fn decode(decoders: &[&Decoder], images: &Slabs, stages: &[Slabs]) -> Slabs {
    let [s0, s1, s2, s3] = stages else { panic!("the decoder joins four encoder stages") };
    let halved = images.mean_pool(&images.cuts().at(2));
    let halved = conv3d_relu(&halved, &each(decoders, |decoder| &decoder.c1));
    let x = up(s3, s2, &each(decoders, |decoder| &decoder.up0));
    let x = up(&x, s1, &each(decoders, |decoder| &decoder.up1));
    let x = up(&x, s0, &each(decoders, |decoder| &decoder.up2));
    let x = up(&x, &halved, &each(decoders, |decoder| &decoder.up3));
    if decoders[0].up4.is_none() {
        return x;
    }
    let skip = conv3d_relu(images, &each(decoders, |decoder| &decoder.c2));
    let up4 = each(decoders, |decoder| decoder.up4.as_ref().expect("copies of one network"));
    up(&x, &skip, &up4)
}

/// [`DecoderBlock::forward`]. The first convolution is that of `x` at twice its resolution and that of the skip,
/// each with the weights of its channels.
fn up(x: &Slabs, skip: &Slabs, blocks: &[&DecoderBlock]) -> Slabs {
    let (cuts, dim, precision) = (skip.cuts(), skip.dim(), blocks[0].conv1.conv.precision);
    let [fine, coarse] = [cuts, x.cuts()].map(Cuts::extent);
    let [own, joined] = [x, skip].map(|volume| volume.dims()[1]);
    let weight = |k: usize, channels: Range<usize>| {
        blocks[k].conv1.conv.weight.val().narrow(1, channels.start, channels.len())
    };
    let looks = |planes: &Range<usize>| Slabs::halved(&Slabs::widened(planes, fine), coarse);
    let of_x = x.through(
        cuts,
        |planes| vec![PlaneRun::Planes(looks(planes))],
        |k, planes, window| {
            let first = planes.start - 2 * looks(&planes).start;
            let planes = first..first + planes.len();
            upsample_conv3d(window, weight(k, 0..own), dim, planes, precision)
        },
    );
    let of_skip = skip.conv3d(|k| weight(k, own..own + joined), precision);
    let y = of_x.zip_map(of_skip, Tensor::add).instance_norm(&blocks[0].conv1.norm);
    conv3d_relu(&y, &each(blocks, |block| &block.conv2))
}

/// [`Conv3dRelu::forward`].
fn conv3d_relu(x: &Slabs, layers: &[&Conv3dRelu]) -> Slabs {
    conv3d(x, &each(layers, |layer| &layer.conv)).instance_norm(&layers[0].norm)
}

/// [`FlowHead::forward`].
fn head(heads: &[&FlowHead], features: &Slabs, images: &Slabs) -> Slabs {
    let flow = conv3d(features, &each(heads, |head| &head.conv));
    match heads[0].resolution() {
        Resolution::Full => flow,
        Resolution::Half => flow.doubled(images.cuts(), upsample_x2),
    }
}
