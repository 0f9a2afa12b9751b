//! Fourier transforms on the GPU: a cube transforms several lines by Stockham's method, one stage a radix, without a pass
//! over memory in between. Numbers are in registers; between two stages they change hands through shared memory. The
//! first stage reads where the numbers are, the last writes where they go.
//!
//! Along x two real rows are the real and the imaginary part of one complex line: the spectrum of either follows by
//! symmetry, for even and odd lengths alike. Along y and z the lines of a cube are neighbours along x.
//!
//! Of `M` modes a pass reads and writes `16 M` bytes, of `V` voxels that along x `4 V + 8 M`: both ways some 48 bytes a
//! voxel.

use std::f64::consts::TAU;

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{Direction, FftOps, dims_of, image_dims, radices, smooth_size, spectrum_dims};
use ffdp_kit::cubes::{cubes_in_lines, launched};
use ffdp_kit::launch::{assert_f32, buffer, empty, upload, wide_address, writable};

/// Stages of the longest line: 2^13.
const STAGES: usize = 13;

/// Complex numbers that a unit holds.
const EACH: usize = 16;

/// Complex numbers that a cube holds where that gives it enough lines, and at most.
const HELD: usize = 4096;
const MOST_HELD: usize = 8192;

/// Lines that a cube transforms together at most: the numbers of one transaction of memory; and if lines are long.
const LINES: usize = 32;
const LONG_LINES: usize = 16;

/// Shared memory has an unused word (of each line) after so many: what a stage writes, numbers apart by powers of two,
/// then meets different banks.
const GAP: u32 = 8;

/// Where numbers stand in a cube.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Plan {
    /// Numbers of a line.
    n: u32,
    /// Lines of a cube: a power of two.
    lines: u32,
    /// Units of a cube: a power of two, not fewer than lines.
    units: u32,
    /// The lengths of the transforms, stage by stage; 0 beyond the last.
    radices: [u32; STAGES],
    /// Whether lines are rows: neighbouring units have neighbouring numbers of a line, not neighbouring lines.
    rows: bool,
    inverse: bool,
}

impl Plan {
    fn stages(self) -> u32 {
        self.radices.iter().filter(|&&radix| radix > 0).count() as u32
    }

    fn last(self) -> u32 {
        self.stages() - 1
    }

    fn radix(self, stage: u32) -> u32 {
        self.radices[stage as usize]
    }

    /// The product of the radices before a stage.
    fn done(self, stage: u32) -> u32 {
        self.radices[..stage as usize].iter().product()
    }

    /// Transforms of a stage in a line.
    fn each(self, stage: u32) -> u32 {
        self.n / self.radix(stage)
    }

    /// And in a cube.
    fn count(self, stage: u32) -> u32 {
        self.each(stage) * self.lines
    }

    /// Rounds of all units over `count` pieces of work.
    fn rounds(self, count: u32) -> u32 {
        count.div_ceil(self.units)
    }

    /// Numbers of a unit.
    fn values(self) -> u32 {
        let of = |stage| self.rounds(self.count(stage)) * self.radix(stage);
        (0..self.stages()).map(of).max().unwrap_or(1)
    }

    /// Words of a line in shared memory.
    fn padded(self) -> u32 {
        self.n + self.n / GAP
    }

    fn words(self) -> u32 {
        self.padded() * self.lines
    }
}

/// `cos` and `sin` of `turn` of `of` parts of a circle, exact where they are 0 and 1.
fn root(turn: u32, of: u32) -> [f32; 2] {
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
struct Complex {
    re: f32,
    im: f32,
}

/// The numbers of a unit: for each round those of one transform.
#[derive(CubeType)]
struct Values {
    re: Array<f32>,
    im: Array<f32>,
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
fn get(values: &mut Values, #[comptime] i: u32) -> Complex {
    Complex { re: values.re[comptime!(i as usize)], im: values.im[comptime!(i as usize)] }
}

#[cube]
fn set(values: &mut Values, #[comptime] i: u32, a: Complex) {
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
fn butterfly(
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

/// Where a number of a line stands in shared memory.
#[cube]
fn slot(line: u32, point: u32, #[comptime] plan: Plan) -> usize {
    let point = point + point / GAP;
    if comptime!(plan.rows) {
        (line * comptime!(plan.padded()) + point) as usize
    } else {
        (point * plan.lines + line) as usize
    }
}

/// The line of work number `id`, of `each` pieces a line.
#[cube]
fn line_of(id: u32, #[comptime] each: u32, #[comptime] plan: Plan) -> u32 {
    if comptime!(plan.rows) { id / each } else { UNIT_POS % plan.lines }
}

/// The piece of its line.
#[cube]
fn piece_of(id: u32, #[comptime] each: u32, #[comptime] plan: Plan) -> u32 {
    if comptime!(plan.rows) { id % each } else { id / plan.lines }
}

/// The first number that a transform of a stage gives; the next are `done` apart.
#[cube]
fn first_of(j: u32, #[comptime] stage: u32, #[comptime] plan: Plan) -> u32 {
    let done = comptime!(plan.done(stage));
    j / done * comptime!(done * plan.radix(stage)) + j % done
}

/// The transforms of a stage: of numbers that lie `n / radix` apart, turned by where they stand in the transforms of
/// the stages before.
#[cube]
fn transform_stage(
    values: &mut Values,
    roots: &[f32],
    #[comptime] stage: u32,
    #[comptime] plan: Plan,
) {
    let radix = comptime!(plan.radix(stage));
    let done = comptime!(plan.done(stage));
    #[unroll]
    for round in 0..comptime!(plan.rounds(plan.count(stage))) {
        if comptime!(done > 1) {
            let id = UNIT_POS + comptime!(round * plan.units);
            let k = piece_of(id, comptime!(plan.each(stage)), plan) % done;
            #[unroll]
            for q in 1..radix {
                let at = comptime!(round * radix + q);
                let turn = (k * comptime!(q * (plan.n / (done * radix)))) as usize;
                let cos = roots[turn];
                let sin = if comptime!(plan.inverse) {
                    roots[turn + comptime!(plan.n as usize)]
                } else {
                    -roots[turn + comptime!(plan.n as usize)]
                };
                let a = get(values, at);
                set(
                    values,
                    at,
                    Complex { re: a.re * cos - a.im * sin, im: a.re * sin + a.im * cos },
                );
            }
        }
        butterfly(values, comptime!(round * radix), radix, comptime!(plan.inverse));
    }
}

/// What a stage gave, to shared memory.
#[cube]
fn scatter(
    values: &mut Values,
    re: &mut Shared<[f32]>,
    im: &mut Shared<[f32]>,
    #[comptime] stage: u32,
    #[comptime] plan: Plan,
) {
    let radix = comptime!(plan.radix(stage));
    let each = comptime!(plan.each(stage));
    #[unroll]
    for round in 0..comptime!(plan.rounds(plan.count(stage))) {
        let id = UNIT_POS + comptime!(round * plan.units);
        if id < comptime!(plan.count(stage)) {
            let line = line_of(id, each, plan);
            let first = first_of(piece_of(id, each, plan), stage, plan);
            #[unroll]
            for to in 0..radix {
                let at = slot(line, first + comptime!(to * plan.done(stage)), plan);
                let a = get(values, comptime!(round * radix + to));
                re[at] = a.re;
                im[at] = a.im;
            }
        }
    }
}

/// What a stage needs, from shared memory.
#[cube]
fn collect(
    values: &mut Values,
    re: &mut Shared<[f32]>,
    im: &mut Shared<[f32]>,
    #[comptime] stage: u32,
    #[comptime] plan: Plan,
) {
    let radix = comptime!(plan.radix(stage));
    let each = comptime!(plan.each(stage));
    #[unroll]
    for round in 0..comptime!(plan.rounds(plan.count(stage))) {
        let id = UNIT_POS + comptime!(round * plan.units);
        if id < comptime!(plan.count(stage)) {
            let (line, j) = (line_of(id, each, plan), piece_of(id, each, plan));
            #[unroll]
            for q in 0..radix {
                let from = slot(line, j + comptime!(q * each), plan);
                set(values, comptime!(round * radix + q), Complex { re: re[from], im: im[from] });
            }
        }
    }
}

/// All stages, of what the first needs to what the last gave.
#[cube]
fn transform(
    values: &mut Values,
    re: &mut Shared<[f32]>,
    im: &mut Shared<[f32]>,
    roots: &[f32],
    #[comptime] plan: Plan,
) {
    transform_stage(values, roots, comptime!(0u32), plan);
    #[unroll]
    for stage in 1..comptime!(plan.stages()) {
        scatter(values, re, im, comptime!(stage - 1), plan);
        sync_cube();
        collect(values, re, im, stage, plan);
        // Before the next are written.
        sync_cube();
        transform_stage(values, roots, stage, plan);
    }
}

#[cube]
fn no_values(#[comptime] plan: Plan) -> Values {
    Values {
        re: Array::<f32>::new(comptime!(plan.values() as usize)),
        im: Array::<f32>::new(comptime!(plan.values() as usize)),
    }
}

/// The number of the first line of the cube.
#[cube]
fn first_line(#[comptime] plan: Plan) -> usize {
    (CUBE_POS_Y as usize * CUBE_COUNT_X as usize + CUBE_POS_X as usize)
        * comptime!(plan.lines as usize)
}

/// Along y (`inner = W'`) or z (`inner = H W'`), in place: `data` `[volumes, 2, outer, n, inner]`, `plane` numbers
/// a part, `lines` a volume.
#[cube(launch_unchecked, address_type = "dynamic")]
fn lines_kernel(
    data: &mut [f32],
    roots: &[f32],
    plane: usize,
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
                let a = Complex { re: data[from], im: data[from + plane] };
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
                data[at] = a.re;
                data[at + plane] = a.im;
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
fn real_rows_kernel(
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
fn modes_kernel(
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

/// What a transform along an axis of `n` takes on the device of `like`.
fn plan(like: &CubeTensor, n: usize, rows: bool, direction: Direction) -> Plan {
    let found = radices(n).unwrap_or_else(|| {
        panic!(
            "fft: on a GPU the length of an axis must be a product of 2, 3, 5 and 7, got {n}; \
             pad it to {}, or transform on the CPU",
            smooth_size(n)
        )
    });
    let hardware = &like.client.properties().hardware;
    // Both parts of a line, with the gaps.
    let fitting = hardware.max_shared_memory_size / (8 * (n + n / GAP as usize));
    let most = fitting.min(MOST_HELD / n);
    assert!(
        most > 0,
        "fft: an axis of {n} is longer than shared memory, or {MOST_HELD}; transform on the CPU"
    );
    let wanted = if rows { HELD / n } else { (HELD / n).max(LONG_LINES) };
    let wanted = wanted.clamp(1, LINES).min(most);
    // The powers of two that are not larger.
    let lines = 1usize << wanted.ilog2();
    let units = (n * lines).div_ceil(EACH).next_power_of_two().max(lines);
    let units = units.max(32).min(1 << (hardware.max_units_per_cube as usize).ilog2());
    let mut radices = [0; STAGES];
    radices[0] = 1;
    radices.iter_mut().zip(&found).for_each(|(to, from)| *to = *from as u32);
    Plan {
        n: n as u32,
        lines: lines as u32,
        units: units as u32,
        radices,
        rows,
        inverse: direction == Direction::Inverse,
    }
}

/// `cos`, then `sin` of the parts of a circle.
fn roots(like: &CubeTensor, n: usize) -> CubeTensor {
    let [cos, sin] = [0, 1].map(|part| (0..n as u32).map(move |k| root(k, n as u32)[part]));
    upload(like, &cos.chain(sin).collect::<Vec<f32>>())
}

/// Cubes for `lines` lines, of `volumes` volumes.
fn cubes(plan: Plan, lines: usize, volumes: usize) -> CubeCount {
    let [x, y] = cubes_in_lines(lines.div_ceil(plan.lines as usize));
    launched([x, y, volumes as u32])
}

/// Transforms a spectrum along y, `axis` 3, or z, 2, in place.
fn along(spectrum: &CubeTensor, axis: usize, direction: Direction) {
    let [n, c, d, h, half] = dims_of(spectrum.meta.shape());
    let len = [d, h][axis - 2];
    if len == 1 {
        return;
    }
    let plan = plan(spectrum, len, false, direction);
    let (plane, inner) = (d * h * half, if axis == 2 { h * half } else { half });
    let lines = plane / len;
    unsafe {
        lines_kernel::launch_unchecked(
            &spectrum.client,
            cubes(plan, lines, n * c / 2),
            CubeDim::new_1d(plan.units),
            wide_address(&[spectrum]),
            buffer(spectrum),
            buffer(&roots(spectrum, len)),
            plane,
            inner,
            lines,
            plan,
        );
    }
}

/// The modes of the rows of a contiguous volume; the rows of the result lie `pitch` apart.
fn rows(image: &CubeTensor, pitch: usize) -> CubeTensor {
    let dims = dims_of(image.meta.shape());
    let mut of_spectrum = spectrum_dims(dims);
    of_spectrum[4] = pitch;
    let spectrum = empty(image, of_spectrum);
    let [n, c, d, h, w] = dims;
    let plan = plan(image, w, true, Direction::Forward);
    let count = n * c * d * h;
    unsafe {
        real_rows_kernel::launch_unchecked(
            &image.client,
            cubes(plan, count.div_ceil(2), 1),
            CubeDim::new_1d(plan.units),
            wide_address(&[image, &spectrum]),
            buffer(image),
            buffer(&roots(image, w)),
            buffer(&spectrum),
            d * h,
            count,
            pitch,
            plan,
        );
    }
    spectrum
}

/// The rows with these modes, times `scale`.
fn inverse_rows(spectrum: &CubeTensor, width: usize, scale: f64) -> CubeTensor {
    let dims = image_dims(dims_of(spectrum.meta.shape()), width);
    let image = empty(spectrum, dims);
    let [n, c, d, h, w] = dims;
    let plan = plan(spectrum, w, true, Direction::Inverse);
    let count = n * c * d * h;
    unsafe {
        modes_kernel::launch_unchecked(
            &image.client,
            cubes(plan, count.div_ceil(2), 1),
            CubeDim::new_1d(plan.units),
            wide_address(&[spectrum, &image]),
            buffer(spectrum),
            buffer(&roots(spectrum, w)),
            buffer(&image),
            d * h,
            count,
            dims_of(spectrum.meta.shape())[4],
            scale as f32,
            plan,
        );
    }
    image
}

/// Numbers that a row of modes is filled up to where nobody else sees it: reads of several lines then are whole
/// sectors of memory.
pub(crate) fn pitch(width: usize) -> usize {
    let half = width / 2 + 1;
    if half < 32 { half } else { half.next_multiple_of(8) }
}

/// The modes of a contiguous volume; its rows lie `pitch` apart.
pub(crate) fn forward(image: &CubeTensor, pitch: usize) -> CubeTensor {
    let spectrum = rows(image, pitch);
    along(&spectrum, 3, Direction::Forward);
    along(&spectrum, 2, Direction::Forward);
    spectrum
}

/// The volume of a contiguous spectrum, of any pitch, which nothing else holds and which is spent.
pub(crate) fn inverse(spectrum: &CubeTensor, width: usize) -> CubeTensor {
    along(spectrum, 2, Direction::Inverse);
    along(spectrum, 3, Direction::Inverse);
    let [_, _, d, h, _] = dims_of(spectrum.meta.shape());
    inverse_rows(spectrum, width, 1.0 / (d * h * width) as f64)
}

impl FftOps for CubeBackend {
    fn fft_3d(image: FloatTensor<Self>) -> FloatTensor<Self> {
        assert_f32("fft", &[&image]);
        let image = into_contiguous(image);
        let width = image.meta.shape()[4];
        forward(&image, width / 2 + 1)
    }

    fn inverse_fft_3d(spectrum: FloatTensor<Self>, width: usize) -> FloatTensor<Self> {
        assert_f32("inverse_fft", &[&spectrum]);
        inverse(&writable(spectrum), width)
    }

    fn fft_rows_3d(image: FloatTensor<Self>) -> FloatTensor<Self> {
        assert_f32("fft_rows", &[&image]);
        let image = into_contiguous(image);
        let width = image.meta.shape()[4];
        rows(&image, width / 2 + 1)
    }

    fn inverse_fft_rows_3d(
        spectrum: FloatTensor<Self>,
        width: usize,
        scale: f64,
    ) -> FloatTensor<Self> {
        assert_f32("inverse_fft_rows", &[&spectrum]);
        inverse_rows(&into_contiguous(spectrum), width, scale)
    }

    fn fft_lines_3d(
        spectrum: FloatTensor<Self>,
        axis: usize,
        direction: Direction,
    ) -> FloatTensor<Self> {
        assert_f32("fft_lines", &[&spectrum]);
        let spectrum = writable(spectrum);
        along(&spectrum, axis, direction);
        spectrum
    }
}
