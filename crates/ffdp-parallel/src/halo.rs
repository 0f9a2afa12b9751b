//! Exact halos: every shard with the planes around it that its neighbours hold, and the adjoint.
//!
//! ```text
//! operation(whole) = crop(operation(block))      block = shard with a halo as wide as it looks
//! ```
//! holds for any operation that looks at most so far along the axis and treats the true border, to
//! which no halo is added, by a rule of its own. A halo may be wider than the neighbour: it then
//! reaches into the next one. Its gradient is added back to its owners, by Burn's tape (a halo is
//! made of `narrow`, `to_device` and `cat`) or, off the tape, by [`Haloed::sum_back`].

use std::ops::Range;

use burn::Tensor;

use super::layout::Layout;
use super::sharded::{Sharded, join, narrow};

/// What a halo holds beyond the border of the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Beyond {
    /// Nothing: blocks end at the border, and the operation's own rule applies there.
    #[default]
    Nothing,
    /// Zeros.
    Zeros,
    /// The outermost plane, repeated.
    Edge,
}

/// How many planes a block has below and above those of its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Margin {
    /// Planes of the volume, below and above.
    inside: [usize; 2],
    /// Planes beyond its border, below and above.
    outside: [usize; 2],
}

/// Shards with halos: blocks of a volume that overlap.
#[derive(Clone, Debug)]
pub struct Haloed {
    blocks: Vec<Tensor<5>>,
    layout: Layout,
    margins: Vec<Margin>,
    beyond: Beyond,
}

impl Sharded {
    /// Every shard with up to `width` planes more on either side. A width of 0, or a single shard
    /// with [`Beyond::Nothing`], copies nothing. Differentiable.
    pub fn with_halo(&self, width: usize, beyond: Beyond) -> Haloed {
        let layout = self.layout();
        let margins: Vec<Margin> =
            (0..layout.count()).map(|k| Margin::new(layout, k, width, beyond)).collect();
        let blocks = margins.iter().enumerate().map(|(k, margin)| self.block(k, margin, beyond));
        Haloed { blocks: blocks.collect(), layout: layout.clone(), margins, beyond }
    }

    /// An operation that looks at most `width` planes to either side and keeps its extents: what
    /// it makes of the whole, with its own rule at the border. One block exists at a time.
    /// Differentiable.
    ///
    /// # Panics
    /// If the operation does not keep the extents.
    pub fn through_halo(
        &self,
        width: usize,
        mut operation: impl FnMut(Tensor<5>) -> Tensor<5>,
    ) -> Self {
        let layout = self.layout();
        let shard = |k: usize| {
            let margin = Margin::new(layout, k, width, Beyond::Nothing);
            let block = self.block(k, &margin, Beyond::Nothing);
            let before = block.dims();
            let block = operation(block);
            let after = block.dims();
            assert!(after[2..] == before[2..], "halo: a block of {before:?} became {after:?}");
            crop(block, layout, k, &margin)
        };
        Self::new((0..layout.count()).map(shard).collect(), layout.clone())
    }

    fn block(&self, k: usize, margin: &Margin, beyond: Beyond) -> Tensor<5> {
        let planes = self.layout().planes(k);
        let window = planes.start - margin.inside[0]..planes.end + margin.inside[1];
        let block = self.window(window, &self.shards()[k].device());
        extend(block, self.layout().axis().dim(), margin.outside, beyond)
    }
}

/// Shard `k` of its block.
fn crop(block: Tensor<5>, layout: &Layout, k: usize, margin: &Margin) -> Tensor<5> {
    let first = margin.below();
    narrow(block, layout.axis().dim(), first..first + layout.planes(k).len())
}

impl Margin {
    fn new(layout: &Layout, k: usize, width: usize, beyond: Beyond) -> Self {
        let planes = layout.planes(k);
        let inside = [planes.start, layout.extent() - planes.end].map(|there| there.min(width));
        let outside = match beyond {
            Beyond::Nothing => [0; 2],
            Beyond::Zeros | Beyond::Edge => inside.map(|found| width - found),
        };
        Self { inside, outside }
    }

    fn below(&self) -> usize {
        self.inside[0] + self.outside[0]
    }

    /// What of the gradient of block `k` belongs to other shards, or comes from beyond the border:
    /// planes of the volume, and what is added to them.
    fn returned(
        &self,
        gradient: &Tensor<5>,
        layout: &Layout,
        k: usize,
        beyond: Beyond,
    ) -> Vec<(Range<usize>, Tensor<5>)> {
        let (dim, planes, extent) = (layout.axis().dim(), layout.planes(k), layout.extent());
        let all = gradient.dims()[dim];
        let part = |first: usize, count: usize| gradient.clone().narrow(dim, first, count);
        let mut returned = Vec::new();
        let ([low, high], first) = (self.inside, self.below());
        if low > 0 {
            returned.push((planes.start - low..planes.start, part(first - low, low)));
        }
        if high > 0 {
            returned.push((planes.end..planes.end + high, part(first + planes.len(), high)));
        }
        let [low, high] = if beyond == Beyond::Edge { self.outside } else { [0; 2] };
        if low > 0 {
            returned.push((0..1, part(0, low).sum_dim(dim)));
        }
        if high > 0 {
            returned.push((extent - 1..extent, part(all - high, high).sum_dim(dim)));
        }
        returned
    }
}

/// A block with planes from beyond the border.
fn extend(block: Tensor<5>, dim: usize, [low, high]: [usize; 2], beyond: Beyond) -> Tensor<5> {
    let planes = block.dims()[dim];
    let more = |count: usize, edge: usize| {
        let plane = block.clone().narrow(dim, edge, 1);
        let plane = if beyond == Beyond::Zeros { plane.zeros_like() } else { plane };
        (count > 0).then(|| plane.repeat_dim(dim, count))
    };
    let (low, high) = (more(low, 0), more(high, planes - 1));
    join([low, Some(block.clone()), high].into_iter().flatten().collect(), dim)
}

impl Haloed {
    /// The blocks in order.
    pub fn blocks(&self) -> &[Tensor<5>] {
        &self.blocks
    }

    /// The shards without their halos. Differentiable.
    pub fn crop(self) -> Sharded {
        let blocks = self.blocks.into_iter().zip(&self.margins).enumerate();
        let shards = blocks.map(|(k, (block, margin))| crop(block, &self.layout, k, margin));
        Sharded::new(shards.collect(), self.layout.clone())
    }

    /// The adjoint of [`Sharded::with_halo`]: of `gradients` of the blocks, those of the shards. What
    /// a halo received is added back to its owner; what lies beyond the border is dropped
    /// ([`Beyond::Zeros`]) or added to the outermost plane ([`Beyond::Edge`]).
    ///
    /// # Panics
    /// If the gradients do not have the shapes of the blocks.
    pub fn sum_back(self, gradients: Vec<Tensor<5>>) -> Sharded {
        let (got, expected) =
            (gradients.iter().map(Tensor::dims), self.blocks.iter().map(Tensor::dims));
        assert!(got.eq(expected), "halo: gradients must have the shapes of the blocks");
        let Self { layout, margins, beyond, .. } = self;
        let pairs = gradients.iter().cloned().zip(&margins).enumerate();
        let own = pairs.map(|(k, (gradient, margin))| crop(gradient, &layout, k, margin));
        let mut sum = Sharded::new(own.collect(), layout.clone());
        for (k, (gradient, margin)) in gradients.iter().zip(&margins).enumerate() {
            for (window, values) in margin.returned(gradient, &layout, k, beyond) {
                sum = sum.add_window(window, &values);
            }
        }
        sum
    }
}
