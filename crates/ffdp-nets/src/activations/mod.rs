//! The activations of a network in parts, as [`Sharded`] is a volume in parts.
//!
//! A network has grids of several sizes, down to a few planes, and its tokens have their channels last. So
//! a [`Slabs`] is cut along any dimension, and a place of the mesh may have no plane of a coarse grid.
//! Every layer (`layers.rs`) asks for the planes that its own part of the *result* needs, from wherever
//! they lie:
//! ```text
//! result planes a..b  <-  layer(planes that a..b look at)
//! ```
//! which holds for any cuts on either side. They are chosen so that most of these planes are there already
//! ([`Cuts::at`]); what is not travels, and its gradient comes back (`fetch.rs`).

mod fetch;
mod layers;
#[cfg(test)]
mod tests;

pub use fetch::PlaneRun;

use std::ops::Range;

use burn::Tensor;

use ffdp_parallel::{Cuts, DeviceMesh, Sharded};

/// A tensor of five axes in parts along one of them.
#[derive(Clone, Debug)]
pub struct Slabs {
    parts: Vec<Option<Tensor<5>>>,
    cuts: Cuts,
    dim: usize,
    mesh: DeviceMesh,
}

impl Slabs {
    /// The part of every place that has planes, by `part(place, planes)`.
    ///
    /// # Panics
    /// If a part has not its planes along `dim`, or the mesh has another number of places.
    pub fn build(
        cuts: &Cuts,
        mesh: &DeviceMesh,
        dim: usize,
        mut part: impl FnMut(usize, Range<usize>) -> Tensor<5>,
    ) -> Self {
        let (places, there) = (cuts.places(), mesh.count());
        assert!(places == there, "activations: cuts for {places} places on a mesh of {there}");
        let part = |k: usize| {
            let planes = cuts.planes(k);
            (!planes.is_empty()).then(|| {
                let part = part(k, planes.clone());
                let (got, expected) = (part.dims()[dim], planes.len());
                assert!(got == expected, "activations: place {k} has {expected} planes, got {got}");
                part
            })
        };
        let parts = (0..places).map(part).collect();
        Self { parts, cuts: cuts.clone(), dim, mesh: mesh.clone() }
    }

    /// A sharded volume as it is cut.
    pub fn of(volume: &Sharded) -> Self {
        let layout = volume.layout();
        Self {
            parts: volume.shards().iter().cloned().map(Some).collect(),
            cuts: Cuts::of(layout),
            dim: layout.axis().dim(),
            mesh: volume.mesh(),
        }
    }

    /// Where the cuts are.
    pub fn cuts(&self) -> &Cuts {
        &self.cuts
    }

    /// The dimension that is cut.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Which device holds which part.
    pub fn mesh(&self) -> &DeviceMesh {
        &self.mesh
    }

    /// Shape of the whole.
    pub fn dims(&self) -> [usize; 5] {
        let mut dims = self.some().dims();
        dims[self.dim] = self.cuts.extent();
        dims
    }

    /// The part of place `k`, if it has planes.
    pub fn part(&self, k: usize) -> Option<&Tensor<5>> {
        self.parts[k].as_ref()
    }

    /// A part that is there.
    fn some(&self) -> &Tensor<5> {
        self.parts.iter().flatten().next().expect("there are planes, so that some place has them")
    }

    /// The same with other cuts. Differentiable.
    ///
    /// # Panics
    /// If they have other places or another extent.
    pub fn recut(&self, cuts: &Cuts) -> Self {
        let (a, b) = (self.cuts.extent(), cuts.extent());
        assert!(a == b, "activations: cuts of {b} planes for {a}");
        if *cuts == self.cuts {
            return self.clone();
        }
        self.through(cuts, |planes| vec![PlaneRun::Planes(planes.clone())], |_, _, window| window)
    }

    /// Every part through `layer(place, part)`, which looks at its own plane only. A part that nothing else holds is
    /// gone when the next one's turn comes.
    ///
    /// # Panics
    /// If the layer changes the number of planes.
    pub fn map(self, mut layer: impl FnMut(usize, Tensor<5>) -> Tensor<5>) -> Self {
        let mut parts = self.parts.into_iter().flatten();
        Self::build(&self.cuts, &self.mesh, self.dim, |k, _| {
            layer(k, parts.next().expect("a place with planes has a part"))
        })
    }

    /// Pairs of parts likewise.
    ///
    /// # Panics
    /// If the cuts differ, or as [`Slabs::map`].
    pub fn zip_map(
        self,
        other: Self,
        mut layer: impl FnMut(Tensor<5>, Tensor<5>) -> Tensor<5>,
    ) -> Self {
        assert!(self.cuts == other.cuts, "activations: operands are cut differently");
        let mut others = other.parts.into_iter().flatten();
        self.map(|_, part| layer(part, others.next().expect("cut alike")))
    }

    /// Every part times a small tensor `[N, 1, 1, 1, 1]`, which `factor(place)` gives on the place's device.
    pub fn times(self, factor: impl Fn(usize) -> Tensor<5>) -> Self {
        self.map(|k, part| part * factor(k))
    }

    /// With the axes in another order, as `permute` puts them; `dim` is where the cut axis is then.
    pub fn permuted(self, axes: [isize; 5], dim: usize) -> Self {
        let turned = Self { dim, ..self };
        turned.map(|_, part| part.permute(axes))
    }

    fn own(&self, k: usize) -> Tensor<5> {
        self.parts[k].clone().expect("a place with planes has a part")
    }
}
