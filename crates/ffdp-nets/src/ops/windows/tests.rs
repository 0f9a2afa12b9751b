//! Exact cases, the adjoint, and GPU against CPU: values are moved, never changed.

use burn::tensor::{DType, Device, Tensor};

use super::*;
use ffdp_kit::testing::{gpu_devices, normal, tensor, to_f64};

/// Grid, window, shift: whole windows, padding, one window larger than the grid, sides of 1.
const CASES: [([usize; 3], [usize; 3], [usize; 3]); 6] = [
    ([4, 4, 4], [2, 2, 2], [0, 0, 0]),
    ([4, 4, 4], [2, 2, 2], [1, 1, 1]),
    ([5, 3, 7], [2, 4, 3], [1, 2, 1]),
    ([2, 2, 2], [4, 4, 4], [2, 2, 2]),
    ([1, 6, 5], [1, 3, 5], [0, 1, 2]),
    ([7, 9, 20], [5, 6, 7], [2, 3, 3]),
];

fn cut_of((grid, window, shift): ([usize; 3], [usize; 3], [usize; 3])) -> WindowCut {
    WindowCut { grid, window, shift }
}

/// Tokens of two samples of three channels, their windows, and the gradient of `sum windows r`.
fn evaluate(cut: WindowCut, device: &Device) -> [Vec<f64>; 4] {
    let device = device.clone().autodiff();
    let [d, h, w] = cut.grid;
    let values = normal(2 * d * h * w * 3, 1);
    let tokens: Tensor<5> = tensor(&values, [2, d, h, w, 3], &device, DType::F32).require_grad();
    let windows = cut_windows(tokens.clone(), cut);
    let r = normal(windows.dims().iter().product(), 2);
    let r: Tensor<3> = tensor(&r, windows.dims(), &device, DType::F32);
    let r = r.require_grad();
    let joined = join_windows(r.clone(), cut);
    let back = (joined.clone() * tokens.clone().detach()).backward();
    let gradients = (windows.clone() * r.clone().detach()).backward();
    let to_tokens = tokens.grad(&gradients).expect("the tokens want a gradient");
    let to_windows = r.grad(&back).expect("the windows want a gradient");
    [windows.inner(), to_windows]
        .map(to_f64)
        .into_iter()
        .chain([joined.inner(), to_tokens].map(to_f64))
        .collect::<Vec<_>>()
        .try_into()
        .expect("four results")
}

#[test]
fn each_is_the_adjoint_of_the_other() {
    for case in CASES {
        let [windows, to_windows, joined, to_tokens] = evaluate(cut_of(case), &Device::flex());
        assert_eq!(windows, to_windows, "{case:?}");
        assert_eq!(joined, to_tokens, "{case:?}");
    }
}

#[test]
fn joining_undoes_cutting() {
    for case in CASES {
        let cut = cut_of(case);
        let [d, h, w] = cut.grid;
        let values = normal(2 * d * h * w * 3, 1);
        let tokens: Tensor<5> = tensor(&values, [2, d, h, w, 3], &Device::flex(), DType::F32);
        let back = join_windows(cut_windows(tokens.clone(), cut), cut);
        assert_eq!(to_f64(back), to_f64(tokens), "{case:?}");
    }
}

#[test]
fn windows_hold_their_own_tokens() {
    let cut = WindowCut { grid: [1, 4, 4], window: [1, 2, 2], shift: [0, 1, 1] };
    let values: Vec<f64> = (0..16).map(f64::from).collect();
    let tokens: Tensor<5> = tensor(&values, [1, 1, 4, 4, 1], &Device::flex(), DType::F32);
    let windows = to_f64(cut_windows(tokens, cut));
    // Rows and columns are rolled by one: the first window starts at (1, 1), the last wraps.
    assert_eq!(windows[..4], [5.0, 6.0, 9.0, 10.0]);
    assert_eq!(windows[12..], [15.0, 12.0, 3.0, 0.0]);
}

#[test]
fn gpu_agrees_with_cpu() {
    for (name, device) in gpu_devices() {
        for case in CASES {
            let cut = cut_of(case);
            assert_eq!(evaluate(cut, &device), evaluate(cut, &Device::flex()), "{name} {case:?}");
        }
    }
}

#[test]
#[should_panic(expected = "3 windows of 8 tokens are not 8 of 8 for each sample")]
fn windows_must_be_whole_samples() {
    let cut = cut_of(CASES[0]);
    join_windows(Tensor::ones([3, 8, 1], &Device::flex()), cut);
}
