//! Where a run begins: a placement, and a deformation before it.

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{DType, Device, Tensor};

use super::checks::{MINIMUM_OVERLAP_PERCENT, check_overlap};
use super::fields::Fields;
use super::methods::Stage;
use super::parametric::Parametric;
use super::pyramid::level_grids;
use super::schedule::Settings;
use super::settings::LevelSettings;
use ffdp_burn::transform::{Composite, Step};
use ffdp_image::error::{Error, Result};
use ffdp_image::image::{Affine, Geometry, Physical};

/// How coarse the grid is on which the overlap under a deformation is counted.
const OVERLAP_SHRINK: f64 = 8.0;

/// A transform as the stages take it: `phi = A o (id + w)`.
#[derive(Clone, Debug)]
pub(super) struct Start {
    /// `A`: the linear steps that come last.
    pub affine: Affine<Physical, Physical>,
    /// `w`: all that comes before them; `None` where nothing does.
    pub deformation: Option<Arc<dyn Parametric>>,
}

impl Start {
    pub fn of(initial: &Composite) -> Self {
        let (before, affine) = initial.split_affine();
        let deformation: Option<Arc<dyn Parametric>> = match before.steps() {
            [] => None,
            // What free-form deformation goes on from as it is.
            [Step::Bspline(spline)] => Some(Arc::new(spline.clone())),
            _ => Some(Arc::new(Given(before))),
        };
        Self { affine, deformation }
    }

    /// Demands images that meet where `initial` carries them, and stages that take a deformation into account.
    pub fn check(initial: &Composite, settings: &Settings, grids: &[Geometry; 2]) -> Result<()> {
        let [fixed, moving] = grids;
        let Self { affine, deformation } = Self::of(initial);
        if deformation.is_none() {
            // Moments bring the images together; the overlap is checked after them.
            return match settings.stages.first() {
                Some(Stage::Moments(_)) => Ok(()),
                _ => check_overlap(fixed, moving, &affine),
            };
        }
        if let Some(stage) = settings.stages.iter().find(|stage| stage.is_linear()) {
            let what = "after an initial transform that deforms come deformable stages alone";
            let fix = "leave the linear stages out (--aligned), or start from the linear part of the transform";
            return Err(Error::invalid(what, stage.name(), fix));
        }
        let level = LevelSettings { shrink: OVERLAP_SHRINK, iterations: 0 };
        let [coarse, _] = level_grids(grids, settings.minimum_axis_voxels, &level)?;
        let inside = initial.on_grid(&coarse, &Device::flex()).percent_inside(moving)?;
        let volume = |grid: &Geometry| grid.voxel_volume_mm3() * grid.len() as f64;
        let overlap_percent = (inside * volume(fixed) / volume(moving)).clamp(inside, 100.0);
        if overlap_percent >= MINIMUM_OVERLAP_PERCENT {
            return Ok(());
        }
        Err(Error::NoOverlap {
            fixed_box_mm: fixed.bounding_box_mm(),
            moving_box_mm: moving.bounding_box_mm(),
            overlap_percent,
            required_percent: MINIMUM_OVERLAP_PERCENT,
        })
    }

    /// The deformation on the coarsest level that needs it, in one piece on `home`. Finer levels evaluate it themselves.
    pub fn fields(
        &self,
        settings: &Settings,
        grids: &[Geometry; 2],
        home: &Device,
    ) -> Result<Option<Fields>> {
        let Some(deformation) = &self.deformation else { return Ok(None) };
        let levels = settings.stages.iter().find_map(|stage| stage.levels().first());
        let level = levels.expect("settings with no level do not validate");
        let [grid, _] = level_grids(grids, settings.minimum_axis_voxels, level)?;
        Fields::of_start(deformation.clone(), &grid, home).map(Some)
    }
}

/// Any map of space as a displacement.
#[derive(Debug)]
struct Given(Composite);

impl Parametric for Given {
    fn planes(
        &self,
        grid: &Geometry,
        planes: Range<usize>,
        (device, dtype): (&Device, DType),
    ) -> Result<Tensor<5>> {
        let [w, h, _] = grid.size;
        let slab = grid.cropped([0, 0, planes.start], [w, h, planes.len()])?;
        Ok(self.0.to_displacement(&slab, device).into_field().cast(dtype))
    }
}
