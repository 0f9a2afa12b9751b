//! How formulas are written: numbers and vectors with the operators of Rust.

use std::cell::RefCell;
use std::ops::{Add, Div, Mul, Neg, Sub};
use std::rc::Rc;

use super::graph::{Graph, Id, Op};

/// A number of a formula.
#[derive(Clone, Debug)]
pub struct Expr {
    graph: Rc<RefCell<Graph>>,
    id: Id,
}

/// A vector of a formula.
#[derive(Clone, Debug)]
pub struct Vector(Vec<Expr>);

impl Expr {
    pub(super) fn new(graph: &Rc<RefCell<Graph>>, op: Op<Id>) -> Self {
        let id = graph.borrow_mut().push(op);
        Self { graph: graph.clone(), id }
    }

    pub(super) fn id(&self) -> Id {
        self.id
    }

    fn then(&self, op: impl FnOnce(Id) -> Op<Id>) -> Self {
        Self::new(&self.graph, op(self.id))
    }

    fn with(&self, other: &Self, op: impl FnOnce(Id, Id) -> Op<Id>) -> Self {
        assert!(Rc::ptr_eq(&self.graph, &other.graph), "an expression of another formula");
        Self::new(&self.graph, op(self.id, other.id))
    }

    /// A constant in the graph of this expression.
    pub fn number(&self, value: f64) -> Self {
        let id = self.graph.borrow_mut().constant(value);
        Self { graph: self.graph.clone(), id }
    }

    /// `2^self`.
    pub fn exp2(&self) -> Self {
        self.then(Op::Exp2)
    }

    /// `e^self`.
    pub fn exp(&self) -> Self {
        (self * std::f64::consts::LOG2_E).exp2()
    }

    /// The logarithm to base 2.
    pub fn log2(&self) -> Self {
        self.then(Op::Log2)
    }

    /// The natural logarithm.
    pub fn ln(&self) -> Self {
        self.log2() * std::f64::consts::LN_2
    }

    /// The square root; at 0 its derivative counts as 0, and so do values below 0.
    pub fn sqrt(&self) -> Self {
        self.then(Op::Sqrt)
    }

    /// `self^-1/2`; 0 for values that are not positive.
    pub fn inverse_sqrt(&self) -> Self {
        self.then(Op::InverseSqrt)
    }

    /// `1 / self`.
    pub fn recip(&self) -> Self {
        self.then(Op::Recip)
    }

    /// The sine, of radians.
    pub fn sin(&self) -> Self {
        self.then(Op::Sin)
    }

    /// The cosine, of radians.
    pub fn cos(&self) -> Self {
        self.then(Op::Cos)
    }

    /// The absolute value; at 0 its derivative counts as 0.
    pub fn abs(&self) -> Self {
        self.then(Op::Abs)
    }

    /// -1, 0 or 1, with derivative 0.
    pub fn sign(&self) -> Self {
        self.then(Op::Sign)
    }

    /// The larger of two numbers; where they are equal, each has half of the derivative.
    pub fn max(&self, other: &Self) -> Self {
        self.with(other, Op::Max)
    }

    /// The smaller of two numbers.
    pub fn min(&self, other: &Self) -> Self {
        -(-self).max(&-other)
    }

    /// `self^2`.
    pub fn square(&self) -> Self {
        self.with(self, Op::Mul)
    }

    /// `self^n`, by products.
    pub fn powi(&self, n: i32) -> Self {
        match n {
            0 => self.number(1.0),
            1 => self.clone(),
            n if n < 0 => self.recip().powi(-n),
            n if n % 2 == 0 => self.square().powi(n / 2),
            n => self * self.powi(n - 1),
        }
    }

    /// `self^n` of a positive number.
    pub fn powf(&self, n: f64) -> Self {
        (self.log2() * n).exp2()
    }
}

impl Vector {
    pub(super) fn new(components: Vec<Expr>) -> Self {
        assert!(!components.is_empty(), "a vector needs a component");
        Self(components)
    }

    /// The components, in order.
    pub fn components(&self) -> &[Expr] {
        &self.0
    }

    /// A component.
    ///
    /// # Panics
    /// If there is none of that index.
    pub fn at(&self, component: usize) -> Expr {
        self.0[component].clone()
    }

    /// The sum of all components.
    pub fn sum(&self) -> Expr {
        self.0[1..].iter().fold(self.0[0].clone(), |sum, x| sum + x)
    }

    /// The inner product.
    ///
    /// # Panics
    /// If the dimensions differ.
    pub fn dot(&self, other: &Self) -> Expr {
        self.zip(other, |a, b| a * b).sum()
    }

    /// `|self|^2`.
    pub fn norm2(&self) -> Expr {
        self.dot(self)
    }

    /// `|self|`.
    pub fn norm(&self) -> Expr {
        self.norm2().sqrt()
    }

    fn zip(&self, other: &Self, f: impl Fn(&Expr, &Expr) -> Expr) -> Self {
        let (n, m) = (self.0.len(), other.0.len());
        assert!(n == m, "vectors of {n} and {m} components do not fit");
        Self(self.0.iter().zip(&other.0).map(|(a, b)| f(a, b)).collect())
    }

    fn map(&self, f: impl Fn(&Expr) -> Expr) -> Self {
        Self(self.0.iter().map(f).collect())
    }
}

impl From<Expr> for Vector {
    fn from(number: Expr) -> Self {
        Self(vec![number])
    }
}

/// An operator for values and references on either side, from the one of references.
macro_rules! operator {
    ($trait:ident $method:ident: $a:ty, $b:ty => $output:ty, $f:expr) => {
        impl $trait<&$b> for &$a {
            type Output = $output;
            fn $method(self, other: &$b) -> $output {
                let f: fn(&$a, &$b) -> $output = $f;
                f(self, other)
            }
        }
        impl $trait<$b> for &$a {
            type Output = $output;
            fn $method(self, other: $b) -> $output {
                self.$method(&other)
            }
        }
        impl $trait<&$b> for $a {
            type Output = $output;
            fn $method(self, other: &$b) -> $output {
                (&self).$method(other)
            }
        }
        impl $trait<$b> for $a {
            type Output = $output;
            fn $method(self, other: $b) -> $output {
                (&self).$method(&other)
            }
        }
    };
}

operator!(Add add: Expr, Expr => Expr, |a, b| a.with(b, Op::Add));
operator!(Sub sub: Expr, Expr => Expr, |a, b| a.with(b, Op::Sub));
operator!(Mul mul: Expr, Expr => Expr, |a, b| a.with(b, Op::Mul));
operator!(Div div: Expr, Expr => Expr, |a, b| a * b.recip());
operator!(Add add: Expr, f64 => Expr, |a, b| a + a.number(*b));
operator!(Sub sub: Expr, f64 => Expr, |a, b| a - a.number(*b));
operator!(Mul mul: Expr, f64 => Expr, |a, b| a * a.number(*b));
operator!(Div div: Expr, f64 => Expr, |a, b| a * a.number(b.recip()));
operator!(Add add: f64, Expr => Expr, |a, b| b.number(*a) + b);
operator!(Sub sub: f64, Expr => Expr, |a, b| b.number(*a) - b);
operator!(Mul mul: f64, Expr => Expr, |a, b| b.number(*a) * b);
operator!(Div div: f64, Expr => Expr, |a, b| b.number(*a) / b);
operator!(Add add: Vector, Vector => Vector, |a, b| a.zip(b, |a, b| a + b));
operator!(Sub sub: Vector, Vector => Vector, |a, b| a.zip(b, |a, b| a - b));
operator!(Mul mul: Vector, Expr => Vector, |a, b| a.map(|a| a * b));
operator!(Mul mul: Expr, Vector => Vector, |a, b| b * a);
operator!(Mul mul: Vector, f64 => Vector, |a, b| a.map(|a| a * b));
operator!(Mul mul: f64, Vector => Vector, |a, b| b * a);
operator!(Div div: Vector, Expr => Vector, |a, b| a * b.recip());
operator!(Div div: Vector, f64 => Vector, |a, b| a * b.recip());

macro_rules! minus {
    ($($a:ty, $f:expr);*) => {$(
        impl Neg for &$a {
            type Output = $a;
            fn neg(self) -> $a {
                let f: fn(&$a) -> $a = $f;
                f(self)
            }
        }
        impl Neg for $a {
            type Output = $a;
            fn neg(self) -> $a {
                -&self
            }
        }
    )*};
}

minus!(Expr, |a| a.then(Op::Neg); Vector, |a| a.map(|a| -a));
