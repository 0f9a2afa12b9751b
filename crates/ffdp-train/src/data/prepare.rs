//! Bringing both images of a pair onto the grid that the network sees: on the CPU, ahead of the training, or, where they
//! are changed in every step, on the device of the training.

use std::sync::Arc;

use burn::tensor::{Device, Tensor};
use ffdp_burn::ops::{GaussianOptions, Interpolation, gaussian};
use ffdp_burn::transform::Composite;
use ffdp_image::image::{Affine, Geometry, LabelMap, Physical, Volume, index_affine};
use ffdp_image::{Error, Result};

use super::augment::{Change, ImageDraw};
use super::cache::Cache;
use super::{Changes, Draw, Pair, Prepared, Sample, Tensors};
use crate::settings::{Align, Augmentation, Settings};

/// How images come onto the network's grid: that of the fixed image, at the size asked for.
#[derive(Debug)]
pub struct Preparation {
    /// How the moving image is first laid onto the fixed one.
    pub align: Align,
    /// The network's grid, (x, y, z) voxels over the fixed image's field of view; that image's own grid
    /// when `None`.
    pub size: Option<[usize; 3]>,
    /// What is random.
    pub augmentation: Augmentation,
    cache: Cache,
    /// Images are prepared concurrently with the training, so always on the CPU.
    device: Device,
}

impl Preparation {
    /// # Errors
    /// A size that is none.
    pub fn new(settings: &Settings) -> Result<Self> {
        Ok(Self {
            align: settings.align,
            size: settings.image_size()?,
            augmentation: settings.augmentation,
            cache: Cache::new(settings.cache_mib << 20),
            device: Device::flex(),
        })
    }

    /// The grid on which a pair with this fixed image is registered.
    ///
    /// # Errors
    /// A size that the field of view cannot have.
    pub fn grid(&self, fixed: &Geometry) -> Result<Geometry> {
        match self.size {
            Some(size) if size != fixed.size => fixed.resized(size),
            _ => Ok(fixed.clone()),
        }
    }

    /// Both images on one grid; with a `draw` on their own grids, and what is still to be changed.
    ///
    /// # Errors
    /// Files that cannot be read or do not fit together, and labels that cannot be moved.
    pub fn prepare(&self, pair: &Pair, draw: Option<&Draw>) -> Result<Prepared> {
        let fixed = self.cache.sample(&pair.fixed)?;
        let moving = self.cache.sample(&pair.moving)?;
        let grid = self.grid(&fixed.image.geometry)?;
        let placed = placement(self.align, &fixed.image.geometry, &moving.image.geometry);
        let Some(draw) = draw else {
            return Ok(Prepared {
                fixed: self.on_grid(&grid, &fixed, &Affine::identity())?,
                moving: self.on_grid(&grid, &moving, &placed)?,
                changes: None,
            });
        };
        check_movable(&fixed)?;
        check_movable(&moving)?;
        let map = |image: &ImageDraw| draw.map(image, &grid);
        let moving_change =
            Change { map: map(&draw.moving)?.then(&placed), draw: draw.moving.clone() };
        let fixed_change = Change { map: map(&draw.fixed)?, draw: draw.fixed.clone() };
        let changes = Some(Changes { grid, moving: moving_change, fixed: fixed_change });
        Ok(Prepared { fixed, moving, changes })
    }

    /// A sample as seen through `map` on a grid.
    fn on_grid(
        &self,
        grid: &Geometry,
        sample: &Arc<Sample>,
        map: &Affine<Physical, Physical>,
    ) -> Result<Arc<Sample>> {
        if *map == Affine::identity() && sample.image.geometry == *grid {
            return Ok(sample.clone());
        }
        let Sample { name, image, labels, .. } = &**sample;
        let moved = image_on(grid, image, map, &self.device)?;
        let labels = labels.as_ref().map(|labels| labels_on(grid, labels, map, &self.device));
        Ok(Arc::new(Sample::new(name.clone(), moved, labels.transpose()?)))
    }
}

/// Labels are moved as f32 on the device.
fn check_movable(sample: &Sample) -> Result<()> {
    const EXACT_IN_F32: u32 = 1 << 24;
    match sample.ids.iter().find(|id| id.unsigned_abs() > EXACT_IN_F32) {
        None => Ok(()),
        Some(id) => Err(Error::invalid(
            format!(
                "{}: labels of images that are changed at random must be at most 2^24",
                sample.name
            ),
            id,
            "give its labels smaller numbers, or leave the --augment flags out",
        )),
    }
}

/// A sample that lies on `from`, changed and on another grid, where its tensors are.
pub(super) fn changed(
    tensors: Tensors,
    from: &Geometry,
    change: &Change,
    grid: &Geometry,
) -> Tensors {
    let device = tensors.image.device();
    let through = Composite::from(change.map).on_grid(grid, &device);
    let image = smoothed(tensors.image, from, grid, &change.map);
    let image = change.draw.apply(through.sample(image, from, Interpolation::Linear));
    let labels = tensors
        .labels
        .map(|labels| through.sample(labels.float(), from, Interpolation::Nearest).round().int());
    Tensors { image, labels }
}

/// Where the moving image is taken to lie: from points of the fixed to points of the moving image.
pub fn placement(align: Align, fixed: &Geometry, moving: &Geometry) -> Affine<Physical, Physical> {
    match align {
        Align::Headers => Affine::identity(),
        Align::Centers => {
            let (f, m) = (fixed.center_mm(), moving.center_mm());
            let linear = Affine::<Physical, Physical>::identity().linear();
            Affine::from_parts(linear, [0, 1, 2].map(|i| m[i] - f[i]))
        }
    }
}

/// `image` through `map` on `grid` (trilinear, zeros outside), smoothed first where the grid is
/// coarser.
///
/// # Errors
/// A device that cannot hand back its result.
pub fn image_on(
    grid: &Geometry,
    image: &Volume,
    map: &Affine<Physical, Physical>,
    device: &Device,
) -> Result<Volume> {
    let through = Composite::from(*map).on_grid(grid, device);
    let smooth = smoothed(image.to_tensor(device), &image.geometry, grid, map);
    through.warp(&Volume::from_tensor(smooth, image.geometry.clone())?, Interpolation::Linear)
}

/// An image without what a coarser grid cannot show, seen through a map.
fn smoothed(
    image: Tensor<5>,
    from: &Geometry,
    grid: &Geometry,
    map: &Affine<Physical, Physical>,
) -> Tensor<5> {
    /// Below it the neighbours of a voxel count exp(-8) of it.
    const LEAST_SIGMA: f64 = 0.25;
    // Voxels of the image that one step on the grid spans, along each axis of the image; and the
    // Gaussian that takes away what the coarser grid cannot show.
    let sigma_voxels = index_affine(grid, from, map).linear().map(|row| {
        let step = row.iter().fold(0.0f64, |longest, step| longest.max(step.abs()));
        let sigma = 0.5 * (step * step - 1.0).max(0.0).sqrt();
        if sigma < LEAST_SIGMA { 0.0 } else { sigma }
    });
    if sigma_voxels == [0.0; 3] {
        return image;
    }
    gaussian(image, &GaussianOptions { sigma_voxels, ..GaussianOptions::isotropic(0.0) })
}

/// `labels` through `map` on `grid`: the nearest label of each voxel, background outside.
///
/// # Errors
/// Labels too large to be exact as f32, and a device that cannot hand back its result.
pub fn labels_on(
    grid: &Geometry,
    labels: &LabelMap,
    map: &Affine<Physical, Physical>,
    device: &Device,
) -> Result<LabelMap> {
    Composite::from(*map).warp_labels(labels, grid, Interpolation::Nearest, device)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::data::{OnDevice, Subject};

    /// A box off the middle, whose image is its label.
    fn labelled_box() -> Subject {
        let geometry = Geometry::new([24, 20, 16], [1.0, 1.5, 2.0]).expect("a grid");
        let inside = |offset| {
            let [x, y, z] = geometry.index_of(offset);
            (6..15).contains(&x) && (4..13).contains(&y) && (5..10).contains(&z)
        };
        let labels: Vec<i32> = (0..geometry.len()).map(|i| i32::from(inside(i))).collect();
        let image = labels.iter().map(|&label| label as f32).collect();
        let image = Volume::new(image, geometry.clone()).expect("as many values");
        let labels = LabelMap::new(labels, geometry).expect("as many labels");
        let sample = Sample::new("box".into(), image, Some(labels));
        Subject::Ready(Arc::new(sample))
    }

    /// Image and label of the moving and of the fixed image, as the network sees them.
    fn prepared(augmentation: Augmentation, seed: u64) -> [[Vec<f32>; 2]; 2] {
        let settings = Settings { augmentation, ..Settings::default() };
        let preparation = Preparation::new(&settings).expect("valid settings");
        let draw = Draw::new(&augmentation, &mut ChaCha8Rng::seed_from_u64(seed));
        let pair = Pair { moving: labelled_box(), fixed: labelled_box() };
        let pair = preparation.prepare(&pair, draw.as_ref()).expect("prepared");
        OnDevice::new(&Device::flex(), true, 0).pair(&pair).map(|Tensors { image, labels }| {
            let values = |tensor: Tensor<5>| tensor.try_into_vec_as::<f32>().expect("on the host");
            [values(image), values(labels.expect("it has labels").float())]
        })
    }

    #[test]
    fn image_and_labels_are_changed_alike_and_pairs_mirrored_alike() {
        let amounts =
            Augmentation { flips: true, rotation: 15.0, shift: 3.0, ..Default::default() };
        let flips = Augmentation { flips: true, ..Default::default() };
        let [[unchanged, _], _] = prepared(Augmentation::default(), 0);
        let mut mirrored = 0;
        for seed in 0..6 {
            let [moving, fixed] = prepared(amounts, seed);
            assert_ne!(moving[0], fixed[0], "each is drawn by itself");
            for [image, labels] in [moving, fixed] {
                let pairs = image.iter().zip(&labels);
                let apart =
                    pairs.filter(|(value, label)| (**value > 0.5) != (**label == 1.0)).count();
                // Half a voxel of the surface may fall to either side: nearest or mean.
                let inside = labels.iter().filter(|&&label| label == 1.0).count();
                assert!(inside > 200 && apart * 10 < inside, "seed {seed}: {apart} of {inside}");
            }
            let [[moving, _], [fixed, _]] = prepared(flips, seed);
            assert_eq!(moving, fixed, "mirrors are common");
            let volume = |values: &[f32]| values.iter().sum::<f32>();
            assert!((volume(&moving) - volume(&unchanged)).abs() < 0.1, "no voxel is lost");
            mirrored += usize::from(moving != unchanged);
        }
        assert!(mirrored > 0);
    }

    #[test]
    fn labels_that_f32_does_not_hold_are_refused_by_name() {
        let Subject::Ready(sample) = labelled_box() else { unreachable!("it is in memory") };
        let mut labels = sample.labels.clone().expect("it has labels");
        labels.data[7] = (1 << 24) + 1;
        let large = Sample::new("large".into(), sample.image.clone(), Some(labels));
        let augmentation = Augmentation { rotation: 5.0, ..Default::default() };
        let preparation = Preparation::new(&Settings { augmentation, ..Settings::default() });
        let draw = Draw::new(&augmentation, &mut ChaCha8Rng::seed_from_u64(0));
        let pair = Pair { moving: labelled_box(), fixed: Subject::Ready(Arc::new(large)) };
        let prepared = preparation.expect("valid settings").prepare(&pair, draw.as_ref());
        let reason = prepared.expect_err("too large").to_string();
        assert!(reason.contains("large: labels") && reason.contains("16777217"), "{reason}");
    }
}
