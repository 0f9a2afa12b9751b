//! Sulci: where a random wave field is zero.
//!
//! The nodal surfaces of a sum of plane waves that share one wavelength wind through space half
//! a wavelength apart, as sulci wind over the brain. The field is read at the point's projection
//! onto the brain's hull, so that the sulci run perpendicular to the surface.

use rand::Rng;

use super::implicit::{Point, dot, length};
use crate::synth::random::{Stream, generator};

/// One plane wave `cos(k . p + phase)`; k in radians per mm.
#[derive(Clone, Copy, Debug)]
struct Wave {
    k: Point,
    phase: f64,
}

/// A sum of plane waves of one wavelength; about normal with unit variance.
#[derive(Clone, Debug)]
pub struct WaveField {
    waves: Vec<Wave>,
    amplitude: f64,
}

impl WaveField {
    /// `count` waves in directions spread evenly over the sphere (scaled by `stretch` per axis),
    /// with random phases.
    pub fn new(wavelength_mm: f64, count: usize, stretch: Point, seed: u64) -> Self {
        let mut random = generator(seed, Stream::Anatomy, 0);
        let golden = std::f64::consts::PI * (3.0 - 5f64.sqrt());
        let waves = (0..count).map(|i| {
            // Fibonacci points of a half sphere: a wave and its opposite are the same.
            let height = (i as f64 + 0.5) / count as f64;
            let ring = (1.0 - height * height).sqrt();
            let (sine, cosine) = (golden * i as f64 + random.random_range(0.0..0.6)).sin_cos();
            let k = std::f64::consts::TAU / wavelength_mm;
            let k = [ring * cosine * k, ring * sine * k, height * k];
            Wave {
                k: std::array::from_fn(|axis| k[axis] * stretch[axis]),
                phase: random.random_range(0.0..std::f64::consts::TAU),
            }
        });
        Self { waves: waves.collect(), amplitude: (2.0 / count as f64).sqrt() }
    }

    /// Value and gradient (per mm).
    pub fn at(&self, p: Point) -> (f64, Point) {
        let (mut value, mut gradient) = (0.0, [0.0; 3]);
        for wave in &self.waves {
            let (sine, cosine) = (dot(wave.k, p) + wave.phase).sin_cos();
            value += cosine;
            (0..3).for_each(|i| gradient[i] -= wave.k[i] * sine);
        }
        (value * self.amplitude, gradient.map(|g| g * self.amplitude))
    }

    /// First-order distance (mm) from `p` to the nearest zero of the field within the tangent
    /// plane of the unit `normal`.
    pub fn distance_to_zero(&self, p: Point, normal: Point) -> f64 {
        let (value, gradient) = self.at(p);
        let across = dot(gradient, normal);
        let tangential: Point = std::array::from_fn(|i| gradient[i] - across * normal[i]);
        value.abs() / length(tangential).max(1e-3)
    }
}
