//! Fourier transforms on the GPU: a cube holds several lines in shared memory and transforms them by Stockham's
//! method, one stage a radix, without a pass over memory in between.
//!
//! Along x two real rows are the real and the imaginary part of one complex line: the spectrum of either follows by
//! symmetry, for even and odd lengths alike. Along y and z the lines of a cube are neighbours along x.

use std::f64::consts::TAU;

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{Direction, FftOps, dims_of, image_dims, radices, smooth_size, spectrum_dims};
use crate::ops::launch::{UNITS, assert_f32, buffer, empty, upload, wide_address, writable};

/// Stages of the longest line: 2^13.
const STAGES: usize = 13;

/// Complex numbers that a cube holds: 16 a unit, in registers between two stages.
const HELD: usize = 16 * UNITS as usize;

/// Lines that a cube transforms together at most: the numbers of one transaction of memory.
const LINES: usize = 32;

/// Where numbers stand in a cube.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Plan {
    /// Numbers of a line.
    n: u32,
    /// Lines of a cube.
    lines: u32,
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

    fn radix(self, stage: u32) -> u32 {
        self.radices[stage as usize]
    }

    /// The product of the radices before a stage.
    fn done(self, stage: u32) -> u32 {
        self.radices[..stage as usize].iter().product()
    }

    fn held(self) -> u32 {
        self.n * self.lines
    }

    /// Rounds of all units over `count` pieces of work.
    fn rounds(count: u32) -> u32 {
        count.div_ceil(UNITS)
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

/// Where a number of a line stands in shared memory.
#[cube]
fn slot(line: u32, point: u32, #[comptime] plan: Plan) -> usize {
    if comptime!(plan.rows) {
        (line * plan.n + point) as usize
    } else {
        (point * plan.lines + line) as usize
    }
}

/// The line of work number `id`, of `each` pieces a line.
#[cube]
fn line_of(id: u32, #[comptime] each: u32, #[comptime] plan: Plan) -> u32 {
    if comptime!(plan.rows) { id / each } else { id % plan.lines }
}

/// The piece of its line.
#[cube]
fn piece_of(id: u32, #[comptime] each: u32, #[comptime] plan: Plan) -> u32 {
    if comptime!(plan.rows) { id % each } else { id / plan.lines }
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

/// One stage: transforms of `radix` numbers that lie `n / radix` apart, turned by where they stand in the transforms
/// of the stages before.
#[cube]
fn transform_stage(
    re: &mut Shared<[f32]>,
    im: &mut Shared<[f32]>,
    roots: &[f32],
    #[comptime] stage: u32,
    #[comptime] plan: Plan,
) {
    let radix = comptime!(plan.radix(stage));
    let done = comptime!(plan.done(stage));
    let each = comptime!(plan.n / radix);
    let count = comptime!(each * plan.lines);
    let rounds = comptime!(Plan::rounds(count));
    let mut new_re = Array::<f32>::new(comptime!((rounds * radix) as usize));
    let mut new_im = Array::<f32>::new(comptime!((rounds * radix) as usize));
    #[unroll]
    for round in 0..rounds {
        let id = UNIT_POS + comptime!(round * UNITS);
        if id < count {
            let (line, j) = (line_of(id, each, plan), piece_of(id, each, plan));
            let k = j % done;
            let mut x_re = Array::<f32>::new(comptime!(radix as usize));
            let mut x_im = Array::<f32>::new(comptime!(radix as usize));
            #[unroll]
            for q in 0..radix {
                let from = slot(line, j + comptime!(q * each), plan);
                let (a, b) = (re[from], im[from]);
                if comptime!(q == 0 || done == 1) {
                    x_re[comptime!(q as usize)] = a;
                    x_im[comptime!(q as usize)] = b;
                } else {
                    let turn = (k * comptime!(q * (plan.n / (done * radix)))) as usize;
                    let cos = roots[turn];
                    let sin = if comptime!(plan.inverse) {
                        roots[turn + comptime!(plan.n as usize)]
                    } else {
                        -roots[turn + comptime!(plan.n as usize)]
                    };
                    x_re[comptime!(q as usize)] = a * cos - b * sin;
                    x_im[comptime!(q as usize)] = a * sin + b * cos;
                }
            }
            #[unroll]
            for to in 0..radix {
                let mut sum_re = 0.0f32;
                let mut sum_im = 0.0f32;
                #[unroll]
                for q in 0..radix {
                    let a = Complex {
                        re: x_re[comptime!(q as usize)],
                        im: x_im[comptime!(q as usize)],
                    };
                    let term = turned(a, comptime!(q * to), radix, comptime!(plan.inverse));
                    sum_re += term.re;
                    sum_im += term.im;
                }
                new_re[comptime!((round * radix + to) as usize)] = sum_re;
                new_im[comptime!((round * radix + to) as usize)] = sum_im;
            }
        }
    }
    sync_cube();
    #[unroll]
    for round in 0..rounds {
        let id = UNIT_POS + comptime!(round * UNITS);
        if id < count {
            let (line, j) = (line_of(id, each, plan), piece_of(id, each, plan));
            let first = j / done * comptime!(done * radix) + j % done;
            #[unroll]
            for to in 0..radix {
                let at = slot(line, first + comptime!(to * done), plan);
                re[at] = new_re[comptime!((round * radix + to) as usize)];
                im[at] = new_im[comptime!((round * radix + to) as usize)];
            }
        }
    }
    sync_cube();
}

#[cube]
fn transform(
    re: &mut Shared<[f32]>,
    im: &mut Shared<[f32]>,
    roots: &[f32],
    #[comptime] plan: Plan,
) {
    sync_cube();
    #[unroll]
    for stage in 0..comptime!(plan.stages()) {
        transform_stage(re, im, roots, stage, plan);
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
    let mut re = Shared::<[f32]>::new_slice(comptime!(plan.held() as usize));
    let mut im = Shared::<[f32]>::new_slice(comptime!(plan.held() as usize));
    let first = first_line(plan);
    let volume = CUBE_POS_Z as usize * 2 * plane;
    let rounds = comptime!(Plan::rounds(plan.held()));
    #[unroll]
    for round in 0..rounds {
        let id = UNIT_POS + comptime!(round * UNITS);
        if id < comptime!(plan.held()) {
            let (line, point) = (id % plan.lines, id / plan.lines);
            let number = first + line as usize;
            if number < lines {
                let start = number / inner * inner * comptime!(plan.n as usize) + number % inner;
                let from = volume + start + point as usize * inner;
                re[slot(line, point, plan)] = data[from];
                im[slot(line, point, plan)] = data[from + plane];
            }
        }
    }
    transform(&mut re, &mut im, roots, plan);
    #[unroll]
    for round in 0..rounds {
        let id = UNIT_POS + comptime!(round * UNITS);
        if id < comptime!(plan.held()) {
            let (line, point) = (id % plan.lines, id / plan.lines);
            let number = first + line as usize;
            if number < lines {
                let start = number / inner * inner * comptime!(plan.n as usize) + number % inner;
                let to = volume + start + point as usize * inner;
                data[to] = re[slot(line, point, plan)];
                data[to + plane] = im[slot(line, point, plan)];
            }
        }
    }
}

/// Where a row begins in a spectrum of `plane` numbers a part, `rows` rows of `half` a volume.
#[cube]
fn row_of_spectrum(row: usize, rows: usize, plane: usize, half: usize) -> usize {
    row / rows * 2 * plane + row % rows * half
}

/// Rows of real numbers to half their modes; `count` rows in all, `rows` a volume.
#[cube(launch_unchecked, address_type = "dynamic")]
fn real_rows_kernel(
    input: &[f32],
    roots: &[f32],
    output: &mut [f32],
    rows: usize,
    count: usize,
    #[comptime] plan: Plan,
) {
    let mut re = Shared::<[f32]>::new_slice(comptime!(plan.held() as usize));
    let mut im = Shared::<[f32]>::new_slice(comptime!(plan.held() as usize));
    let n = comptime!(plan.n);
    let half = comptime!(plan.n / 2 + 1);
    let first = first_line(plan);
    #[unroll]
    for round in 0..comptime!(Plan::rounds(plan.held())) {
        let id = UNIT_POS + comptime!(round * UNITS);
        if id < comptime!(plan.held()) {
            let (line, point) = (id / n, id % n);
            let row = 2 * (first + line as usize);
            let from = row * comptime!(plan.n as usize) + point as usize;
            let mut a = 0.0f32;
            let mut b = 0.0f32;
            if row < count {
                a = input[from];
            }
            if row + 1 < count {
                b = input[from + comptime!(plan.n as usize)];
            }
            re[slot(line, point, plan)] = a;
            im[slot(line, point, plan)] = b;
        }
    }
    transform(&mut re, &mut im, roots, plan);
    let plane = rows * half as usize;
    #[unroll]
    for round in 0..comptime!(Plan::rounds(half * plan.lines)) {
        let id = UNIT_POS + comptime!(round * UNITS);
        if id < comptime!(half * plan.lines) {
            let (line, k) = (id / half, id % half);
            let row = 2 * (first + line as usize);
            let here = slot(line, k, plan);
            let there = slot(line, (n - k) % n, plan);
            if row < count {
                let to = row_of_spectrum(row, rows, plane, half as usize) + k as usize;
                output[to] = 0.5f32 * (re[here] + re[there]);
                output[to + plane] = 0.5f32 * (im[here] - im[there]);
            }
            if row + 1 < count {
                let to = row_of_spectrum(row + 1, rows, plane, half as usize) + k as usize;
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
    scale: f32,
    #[comptime] plan: Plan,
) {
    let mut re = Shared::<[f32]>::new_slice(comptime!(plan.held() as usize));
    let mut im = Shared::<[f32]>::new_slice(comptime!(plan.held() as usize));
    let n = comptime!(plan.n);
    let half = comptime!(plan.n / 2 + 1);
    let first = first_line(plan);
    let plane = rows * half as usize;
    #[unroll]
    for round in 0..comptime!(Plan::rounds(plan.held())) {
        let id = UNIT_POS + comptime!(round * UNITS);
        if id < comptime!(plan.held()) {
            let (line, point) = (id / n, id % n);
            let row = 2 * (first + line as usize);
            // Modes beyond half the sampling frequency are those below it, mirrored.
            let mirrored = point >= half;
            let k = select(mirrored, n - point, point) as usize;
            let mut sign = select(mirrored, -1.0f32, 1.0f32);
            if point == 0 || 2 * point == n {
                sign = 0.0f32;
            }
            let mut a_re = 0.0f32;
            let mut a_im = 0.0f32;
            let mut b_re = 0.0f32;
            let mut b_im = 0.0f32;
            if row < count {
                let from = row_of_spectrum(row, rows, plane, half as usize) + k;
                a_re = input[from];
                a_im = sign * input[from + plane];
            }
            if row + 1 < count {
                let from = row_of_spectrum(row + 1, rows, plane, half as usize) + k;
                b_re = input[from];
                b_im = sign * input[from + plane];
            }
            re[slot(line, point, plan)] = a_re - b_im;
            im[slot(line, point, plan)] = a_im + b_re;
        }
    }
    transform(&mut re, &mut im, roots, plan);
    #[unroll]
    for round in 0..comptime!(Plan::rounds(plan.held())) {
        let id = UNIT_POS + comptime!(round * UNITS);
        if id < comptime!(plan.held()) {
            let (line, point) = (id / n, id % n);
            let row = 2 * (first + line as usize);
            let to = row * comptime!(plan.n as usize) + point as usize;
            if row < count {
                output[to] = scale * re[slot(line, point, plan)];
            }
            if row + 1 < count {
                output[to + comptime!(plan.n as usize)] = scale * im[slot(line, point, plan)];
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
    let bytes = like.client.properties().hardware.max_shared_memory_size;
    let held = HELD.min(bytes / 8);
    assert!(
        n <= held,
        "fft: an axis of {n} is longer than the {held} numbers that shared memory holds; transform on the CPU"
    );
    let lines = (0..).map(|k| 1 << k).take_while(|lines| lines * n <= held && *lines <= LINES);
    let mut radices = [0; STAGES];
    radices.iter_mut().zip(&found).for_each(|(to, from)| *to = *from as u32);
    let lines = lines.last().expect("one line fits") as u32;
    Plan { n: n as u32, lines, radices, rows, inverse: direction == Direction::Inverse }
}

/// `cos`, then `sin` of the parts of a circle.
fn roots(like: &CubeTensor, n: usize) -> CubeTensor {
    let [cos, sin] = [0, 1].map(|part| (0..n as u32).map(move |k| root(k, n as u32)[part]));
    upload(like, &cos.chain(sin).collect::<Vec<f32>>())
}

/// Cubes for `lines` lines, of `volumes` volumes.
fn cubes(plan: Plan, lines: usize, volumes: usize) -> CubeCount {
    let cubes = lines.div_ceil(plan.lines as usize);
    CubeCount::Static(cubes.min(65535) as u32, cubes.div_ceil(65535) as u32, volumes as u32)
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
            CubeDim::new_1d(UNITS),
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

/// The modes of the rows of a contiguous volume.
fn rows(image: &CubeTensor) -> CubeTensor {
    let dims = dims_of(image.meta.shape());
    let spectrum = empty(image, spectrum_dims(dims));
    let [n, c, d, h, w] = dims;
    let plan = plan(image, w, true, Direction::Forward);
    let count = n * c * d * h;
    unsafe {
        real_rows_kernel::launch_unchecked(
            &image.client,
            cubes(plan, count.div_ceil(2), 1),
            CubeDim::new_1d(UNITS),
            wide_address(&[image, &spectrum]),
            buffer(image),
            buffer(&roots(image, w)),
            buffer(&spectrum),
            d * h,
            count,
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
            CubeDim::new_1d(UNITS),
            wide_address(&[spectrum, &image]),
            buffer(spectrum),
            buffer(&roots(spectrum, w)),
            buffer(&image),
            d * h,
            count,
            scale as f32,
            plan,
        );
    }
    image
}

/// The modes of a contiguous volume.
pub(crate) fn forward(image: &CubeTensor) -> CubeTensor {
    let spectrum = rows(image);
    along(&spectrum, 3, Direction::Forward);
    along(&spectrum, 2, Direction::Forward);
    spectrum
}

/// The volume of a contiguous spectrum, which nothing else holds and which is spent.
pub(crate) fn inverse(spectrum: &CubeTensor, width: usize) -> CubeTensor {
    along(spectrum, 2, Direction::Inverse);
    along(spectrum, 3, Direction::Inverse);
    let [_, _, d, h, _] = dims_of(spectrum.meta.shape());
    inverse_rows(spectrum, width, 1.0 / (d * h * width) as f64)
}

impl FftOps for CubeBackend {
    fn fft_3d(image: FloatTensor<Self>) -> FloatTensor<Self> {
        assert_f32("fft", &[&image]);
        forward(&into_contiguous(image))
    }

    fn inverse_fft_3d(spectrum: FloatTensor<Self>, width: usize) -> FloatTensor<Self> {
        assert_f32("inverse_fft", &[&spectrum]);
        inverse(&writable(spectrum), width)
    }

    fn fft_rows_3d(image: FloatTensor<Self>) -> FloatTensor<Self> {
        assert_f32("fft_rows", &[&image]);
        rows(&into_contiguous(image))
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
