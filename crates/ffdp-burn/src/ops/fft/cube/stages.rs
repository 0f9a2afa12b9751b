//! The stages of the lines of a cube: numbers change hands through shared memory between two of them.

use cubecl::prelude::*;

use super::butterfly::{Complex, Values, butterfly, get, set};
use super::plan::{GAP, Plan};

/// Where a number of a line stands in shared memory.
#[cube]
pub(super) fn slot(line: u32, point: u32, #[comptime] plan: Plan) -> usize {
    let point = point + point / GAP;
    if comptime!(plan.rows) {
        (line * comptime!(plan.padded()) + point) as usize
    } else {
        (point * plan.lines + line) as usize
    }
}

/// The line of work number `id`, of `each` pieces a line.
#[cube]
pub(super) fn line_of(id: u32, #[comptime] each: u32, #[comptime] plan: Plan) -> u32 {
    if comptime!(plan.rows) { id / each } else { UNIT_POS % plan.lines }
}

/// The piece of its line.
#[cube]
pub(super) fn piece_of(id: u32, #[comptime] each: u32, #[comptime] plan: Plan) -> u32 {
    if comptime!(plan.rows) { id % each } else { id / plan.lines }
}

/// The first number that a transform of a stage gives; the next are `done` apart.
#[cube]
pub(super) fn first_of(j: u32, #[comptime] stage: u32, #[comptime] plan: Plan) -> u32 {
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
pub(super) fn scatter(
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
pub(super) fn transform(
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
pub(super) fn no_values(#[comptime] plan: Plan) -> Values {
    Values {
        re: Array::<f32>::new(comptime!(plan.values() as usize)),
        im: Array::<f32>::new(comptime!(plan.values() as usize)),
    }
}

/// The number of the first line of the cube.
#[cube]
pub(super) fn first_line(#[comptime] plan: Plan) -> usize {
    (CUBE_POS_Y as usize * CUBE_COUNT_X as usize + CUBE_POS_X as usize)
        * comptime!(plan.lines as usize)
}
