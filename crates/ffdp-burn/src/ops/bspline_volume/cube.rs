//! The volume penalty on the GPU: a unit a point, whose weights are known when the kernel is compiled; then a pass
//! for each axis takes the gradient from the points to the control points.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{BsplineVolumeOps, Millimetres, POINTS, points, weights};
use crate::ops::bspline::cube::banded::{Line, Pass, Table, banded};
use ffdp_kit::launch::{
    Extent, UNITS, address, assert_f32, buffer, empty, extent, sum_over_cube, sum_rows, upload,
};

#[derive(CubeType, Clone, Copy)]
struct Vector3 {
    x: f32,
    y: f32,
    z: f32,
}

#[cube]
fn cross(a: &Vector3, b: &Vector3) -> Vector3 {
    Vector3 { x: a.y * b.z - a.z * b.y, y: a.z * b.x - a.x * b.z, z: a.x * b.y - a.y * b.x }
}

#[cube]
fn dot(a: &Vector3, b: &Vector3) -> f32 {
    a.x * b.x + a.y * b.y + a.z * b.z
}

/// How many control points a point sees along an axis.
fn taps(flat: bool) -> u32 {
    if flat { 1 } else { 4 }
}

fn weight(flat: bool, slope: bool, point: usize, tap: u32) -> f32 {
    weights(flat, slope, point)[tap as usize] as f32
}

/// The weights of the control points along an axis at a point: values, then slopes per spacing.
#[cube]
fn around(point: u32, #[comptime] flat: bool) -> Array<f32> {
    let odd = point % comptime!(POINTS as u32) == 1;
    let mut around = Array::<f32>::new(8usize);
    #[unroll]
    for tap in 0..comptime!(taps(flat)) {
        around[tap as usize] = select(
            odd,
            comptime!(weight(flat, false, 1, tap)),
            comptime!(weight(flat, false, 0, tap)),
        );
        around[comptime!(tap as usize + 4)] = select(
            odd,
            comptime!(weight(flat, true, 1, tap)),
            comptime!(weight(flat, true, 0, tap)),
        );
    }
    around
}

/// The weights along each axis.
#[derive(CubeType)]
struct Around {
    x: Array<f32>,
    y: Array<f32>,
    z: Array<f32>,
}

/// What a component and an axis measure: `unit / spacing`, a row for each axis (x, y, z).
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Factors {
    x: f32,
    y: f32,
    z: f32,
    per_x: f32,
    per_y: f32,
    per_z: f32,
}

/// The derivatives of a component along x, y, z, per spacing; `first` its control point of the cell.
#[cube]
fn derivatives(
    coefficients: &[f32],
    first: usize,
    controls: &Extent,
    along: &Around,
    #[comptime] flat: [bool; 3],
) -> Vector3 {
    let width = controls.w as usize;
    let area = controls.h as usize * width;
    let mut sum = Vector3 { x: 0.0f32, y: 0.0f32, z: 0.0f32 };
    #[unroll]
    for k in 0..comptime!(taps(flat[2]) as usize) {
        let mut of_x = 0.0f32;
        let mut of_y = 0.0f32;
        let mut of_z = 0.0f32;
        #[unroll]
        for j in 0..comptime!(taps(flat[1]) as usize) {
            let mut value = 0.0f32;
            let mut slope = 0.0f32;
            #[unroll]
            for i in 0..comptime!(taps(flat[0]) as usize) {
                let phi = coefficients[first + k * area + j * width + i];
                value += along.x[i] * phi;
                slope += along.x[comptime!(i + 4)] * phi;
            }
            of_x += along.y[j] * slope;
            of_y += along.y[comptime!(j + 4)] * value;
            of_z += along.y[j] * value;
        }
        sum.x += along.z[k] * of_x;
        sum.y += along.z[k] * of_y;
        sum.z += along.z[comptime!(k + 4)] * of_z;
    }
    sum
}

/// `slopes[axis][component][point]`: the derivative of the mean by that of a component along an axis, per spacing;
/// `partials[cube]` the sum over the cube's share of the points.
#[cube(launch_unchecked, address_type = "dynamic")]
fn points_kernel(
    coefficients: &[f32],
    slopes: &mut [f32],
    partials: &mut [f32],
    controls: Extent,
    size: Extent,
    factors: Factors,
    count: usize,
    least: f32,
    scale: f32,
    #[comptime] flat: [bool; 3],
) {
    let volume = size.d as usize * size.h as usize * size.w as usize;
    let control_area = controls.h as usize * controls.w as usize;
    let control_volume = controls.d as usize * control_area;
    let mut at = (CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X) as usize;
    let mut sum = 0.0f32;
    while at < count {
        let (batch, place) = (at / volume, at % volume);
        let px = (place % size.w as usize) as u32;
        let py = (place / size.w as usize % size.h as usize) as u32;
        let pz = (place / (size.w as usize * size.h as usize)) as u32;
        let along = Around {
            x: around(px, comptime!(flat[0])),
            y: around(py, comptime!(flat[1])),
            z: around(pz, comptime!(flat[2])),
        };
        let cell = comptime!(POINTS as u32);
        let first = batch * 3 * control_volume
            + (pz / cell) as usize * control_area
            + ((py / cell) * controls.w + px / cell) as usize;
        let u = derivatives(coefficients, first, &controls, &along, flat);
        let v = derivatives(coefficients, first + control_volume, &controls, &along, flat);
        let w = derivatives(coefficients, first + 2 * control_volume, &controls, &along, flat);
        let f = &factors;
        let x = Vector3 {
            x: 1.0f32 + f.x * f.per_x * u.x,
            y: f.y * f.per_x * v.x,
            z: f.z * f.per_x * w.x,
        };
        let y = Vector3 {
            x: f.x * f.per_y * u.y,
            y: 1.0f32 + f.y * f.per_y * v.y,
            z: f.z * f.per_y * w.y,
        };
        let z = Vector3 {
            x: f.x * f.per_z * u.z,
            y: f.y * f.per_z * v.z,
            z: 1.0f32 + f.z * f.per_z * w.z,
        };
        let of_x = cross(&y, &z);
        let det = dot(&x, &of_x);
        let held = max(det, least);
        let log = held.ln();
        sum += log * log + 2.0f32 * log / held * min(det - least, 0.0f32);
        let slope = scale * 2.0f32 * log / held;
        let to = batch * 3 * volume + place;
        store(slopes, to, volume, slope * f.per_x, f, &of_x);
        store(slopes, to + 3 * count, volume, slope * f.per_y, f, &cross(&z, &x));
        store(slopes, to + 6 * count, volume, slope * f.per_z, f, &cross(&x, &y));
        at += (CUBE_COUNT_X * CUBE_DIM_X) as usize;
    }
    let total = sum_over_cube(sum);
    if UNIT_POS == 0 {
        partials[CUBE_POS_X as usize] = total;
    }
}

#[cube]
fn store(
    slopes: &mut [f32],
    first: usize,
    volume: usize,
    scale: f32,
    factors: &Factors,
    v: &Vector3,
) {
    slopes[first] = scale * factors.x * v.x;
    slopes[first + volume] = scale * factors.y * v.y;
    slopes[first + 2 * volume] = scale * factors.z * v.z;
}

/// Cubes of a launch, at most: several for each multiprocessor of a large GPU.
const CUBES: usize = 2112;

/// Of a control point the points of four cells; of an axis that does not vary, its only one.
const fn pass(terms: &'static [[u32; 2]]) -> Pass {
    Pass { window: 4 * POINTS as u32, step: POINTS as u32, before: 3 * POINTS as u32, terms }
}

/// Of the derivatives along x, y, z, the last is done after z, the other two wait for their axes.
const ALONG_Z: Pass = pass(&[[0, 0], [1, 1], [2, 2]]);
const ALONG_Y: Pass = pass(&[[0, 0], [1, 1], [2, 1]]);
const ALONG_X: Pass = pass(&[[0, 0], [1, 0]]);

/// The matrix from the points of an axis to its control points.
fn table(controls: usize, slope: bool) -> Vec<f32> {
    let entry = |place: usize| {
        let (cell, point) = (place / POINTS, place % POINTS);
        match controls {
            // Its only point is the first that is not before the line.
            1 if place == 3 * POINTS => weight(true, slope, 0, 0),
            1 => 0.0,
            _ => weight(false, slope, point, 3 - cell as u32),
        }
    };
    (0..controls).flat_map(|_| (0..4 * POINTS).map(entry)).collect()
}

fn with_gradient(
    coefficients: CubeTensor,
    mm: Millimetres,
    least: f64,
) -> (CubeTensor, CubeTensor) {
    let shape = coefficients.meta.shape().clone();
    let controls = [shape[2], shape[3], shape[4]];
    let size = controls.map(points);
    let count = shape[0] * size.iter().product::<usize>();
    let cubes = count.div_ceil(UNITS as usize).min(CUBES);
    let slopes = empty(&coefficients, [9 * count]);
    let partials = empty(&coefficients, [cubes]);
    let [x, y, z] = mm.unit.map(|unit| unit as f32);
    let [per_x, per_y, per_z] = mm.spacing.map(|spacing| (1.0 / spacing) as f32);
    let [d, h, w] = controls;
    let mean = (1.0 / count as f64) as f32;
    unsafe {
        points_kernel::launch_unchecked(
            &coefficients.client,
            CubeCount::Static(cubes as u32, 1, 1),
            CubeDim::new_1d(UNITS),
            address(&[&coefficients, &slopes]),
            buffer(&coefficients),
            buffer(&slopes),
            buffer(&partials),
            extent(controls),
            extent(size),
            FactorsLaunch::new(x, y, z, per_x, per_y, per_z),
            count,
            least as f32,
            mean,
            [w == 1, h == 1, d == 1],
        );
    }
    let of = |controls: usize, slopes: &[bool]| -> Vec<f32> {
        slopes.iter().flat_map(|slope| table(controls, *slope)).collect()
    };
    let mut tables = of(d, &[false, false, true]);
    let along_y = tables.len();
    tables.extend(of(h, &[false, true, false]));
    let along_x = tables.len();
    tables.extend(of(w, &[true, false]));
    let tables = upload(&coefficients, &tables);
    let from = |start: usize| Table { tables: &tables, start };
    let line =
        |axis: usize, stride: usize| Line { input: size[axis], output: controls[axis], stride };
    let lines = 3 * shape[0];
    let planes = banded(&slopes, 3 * count, from(0), line(0, size[1] * size[2]), ALONG_Z);
    let elements = lines * d * size[1] * size[2];
    let rows = banded(&planes, elements, from(along_y), line(1, size[2]), ALONG_Y);
    let elements = lines * d * h * size[2];
    let gradient = banded(&rows, elements, from(along_x), line(2, 1), ALONG_X);
    let CubeTensor { client, device, handle, dtype, .. } = gradient;
    let gradient = CubeTensor::new_contiguous(client, device, shape, handle, dtype);
    (sum_rows(&partials, 1, cubes, mean), gradient)
}

impl BsplineVolumeOps for CubeBackend {
    fn bspline_volume_3d(
        coefficients: FloatTensor<Self>,
        mm: Millimetres,
        least: f64,
    ) -> FloatTensor<Self> {
        Self::bspline_volume_3d_with_gradient(coefficients, mm, least).0
    }

    fn bspline_volume_3d_with_gradient(
        coefficients: FloatTensor<Self>,
        mm: Millimetres,
        least: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        assert_f32("bspline_volume", &[&coefficients]);
        with_gradient(into_contiguous(coefficients), mm, least)
    }
}
