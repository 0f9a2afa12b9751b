//! Vector fields in mm on a lattice of knots, cubic B-splines between them, zero beyond.

use rayon::prelude::*;

/// A point or a vector, (x, y, z) in mm.
pub(crate) type Point = [f64; 3];

/// Regular knots: `origin_mm + index * spacing_mm`, x fastest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Lattice {
    pub size: [usize; 3],
    pub origin_mm: Point,
    pub spacing_mm: f64,
}

impl Lattice {
    /// The lattice of `spacing_mm` that covers the box and `margin` knots beyond it.
    pub fn covering([low, high]: [Point; 2], spacing_mm: f64, margin: usize) -> Self {
        let size = [0, 1, 2]
            .map(|axis| ((high[axis] - low[axis]) / spacing_mm).ceil() as usize + 1 + 2 * margin);
        let origin_mm = low.map(|edge| edge - margin as f64 * spacing_mm);
        Self { size, origin_mm, spacing_mm }
    }

    pub fn len(&self) -> usize {
        self.size.iter().product()
    }

    pub fn knot(&self, offset: usize) -> Point {
        let [nx, ny, _] = self.size;
        let index = [offset % nx, offset / nx % ny, offset / (nx * ny)];
        [0, 1, 2].map(|axis| self.origin_mm[axis] + index[axis] as f64 * self.spacing_mm)
    }

    /// `value` at every knot.
    pub fn map(&self, value: impl Fn(Point) -> Point + Sync) -> Vec<Point> {
        (0..self.len()).into_par_iter().map(|offset| value(self.knot(offset))).collect()
    }
}

/// `f(p) = sum_i c_i B((p - knot_i) / spacing)`, B the tensor product of cubic B-splines.
#[derive(Clone, Debug)]
pub(crate) struct SplineField {
    /// The knots with [`PADDING`] zeros on each side.
    padded: Lattice,
    // Four lanes of f32, so that a knot is one vector register: 2^-24 of a displacement of a few
    // mm is nothing, and evaluating warps is half of a subject's cost.
    coefficients: Vec<[f32; 4]>,
}

/// A point anywhere in a spline's support then has all its 4 x 4 x 4 knots.
const PADDING: usize = 3;

impl SplineField {
    /// The field with these coefficients, one per knot.
    pub fn new(lattice: Lattice, coefficients: &[Point]) -> Self {
        assert_eq!(coefficients.len(), lattice.len(), "spline: one coefficient per knot");
        let [nx, ny, _] = lattice.size;
        let padded = Lattice {
            size: lattice.size.map(|n| n + 2 * PADDING),
            origin_mm: lattice.origin_mm.map(|o| o - PADDING as f64 * lattice.spacing_mm),
            ..lattice
        };
        let mut lanes = vec![[0f32; 4]; padded.len()];
        for (row, line) in coefficients.chunks(nx).enumerate() {
            let (y, z) = (row % ny + PADDING, row / ny + PADDING);
            let start = (z * padded.size[1] + y) * padded.size[0] + PADDING;
            for (lane, c) in lanes[start..start + nx].iter_mut().zip(line) {
                *lane = [c[0] as f32, c[1] as f32, c[2] as f32, 0.0];
            }
        }
        Self { padded, coefficients: lanes }
    }

    /// The field that takes these values at the knots; they should fall to 0 at the border.
    pub fn interpolating(lattice: Lattice, mut values: Vec<Point>) -> Self {
        let [nx, ny, nz] = lattice.size;
        for (count, stride, across) in [(nx, 1, ny * nz), (ny, nx, nx * nz), (nz, nx * ny, nx * ny)]
        {
            for line in 0..across {
                // The first entry of the line: all offsets whose index along this axis is 0.
                let start = line % stride + line / stride * stride * count;
                solve_line(&mut values, start, stride, count);
            }
        }
        Self::new(lattice, &values)
    }

    /// The field at a point (mm).
    pub fn at(&self, p: Point) -> Point {
        let [nx, ny, _] = self.padded.size;
        let mut first = [0usize; 3];
        let mut weights = [[0f32; 4]; 3];
        for axis in 0..3 {
            let t = (p[axis] - self.padded.origin_mm[axis]) / self.padded.spacing_mm;
            // Beyond every spline's support (also for NaN).
            if !(1.0..(self.padded.size[axis] - 2) as f64).contains(&t) {
                return [0.0; 3];
            }
            first[axis] = t as usize - 1;
            weights[axis] = cubic_weights(t - t.floor()).map(|w| w as f32);
        }
        let mut sum = [0f32; 3];
        for (k, wz) in weights[2].iter().enumerate() {
            for (j, wy) in weights[1].iter().enumerate() {
                let start = ((first[2] + k) * ny + first[1] + j) * nx + first[0];
                let line = weighted(&weights[0], &self.coefficients[start..start + 4]);
                let w = wy * wz;
                sum[0] += w * line[0];
                sum[1] += w * line[1];
                sum[2] += w * line[2];
            }
        }
        [f64::from(sum[0]), f64::from(sum[1]), f64::from(sum[2])]
    }
}

/// Weighted sum of four knots.
// Spelled out: short chains of additions, which the processor overlaps between lines.
#[inline(always)]
fn weighted(weights: &[f32; 4], knots: &[[f32; 4]]) -> [f32; 4] {
    let [w0, w1, w2, w3] = *weights;
    let mut sum = [0f32; 4];
    for lane in 0..4 {
        sum[lane] = (w0 * knots[0][lane] + w1 * knots[1][lane])
            + (w2 * knots[2][lane] + w3 * knots[3][lane]);
    }
    sum
}

/// Weights of the four knots around a point `t` in 0..1 after the second of them.
fn cubic_weights(t: f64) -> [f64; 4] {
    let s = 1.0 - t;
    [
        s * s * s / 6.0,
        2.0 / 3.0 - t * t * (1.0 - 0.5 * t),
        2.0 / 3.0 - s * s * (1.0 - 0.5 * s),
        t * t * t / 6.0,
    ]
}

/// Values at the knots of one line to coefficients: solves (1, 4, 1) / 6, zero beyond the ends.
fn solve_line(values: &mut [Point], start: usize, stride: usize, count: usize) {
    let mut upper = vec![0.0; count];
    let mut previous = [0.0; 3];
    let mut factor = 0.0;
    for (i, slot) in upper.iter_mut().enumerate() {
        let pivot = 1.0 / (4.0 - factor);
        let value = &mut values[start + i * stride];
        for component in 0..3 {
            value[component] = (6.0 * value[component] - previous[component]) * pivot;
        }
        (previous, factor, *slot) = (*value, pivot, pivot);
    }
    for i in (0..count.saturating_sub(1)).rev() {
        let next = values[start + (i + 1) * stride];
        let value = &mut values[start + i * stride];
        (0..3).for_each(|component| value[component] -= upper[i] * next[component]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Coefficients of order 1 in f32, 64 terms.
    const F32_ROUNDING: f64 = 2e-6;
    const BOX: [Point; 2] = [[0.0, -3.0, 2.0], [10.0, 9.0, 11.0]];

    #[test]
    fn weights_sum_to_one_and_reproduce_position() {
        for t in [0.0, 0.25, 0.5, 0.9, 1.0] {
            let w = cubic_weights(t);
            assert!((w.iter().sum::<f64>() - 1.0).abs() < 1e-14, "sum at {t}: {w:?}");
            let position: f64 = w.iter().zip([-1.0, 0.0, 1.0, 2.0]).map(|(w, x)| w * x).sum();
            assert!((position - t).abs() < 1e-14, "position at {t}: {position}");
        }
    }

    #[test]
    fn interpolating_spline_takes_its_values_at_the_knots() {
        let lattice = Lattice::covering(BOX, 2.0, 1);
        let value = |p: Point| [p[0].sin(), p[1] * p[2] * 0.01, (p[0] - p[2]).cos()];
        let values = lattice.map(value);
        let field = SplineField::interpolating(lattice, values.clone());
        for (offset, expected) in values.iter().enumerate() {
            let got = field.at(lattice.knot(offset));
            for c in 0..3 {
                assert!((got[c] - expected[c]).abs() < F32_ROUNDING, "knot {offset}: {got:?}");
            }
        }
    }

    #[test]
    fn field_vanishes_beyond_its_support() {
        let lattice = Lattice::covering(BOX, 2.0, 0);
        let field = SplineField::new(lattice, &vec![[1.0; 3]; lattice.len()]);
        let inside = field.at([5.0, 3.0, 6.0]);
        assert!(inside.iter().all(|v| (v - 1.0).abs() < F32_ROUNDING), "{inside:?}");
        assert_eq!(field.at([-4.1, 3.0, 6.0]), [0.0; 3]);
        assert_eq!(field.at([5.0, 3.0, 1e300]), [0.0; 3]);
        assert_eq!(field.at([f64::NAN, 3.0, 6.0]), [0.0; 3]);
    }
}
