//! Registering two images of any size and orientation with a trained network.
//!
//! The images are brought onto a grid as the training had them ([`InputGrid`]); what the network
//! predicts there is a map of physical space, so that the moving image itself is sampled once, at the
//! fixed image's own resolution. `refine.rs` improves a prediction by optimising the pair's own field,
//! `patches.rs` predicts part by part.

mod patches;
mod refine;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use burn::config::Config;
use burn::tensor::{Device, Tensor};
use ffdp_burn::transform::{Composite, Displacement, Step};
use ffdp_image::image::{Affine, Geometry, Physical, Volume};
use ffdp_image::{Error, Result};
use ffdp_nets::{Deformation, Network, NetworkConfig};

pub use refine::{Refinement, refine};

use crate::checkpoint::{self, load_weights};
use crate::data::{INTENSITY_PERCENTILES, image_on, placement};
use crate::folder::RunFolder;
use crate::input::InputGrid;
use crate::model::Registration;
use crate::objective::Objective;
use crate::settings::{Align, Settings, file};

/// Which checkpoint of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointChoice {
    /// Of the best validation.
    Best,
    /// The last one.
    Last,
    /// After this epoch, from 1.
    Epoch(usize),
}

impl FromStr for CheckpointChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "best" => Ok(Self::Best),
            "last" => Ok(Self::Last),
            number => number
                .parse()
                .map(Self::Epoch)
                .map_err(|_| "best, last or the number of an epoch".to_string()),
        }
    }
}

impl CheckpointChoice {
    /// The epoch that it means in a run.
    ///
    /// # Errors
    /// No weights, or none of the epoch.
    fn epoch(self, run: &RunFolder) -> Result<usize> {
        match self {
            Self::Best => checkpoint::best_weights(run),
            Self::Last => checkpoint::last_weights(run),
            Self::Epoch(epoch) => {
                let saved = checkpoint::weights(&run.checkpoints());
                if !saved.contains(&epoch) {
                    let what = format!("--checkpoint must be one of {saved:?}, best or last");
                    return Err(Error::invalid(what, epoch, "others are not kept"));
                }
                Ok(epoch)
            }
        }
    }

    /// The file with the weights that it means in a run.
    ///
    /// # Errors
    /// No weights, or none of the epoch.
    pub fn weights(self, run: &RunFolder) -> Result<PathBuf> {
        Ok(checkpoint::weights_file(run, self.epoch(run)?))
    }
}

impl fmt::Display for CheckpointChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Best => f.write_str("best"),
            Self::Last => f.write_str("last"),
            Self::Epoch(epoch) => write!(f, "{epoch}"),
        }
    }
}

/// A trained network, ready to register.
#[derive(Debug)]
pub struct Predictor {
    network: Network,
    input: InputGrid,
    device: Device,
    /// The recipe of its run.
    pub settings: Settings,
    /// The epoch whose weights it has.
    pub epoch: usize,
    /// How the moving image is first laid onto the fixed one.
    pub align: Align,
}

impl Predictor {
    /// The network of a run.
    ///
    /// # Errors
    /// A folder without a run, a checkpoint that is not there or does not fit.
    pub fn load(run: &RunFolder, choice: CheckpointChoice, device: &Device) -> Result<Self> {
        if !run.settings().exists() {
            return Err(Error::invalid(
                "--model must name the folder of a training (with settings.toml)",
                run.root().display(),
                "name the folder that ffdp train was given as --output",
            ));
        }
        let settings = file::read(&run.settings())?;
        let file = run.network();
        let config = NetworkConfig::load(&file)
            .map_err(|reason| Error::io(&file, "read", std::io::Error::other(reason)))?;
        let epoch = choice.epoch(run)?;
        let device = device.clone().inner();
        let model = Registration::new(config.init(&device), Objective::new(&settings, None));
        let Registration { network, .. } = load_weights(run, epoch, model)?;
        let (input, align) = (InputGrid::read(&run.input())?, settings.align);
        Ok(Self { network, input, device, settings, epoch, align })
    }

    /// Brings images onto a grid of this size, (x, y, z) voxels, in place of the training's.
    pub fn with_size(mut self, size: [usize; 3]) -> Self {
        self.input.size = Some(size);
        self
    }

    /// Voxels of the grid onto which a fixed image is brought, (x, y, z) in the order of the training.
    ///
    /// # Errors
    /// Axis codes of the run that are none.
    pub fn size(&self, fixed: &Geometry) -> Result<[usize; 3]> {
        Ok(self.input.grid(fixed)?.size)
    }

    /// What registers, as tables name it.
    pub fn name(&self) -> &'static str {
        match self.network.deformation {
            Deformation::TransMorph(_) => "TransMorph",
            Deformation::VoxelMorph(_) => "VoxelMorph",
        }
    }

    /// The placement before the network: from points of the fixed to points of the moving image.
    pub fn placement(&self, fixed: &Volume, moving: &Volume) -> Affine<Physical, Physical> {
        placement(self.align, &fixed.geometry, &moving.geometry)
    }

    /// Both images, normalised, on a grid of the network's; the moving one as it is placed.
    fn images_on(
        &self,
        grid: &Geometry,
        [fixed, moving]: [&Volume; 2],
        placed: &Affine<Physical, Physical>,
    ) -> Result<[Tensor<5>; 2]> {
        let [low, high] = INTENSITY_PERCENTILES;
        let on_grid = |image: &Volume, map: &Affine<Physical, Physical>| {
            let image = image.normalized(low, high)?;
            Ok::<_, Error>(image_on(grid, &image, map, &self.device)?.to_tensor(&self.device))
        };
        Ok([on_grid(fixed, &Affine::identity())?, on_grid(moving, placed)?])
    }

    /// The map from the fixed to the moving image: what the network predicts, then the placement.
    ///
    /// # Errors
    /// Constant images, grids that do not overlap or cannot be brought to the network's size, and
    /// failures of the device.
    pub fn predict(&self, fixed: &Volume, moving: &Volume) -> Result<Composite> {
        self.predict_on(fixed, moving, self.size(&fixed.geometry)?)
    }

    /// [`Predictor::predict`] with the images brought onto a grid of `size` voxels, in the order of the
    /// training's axes.
    ///
    /// # Errors
    /// As there.
    pub fn predict_on(
        &self,
        fixed: &Volume,
        moving: &Volume,
        size: [usize; 3],
    ) -> Result<Composite> {
        let placed = self.placement(fixed, moving);
        let grid = InputGrid { size: Some(size), ..self.input.clone() }.grid(&fixed.geometry)?;
        self.check_overlap(&grid, fixed, moving, &placed)?;
        let [fixed, moving] = self.images_on(&grid, [fixed, moving], &placed)?;
        let field = self.network.forward(moving, fixed);
        let field = self.input.compat.displacement(field);
        let displacement = Displacement::new(field, grid)?;
        Ok(Composite::new(vec![Step::Displacement(displacement), Step::Affine(placed)]))
    }

    /// Demands that the moving image cover enough of the grid.
    fn check_overlap(
        &self,
        grid: &Geometry,
        fixed: &Volume,
        moving: &Volume,
        placed: &Affine<Physical, Physical>,
    ) -> Result<()> {
        let map = Composite::new(vec![Step::Affine(*placed)]).on_grid(grid, &self.device);
        let overlap_percent = map.percent_inside(&moving.geometry)?;
        if overlap_percent >= REQUIRED_OVERLAP_PERCENT {
            return Ok(());
        }
        Err(Error::NoOverlap {
            fixed_box_mm: fixed.geometry.bounding_box_mm(),
            moving_box_mm: moving.geometry.bounding_box_mm(),
            overlap_percent,
            required_percent: REQUIRED_OVERLAP_PERCENT,
        })
    }
}

/// Least part of the fixed grid that the moving grid must cover, as in training.
const REQUIRED_OVERLAP_PERCENT: f64 = 25.0;
