//! Implicit functions: approximate signed distances in mm, negative inside.

/// A point or a direction, (x, y, z) in mm.
pub type Point = [f64; 3];

/// An approximate signed distance (mm, negative inside) with its gradient.
#[derive(Clone, Copy, Debug)]
pub struct Implicit {
    pub value: f64,
    pub gradient: Point,
}

impl Implicit {
    /// The half-space where `normal . p + offset < 0`; the normal has unit length.
    pub fn half_space(p: Point, normal: Point, offset: f64) -> Self {
        Self { value: dot(normal, p) + offset, gradient: normal }
    }

    /// Union whose seam is rounded over `blend` mm (quadratic smooth minimum).
    ///
    /// The derivative with respect to the weight vanishes, so the gradient is the weighted mean.
    pub fn union(self, other: Self, blend: f64) -> Self {
        let weight = (0.5 + 0.5 * (other.value - self.value) / blend).clamp(0.0, 1.0);
        let mix = |a: f64, b: f64| weight * a + (1.0 - weight) * b;
        Self {
            value: mix(self.value, other.value) - blend * weight * (1.0 - weight),
            gradient: [0, 1, 2].map(|i| mix(self.gradient[i], other.gradient[i])),
        }
    }

    /// Intersection whose edge is rounded over `blend` mm.
    pub fn intersection(self, other: Self, blend: f64) -> Self {
        self.complement().union(other.complement(), blend).complement()
    }

    /// Inside and outside exchanged.
    pub fn complement(self) -> Self {
        Self { value: -self.value, gradient: self.gradient.map(|g| -g) }
    }
}

/// An ellipsoid with axes along (x, y, z), turned about x by `pitch` and then about z by `yaw`.
#[derive(Clone, Copy, Debug)]
pub struct Ellipsoid {
    centre: Point,
    radii: Point,
    axes: [Point; 3],
}

impl Ellipsoid {
    pub const fn new(centre: Point, radii: Point) -> Self {
        Self { centre, radii, axes: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]] }
    }

    /// Turned by `pitch_degrees` about x (positive lifts the anterior end) and then by
    /// `yaw_degrees` about z (positive moves the anterior end towards -x, the midline).
    pub fn turned(mut self, pitch_degrees: f64, yaw_degrees: f64) -> Self {
        let (sp, cp) = pitch_degrees.to_radians().sin_cos();
        let (sy, cy) = yaw_degrees.to_radians().sin_cos();
        let turn = |[x, y, z]: Point| {
            let (y, z) = (cp * y - sp * z, sp * y + cp * z);
            [cy * x - sy * y, sy * x + cy * y, z]
        };
        self.axes = self.axes.map(turn);
        self
    }

    /// Distance estimate `k0 (k0 - 1) / k1` with `k0 = |p / r|`, `k1 = |p / r^2|`: exact on the
    /// surface to first order.
    pub fn at(&self, p: Point) -> Implicit {
        let offset = sub(p, self.centre);
        let local = self.axes.map(|axis| dot(axis, offset));
        let scaled: Point = std::array::from_fn(|i| local[i] / self.radii[i]);
        let normal: Point = std::array::from_fn(|i| scaled[i] / self.radii[i]);
        let (k0, k1) = (length(scaled), length(normal).max(1e-9));
        let mut gradient = [0.0; 3];
        for (axis, n) in self.axes.iter().zip(normal) {
            (0..3).for_each(|i| gradient[i] += axis[i] * n / k1);
        }
        Implicit { value: k0 * (k0 - 1.0) / k1, gradient }
    }

    /// The value of [`Ellipsoid::at`] alone.
    pub fn distance(&self, p: Point) -> f64 {
        self.at(p).value
    }
}

/// Distance to a chain of tapered capsules: points with the radius there.
pub fn tube_distance(p: Point, chain: &[(Point, f64)]) -> f64 {
    let mut nearest = f64::INFINITY;
    for ends in chain.windows(2) {
        let [(start, start_radius), (end, end_radius)] = [ends[0], ends[1]];
        let (axis, offset) = (sub(end, start), sub(p, start));
        let along = (dot(axis, offset) / dot(axis, axis)).clamp(0.0, 1.0);
        let foot: Point = std::array::from_fn(|i| offset[i] - along * axis[i]);
        let radius = start_radius + along * (end_radius - start_radius);
        nearest = nearest.min(length(foot) - radius);
    }
    nearest
}

pub fn dot(a: Point, b: Point) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

pub fn length(a: Point) -> f64 {
    dot(a, a).sqrt()
}

pub fn sub(a: Point, b: Point) -> Point {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}
