//! The bending energy on the GPU: three passes over the small control grid, one an axis, and the product with it.
//!
//! The passes carry along what later ones need: of the three orders along x those of the six terms along y, summed by
//! the order along z that they have in common.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{BsplineBendingOps, Millimetres, REACH, gram, terms};
use crate::ops::bspline::cube::banded::{Line, Pass, Table, banded};
use ffdp_kit::launch::{
    UNITS, address, assert_f32, buffer, empty, sum_over_cube, sum_rows, upload,
};

/// Partial sums of the energy.
const PARTIALS: usize = 256;

const fn pass(terms: &'static [[u32; 2]]) -> Pass {
    Pass { window: 2 * REACH as u32 + 1, step: 1, before: REACH as u32, terms }
}

/// From the coefficients to the three orders.
const ALONG_X: Pass = pass(&[[0, 0], [0, 1], [0, 2]]);
/// From an order along x to one along z: the six terms, as [`terms`] has them.
const ALONG_Y: Pass = pass(&[[2, 0], [0, 0], [0, 2], [1, 0], [1, 1], [0, 1]]);
const ALONG_Z: Pass = pass(&[[0, 0], [1, 0], [2, 0]]);

/// `forces` becomes the gradient, `partials[cube]` the energy of the cube's share; `unit_x`, `unit_y`, `unit_z` in mm.
#[cube(launch_unchecked, address_type = "dynamic")]
fn finish_kernel(
    phi: &[f32],
    forces: &mut [f32],
    partials: &mut [f32],
    elements: usize,
    volume: usize,
    unit_x: f32,
    unit_y: f32,
    unit_z: f32,
) {
    let mut at = (CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X) as usize;
    let mut sum = 0.0f32;
    // Kahan: terms of both signs that nearly cancel.
    let mut lost = 0.0f32;
    while at < elements {
        let component = at / volume % 3;
        let unit = select(component == 0, unit_x, select(component == 1, unit_y, unit_z));
        let force = unit * unit * forces[at];
        forces[at] = 2.0f32 * force;
        let term = phi[at] * force - lost;
        let next = sum + term;
        lost = (next - sum) - term;
        sum = next;
        at += (CUBE_COUNT_X * CUBE_DIM_X) as usize;
    }
    let total = sum_over_cube(sum);
    if UNIT_POS == 0 {
        partials[CUBE_POS_X as usize] = total;
    }
}

/// The energy, and its gradient.
fn with_gradient(phi: CubeTensor, mm: Millimetres) -> (CubeTensor, CubeTensor) {
    let shape = phi.meta.shape().clone();
    let [d, h, w] = [shape[2], shape[3], shape[4]];
    let elements = shape.num_elements();
    let rows = |len: usize, order: usize, weight: f64| {
        gram(len, order).into_iter().flatten().map(move |entry| (weight * entry) as f32)
    };
    let mut tables: Vec<f32> = (0..3).flat_map(|order| rows(w, order, 1.0)).collect();
    let along_y = tables.len();
    let terms = terms(mm.spacing, shape[0]);
    tables.extend(terms.iter().flat_map(|term| rows(h, term.orders[1], term.weight)));
    let along_z = tables.len();
    tables.extend((0..3).flat_map(|order| rows(d, order, 1.0)));
    let tables = upload(&phi, &tables);
    let from = |start: usize| Table { tables: &tables, start };
    let line = |len: usize, stride: usize| Line { input: len, output: len, stride };
    let lines = banded(&phi, elements, from(0), line(w, 1), ALONG_X);
    let planes = banded(&lines, elements, from(along_y), line(h, w), ALONG_Y);
    let forces = banded(&planes, elements, from(along_z), line(d, h * w), ALONG_Z);
    let partials = empty(&phi, [PARTIALS]);
    let [x, y, z] = mm.unit.map(|unit| unit as f32);
    unsafe {
        finish_kernel::launch_unchecked(
            &phi.client,
            CubeCount::Static(PARTIALS as u32, 1, 1),
            CubeDim::new_1d(UNITS),
            address(&[&phi]),
            buffer(&phi),
            buffer(&forces),
            buffer(&partials),
            elements,
            d * h * w,
            x,
            y,
            z,
        );
    }
    let CubeTensor { client, device, handle, dtype, .. } = forces;
    let gradient = CubeTensor::new_contiguous(client, device, shape, handle, dtype);
    (sum_rows(&partials, 1, PARTIALS, 1.0), gradient)
}

impl BsplineBendingOps for CubeBackend {
    fn bspline_bending_3d(coefficients: FloatTensor<Self>, mm: Millimetres) -> FloatTensor<Self> {
        Self::bspline_bending_3d_with_gradient(coefficients, mm).0
    }

    fn bspline_bending_3d_with_gradient(
        coefficients: FloatTensor<Self>,
        mm: Millimetres,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        assert_f32("bspline_bending", &[&coefficients]);
        with_gradient(into_contiguous(coefficients), mm)
    }
}
