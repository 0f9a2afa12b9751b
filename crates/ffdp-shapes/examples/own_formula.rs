//! A kernel of one's own, its derivatives, and what they are for: particles that a smooth potential holds together.
//!
//! ```text
//! cargo run -p ffdp-shapes --example own_formula
//! ```
//! The potential is Matern's kernel of order 3/2 between all pairs, `V = 1/2 sum_ij (1 + r / s) exp(-r / s) m_i m_j`.
//! Forces are its gradient, as a formula; the gradient of the forces checks that they leave the sum of all momenta
//! alone; and a fit finds the scale of the kernel from the forces, through the tape.

use burn::tensor::{Device, Distribution, Tensor};
use ffdp_shapes::Formula;

fn main() {
    let device = Device::flex();
    device.seed(1);
    let n = 500;
    let x = Tensor::<2>::random([n, 3], Distribution::Uniform(-1.0, 1.0), &device);
    let mass = Tensor::<2>::random([n, 1], Distribution::Uniform(0.5, 1.0), &device);
    let scale = |s: f64, device: &Device| Tensor::<2>::full([1, 1], s, device);

    // sum_j k(x_i, y_j) m_j: variables in the order of the tensors below.
    let matern = Formula::new(|v| {
        let (x, y, m, s) = (v.rows(3), v.columns(3), v.columns(1), v.parameters(1));
        let r = (x - y).norm() / s.at(0);
        (1.0 + &r) * (-&r).exp() * m
    });
    // The gradient to x takes one tensor more: that of the result.
    let slope = matern.gradient(&[0]);
    let force = |x: Tensor<2>, mass: Tensor<2>, s: Tensor<2>| {
        -slope.sum(&[x.clone(), x, mass.clone(), s, mass])
    };

    let measured = force(x.clone(), mass.clone(), scale(0.3, &device));
    let total = measured.clone().sum_dim(0).abs().max().into_scalar::<f32>();
    let largest = measured.clone().abs().max().into_scalar::<f32>();
    println!("{n} particles, largest force {largest:.3}, sum of all forces {total:.1e}");
    assert!(total < 1e-3 * largest, "every force has its counterforce");

    // The scale of a kernel from its forces: a derivative of the gradient, to the parameter.
    let tape = device.autodiff();
    let on_tape = |t: &Tensor<2>| Tensor::from_data(t.to_data(), &tape);
    let (x, mass, measured) = (on_tape(&x), on_tape(&mass), on_tape(&measured));
    let mut s = 0.45;
    for step in 0..30 {
        let guess = scale(s, &tape).require_grad();
        let wrong = force(x.clone(), mass.clone(), guess.clone()) - measured.clone();
        let loss = wrong.clone().powi_scalar(2).mean();
        let value = loss.clone().into_scalar::<f32>() as f64;
        let to_scale = guess.grad(&loss.backward()).expect("the scale wants a gradient");
        let to_scale = to_scale.into_scalar::<f32>() as f64;
        if step % 5 == 0 {
            println!("step {step:2}: scale {s:.5}, mean squared deviation {value:.2e}");
        }
        if value < 1e-12 {
            break;
        }
        // Newton's step to a root; at a minimum of value 0 it halves the distance.
        s = (s - value / to_scale).clamp(0.05, 2.0);
    }
    println!("scale {s:.5}, 0.3 was right");
    assert!((s - 0.3).abs() < 1e-3, "the fit ended at {s}");
}

#[test]
fn the_scale_of_the_kernel_is_found() {
    main();
}
