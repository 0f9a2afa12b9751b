//! The greedy method by Burn's own operations and its autodiff: what fused operations are measured against.

use burn::tensor::{Tensor, TensorData};

use super::deformable::FieldMethod;
use super::greedy::GreedySettings;
use super::own::{LevelImages, Method, MethodResult, StageInputs, StageRun};
use crate::level::Solver;
use crate::report::Stop;
use crate::settings::{LevelSettings, Similarity};
use ffdp_burn::baseline;
use ffdp_burn::ops::{DeformImages, DeformOptions, DeformState, Moments};
use ffdp_burn::transform::Displacement;
use ffdp_image::error::{Error, Result};

/// The [greedy method](GreedySettings) of [`baseline::deform`]: the same levels, steps and end, no fused operation.
/// It knows what has a [`Measure`](ffdp_burn::ops::Measure), Adam, and images of one channel in one piece, without masks.
#[derive(Clone, Debug, PartialEq)]
pub struct BaselineGreedy(pub GreedySettings);

/// One level.
struct Level<'a> {
    images: &'a DeformImages,
    options: &'a DeformOptions,
    state: Vec<DeformState>,
}

impl Solver for Level<'_> {
    fn iterate(&mut self, iterations: usize) -> Result<Vec<f64>> {
        let state = std::mem::take(&mut self.state);
        let (measures, state) = baseline::deform(self.images, state, self.options, iterations);
        self.state = state;
        let values = self.images.fixed.shape().num_elements();
        let losses = self.options.measure.loss(measures, values).try_into_vec_as::<f64>();
        losses.map_err(|reason| Error::device("reading the losses of the baseline", reason))
    }
}

impl Method for BaselineGreedy {
    fn name(&self) -> &'static str {
        "baseline"
    }

    fn levels(&self) -> &[LevelSettings] {
        &self.0.levels
    }

    fn similarity(&self) -> &Similarity {
        &self.0.similarity
    }

    fn find(&self, stage: &mut StageRun) -> Result<MethodResult> {
        let (affine, device) = (stage.affine(), stage.device());
        let mut found = stage.displacement()?;
        for (index, level) in self.0.levels.iter().enumerate() {
            let level_images = stage.images(level)?;
            let grid = level_images.grids()[0].clone();
            let before = match found {
                Some(found) => found.resampled(&grid),
                None => Displacement::zero(grid.clone(), &device),
            };
            let map = level_images.index_map(&affine);
            let LevelImages { fixed, moving, .. } = &level_images;
            let rows = TensorData::new(map.rows().concat(), [1, 3, 4]);
            let images = DeformImages {
                fixed: fixed.clone(),
                moving: moving.clone(),
                affine: Tensor::from_data(rows, (&device, fixed.dtype())),
                masks: [None, None],
            };
            let options = (&self.0 as &dyn FieldMethod).options(&grid, &map);
            let field = before.field().clone();
            let state = vec![DeformState { field, moments: Moments::default() }];
            let mut solver = Level { images: &images, options: &options, state };
            let (levels, convergence) = (&self.0.levels, &self.0.convergence);
            let stop = stage.iterate(levels, index, &level_images, &mut solver, convergence)?;
            found = Some(Displacement::new(solver.state.remove(0).field, grid)?);
            if stop == Stop::Cancelled {
                break;
            }
        }
        Ok(MethodResult { affine, displacement: found })
    }

    fn validate(&self) -> Result<()> {
        FieldMethod::validate(&self.0)?;
        let loss = self.0.similarity.loss();
        let known = loss.measure().is_some() && baseline::knows(&*loss);
        if !known || self.0.optimizer.first_order().adam().is_none() {
            let what =
                "the baseline knows lncc, mse, mi and nmi with their exact gradients, and Adam";
            let given = format_args!("{:?} by {:?}", self.0.similarity, self.0.optimizer);
            return Err(Error::invalid(what, given, "use the greedy method"));
        }
        Ok(())
    }

    /// As measured with LNCC: 330 (`benchmarks/baseline-cpu.json`).
    fn host_bytes_per_voxel(&self) -> u64 {
        340
    }

    fn refuses(&self, given: &StageInputs) -> Option<String> {
        let fits = !given.parts && given.masked == [false; 2] && given.channels == 1;
        (!fits).then(|| {
            "it knows images of one channel in one piece on one device, without masks".into()
        })
    }
}
