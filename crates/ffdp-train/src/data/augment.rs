//! Random changes of training images: mirrored, turned, stretched, shifted; brighter, darker, noisy.
//!
//! Geometry is applied as a map of physical space while an image comes onto the network's grid, so
//! that image and labels are interpolated once, by the same map. Mirroring is the same for both
//! images of a pair; everything else is drawn for each image by itself. All of it is computed where the training is:
//! a step that takes an H100 0.028 s waited for sixteen processor cores until 0.16 s (benchmarks/brains-networks.json).

use burn::tensor::{Distribution, Tensor};
use ffdp_image::Result;
use ffdp_image::image::{Affine, Geometry, Matrix3, Physical};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::settings::Augmentation;

/// The changes of one step.
#[derive(Clone, Debug)]
pub struct Draw {
    flips: [bool; 3],
    /// Of the moving image alone.
    pub moving: ImageDraw,
    /// Of the fixed image alone.
    pub fixed: ImageDraw,
}

/// The changes of one image.
#[derive(Clone, Debug)]
pub struct ImageDraw {
    radians: [f64; 3],
    scales: [f64; 3],
    shift_mm: [f64; 3],
    gamma: f32,
    factor: f32,
    noise: f32,
}

/// What is changed of one image, while it comes onto a grid.
#[derive(Clone, Debug)]
pub struct Change {
    /// From points of the grid to points of the image.
    pub map: Affine<Physical, Physical>,
    /// Of its intensities.
    pub draw: ImageDraw,
}

impl Draw {
    /// The changes of one training step; `None` where nothing is to be changed.
    pub fn new(amounts: &Augmentation, random: &mut ChaCha8Rng) -> Option<Self> {
        if *amounts == Augmentation::default() {
            return None;
        }
        let flips = [(); 3].map(|()| random.random::<bool>() && amounts.flips);
        let (moving, fixed) = (ImageDraw::new(amounts, random), ImageDraw::new(amounts, random));
        Some(Self { flips, moving, fixed })
    }

    /// The map from points of `grid` to points of the image, RAS mm: mirrored at the grid's middle,
    /// then what is drawn for `image`, about the same middle.
    ///
    /// # Errors
    /// A grid whose axes are interchangeable.
    pub fn map(&self, image: &ImageDraw, grid: &Geometry) -> Result<Affine<Physical, Physical>> {
        let linear_map = |linear| Affine::<Physical, Physical>::from_parts(linear, [0.0; 3]);
        let sign = |i: usize| if self.flips[i] { -1.0 } else { 1.0 };
        let mirror = linear_map(diagonal([0, 1, 2].map(sign)));
        let axes = linear_map(grid.voxel_to_mm().linear());
        let mirrored = axes.inverse()?.then(&mirror).then(&axes);
        let stretched = linear_map(diagonal(image.scales));
        let turned = (0..3).fold(Affine::identity(), |map: Affine<Physical, Physical>, axis| {
            map.then(&linear_map(rotation(axis, image.radians[axis])))
        });
        let linear = mirrored.then(&stretched).then(&turned).linear();
        let centre = grid.center_mm();
        let around = linear_map(linear).apply(centre);
        let shift = [0, 1, 2].map(|i| centre[i] - around[i] + image.shift_mm[i]);
        Ok(Affine::from_parts(linear, shift))
    }
}

impl ImageDraw {
    fn new(amounts: &Augmentation, random: &mut ChaCha8Rng) -> Self {
        let mut within = |limit: f64| limit * random.random_range(-1.0..=1.0);
        Self {
            radians: [(); 3].map(|()| within(amounts.rotation.to_radians())),
            scales: [(); 3].map(|()| within(amounts.scaling).exp()),
            shift_mm: [(); 3].map(|()| within(amounts.shift)),
            gamma: within(amounts.gamma).exp() as f32,
            factor: within(amounts.brightness).exp() as f32,
            noise: within(amounts.noise).abs() as f32,
        }
    }

    /// Changes intensities in 0..1, `[1, 1, D, H, W]`; noise comes from the generator of their device.
    pub fn apply(&self, image: Tensor<5>) -> Tensor<5> {
        let changed = match self.gamma {
            1.0 => image,
            gamma => image.clamp_min(0.0).powf_scalar(gamma),
        };
        let changed = changed.mul_scalar(self.factor);
        if self.noise == 0.0 {
            return changed;
        }
        let normal = Distribution::Normal(0.0, f64::from(self.noise));
        let noise = Tensor::random(changed.shape(), normal, &changed.device());
        changed + noise
    }
}

fn diagonal(values: [f64; 3]) -> Matrix3 {
    std::array::from_fn(|i| std::array::from_fn(|j| if i == j { values[i] } else { 0.0 }))
}

/// The rotation by `angle` about an axis.
fn rotation(axis: usize, angle: f64) -> Matrix3 {
    let (sin, cos) = angle.sin_cos();
    let (a, b) = ((axis + 1) % 3, (axis + 2) % 3);
    let mut matrix = diagonal([1.0; 3]);
    (matrix[a][a], matrix[a][b], matrix[b][a], matrix[b][b]) = (cos, -sin, sin, cos);
    matrix
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use rand::SeedableRng;

    use super::*;

    const ALL: Augmentation = Augmentation {
        flips: true,
        rotation: 10.0,
        scaling: 0.1,
        shift: 3.0,
        gamma: 0.3,
        brightness: 0.2,
        noise: 0.05,
    };

    #[test]
    fn nothing_is_drawn_unless_asked_for_and_the_same_by_the_same_seed() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        assert!(Draw::new(&Augmentation::default(), &mut random).is_none());
        let draw = |seed| format!("{:?}", Draw::new(&ALL, &mut ChaCha8Rng::seed_from_u64(seed)));
        assert_eq!(draw(5), draw(5));
        assert_ne!(draw(5), draw(6));
    }

    #[test]
    fn maps_stay_within_what_was_asked_for() {
        let grid = Geometry::new([20, 24, 18], [1.0, 2.0, 1.5]).expect("a grid");
        let centre = grid.center_mm();
        let mut mirrored = 0;
        for seed in 0..50 {
            let draw = Draw::new(&ALL, &mut ChaCha8Rng::seed_from_u64(seed)).expect("asked for");
            let map = draw.map(&draw.fixed, &grid).expect("a grid with axes");
            let moved = map.apply(centre);
            for i in 0..3 {
                assert!((moved[i] - centre[i]).abs() <= 3.0 + 1e-9, "seed {seed}: {moved:?}");
            }
            let volume = map.determinant();
            assert!(volume.abs().ln().abs() <= 0.3 + 1e-9, "seed {seed}: {volume}");
            mirrored += usize::from(volume < 0.0);
        }
        // An odd number of mirrored axes has probability 1/2.
        assert!((10..40).contains(&mirrored), "{mirrored} of 50");
    }

    #[test]
    fn mirrors_map_the_grid_onto_itself() {
        let grid = Geometry::new([5, 4, 3], [1.0, 2.0, 3.0]).expect("a grid");
        let flips = Augmentation { flips: true, ..Augmentation::default() };
        let draw = Draw::new(&flips, &mut ChaCha8Rng::seed_from_u64(3)).expect("asked for");
        let map = draw.map(&draw.moving, &grid).expect("a grid with axes");
        let to_voxel = grid.voxel_to_mm().then(&map).then(&grid.mm_to_voxel());
        let corner = to_voxel.apply([0.0; 3]);
        for i in 0..3 {
            let expected = if draw.flips[i] { grid.size[i] as f64 - 1.0 } else { 0.0 };
            assert!((corner[i] - expected).abs() < 1e-9, "{corner:?} for {:?}", draw.flips);
        }
    }

    #[test]
    fn noise_has_the_deviation_that_was_drawn() {
        let noise = Augmentation { noise: 0.1, ..Augmentation::default() };
        let draw = Draw::new(&noise, &mut ChaCha8Rng::seed_from_u64(0)).expect("asked for");
        let image = Tensor::<5>::full([1, 1, 20, 20, 50], 0.5, &Device::flex());
        let values = draw.fixed.apply(image).try_into_vec_as::<f32>().expect("on the host");
        let variance = values.iter().map(|v| f64::from(v - 0.5).powi(2)).sum::<f64>() / 2e4;
        let expected = f64::from(draw.fixed.noise);
        // The deviation of 20000 draws is known to 0.5 %.
        assert!((variance.sqrt() / expected - 1.0).abs() < 0.03, "{variance} for {expected}");
    }
}
