//! Bringing both images of a pair onto the grid that the network sees.

use std::sync::Arc;

use burn::tensor::Device;
use ffdp_burn::ops::{GaussianOptions, Interpolation, gaussian};
use ffdp_burn::transform::{Composite, Step};
use ffdp_image::Result;
use ffdp_image::image::{Affine, Geometry, LabelMap, Physical, Volume, index_affine};

use super::augment::ImageDraw;
use super::cache::Cache;
use super::{Draw, Pair, Prepared, Sample};
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

    /// Both images on one grid, changed as `draw` says.
    ///
    /// # Errors
    /// Files that cannot be read or do not fit together.
    pub fn prepare(&self, pair: &Pair, draw: Option<&Draw>) -> Result<Prepared> {
        let fixed = self.cache.sample(&pair.fixed)?;
        let moving = self.cache.sample(&pair.moving)?;
        let grid = self.grid(&fixed.image.geometry)?;
        let placed = placement(self.align, &fixed.image.geometry, &moving.image.geometry);
        let change = |pick: fn(&Draw) -> &ImageDraw| match draw {
            None => Ok((Affine::identity(), None)),
            Some(draw) => Ok((draw.map(pick(draw), &grid)?, Some(pick(draw)))),
        };
        let (fixed_map, fixed_draw) = change(|draw| &draw.fixed)?;
        let (moving_map, moving_draw) = change(|draw| &draw.moving)?;
        Ok(Prepared {
            fixed: self.on_grid(&grid, &fixed, fixed_map, fixed_draw)?,
            moving: self.on_grid(&grid, &moving, moving_map.then(&placed), moving_draw)?,
        })
    }

    /// A sample as seen through `map` on a grid.
    fn on_grid(
        &self,
        grid: &Geometry,
        sample: &Arc<Sample>,
        map: Affine<Physical, Physical>,
        draw: Option<&ImageDraw>,
    ) -> Result<Arc<Sample>> {
        let stays = map == Affine::identity() && sample.image.geometry == *grid;
        if stays && draw.is_none() {
            return Ok(sample.clone());
        }
        let Sample { name, image, labels, .. } = &**sample;
        let mut moved = image_on(grid, image, &map, &self.device)?;
        if let Some(draw) = draw {
            draw.apply(&mut moved.data);
        }
        let labels = labels.as_ref().map(|labels| labels_on(grid, labels, &map, &self.device));
        Ok(Arc::new(Sample::new(name.clone(), moved, labels.transpose()?)))
    }
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
    // Voxels of the image that one step on the grid spans, along each axis of the image; and the
    // Gaussian that takes away what the coarser grid cannot show.
    let sigma_voxels = index_affine(grid, &image.geometry, map).linear().map(|row| {
        let step = row.iter().fold(0.0f64, |longest, step| longest.max(step.abs()));
        0.5 * (step * step - 1.0).max(0.0).sqrt()
    });
    let through = Composite::new(vec![Step::Affine(*map)]).on_grid(grid, device);
    if sigma_voxels == [0.0; 3] {
        return through.warp(image, Interpolation::Linear);
    }
    let options = GaussianOptions { sigma_voxels, ..GaussianOptions::isotropic(0.0) };
    let smooth = gaussian(image.to_tensor(device), &options);
    through.warp(&Volume::from_tensor(smooth, image.geometry.clone())?, Interpolation::Linear)
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
    let through = Composite::new(vec![Step::Affine(*map)]);
    through.warp_labels(labels, grid, Interpolation::Nearest, device)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::data::Subject;

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

    fn prepared(augmentation: Augmentation, seed: u64) -> Prepared {
        let settings = Settings { augmentation, ..Settings::default() };
        let preparation = Preparation::new(&settings).expect("valid settings");
        let draw = Draw::new(&augmentation, &mut ChaCha8Rng::seed_from_u64(seed));
        let pair = Pair { moving: labelled_box(), fixed: labelled_box() };
        preparation.prepare(&pair, draw.as_ref()).expect("prepared")
    }

    #[test]
    fn image_and_labels_are_changed_alike_and_pairs_mirrored_alike() {
        let amounts =
            Augmentation { flips: true, rotation: 15.0, shift: 3.0, ..Default::default() };
        let flips = Augmentation { flips: true, ..Default::default() };
        let still = prepared(Augmentation::default(), 0);
        let mut mirrored = 0;
        for seed in 0..6 {
            let Prepared { moving, fixed } = prepared(amounts, seed);
            assert_ne!(moving.image.data, fixed.image.data, "each is drawn by itself");
            for sample in [moving, fixed] {
                let labels = &sample.labels.as_ref().expect("it has labels").data;
                let pairs = sample.image.data.iter().zip(labels);
                let apart =
                    pairs.filter(|(value, label)| (**value > 0.5) != (**label == 1)).count();
                // Half a voxel of the surface may fall to either side: nearest or mean.
                let inside = labels.iter().filter(|&&label| label == 1).count();
                assert!(inside > 200 && apart * 10 < inside, "seed {seed}: {apart} of {inside}");
            }
            let Prepared { moving, fixed } = prepared(flips, seed);
            assert_eq!(moving.image.data, fixed.image.data, "mirrors are common");
            let volume = |sample: &Sample| sample.image.data.iter().sum::<f32>();
            assert!((volume(&moving) - volume(&still.moving)).abs() < 0.1, "no voxel is lost");
            mirrored += usize::from(moving.image.data != still.moving.image.data);
        }
        assert!(mirrored > 0);
    }
}
