//! A method of one's own: Thirion's demons (1998), in a page.
//!
//! ```text
//! d = (M(p + u) - F) grad F / (|grad F|^2 + (M - F)^2)            u <- G (u - d)
//! ```
//! A [`Method`] has the images of its levels from the engine, iterates as it likes and says what it has found; pyramid,
//! convergence, progress, reports and the judgement of the result are those of all methods.
//!
//! `cargo run --example custom_method`

use burn::tensor::Tensor;
use ffdp::image::{Affine, Physical};
use ffdp::ops::{GaussianOptions, GridSampleOptions, gaussian, grid_sample};
use ffdp::register::{
    LevelSettings, Register, Registration, Settings, Similarity, Stage,
    methods::{LevelImages, Method, MethodResult, Solver, StageRun},
    report::Stop,
    settings::ConvergenceSettings,
};
use ffdp::synth::{PhantomSettings, pair};
use ffdp::transform::Displacement;
use ffdp::{Error, Result};

/// Demons.
#[derive(Debug)]
pub struct Demons {
    /// Coarse to fine.
    pub levels: Vec<LevelSettings>,
    /// Smoothing of the displacement after each step, in voxels.
    pub sigma_voxels: f64,
}

/// One level.
struct Level<'a> {
    images: &'a LevelImages,
    options: GridSampleOptions,
    affine: Tensor<3>,
    slope: Tensor<5>,
    smoothing: GaussianOptions,
    u: Tensor<5>,
}

/// Central differences of an image of one channel along x, y, z, `[1, 3, D, H, W]`; 0 at the border.
fn gradient(image: &Tensor<5>) -> Tensor<5> {
    let along = |dim: usize| {
        let n = image.dims()[dim];
        let inner = image.clone().narrow(dim, 2, n - 2) - image.clone().narrow(dim, 0, n - 2);
        let edge = image.clone().narrow(dim, 0, 1).zeros_like();
        Tensor::cat(vec![edge.clone(), inner.mul_scalar(0.5), edge], dim)
    };
    Tensor::cat(vec![along(4), along(3), along(2)], 1)
}

impl Solver for Level<'_> {
    fn iterate(&mut self, iterations: usize) -> Result<Vec<f64>> {
        let mut losses = Vec::with_capacity(iterations);
        for _ in 0..iterations {
            let (moving, affine) = (self.images.moving.clone(), self.affine.clone());
            let moved = grid_sample(moving, Some(affine), Some(self.u.clone()), &self.options);
            let apart = moved - self.images.fixed.clone();
            let square = apart.clone() * apart.clone();
            let steep = (self.slope.clone() * self.slope.clone()).sum_dim(1) + square.clone();
            let step = apart / steep.add_scalar(1e-6) * self.slope.clone();
            self.u = gaussian(self.u.clone() - step, &self.smoothing);
            losses.push(square.mean());
        }
        let losses = Tensor::cat(losses, 0).try_into_vec_as::<f64>();
        losses.map_err(|reason| Error::device("reading the losses of demons", reason))
    }
}

impl Method for Demons {
    fn name(&self) -> &'static str {
        "demons"
    }

    fn levels(&self) -> &[LevelSettings] {
        &self.levels
    }

    fn similarity(&self) -> &Similarity {
        &Similarity::Mse
    }

    fn find(&self, stage: &mut StageRun) -> Result<MethodResult> {
        let affine: Affine<Physical, Physical> = stage.affine();
        let mut found = stage.displacement()?;
        for (index, level) in self.levels.iter().enumerate() {
            let images = stage.images(level)?;
            let grid = images.grids()[0].clone();
            let before = match found {
                Some(found) => found.resampled(&grid),
                None => Displacement::zero(grid.clone(), &stage.device()),
            };
            let map = images.index_map(&affine);
            let rows: Vec<f32> = map.rows().concat().iter().map(|v| *v as f32).collect();
            let mut solver = Level {
                options: GridSampleOptions {
                    displacement_scale: map.linear(),
                    size: Some(grid.dims()),
                    ..GridSampleOptions::default()
                },
                affine: Tensor::<1>::from_floats(&rows[..], &stage.device()).reshape([1, 3, 4]),
                slope: gradient(&images.fixed),
                smoothing: GaussianOptions::isotropic(self.sigma_voxels),
                u: before.field().clone(),
                images: &images,
            };
            let convergence = ConvergenceSettings::default();
            let stop = stage.iterate(&self.levels, index, &images, &mut solver, &convergence)?;
            found = Some(Displacement::new(solver.u, grid)?);
            if stop == Stop::Cancelled {
                break;
            }
        }
        Ok(MethodResult { affine, displacement: found })
    }
}

/// Registers two phantoms.
///
/// # Errors
/// Those of a registration.
pub fn run() -> Result<Registration> {
    let pair = pair(&PhantomSettings::with_size([48; 3]), 3)?;
    let levels = [(2.0, 40), (1.0, 20)]
        .map(|(shrink, iterations)| LevelSettings { shrink, iterations })
        .to_vec();
    let stage = Stage::own(Demons { levels, sigma_voxels: 1.0 });
    let settings = Settings { stages: vec![stage], ..Settings::default() };
    Register::new(&pair.fixed.image, &pair.moving.image).settings(&settings).run()
}

#[allow(dead_code)] // A test includes this file.
fn main() -> Result<()> {
    let found = run()?;
    for stage in &found.stages {
        for level in &stage.levels {
            println!("{} {:?}: {} iterations", stage.transform, level.size, level.losses.len());
        }
    }
    println!("loss {:.5} -> {:.5}", found.loss_before, found.loss_after);
    Ok(())
}
