//! The passes over memory: the lines along y or z, and the rows of real numbers, there and back.

use cubecl::prelude::*;

use super::butterfly::{Complex, get, set};
use super::plan::Plan;
use super::stages::{first_line, first_of, no_values, scatter, slot, transform};

/// Along y (`inner = W'`) or z (`inner = H W'`), in place: `data` `[volumes, 2, outer, n, inner]`, `plane` numbers
/// a part, `lines` a volume. The way back is the way there with the parts exchanged, so that one kernel serves both:
/// `re_at` is 0 and `im_at` is `plane` on the way there, the reverse on the way back.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn lines_kernel(
    data: &mut [f32],
    roots: &[f32],
    plane: usize,
    re_at: usize,
    im_at: usize,
    inner: usize,
    lines: usize,
    #[comptime] plan: Plan,
) {
    let mut re = Shared::<[f32]>::new_slice(comptime!(plan.words() as usize));
    let mut im = Shared::<[f32]>::new_slice(comptime!(plan.words() as usize));
    let mut values = no_values(plan);
    let number = first_line(plan) + (UNIT_POS % plan.lines) as usize;
    let exists = number < lines;
    let line = CUBE_POS_Z as usize * 2 * plane
        + number / inner * inner * comptime!(plan.n as usize)
        + number % inner;
    let radix = comptime!(plan.radix(0));
    let each = comptime!(plan.each(0));
    #[unroll]
    for round in 0..comptime!(plan.rounds(plan.count(0))) {
        let id = UNIT_POS + comptime!(round * plan.units);
        if exists && id < comptime!(plan.count(0)) {
            let j = id / plan.lines;
            #[unroll]
            for q in 0..radix {
                let from = line + (j + comptime!(q * each)) as usize * inner;
                let a = Complex { re: data[from + re_at], im: data[from + im_at] };
                set(&mut values, comptime!(round * radix + q), a);
            }
        }
    }
    transform(&mut values, &mut re, &mut im, roots, plan);
    let last = comptime!(plan.last());
    let radix = comptime!(plan.radix(last));
    #[unroll]
    for round in 0..comptime!(plan.rounds(plan.count(last))) {
        let id = UNIT_POS + comptime!(round * plan.units);
        if exists && id < comptime!(plan.count(last)) {
            let first = first_of(id / plan.lines, last, plan);
            #[unroll]
            for to in 0..radix {
                let at = line + (first + comptime!(to * plan.done(last))) as usize * inner;
                let a = get(&mut values, comptime!(round * radix + to));
                data[at + re_at] = a.re;
                data[at + im_at] = a.im;
            }
        }
    }
}

/// Where a row begins in a spectrum of `plane` numbers a part, `rows` rows of `pitch` a volume.
#[cube]
fn row_of_spectrum(row: usize, rows: usize, plane: usize, pitch: usize) -> usize {
    row / rows * 2 * plane + row % rows * pitch
}

/// Rows of real numbers to half their modes, `pitch` apart; `count` rows in all, `rows` a volume.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn real_rows_kernel(
    input: &[f32],
    roots: &[f32],
    output: &mut [f32],
    rows: usize,
    count: usize,
    pitch: usize,
    #[comptime] plan: Plan,
) {
    let mut re = Shared::<[f32]>::new_slice(comptime!(plan.words() as usize));
    let mut im = Shared::<[f32]>::new_slice(comptime!(plan.words() as usize));
    let mut values = no_values(plan);
    let n = comptime!(plan.n);
    let half = comptime!(plan.n / 2 + 1);
    let pair = first_line(plan);
    let radix = comptime!(plan.radix(0));
    let each = comptime!(plan.each(0));
    #[unroll]
    for round in 0..comptime!(plan.rounds(plan.count(0))) {
        let id = UNIT_POS + comptime!(round * plan.units);
        if id < comptime!(plan.count(0)) {
            let (line, j) = (id / each, id % each);
            let row = 2 * (pair + line as usize);
            #[unroll]
            for q in 0..radix {
                let from = row * comptime!(plan.n as usize) + (j + comptime!(q * each)) as usize;
                let mut a = 0.0f32;
                let mut b = 0.0f32;
                if row < count {
                    a = input[from];
                }
                if row + 1 < count {
                    b = input[from + comptime!(plan.n as usize)];
                }
                set(&mut values, comptime!(round * radix + q), Complex { re: a, im: b });
            }
        }
    }
    transform(&mut values, &mut re, &mut im, roots, plan);
    scatter(&mut values, &mut re, &mut im, comptime!(plan.last()), plan);
    sync_cube();
    let plane = rows * pitch;
    #[unroll]
    for round in 0..comptime!(plan.rounds(half * plan.lines)) {
        let id = UNIT_POS + comptime!(round * plan.units);
        if id < comptime!(half * plan.lines) {
            let (line, k) = (id / half, id % half);
            let row = 2 * (pair + line as usize);
            let here = slot(line, k, plan);
            let there = slot(line, (n - k) % n, plan);
            if row < count {
                let to = row_of_spectrum(row, rows, plane, pitch) + k as usize;
                output[to] = 0.5f32 * (re[here] + re[there]);
                output[to + plane] = 0.5f32 * (im[here] - im[there]);
            }
            if row + 1 < count {
                let to = row_of_spectrum(row + 1, rows, plane, pitch) + k as usize;
                output[to] = 0.5f32 * (im[here] + im[there]);
                output[to + plane] = 0.5f32 * (re[there] - re[here]);
            }
        }
    }
}

/// The way back, scaled.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn modes_kernel(
    input: &[f32],
    roots: &[f32],
    output: &mut [f32],
    rows: usize,
    count: usize,
    pitch: usize,
    scale: f32,
    #[comptime] plan: Plan,
) {
    let mut re = Shared::<[f32]>::new_slice(comptime!(plan.words() as usize));
    let mut im = Shared::<[f32]>::new_slice(comptime!(plan.words() as usize));
    let mut values = no_values(plan);
    let n = comptime!(plan.n);
    let half = comptime!(plan.n / 2 + 1);
    let pair = first_line(plan);
    let plane = rows * pitch;
    let radix = comptime!(plan.radix(0));
    let each = comptime!(plan.each(0));
    #[unroll]
    for round in 0..comptime!(plan.rounds(plan.count(0))) {
        let id = UNIT_POS + comptime!(round * plan.units);
        if id < comptime!(plan.count(0)) {
            let (line, j) = (id / each, id % each);
            let row = 2 * (pair + line as usize);
            let first = row_of_spectrum(row, rows, plane, pitch);
            let second = row_of_spectrum(row + 1, rows, plane, pitch);
            #[unroll]
            for q in 0..radix {
                let point = j + comptime!(q * each);
                // Modes beyond half the sampling frequency are those below it, mirrored.
                let mirrored = point >= half;
                let k = select(mirrored, n - point, point) as usize;
                let mut sign = select(mirrored, -1.0f32, 1.0f32);
                if point == 0 || 2 * point == n {
                    sign = 0.0f32;
                }
                let mut re = 0.0f32;
                let mut im = 0.0f32;
                if row < count {
                    re = input[first + k];
                    im = sign * input[first + k + plane];
                }
                if row + 1 < count {
                    re -= sign * input[second + k + plane];
                    im += input[second + k];
                }
                set(&mut values, comptime!(round * radix + q), Complex { re, im });
            }
        }
    }
    transform(&mut values, &mut re, &mut im, roots, plan);
    let last = comptime!(plan.last());
    let radix = comptime!(plan.radix(last));
    let each = comptime!(plan.each(last));
    #[unroll]
    for round in 0..comptime!(plan.rounds(plan.count(last))) {
        let id = UNIT_POS + comptime!(round * plan.units);
        if id < comptime!(plan.count(last)) {
            let row = 2 * (pair + (id / each) as usize);
            let first = first_of(id % each, last, plan);
            #[unroll]
            for q in 0..radix {
                let point = (first + comptime!(q * plan.done(last))) as usize;
                let to = row * comptime!(plan.n as usize) + point;
                let a = get(&mut values, comptime!(round * radix + q));
                if row < count {
                    output[to] = scale * a.re;
                }
                if row + 1 < count {
                    output[to + comptime!(plan.n as usize)] = scale * a.im;
                }
            }
        }
    }
}
