//! Where an intensity lies on a GPU, and its shares of a vote: `kernel.rs` once more, in f32.

use cubecl::prelude::*;

use super::Plan;

/// [`ParzenKernel`] without its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::ops) enum Kernel {
    Delta,
    Linear,
    BSpline3,
    Gaussian,
}

impl Kernel {
    /// Whether the values over the taps sum to 1 as they are.
    fn sums_to_one(self) -> bool {
        matches!(self, Self::Linear | Self::BSpline3)
    }
}

/// The numbers of a kernel: those of [`ParzenKernel::gaussian`].
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(in crate::ops) struct Shape {
    pub rate: f32,
    pub edge: f32,
}

/// Where an intensity lies: its first tap, and the fraction beyond the bin below it.
#[derive(CubeType, Clone, Copy)]
pub(in crate::ops) struct BinPosition {
    pub first: u32,
    pub fraction: f32,
}

/// An intensity within the table: NaN counts as 0.
#[cube]
pub(in crate::ops) fn clamped(intensity: f32) -> f32 {
    min(select(intensity > 0.0f32, intensity, 0.0f32), 1.0f32)
}

/// A number as a sum, so that its distance from an integer is exact.
#[derive(CubeType, Clone, Copy)]
struct Sum {
    high: f32,
    low: f32,
}

/// `inner` times an intensity. A product of 32 bits: rounded to 24, it would misplace an intensity by
/// up to 1e-5 bins. Cut after 12 binary places, both parts are exact (and need no fused operation,
/// which WebGPU does not promise).
#[cube]
fn scaled(intensity: f32, #[comptime] plan: Plan) -> Sum {
    let inner = comptime!(plan.inner() as f32);
    let v = clamped(intensity);
    let high = (v * 4096.0f32).floor() * comptime!(1.0f32 / 4096.0);
    Sum { high: high * inner, low: (v - high) * inner }
}

#[cube]
pub(in crate::ops) fn place(intensity: f32, #[comptime] plan: Plan) -> BinPosition {
    let y = scaled(intensity, plan);
    let first = (y.high + y.low + 0.5f32).floor();
    let fraction = (y.high - first + 0.5f32) + y.low;
    BinPosition { first: min(u32::cast_from(first), comptime!(plan.inner())), fraction }
}

/// The bin that an intensity lies in.
#[cube]
pub(in crate::ops) fn bin(intensity: f32, #[comptime] plan: Plan) -> u32 {
    let y = scaled(intensity, plan);
    let below = (y.high + y.low).floor();
    // The sum may have been rounded up to the next bin.
    let back = select((y.high - below) + y.low < 0.0f32, 1u32, 0u32);
    min(u32::cast_from(below) - back, comptime!(plan.inner() - 1)) + comptime!(plan.radius)
}

/// The kernel at distance `t`, up to a factor; `outer`: beyond 1 (B-spline).
#[cube]
pub(in crate::ops) fn value(
    t: f32,
    shape: &Shape,
    #[comptime] outer: bool,
    #[comptime] kernel: Kernel,
) -> f32 {
    let t = t.abs();
    let mut value = 1.0f32;
    if comptime!(kernel == Kernel::Linear) {
        value = max(1.0f32 - t, 0.0f32);
    } else if comptime!(kernel == Kernel::BSpline3 && outer) {
        let s = max(2.0f32 - t, 0.0f32);
        value = s * s * s * comptime!(1.0f32 / 6.0);
    } else if comptime!(kernel == Kernel::BSpline3) {
        value = comptime!(2.0f32 / 3.0) + t * t * (0.5f32 * t - 1.0f32);
    } else if comptime!(kernel == Kernel::Gaussian) {
        value = max((-shape.rate * t * t).exp() - shape.edge, 0.0f32);
    }
    value
}

/// The derivative of the kernel at distance `t`, up to the same factor.
#[cube]
fn slope(
    t: f32,
    shape: &Shape,
    #[comptime] outer: bool,
    #[comptime] radius: u32,
    #[comptime] kernel: Kernel,
) -> f32 {
    let size = t.abs();
    let mut slope = 0.0f32;
    if comptime!(kernel == Kernel::Linear) {
        slope = -1.0f32;
    } else if comptime!(kernel == Kernel::BSpline3 && outer) {
        let s = max(2.0f32 - size, 0.0f32);
        slope = -0.5f32 * s * s;
    } else if comptime!(kernel == Kernel::BSpline3) {
        slope = size * (1.5f32 * size - 2.0f32);
    } else if comptime!(kernel == Kernel::Gaussian) {
        let inside = size < comptime!(radius as f32);
        slope = select(inside, -2.0f32 * shape.rate * size * (-shape.rate * t * t).exp(), 0.0f32);
    }
    select(t <= 0.0f32, -slope, slope)
}

/// The shares of a vote over the taps, sum 1.
#[cube]
pub(in crate::ops) fn shares(fraction: f32, shape: &Shape, #[comptime] plan: Plan) -> Array<f32> {
    let taps = comptime!(plan.taps());
    let mut weights = Array::<f32>::new(comptime!(taps as usize));
    let mut sum = 0.0f32;
    #[unroll]
    for tap in 0..taps {
        let t = comptime!(tap as f32 + 1.0 - plan.radius as f32) - fraction;
        let weight = value(t, shape, comptime!(tap == 0 || tap == 3), plan.kernel);
        weights[tap as usize] = weight;
        sum += weight;
    }
    if comptime!(!plan.kernel.sums_to_one()) {
        let scale = 1.0f32 / sum;
        #[unroll]
        for tap in 0..taps {
            let weight = weights[tap as usize] * scale;
            weights[tap as usize] = weight;
        }
    }
    weights
}

/// The derivatives of the shares by the intensity.
#[cube]
pub(in crate::ops) fn slopes(
    intensity: f32,
    fraction: f32,
    shape: &Shape,
    #[comptime] plan: Plan,
) -> Array<f32> {
    let taps = comptime!(plan.taps());
    let mut slopes = Array::<f32>::new(comptime!(taps as usize));
    let inside = clamped(intensity) == intensity;
    let moves = select(inside, comptime!(plan.inner() as f32), 0.0f32);
    let mut mass = 0.0f32;
    let mut drift = 0.0f32;
    #[unroll]
    for tap in 0..taps {
        let t = comptime!(tap as f32 + 1.0 - plan.radius as f32) - fraction;
        let outer = comptime!(tap == 0 || tap == 3);
        let steep = -moves * slope(t, shape, outer, plan.radius, plan.kernel);
        slopes[tap as usize] = steep;
        if comptime!(!plan.kernel.sums_to_one()) {
            mass += value(t, shape, outer, plan.kernel);
            drift += steep;
        }
    }
    if comptime!(!plan.kernel.sums_to_one()) {
        let scale = 1.0f32 / mass;
        #[unroll]
        for tap in 0..taps {
            let t = comptime!(tap as f32 + 1.0 - plan.radius as f32) - fraction;
            let weight = value(t, shape, comptime!(tap == 0 || tap == 3), plan.kernel) * scale;
            let steep = slopes[tap as usize];
            slopes[tap as usize] = (steep - weight * drift) * scale;
        }
    }
    slopes
}
