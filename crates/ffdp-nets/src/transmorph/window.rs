use burn::tensor::{Device, Tensor, TensorData};

use crate::ops::{WindowCut, cut_windows, join_windows};

/// How a grid of tokens is cut into (shifted) windows.
///
/// The grid is padded with zeros at its far ends to a multiple of the window, rolled back by the
/// shift and cut. After a roll the last windows along an axis hold tokens from both ends of the
/// grid, which [`Windows::regions`] keeps apart. The padding itself is not masked, as published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// Extents of the token grid (D, H, W).
    pub grid: [usize; 3],
    /// Sides of a window in tokens (D, H, W).
    pub window: [usize; 3],
    /// Tokens by which the grid is rolled towards its origin; 0, or half a window.
    pub shift: [usize; 3],
}

impl Windows {
    /// Windows aligned with the grid.
    pub fn aligned(grid: [usize; 3], window: [usize; 3]) -> Self {
        Self { grid, window, shift: [0; 3] }
    }

    /// Windows displaced by half a window along each axis.
    pub fn shifted(grid: [usize; 3], window: [usize; 3]) -> Self {
        Self { grid, window, shift: window.map(|side| side / 2) }
    }

    /// Tokens in a window.
    pub fn tokens(&self) -> usize {
        self.window.iter().product()
    }

    fn cut(&self) -> WindowCut {
        WindowCut { grid: self.grid, window: self.window, shift: self.shift }
    }

    /// Shapes: tokens `[N, D, H, W, C]`; windows `[N * windows, tokens, C]`.
    pub fn partition(&self, tokens: Tensor<5>) -> Tensor<3> {
        cut_windows(tokens, self.cut())
    }

    /// Undoes [`Windows::partition`]. Shapes: windows `[N * windows, tokens, C]`; tokens
    /// `[N, D, H, W, C]`.
    pub fn reverse(&self, windows: Tensor<3>) -> Tensor<5> {
        join_windows(windows, self.cut())
    }

    /// The region of every token after the roll; only tokens of one region attend to each other.
    ///
    /// Along an axis of P tokens with window w and shift s the rolled grid has three regions,
    /// `[0, P - w)`, `[P - w, P - s)` and `[P - s, P)`; only the last two share windows. 27 in all.
    ///
    /// Shape: `[windows, tokens]`; `[1, tokens]` without shift, all the same.
    pub fn regions(&self, device: &Device) -> Tensor<2> {
        let n = self.tokens();
        if self.shift == [0; 3] {
            return Tensor::zeros([1, n], device);
        }
        let regions = self.region_codes();
        let count = regions.len() / n;
        Tensor::from_data(TensorData::new(regions, [count, n]), device)
    }

    /// The region (0 to 26) of every token, window by window.
    fn region_codes(&self) -> Vec<f32> {
        let (padded, counts) = (self.cut().padded(), self.cut().counts());
        // The part (0 to 2) of every index along an axis, times the weight of the axis.
        let parts = |axis: usize, weight: f32| -> Vec<f32> {
            let (extent, window, shift) = (padded[axis], self.window[axis], self.shift[axis]);
            let part = |i: usize| match i {
                _ if shift == 0 || i < extent - window => 0.0,
                _ if i < extent - shift => weight,
                _ => 2.0 * weight,
            };
            (0..extent).map(part).collect()
        };
        let [along_d, along_h, along_w] = [parts(0, 9.0), parts(1, 3.0), parts(2, 1.0)];
        let mut regions = Vec::with_capacity(padded.iter().product());
        for window in 0..counts.iter().product() {
            let [a, b, c] = [
                window / (counts[1] * counts[2]),
                window / counts[2] % counts[1],
                window % counts[2],
            ];
            for d in &along_d[a * self.window[0]..][..self.window[0]] {
                for h in &along_h[b * self.window[1]..][..self.window[1]] {
                    let line = &along_w[c * self.window[2]..][..self.window[2]];
                    regions.extend(line.iter().map(|w| d + h + w));
                }
            }
        }
        regions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Int;

    fn numbered(shape: [usize; 5]) -> Tensor<5> {
        let count = shape.iter().product::<usize>() as i64;
        Tensor::<1, Int>::arange(0..count, &Device::flex()).float().reshape(shape)
    }

    #[test]
    fn reverse_undoes_partition() {
        let cases = [
            ([4, 4, 4], [2, 2, 2]),
            ([5, 3, 7], [2, 4, 3]),
            ([2, 2, 2], [4, 4, 4]),
            ([1, 6, 5], [1, 3, 5]),
        ];
        for (grid, window) in cases {
            let [d, h, w] = grid;
            let tokens = numbered([2, d, h, w, 3]);
            for windows in [Windows::aligned(grid, window), Windows::shifted(grid, window)] {
                let parts = windows.partition(tokens.clone());
                assert_eq!(parts.dims()[1..], [windows.tokens(), 3], "{windows:?}");
                let back = windows.reverse(parts);
                back.into_data().assert_eq(&tokens.to_data(), true);
            }
        }
    }

    #[test]
    fn windows_hold_their_own_tokens() {
        let windows = Windows::shifted([1, 4, 4], [1, 2, 2]);
        let parts = windows.partition(numbered([1, 1, 4, 4, 1]));
        let parts: Vec<f32> = parts.into_data().try_to_vec().unwrap();
        // Rows and columns are rolled by one: the first window starts at (1, 1), the last wraps.
        assert_eq!(parts[..4], [5.0, 6.0, 9.0, 10.0]);
        assert_eq!(parts[12..], [15.0, 12.0, 3.0, 0.0]);
    }

    #[test]
    fn regions_separate_tokens_that_were_not_neighbours() {
        let windows = Windows::shifted([4, 6, 4], [4, 2, 3]);
        let padded = [4, 6, 6];
        assert_eq!(windows.cut().padded(), padded);
        // Where each rolled token came from.
        let [d, h, w] = padded;
        let origin = Windows { grid: padded, ..windows }.partition(numbered([1, d, h, w, 1]));
        let origin: Vec<f32> = origin.into_data().try_to_vec().unwrap();
        let n = windows.tokens();
        let regions = windows.regions(&Device::flex());
        assert_eq!(regions.dims(), [origin.len() / n, n]);
        let regions: Vec<f32> = regions.into_data().try_to_vec().unwrap();
        for (window, tokens) in origin.chunks(n).enumerate() {
            let at = |i: usize| {
                let t = tokens[i] as usize;
                [t / (h * w), t / w % h, t % w]
            };
            for query in 0..n {
                for key in 0..n {
                    // Contiguous before the roll: no axis was wrapped for one and not the other.
                    let together = (0..3).all(|axis| {
                        let wrapped = |p: [usize; 3]| p[axis] < windows.shift[axis];
                        wrapped(at(query)) == wrapped(at(key))
                    });
                    let same = regions[window * n + query] == regions[window * n + key];
                    // A wrapped token shares windows only with tokens of the last window.
                    assert_eq!(same, together, "window {window}, {query} -> {key}");
                }
            }
        }
        let aligned = Windows::aligned([4, 4, 4], [2, 2, 2]).regions(&Device::flex());
        assert_eq!((aligned.dims(), aligned.abs().max().into_scalar::<f32>()), ([1, 8], 0.0));
    }
}
