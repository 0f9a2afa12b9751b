//! The exponential function, for loops on the vectors of the processor.

/// Added to a number below 2^51, leaves the nearest whole number in its last bits: 1.5 * 2^52.
const ROUND: f64 = 6_755_399_441_055_744.0;

/// `ln 2` in two parts. The first has so few bits that whole multiples of it up to 2^11 are exact.
const LN_2: [f64; 2] = [0.693_147_180_369_123_8, 1.908_214_929_270_587_7e-10];

/// `1 / i!`. What follows in the series is below 2^-56 where it is used.
const TAYLOR: [f64; 14] = {
    let mut terms = [1.0; 14];
    let mut i = 1;
    while i < terms.len() {
        terms[i] = terms[i - 1] / i as f64;
        i += 1;
    }
    terms
};

/// `e^x` to 4e-16 of its value, and 0 below -708. Arithmetic alone, which a loop in
/// [`vectorized`](crate::window::vectorized) does for several values at once, where [`f64::exp`] is a call for each.
/// `x` is at most 708.
#[inline(always)]
pub fn exp(x: f64) -> f64 {
    // x = n ln 2 + r, |r| <= ln 2 / 2.
    let shifted = x * std::f64::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = x - n * LN_2[0] - n * LN_2[1];
    // Pairs of terms: a chain half as long.
    let r2 = r * r;
    let mut sum = 0.0;
    for pair in TAYLOR.as_chunks::<2>().0.iter().rev() {
        sum = sum * r2 + (pair[0] + pair[1] * r);
    }
    // 2^n: the last bits of `shifted`, moved to where the exponent is.
    let power = f64::from_bits((shifted.to_bits() << 52).wrapping_add(1023 << 52));
    if x < -708.0 { 0.0 } else { sum * power }
}

#[cfg(test)]
mod tests {
    use super::exp;

    #[test]
    fn every_value_is_that_of_the_standard_library() {
        let mut worst = 0.0_f64;
        for i in 0..=708_000 {
            let x = -0.001 * f64::from(i);
            worst = worst.max((exp(x) / x.exp() - 1.0).abs());
        }
        assert!(worst < 4e-16, "off by {worst:e} of the value");
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-709.0), 0.0);
        assert_eq!(exp(f64::NEG_INFINITY), 0.0);
        assert!(exp(f64::NAN).is_nan());
        assert!((exp(700.0) / 700.0_f64.exp() - 1.0).abs() < 4e-16);
    }
}
