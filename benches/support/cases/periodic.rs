//! What Gauss-Newton-Krylov registration is made of, on periodic volumes.

use burn::tensor::Tensor;
use ffdp::ops;

use super::super::inputs::Kind;
use super::case::{Case, fused, plain};

pub fn periodic() -> Vec<Case> {
    let case = |name, bytes, inputs, run| Case {
        name,
        floor: [bytes; 2],
        inputs,
        variants: vec![fused("fused", run)],
    };
    let inverse = |t: &[Tensor<5>]| {
        let symbol = ops::Symbol::InverseRegularizer { beta: 1e-2, gamma: 1e-4 };
        ops::spectral(t[0].clone(), symbol, [1.0; 3])
    };
    // The linear sampling of the same field, which cubic sampling is held against.
    let linear = |t: &[Tensor<5>]| ops::warp(t[0].clone(), t[1].clone());
    let cubic = |t: &[Tensor<5>]| ops::cubic_sample(t[0].clone(), t[1].clone());
    vec![
        case("periodic fft and back", 8.0, vec![plain(Kind::Image)], |t| {
            let width = t[0].dims()[4];
            ops::inverse_fft(ops::fft(t[0].clone()), width)
        }),
        case("periodic inverse regulariser", 24.0, vec![plain(Kind::Field)], inverse),
        case("periodic gradient of order 8", 16.0, vec![plain(Kind::Image)], |t| {
            ops::periodic_gradient(t[0].clone(), [1.0; 3])
        }),
        case("periodic divergence of order 8", 16.0, vec![plain(Kind::Field)], |t| {
            ops::periodic_divergence(t[0].clone(), [1.0; 3])
        }),
        case("periodic cubic coefficients", 8.0, vec![plain(Kind::Image)], |t| {
            ops::cubic_coefficients(t[0].clone())
        }),
        case("periodic cubic sampling", 20.0, vec![plain(Kind::Image), plain(Kind::Smooth)], cubic),
        case(
            "periodic cubic sampling, field",
            36.0,
            vec![plain(Kind::Field), plain(Kind::Smooth)],
            cubic,
        ),
        case(
            "periodic (linear) sampling, field",
            36.0,
            vec![plain(Kind::Field), plain(Kind::Smooth)],
            linear,
        ),
    ]
}
