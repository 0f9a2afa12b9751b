//! What scattered contributions are added to: floats, or whole numbers whose sum has no order.
//!
//! A cube adds whole multiples of `2^-b` in shared memory, `b` chosen by the largest gradient of its
//! block. Reproducible sums go on as whole multiples of `2^-v`, `v` chosen by the largest of the
//! volume, in 64 bits: at most 2^31 voxels of at most 2^32 add up to less than 2^63. Where there are
//! no atomics of 64 bits, two words of 32 do, with the carry.

use cubecl::prelude::*;

use ffdp_kit::launch::max_over_cube;

/// Where contributions end up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Sink {
    /// Atomic f32.
    Float,
    /// Atomic i64.
    Wide,
    /// Two atomic u32: all the low words, then all the high ones.
    Words,
}

/// Bits of the largest contribution in shared memory: 1024 of them stay below 2^31.
pub(super) const BITS: i32 = 20;

/// Bits of the largest contribution in a reproducible sum.
const WIDE_BITS: i32 = 31;

/// The exponent `e` of `value < 2^e`, within what the powers below can express.
#[cube]
pub(super) fn exponent(value: f32) -> i32 {
    // Values below 2^-90 count as such: they keep fewer bits.
    max(i32::cast_from(u32::reinterpret(value) >> 23) - 126, -90i32)
}

/// `2^power`, within the range of normal numbers.
#[cube]
pub(super) fn power_of_two(power: i32) -> f32 {
    let biased = min(max(power, -126i32), 127i32) + 127;
    f32::reinterpret(u32::cast_from(biased) << 23)
}

/// `value` as a whole multiple of one, rounded; |value| < 2^22.
#[cube]
pub(super) fn whole(value: f32) -> i32 {
    // Adding 1.5 * 2^23 leaves the integer in the low bits: cheaper than a conversion.
    i32::reinterpret(value + 12_582_912.0) - 0x4B40_0000i32
}

/// Adds `value * 2^-b` to element `at`; `b = BITS - block`, `block` and `volume` being exponents.
#[cube]
pub(super) fn add<A: Numeric>(
    output: &[Atomic<A>],
    elements: usize,
    at: usize,
    value: i32,
    block: i32,
    volume: i32,
    #[comptime] sink: Sink,
) {
    if comptime!(sink == Sink::Float) {
        output[at].fetch_add(A::cast_from(f32::cast_from(value) * power_of_two(block - BITS)));
    } else {
        // To multiples of 2^-v: exact unless the block is much fainter than the volume.
        let shift = comptime!(WIDE_BITS - BITS) + block - volume;
        let faint = f32::cast_from(value) * power_of_two(min(shift, 0i32));
        let value = select(shift < 0, i32::cast_from((faint + 0.5).floor()), value);
        let shift = max(shift, 0i32) as u32;
        if comptime!(sink == Sink::Wide) {
            output[at]
                .fetch_add(A::cast_from(i64::cast_from(value) * i64::cast_from(1u32 << shift)));
        } else {
            add_words::<A>(output, elements, at, value, shift);
        }
    }
}

/// Adds `value * 2^shift` to the two words of element `at`; `shift < 32`.
#[cube]
fn add_words<A: Numeric>(output: &[Atomic<A>], elements: usize, at: usize, value: i32, shift: u32) {
    let bits = u32::reinterpret(value);
    let sign = select(value < 0, 0xFFFF_FFFFu32, 0u32);
    let low = bits << shift;
    // The bits that leave the low word, below those of the sign.
    let mut high = sign;
    if shift > 0 {
        high = (sign << shift) | (bits >> (32 - shift));
    }
    let before = u32::cast_from(output[at].fetch_add(A::cast_from(low)));
    let after = before + low;
    high += select(after < before, 1u32, 0u32);
    if high != 0 {
        output[elements + at].fetch_add(A::cast_from(high));
    }
}

/// The sums as floats, added to what `output` holds. A volume with a gradient that is not finite
/// becomes NaN.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn finish_kernel<A: Numeric>(
    sums: &[A],
    largest: &[f32],
    output: &mut [f32],
    elements: usize,
    per_volume: usize,
    #[comptime] sink: Sink,
) {
    let at = (CUBE_POS_Y as usize * CUBE_COUNT_X as usize + CUBE_POS_X as usize)
        * CUBE_DIM_X as usize
        + UNIT_POS_X as usize;
    if at >= elements {
        terminate!();
    }
    let most = largest[at / per_volume];
    let scale = power_of_two(exponent(most) - WIDE_BITS);
    let sum = sum_of::<A>(sums, elements, at, sink);
    let not_a_number = f32::reinterpret(u32::reinterpret(most) | 0x7FC0_0000u32);
    output[at] += select(is_finite(most), sum * scale, not_a_number);
}

/// The sum at element `at`, in its units.
#[cube]
fn sum_of<A: Numeric>(sums: &[A], elements: usize, at: usize, #[comptime] sink: Sink) -> f32 {
    if comptime!(sink == Sink::Wide) {
        f32::cast_from(sums[at])
    } else {
        let low = u32::cast_from(sums[at]);
        let high = u32::cast_from(sums[elements + at]);
        // The magnitude first: a small negative number has only ones in its high word.
        let negative = high >= 0x8000_0000u32;
        let opposite = 0u32 - low;
        let carry = select(opposite == 0, 1u32, 0u32);
        let below = select(negative, opposite, low);
        let above = select(negative, 0xFFFF_FFFFu32 - high + carry, high);
        let size = f32::cast_from(above) * 4_294_967_296.0 + f32::cast_from(below);
        select(negative, -size, size)
    }
}

/// `output[row, part] = max |values[row, ..]|` over the part's share of the row, by
/// [`size_of`]; `CUBE_POS_X` is the part, `CUBE_POS_Y` the row.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn largest_kernel(values: &[f32], output: &mut [f32], len: usize) {
    let start = CUBE_POS_Y as usize * len;
    let step = (CUBE_COUNT_X * CUBE_DIM_X) as usize;
    let mut at = (CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X) as usize;
    let mut most = 0.0f32;
    while at < len {
        most = max(most, size_of(values[start + at]));
        at += step;
    }
    let most = max_over_cube(most);
    if UNIT_POS == 0 {
        output[(CUBE_POS_Y * CUBE_COUNT_X + CUBE_POS_X) as usize] = most;
    }
}

/// `|value|`, the largest float for what is not finite: a maximum would pass over NaN.
#[cube]
pub(super) fn size_of(value: f32) -> f32 {
    let size = value.abs();
    select(size < f32::MAX, size, f32::MAX)
}

/// Whether a maximum of [`size_of`] is one of finite values.
#[cube]
pub(super) fn is_finite(most: f32) -> bool {
    most < f32::MAX
}
