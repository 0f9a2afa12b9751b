//! The bias on the CPU.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;

use super::{PositionBiasOps, bias_shape, rows, table_shape};
use ffdp_kit::real::{Real, by_dtype, elements, tensor};

/// The row of each pair of tokens, queries first.
fn row_of_pairs(window: [usize; 3]) -> Vec<usize> {
    let [_, wh, ww] = window;
    let tokens = window.iter().product();
    let position = |t: usize| [t / (wh * ww), t / ww % wh, t % ww];
    let row = |query: usize, key: usize| {
        let (query, key) = (position(query), position(key));
        let [a, b, c]: [usize; 3] =
            std::array::from_fn(|axis| query[axis] + window[axis] - 1 - key[axis]);
        (a * (2 * wh - 1) + b) * (2 * ww - 1) + c
    };
    (0..tokens).flat_map(|query| (0..tokens).map(move |key| row(query, key))).collect()
}

fn spread<T: Real>(table: &FlexTensor, window: [usize; 3]) -> FlexTensor {
    let shape = bias_shape(table.layout().shape(), window);
    let (heads, values) = (shape[0], elements::<T>(table));
    let pairs = row_of_pairs(window);
    let of_head = |head| pairs.iter().map(move |row| values[row * heads + head]);
    tensor((0..heads).flat_map(of_head).collect(), shape)
}

fn gather<T: Real>(grad: &FlexTensor, window: [usize; 3]) -> FlexTensor {
    let shape = table_shape(grad.layout().shape(), window);
    let (heads, pairs) = (shape[1], row_of_pairs(window));
    let mut sums = vec![0.0; rows(window) * heads];
    for (head, grad) in elements::<T>(grad).chunks(pairs.len()).enumerate() {
        for (row, g) in pairs.iter().zip(grad) {
            sums[row * heads + head] += g.wide();
        }
    }
    tensor(sums.into_iter().map(T::of).collect(), shape)
}

impl PositionBiasOps for Flex {
    fn spread_positions(table: FloatTensor<Self>, window: [usize; 3]) -> FloatTensor<Self> {
        let table = table.to_contiguous();
        by_dtype!("position_bias", table.dtype(), spread(&table, window))
    }

    fn gather_positions(grad: FloatTensor<Self>, window: [usize; 3]) -> FloatTensor<Self> {
        let grad = grad.to_contiguous();
        by_dtype!("position_bias", grad.dtype(), gather(&grad, window))
    }
}
