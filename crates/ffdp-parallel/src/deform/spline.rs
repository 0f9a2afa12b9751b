//! Free-form deformation: the field of a grid of control points as a [`FieldModel`] (Rueckert et al. 1999).
//!
//! ```text
//! field = start + B D w          g_w = D B^T g_field
//! ```
//! `w` the control points' coefficients, in voxels along the finest axis · `D` voxels of each axis in one along the
//! finest · `B` the cubic B-splines of the grid ([`bspline_part`]) · `start` where a level begins that goes on from
//! another method. Coefficients are few: every rank has all of them, in one piece on its first device, and every shard
//! evaluates its own planes.

use burn::Tensor;
use ffdp_burn::ops::{
    ControlGrid, InnerProducts, LEAST_DETERMINANT, bspline_bending_with_gradient, bspline_part,
    bspline_pull_back, bspline_volume_with_gradient, combination, inner_products, longest_squared,
};
use ffdp_image::error::{Error, Result};
use ffdp_optim::Space;

use super::direct::DirectPair;
use super::objective::{Cost, FieldModel, scaled};
use super::places::FieldPlaces;
use crate::device_mesh::DeviceMesh;
use crate::hosts::Holders;
use crate::numbers::read_together;
use crate::sharded::Sharded;
use crate::transfer::to_device;

/// Few numbers as a vector of a [`Space`], of control points `[1, 3, d, h, w]`; the same on all ranks.
#[derive(Clone, Debug)]
pub struct Coefficients(pub Tensor<5>);

impl Space for Coefficients {
    type Error = Error;

    fn dots(pairs: &[[&Self; 2]]) -> Result<Vec<f64>> {
        let products = products(pairs);
        let values = read_together("inner products", products.blocks.clone())?;
        Ok(products.of_pairs(&values))
    }

    fn combine(terms: &[(f64, &Self)]) -> Self {
        Self(combination(&terms.iter().map(|(a, x)| (*a, &x.0)).collect::<Vec<_>>()))
    }
}

pub(super) fn products(pairs: &[[&Coefficients; 2]]) -> InnerProducts {
    inner_products(&pairs.iter().map(|[a, b]| [&a.0, &b.0]).collect::<Vec<_>>())
}

/// What the shape of a control grid's field costs: a weight each, 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SplinePenalties {
    /// Of [`bspline_bending()`](ffdp_burn::ops::bspline_bending()), mm^2.
    pub bending: f64,
    /// Of [`bspline_volume()`](ffdp_burn::ops::bspline_volume()).
    pub volume: f64,
}

/// Control points over the grid of a field, and what they cost.
pub struct ControlPoints {
    /// `[1, 3, d, h, w]`, in voxels (x, y, z) of the field's grid.
    pub coefficients: Tensor<5>,
    /// Where the points lie on the field's grid.
    pub grid: ControlGrid,
    /// What a voxel of the field's grid measures along (x, y, z).
    pub voxel_mm: [f64; 3],
    /// What the shape of their field costs.
    pub penalties: SplinePenalties,
}

/// The field of a grid of control points, see the head of this file.
pub struct SplineModel {
    places: FieldPlaces,
    start: Option<Sharded>,
    begin: Coefficients,
    control: ControlGrid,
    voxel_mm: [f64; 3],
    penalties: SplinePenalties,
    differences: Option<f64>,
}

impl SplineModel {
    /// A model on the grid of `field`, in its shards and computed on `mesh`; of several ranks, each has its planes.
    /// The search begins at `points`; what `start` has is added, and costs nothing.
    ///
    /// # Panics
    /// If `mesh` has another number of places than there are shards.
    pub fn new(
        field: &Sharded,
        start: Option<Sharded>,
        points: ControlPoints,
        mesh: &DeviceMesh,
        holders: &Holders,
    ) -> Self {
        let places = FieldPlaces::of(field, mesh, holders);
        let ControlPoints { coefficients, grid: control, voxel_mm, penalties } = points;
        let begin = Coefficients(to_device(coefficients, places.home()));
        let mut model =
            Self { places, start, begin, control, voxel_mm, penalties, differences: None };
        model.begin = model.parameters(model.begin.0.clone());
        model
    }

    /// The gradient is that of differences, from control points displaced by so many voxels.
    pub fn by_differences(self, step: Option<f64>) -> Self {
        Self { differences: step, ..self }
    }

    /// What is searched, from coefficients in voxels of the grid.
    pub fn parameters(&self, coefficients: Tensor<5>) -> Coefficients {
        Coefficients(scaled(&coefficients, steps(self.voxel_mm).map(f64::recip)))
    }

    /// The coefficients in voxels of the grid, for [`bspline_part`], and where they lie.
    pub fn coefficients(&self, w: &Coefficients) -> (Tensor<5>, ControlGrid) {
        (scaled(&w.0, steps(self.voxel_mm)), self.control)
    }

    /// Whether the field is that of the control points alone.
    pub fn is_alone(&self) -> bool {
        self.start.is_none()
    }
}

/// Voxels along (x, y, z) in one along the finest axis.
fn steps(voxel_mm: [f64; 3]) -> [f64; 3] {
    let finest = voxel_mm.into_iter().fold(f64::INFINITY, f64::min);
    voxel_mm.map(|mm| finest / mm)
}

impl FieldModel for SplineModel {
    type Parameters = Coefficients;

    fn rest(&self) -> Coefficients {
        self.begin.clone()
    }

    fn fields(&self, w: &Coefficients) -> Result<Vec<Sharded>> {
        let (coefficients, control) = self.coefficients(w);
        let field = self.places.field(self.start.as_ref(), |k, _, device| {
            let [first, size] = self.places.block(k);
            bspline_part(to_device(coefficients.clone(), device), &control, first, size)
        });
        Ok(vec![field])
    }

    fn pull_back(&self, w: &Coefficients, gradient: Vec<Sharded>) -> Result<Coefficients> {
        let [_, _, d, h, width] = w.0.dims();
        let sum = self.places.sum(&gradient[0], |k, _, g| {
            let [first, _] = self.places.block(k);
            bspline_pull_back(g, &self.control, [d, h, width], first)
        })?;
        Ok(Coefficients(scaled(&sum, steps(self.voxel_mm))))
    }

    /// The longest coefficient: no vector of the field is longer.
    fn length(&self, step: &Coefficients) -> Result<f64> {
        let squared = longest_squared(step.0.clone());
        Ok(read_together("the length of a step", vec![squared])?[0].sqrt())
    }

    fn evaluate_directly(
        &self,
        w: &Coefficients,
        pair: &DirectPair,
    ) -> Option<(Tensor<1>, Coefficients)> {
        if !self.is_alone() {
            return None;
        }
        let (coefficients, control) = self.coefficients(w);
        let (loss, gradient) = pair.evaluate(coefficients, &control);
        Some((loss, Coefficients(scaled(&gradient, steps(self.voxel_mm)))))
    }

    fn differences(&self) -> Option<f64> {
        self.differences
    }

    fn products(&self, pairs: &[[&Coefficients; 2]]) -> Option<InnerProducts> {
        Some(products(pairs))
    }

    fn costs(&self, w: &Coefficients) -> Vec<Cost<Coefficients>> {
        let SplinePenalties { bending, volume } = self.penalties;
        let (phi, control) = self.coefficients(w);
        let mm = self.voxel_mm;
        let cost = |weight: f64, (value, gradient): (Tensor<1>, Tensor<5>)| {
            let gradient = Coefficients(scaled(&gradient, steps(mm)));
            Cost { weight, value, gradient }
        };
        let bends = (bending > 0.0)
            .then(|| cost(bending, bspline_bending_with_gradient(phi.clone(), &control, mm)));
        let grows = (volume > 0.0).then(|| {
            let least = LEAST_DETERMINANT;
            cost(volume, bspline_volume_with_gradient(phi.clone(), &control, mm, least))
        });
        bends.into_iter().chain(grows).collect()
    }
}
