//! The images of a level, cut for where they are compared, and how alike a transform makes them.

use std::sync::Arc;

use burn::tensor::{DType, Tensor};

use super::labels::LabelChannels;
use super::landmarks::Pairs;
use super::places::{ImagePlaces, Places};
use super::pyramid::plane_axis;
use super::settings::FOREGROUND;
use ffdp_burn::losses::{Mse, SimilarityLoss};
use ffdp_burn::ops::{
    DeformMethod, DeformOptions, GaussianOptions, GridSampleOptions, Measure, Optimizer, Padding,
    Penalties, Update, gaussian, grid_sample,
};
use ffdp_burn::transform::affine_tensor;
use ffdp_image::error::{Error, Result};
use ffdp_image::image::{Affine, Geometry, Physical, Volume, Voxel, download, index_affine};
use ffdp_image::metrics::ncc;
use ffdp_kit::dense_zeros;
use ffdp_parallel::{
    DisplacementBounds, ShardPlaces, Sharded,
    alignment::{Aligned, Outside, ShardedAlignment},
    deform::{
        DeformCriterion, FieldModel, Landmarks, ShardedDeform, ShardedImages, ShardedObjective,
        ShardedState, without_mask,
    },
    hosts::Holders,
    memory::ExactMemory,
    ring::{IndexMap, MappedPlanes, RingInputs, RingSampler},
};

/// They are released once a greedy stage is on its last level.
const IMAGES: &str = "nobody asks for the images of a level after they were released";

/// Two images on one level.
pub(super) struct LevelPair {
    /// The grids of the fixed and of the moving image.
    pub grids: [Geometry; 2],
    /// Fixed and moving, as long as they are needed.
    images: Option<[Sharded; 2]>,
    /// Whether their last channel is a mask.
    pub masked: [bool; 2],
    pub places: Places,
    /// Points that belong together, where their distance counts.
    pub landmarks: Option<Pairs>,
    /// Labels among its channels, where their overlap counts.
    pub labels: Option<LabelChannels>,
    /// While the level is at work, where its places ask for it.
    _exact: Option<ExactMemory>,
}

impl LevelPair {
    /// Images on their grids, which lie where `places` say; those that are `masked` have their mask as last channel.
    pub fn new(
        grids: [Geometry; 2],
        images: [Sharded; 2],
        masked: [bool; 2],
        places: Places,
        exact: Option<ExactMemory>,
    ) -> Self {
        let images = Some(images);
        Self { grids, images, masked, places, landmarks: None, labels: None, _exact: exact }
    }

    fn images(&self) -> &[Sharded; 2] {
        self.images.as_ref().expect(IMAGES)
    }

    /// Releases the images: what was made of them takes their place.
    pub fn release(&mut self) {
        self.images = None;
    }

    /// From voxels of the fixed to those of the moving image; `affine` is in RAS mm. Planes lie on
    /// each other, whatever their headers say of z.
    pub fn index_map(&self, affine: &Affine<Physical, Physical>) -> Affine<Voxel, Voxel> {
        index_map(self.grids.each_ref(), affine)
    }

    /// What deformable stages compare: with a similarity of the images the overlap of labels, where that counts.
    pub fn compared(&self, similarity: Arc<dyn SimilarityLoss>) -> Arc<dyn SimilarityLoss> {
        match self.labels {
            None => similarity,
            Some(labels) => labels.with(similarity),
        }
    }

    /// The images, without labels, as an affine map between them is judged. One process has all of them.
    pub fn alignment(
        &self,
        similarity: Arc<dyn SimilarityLoss>,
        outside: Outside,
    ) -> AlignedPair<'_> {
        let outside = if similarity.may_ignore_outside() { outside } else { Outside::Background };
        let (images, mesh) = (self.images().clone(), &self.places.fixed.work);
        let gain = similarity.usual_gain();
        let similarity = match self.labels {
            None => similarity,
            Some(labels) => labels.without(similarity),
        };
        let alignment = ShardedAlignment::new(images, self.masked, similarity, outside, mesh);
        AlignedPair { pair: self, alignment, gain }
    }

    /// Iterations from `fields` on that improve `similarity`; other processes of the team do the same with their parts.
    pub fn deform(
        &self,
        similarity: Arc<dyn SimilarityLoss>,
        affine: &Affine<Physical, Physical>,
        fields: Vec<Sharded>,
        options: &DeformOptions,
    ) -> Result<ShardedDeform> {
        let images = self.driven(affine, similarity.usual_gain());
        self.deform_images(images, similarity, fields, options)
    }

    fn deform_images(
        &self,
        images: ShardedImages,
        similarity: Arc<dyn SimilarityLoss>,
        fields: Vec<Sharded>,
        options: &DeformOptions,
    ) -> Result<ShardedDeform> {
        let (Places { fixed, team, .. }, state) = (&self.places, ShardedState::new(fields));
        let similarity = self.compared(similarity);
        ShardedDeform::in_team(
            images,
            state,
            DeformCriterion { similarity, options },
            &fixed.work,
            team.clone(),
        )
    }

    /// The same as a function that an optimiser searches, see [`ShardedObjective::in_team`].
    pub fn objective<M: FieldModel>(
        &self,
        similarity: Arc<dyn SimilarityLoss>,
        affine: &Affine<Physical, Physical>,
        model: M,
        options: &DeformOptions,
    ) -> Result<ShardedObjective<M>> {
        let gain = similarity.usual_gain();
        let (images, Places { fixed, team, .. }) = (self.driven(affine, gain), &self.places);
        let loss = DeformCriterion { similarity: self.compared(similarity), options };
        ShardedObjective::in_team(images, model, loss, &fixed.work, team.clone())
    }

    /// The same with the landmarks that drive it, for a similarity that usually gains so much.
    fn driven(&self, affine: &Affine<Physical, Physical>, gain: f64) -> ShardedImages {
        ShardedImages { landmarks: self.landmarks_for(affine, gain), ..self.sharded(affine) }
    }

    /// The landmarks that drive the level, if there are any, for a similarity that usually gains so much.
    pub fn landmarks_for(
        &self,
        affine: &Affine<Physical, Physical>,
        gain: f64,
    ) -> Option<Landmarks> {
        let pairs = self.landmarks.as_ref();
        pairs.map(|pairs| pairs.on_level(&self.grids[0], affine, gain))
    }

    /// The images, seen through an affine map.
    fn sharded(&self, affine: &Affine<Physical, Physical>) -> ShardedImages {
        let [fixed, moving] = self.images().clone();
        let map = self.index_map(affine);
        let affine =
            affine_tensor(&map, self.places.fixed.work.device(0), fixed.shards()[0].dtype());
        ShardedImages { fixed, moving, affine, masked: self.masked, landmarks: None }
    }

    /// Both images on the grid of the fixed one, the moving one as an affine map shows it; masks with them. Beyond the
    /// moving image there is nothing.
    pub fn on_fixed(&self, affine: &Affine<Physical, Physical>) -> Result<[Sharded; 2]> {
        let [fixed, moving] = self.images();
        let map = self.index_map(affine);
        let (places, holders) = (&self.places, &self.places.team.moving);
        let seen = read_through(moving, holders, &map, places, Padding::Zeros, |_, shard| shard)?;
        Ok([fixed.clone(), seen])
    }

    /// An image on the grid of the fixed one, convolved with a Gaussian.
    pub fn smoothed(&self, image: &Sharded, kernel: &GaussianOptions) -> Result<Sharded> {
        let ImagePlaces { layout, work, .. } = &self.places.fixed;
        let radius = kernel.radius(layout.axis().component());
        let around = self.places.team.fixed.surround(image, radius)?;
        let shard = |k: usize| {
            let own = layout.planes(k);
            let held = own.start.saturating_sub(radius)..(own.end + radius).min(layout.extent());
            let smooth = gaussian(around.window(held.clone(), work.device(k)), kernel);
            let first = own.start - held.start;
            ffdp_parallel::parts::narrow(smooth, layout.axis().dim(), first..first + own.len())
        };
        Ok(Sharded::new((0..layout.count()).map(shard).collect(), layout.clone()))
    }

    /// The loss of `moving(A (x + w(x)))` against `fixed(x)`. `affine` is `A` in RAS mm, `warp` is `w` in voxels of the
    /// level, cut as its places say. What the map sends outside sees the background. Waits for the devices.
    pub fn loss(
        &self,
        similarity: &Arc<dyn SimilarityLoss>,
        affine: &Affine<Physical, Physical>,
        warp: Option<Sharded>,
    ) -> Result<f64> {
        let terms = self.landmarks.is_some() || self.labels.is_some();
        if warp.is_none() && !self.places.team.fixed.are_several() && !terms {
            return self.alignment(similarity.clone(), Outside::Background).loss(affine);
        }
        let warp = warp.unwrap_or_else(|| self.zero_displacement());
        let map = self.index_map(affine);
        let mut shown = self.deform_images(
            self.sharded(affine),
            similarity.clone(),
            vec![warp],
            &without_steps(map.linear()),
        )?;
        Ok(read(shown.loss()?)?[0])
    }

    /// No displacement.
    pub fn zero_displacement(&self) -> Sharded {
        let ImagePlaces { layout, rest, .. } = &self.places.fixed;
        let shard = |k: usize| {
            let [d, h, w] = layout.shard_size(k);
            dense_zeros([1, 3, d, h, w], rest.device(k), DType::F32)
        };
        Sharded::new((0..layout.count()).map(shard).collect(), layout.clone())
    }

    /// Images and masks in one piece each, on the first device, without labels.
    pub fn whole(&self) -> [(Tensor<5>, Option<Tensor<5>>); 2] {
        [0, 1].map(|i| {
            let (image, mask) = self.in_one_piece(i);
            match self.labels {
                None => (image, mask),
                Some(labels) => (image.narrow(1, 0, labels.images), mask),
            }
        })
    }

    /// The labels that drive, `[1, K, ..]` of each image in one piece on the first device, and what their overlap
    /// weighs.
    pub fn driving_labels(&self) -> Option<([Tensor<5>; 2], f64)> {
        let LabelChannels { images, labels, weight } = self.labels?;
        Some(([0, 1].map(|i| self.in_one_piece(i).0.narrow(1, images, labels)), weight))
    }

    /// All channels of an image, and its mask.
    fn in_one_piece(&self, i: usize) -> (Tensor<5>, Option<Tensor<5>>) {
        let image = self.images()[i].gather(self.places.fixed.work.device(0));
        without_mask(image, self.masked[i])
    }

    /// The first channels of fixed and moving, 0 where they do not count.
    pub fn volumes(&self) -> Result<[Volume; 2]> {
        let [fixed, moving] = self.whole();
        let of = |(image, mask): (Tensor<5>, Option<Tensor<5>>), grid: &Geometry| {
            let image = image.narrow(1, 0, 1);
            let counted = match mask {
                None => image,
                Some(mask) => image * mask,
            };
            Volume::from_tensor(counted, grid.clone())
        };
        Ok([of(fixed, &self.grids[0])?, of(moving, &self.grids[1])?])
    }

    /// Pearson's correlation of the first channels where the fixed image is above its background and the moving one is
    /// there, placed by `affine`; 1 where either is constant. The images are in one piece.
    pub fn contrast(&self, affine: &Affine<Physical, Physical>) -> Result<f64> {
        let [(fixed, _), (moving, _)] = self.whole();
        let map = affine_tensor(&self.index_map(affine), &fixed.device(), fixed.dtype());
        let [_, _, d, h, w] = fixed.dims();
        let options = GridSampleOptions { size: Some([d, h, w]), ..GridSampleOptions::default() };
        let seen = |image: Tensor<5>| grid_sample(image, Some(map.clone()), None, &options);
        let moving = moving.narrow(1, 0, 1);
        let inside = seen(moving.ones_like());
        let [fixed, moved, inside] = [fixed.narrow(1, 0, 1), seen(moving), inside]
            .map(|image| download(image, "a coarse level"));
        let (fixed, moved, inside) = (fixed?, moved?, inside?);
        let counts = |i: &usize| f64::from(fixed[*i]) > FOREGROUND && inside[*i] > 0.5;
        let object: Vec<usize> = (0..fixed.len()).filter(counts).collect();
        let pick = |image: &[f32]| object.iter().map(|&i| image[i]).collect::<Vec<f32>>();
        let correlation = ncc(&pick(&fixed), &pick(&moved))?;
        Ok(if correlation.is_nan() { 1.0 } else { correlation })
    }

    /// Demands that some voxel count in both images, placed by `affine`.
    pub fn check_weights(&self, affine: &Affine<Physical, Physical>) -> Result<()> {
        // Other ranks may have the rest of the images.
        if self.masked == [false; 2] || self.places.team.fixed.are_several() {
            return Ok(());
        }
        let aligned = self.alignment(Arc::new(Mse), Outside::Background);
        // More than what keeps divisions defined.
        if aligned.alignment.count(self.index_map(affine).rows())? > 1e-6 {
            return Ok(());
        }
        Err(Error::invalid(
            "the masks of the fixed and the moving image must meet where the images are compared",
            format_args!("no voxel that counts in both"),
            "check that each mask belongs to its image, or start from an initial transform that \
             brings them together",
        ))
    }
}

/// A volume of which `holders` have their parts, read on the fixed grid of `places` by a map of voxels, a shard at a
/// time: what `keep` makes of each.
pub(super) fn read_through(
    volume: &Sharded,
    holders: &Holders,
    map: &Affine<Voxel, Voxel>,
    places: &Places,
    padding: Padding,
    keep: impl Fn(usize, Tensor<5>) -> Tensor<5>,
) -> Result<Sharded> {
    let Places { fixed: ImagePlaces { layout, work, .. }, team, .. } = places;
    let reach = IndexMap { affine: vec![*map.rows()], ..IndexMap::identity() };
    let bounds = DisplacementBounds::NONE;
    let planes = team.fixed.around(0, layout.extent());
    let reached = |planes| {
        let mapped = MappedPlanes { fixed: layout, planes, map: &reach, bounds: &bounds };
        mapped.reachable(volume.layout())
    };
    let wanted = planes.iter().map(reached).collect::<Vec<_>>();
    let [_, channels, ..] = volume.dims();
    let dtype = volume.shards()[0].dtype();
    let Some(volume) = holders.fetch(volume, &wanted)? else {
        let none = |k: usize| {
            let [d, h, w] = layout.shard_size(k);
            keep(k, dense_zeros([1, channels, d, h, w], work.device(k), dtype))
        };
        return Ok(Sharded::new((0..layout.count()).map(none).collect(), layout.clone()));
    };
    let options = GridSampleOptions { padding, ..GridSampleOptions::default() };
    let sampler = RingSampler::new(
        ShardPlaces { layout, mesh: work },
        volume.layout(),
        &reach,
        &[bounds],
        &options,
    );
    let affine = affine_tensor(map, work.device(0), dtype);
    let inputs = RingInputs { moving: &volume, affine: Some(&affine), displacement: None };
    let shard = |k: usize| keep(k, sampler.sample_shard(k, &inputs));
    Ok(Sharded::new((0..layout.count()).map(shard).collect(), layout.clone()))
}

/// No step at all: what shows a displacement as it is.
fn without_steps(displacement_scale: [[f64; 3]; 3]) -> DeformOptions {
    DeformOptions {
        method: DeformMethod::Greedy,
        displacement_scale,
        optimizer: Optimizer::Sgd,
        update: Update::Additive,
        step_voxels: [0.0; 3],
        penalties: Penalties::default(),
        ..DeformOptions::greedy(Measure::SquaredDifference)
    }
}

/// Two images on one level, as an affine map between them is judged.
pub(super) struct AlignedPair<'a> {
    pub pair: &'a LevelPair,
    alignment: ShardedAlignment,
    /// What the similarity usually gains.
    gain: f64,
}

impl AlignedPair<'_> {
    /// The loss of `moving(A x)` against `fixed(x)`, with that of landmarks, and its gradient to the rows of `A`, in RAS mm. Waits for
    /// the devices.
    pub fn gradient(&self, affine: &Affine<Physical, Physical>) -> Result<Aligned> {
        Ok(self.gradients(std::slice::from_ref(affine))?[0])
    }

    /// The same of several maps, in batches.
    pub fn gradients(&self, maps: &[Affine<Physical, Physical>]) -> Result<Vec<Aligned>> {
        let found = self.alignment.gradients(&self.rows(maps))?;
        let with_landmarks = |((loss, rows), map): (Aligned, _)| {
            let mut rows = to_physical(self.pair.grids.each_ref(), &rows);
            let Some(pairs) = &self.pair.landmarks else { return (loss, rows) };
            let (energy, pull) = pairs.energy(&self.pair.grids[0], map, self.gain);
            let pull = pull.as_flattened();
            rows.iter_mut().flatten().zip(pull).for_each(|(row, pull)| *row += pull);
            (loss + energy, rows)
        };
        Ok(found.into_iter().zip(maps).map(with_landmarks).collect())
    }

    /// The loss alone.
    pub fn loss(&self, affine: &Affine<Physical, Physical>) -> Result<f64> {
        Ok(self.losses(std::slice::from_ref(affine))?[0])
    }

    /// The losses of several maps, in batches.
    pub fn losses(&self, maps: &[Affine<Physical, Physical>]) -> Result<Vec<f64>> {
        let losses = match &self.rows(maps)[..] {
            [rows] => vec![self.alignment.loss(rows)?],
            rows => self.alignment.losses(rows)?,
        };
        let pairs = self.pair.landmarks.as_ref();
        let fixed = &self.pair.grids[0];
        let energy = |map| pairs.map_or(0.0, |pairs| pairs.energy(fixed, map, self.gain).0);
        Ok(losses.iter().zip(maps).map(|(loss, map)| loss + energy(map)).collect())
    }

    /// The maps of voxels.
    fn rows(&self, maps: &[Affine<Physical, Physical>]) -> Vec<[[f64; 4]; 3]> {
        maps.iter().map(|map| *self.pair.index_map(map).rows()).collect()
    }
}

/// Part of the smaller grid, in percent, that lies inside the other as `affine` (RAS mm) places them; 0 for a map that
/// collapses space.
pub(super) fn overlap_percent(
    [fixed, moving]: [&Geometry; 2],
    affine: &Affine<Physical, Physical>,
) -> f64 {
    let placed = moving.placed_by(affine);
    placed.map_or(0.0, |placed| fixed.overlap_of_smaller_percent(&placed))
}

/// From voxels of the fixed to those of the moving grid; `affine` is in RAS mm. Planes lie on each other,
/// whatever their headers say of the axis across them.
pub(super) fn index_map(
    [fixed, moving]: [&Geometry; 2],
    affine: &Affine<Physical, Physical>,
) -> Affine<Voxel, Voxel> {
    let map = index_affine(fixed, moving, affine);
    let mut rows = *map.rows();
    if let Some(across) = plane_axis(moving) {
        rows[across] = [0.0; 4];
    }
    Affine::from_rows(rows)
}

/// The gradient to the rows of the map of physical space from that to the rows of the map of voxels.
///
/// With `F`, `M` the voxel-to-mm maps, the sampler takes `K = M^-1 A F`: `dL/dA = M_lin^-T dL/dK F^T`.
fn to_physical([fixed, moving]: [&Geometry; 2], to_map: &[[f64; 4]; 3]) -> [[f64; 4]; 3] {
    let f = *fixed.voxel_to_mm().rows();
    let back = moving.mm_to_voxel().linear();
    // Planes lie on each other, wherever the map sends them across.
    let across = plane_axis(moving);
    // dL/dK F^T, its last column that of the translations.
    let right: [[f64; 4]; 3] = std::array::from_fn(|i| {
        let row = &to_map[i];
        std::array::from_fn(|j| match j {
            _ if Some(i) == across => 0.0,
            3 => row[3],
            _ => (0..4).map(|k| row[k] * f[j][k]).sum(),
        })
    });
    std::array::from_fn(|i| std::array::from_fn(|j| (0..3).map(|k| back[k][i] * right[k][j]).sum()))
}

/// Numbers read from the device.
pub(super) fn read(values: Tensor<1>) -> Result<Vec<f64>> {
    let values = values
        .try_into_vec_as::<f32>()
        .map_err(|reason| Error::device("reading the loss", reason))?;
    Ok(values.into_iter().map(f64::from).collect())
}
