//! Formulas `F(x_i, .., y_j, .., p)` of rows, columns and parameters, with derivatives of any order: each adds a variable.
//!
//! ```
//! use ffdp_shapes::formula::Formula;
//!
//! // Matern's kernel of order 3/2: sum_j (1 + r / s) exp(-r / s) b_j.
//! let matern = Formula::new(|v| {
//!     let (x, y, b, s) = (v.rows(3), v.columns(3), v.columns(2), v.parameters(1));
//!     let r = (x - y).norm() / s.at(0);
//!     (1.0 + &r) * (-&r).exp() * b
//! });
//! let to_x = matern.gradient(&[0]);
//! let to_x_to_y = to_x.gradient(&[1]);
//! ```
//! Variables take the tensors of a call in the order of their making. Read `graph.rs`, then `derivative.rs`;
//! `program.rs` orders a formula for the loops that evaluate it.

mod derivative;
mod expr;
mod graph;
pub(crate) mod program;

use std::cell::RefCell;
use std::collections::HashMap;
use std::f64::consts::LOG2_E;
use std::rc::Rc;
use std::sync::{Arc, Mutex, OnceLock};

use graph::Graph;
pub(crate) use graph::{Id, Op};

pub use expr::{Expr, Vector};
use program::Program;

/// What a variable belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// To row `i` of the result.
    Row,
    /// To column `j`, over which is reduced.
    Column,
    /// To the formula.
    Parameter,
}

impl Role {
    fn transposed(self) -> Self {
        match self {
            Role::Row => Role::Column,
            Role::Column => Role::Row,
            Role::Parameter => Role::Parameter,
        }
    }
}

/// A vector that a formula takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Variable {
    /// What it belongs to.
    pub role: Role,
    /// Its components.
    pub dim: usize,
}

/// A function of rows, columns and parameters. See the [module](self). Clones share what was derived from it.
#[derive(Clone, Debug)]
pub struct Formula {
    graph: Arc<Graph>,
    variables: Vec<Variable>,
    outputs: Vec<Id>,
    derived: Arc<Derived>,
}

/// What is derived from a formula once.
#[derive(Debug, Default)]
struct Derived {
    sum: OnceLock<Arc<Program>>,
    values: OnceLock<Arc<Program>>,
    powers: OnceLock<Arc<Program>>,
    relative: OnceLock<Formula>,
    gradients: Mutex<HashMap<Vec<usize>, Formula>>,
}

/// Makes the variables of a formula.
#[derive(Debug)]
pub struct Variables {
    graph: Rc<RefCell<Graph>>,
    made: Vec<Variable>,
}

impl Variables {
    fn make(&mut self, role: Role, dim: usize) -> Vector {
        assert!(dim > 0, "variable {} of a formula has no components", self.made.len());
        let slot = self.made.len();
        self.made.push(Variable { role, dim });
        let load = |component| Expr::new(&self.graph, Op::Load { slot, component });
        Vector::new((0..dim).map(load).collect())
    }

    /// A vector for every row: a tensor `[N, dim]`.
    pub fn rows(&mut self, dim: usize) -> Vector {
        self.make(Role::Row, dim)
    }

    /// A vector for every column: a tensor `[M, dim]`.
    pub fn columns(&mut self, dim: usize) -> Vector {
        self.make(Role::Column, dim)
    }

    /// Numbers for the whole formula: a tensor `[1, dim]`.
    pub fn parameters(&mut self, dim: usize) -> Vector {
        self.make(Role::Parameter, dim)
    }
}

impl Formula {
    /// The formula that `write` writes.
    pub fn new<V: Into<Vector>>(write: impl FnOnce(&mut Variables) -> V) -> Self {
        let mut variables = Variables { graph: Default::default(), made: Vec::new() };
        let result: Vector = write(&mut variables).into();
        let outputs = result.components().iter().map(Expr::id).collect();
        let graph = variables.graph.borrow().clone();
        Self::of(graph, variables.made, outputs)
    }

    fn of(graph: Graph, variables: Vec<Variable>, outputs: Vec<Id>) -> Self {
        Self { graph: Arc::new(graph), variables, outputs, derived: Default::default() }
    }

    /// The variables, in the order of the tensors.
    pub fn variables(&self) -> &[Variable] {
        &self.variables
    }

    /// Components of the result.
    pub fn dim(&self) -> usize {
        self.outputs.len()
    }

    /// Rows for columns and columns for rows.
    pub fn transposed(&self) -> Self {
        let turned = |v: &Variable| Variable { role: v.role.transposed(), dim: v.dim };
        let variables = self.variables.iter().map(turned).collect();
        Self { variables, derived: Default::default(), ..self.clone() }
    }

    /// The formula of one column a row: what belonged to columns belongs to rows.
    pub(crate) fn of_pairs(&self) -> Self {
        let of_rows = |v: &Variable| match v.role {
            Role::Column => Variable { role: Role::Row, dim: v.dim },
            _ => *v,
        };
        let variables = self.variables.iter().map(of_rows).collect();
        Self { variables, derived: Default::default(), ..self.clone() }
    }

    /// The formula that is written onto this one: it continues from the results, with more variables.
    pub(crate) fn and_then<V: Into<Vector>>(
        &self,
        write: impl FnOnce(&mut Variables, Vector) -> V,
    ) -> Self {
        let graph = Rc::new(RefCell::new((*self.graph).clone()));
        let node = |id: &Id| {
            let op = graph.borrow().node(*id);
            Expr::new(&graph, op)
        };
        let results = Vector::new(self.outputs.iter().map(node).collect());
        let mut variables = Variables { graph: graph.clone(), made: self.variables.clone() };
        let result: Vector = write(&mut variables, results).into();
        let outputs = result.components().iter().map(Expr::id).collect();
        let graph = variables.graph.borrow().clone();
        Self::of(graph, variables.made, outputs)
    }

    /// The formula of the gradient: of `L = sum_i <e_i, sum_j F(x_i, y_j, p)>` to the variables `slots`, whose
    /// components the result joins. It takes one variable more at the end, `e`, the gradient of `L` to the sums.
    /// The gradient to columns is a sum over rows: its formula is transposed, rows and `e` are its columns.
    /// That to parameters is to be summed over the rows.
    ///
    /// # Panics
    /// If `slots` is empty, holds unknown variables, or rows together with columns.
    pub fn gradient(&self, slots: &[usize]) -> Self {
        let known = || self.derived.gradients.lock().expect("nobody panics while it is held");
        if let Some(gradient) = known().get(slots) {
            return gradient.clone();
        }
        let gradient = self.differentiated(slots);
        known().insert(slots.to_vec(), gradient.clone());
        gradient
    }

    fn differentiated(&self, slots: &[usize]) -> Self {
        let role = self.role_of(slots);
        let scalar = self.and_then(|v, f| {
            let e = v.rows(f.components().len());
            f.dot(&e)
        });
        let mut graph = (*scalar.graph).clone();
        let loads = slots.iter().flat_map(|&slot| {
            (0..self.variables[slot].dim).map(move |component| Op::Load { slot, component })
        });
        let loads: Vec<Op<Id>> = loads.collect();
        let outputs = derivative::derivatives(&mut graph, scalar.outputs[0], &loads);
        let formula = Self::of(graph, scalar.variables, outputs);
        if role == Role::Column { formula.transposed() } else { formula }
    }

    /// `exp(F - L_i)`, with a variable more for the rows' `L`: of which a log-sum-exp's gradient is the sum.
    pub(crate) fn relative(&self) -> &Self {
        let relative = || self.and_then(|v, f| (f.at(0) - v.rows(1).at(0)).exp());
        self.derived.relative.get_or_init(relative)
    }

    /// The program that sums.
    pub(crate) fn sum_program(&self) -> Arc<Program> {
        self.derived.sum.get_or_init(|| Program::sum(self).into()).clone()
    }

    /// The program of the values.
    pub(crate) fn values_program(&self) -> Arc<Program> {
        self.derived.values.get_or_init(|| Program::values(self).into()).clone()
    }

    /// The program of the values as exponents of two, which machines take: `F log2 e`.
    pub(crate) fn powers_program(&self) -> Arc<Program> {
        let program = || Program::values(&self.and_then(|_, f| f * LOG2_E)).into();
        self.derived.powers.get_or_init(program).clone()
    }

    /// What the variables belong to.
    fn role_of(&self, slots: &[usize]) -> Role {
        let count = self.variables.len();
        let known = !slots.is_empty() && slots.iter().all(|slot| *slot < count);
        assert!(known, "gradient to the variables {slots:?} of a formula of {count}");
        let role = self.variables[slots[0]].role;
        let same = slots.iter().all(|slot| self.variables[*slot].role == role);
        assert!(
            same,
            "gradient to {slots:?}: variables of rows and of columns need a formula each"
        );
        role
    }
}
