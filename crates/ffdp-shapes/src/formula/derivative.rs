//! The chain rule, from the last node of a graph to the first.

use std::collections::BTreeMap;

use super::graph::{Graph, Id, Op};

/// The derivatives of the node `of`, with respect to what `wanted` selects, as nodes of the same graph.
pub fn derivatives(graph: &mut Graph, of: Id, wanted: &[Op<Id>]) -> Vec<Id> {
    let one = graph.constant(1.0);
    // Operands come before what uses them: the largest index is complete.
    let mut adjoints = BTreeMap::from([(of, one)]);
    let mut found = BTreeMap::new();
    while let Some((id, adjoint)) = adjoints.pop_last() {
        let op = graph.node(id);
        if let Op::Load { .. } = op {
            found.insert(id, adjoint);
        }
        for (operand, share) in shares(graph, id, op, adjoint) {
            let sum = match adjoints.get(&operand) {
                Some(sum) => graph.push(Op::Add(*sum, share)),
                None => share,
            };
            adjoints.insert(operand, sum);
        }
    }
    let zero = graph.constant(0.0);
    let ids: Vec<Id> = wanted.iter().map(|op| graph.push(*op)).collect();
    ids.iter().map(|id| found.get(id).copied().unwrap_or(zero)).collect()
}

/// What the operands of a node get of its adjoint.
fn shares(graph: &mut Graph, id: Id, op: Op<Id>, adjoint: Id) -> Vec<(Id, Id)> {
    let mut times = |factor: Id| graph.push(Op::Mul(adjoint, factor));
    match op {
        Op::Constant(_) | Op::Load { .. } | Op::Sign(_) => vec![],
        Op::Add(a, b) => vec![(a, adjoint), (b, adjoint)],
        Op::Mul(a, b) => vec![(a, times(b)), (b, times(a))],
        Op::Sub(a, b) => vec![(a, adjoint), (b, graph.push(Op::Neg(adjoint)))],
        Op::Neg(a) => vec![(a, graph.push(Op::Neg(adjoint)))],
        Op::Abs(a) => vec![(a, product(graph, adjoint, 1.0, Op::Sign(a)))],
        Op::Sin(a) => vec![(a, product(graph, adjoint, 1.0, Op::Cos(a)))],
        Op::Cos(a) => vec![(a, product(graph, adjoint, -1.0, Op::Sin(a)))],
        Op::Recip(a) => vec![(a, product(graph, adjoint, -1.0, Op::Mul(id, id)))],
        Op::Exp2(a) => vec![(a, product(graph, adjoint, std::f64::consts::LN_2, op))],
        Op::Log2(a) => vec![(a, product(graph, adjoint, std::f64::consts::LOG2_E, Op::Recip(a)))],
        Op::Sqrt(a) => vec![(a, product(graph, adjoint, 0.5, Op::InverseSqrt(a)))],
        Op::InverseSqrt(a) => {
            let square = graph.push(Op::Mul(id, id));
            vec![(a, product(graph, adjoint, -0.5, Op::Mul(square, id)))]
        }
        Op::Max(a, b) => {
            let difference = graph.push(Op::Sub(a, b));
            let to_a = product(graph, adjoint, 0.5, Op::Sign(difference));
            let half = product(graph, adjoint, 0.5, Op::Constant(1f64.to_bits()));
            vec![(a, graph.push(Op::Add(half, to_a))), (b, graph.push(Op::Sub(half, to_a)))]
        }
    }
}

/// `adjoint * factor * op`.
fn product(graph: &mut Graph, adjoint: Id, factor: f64, op: Op<Id>) -> Id {
    let value = graph.push(op);
    let product = graph.push(Op::Mul(adjoint, value));
    let factor = graph.constant(factor);
    graph.push(Op::Mul(factor, product))
}
