//! A formula in the order of its evaluation: what depends on a row alone is computed once a row, what depends on a
//! column alone once a column, and factors that do not depend on the column are taken out of sums.

use std::collections::{BTreeSet, HashMap};

use super::graph::{Graph, Id, Op};
use super::{Formula, Role, Variable};

/// Where a step finds an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// A number, by its bits.
    Constant(u64),
    /// A result of an earlier step of the same stage.
    Own(usize),
    /// What the row stage hands on.
    Row(usize),
    /// What the column stage hands on.
    Column(usize),
    /// A sum over the columns.
    Sum(usize),
}

/// Steps, and the operands that are handed on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stage {
    pub steps: Vec<Op<Operand>>,
    pub results: Vec<Operand>,
}

/// A formula for a reduction over columns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Program {
    pub variables: Vec<Variable>,
    /// Once a row.
    pub row: Stage,
    /// Once a column.
    pub column: Stage,
    /// For every pair; its results are reduced.
    pub pair: Stage,
    /// Once a row, of the sums.
    pub end: Stage,
}

/// The slot of the sums.
const SUMS: usize = usize::MAX;

/// What a node depends on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Constant,
    Uniform,
    Row,
    Column,
    Pair,
    End,
}

impl Level {
    fn join(self, other: Self) -> Self {
        use Level::*;
        match (self, other) {
            (a, b) if a == b => a,
            (Constant, other) | (other, Constant) => other,
            (Uniform, other) | (other, Uniform) => other,
            (End, _) | (_, End) => End,
            _ => Pair,
        }
    }

    /// Whether it is known before the columns.
    fn is_of_row(self) -> bool {
        matches!(self, Level::Constant | Level::Uniform | Level::Row)
    }
}

impl Program {
    /// The program that sums the results.
    pub fn sum(formula: &Formula) -> Self {
        let mut work = Work::new(formula);
        let plain: Vec<_> = formula.outputs.iter().map(|id| vec![work.factored(*id)]).collect();
        let one = work.graph.constant(1.0);
        let split: Vec<_> = formula.outputs.iter().map(|id| work.terms(*id, one)).collect();
        let count = |terms: &[Vec<(Id, Id)>]| -> usize {
            terms.iter().flatten().map(|(_, rest)| rest).collect::<BTreeSet<_>>().len()
        };
        // One more sum is cheaper than its products with every component.
        let terms = if count(&split) <= count(&plain) + 1 { split } else { plain };
        let mut sums: Vec<Id> = Vec::new();
        let mut ends = Vec::new();
        for output in terms {
            let mut total = work.graph.constant(0.0);
            for (factor, rest) in output {
                let component = sums.iter().position(|sum| *sum == rest).unwrap_or(sums.len());
                if component == sums.len() {
                    sums.push(rest);
                }
                let sum = work.graph.push(Op::Load { slot: SUMS, component });
                let share = work.graph.push(Op::Mul(factor, sum));
                total = work.graph.push(Op::Add(total, share));
            }
            ends.push(total);
        }
        work.program(&sums, &ends)
    }

    /// The program that hands the results to another reduction than a sum.
    pub fn values(formula: &Formula) -> Self {
        Work::new(formula).program(&formula.outputs, &[])
    }
}

struct Work<'a> {
    graph: Graph,
    variables: &'a [Variable],
    levels: HashMap<Id, Level>,
}

impl<'a> Work<'a> {
    fn new(formula: &'a Formula) -> Self {
        let graph = (*formula.graph).clone();
        Self { graph, variables: &formula.variables, levels: HashMap::new() }
    }

    fn level(&mut self, id: Id) -> Level {
        if let Some(level) = self.levels.get(&id) {
            return *level;
        }
        let level = match self.graph.node(id) {
            Op::Constant(_) => Level::Constant,
            Op::Load { slot: SUMS, .. } => Level::End,
            Op::Load { slot, .. } => match self.variables[slot].role {
                Role::Row => Level::Row,
                Role::Column => Level::Column,
                Role::Parameter => Level::Uniform,
            },
            op => {
                let operands = op.operands().into_iter();
                operands.map(|id| self.level(id)).fold(Level::Constant, Level::join)
            }
        };
        self.levels.insert(id, level);
        level
    }

    /// A node as a factor that the columns share, and the rest.
    fn factored(&mut self, id: Id) -> (Id, Id) {
        let one = self.graph.constant(1.0);
        if self.level(id).is_of_row() {
            return (id, one);
        }
        match self.graph.node(id) {
            Op::Mul(a, b) => {
                let ((fa, ra), (fb, rb)) = (self.factored(a), self.factored(b));
                (self.graph.push(Op::Mul(fa, fb)), self.graph.push(Op::Mul(ra, rb)))
            }
            Op::Neg(a) => {
                let (factor, rest) = self.factored(a);
                (self.graph.push(Op::Neg(factor)), rest)
            }
            Op::Add(a, b) | Op::Sub(a, b) => {
                let ((fa, ra), (fb, rb)) = (self.factored(a), self.factored(b));
                if fa != fb || fa == one {
                    return (one, id);
                }
                let is_sum = matches!(self.graph.node(id), Op::Add(..));
                let rest = if is_sum { Op::Add(ra, rb) } else { Op::Sub(ra, rb) };
                (fa, self.graph.push(rest))
            }
            _ => (one, id),
        }
    }

    /// A node times `factor` as a sum of factored terms.
    fn terms(&mut self, id: Id, factor: Id) -> Vec<(Id, Id)> {
        match self.graph.node(id) {
            Op::Add(a, b) => [self.terms(a, factor), self.terms(b, factor)].concat(),
            Op::Sub(a, b) => {
                let minus = self.graph.push(Op::Neg(factor));
                [self.terms(a, factor), self.terms(b, minus)].concat()
            }
            Op::Neg(a) => {
                let minus = self.graph.push(Op::Neg(factor));
                self.terms(a, minus)
            }
            Op::Mul(a, b) if self.level(a).is_of_row() => {
                let both = self.graph.push(Op::Mul(factor, a));
                self.terms(b, both)
            }
            Op::Mul(a, b) if self.level(b).is_of_row() => {
                let both = self.graph.push(Op::Mul(factor, b));
                self.terms(a, both)
            }
            _ => {
                let (own, rest) = self.factored(id);
                vec![(self.graph.push(Op::Mul(factor, own)), rest)]
            }
        }
    }

    fn program(mut self, pairs: &[Id], ends: &[Id]) -> Program {
        let (mut rows, mut columns) = (Vec::new(), Vec::new());
        let pair = self.stage(Level::Pair, pairs, &mut rows, &mut columns);
        let end = self.stage(Level::End, ends, &mut rows, &mut columns);
        let row = self.stage(Level::Row, &rows.clone(), &mut rows, &mut columns);
        let column = self.stage(Level::Column, &columns.clone(), &mut rows, &mut columns);
        Program { variables: self.variables.to_vec(), row, column, pair, end }
    }

    /// Whether a stage computes a node itself.
    fn is_own(&mut self, stage: Level, id: Id) -> bool {
        let level = self.level(id);
        level == stage || (level == Level::Uniform && matches!(stage, Level::Row | Level::Column))
    }

    /// The steps to `roots`; what earlier stages are to hand on is added to `rows` and `columns`.
    fn stage(
        &mut self,
        stage: Level,
        roots: &[Id],
        rows: &mut Vec<Id>,
        columns: &mut Vec<Id>,
    ) -> Stage {
        let mut needed = BTreeSet::new();
        let mut open = roots.to_vec();
        while let Some(id) = open.pop() {
            if self.is_own(stage, id) && needed.insert(id) {
                open.extend(self.graph.node(id).operands());
            }
        }
        // Sums are no steps: they are there.
        needed.retain(|id| !matches!(self.graph.node(*id), Op::Load { slot: SUMS, .. }));
        let places: HashMap<Id, usize> =
            needed.iter().enumerate().map(|(k, id)| (*id, k)).collect();
        let mut operand = |id: Id| match (self.graph.node(id), places.get(&id)) {
            (Op::Constant(bits), _) => Operand::Constant(bits),
            (Op::Load { slot: SUMS, component }, _) => Operand::Sum(component),
            (_, Some(place)) => Operand::Own(*place),
            _ if self.levels[&id] == Level::Column => Operand::Column(place_in(columns, id)),
            _ => Operand::Row(place_in(rows, id)),
        };
        let steps = needed.iter().map(|id| self.graph.node(*id).map(&mut operand)).collect();
        let results = roots.iter().map(|id| operand(*id)).collect();
        Stage { steps, results }
    }
}

/// The place of a node in a list, at the end if it is new.
fn place_in(list: &mut Vec<Id>, id: Id) -> usize {
    let place = list.iter().position(|known| *known == id).unwrap_or(list.len());
    if place == list.len() {
        list.push(id);
    }
    place
}
