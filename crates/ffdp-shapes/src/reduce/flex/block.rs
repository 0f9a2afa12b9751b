//! The pair stage of a formula for a row and a block of columns: a step is a loop that the compiler vectorises, its
//! results lie in registers of a block each.

use std::ops::Range;

use super::vector::{Vectorised, dispatch, exp2};
use crate::formula::Op;
use crate::formula::program::{Operand, Program};

pub use super::vector::Lane;

/// Columns of a block: some ten registers stay in the first cache.
pub const BLOCK: usize = 256;

/// Sums that run side by side.
const LANES: usize = 16;

/// Where a step finds its operands.
#[derive(Clone, Copy, Debug)]
enum Source {
    Constant(f64),
    Row(usize),
    Column(usize),
    Register(usize),
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Plain(Op<Source>),
    /// `a b + c`.
    MulAdd(Source, Source, Source),
}

/// The pair stage, and its results for the last block.
pub struct Block<T> {
    steps: Vec<(Step, usize)>,
    /// Products, of a factor or two.
    results: Vec<(Source, Option<Source>)>,
    registers: Vec<Vec<T>>,
    /// Their sums, or the values of the only one.
    sums: Vec<T>,
    values: Vec<T>,
}

/// A number for every column of a block.
trait Get<T>: Copy {
    fn at(&self, column: usize) -> T;
}

impl<T: Copy> Get<T> for &[T] {
    #[inline(always)]
    fn at(&self, column: usize) -> T {
        self[column]
    }
}

/// The same for all columns.
#[derive(Clone, Copy)]
struct Same<T>(T);

impl<T: Copy> Get<T> for Same<T> {
    #[inline(always)]
    fn at(&self, _: usize) -> T {
        self.0
    }
}

enum Value<'a, T> {
    Each(&'a [T]),
    Same(T),
}

/// `$body` with `$name` as a [`Get`], whatever `$value` is.
macro_rules! with {
    ($($name:ident = $value:expr),+ => $body:expr) => { with!(@ [$($name = $value),+] $body) };
    (@ [$name:ident = $value:expr $(, $more:ident = $rest:expr)*] $body:expr) => {
        match $value {
            Value::Each($name) => with!(@ [$($more = $rest),*] $body),
            Value::Same(same) => { let $name = Same(same); with!(@ [$($more = $rest),*] $body) }
        }
    };
    (@ [] $body:expr) => { $body };
}

/// A step of the graph as it is done here.
struct Lowering<'a> {
    steps: &'a [Op<Operand>],
    /// Steps that became part of another.
    absorbed: Vec<bool>,
}

impl Lowering<'_> {
    /// The factors of an operand that is a product of nobody else.
    fn product(&mut self, operand: Operand, uses: &[usize]) -> Option<(Operand, Operand)> {
        let Operand::Own(k) = operand else { return None };
        match self.steps[k] {
            Op::Mul(a, b) if uses[k] == 1 => {
                self.absorbed[k] = true;
                Some((a, b))
            }
            _ => None,
        }
    }
}

impl<T: Lane> Block<T> {
    /// For sums, products of two factors are summed without being stored.
    pub fn new(program: &Program, sums: bool) -> Self {
        let stage = &program.pair;
        let mut uses = vec![0; stage.steps.len()];
        let operands = stage.steps.iter().flat_map(|step| step.operands());
        for operand in operands.chain(stage.results.iter().copied()) {
            if let Operand::Own(k) = operand {
                uses[k] += 1;
            }
        }
        let absorbed = vec![false; stage.steps.len()];
        let mut lowering = Lowering { steps: &stage.steps, absorbed };
        let mut results: Vec<(Operand, Option<Operand>)> = Vec::new();
        for result in &stage.results {
            let factors = if sums { lowering.product(*result, &uses) } else { None };
            results.push(factors.map_or((*result, None), |(a, b)| (a, Some(b))));
        }
        // The last step first, so that a product is absorbed before its turn comes.
        let mut done: Vec<(Vec<Operand>, Op<Operand>, bool, usize)> = Vec::new();
        for (k, step) in stage.steps.iter().enumerate().rev() {
            if lowering.absorbed[k] {
                continue;
            }
            let fused = match *step {
                Op::Add(a, b) => match lowering.product(a, &uses) {
                    Some((x, y)) => Some(vec![x, y, b]),
                    None => lowering.product(b, &uses).map(|(x, y)| vec![x, y, a]),
                },
                _ => None,
            };
            let is_fused = fused.is_some();
            done.push((fused.unwrap_or_else(|| step.operands()), *step, is_fused, k));
        }
        done.reverse();
        Self::allocated(&done, &results, stage.steps.len())
    }

    /// Gives every step a register until its result has been used for the last time.
    fn allocated(
        steps: &[(Vec<Operand>, Op<Operand>, bool, usize)],
        results: &[(Operand, Option<Operand>)],
        count: usize,
    ) -> Self {
        let mut last = vec![0; count];
        for (time, (operands, ..)) in steps.iter().enumerate() {
            for operand in operands {
                if let Operand::Own(k) = operand {
                    last[*k] = time;
                }
            }
        }
        for operand in results.iter().flat_map(|(a, b)| std::iter::once(*a).chain(*b)) {
            if let Operand::Own(k) = operand {
                last[k] = usize::MAX;
            }
        }
        let (mut places, mut free, mut registers) = (vec![0; count], Vec::new(), 0);
        let source = |operand: Operand, places: &[usize]| match operand {
            Operand::Constant(bits) => Source::Constant(f64::from_bits(bits)),
            Operand::Row(k) => Source::Row(k),
            Operand::Column(k) => Source::Column(k),
            Operand::Own(k) => Source::Register(places[k]),
            Operand::Sum(_) => unreachable!("pairs know no sums"),
        };
        let mut lowered = Vec::new();
        for (time, (operands, op, is_fused, k)) in steps.iter().enumerate() {
            let at = |i: usize| source(operands[i], &places);
            let step = match is_fused {
                true => Step::MulAdd(at(0), at(1), at(2)),
                false => Step::Plain(op.map(|operand| source(operand, &places))),
            };
            // Before the operands' are given back: no step writes what it reads.
            let register = free.pop().unwrap_or_else(|| {
                registers += 1;
                registers - 1
            });
            let mut ended: Vec<usize> = Vec::new();
            for operand in operands {
                if let Operand::Own(k) = operand
                    && last[*k] == time
                    && !ended.contains(&places[*k])
                {
                    ended.push(places[*k]);
                }
            }
            free.extend(ended);
            places[*k] = register;
            lowered.push((step, register));
        }
        let results: Vec<(Source, Option<Source>)> = results
            .iter()
            .map(|(a, b)| (source(*a, &places), b.map(|b| source(b, &places))))
            .collect();
        Self {
            steps: lowered,
            sums: vec![T::default(); results.len()],
            results,
            registers: vec![vec![T::default(); BLOCK]; registers],
            values: vec![T::default(); BLOCK],
        }
    }

    /// Evaluates all pairs of a row and the block's columns, and sums the results or keeps the only one's values.
    pub fn run(&mut self, row: &[f64], tile: &[Vec<T>], block: &Range<usize>, sums: bool) {
        let columns: Vec<&[T]> = tile.iter().map(|values| &values[block.clone()]).collect();
        dispatch(Run { block: self, row, columns: &columns, len: block.len(), sums });
    }

    /// Adds the sums of the results.
    pub fn add_sums(&self, totals: &mut [f64]) {
        for (total, sum) in totals.iter_mut().zip(&self.sums) {
            *total += sum.wide();
        }
    }

    /// The values of the only result.
    pub fn values(&self, len: usize) -> &[T] {
        &self.values[..len]
    }

    /// The largest value.
    pub fn largest(&self, len: usize) -> f64 {
        dispatch(Largest(self.values(len))).wide()
    }

    /// The sum of `2^(value - largest)`.
    pub fn sum_of_powers(&self, len: usize, largest: f64) -> f64 {
        dispatch(Powers(self.values(len), T::of(largest))).wide()
    }
}

// Loops as macros: a closure that is not inlined would be compiled without the machine's vectors.

/// `to[j] = value` for every column `j`.
macro_rules! fill {
    ($to:ident, $j:ident => $value:expr) => {{
        let mut $j = 0;
        while $j < $to.len() {
            $to[$j] = $value;
            $j += 1;
        }
    }};
}

/// The sum over columns: `next` is the sum `s` with the term of column `j`.
macro_rules! sum {
    ($len:expr, $j:ident, $s:ident => $next:expr) => {{
        let mut lanes = [T::default(); LANES];
        let (mut first, len) = (0, $len);
        while first + LANES <= len {
            let mut lane = 0;
            while lane < LANES {
                let ($j, $s) = (first + lane, lanes[lane]);
                lanes[lane] = $next;
                lane += 1;
            }
            first += LANES;
        }
        while first < len {
            let ($j, $s) = (first, lanes[first % LANES]);
            lanes[first % LANES] = $next;
            first += 1;
        }
        let mut count = LANES;
        while count > 1 {
            count /= 2;
            let mut lane = 0;
            while lane < count {
                lanes[lane] = lanes[lane] + lanes[lane + count];
                lane += 1;
            }
        }
        lanes[0]
    }};
}

struct Run<'a, T> {
    block: &'a mut Block<T>,
    row: &'a [f64],
    columns: &'a [&'a [T]],
    len: usize,
    sums: bool,
}

impl<T: Lane> Run<'_, T> {
    #[inline(always)]
    fn value(&self, source: Source) -> Value<'_, T> {
        match source {
            Source::Constant(number) => Value::Same(T::of(number)),
            Source::Row(k) => Value::Same(T::of(self.row[k])),
            Source::Column(k) => Value::Each(&self.columns[k][..self.len]),
            Source::Register(k) => Value::Each(&self.block.registers[k][..self.len]),
        }
    }

    #[inline(always)]
    fn step<const FUSED: bool>(&mut self, index: usize) {
        let (step, register) = self.block.steps[index];
        let mut result = std::mem::take(&mut self.block.registers[register]);
        let value = |source| self.value(source);
        let to = &mut result[..self.len];
        match step {
            Step::MulAdd(a, b, c) => with!(a = value(a), b = value(b), c = value(c) =>
                fill!(to, j => a.at(j).mul_add::<FUSED>(b.at(j), c.at(j)))),
            Step::Plain(op) => match op {
                Op::Constant(_) | Op::Load { .. } => unreachable!("pairs load nothing"),
                Op::Neg(a) => with!(a = value(a) => fill!(to, j => -a.at(j))),
                Op::Abs(a) => with!(a = value(a) => fill!(to, j => a.at(j).abs())),
                Op::Sign(a) => with!(a = value(a) => fill!(to, j => a.at(j).sign())),
                Op::Recip(a) => with!(a = value(a) => fill!(to, j => T::ONE / a.at(j))),
                Op::Exp2(a) => with!(a = value(a) => fill!(to, j => exp2::<T, FUSED>(a.at(j)))),
                Op::Log2(a) => with!(a = value(a) => fill!(to, j => a.at(j).log2())),
                Op::Sin(a) => with!(a = value(a) => fill!(to, j => a.at(j).sin())),
                Op::Cos(a) => with!(a = value(a) => fill!(to, j => a.at(j).cos())),
                Op::Sqrt(a) => with!(a = value(a) => fill!(to, j => a.at(j).root())),
                Op::InverseSqrt(a) => {
                    with!(a = value(a) => fill!(to, j => a.at(j).inverse_root()))
                }
                Op::Add(a, b) => {
                    with!(a = value(a), b = value(b) => fill!(to, j => a.at(j) + b.at(j)))
                }
                Op::Sub(a, b) => {
                    with!(a = value(a), b = value(b) => fill!(to, j => a.at(j) - b.at(j)))
                }
                Op::Mul(a, b) => {
                    with!(a = value(a), b = value(b) => fill!(to, j => a.at(j) * b.at(j)))
                }
                Op::Max(a, b) => {
                    with!(a = value(a), b = value(b) => fill!(to, j => a.at(j).larger(b.at(j))))
                }
            },
        }
        self.block.registers[register] = result;
    }
}

impl<T: Lane> Vectorised for Run<'_, T> {
    type Output = ();

    #[inline(always)]
    fn call<const FUSED: bool>(mut self) {
        for index in 0..self.block.steps.len() {
            self.step::<FUSED>(index);
        }
        if !self.sums {
            let mut values = std::mem::take(&mut self.block.values);
            let to = &mut values[..self.len];
            with!(a = self.value(self.block.results[0].0) => fill!(to, j => a.at(j)));
            self.block.values = values;
            return;
        }
        for k in 0..self.block.results.len() {
            let (a, b) = self.block.results[k];
            let total = match b {
                None => with!(a = self.value(a) => sum!(self.len, j, s => s + a.at(j))),
                Some(b) => with!(a = self.value(a), b = self.value(b) =>
                    sum!(self.len, j, s => a.at(j).mul_add::<FUSED>(b.at(j), s))),
            };
            self.block.sums[k] = total;
        }
    }
}

struct Largest<'a, T>(&'a [T]);

impl<T: Lane> Vectorised for Largest<'_, T> {
    type Output = T;

    #[inline(always)]
    fn call<const FUSED: bool>(self) -> T {
        let values = self.0;
        let mut lanes = [T::LOWEST; LANES];
        let mut first = 0;
        while first + LANES <= values.len() {
            let mut lane = 0;
            while lane < LANES {
                lanes[lane] = lanes[lane].larger(values[first + lane]);
                lane += 1;
            }
            first += LANES;
        }
        let rest = values[first..].iter();
        lanes.iter().chain(rest).fold(T::LOWEST, |a, b| a.larger(*b))
    }
}

struct Powers<'a, T>(&'a [T], T);

impl<T: Lane> Vectorised for Powers<'_, T> {
    type Output = T;

    #[inline(always)]
    fn call<const FUSED: bool>(self) -> T {
        let (values, largest) = (self.0, self.1);
        sum!(values.len(), j, s => s + exp2::<T, FUSED>(values[j] - largest))
    }
}
