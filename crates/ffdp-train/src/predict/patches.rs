//! Prediction patch by patch, for images with more voxels than a network was trained on: overlapping
//! parts are registered one by one, and their displacements are joined into one field.
//!
//! A patch knows nothing of what lies outside of it, so motion that is large for a patch is not found:
//! `ffdp bench registration` compares this with a prediction for the whole image on the training's grid.

use burn::tensor::{Device, Tensor, TensorData};
use ffdp_burn::transform::{Composite, Displacement, Step};
use ffdp_image::image::Volume;
use ffdp_image::{Error, Result};

use super::Predictor;
use crate::input::InputGrid;

/// The part of a patch that the next one along an axis shares with it, at least.
const OVERLAP: f64 = 1.0 / 8.0;

impl Predictor {
    /// The map from the fixed to the moving image, predicted in patches of `size` voxels at the fixed image's
    /// own resolution, then the placement. Where patches overlap, their displacements count the less the
    /// nearer their border is.
    ///
    /// # Errors
    /// As [`Predictor::predict`]; an axis of the fixed image with fewer voxels than a patch.
    pub fn predict_in_patches(
        &self,
        fixed: &Volume,
        moving: &Volume,
        size: [usize; 3],
    ) -> Result<Composite> {
        let placed = self.placement(fixed, moving);
        let grid = InputGrid { size: None, ..self.input.clone() }.grid(&fixed.geometry)?;
        if (0..3).any(|axis| grid.size[axis] < size[axis]) {
            let what = format!("an image must be as large as the network's patches, {size:?}");
            return Err(Error::invalid(what, format_args!("{:?}", grid.size), "predict it whole"));
        }
        self.check_overlap(&grid, fixed, moving, &placed)?;
        let [fixed, moving] = self.images_on(&grid, [fixed, moving], &placed)?;
        let displacement =
            |moving, fixed| self.input.compat.displacement(self.network.forward(moving, fixed));
        let field = mosaic(displacement, moving, fixed, size);
        let displacement = Displacement::new(field, grid)?;
        Ok(Composite::new(vec![Step::Displacement(displacement), Step::Affine(placed)]))
    }
}

/// The displacements of overlapping patches of `size` (x, y, z) voxels as one field.
///
/// `displacement` takes a patch of `moving` and of `fixed` `[1, 1, d, h, w]` and gives `[1, 3, d, h, w]`. Shapes:
/// moving, fixed `[1, 1, D, H, W]`; output `[1, 3, D, H, W]`.
fn mosaic(
    displacement: impl Fn(Tensor<5>, Tensor<5>) -> Tensor<5>,
    moving: Tensor<5>,
    fixed: Tensor<5>,
    size: [usize; 3],
) -> Tensor<5> {
    let [_, _, d, h, w] = fixed.dims();
    let device = fixed.device();
    let [depth, height, width] = [size[2], size[1], size[0]];
    let weights = weights([depth, height, width], &device);
    let mut sum = Tensor::<5>::zeros([1, 3, d, h, w], &device);
    let mut total = Tensor::<5>::zeros([1, 1, d, h, w], &device);
    for z in starts(d, depth) {
        for y in starts(h, height) {
            for x in starts(w, width) {
                let part =
                    |channels| [0..1, 0..channels, z..z + depth, y..y + height, x..x + width];
                let patch = |image: &Tensor<5>| image.clone().slice(part(1));
                let found = displacement(patch(&moving), patch(&fixed)) * weights.clone();
                let found = found + sum.clone().slice(part(3));
                sum = sum.slice_assign(part(3), found);
                let counted = total.clone().slice(part(1)) + weights.clone();
                total = total.slice_assign(part(1), counted);
            }
        }
    }
    sum / total
}

/// Where patches of `size` voxels begin along an axis of `length`: as few as overlap enough, evenly spread.
fn starts(length: usize, size: usize) -> Vec<usize> {
    let last = length - size;
    let step = (size as f64 * (1.0 - OVERLAP)).max(1.0);
    let steps = (last as f64 / step).ceil() as usize;
    (0..=steps).map(|k| (k * last + steps / 2) / steps.max(1)).collect()
}

/// How much the voxels of a patch `[d, h, w]` count: the product of the distances to its faces, `[1, 1, d, h, w]`.
fn weights(size: [usize; 3], device: &Device) -> Tensor<5> {
    let along = |axis: usize| {
        let n = size[axis];
        let tent: Vec<f32> = (0..n).map(|i| (i + 1).min(n - i) as f32 / n as f32).collect();
        let mut shape = [1; 5];
        shape[2 + axis] = n;
        Tensor::<5>::from_data(TensorData::new(tent, shape), device)
    };
    along(0) * along(1) * along(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_cover_an_axis_and_overlap() {
        for (length, size) in [(160, 160), (320, 160), (640, 160), (161, 160), (17, 16), (5, 1)] {
            let starts = starts(length, size);
            assert_eq!((starts[0], starts[starts.len() - 1] + size), (0, length));
            for pair in starts.windows(2) {
                let shared = (pair[0] + size) as f64 - pair[1] as f64;
                // Half a voxel is lost to rounding.
                assert!(
                    shared >= (size as f64 * OVERLAP - 0.5).floor(),
                    "{length} {size}: {starts:?}"
                );
                assert!(pair[0] < pair[1]);
            }
        }
        assert_eq!(starts(320, 160), [0, 80, 160]);
    }

    #[test]
    fn what_depends_on_a_voxel_alone_is_the_same_in_patches() {
        let device = Device::flex();
        let image = |seed: usize| {
            let values = (0..9 * 10 * 13).map(|i| ((i * 37 + seed) % 101) as f32).collect();
            Tensor::<5>::from_data(TensorData::new::<f32, _>(values, [1, 1, 9, 10, 13]), &device)
        };
        let (moving, fixed) = (image(1), image(2));
        let local = |moving: Tensor<5>, fixed: Tensor<5>| {
            Tensor::cat(vec![moving.clone(), fixed.clone() * 2.0, moving - fixed], 1)
        };
        let expected = local(moving.clone(), fixed.clone());
        let found = mosaic(local, moving, fixed, [5, 10, 4]);
        let error = (found - expected).abs().max().into_scalar::<f32>();
        // A weighted mean of equal numbers up to 200, rounded in f32.
        assert!(error < 1e-4, "{error}");
    }
}
