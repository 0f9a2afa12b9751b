//! Random diffeomorphic warps whose inverse is known, as continuous functions of position.
//!
//! The velocity is a sum of random fields, one per scale: white noise on a lattice of knots
//! under cubic B-splines, which are close to a Gaussian of 0.58 knot spacings. It is integrated
//! by scaling and squaring on a lattice fine enough to resolve it, with spline interpolation, so
//! that the result depends on the seed and not on the image's grid. The inverse integrates `-v`.

use rand::Rng;
use rand_distr::{Distribution, StandardNormal};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::head::HEAD_MM;
use super::random::{Stream, generator};
use super::spline::{Lattice, Point, SplineField};
use crate::image::Geometry;
use crate::{Error, Result};

/// Squarings; the first step is then at most a few hundredths of a mm off its limit.
const SQUARINGS: i32 = 5;
/// The velocity falls to 0 over this distance beyond the object's box, mm.
const FADE_MM: f64 = 24.0;
/// Longer than any body: such a box is a wrong header, and would ask for too many knots.
const LONGEST_BOX_MM: f64 = 2_000.0;
/// Variance of `sum_i n_i B(p - i)` for white noise n, averaged over p, per axis:
/// `integral of B(t)^2 dt` of the cubic B-spline.
const SPLINE_ENERGY: f64 = 151.0 / 315.0;
/// The steepest velocity accepted, as the sum over scales of rms / knot spacing.
const STEEPEST: f64 = 0.25;

/// One scale of a random velocity field.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarpScale {
    /// Distance between the random knots, mm: features are about twice as large.
    pub knot_spacing_mm: f64,
    /// Root mean square of each velocity component, mm.
    pub rms_mm: f64,
}

/// How far and how smoothly subjects differ in shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WarpSettings {
    /// The scales that are summed. Default: 64 mm with 3.2 mm rms; two subjects then have a mean
    /// Dice of about 0.45 at 64^3 voxels, as two real brains after affine alignment have.
    pub scales: Vec<WarpScale>,
}

impl Default for WarpSettings {
    fn default() -> Self {
        let scale = |knot_spacing_mm, rms_mm| WarpScale { knot_spacing_mm, rms_mm };
        Self { scales: vec![scale(64.0, 3.2)] }
    }
}

impl WarpSettings {
    /// No warp at all: the subject is the anatomy itself.
    pub fn none() -> Self {
        Self { scales: Vec::new() }
    }

    /// The same field with every amplitude multiplied by `factor`.
    pub fn scaled(&self, factor: f64) -> Self {
        let scale = |s: &WarpScale| WarpScale { rms_mm: s.rms_mm * factor, ..*s };
        Self { scales: self.scales.iter().map(scale).collect() }
    }

    /// # Errors
    /// A knot spacing below 8 mm, a negative or non-finite amplitude, or a velocity so steep
    /// that a grid of usual spacing could not show its diffeomorphism without folds.
    pub fn validate(&self) -> Result<()> {
        for scale in &self.scales {
            if !(8.0..=1000.0).contains(&scale.knot_spacing_mm) {
                return Err(Error::invalid(
                    "warp: knot_spacing_mm must lie in 8..1000 mm",
                    scale.knot_spacing_mm,
                    "use 64 for the head's shape, 30 for the shape of its parts",
                ));
            }
            if !(0.0..1000.0).contains(&scale.rms_mm) {
                return Err(Error::invalid(
                    "warp: rms_mm must be finite and not negative",
                    scale.rms_mm,
                    "use a few mm, or 0 for none",
                ));
            }
        }
        let steepness: f64 = self.scales.iter().map(|s| s.rms_mm / s.knot_spacing_mm).sum();
        if steepness > STEEPEST {
            return Err(Error::invalid(
                format!("warp: the sum of rms_mm / knot_spacing_mm must not exceed {STEEPEST}"),
                steepness,
                "lower the amplitudes or take coarser knots",
            ));
        }
        Ok(())
    }
}

/// A diffeomorphism of space, `phi = exp(v)`, with its inverse `exp(-v)`; identity far away.
#[derive(Clone, Debug)]
pub struct Diffeomorphism {
    forward: SplineField,
    inverse: SplineField,
}

impl Diffeomorphism {
    /// The random warp of a seed, for the phantom's head.
    ///
    /// # Errors
    /// Those of [`WarpSettings::validate`].
    pub fn random(settings: &WarpSettings, seed: u64) -> Result<Self> {
        Self::of_stream(settings, seed, Stream::SubjectWarp)
    }

    /// The random warp of a seed, for an object in a box (low and high corner, RAS mm).
    ///
    /// # Errors
    /// Those of [`WarpSettings::validate`], and [`Error::Invalid`] for a box that is empty, not
    /// finite or longer than 2 m.
    pub fn random_in(settings: &WarpSettings, seed: u64, box_mm: [[f64; 3]; 2]) -> Result<Self> {
        let extent = [0, 1, 2].map(|axis| box_mm[1][axis] - box_mm[0][axis]);
        if !extent.iter().all(|length| (0.0..LONGEST_BOX_MM).contains(length)) {
            let what = format!("warp: the box must have extents in 0..{LONGEST_BOX_MM} mm");
            return Err(Error::invalid(what, box_mm, "check the label map's geometry"));
        }
        Self::of_stream_in(settings, seed, Stream::SubjectWarp, box_mm)
    }

    pub(crate) fn of_stream(settings: &WarpSettings, seed: u64, stream: Stream) -> Result<Self> {
        Self::of_stream_in(settings, seed, stream, HEAD_MM)
    }

    fn of_stream_in(
        settings: &WarpSettings,
        seed: u64,
        stream: Stream,
        box_mm: [Point; 2],
    ) -> Result<Self> {
        settings.validate()?;
        let parts: Vec<SplineField> = (0u64..)
            .zip(&settings.scales)
            .map(|(index, scale)| {
                random_field(scale, faded_box(box_mm), generator(seed, stream, index))
            })
            .collect();
        let velocity = |p: Point| {
            let fade = fade(p, box_mm);
            let mut v = [0.0; 3];
            if fade > 0.0 {
                for part in &parts {
                    let term = part.at(p);
                    (0..3).for_each(|i| v[i] += fade * term[i]);
                }
            }
            v
        };
        let finest = settings.scales.iter().map(|s| s.knot_spacing_mm).fold(64.0, f64::min);
        let lattice = Lattice::covering(faded_box(box_mm), (finest / 4.0).clamp(2.0, 8.0), 1);
        let velocity = SplineField::interpolating(lattice, lattice.map(velocity));
        Ok(Self {
            forward: integrate(&velocity, lattice, 1.0),
            inverse: integrate(&velocity, lattice, -1.0),
        })
    }

    /// `phi(p)`, mm.
    pub fn apply(&self, p: [f64; 3]) -> [f64; 3] {
        plus(p, self.forward.at(p))
    }

    /// `phi^-1(p)`, mm.
    pub fn apply_inverse(&self, p: [f64; 3]) -> [f64; 3] {
        plus(p, self.inverse.at(p))
    }

    /// `u = phi - id` on a grid: `[3, D, H, W]`, components (x, y, z), voxels of that grid.
    pub fn displacement_voxels(&self, geometry: &Geometry) -> Vec<f32> {
        sample(&self.forward, geometry)
    }

    /// `phi^-1 - id` on a grid, like [`Diffeomorphism::displacement_voxels`].
    pub fn inverse_displacement_voxels(&self, geometry: &Geometry) -> Vec<f32> {
        sample(&self.inverse, geometry)
    }
}

/// `exp(sign * v)` by scaling and squaring; the first step is a midpoint step.
fn integrate(velocity: &SplineField, lattice: Lattice, sign: f64) -> SplineField {
    let step = sign * 0.5f64.powi(SQUARINGS);
    let mut values = lattice.map(|p| {
        let middle = plus(p, velocity.at(p).map(|v| 0.5 * step * v));
        velocity.at(middle).map(|v| step * v)
    });
    for _ in 0..SQUARINGS {
        let field = SplineField::interpolating(lattice, values.clone());
        let square = |(offset, &u): (usize, &Point)| {
            let moved = plus(lattice.knot(offset), u);
            plus(u, field.at(moved))
        };
        values = values.par_iter().enumerate().map(square).collect();
    }
    SplineField::interpolating(lattice, values)
}

fn random_field(scale: &WarpScale, box_mm: [Point; 2], mut random: impl Rng) -> SplineField {
    let lattice = Lattice::covering(box_mm, scale.knot_spacing_mm, 1);
    let amplitude = scale.rms_mm / SPLINE_ENERGY.powf(1.5);
    let mut draw = || -> f64 { StandardNormal.sample(&mut random) };
    let coefficients: Vec<Point> =
        (0..lattice.len()).map(|_| [0; 3].map(|_| amplitude * draw())).collect();
    SplineField::new(lattice, &coefficients)
}

/// 1 in the box, falling smoothly to 0 over [`FADE_MM`] beyond it.
fn fade(p: Point, [low, high]: [Point; 2]) -> f64 {
    (0..3)
        .map(|axis| {
            let beyond = (low[axis] - p[axis]).max(p[axis] - high[axis]).max(0.0);
            let t = 1.0 - (beyond / FADE_MM).min(1.0);
            t * t * (3.0 - 2.0 * t)
        })
        .product()
}

fn faded_box([low, high]: [Point; 2]) -> [Point; 2] {
    [low.map(|edge| edge - FADE_MM), high.map(|edge| edge + FADE_MM)]
}

fn sample(field: &SplineField, geometry: &Geometry) -> Vec<f32> {
    let (to_mm, to_voxel) = (geometry.voxel_to_mm(), geometry.mm_to_voxel());
    let count = geometry.len();
    let mut displacement = vec![0f32; 3 * count];
    let (x, rest) = displacement.split_at_mut(count);
    let (y, z) = rest.split_at_mut(count);
    (x, y, z).into_par_iter().enumerate().for_each(|(offset, (x, y, z))| {
        let index = geometry.index_of(offset).map(|i| i as f64);
        let u = to_voxel.apply_vector(field.at(to_mm.apply(index)));
        (*x, *y, *z) = (u[0] as f32, u[1] as f32, u[2] as f32);
    });
    displacement
}

fn plus(a: Point, b: Point) -> Point {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
}
