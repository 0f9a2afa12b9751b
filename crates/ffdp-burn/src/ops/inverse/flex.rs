//! The inverse on the CPU: rayon over rows, `f64` arithmetic, written to be read.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::{
    FIXED_POINT_ITERATIONS, InverseOps, LEAST_DETERMINANT, LONGEST_STEP_VOXELS, NEWTON_ITERATIONS,
    tolerance_voxels,
};
use crate::ops::grid_sample::flex::SamplePosition;
use crate::ops::grid_sample::{Interpolation, Padding};
use ffdp_kit::real::{Real, by_dtype, elements, tensor};

type Vector = [f64; 3];

/// `f` and the rows of its Jacobian at a guess.
struct Linearized {
    value: Vector,
    rows: [Vector; 3],
}

/// The field of one batch entry.
struct Field<'a, T> {
    components: [&'a [T]; 3],
    /// (D, H, W).
    size: [usize; 3],
}

impl<T: Real> Field<'_, T> {
    fn place(&self, at: Vector) -> SamplePosition {
        SamplePosition::of(at, self.size, Interpolation::Linear, Padding::Border)
    }

    /// `f(s) = s + u(y + s)`.
    fn value(&self, y: Vector, s: Vector) -> Vector {
        let place = self.place(sum(y, s));
        sum(s, self.components.map(|u| place.value(u, self.size, Interpolation::Linear)))
    }

    /// `f(s)` with its Jacobian `I + grad u`.
    fn linearized(&self, y: Vector, s: Vector) -> Linearized {
        let place = self.place(sum(y, s));
        let u = self.components.map(|u| place.value(u, self.size, Interpolation::Linear));
        let mut rows = self.components.map(|u| place.slope(u, self.size));
        (0..3).for_each(|i| rows[i][i] += 1.0);
        Linearized { value: sum(s, u), rows }
    }

    /// `s` with `|s + u(y + s)|` below the tolerance, or the best that was found.
    fn solve(&self, y: Vector, tolerance: f64) -> Vector {
        let (mut s, mut f) = ([0.0; 3], self.value(y, [0.0; 3]));
        for _ in 0..FIXED_POINT_ITERATIONS {
            if length(f) <= tolerance {
                return s;
            }
            // s <- -u(y + s) = s - f(s)
            let there = [0, 1, 2].map(|i| s[i] - f[i]);
            let f_there = self.value(y, there);
            if length(f_there) >= length(f) {
                break;
            }
            (s, f) = (there, f_there);
        }
        self.newton(y, s, tolerance)
    }

    /// Newton's method; a step that makes `|f|` no smaller is taken back and the next one halved.
    fn newton(&self, y: Vector, start: Vector, tolerance: f64) -> Vector {
        let (mut s, mut f) = (start, self.linearized(y, start));
        let mut damping = 1.0;
        for _ in 0..NEWTON_ITERATIONS {
            if length(f.value) <= tolerance {
                break;
            }
            let there = sum(s, f.newton_step().map(|step| damping * step));
            let f_there = self.linearized(y, there);
            if length(f_there.value) < length(f.value) {
                (s, f, damping) = (there, f_there, (2.0 * damping).min(1.0));
            } else {
                damping /= 2.0;
            }
        }
        s
    }
}

impl Linearized {
    /// `-J^-1 f` by Cramer's rule, cut to the longest step.
    fn newton_step(&self) -> Vector {
        let [a, b, c] = self.rows;
        let [x, y, z] = self.value;
        let (b_c, c_a, a_b) = (cross(b, c), cross(c, a), cross(a, b));
        let determinant = dot(a, b_c);
        let small = determinant.abs() < LEAST_DETERMINANT;
        let determinant = if small { LEAST_DETERMINANT } else { determinant };
        let step = [0, 1, 2].map(|i| -(x * b_c[i] + y * c_a[i] + z * a_b[i]) / determinant);
        let cut = LONGEST_STEP_VOXELS / length(step).max(LONGEST_STEP_VOXELS);
        step.map(|step| cut * step)
    }
}

fn sum(a: Vector, b: Vector) -> Vector {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
}

fn dot(a: Vector, b: Vector) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn length(a: Vector) -> f64 {
    dot(a, a).sqrt()
}

fn cross(a: Vector, b: Vector) -> Vector {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

/// The three components of one batch entry.
fn components<T>(data: &[T], n: usize, len: usize) -> [&[T]; 3] {
    [0, 1, 2].map(|c| &data[(3 * n + c) * len..][..len])
}

fn solved<T: Real>(field: &FlexTensor, points: &FlexTensor, at_voxels: bool) -> FlexTensor {
    let (of_field, of_points) = (field.layout().shape(), points.layout().shape());
    let [batch, _, d, h, w] = std::array::from_fn(|a| of_points[a]);
    let size = [of_field[2], of_field[3], of_field[4]];
    let (len, field_len) = (d * h * w, size.iter().product());
    let tolerance = tolerance_voxels(T::dtype());
    let mut output = vec![T::default(); batch * 3 * len];
    for n in 0..batch {
        let field = Field { components: components(elements::<T>(field), n, field_len), size };
        let points = components(elements::<T>(points), n, len);
        let (x, rest) = output[3 * n * len..][..3 * len].split_at_mut(len);
        let (y, z) = rest.split_at_mut(len);
        let rows = (x.par_chunks_mut(w), y.par_chunks_mut(w), z.par_chunks_mut(w));
        rows.into_par_iter().enumerate().for_each(|(row, (x, y, z))| {
            for i in 0..w {
                let point = match at_voxels {
                    true => [i as f64, (row % h) as f64, (row / h) as f64],
                    false => points.map(|p| p[row * w + i].wide()),
                };
                [x[i], y[i], z[i]] = field.solve(point, tolerance).map(T::of);
            }
        });
    }
    tensor(output, [batch, 3, d, h, w])
}

impl InverseOps for Flex {
    fn inverse_3d(
        field: FloatTensor<Self>,
        points: FloatTensor<Self>,
        at_voxels: bool,
    ) -> FloatTensor<Self> {
        let (field, points) = (field.to_contiguous(), points.to_contiguous());
        by_dtype!("inverse", field.dtype(), solved(&field, &points, at_voxels))
    }
}
