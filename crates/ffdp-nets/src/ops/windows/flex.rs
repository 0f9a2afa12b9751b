//! The windows on the CPU.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;

use super::{WindowCut, WindowOps};
use ffdp_kit::real::{Real, by_dtype, elements, tensor};

impl WindowCut {
    /// For each token of each window of a sample, its number in the grid; none in the padding.
    fn sources(&self) -> Vec<Option<usize>> {
        let ([nd, nh, nw], [wd, wh, ww]) = (self.counts(), self.window);
        let padded = self.padded();
        let place = |window: usize, token: usize| {
            let window = [window / (nh * nw), window / nw % nh, window % nw];
            let token = [token / (wh * ww), token / ww % wh, token % ww];
            let p: [usize; 3] = std::array::from_fn(|axis| {
                let rolled = window[axis] * self.window[axis] + token[axis];
                (rolled + self.shift[axis]) % padded[axis]
            });
            let [_, h, w] = self.grid;
            (0..3).all(|axis| p[axis] < self.grid[axis]).then(|| (p[0] * h + p[1]) * w + p[2])
        };
        let tokens = wd * wh * ww;
        (0..nd * nh * nw).flat_map(|a| (0..tokens).map(move |i| place(a, i))).collect()
    }
}

fn cut_all<T: Real>(tokens: &FlexTensor, cut: WindowCut) -> FlexTensor {
    let shape = cut.windows_shape(tokens.layout().shape());
    let (channels, sources) = (shape[2], cut.sources());
    let sample = cut.grid.iter().product::<usize>() * channels;
    let mut windows = vec![T::default(); shape.num_elements()];
    let samples = windows.chunks_mut((sources.len() * channels).max(1));
    for (windows, tokens) in samples.zip(elements::<T>(tokens).chunks(sample.max(1))) {
        for (window, from) in windows.chunks_mut(channels).zip(&sources) {
            if let Some(from) = from {
                window.copy_from_slice(&tokens[from * channels..][..channels]);
            }
        }
    }
    tensor(windows, shape)
}

fn join_all<T: Real>(windows: &FlexTensor, cut: WindowCut) -> FlexTensor {
    let shape = cut.tokens_shape(windows.layout().shape());
    let (channels, sources) = (shape[4], cut.sources());
    let sample = cut.grid.iter().product::<usize>() * channels;
    let mut tokens = vec![T::default(); shape.num_elements()];
    let samples = elements::<T>(windows).chunks((sources.len() * channels).max(1));
    for (tokens, windows) in tokens.chunks_mut(sample.max(1)).zip(samples) {
        for (window, to) in windows.chunks(channels).zip(&sources) {
            if let Some(to) = to {
                tokens[to * channels..][..channels].copy_from_slice(window);
            }
        }
    }
    tensor(tokens, shape)
}

impl WindowOps for Flex {
    fn cut_tokens(tokens: FloatTensor<Self>, cut: WindowCut) -> FloatTensor<Self> {
        let tokens = tokens.to_contiguous();
        by_dtype!("windows", tokens.dtype(), cut_all(&tokens, cut))
    }

    fn join_tokens(windows: FloatTensor<Self>, cut: WindowCut) -> FloatTensor<Self> {
        let windows = windows.to_contiguous();
        by_dtype!("windows", windows.dtype(), join_all(&windows, cut))
    }
}
