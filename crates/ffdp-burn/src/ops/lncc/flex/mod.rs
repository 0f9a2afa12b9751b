//! LNCC on the CPU: one sweep along z per chunk of planes.
//!
//! The five products are summed along z while their planes come and leave the window; from there the sums along y and x
//! of a row are the means of its windows, and give `n` and the fields that the gradient is made of. These are summed
//! over windows in the same way. Chunks run in parallel and repeat the planes of their margins.
//! `sums.rs` sums over windows · `sweep.rs` the sweep.

mod sums;
mod sweep;

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::{LnccCall, LnccOps, LnccWeights, gaussian_weights};
use ffdp_kit::real::{Real, by_dtype, elements, readable, tensor};

use sums::Filter;
use sweep::{ANEW, Centred, Chunk, Sweep};

fn run<T: Real>(
    [moved, fixed, weights]: [&FlexTensor; 3],
    LnccCall { options, weighted, factor }: LnccCall,
    needs: [bool; 2],
) -> (FlexTensor, FlexTensor, FlexTensor) {
    let shape = moved.layout().shape().clone();
    let size = [shape[2], shape[3], shape[4]];
    let len: usize = size.iter().product();
    let radius = options.window / 2;
    let filter = match options.weights {
        LnccWeights::Box => Filter { weights: vec![1.0; 2 * radius + 1], is_box: true },
        LnccWeights::Gaussian { sigma_voxels } => {
            Filter { weights: gaussian_weights(sigma_voxels, radius), is_box: false }
        }
    };
    // Enough chunks for the threads, few enough that their margins stay a small part.
    let depth = size[0].div_ceil(rayon::current_num_threads()).max(2 * options.window);
    let depth = depth.next_multiple_of(ANEW);
    let mut sum = 0.0;
    let mut gradients = [Vec::new(), Vec::new()];
    let volumes = elements::<T>(moved).chunks(len).zip(elements::<T>(fixed).chunks(len));
    for (volume, (moved, fixed)) in volumes.enumerate() {
        let (moved, fixed) = (Centred::new(moved), Centred::new(fixed));
        let weights = weighted.then(|| &elements::<T>(weights)[volume * len..][..len]);
        let sweep = Sweep { moved, fixed, weights, size, options, filter: &filter, needs, factor };
        let starts: Vec<usize> = (0..size[0]).step_by(depth).collect();
        let chunks: Vec<Chunk<T>> = starts
            .into_par_iter()
            .map(|start| sweep.chunk(start..(start + depth).min(size[0])))
            .collect();
        for chunk in chunks {
            // Plane by plane: the same bits for any number of threads.
            chunk.sums.iter().for_each(|plane| sum += plane);
            for (all, part) in gradients.iter_mut().zip(&chunk.gradients) {
                all.extend_from_slice(part);
            }
        }
    }
    let [to_moved, to_fixed] = gradients.map(|gradient| match gradient.is_empty() {
        true => tensor(vec![T::default()], [1]),
        false => tensor(gradient, shape.clone()),
    });
    (tensor(vec![T::of(factor * sum)], [1]), to_moved, to_fixed)
}

impl LnccOps for Flex {
    fn lncc_3d_with_gradient(
        moved: FloatTensor<Self>,
        fixed: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        call: LnccCall,
        needs: [bool; 2],
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let [moved, fixed, weights] = [moved, fixed, weights].map(readable);
        by_dtype!("lncc", moved.dtype(), run([&moved, &fixed, &weights], call, needs))
    }
}
