//! Transport, gradient and Hessian by themselves.

use super::*;
use ffdp_optim::{Curved, Objective, Space};

#[test]
fn forth_and_back() {
    for n in [32, 64] {
        let grid = cube(n, 1);
        let m = template(&grid, DType::F32);
        let v = velocity(&grid, DType::F32, 0.5);
        let there = Flow::along(&grid, &v, 4).unwrap().path(&m).unwrap().pop().unwrap();
        let v = v.map(Tensor::neg);
        let back = Flow::along(&grid, &v, 4).unwrap().path(&there).unwrap().pop().unwrap();
        println!("FORTH {n} {:.3e}", off(&back, &m));
    }
}

#[test]
fn gradient_and_hessian() {
    for n in [16, 32] {
        let grid = cube(n, 1);
        let mut problem = problem(&grid, DType::F64, 0.5, Preconditioner::InvA);
        let at = vector(velocity(&grid, DType::F64, 0.2));
        let point = problem.evaluate(&at).unwrap();
        let d = vector(volume(&grid, DType::F64, |[x, y, z]| {
            [(x + y).cos(), z.sin(), (y - z).sin() * x.cos()]
        }));
        let e = vector(volume(&grid, DType::F64, |[x, y, z]| {
            [(x - z).sin(), (x + 2.0 * y).cos(), x.cos()]
        }));
        problem.prepare().unwrap();
        let hd = problem.hessian(&d).unwrap();
        let he = problem.hessian(&e).unwrap();
        let dots =
            FieldVector::dots(&[[&e, &hd], [&d, &he], [&d, &point.gradient], [&d, &hd]]).unwrap();
        println!("SYMMETRY {n} {:.3e} {dots:?}", (dots[0] - dots[1]).abs() / dots[3]);
        let h = 1e-3;
        let mut loss =
            |a: f64| problem.evaluate(&FieldVector::combine(&[(1.0, &at), (a, &d)])).unwrap().loss;
        let slope = (loss(h) - loss(-h)) / (2.0 * h);
        println!("ADJOINT {n} {:.3e}", (slope - dots[2]).abs() / slope.abs());
    }
}
