//! The pair stage of a formula for a row and a block of columns: a step is a loop that the compiler vectorises, its
//! results lie in registers of a block each.

use std::ops::Range;

use super::vector::{Vectorised, dispatch, exp2};
use crate::formula::Op;
use crate::formula::program::{Operand, Program};

pub use super::vector::Lane;

/// Columns of a block: some ten registers stay in the first cache.
pub const BLOCK: usize = 256;

/// Loops run over a multiple of it: no columns are left over for single steps.
const ROUND: usize = 64;

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

/// `$body` with `$name` as a [`Get`] of `$len` columns, whatever `$value` is: the compiler sees that nothing is read
/// beyond.
macro_rules! with {
    ($len:ident: $($name:ident = $value:expr),+ => $body:expr) => {
        with!(@ $len [$($name = $value),+] $body)
    };
    (@ $len:ident [$name:ident = $value:expr $(, $more:ident = $rest:expr)*] $body:expr) => {
        match $value {
            Value::Each(each) => {
                let $name = &each[..$len];
                with!(@ $len [$($more = $rest),*] $body)
            }
            Value::Same(same) => {
                let $name = Same(same);
                with!(@ $len [$($more = $rest),*] $body)
            }
        }
    };
    (@ $len:ident [] $body:expr) => { $body };
}

/// A step of the graph as it is done here.
struct Lowered {
    operands: Vec<Operand>,
    op: Op<Operand>,
    /// A product of the first two operands, and the third added to it.
    is_fused: bool,
    /// The step of the graph whose result it gives.
    result: usize,
}

/// The steps of a graph while products become part of sums.
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

/// The time at which each of `count` results is used last; those of the graph itself stay to the end.
fn last_uses(
    steps: &[Lowered],
    results: &[(Operand, Option<Operand>)],
    count: usize,
) -> Vec<usize> {
    let mut last = vec![0; count];
    for (time, step) in steps.iter().enumerate() {
        for operand in &step.operands {
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
    last
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
        let mut done: Vec<Lowered> = Vec::new();
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
            let operands = fused.unwrap_or_else(|| step.operands());
            done.push(Lowered { operands, op: *step, is_fused, result: k });
        }
        done.reverse();
        Self::allocated(&done, &results, stage.steps.len())
    }

    /// Gives every step a register until its result has been used for the last time.
    fn allocated(steps: &[Lowered], results: &[(Operand, Option<Operand>)], count: usize) -> Self {
        let last = last_uses(steps, results, count);
        let (mut places, mut free, mut registers) = (vec![0; count], Vec::new(), 0);
        let source = |operand: Operand, places: &[usize]| match operand {
            Operand::Constant(bits) => Source::Constant(f64::from_bits(bits)),
            Operand::Row(k) => Source::Row(k),
            Operand::Column(k) => Source::Column(k),
            Operand::Own(k) => Source::Register(places[k]),
            Operand::Sum(_) => unreachable!("pairs know no sums"),
        };
        let mut lowered = Vec::new();
        for (time, Lowered { operands, op, is_fused, result }) in steps.iter().enumerate() {
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
            places[*result] = register;
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
        let len = block.len().next_multiple_of(ROUND);
        let place = block.start..block.start + len;
        let columns: Vec<&[T]> = tile.iter().map(|values| &values[place.clone()]).collect();
        let columns_in_block = block.len();
        dispatch(RowPass { block: self, row, columns: &columns, columns_in_block, len, sums });
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
    pub fn largest(&self) -> f64 {
        dispatch(Largest(&self.values)).wide()
    }

    /// The sum of `2^(value - largest)`.
    pub fn sum_of_powers(&self, largest: f64) -> f64 {
        dispatch(Powers(&self.values, T::of(largest))).wide()
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

/// All of a block's values in one, half to half: `a` and `b` become `$next`.
macro_rules! halved {
    ($values:expr, $a:ident, $b:ident => $next:expr) => {{
        let mut count = BLOCK;
        while count > 1 {
            count /= 2;
            let (low, high) = $values.split_at_mut(count);
            let high = &high[..count];
            let mut j = 0;
            while j < count {
                let ($a, $b) = (low[j], high[j]);
                low[j] = $next;
                j += 1;
            }
        }
        $values[0]
    }};
}

struct RowPass<'a, T> {
    block: &'a mut Block<T>,
    row: &'a [f64],
    columns: &'a [&'a [T]],
    /// Columns, and what they are rounded up to.
    columns_in_block: usize,
    len: usize,
    sums: bool,
}

impl<T: Lane> RowPass<'_, T> {
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
        let len = self.len;
        let to = &mut result[..len];
        match step {
            Step::MulAdd(a, b, c) => with!(len: a = value(a), b = value(b), c = value(c) =>
                fill!(to, j => a.at(j).mul_add::<FUSED>(b.at(j), c.at(j)))),
            Step::Plain(op) => match op {
                Op::Constant(_) | Op::Load { .. } => unreachable!("pairs load nothing"),
                Op::Neg(a) => with!(len: a = value(a) => fill!(to, j => -a.at(j))),
                Op::Abs(a) => with!(len: a = value(a) => fill!(to, j => a.at(j).abs())),
                Op::Sign(a) => with!(len: a = value(a) => fill!(to, j => a.at(j).sign())),
                Op::Recip(a) => with!(len: a = value(a) => fill!(to, j => T::ONE / a.at(j))),
                Op::Exp2(a) => {
                    with!(len: a = value(a) => fill!(to, j => exp2::<T, FUSED>(a.at(j))))
                }
                Op::Log2(a) => with!(len: a = value(a) => fill!(to, j => a.at(j).log2())),
                Op::Sin(a) => with!(len: a = value(a) => fill!(to, j => a.at(j).sin())),
                Op::Cos(a) => with!(len: a = value(a) => fill!(to, j => a.at(j).cos())),
                Op::Sqrt(a) => with!(len: a = value(a) => fill!(to, j => a.at(j).root())),
                Op::InverseSqrt(a) => {
                    with!(len: a = value(a) => fill!(to, j => a.at(j).inverse_root()))
                }
                Op::Add(a, b) => {
                    with!(len: a = value(a), b = value(b) => fill!(to, j => a.at(j) + b.at(j)))
                }
                Op::Sub(a, b) => {
                    with!(len: a = value(a), b = value(b) => fill!(to, j => a.at(j) - b.at(j)))
                }
                Op::Mul(a, b) => {
                    with!(len: a = value(a), b = value(b) => fill!(to, j => a.at(j) * b.at(j)))
                }
                Op::Max(a, b) => {
                    with!(len: a = value(a), b = value(b) => fill!(to, j => a.at(j).larger(b.at(j))))
                }
            },
        }
        self.block.registers[register] = result;
    }
}

impl<T: Lane> Vectorised for RowPass<'_, T> {
    type Output = ();

    #[inline(always)]
    fn call<const FUSED: bool>(mut self) {
        for index in 0..self.block.steps.len() {
            self.step::<FUSED>(index);
        }
        let (len, used) = (self.len, self.columns_in_block);
        let mut values = std::mem::take(&mut self.block.values);
        for k in 0..self.block.results.len() {
            let to = &mut values[..len];
            match self.block.results[k] {
                (a, None) => with!(len: a = self.value(a) => fill!(to, j => a.at(j))),
                (a, Some(b)) => with!(len: a = self.value(a), b = self.value(b) =>
                    fill!(to, j => a.at(j) * b.at(j))),
            }
            if self.sums {
                values[used..].fill(T::default());
                self.block.sums[k] = halved!(values, a, b => a + b);
            } else {
                values[used..].fill(T::LOWEST);
            }
        }
        self.block.values = values;
    }
}

/// Of a whole block, without what lies beyond its columns: that is minus infinity.
struct Largest<'a, T>(&'a [T]);

impl<T: Lane> Vectorised for Largest<'_, T> {
    type Output = T;

    #[inline(always)]
    fn call<const FUSED: bool>(self) -> T {
        let mut values = [T::LOWEST; BLOCK];
        values.copy_from_slice(self.0);
        halved!(values, a, b => a.larger(b))
    }
}

/// The sum of the powers of two of a block's values above `largest`.
struct Powers<'a, T>(&'a [T], T);

impl<T: Lane> Vectorised for Powers<'_, T> {
    type Output = T;

    #[inline(always)]
    fn call<const FUSED: bool>(self) -> T {
        let (values, largest) = (self.0, self.1);
        let mut powers = [T::default(); BLOCK];
        let (values, to) = (&values[..BLOCK], &mut powers);
        fill!(to, j => exp2::<T, FUSED>(values[j] - largest));
        halved!(powers, a, b => a + b)
    }
}
