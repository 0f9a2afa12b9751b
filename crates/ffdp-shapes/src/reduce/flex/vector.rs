//! Loops compiled for the vector units that the machine has, and exponentials without branches.

use std::ops::{Add, Div, Mul, Neg, Sub};

use ffdp_kit::real::Real;

/// Element types of the blocks.
pub trait Lane:
    Real
    + Copy
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    const ONE: Self;
    const LOWEST: Self;
    /// Of `2^f`, `|f| <= 1/2`, up to the last digit.
    const SERIES: &'static [Self];
    /// The smallest exponent, of which [`Lane::power_of_two`] is 0, and the largest, of infinity.
    const EXPONENTS: [Self; 2];
    /// `self b + c`, in one step where the machine has one.
    fn mul_add<const FUSED: bool>(self, b: Self, c: Self) -> Self;
    /// The nearest integer, and 2 to its power.
    fn power_of_two(self) -> (Self, Self);
    fn abs(self) -> Self;
    fn log2(self) -> Self;
    fn sin(self) -> Self;
    fn cos(self) -> Self;
    fn square_root(self) -> Self;

    #[inline(always)]
    fn sign(self) -> Self {
        let zero = Self::default();
        let up = if self > zero { Self::ONE } else { zero };
        if self < zero { -Self::ONE } else { up }
    }

    /// The larger; a `b` that is no number stays.
    #[inline(always)]
    fn larger(self, b: Self) -> Self {
        if self > b { self } else { b }
    }

    /// 0 for what is not positive.
    #[inline(always)]
    fn root(self) -> Self {
        let zero = Self::default();
        let clipped = if self < zero { zero } else { self };
        clipped.square_root()
    }

    /// `self^-1/2`; 0 for what is not positive.
    #[inline(always)]
    fn inverse_root(self) -> Self {
        let root = Self::ONE / self.square_root();
        if self <= Self::default() { Self::default() } else { root }
    }
}

macro_rules! lane {
    ($t:ty, $bits:ty, $terms:literal, $mantissa:literal, $bias:literal) => {
        impl Lane for $t {
            const ONE: Self = 1.0;
            const LOWEST: Self = <$t>::NEG_INFINITY;
            const SERIES: &'static [Self] = &{
                // ln(2)^k / k!
                let (mut series, mut term, mut k) = ([0.0; $terms], 1.0, 0);
                while k < $terms {
                    series[k] = term as $t;
                    k += 1;
                    term *= std::f64::consts::LN_2 / k as f64;
                }
                series
            };
            const EXPONENTS: [Self; 2] = [-($bias as $t), $bias as $t + 1.0];

            #[inline(always)]
            fn mul_add<const FUSED: bool>(self, b: Self, c: Self) -> Self {
                if FUSED { <$t>::mul_add(self, b, c) } else { self * b + c }
            }

            #[inline(always)]
            fn power_of_two(self) -> (Self, Self) {
                // Adding it rounds to an integer, which then stands in the last bits.
                const SHIFT: $t = 1.5 * (1u64 << $mantissa) as $t;
                let shifted = self + SHIFT;
                let bits = shifted.to_bits().wrapping_add($bias) << $mantissa;
                (shifted - SHIFT, <$t>::from_bits(bits))
            }

            #[inline(always)]
            fn abs(self) -> Self {
                <$t>::abs(self)
            }
            fn log2(self) -> Self {
                <$t>::log2(self)
            }
            fn sin(self) -> Self {
                <$t>::sin(self)
            }
            fn cos(self) -> Self {
                <$t>::cos(self)
            }
            #[inline(always)]
            fn square_root(self) -> Self {
                <$t>::sqrt(self)
            }
        }
    };
}

// 0.347^8 / 8! = 5e-9, 0.347^14 / 14! = 4e-18.
lane!(f32, u32, 8, 23, 127);
lane!(f64, u64, 14, 52, 1023);

/// `2^t`.
#[inline(always)]
pub fn exp2<T: Lane, const FUSED: bool>(t: T) -> T {
    let [low, high] = T::EXPONENTS;
    // In this order a `t` that is no number stays.
    let t = if t < low { low } else { t };
    let t = if t > high { high } else { t };
    let (whole, power) = t.power_of_two();
    let f = t - whole;
    let mut k = T::SERIES.len() - 1;
    let mut sum = T::SERIES[k];
    while k > 0 {
        k -= 1;
        sum = sum.mul_add::<FUSED>(f, T::SERIES[k]);
    }
    sum * power
}

/// Work whose loops are to be vectorised.
pub trait Vectorised {
    type Output;
    /// `FUSED`: whether the machine multiplies and adds in one step. To be inlined always.
    fn call<const FUSED: bool>(self) -> Self::Output;
}

/// Calls `work` as it was compiled for this machine.
pub fn dispatch<V: Vectorised>(work: V) -> V::Output {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")]
        fn avx512<V: Vectorised>(work: V) -> V::Output {
            work.call::<true>()
        }
        #[target_feature(enable = "avx2,fma")]
        fn avx2<V: Vectorised>(work: V) -> V::Output {
            work.call::<true>()
        }
        let has_avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        let has_avx512 = has_avx2
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl");
        if has_avx512 {
            // SAFETY: the machine has all of them.
            return unsafe { avx512(work) };
        }
        if has_avx2 {
            // SAFETY: the machine has both.
            return unsafe { avx2(work) };
        }
    }
    work.call::<{ cfg!(target_arch = "aarch64") }>()
}
