//! The kernels: tiles of prepared columns in shared memory, several rows a unit; blocked and compensated sums.
//!
//! A cube owns [`UNITS`] times `plan.per_unit` rows and a share of the columns. What several shares found of a row is
//! joined by a second kernel.

use cubecl::prelude::*;

use super::stage::{Code, PairValues, Part, log2, power_of_two, run};
use crate::reduce::Reduction;

/// Units of a cube.
pub const UNITS: u32 = 128;

/// Columns whose values are taken at once: a log-sum-exp rescales its sum once for them, a sum saves tests of its loop.
const TOGETHER: usize = 4;

/// Steps of all rows of a unit up to which sums take several columns.
const SHORT: usize = 200;

/// Below all values, and a number: differences of it are numbers.
const LOWEST: f32 = -1.0e37;

/// What is fixed when a kernel is compiled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    pub code: Code,
    pub reduction: Reduction,
    /// Rows of a unit.
    pub per_unit: usize,
    /// Columns of a tile.
    pub tile: usize,
    /// Whether rows and columns are those of a table.
    pub ranged: bool,
    /// Whether the columns are shared by several cubes, so that the result is not yet ended.
    pub shared: bool,
}

impl Plan {
    /// Columns whose values are taken at once.
    fn together(&self) -> usize {
        let short = self.code.program.pair.steps.len() * self.per_unit <= SHORT;
        match self.reduction {
            Reduction::Nearest { .. } => 1,
            Reduction::Sum if !short => 1,
            _ => TOGETHER,
        }
    }

    fn row_values(&self) -> usize {
        self.code.program.row.results.len()
    }

    /// Numbers that a row keeps from block to block: sums and what they lost, or a maximum and a sum.
    fn states(&self) -> usize {
        match self.reduction {
            Reduction::Sum => 2 * self.code.terms(),
            Reduction::LogSumExp => 2,
            Reduction::Nearest { count } => 2 * count,
        }
    }

    /// Numbers that a cube hands on for a row, if others have a share in it.
    pub fn handed(&self) -> usize {
        match self.reduction {
            Reduction::Sum => self.code.terms(),
            _ => 2,
        }
    }

    fn width(&self) -> usize {
        match self.reduction {
            Reduction::Sum => self.code.program.end.results.len(),
            _ => 1,
        }
    }

    fn outputs(&self) -> usize {
        if self.shared { self.handed() } else { self.width() }
    }
}

/// `sum += term`, compensated: `at` is the sum's place, what it lost stands at the next.
#[cube]
fn add_compensated(states: &mut Array<f32>, term: f32, #[comptime] at: usize) {
    let corrected = term - states[comptime!(at + 1)];
    let sum = states[at] + corrected;
    states[comptime!(at + 1)] = (sum - states[at]) - corrected;
    states[at] = sum;
}

/// Takes one more share of a log-sum-exp into the maximum and the sum at `at`.
#[cube]
fn join_exponentials(
    states: &mut Array<f32>,
    largest: f32,
    sum: f32,
    #[comptime] at: usize,
    #[comptime] ptx: bool,
) {
    let before = states[at];
    let now = max(before, largest);
    let kept = states[comptime!(at + 1)] * power_of_two(before - now, ptx);
    states[comptime!(at + 1)] = kept + sum * power_of_two(largest - now, ptx);
    states[at] = now;
}

/// The row stage's results of `per_unit` rows, `UNITS` apart.
#[cube]
fn rows_of(
    a: &[f32],
    b: &[f32],
    c: &[f32],
    d: &[f32],
    e: &[f32],
    f: &[f32],
    g: &[f32],
    h: &[f32],
    first: u32,
    stop: u32,
    #[comptime] plan: Plan,
) -> Sequence<f32> {
    let nothing =
        PairValues { rows: Sequence::new(), columns: Sequence::new(), sums: Sequence::new() };
    let mut rows = Sequence::<f32>::new();
    #[unroll]
    for r in 0..comptime!(plan.per_unit) {
        // Those beyond the end repeat the last.
        let row = min(first + comptime!(r as u32 * UNITS), stop - 1);
        let code = comptime!(plan.code.clone());
        run(a, b, c, d, e, f, g, h, row as usize, &nothing, &mut rows, code, Part::Row, 0usize);
    }
    rows
}

/// The columns' numbers of a place in the tile.
#[cube]
fn columns_at(
    tile: &Shared<[Vector<f32, Const<4>>]>,
    column: u32,
    columns: &mut Sequence<f32>,
    #[comptime] plan: Plan,
) {
    let vectors = comptime!(plan.code.vectors());
    #[unroll]
    for v in 0..vectors {
        let four = tile[column as usize * vectors + v];
        #[unroll]
        for k in 0..4usize {
            if comptime!(4 * v + k < plan.code.program.column.results.len()) {
                columns.push(four.extract(k));
            }
        }
    }
}

/// Reduces `TOGETHER` or fewer columns of the tile into the states of all rows.
#[cube]
fn absorb(
    dummy: &[f32],
    tile: &Shared<[Vector<f32, Const<4>>]>,
    first: u32,
    offset: u32,
    rows: &Sequence<f32>,
    partial: &mut Array<f32>,
    states: &mut Array<f32>,
    places: &mut Array<i32>,
    #[comptime] count: usize,
    #[comptime] plan: Plan,
) {
    let mut all = Sequence::<PairValues>::new();
    #[unroll]
    for j in 0..count {
        let mut columns = Sequence::<f32>::new();
        columns_at(tile, first + comptime!(j as u32), &mut columns, comptime!(plan.clone()));
        all.push(PairValues { rows: rows.clone(), columns, sums: Sequence::new() });
    }
    #[unroll]
    for r in 0..comptime!(plan.per_unit) {
        let mut values = Sequence::<f32>::new();
        #[unroll]
        for j in 0..count {
            let code = comptime!(plan.code.clone());
            run(
                dummy,
                dummy,
                dummy,
                dummy,
                dummy,
                dummy,
                dummy,
                dummy,
                0usize,
                &all[j],
                &mut values,
                code,
                Part::Pair,
                comptime!(r * plan.row_values()),
            );
        }
        let terms = comptime!(plan.code.terms());
        if comptime!(plan.reduction == Reduction::Sum) {
            #[unroll]
            for j in 0..count {
                #[unroll]
                for k in 0..terms {
                    partial[comptime!(r * terms + k)] += values[comptime!(j * terms + k)];
                }
            }
        } else if comptime!(plan.reduction == Reduction::LogSumExp) {
            let ptx = comptime!(plan.code.ptx);
            let before = states[comptime!(2 * r)];
            let mut now = before;
            #[unroll]
            for j in 0..count {
                now = max(now, values[j]);
            }
            let mut sum = states[comptime!(2 * r + 1)] * power_of_two(before - now, ptx);
            #[unroll]
            for j in 0..count {
                sum += power_of_two(values[j] - now, ptx);
            }
            states[comptime!(2 * r)] = now;
            states[comptime!(2 * r + 1)] = sum;
        } else {
            insert(states, places, values[0], (offset + first) as i32, comptime!(plan.clone()));
        }
    }
}

/// Puts a value among the smallest, in order.
#[cube]
fn insert(
    states: &mut Array<f32>,
    places: &mut Array<i32>,
    value: f32,
    column: i32,
    #[comptime] plan: Plan,
) {
    let count = comptime!(plan.states() / 2);
    if value < states[comptime!(count - 1)] {
        let mut value = value;
        let mut column = column;
        #[unroll]
        for k in 0..count {
            let smaller = value < states[k];
            let (known, place) = (states[k], places[k]);
            states[k] = select(smaller, value, known);
            places[k] = select(smaller, column, place);
            value = select(smaller, known, value);
            column = select(smaller, place, column);
        }
    }
}

/// Reductions of `UNITS * per_unit` rows over `start..stop` or the ranges of a table.
///
/// `table` holds, for every cube, its first row, the row after its last, the place of its first range and their number;
/// then the ranges, first column and the one after the last.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn reduce_kernel(
    a: &[f32],
    b: &[f32],
    c: &[f32],
    d: &[f32],
    e: &[f32],
    f: &[f32],
    g: &[f32],
    h: &[f32],
    table: &[u32],
    output: &mut [f32],
    nearest: &mut [i32],
    rows: u32,
    columns: u32,
    share: u32,
    #[comptime] plan: Plan,
) {
    let (per_unit, terms) = comptime!((plan.per_unit, plan.code.terms()));
    let vectors = comptime!(plan.code.vectors());
    let mut first_row = CUBE_POS_X * comptime!(UNITS * per_unit as u32);
    let mut stop_row = rows;
    let mut first_range = 0u32;
    let mut ranges = 1u32;
    if comptime!(plan.ranged) {
        let entry = CUBE_POS_X as usize * 4usize;
        first_row = table[entry];
        stop_row = table[entry + 1];
        first_range = table[entry + 2];
        ranges = table[entry + 3];
    }
    let own_row = first_row + UNIT_POS;
    let code = comptime!(plan.code.clone());
    let row_values = rows_of(a, b, c, d, e, f, g, h, own_row, stop_row, comptime!(plan.clone()));

    let mut tile =
        Shared::<[Vector<f32, Const<4>>]>::new_slice(comptime!(plan.tile * plan.code.vectors()));
    let mut partial = Array::<f32>::new(comptime!(per_unit * terms));
    let mut states = Array::<f32>::new(comptime!(per_unit * plan.states()));
    let mut places = Array::<i32>::new(comptime!(plan.states()));
    #[unroll]
    for k in 0..comptime!(per_unit * plan.states()) {
        let initial = comptime!(match plan.reduction {
            Reduction::LogSumExp if k % 2 == 0 => LOWEST,
            Reduction::Nearest { .. } => f32::MAX,
            _ => 0.0,
        });
        states[k] = f32::new(initial);
    }
    #[unroll]
    for k in 0..comptime!(plan.states()) {
        places[k] = -1i32;
    }

    for range in 0..ranges {
        let mut start = CUBE_POS_Y * share;
        let mut stop = min(start + share, columns);
        if comptime!(plan.ranged) {
            let entry = (first_range + 2 * range) as usize;
            start = table[entry];
            stop = table[entry + 1];
        }
        while start < stop {
            let count = min(stop - start, comptime!(plan.tile as u32));
            sync_cube();
            let mut column = UNIT_POS;
            while column < count {
                let nothing = PairValues {
                    rows: Sequence::new(),
                    columns: Sequence::new(),
                    sums: Sequence::new(),
                };
                let mut handed = Sequence::<f32>::new();
                let at = (start + column) as usize;
                let code = comptime!(plan.code.clone());
                run(a, b, c, d, e, f, g, h, at, &nothing, &mut handed, code, Part::Column, 0usize);
                #[unroll]
                for v in 0..vectors {
                    let mut four = Vector::<f32, Const<4>>::new(0.0f32);
                    #[unroll]
                    for k in 0..4usize {
                        if comptime!(4 * v + k < plan.code.program.column.results.len()) {
                            four.insert(k, handed[comptime!(4 * v + k)]);
                        }
                    }
                    tile[column as usize * vectors + v] = four;
                }
                column += UNITS;
            }
            sync_cube();
            #[unroll]
            for k in 0..comptime!(per_unit * terms) {
                partial[k] = 0.0f32;
            }
            let together = comptime!(plan.together());
            let mut j = 0u32;
            while j + comptime!(together as u32) <= count {
                absorb(
                    a,
                    &tile,
                    j,
                    start,
                    &row_values,
                    &mut partial,
                    &mut states,
                    &mut places,
                    together,
                    comptime!(plan.clone()),
                );
                j += comptime!(together as u32);
            }
            if comptime!(together > 1) {
                while j < count {
                    absorb(
                        a,
                        &tile,
                        j,
                        start,
                        &row_values,
                        &mut partial,
                        &mut states,
                        &mut places,
                        1usize,
                        comptime!(plan.clone()),
                    );
                    j += 1;
                }
            }
            if comptime!(plan.reduction == Reduction::Sum) {
                #[unroll]
                for k in 0..comptime!(per_unit * terms) {
                    add_compensated(&mut states, partial[k], comptime!(2 * k));
                }
            }
            start += comptime!(plan.tile as u32);
        }
    }

    #[unroll]
    for r in 0..per_unit {
        let row = own_row + comptime!(r as u32 * UNITS);
        if row < stop_row {
            let at = CUBE_POS_Y as usize * rows as usize + row as usize;
            if comptime!(matches!(plan.reduction, Reduction::Nearest { .. })) {
                let count = comptime!(plan.states() / 2);
                #[unroll]
                for k in 0..count {
                    nearest[at * count + k] = places[k];
                }
            } else {
                let mut own = Array::<f32>::new(comptime!(plan.states()));
                #[unroll]
                for k in 0..comptime!(plan.states()) {
                    own[k] = states[comptime!(r * plan.states() + k)];
                }
                let plan = comptime!(plan.clone());
                let known = comptime!(r * plan.row_values());
                write(a, &own, &row_values, output, at, known, comptime!(plan.clone()));
            }
        }
    }
    let _ = code;
}

/// Writes a row's result, or its share of it.
#[cube]
fn write(
    dummy: &[f32],
    states: &Array<f32>,
    row_values: &Sequence<f32>,
    output: &mut [f32],
    row: usize,
    #[comptime] first_row: usize,
    #[comptime] plan: Plan,
) {
    let outputs = comptime!(plan.outputs());
    let to = row * outputs;
    if comptime!(plan.reduction == Reduction::LogSumExp) {
        if comptime!(plan.shared) {
            output[to] = states[0];
            output[to + 1] = states[1];
        } else {
            let log = states[0] + log2(states[1], comptime!(plan.code.ptx));
            output[to] = log * comptime!(std::f32::consts::LN_2);
        }
    } else if comptime!(plan.shared) {
        #[unroll]
        for k in 0..outputs {
            output[to + k] = states[comptime!(2 * k)];
        }
    } else {
        let mut sums = Sequence::<f32>::new();
        #[unroll]
        for k in 0..comptime!(plan.code.terms()) {
            sums.push(states[comptime!(2 * k)]);
        }
        let known = PairValues { rows: row_values.clone(), columns: Sequence::new(), sums };
        let mut ended = Sequence::<f32>::new();
        let code = comptime!(plan.code.clone());
        run(
            dummy,
            dummy,
            dummy,
            dummy,
            dummy,
            dummy,
            dummy,
            dummy,
            0usize,
            &known,
            &mut ended,
            code,
            Part::End,
            first_row,
        );
        #[unroll]
        for k in 0..outputs {
            output[to + k] = ended[k];
        }
    }
}

/// Joins the shares of the columns, `[shares, rows, handed]`; a unit a row.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn join_kernel(
    a: &[f32],
    b: &[f32],
    c: &[f32],
    d: &[f32],
    e: &[f32],
    f: &[f32],
    g: &[f32],
    h: &[f32],
    parts: &[f32],
    output: &mut [f32],
    rows: u32,
    shares: u32,
    #[comptime] plan: Plan,
) {
    let row = ABSOLUTE_POS_X;
    if row >= rows {
        terminate!();
    }
    let row_values = rows_of(a, b, c, d, e, f, g, h, row, rows, comptime!(plan.clone()));
    let mut states = Array::<f32>::new(comptime!(plan.states()));
    #[unroll]
    for k in 0..comptime!(plan.states()) {
        let is_log = comptime!(plan.reduction == Reduction::LogSumExp && k == 0);
        states[k] = f32::new(comptime!(if is_log { LOWEST } else { 0.0 }));
    }
    let handed = comptime!(plan.handed());
    for share in 0..shares {
        let at = (share as usize * rows as usize + row as usize) * handed;
        if comptime!(plan.reduction == Reduction::LogSumExp) {
            let ptx = comptime!(plan.code.ptx);
            join_exponentials(&mut states, parts[at], parts[at + 1], 0usize, ptx);
        } else {
            #[unroll]
            for k in 0..handed {
                add_compensated(&mut states, parts[at + k], comptime!(2 * k));
            }
        }
    }
    write(a, &states, &row_values, output, row as usize, 0usize, comptime!(plan.clone()));
}
