//! The transform of a few numbers that a unit holds in registers.

use std::f64::consts::TAU;

use cubecl::prelude::*;

/// `cos` and `sin` of `turn` of `of` parts of a circle, exact where they are 0 and 1.
pub(super) fn root(turn: u32, of: u32) -> [f32; 2] {
    let turn = turn % of;
    if (4 * turn).is_multiple_of(of) {
        return [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]][(4 * turn / of) as usize];
    }
    let angle = TAU * f64::from(turn) / f64::from(of);
    [angle.cos() as f32, angle.sin() as f32]
}

fn is_zero(value: f32) -> bool {
    value == 0.0
}

#[derive(CubeType, Clone, Copy)]
pub(super) struct Complex {
    pub re: f32,
    pub im: f32,
}

/// The numbers of a unit: for each round those of one transform.
#[derive(CubeType)]
pub(super) struct Values {
    pub re: Array<f32>,
    pub im: Array<f32>,
}

#[cube]
fn plus(a: &Complex, b: &Complex) -> Complex {
    Complex { re: a.re + b.re, im: a.im + b.im }
}

#[cube]
fn minus(a: &Complex, b: &Complex) -> Complex {
    Complex { re: a.re - b.re, im: a.im - b.im }
}

#[cube]
pub(super) fn get(values: &mut Values, #[comptime] i: u32) -> Complex {
    Complex { re: values.re[comptime!(i as usize)], im: values.im[comptime!(i as usize)] }
}

#[cube]
pub(super) fn set(values: &mut Values, #[comptime] i: u32, a: Complex) {
    values.re[comptime!(i as usize)] = a.re;
    values.im[comptime!(i as usize)] = a.im;
}

/// `a exp(-+ 2 pi i turn / of)`.
#[cube]
fn turned(
    a: Complex,
    #[comptime] turn: u32,
    #[comptime] of: u32,
    #[comptime] inverse: bool,
) -> Complex {
    let cos = comptime!(root(turn, of)[0]);
    let sin = comptime!(if inverse { root(turn, of)[1] } else { -root(turn, of)[1] });
    if comptime!(is_zero(sin)) {
        Complex { re: a.re * cos, im: a.im * cos }
    } else if comptime!(is_zero(cos)) {
        Complex { re: -a.im * sin, im: a.re * sin }
    } else {
        Complex { re: a.re * cos - a.im * sin, im: a.re * sin + a.im * cos }
    }
}

#[derive(CubeType, Clone, Copy)]
struct Four {
    a: Complex,
    b: Complex,
    c: Complex,
    d: Complex,
}

/// The transform of four numbers.
#[cube]
fn four(a: &Complex, b: &Complex, c: &Complex, d: &Complex, #[comptime] inverse: bool) -> Four {
    let even = plus(a, c);
    let odd = plus(b, d);
    let rest = minus(a, c);
    let quarter = turned(minus(b, d), comptime!(1u32), comptime!(4u32), inverse);
    Four {
        a: plus(&even, &odd),
        b: plus(&rest, &quarter),
        c: minus(&even, &odd),
        d: minus(&rest, &quarter),
    }
}

/// The transform of `radix` numbers from number `at` on, in place.
#[cube]
pub(super) fn butterfly(
    values: &mut Values,
    #[comptime] at: u32,
    #[comptime] radix: u32,
    #[comptime] inverse: bool,
) {
    if comptime!(radix == 2) {
        let x0 = get(values, at);
        let x1 = get(values, comptime!(at + 1));
        set(values, at, plus(&x0, &x1));
        set(values, comptime!(at + 1), minus(&x0, &x1));
    } else if comptime!(radix == 4) {
        let x0 = get(values, at);
        let x1 = get(values, comptime!(at + 1));
        let x2 = get(values, comptime!(at + 2));
        let x3 = get(values, comptime!(at + 3));
        let of = four(&x0, &x1, &x2, &x3, inverse);
        set(values, at, of.a);
        set(values, comptime!(at + 1), of.b);
        set(values, comptime!(at + 2), of.c);
        set(values, comptime!(at + 3), of.d);
    } else if comptime!(radix == 8) {
        let x0 = get(values, at);
        let x1 = get(values, comptime!(at + 1));
        let x2 = get(values, comptime!(at + 2));
        let x3 = get(values, comptime!(at + 3));
        let x4 = get(values, comptime!(at + 4));
        let x5 = get(values, comptime!(at + 5));
        let x6 = get(values, comptime!(at + 6));
        let x7 = get(values, comptime!(at + 7));
        let even = four(&x0, &x2, &x4, &x6, inverse);
        let odd = four(&x1, &x3, &x5, &x7, inverse);
        let o0 = odd.a;
        let o1 = turned(odd.b, comptime!(1u32), comptime!(8u32), inverse);
        let o2 = turned(odd.c, comptime!(2u32), comptime!(8u32), inverse);
        let o3 = turned(odd.d, comptime!(3u32), comptime!(8u32), inverse);
        set(values, at, plus(&even.a, &o0));
        set(values, comptime!(at + 1), plus(&even.b, &o1));
        set(values, comptime!(at + 2), plus(&even.c, &o2));
        set(values, comptime!(at + 3), plus(&even.d, &o3));
        set(values, comptime!(at + 4), minus(&even.a, &o0));
        set(values, comptime!(at + 5), minus(&even.b, &o1));
        set(values, comptime!(at + 6), minus(&even.c, &o2));
        set(values, comptime!(at + 7), minus(&even.d, &o3));
    } else {
        // By its definition.
        let mut new_re = Array::<f32>::new(comptime!(radix as usize));
        let mut new_im = Array::<f32>::new(comptime!(radix as usize));
        #[unroll]
        for to in 0..radix {
            let mut sum_re = 0.0f32;
            let mut sum_im = 0.0f32;
            #[unroll]
            for q in 0..radix {
                let term =
                    turned(get(values, comptime!(at + q)), comptime!(q * to), radix, inverse);
                sum_re += term.re;
                sum_im += term.im;
            }
            new_re[comptime!(to as usize)] = sum_re;
            new_im[comptime!(to as usize)] = sum_im;
        }
        #[unroll]
        for to in 0..radix {
            let a =
                Complex { re: new_re[comptime!(to as usize)], im: new_im[comptime!(to as usize)] };
            set(values, comptime!(at + to), a);
        }
    }
}
