//! One level of a deformable stage, as the fused iterations see it.

use burn::Tensor;

use super::work::Work;
use super::{Field, Kind};
use crate::error::Result;
use crate::image::{Affine, Geometry, Physical, Voxel, index_affine};
use crate::ops::weights::joint_weights;
use crate::ops::{
    AdamOptions, DeformImages, DeformOptions, GaussianOptions, GridSampleOptions, Measure,
    Optimizer, grid_sample,
};
use crate::parallel::{Mesh, Sharded, ShardedImages, Team};
use crate::register::comparison::{Comparison, read};
use crate::register::level::Solver;
use crate::register::pyramid::finest_spacing_mm;
use crate::register::settings::{OptimizerSettings, Similarity};
use crate::transform::affine_tensor;

/// One level: two images, how they are compared, how far a step goes, and what was found.
pub(in crate::register) struct Deformation {
    work: Work,
    options: DeformOptions,
    geometry: Geometry,
    similarity: Similarity,
    /// Of the fixed image.
    values: usize,
}

impl Deformation {
    /// A level, from a field on its grid.
    ///
    /// # Errors
    /// Those of cutting the images into shards.
    pub(super) fn new(
        comparison: &Comparison,
        kind: &Kind,
        placement: &Affine<Physical, Physical>,
        field: Field,
        mesh: &Mesh,
    ) -> Result<Self> {
        let Comparison { fixed, moving, masks, similarity, .. } = comparison;
        let map = comparison.index_map(placement);
        let (geometry, similarity) = (fixed.geometry.clone(), *similarity);
        let options = deform_options(kind, &geometry, &map);
        let (fixed, moving, masks) = (fixed.tensor.clone(), moving.tensor.clone(), masks.clone());
        let affine = affine_tensor(&map, &fixed.device(), fixed.dtype());
        let values = fixed.shape().num_elements();
        let images = DeformImages { fixed, moving, affine, masks };
        let work = Work::new(images, field, &options, mesh)?;
        Ok(Self { work, options, geometry, similarity, values })
    }

    /// A level of images that are cut already, the last channel being the mask of those that have one, computed on
    /// `mesh` wherever shards rest; see [`Greedy::new`](crate::parallel::Greedy::new). Other processes of the team do
    /// the same with their parts.
    ///
    /// # Errors
    /// Those of reading the affine map back.
    pub fn on_shards(
        ([fixed, moving], masked): ([&Sharded; 2], [bool; 2]),
        grids: &[Geometry; 2],
        kind: &Kind,
        placement: &Affine<Physical, Physical>,
        field: Sharded,
        (mesh, team): (&Mesh, &Team),
    ) -> Result<Self> {
        let map = index_affine(&grids[0], &grids[1], placement);
        let options = deform_options(kind, &grids[0], &map);
        let affine = affine_tensor(&map, mesh.device(0), fixed.shards()[0].dtype());
        let [batch, channels, d, h, w] = fixed.dims();
        let values = batch * (channels - usize::from(masked[0])) * d * h * w;
        let images = ShardedImages { fixed: fixed.clone(), moving: moving.clone(), affine, masked };
        let work = Work::on_shards(images, field, &options, (mesh, team))?;
        let similarity = kind.descent().similarity;
        Ok(Self { work, options, geometry: grids[0].clone(), similarity, values })
    }

    /// The loss of what was found. Waits for the device.
    pub fn loss(&mut self) -> Result<f64> {
        let work = match &mut self.work {
            Work::Sharded(greedy) => {
                let measure = read(greedy.measure()?)?[0];
                return Ok(self.reported(measure));
            }
            Work::Whole(work) => work,
            Work::Fields(_) => unreachable!("slabs are registered by the greedy method"),
        };
        let (DeformImages { fixed, moving, affine, masks }, state) = work.as_ref();
        let options = GridSampleOptions {
            displacement_scale: self.options.displacement_scale,
            ..GridSampleOptions::default()
        };
        let field = state.as_ref().map(|state| state.field.clone());
        let seen = |image: &Tensor<5>| {
            grid_sample(image.clone(), Some(affine.clone()), field.clone(), &options)
        };
        let weights = joint_weights(masks[0].clone(), masks[1].as_ref().map(seen));
        Ok(read(self.similarity.loss(seen(moving), fixed.clone(), weights))?[0])
    }

    /// What was found, where it rests.
    pub fn into_shards(self) -> Sharded {
        self.work.into_shards()
    }

    /// What was found.
    pub(super) fn into_field(self) -> Field {
        self.work.into_field(self.geometry)
    }

    /// The loss as it is reported, from the measure: `1 - mean n` for LNCC, the mean for MSE, the
    /// negative information for MI, one minus the normalised one for NMI.
    fn reported(&self, measure: f64) -> f64 {
        let mean = measure / self.values as f64;
        match self.options.measure {
            Measure::Lncc(_) | Measure::NormalizedMutualInformation(_) => 1.0 - mean,
            Measure::SquaredDifference => mean,
            Measure::MutualInformation(_) => -mean,
        }
    }
}

impl Solver for Deformation {
    fn iterate(&mut self, iterations: usize) -> Result<Vec<f64>> {
        let measures = self.work.iterate(&self.options, iterations)?;
        Ok(measures.into_iter().map(|measure| self.reported(measure)).collect())
    }
}

/// What the iterations of a method do on the grid of a level, from whose voxels `map` leads to those of
/// the moving image.
pub(in crate::register) fn deform_options(
    kind: &Kind,
    fixed: &Geometry,
    map: &Affine<Voxel, Voxel>,
) -> DeformOptions {
    let descent = kind.descent();
    let (spacing_mm, finest) = (fixed.spacing_mm, finest_spacing_mm(fixed));
    // One length in mm is fewer voxels along an axis with larger voxels.
    let voxels = |length: f64| spacing_mm.map(|spacing| length * finest / spacing);
    let smoothing =
        |sigma| GaussianOptions { sigma_voxels: voxels(sigma), ..GaussianOptions::isotropic(0.0) };
    DeformOptions {
        method: kind.method(),
        measure: measure(descent.similarity),
        displacement_scale: map.linear(),
        step_voxels: voxels(descent.learning_rate_voxels),
        smooth_gradient: smoothing(descent.sigma_gradient_voxels),
        smooth_field: smoothing(descent.sigma_field_voxels),
        optimizer: optimizer(descent.optimizer),
        update: descent.update,
        penalties: descent.regularization.penalties(finest),
    }
}

/// What the iterations improve.
pub(in crate::register) fn measure(similarity: Similarity) -> Measure {
    match similarity {
        Similarity::Lncc(settings) => Measure::Lncc(settings.options()),
        Similarity::Mse => Measure::SquaredDifference,
        Similarity::Mi(settings) => Measure::MutualInformation(settings.options()),
        Similarity::Nmi(settings) => Measure::NormalizedMutualInformation(settings.options()),
    }
}

/// As the operation takes it.
pub(in crate::register) fn optimizer(settings: OptimizerSettings) -> Optimizer {
    match settings {
        OptimizerSettings::Adam(adam) => Optimizer::Adam(AdamOptions {
            gradient_floor: adam.gradient_floor,
            storage: adam.moments,
            ..AdamOptions::default()
        }),
        OptimizerSettings::Sgd => Optimizer::Sgd,
        OptimizerSettings::GaussNewton(settings) => {
            Optimizer::GaussNewton { damping: settings.damping }
        }
    }
}
