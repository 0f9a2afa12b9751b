//! Exact cases, group laws, finite differences, and GPU against CPU.

use burn::tensor::{DType, Device, Tensor};

use super::*;
use ffdp_kit::testing::{
    assert_close, gpu_devices, gradcheck, max_relative_error, normal, tensor, to_f64, uniform,
};

/// Linear fields are sampled without interpolation error: f64 rounding of coordinates up to 10.
const ROUNDING: f64 = 1e-13;
/// Products of at most a few slopes in f64; differences reach about 1e-9.
const FINITE_DIFFERENCES: f64 = 1e-7;
/// f32 coordinates up to 70 are rounded by 4e-6, which moves a sample by as many voxels.
const GPU_FORWARD: f64 = 1e-5;
/// As above; slopes are differences of neighbours. Squarings multiply the errors.
const GPU_GRADIENT: f64 = 1e-4;

fn cpu() -> Device {
    Device::flex()
}

/// The field `u(x, y, z)`, batch 1.
fn field(size: [usize; 3], u: impl Fn([f64; 3]) -> [f64; 3]) -> Tensor<5> {
    let [d, h, w] = size;
    let len = d * h * w;
    let mut values = vec![0.0; 3 * len];
    for voxel in 0..len {
        let p = [voxel % w, voxel / w % h, voxel / (w * h)].map(|i| i as f64);
        u(p).into_iter().enumerate().for_each(|(c, u)| values[c * len + voxel] = u);
    }
    tensor(&values, [1, 3, d, h, w], &cpu(), DType::F64)
}

fn random(shape: [usize; 5], reach: f64, seed: u64) -> Tensor<5> {
    tensor(&uniform(shape.iter().product(), -reach, reach, seed), shape, &cpu(), DType::F64)
}

#[test]
fn translations_add_up_to_the_border() {
    // Dyadic numbers: every sum and every interpolation is exact.
    let size = [3, 4, 5];
    let u = field(size, |_| [1.5, -2.25, 0.75]);
    let v = field(size, |_| [-0.25, 4.5, 100.0]);
    let sum = field(size, |_| [1.25, 2.25, 100.75]);
    assert_eq!(to_f64(compose(u, v)), to_f64(sum));
}

#[test]
fn the_identity_changes_nothing() {
    let u = random([2, 3, 3, 4, 5], 2.0, 1);
    let zero = u.zeros_like();
    assert_eq!(to_f64(compose(u.clone(), zero.clone())), to_f64(u.clone()));
    assert_eq!(to_f64(compose(zero, u.clone())), to_f64(u));
}

#[test]
fn an_integer_shift_reads_the_shifted_field() {
    let (d, h, w) = (3, 4, 5);
    let u = random([1, 3, d, h, w], 2.0, 2);
    let w_field = to_f64(compose(u.clone(), field([d, h, w], |_| [2.0, -1.0, 1.0])));
    let u = to_f64(u);
    for (c, shift) in [2.0, -1.0, 1.0].into_iter().enumerate() {
        for voxel in 0..d * h * w {
            let (x, y, z) = (voxel % w, voxel / w % h, voxel / (w * h));
            // Beyond the border the field continues with its border value.
            let from = [(z + 1).min(d - 1), y.saturating_sub(1), (x + 2).min(w - 1)];
            let expected = u[((c * d + from[0]) * h + from[1]) * w + from[2]] + shift;
            assert_eq!(w_field[c * d * h * w + voxel], expected, "{c} ({x}, {y}, {z})");
        }
    }
}

/// `p -> centre + m (p - centre) + t` as a displacement field.
#[derive(Clone, Copy)]
struct Linear {
    m: [[f64; 3]; 3],
    t: [f64; 3],
    centre: [f64; 3],
}

impl Linear {
    fn at(&self, p: [f64; 3]) -> [f64; 3] {
        let from = [0, 1, 2].map(|i| p[i] - self.centre[i]);
        [0, 1, 2].map(|i| {
            self.centre[i] + self.t[i] + (0..3).map(|j| self.m[i][j] * from[j]).sum::<f64>()
        })
    }

    fn field(&self, size: [usize; 3]) -> Tensor<5> {
        field(size, |p| {
            let q = self.at(p);
            [0, 1, 2].map(|i| q[i] - p[i])
        })
    }
}

/// Three affine maps that send the grid 9 x 9 x 9 into itself, so that no sample leaves it.
fn contractions() -> [Linear; 3] {
    let centre = [4.0; 3];
    [
        ([[0.8, 0.1, -0.05], [-0.1, 0.7, 0.02], [0.03, 0.05, 0.75]], [0.1, -0.2, 0.05]),
        ([[0.6, -0.2, 0.1], [0.2, 0.6, 0.0], [0.0, 0.1, 0.8]], [-0.15, 0.1, 0.3]),
        ([[0.85, 0.0, 0.05], [0.05, 0.9, 0.0], [-0.1, 0.1, 0.7]], [0.05, 0.0, -0.1]),
    ]
    .map(|(m, t)| Linear { m, t, centre })
}

#[test]
fn affine_fields_compose_like_their_maps() {
    let size = [9, 9, 9];
    let [a, b, _] = contractions();
    let expected = field(size, |p| {
        let q = a.at(b.at(p));
        [0, 1, 2].map(|i| q[i] - p[i])
    });
    let composed = to_f64(compose(a.field(size), b.field(size)));
    assert_close("a after b", &composed, &to_f64(expected), ROUNDING);
    let exchanged = to_f64(compose(b.field(size), a.field(size)));
    assert!(max_relative_error(&exchanged, &composed) > 1e-2, "these maps do not commute");
}

#[test]
fn composition_is_associative_for_affine_fields() {
    let [a, b, c] = contractions().map(|map| map.field([9, 9, 9]));
    let left = compose(compose(a.clone(), b.clone()), c.clone());
    let right = compose(a, compose(b, c));
    assert_close("associativity", &to_f64(left), &to_f64(right), ROUNDING);
}

#[test]
fn the_exponential_of_a_translation_is_the_translation() {
    let v = field([3, 4, 5], |_| [3.5, -1.25, 0.5]);
    for steps in [0, 1, 4, 7, 12] {
        assert_eq!(to_f64(exp(v.clone(), steps)), to_f64(v.clone()), "{steps} steps");
    }
}

#[test]
fn no_squaring_returns_the_velocity() {
    let v = random([2, 3, 2, 3, 4], 1.0, 3);
    assert_eq!(to_f64(exp(v.clone(), 0)), to_f64(v));
}

#[test]
fn the_exponential_of_a_linear_field_is_the_power_of_its_map() {
    // k squarings of id + L / 2^k are its 2^k-th power; that tends to the matrix exponential.
    let (size, centre) = ([9, 9, 9], [4.0; 3]);
    let rate = [[-0.3, 0.2, 0.0], [-0.2, -0.4, 0.05], [0.1, 0.0, -0.25]];
    let velocity =
        field(size, |p| [0, 1, 2].map(|i| (0..3).map(|j| rate[i][j] * (p[j] - centre[j])).sum()));
    for steps in [1, 3, 7] {
        let scale = 1.0 / f64::from(1 << steps);
        let mut m = [[0.0; 3]; 3];
        for (i, j) in (0..9).map(|k| (k / 3, k % 3)) {
            m[i][j] = f64::from(i == j) + rate[i][j] * scale;
        }
        for _ in 0..steps {
            m = [0, 1, 2].map(|i| [0, 1, 2].map(|j| (0..3).map(|k| m[i][k] * m[k][j]).sum()));
        }
        let expected = Linear { m, t: [0.0; 3], centre }.field(size);
        let label = format!("{steps} steps");
        assert_close(&label, &to_f64(exp(velocity.clone(), steps)), &to_f64(expected), ROUNDING);
    }
}

/// Displacements within about `reach` whose positions keep 0.05 voxel from the lattice, where
/// slopes jump: neither a difference step nor the rounding of f32 takes them across.
fn off_lattice(len: usize, reach: f64, seed: u64) -> Vec<f64> {
    let values = uniform(len, -reach, reach, seed);
    values.into_iter().map(|v| v.floor() + 0.05 + 0.9 * (v - v.floor())).collect()
}

/// A velocity of waves that vanish at the border, the same in space on every grid: at most
/// `peak` of the grid's width along each component.
fn waves(size: usize, peak: f64) -> Tensor<5> {
    let (pi, width) = (std::f64::consts::PI, (size - 1) as f64);
    field([size; 3], |p| {
        let [x, y, z] = p.map(|i| pi * i / width);
        let border = x.sin() * y.sin() * z.sin();
        let wave = [(2.0 * y).cos() + z.cos(), (2.0 * x).sin() - z.sin(), (x + 2.0 * y).cos()];
        wave.map(|wave| 0.5 * peak * width * border * wave)
    })
}

#[test]
fn the_negative_velocity_inverts() {
    // What is left is interpolation, h^2 u'' in space; a finer grid counts it in smaller voxels.
    // Measured residuals in voxels of a displacement of 1.8 and 3.8 voxels:
    const CASES: [(usize, f64); 2] = [(17, 5.3e-2), (33, 4.1e-2)];
    for (size, measured) in CASES {
        let v = waves(size, 0.15);
        let (forward, inverse) = (exp(v.clone(), 7), exp(v.neg(), 7));
        let reach = to_f64(forward.clone().abs().max())[0];
        assert!(reach > 0.1 * size as f64, "the deformation is not trivial: {reach} voxel");
        let residual = to_f64(compose(inverse, forward).abs().max())[0];
        println!("inverse consistency at {size}^3, {reach:.1} voxel: {residual:.2e} voxel");
        assert!(residual < 1.1 * measured, "{size}^3: residual {residual} voxel");
    }
}

/// What is differentiated.
#[derive(Clone, Copy, Debug)]
enum What {
    /// `outer` after `inner`, fields of their own sizes.
    Compose,
    /// The velocity's exponential with so many squarings, on the inner size.
    Exp(usize),
}

#[derive(Clone, Copy, Debug)]
struct Case {
    what: What,
    batch: usize,
    outer: [usize; 3],
    inner: [usize; 3],
    reach: f64,
}

impl Case {
    const fn compose(batch: usize, outer: [usize; 3], inner: [usize; 3]) -> Self {
        Self { what: What::Compose, batch, outer, inner, reach: 1.6 }
    }

    const fn exp(batch: usize, size: [usize; 3], steps: usize) -> Self {
        Self { what: What::Exp(steps), batch, outer: size, inner: size, reach: 0.6 }
    }

    fn inputs(&self) -> Vec<Vec<f64>> {
        let len = |size: [usize; 3]| self.batch * 3 * size.iter().product::<usize>();
        let inner = off_lattice(len(self.inner), self.reach, 11);
        match self.what {
            What::Compose => vec![normal(len(self.outer), 10), inner],
            // The first squaring samples at half the velocity.
            What::Exp(_) => vec![inner.into_iter().map(|u| 2.0 * u).collect()],
        }
    }

    /// Output, loss `sum(w * weights)` and gradients of the inputs.
    fn evaluate(
        &self,
        inputs: &[Vec<f64>],
        device: &Device,
        dtype: DType,
    ) -> (Vec<f64>, f64, Vec<Vec<f64>>) {
        let device = device.clone().autodiff();
        let shape = |[d, h, w]: [usize; 3]| [self.batch, 3, d, h, w];
        let sizes = [shape(self.outer), shape(self.inner)];
        let fields: Vec<Tensor<5>> = inputs
            .iter()
            .zip(&sizes[2 - inputs.len()..])
            .map(|(values, shape)| tensor(values, *shape, &device, dtype).require_grad())
            .collect();
        let w = match self.what {
            What::Compose => compose(fields[0].clone(), fields[1].clone()),
            What::Exp(steps) => exp(fields[0].clone(), steps),
        };
        assert_eq!(w.dims(), sizes[1], "{self:?}");
        let weights = normal(sizes[1].iter().product(), 12);
        let loss = (w.clone() * tensor(&weights, sizes[1], &device, dtype)).sum();
        let gradients = loss.backward();
        let of = |field: &Tensor<5>| to_f64(field.grad(&gradients).expect("all want a gradient"));
        (to_f64(w.inner()), to_f64(loss.inner())[0], fields.iter().map(of).collect())
    }
}

#[test]
fn gradients_agree_with_finite_differences() {
    let cases = [
        Case::compose(1, [3, 4, 5], [3, 4, 5]),
        Case::compose(2, [4, 3, 2], [2, 3, 5]),
        Case::compose(1, [1, 3, 1], [1, 3, 2]),
        Case::compose(2, [1, 1, 1], [1, 1, 1]),
        Case::exp(1, [3, 4, 3], 1),
        Case::exp(2, [3, 2, 4], 3),
        Case::exp(1, [1, 4, 1], 7),
    ];
    for case in cases {
        let names: &[&str] =
            if let What::Compose = case.what { &["outer", "inner"] } else { &["velocity"] };
        // A step so small that later squarings rarely cross a cell border either.
        let checks = gradcheck(names, &case.inputs(), 1e-6, |inputs| {
            let (_, loss, gradients) = case.evaluate(inputs, &cpu(), DType::F64);
            (loss, gradients)
        });
        for check in checks {
            assert!(check.error < FINITE_DIFFERENCES, "{case:?}: {check:?}");
        }
    }
}

#[test]
fn gpu_agrees_with_cpu() {
    let cases = [
        Case::compose(1, [1, 1, 1], [1, 1, 1]),
        Case::compose(1, [1, 7, 1], [3, 1, 5]),
        Case::compose(2, [9, 10, 11], [13, 5, 33]),
        Case::compose(1, [41, 33, 70], [41, 33, 70]),
        Case { reach: 30.0, ..Case::compose(1, [17, 18, 19], [17, 18, 19]) },
        Case::exp(2, [9, 8, 35], 1),
    ];
    let mut cases: Vec<_> = cases.into_iter().map(|case| (case, case.inputs())).collect();
    // Later squarings sample anywhere; the slopes of a linear field do not jump.
    let [_, linear, _] = contractions();
    cases.push((Case::exp(1, [9, 9, 9], 7), vec![to_f64(linear.field([9, 9, 9]))]));
    for (name, device) in gpu_devices() {
        for (case, inputs) in &cases {
            let expected = case.evaluate(inputs, &cpu(), DType::F64);
            let actual = case.evaluate(inputs, &device, DType::F32);
            let label = format!("{name} {case:?}");
            let forward = assert_close(&label, &actual.0, &expected.0, GPU_FORWARD);
            print!("compose {label}: forward {forward:.1e}");
            for (actual, expected) in actual.2.iter().zip(&expected.2) {
                print!(" gradient {:.1e}", assert_close(&label, actual, expected, GPU_GRADIENT));
            }
            println!();
        }
    }
}

/// The gradients of a loss to outer and inner, and of another to the velocity of `exp`.
fn gradients_with(accumulation: Accumulation, device: &Device, dtype: DType) -> [Vec<f64>; 3] {
    let device = device.clone().autodiff();
    let options = ComposeOptions { accumulation };
    let size = [2, 3, 18, 19, 37];
    let len = size.iter().product();
    let on = |values: Vec<f64>| tensor(&values, size, &device, dtype).require_grad();
    let weights = tensor(&normal(len, 40), size, &device, dtype);
    let (outer, inner) = (on(normal(len, 41)), on(off_lattice(len, 1.6, 42)));
    let composed = compose_with(outer.clone(), inner.clone(), &options);
    let of_fields = (composed * weights.clone()).backward();
    // One squaring samples at half the velocity: off the lattice.
    let velocity = on(off_lattice(len, 1.6, 43).into_iter().map(|v| 2.0 * v).collect());
    let of_velocity = (exp_with(velocity.clone(), 1, &options) * weights).backward();
    [
        to_f64(outer.grad(&of_fields).expect("outer")),
        to_f64(inner.grad(&of_fields).expect("inner")),
        to_f64(velocity.grad(&of_velocity).expect("velocity")),
    ]
}

#[test]
fn reproducible_gradients_are_right_and_have_the_same_bits() {
    let expected = gradients_with(Accumulation::Fast, &cpu(), DType::F64);
    for (name, device) in gpu_devices() {
        let first = gradients_with(Accumulation::Reproducible, &device, DType::F32);
        let second = gradients_with(Accumulation::Reproducible, &device, DType::F32);
        assert_eq!(first, second, "{name}");
        let fast = gradients_with(Accumulation::Fast, &device, DType::F32);
        for i in 0..3 {
            let what = ["outer", "inner", "velocity"][i];
            let error =
                assert_close(&format!("{name} {what}"), &first[i], &expected[i], GPU_GRADIENT);
            assert_close(&format!("{name} {what}, fast"), &fast[i], &expected[i], GPU_GRADIENT);
            println!("compose, reproducible, {name} {what}: gradient {error:.1e}");
        }
    }
}

#[test]
fn strided_inputs_give_the_same_result() {
    let mut devices = gpu_devices();
    devices.push(("cpu", cpu()));
    for (name, device) in devices {
        let on = |seed| tensor(&uniform(180, -1., 1., seed), [1, 3, 3, 4, 5], &device, DType::F32);
        let (u, v): (Tensor<5>, Tensor<5>) = (on(20), on(21));
        let expected = to_f64(compose(u.clone(), v.clone()));
        // Stored in another order, seen in the usual one.
        let stored = |t: Tensor<5>| {
            let data = t.permute([4, 3, 2, 1, 0]).into_data();
            Tensor::<5>::from_data(data, &device).permute([4, 3, 2, 1, 0])
        };
        assert_eq!(to_f64(compose(stored(u), stored(v))), expected, "{name}");
    }
}

#[test]
fn only_wanted_gradients_are_recorded() {
    let device = cpu().autodiff();
    let on = |seed| tensor(&uniform(180, -1., 1., seed), [1, 3, 3, 4, 5], &device, DType::F32);
    let (outer, inner): (Tensor<5>, Tensor<5>) = (on(30), on(31).require_grad());
    let gradients = compose(outer.clone(), inner.clone()).backward();
    assert!(outer.grad(&gradients).is_none());
    assert_eq!(inner.grad(&gradients).expect("inner wants one").dims(), [1, 3, 3, 4, 5]);
}

#[test]
#[should_panic(expected = "fields must be [N, 3, D, H, W] of one batch")]
fn an_image_is_no_field() {
    compose(random([1, 1, 2, 2, 2], 1.0, 1), random([1, 3, 2, 2, 2], 1.0, 1));
}

#[test]
#[should_panic(expected = "a velocity must be [N, 3, D, H, W]")]
fn an_image_is_no_velocity() {
    exp(random([1, 1, 2, 2, 2], 1.0, 1), 2);
}

#[test]
#[should_panic(expected = "outer [2, 3, 2, 2, 2] and inner [1, 3, 2, 2, 2]")]
fn another_batch_is_refused() {
    compose(random([2, 3, 2, 2, 2], 1.0, 1), random([1, 3, 2, 2, 2], 1.0, 1));
}

#[test]
#[should_panic(expected = "31 squarings")]
fn too_many_squarings_are_refused() {
    exp(random([1, 3, 2, 2, 2], 1.0, 1), 31);
}
