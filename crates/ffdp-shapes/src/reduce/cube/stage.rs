//! The stages of a formula as straight-line code of a kernel.

use std::sync::Arc;

use cubecl::prelude::*;

use crate::formula::program::{Operand, Program, Stage};
use crate::formula::{Op, Role};

/// What a kernel is compiled for: the formula, and whether the device speaks PTX, in which powers and roots are single
/// instructions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Code {
    pub program: Arc<Program>,
    pub ptx: bool,
}

impl Code {
    /// Vectors of four that a column hands on.
    pub fn vectors(&self) -> usize {
        self.program.column.results.len().div_ceil(4).max(1)
    }

    /// What is reduced.
    pub fn terms(&self) -> usize {
        self.program.pair.results.len()
    }

    pub fn is_parameter(&self, slot: usize) -> bool {
        self.program.variables[slot].role == Role::Parameter
    }
}

/// A stage, by name: kernels are compiled for names and look the steps up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    Row,
    Column,
    Pair,
    End,
}

impl Part {
    fn of(self, code: &Code) -> &Stage {
        match self {
            Part::Row => &code.program.row,
            Part::Column => &code.program.column,
            Part::Pair => &code.program.pair,
            Part::End => &code.program.end,
        }
    }

    fn step(self, code: &Code, k: usize) -> Op<Operand> {
        self.of(code).steps[k]
    }
}

fn operand_of(step: Op<Operand>, index: usize) -> Operand {
    step.operands().get(index).copied().unwrap_or(Operand::Constant(0))
}

fn slot_of(step: Op<Operand>) -> (usize, usize) {
    match step {
        Op::Load { slot, component } => (slot, component),
        _ => unreachable!("only loads have a slot"),
    }
}

fn number(operand: Operand) -> f32 {
    match operand {
        Operand::Constant(bits) => f64::from_bits(bits) as f32,
        _ => unreachable!("only constants are numbers"),
    }
}

fn place(operand: Operand) -> usize {
    match operand {
        Operand::Own(k) | Operand::Row(k) | Operand::Column(k) | Operand::Sum(k) => k,
        Operand::Constant(_) => unreachable!("a constant lies nowhere"),
    }
}

/// The values that the pair stage finds: those of a row start at `first_row`.
#[derive(CubeType)]
pub struct PairValues {
    pub rows: Sequence<f32>,
    pub columns: Sequence<f32>,
    pub sums: Sequence<f32>,
}

#[cube]
fn value(
    own: &Sequence<f32>,
    known: &PairValues,
    #[comptime] operand: Operand,
    #[comptime] first_row: usize,
) -> f32 {
    if comptime!(matches!(operand, Operand::Constant(_))) {
        f32::new(comptime!(number(operand)))
    } else if comptime!(matches!(operand, Operand::Own(_))) {
        own[comptime!(place(operand))]
    } else if comptime!(matches!(operand, Operand::Row(_))) {
        known.rows[comptime!(first_row + place(operand))]
    } else if comptime!(matches!(operand, Operand::Column(_))) {
        known.columns[comptime!(place(operand))]
    } else {
        known.sums[comptime!(place(operand))]
    }
}

/// A variable's component, of row or column `index`.
#[cube]
fn load(
    a: &[f32],
    b: &[f32],
    c: &[f32],
    d: &[f32],
    e: &[f32],
    f: &[f32],
    g: &[f32],
    h: &[f32],
    index: usize,
    #[comptime] slot: usize,
    #[comptime] component: usize,
) -> f32 {
    let at = index + component;
    if comptime!(slot == 0) {
        a[at]
    } else if comptime!(slot == 1) {
        b[at]
    } else if comptime!(slot == 2) {
        c[at]
    } else if comptime!(slot == 3) {
        d[at]
    } else if comptime!(slot == 4) {
        e[at]
    } else if comptime!(slot == 5) {
        f[at]
    } else if comptime!(slot == 6) {
        g[at]
    } else {
        h[at]
    }
}

/// `2^x`.
#[cube]
pub fn power_of_two(x: f32, #[comptime] ptx: bool) -> f32 {
    if comptime!(ptx) {
        let y: f32;
        gpu_asm!("ex2.approx.ftz.f32 {y}, {x};", x = in(_) x, y = out(_) y, options(pure, nomem));
        y
    } else {
        (x * comptime!(std::f32::consts::LN_2)).exp()
    }
}

/// The logarithm to base 2.
#[cube]
pub fn log2(x: f32, #[comptime] ptx: bool) -> f32 {
    if comptime!(ptx) {
        let y: f32;
        gpu_asm!("lg2.approx.f32 {y}, {x};", x = in(_) x, y = out(_) y, options(pure, nomem));
        y
    } else {
        x.ln() * comptime!(std::f32::consts::LOG2_E)
    }
}

#[cube]
fn reciprocal(x: f32, #[comptime] ptx: bool) -> f32 {
    if comptime!(ptx) {
        let y: f32;
        gpu_asm!("rcp.approx.ftz.f32 {y}, {x};", x = in(_) x, y = out(_) y, options(pure, nomem));
        y
    } else {
        1.0f32 / x
    }
}

/// `x^-1/2`; 0 for what is not positive.
#[cube]
fn inverse_root(x: f32, #[comptime] ptx: bool) -> f32 {
    if comptime!(ptx) {
        let y: f32;
        gpu_asm!("rsqrt.approx.ftz.f32 {y}, {x};", x = in(_) x, y = out(_) y, options(pure, nomem));
        // Below are numbers that the instruction takes for 0.
        select(x <= 1.2e-38f32, 0.0f32, y)
    } else {
        select(x <= 0.0f32, 0.0f32, x.inverse_sqrt())
    }
}

#[cube]
fn root(x: f32, #[comptime] ptx: bool) -> f32 {
    let x = max(x, 0.0f32);
    if comptime!(ptx) {
        let y: f32;
        gpu_asm!("sqrt.approx.ftz.f32 {y}, {x};", x = in(_) x, y = out(_) y, options(pure, nomem));
        y
    } else {
        x.sqrt()
    }
}

#[cube]
fn apply(x: f32, y: f32, #[comptime] step: Op<Operand>, #[comptime] ptx: bool) -> f32 {
    if comptime!(matches!(step, Op::Add(..))) {
        x + y
    } else if comptime!(matches!(step, Op::Sub(..))) {
        x - y
    } else if comptime!(matches!(step, Op::Mul(..))) {
        x * y
    } else if comptime!(matches!(step, Op::Max(..))) {
        max(x, y)
    } else if comptime!(matches!(step, Op::Neg(_))) {
        -x
    } else if comptime!(matches!(step, Op::Abs(_))) {
        x.abs()
    } else if comptime!(matches!(step, Op::Sign(_))) {
        select(x > 0.0f32, 1.0f32, select(x < 0.0f32, -1.0f32, 0.0f32))
    } else if comptime!(matches!(step, Op::Recip(_))) {
        reciprocal(x, ptx)
    } else if comptime!(matches!(step, Op::Exp2(_))) {
        power_of_two(x, ptx)
    } else if comptime!(matches!(step, Op::Log2(_))) {
        log2(x, ptx)
    } else if comptime!(matches!(step, Op::Sin(_))) {
        x.sin()
    } else if comptime!(matches!(step, Op::Cos(_))) {
        x.cos()
    } else if comptime!(matches!(step, Op::Sqrt(_))) {
        root(x, ptx)
    } else {
        inverse_root(x, ptx)
    }
}

/// Adds what a stage hands on to `results`. Loads are of row or column `index`; what the stage finds of a row starts
/// at `first_row`.
#[cube]
pub fn run(
    a: &[f32],
    b: &[f32],
    c: &[f32],
    d: &[f32],
    e: &[f32],
    f: &[f32],
    g: &[f32],
    h: &[f32],
    index: usize,
    known: &PairValues,
    results: &mut Sequence<f32>,
    #[comptime] code: Code,
    #[comptime] part: Part,
    #[comptime] first_row: usize,
) {
    let mut own = Sequence::<f32>::new();
    #[unroll]
    for k in 0..comptime!(part.of(&code).steps.len()) {
        let step = comptime!(part.step(&code, k));
        if comptime!(matches!(step, Op::Load { .. })) {
            let (slot, component) = comptime!(slot_of(step));
            if comptime!(code.is_parameter(slot)) {
                own.push(load(a, b, c, d, e, f, g, h, 0usize, slot, component));
            } else {
                let dim = comptime!(code.program.variables[slot].dim);
                own.push(load(a, b, c, d, e, f, g, h, index * dim, slot, component));
            }
        } else {
            let x = value(&own, known, comptime!(operand_of(step, 0)), first_row);
            let y = value(&own, known, comptime!(operand_of(step, 1)), first_row);
            own.push(apply(x, y, step, comptime!(code.ptx)));
        }
    }
    #[unroll]
    for k in 0..comptime!(part.of(&code).results.len()) {
        let operand = comptime!(part.of(&code).results[k]);
        results.push(value(&own, known, operand, first_row));
    }
}
