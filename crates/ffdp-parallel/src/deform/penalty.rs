//! What the roughness of a field costs, block by block; see [`Penalties`].

use burn::Tensor;
use burn::backend::Dispatch;

use super::block::{Block, Pieces};
use ffdp_burn::ops::Penalties;
use ffdp_burn::ops::regularity::{RegularityOps, Roughness, roughness};

/// Planes on either side that second differences look at.
pub(super) const LOOKS: usize = 2;

/// Penalties of a field, of which several may share the cost.
pub(super) struct Cost {
    pub penalties: Penalties,
    /// Size (D, H, W) of the whole.
    pub size: [usize; 3],
    /// Fields whose roughness is averaged.
    pub fields: usize,
}

impl Cost {
    pub fn is_none(&self) -> bool {
        self.penalties == Penalties::default()
    }

    /// Each kind as what a part adds to the whole, and what it is multiplied by.
    fn terms(&self, part: &Tensor<5>) -> Vec<(f64, Roughness)> {
        let voxels = |[d, h, w]: [usize; 3]| (d * h * w) as f64;
        let [_, _, d, h, w] = part.dims();
        let share = voxels([d, h, w]) / voxels(self.size);
        let of_part = |(weight, kind): (f64, Roughness)| {
            let weight = weight / self.fields as f64;
            match kind {
                Roughness::Diffusion => (weight, Roughness::DiffusionOf(self.size)),
                Roughness::Bending => (weight, Roughness::BendingOf(self.size)),
                // A mean over the voxels.
                kind => (weight * share, kind),
            }
        };
        self.penalties.terms().map(of_part).collect()
    }

    fn value_of(&self, part: Tensor<5>) -> Tensor<1> {
        let terms = self.terms(&part).into_iter();
        let terms = terms.map(|(weight, kind)| roughness(part.clone(), kind).mul_scalar(weight));
        terms.reduce(Tensor::add).expect("there is a penalty")
    }

    /// The part of a block in the cost, `[1]`; the field's pieces lie on `block`.
    pub fn value(&self, field: &Pieces, block: &Block) -> Tensor<1> {
        let near = block.within(LOOKS);
        let there = field.joined([block, &near]);
        let value = self.value_of(there.clone());
        match near.shared() {
            Some(planes) => value - self.value_of(near.narrow(&there, &planes)),
            None => value,
        }
    }

    /// A gradient on the planes of `inner` with `scale` `[1]` times that of the cost.
    pub fn add(
        &self,
        gradient: Pieces,
        field: &Pieces,
        [block, inner]: [&Block; 2],
        scale: &Tensor<1>,
    ) -> Pieces {
        let near = inner.wider(LOOKS);
        let there = field.joined([block, &near]);
        let terms = self.terms(&there).into_iter().map(|(weight, kind)| {
            let scale = scale.clone().mul_scalar(weight).into_dispatch();
            let field = there.clone().into_dispatch();
            let slope = <Dispatch as RegularityOps>::roughness_3d_backward(field, scale, kind);
            Tensor::<5>::from_dispatch(slope)
        });
        let slope = terms.reduce(Tensor::add).expect("there is a penalty");
        let slope = near.narrow(&slope, &inner.all);
        gradient.zip(Pieces::of(&slope, inner), Tensor::add)
    }
}
