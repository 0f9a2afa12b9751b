//! Sums over windows of lines on the CPU, and loops that use the vectors of the processor.

use crate::real::Real;

/// Values that are summed at a time: eight vectors of 256 bits.
const LANES: usize = 32;

/// Calls `f` as it is compiled for vectors of 256 bits, where the processor has them. The arithmetic and its order are
/// the same, and so are the bits. What is to be vectorised must be inlined into `f`: `#[inline(always)] || ..`.
#[inline(always)]
pub fn vectorized<R>(f: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        unsafe fn wide<R>(f: impl FnOnce() -> R) -> R {
            f()
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has what the function is compiled for.
            return unsafe { wide(f) };
        }
    }
    f()
}

/// `sums[x] = sum_j weights[j] values(j)[x]`, in the order of `j`, in f64.
///
/// # Panics
/// If `values` gives fewer values than there are sums.
pub fn weigh<'v, T: Real, S: Real>(
    weights: &[f64],
    values: impl Fn(usize) -> &'v [T],
    sums: &mut [S],
) {
    vectorized(
        #[inline(always)]
        || {
            let mut blocks = sums.chunks_exact_mut(LANES);
            let mut first = 0;
            for block in &mut blocks {
                let mut sum = [0.0; LANES];
                for (j, weight) in weights.iter().enumerate() {
                    let values = &values(j)[first..first + LANES];
                    for i in 0..LANES {
                        sum[i] += weight * values[i].wide();
                    }
                }
                block.iter_mut().zip(sum).for_each(|(value, sum)| *value = S::of(sum));
                first += LANES;
            }
            for (x, value) in blocks.into_remainder().iter_mut().enumerate() {
                let terms = weights.iter().enumerate();
                let sum = terms.fold(0.0, |sum, (j, u)| sum + u * values(j)[first + x].wide());
                *value = S::of(sum);
            }
        },
    );
}

/// `sums += weight values`, in f64.
pub fn add<T: Real>(sums: &mut [f64], values: &[T], weight: f64) {
    vectorized(
        #[inline(always)]
        || sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += weight * value.wide()),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sum_is_that_of_its_own_window() {
        let line: Vec<f32> = (0..80).map(|i| ((7 * i) % 13) as f32 - 5.5).collect();
        let weights = [0.25, 1.0, -0.5];
        for len in [1, 31, 32, 33, 64, 78] {
            let mut sums = vec![f32::NAN; len];
            weigh(&weights, |j| &line[j..], &mut sums);
            for (x, sum) in sums.iter().enumerate() {
                let terms = weights.iter().zip(&line[x..]);
                // Multiples of an eighth: exact.
                assert_eq!(f64::from(*sum), terms.map(|(u, v)| u * f64::from(*v)).sum::<f64>());
            }
            let mut sums = vec![1.0; len];
            add(&mut sums, &line, 0.5);
            assert!(sums.iter().zip(&line).all(|(sum, v)| *sum == 1.0 + 0.5 * f64::from(*v)));
        }
    }
}
