//! Four control points and their weights, for every position along an axis.

/// What a control grid says where some of the four control points of an axis are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Beyond {
    /// A control point that does not exist is zero: the field fades to zero within two spacings, twice
    /// continuously differentiable everywhere.
    #[default]
    Fade,
    /// Zero at once wherever one is missing, as ITK's `BSplineTransform` has it.
    Cut,
}

/// Spacings by which a position may miss the border of the grid and yet lie on it: far more than
/// rounding of f64, far less than any difference that matters.
pub(super) const ON_BORDER: f64 = 1e-9;

/// What the weights of an axis are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Map {
    /// `B(t - i)`.
    Value,
    /// `B'(t - i)`, by `t`: per spacing.
    Slope,
    /// The two-scale relation: the coefficients of the same spline on knots `factor` times as dense.
    /// Position `j` is the fine control point `j`; coarse control point `i` lies at the fine one
    /// `factor i + offset`.
    TwoScale {
        /// Fine spacings in a coarse one.
        factor: usize,
        /// Where the first coarse control point lies.
        offset: i64,
    },
}

/// An axis: control points in, positions out. Position `p` lies at `t = (p step - origin) / spacing`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Axis {
    pub controls: usize,
    pub len: usize,
    pub origin: f64,
    pub step: f64,
    pub spacing: f64,
    pub map: Map,
    pub beyond: Beyond,
}

/// The taps of one position: control points `first .. first + 4`. Those that do not exist have weight 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Taps {
    pub first: usize,
    pub weights: [f64; 4],
}

impl Taps {
    /// Weights of the control points from `first` on, of which `controls` exist.
    fn within(first: i64, weights: [f64; 4], controls: usize) -> Self {
        let start = first.clamp(0, controls.saturating_sub(4) as i64);
        let weight = |tap: i64| {
            let control = start + tap;
            let exists = (0..controls as i64).contains(&control);
            let old = usize::try_from(control - first).ok();
            old.and_then(|old| weights.get(old)).filter(|_| exists).copied().unwrap_or(0.0)
        };
        Self { first: start as usize, weights: [0, 1, 2, 3].map(weight) }
    }
}

/// The four cubic B-splines over a cell, at `u` in [0, 1].
pub(crate) fn values(u: f64) -> [f64; 4] {
    let v = 1.0 - u;
    let middle = |u: f64| 2.0 / 3.0 - u * u * (1.0 - u / 2.0);
    [v.powi(3) / 6.0, middle(u), middle(v), u.powi(3) / 6.0]
}

/// Their derivatives.
pub(crate) fn slopes(u: f64) -> [f64; 4] {
    let v = 1.0 - u;
    let middle = |u: f64| u * (1.5 * u - 2.0);
    [-v * v / 2.0, middle(u), -middle(v), u * u / 2.0]
}

/// `a` of `B(t) = sum_k a_k B(factor t - k)`, `|k| <= 2 (factor - 1)`: four boxes folded.
fn two_scale(factor: usize, k: i64) -> f64 {
    let mut folded = vec![1.0];
    for _ in 0..4 {
        let mut next = vec![0.0; folded.len() + factor - 1];
        for (i, value) in folded.iter().enumerate() {
            (0..factor).for_each(|shift| next[i + shift] += value);
        }
        folded = next;
    }
    let entry = usize::try_from(k + 2 * (factor as i64 - 1)).ok();
    let value = entry.and_then(|entry| folded.get(entry)).copied().unwrap_or(0.0);
    value / (factor as f64).powi(3)
}

impl Axis {
    /// The taps of every position; `first` never falls.
    pub fn taps(&self) -> Vec<Taps> {
        (0..self.len).map(|position| self.taps_at(position)).collect()
    }

    fn taps_at(&self, position: usize) -> Taps {
        if self.controls == 1 {
            let constant = if self.map == Map::Slope { 0.0 } else { 1.0 };
            return Taps { first: 0, weights: [constant, 0.0, 0.0, 0.0] };
        }
        if let Map::TwoScale { factor, offset } = self.map {
            let (at, reach) = (position as i64 - offset, 2 * (factor as i64 - 1));
            let first = (at - reach).div_euclid(factor as i64)
                + i64::from((at - reach).rem_euclid(factor as i64) != 0);
            let weight = |tap| two_scale(factor, at - factor as i64 * (first + tap));
            return Taps::within(first, [0, 1, 2, 3].map(weight), self.controls);
        }
        let t = (position as f64 * self.step - self.origin) / self.spacing;
        at(t, self.controls, self.beyond, self.map == Map::Slope)
    }

    /// For every control point the positions that see it, with their weights: the transpose.
    pub fn transposed(&self) -> Vec<Vec<(usize, f64)>> {
        let mut columns = vec![Vec::new(); self.controls];
        for (position, taps) in self.taps().into_iter().enumerate() {
            for (column, weight) in columns[taps.first..].iter_mut().zip(taps.weights) {
                column.push((position, weight));
            }
        }
        columns
    }
}

/// The taps of any position `t`, in control points.
pub(crate) fn taps_at(t: f64, controls: usize, beyond: Beyond) -> Taps {
    match controls {
        1 => Taps { first: 0, weights: [1.0, 0.0, 0.0, 0.0] },
        _ => at(t, controls, beyond, false),
    }
}

/// The taps of any position on an axis of several control points.
fn at(t: f64, controls: usize, beyond: Beyond, slope: bool) -> Taps {
    let (low, high) = (1.0, controls as f64 - 2.0);
    let mut t = t;
    if beyond == Beyond::Cut {
        // Also what is no number.
        if !(t >= low - ON_BORDER && t <= high + ON_BORDER) {
            return Taps { first: 0, weights: [0.0; 4] };
        }
        t = t.clamp(low, high);
    }
    // Three control points beyond the grid everything is zero; this keeps the cast in range.
    let t = t.clamp(-3.0, controls as f64 + 2.0);
    let cell = t.floor();
    let weights = if slope { slopes(t - cell) } else { values(t - cell) };
    Taps::within(cell as i64 - 1, weights, controls)
}

/// A derivative of the four splines of a cell at a point of the Gauss rule.
pub(crate) struct GaussPoint {
    pub weight: f64,
    pub basis: [f64; 4],
}

/// The derivatives of this order (0, 1 or 2) at the four points of the Gauss-Legendre rule, which integrates
/// the products of two of them over a cell exactly (degree 6 of 7).
pub(crate) fn basis_at_gauss_points(order: usize) -> [GaussPoint; 4] {
    // The roots of the fourth Legendre polynomial, and their weights.
    let (near, far) = (
        (3.0 / 7.0 - 2.0 / 7.0 * 1.2f64.sqrt()).sqrt(),
        (3.0 / 7.0 + 2.0 / 7.0 * 1.2f64.sqrt()).sqrt(),
    );
    let (heavy, light) = ((18.0 + 30f64.sqrt()) / 36.0, (18.0 - 30f64.sqrt()) / 36.0);
    [(-far, light), (-near, heavy), (near, heavy), (far, light)].map(|(root, weight)| {
        let u = (1.0 + root) / 2.0;
        let basis = match order {
            0 => values(u),
            1 => slopes(u),
            _ => [1.0 - u, 3.0 * u - 2.0, 1.0 - 3.0 * u, u],
        };
        GaussPoint { weight: weight / 2.0, basis }
    })
}
