//! The inverse of a displacement field, at any points.
//!
//! ```text
//! given y, find s with   f(s) = s + w(y + s) = 0        z = y + s is the point that w moves to y
//! ```
//! `y` continuous voxel indices of the field's own grid · `w` the field in voxels, trilinear, continued
//! with its border values, so that there is a solution outside the grid, too.
//!
//! First the fixed-point iteration `s <- -w(y + s)` (Chen et al. 2008, "A simple fixed-point approach to
//! invert a deformation field"), which converges where the field stretches less than its argument.
//! What it leaves unsolved, in steep but diffeomorphic regions, is gathered into a list and solved by
//! Newton's method with the exact Jacobian of the trilinear field, each point with a damping of its
//! own. Where the field folds there is no inverse; such points keep the best that was found.

use burn::tensor::{Bool, DType, IndexingUpdateOp, Int, Tensor};

use crate::ops::{GridSampleOptions, Padding, grid_sample};

/// Fixed-point iterations: where the field stretches by less than a half, 2^-12 of it is left.
const FIXED_POINT_ITERATIONS: usize = 12;

/// How often the open points are gathered, and Newton iterations for each gathering.
const ROUNDS: usize = 5;
const NEWTON_ITERATIONS: usize = 8;

/// Points of a list in one row.
const ROW: usize = 1024;

/// Longest step of a Newton iteration in voxels: beyond, the Jacobian of the cell says nothing.
const LONGEST_STEP_VOXELS: f64 = 4.0;

/// The determinant of a Jacobian below which a step is computed as if it were this large.
const LEAST_DETERMINANT: f64 = 1e-2;

/// `|f|` in voxels that counts as solved. Indices of some hundred voxels are rounded to 3e-5 in f32.
fn tolerance_voxels(dtype: DType) -> f64 {
    if dtype == DType::F64 { 1e-9 } else { 5e-4 }
}

/// `s + w(y + s) = 0` for many points.
pub(super) struct Equation {
    /// `w`, `[1, 3, D, H, W]` in voxels.
    field: Tensor<5>,
    /// `y`, `[1, 3, ..]` of any extent.
    targets: Tensor<5>,
}

impl Equation {
    /// The equation for the field `[1, 3, D, H, W]` (in voxels) at continuous voxel indices
    /// `[1, 3, ..]` of its grid.
    pub fn new(field: Tensor<5>, targets: Tensor<5>) -> Self {
        Self { field, targets }
    }

    /// `w` at continuous indices `[1, 3, ..]`.
    fn read(&self, at: Tensor<5>) -> Tensor<5> {
        let nothing = Tensor::zeros([1, 3, 4], (&at.device(), at.dtype()));
        let options = GridSampleOptions { padding: Padding::Border, ..Default::default() };
        grid_sample(self.field.clone(), Some(nothing), Some(at), &options)
    }

    /// `f(s)`.
    fn residual(&self, s: &Tensor<5>) -> Tensor<5> {
        self.read(self.targets.clone() + s.clone()) + s.clone()
    }

    /// The columns of `df/ds`: differences over the cell of `y + s`, along which the trilinear field
    /// is linear.
    fn jacobian(&self, s: &Tensor<5>) -> [Tensor<5>; 3] {
        let at = self.targets.clone() + s.clone();
        [0, 1, 2].map(|axis| {
            let low = at.clone().narrow(1, axis, 1).floor();
            let moved_to = |coordinate: Tensor<5>| {
                let parts = (0..3).map(|c| match c == axis {
                    true => coordinate.clone(),
                    false => at.clone().narrow(1, c, 1),
                });
                self.read(Tensor::cat(parts.collect(), 1))
            };
            let slope = moved_to(low.clone().add_scalar(1.0)) - moved_to(low);
            let parts = (0..3).map(|c| slope.clone().narrow(1, c, 1).add_scalar(unit(c, axis)));
            Tensor::cat(parts.collect(), 1)
        })
    }

    /// The same equation at some of the points.
    fn at(&self, points: Tensor<1, Int>) -> Self {
        let targets = as_list(self.targets.clone()).select(4, points);
        Self { field: self.field.clone(), targets: in_rows(targets) }
    }
}

fn unit(i: usize, j: usize) -> f64 {
    f64::from(u8::from(i == j))
}

/// `s` at all points, in voxels and in the shape of the targets.
pub(super) fn solve(equation: &Equation) -> Tensor<5> {
    let mut s = equation.targets.zeros_like();
    for _ in 0..FIXED_POINT_ITERATIONS {
        s = equation.read(equation.targets.clone() + s).neg();
    }
    let shape = s.dims();
    for _ in 0..ROUNDS {
        let open = open_points(&equation.residual(&s));
        let count = open.dims()[0];
        if count == 0 {
            break;
        }
        let all = as_list(s);
        let start = all.clone().select(4, open.clone());
        let found = newton(&equation.at(open.clone()), in_rows(start.clone()));
        let change = as_list(found).narrow(4, 0, count) - start;
        s = all.select_assign(4, open, change, IndexingUpdateOp::Add).reshape(shape);
    }
    s
}

/// `[1, 3, 1, 1, M]`.
fn as_list(vectors: Tensor<5>) -> Tensor<5> {
    let count: usize = vectors.dims()[2..].iter().product();
    vectors.reshape([1, 3, 1, 1, count])
}

/// A list in rows, `[1, 3, M / row, 1, row]`, the last one filled up with zeros: the sampler works on
/// slices in parallel.
fn in_rows(list: Tensor<5>) -> Tensor<5> {
    let count = list.dims()[4];
    let rows = count.div_ceil(ROW);
    let missing = rows * ROW - count;
    if missing == 0 {
        return list.reshape([1, 3, rows, 1, ROW]);
    }
    let zeros = Tensor::zeros([1, 3, 1, 1, missing], (&list.device(), list.dtype()));
    Tensor::cat(vec![list, zeros], 4).reshape([1, 3, rows, 1, ROW])
}

/// Where `|f|` is not small enough.
fn open_points(residual: &Tensor<5>) -> Tensor<1, Int> {
    let least = tolerance_voxels(residual.dtype()).powi(2);
    let open: Tensor<5, Bool> = dot(residual, residual).greater_elem(least);
    let count: usize = open.dims()[2..].iter().product();
    let indices = open.reshape([count]).argwhere();
    let open = indices.dims()[0];
    indices.reshape([open])
}

/// Newton's method with a damping factor for each point: halved where a step makes `|f|` no smaller,
/// doubled (to at most 1) where it does.
fn newton(equation: &Equation, start: Tensor<5>) -> Tensor<5> {
    let mut s = start;
    let mut f = equation.residual(&s);
    let mut damping = dot(&f, &f).ones_like();
    for _ in 0..NEWTON_ITERATIONS {
        let step = newton_step(equation.jacobian(&s), &f) * damping.clone();
        let there = s.clone() + step;
        let f_there = equation.residual(&there);
        let better = dot(&f_there, &f_there).lower(dot(&f, &f));
        damping = damping
            .clone()
            .div_scalar(2.0)
            .mask_where(better.clone(), damping.mul_scalar(2.0).clamp_max(1.0));
        let better = Tensor::cat(vec![better; 3], 1);
        s = s.mask_where(better.clone(), there);
        f = f.mask_where(better, f_there);
    }
    s
}

/// `-J^-1 f` by Cramer's rule, cut to the longest step.
fn newton_step([a, b, c]: [Tensor<5>; 3], f: &Tensor<5>) -> Tensor<5> {
    let b_c = cross(&b, &c);
    let determinant = dot(&a, &b_c);
    let small = determinant.clone().abs().lower_elem(LEAST_DETERMINANT);
    let determinant = determinant.mask_fill(small, LEAST_DETERMINANT);
    let numerators = vec![dot(f, &b_c), dot(&a, &cross(f, &c)), dot(&a, &cross(&b, f))];
    let step = Tensor::cat(numerators, 1).div(determinant).neg();
    let length = dot(&step, &step).sqrt();
    let cut = length.clamp_min(LONGEST_STEP_VOXELS).recip().mul_scalar(LONGEST_STEP_VOXELS);
    step * cut
}

/// `[1, 1, ..]` from two `[1, 3, ..]`.
fn dot(a: &Tensor<5>, b: &Tensor<5>) -> Tensor<5> {
    (a.clone() * b.clone()).sum_dim(1)
}

fn cross(a: &Tensor<5>, b: &Tensor<5>) -> Tensor<5> {
    let [ax, ay, az] = [0, 1, 2].map(|c| a.clone().narrow(1, c, 1));
    let [bx, by, bz] = [0, 1, 2].map(|c| b.clone().narrow(1, c, 1));
    let x = ay.clone() * bz.clone() - az.clone() * by.clone();
    let y = az * bx.clone() - ax.clone() * bz;
    let z = ax * by - ay * bx;
    Tensor::cat(vec![x, y, z], 1)
}
