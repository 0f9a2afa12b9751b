//! Formulas as graphs of scalar operations: every operation once, simplified where it is made.

use std::collections::HashMap;

/// The place of a node in its graph; operands come before what uses them.
pub type Id = usize;

/// A scalar operation; the letters are its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op<T> {
    /// A number, by its bits.
    Constant(u64),
    /// A component of a variable.
    Load {
        slot: usize,
        component: usize,
    },
    Neg(T),
    Abs(T),
    /// -1, 0 or 1; its derivative is 0.
    Sign(T),
    /// `1 / a`.
    Recip(T),
    /// `2^a`.
    Exp2(T),
    Log2(T),
    Sin(T),
    Cos(T),
    /// 0 for what is not positive.
    Sqrt(T),
    /// `a^-1/2`, and 0 for what is not positive: the derivative of a distance at 0 counts as 0.
    InverseSqrt(T),
    Add(T, T),
    Sub(T, T),
    Mul(T, T),
    Max(T, T),
}

impl<T: Copy> Op<T> {
    /// The operation with other operands.
    pub fn map<U>(self, mut f: impl FnMut(T) -> U) -> Op<U> {
        use Op::*;
        match self {
            Constant(bits) => Constant(bits),
            Load { slot, component } => Load { slot, component },
            Neg(a) => Neg(f(a)),
            Abs(a) => Abs(f(a)),
            Sign(a) => Sign(f(a)),
            Recip(a) => Recip(f(a)),
            Exp2(a) => Exp2(f(a)),
            Log2(a) => Log2(f(a)),
            Sin(a) => Sin(f(a)),
            Cos(a) => Cos(f(a)),
            Sqrt(a) => Sqrt(f(a)),
            InverseSqrt(a) => InverseSqrt(f(a)),
            Add(a, b) => Add(f(a), f(b)),
            Sub(a, b) => Sub(f(a), f(b)),
            Mul(a, b) => Mul(f(a), f(b)),
            Max(a, b) => Max(f(a), f(b)),
        }
    }

    /// Its operands.
    pub fn operands(self) -> Vec<T> {
        let mut found = Vec::new();
        self.map(|operand| found.push(operand));
        found
    }
}

impl Op<f64> {
    /// The value, of operands that are numbers.
    pub fn value(self) -> f64 {
        match self {
            Op::Constant(bits) => f64::from_bits(bits),
            Op::Load { .. } => unreachable!("a variable has no value of its own"),
            Op::Neg(a) => -a,
            Op::Abs(a) => a.abs(),
            Op::Sign(0.0) => 0.0,
            Op::Sign(a) => a.signum(),
            Op::Recip(a) => a.recip(),
            Op::Exp2(a) => a.exp2(),
            Op::Log2(a) => a.log2(),
            Op::Sin(a) => a.sin(),
            Op::Cos(a) => a.cos(),
            Op::Sqrt(a) => a.max(0.0).sqrt(),
            Op::InverseSqrt(a) if a > 0.0 => a.sqrt().recip(),
            Op::InverseSqrt(_) => 0.0,
            Op::Add(a, b) => a + b,
            Op::Sub(a, b) => a - b,
            Op::Mul(a, b) => a * b,
            Op::Max(a, b) => a.max(b),
        }
    }
}

/// Operations in the order of their evaluation.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    nodes: Vec<Op<Id>>,
    known: HashMap<Op<Id>, Id>,
}

impl Graph {
    pub fn node(&self, id: Id) -> Op<Id> {
        self.nodes[id]
    }

    pub fn constant(&mut self, value: f64) -> Id {
        // There is one zero.
        self.insert(Op::Constant((value + 0.0).to_bits()))
    }

    pub fn number(&self, id: Id) -> Option<f64> {
        match self.nodes[id] {
            Op::Constant(bits) => Some(f64::from_bits(bits)),
            _ => None,
        }
    }

    fn insert(&mut self, op: Op<Id>) -> Id {
        if let Some(id) = self.known.get(&op) {
            return *id;
        }
        self.nodes.push(op);
        self.known.insert(op, self.nodes.len() - 1);
        self.nodes.len() - 1
    }

    /// The node of an operation, or of what it comes to.
    pub fn push(&mut self, op: Op<Id>) -> Id {
        let operands = op.operands();
        if !operands.is_empty() && operands.iter().all(|id| self.number(*id).is_some()) {
            let value = op.map(|id| self.number(id).expect("just asked")).value();
            return self.constant(value);
        }
        let number = |id: Id| self.number(id);
        let minus = |id: Id| match self.nodes[id] {
            Op::Neg(a) => Some(a),
            _ => None,
        };
        match op {
            Op::Neg(a) if minus(a).is_some() => minus(a).expect("just asked"),
            Op::Neg(a) => match self.nodes[a] {
                Op::Sub(x, y) => self.push(Op::Sub(y, x)),
                _ => self.insert(op),
            },
            Op::Add(a, b) if number(a) == Some(0.0) => b,
            Op::Add(a, b) if number(b) == Some(0.0) => a,
            Op::Add(a, b) => match (minus(a), minus(b)) {
                (_, Some(b)) => self.push(Op::Sub(a, b)),
                (Some(a), None) => self.push(Op::Sub(b, a)),
                _ => self.insert(Op::Add(a.min(b), a.max(b))),
            },
            Op::Sub(a, b) if a == b => self.constant(0.0),
            Op::Sub(a, b) if number(b) == Some(0.0) => a,
            Op::Sub(a, b) if number(a) == Some(0.0) => self.push(Op::Neg(b)),
            Op::Sub(a, b) => match minus(b) {
                Some(b) => self.push(Op::Add(a, b)),
                None => self.insert(op),
            },
            Op::Mul(a, b) => self.product(a, b),
            Op::Max(a, b) if a == b => a,
            _ => self.insert(op),
        }
    }

    fn product(&mut self, a: Id, b: Id) -> Id {
        let (a, b) = if self.number(b).is_some() { (b, a) } else { (a, b) };
        // `a` is the number, if one is.
        match (self.number(a), self.nodes[a], self.nodes[b]) {
            (Some(0.0), ..) => self.constant(0.0),
            (Some(1.0), ..) => b,
            (Some(-1.0), ..) => self.push(Op::Neg(b)),
            (Some(x), _, Op::Neg(b)) => {
                let minus = self.constant(-x);
                self.push(Op::Mul(minus, b))
            }
            (Some(x), _, Op::Mul(c, d)) if self.number(c).is_some() => {
                let both = x * self.number(c).expect("just asked");
                let both = self.constant(both);
                self.push(Op::Mul(both, d))
            }
            (None, Op::Neg(a), Op::Neg(b)) => self.push(Op::Mul(a, b)),
            (None, Op::Neg(a), _) => {
                let product = self.push(Op::Mul(a, b));
                self.push(Op::Neg(product))
            }
            (None, _, Op::Neg(b)) => {
                let product = self.push(Op::Mul(a, b));
                self.push(Op::Neg(product))
            }
            (Some(_), ..) => self.insert(Op::Mul(a, b)),
            _ => self.insert(Op::Mul(a.min(b), a.max(b))),
        }
    }
}
