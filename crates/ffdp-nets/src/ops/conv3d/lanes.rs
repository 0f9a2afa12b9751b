//! Sixteen f32 in the vector registers of one instruction set.
//!
//! The compiler does not widen the convolution's loops beyond 4 lanes by itself, so the two sets
//! of x86-64 that matter are spelled out; everywhere else an array is left to the compiler.

/// Lanes of a vector.
pub(super) const LANES: usize = 16;

/// Sixteen numbers. The functions that use one of the sets below must be compiled with its target
/// features, and all methods are inlined into them.
pub(super) trait Lanes: Copy {
    /// Every lane the same.
    fn splat(value: f32) -> Self;
    /// The first 16 of `values`, which has at least as many.
    fn load(values: &[f32]) -> Self;
    /// `a b + self`.
    fn add_product(self, a: Self, b: Self) -> Self;
    /// The lanes in order.
    fn to_array(self) -> [f32; LANES];
}

/// Any processor.
impl Lanes for [f32; LANES] {
    #[inline(always)]
    fn splat(value: f32) -> Self {
        [value; LANES]
    }

    #[inline(always)]
    fn load(values: &[f32]) -> Self {
        values[..LANES].try_into().expect("a slice of 16 is an array of 16")
    }

    #[inline(always)]
    fn add_product(self, a: Self, b: Self) -> Self {
        // Where the instruction set lacks a fused product, `mul_add` would be a function call.
        const FUSED: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));
        std::array::from_fn(
            |l| if FUSED { a[l].mul_add(b[l], self[l]) } else { a[l] * b[l] + self[l] },
        )
    }

    #[inline(always)]
    fn to_array(self) -> [f32; LANES] {
        self
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{LANES, Lanes};

    // SAFETY, for all blocks below: values of these types only exist in functions that are called
    // after the processor was found to have the features (`available` in `flex.rs`), and loads and
    // stores are of 16 elements of slices whose length is checked.

    /// AVX-512.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Avx512(__m512);

    impl Lanes for Avx512 {
        #[inline(always)]
        fn splat(value: f32) -> Self {
            Self(unsafe { _mm512_set1_ps(value) })
        }

        #[inline(always)]
        fn load(values: &[f32]) -> Self {
            Self(unsafe { _mm512_loadu_ps(values[..LANES].as_ptr()) })
        }

        #[inline(always)]
        fn add_product(self, a: Self, b: Self) -> Self {
            Self(unsafe { _mm512_fmadd_ps(a.0, b.0, self.0) })
        }

        #[inline(always)]
        fn to_array(self) -> [f32; LANES] {
            let mut lanes = [0.0; LANES];
            unsafe { _mm512_storeu_ps(lanes.as_mut_ptr(), self.0) };
            lanes
        }
    }

    /// AVX2 and FMA.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Avx2(__m256, __m256);

    impl Lanes for Avx2 {
        #[inline(always)]
        fn splat(value: f32) -> Self {
            let half = unsafe { _mm256_set1_ps(value) };
            Self(half, half)
        }

        #[inline(always)]
        fn load(values: &[f32]) -> Self {
            let (low, high) = values[..LANES].split_at(LANES / 2);
            unsafe { Self(_mm256_loadu_ps(low.as_ptr()), _mm256_loadu_ps(high.as_ptr())) }
        }

        #[inline(always)]
        fn add_product(self, a: Self, b: Self) -> Self {
            unsafe { Self(_mm256_fmadd_ps(a.0, b.0, self.0), _mm256_fmadd_ps(a.1, b.1, self.1)) }
        }

        #[inline(always)]
        fn to_array(self) -> [f32; LANES] {
            let mut lanes = [0.0; LANES];
            let (low, high) = lanes.split_at_mut(LANES / 2);
            unsafe {
                _mm256_storeu_ps(low.as_mut_ptr(), self.0);
                _mm256_storeu_ps(high.as_mut_ptr(), self.1);
            }
            lanes
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Avx2, Avx512};
