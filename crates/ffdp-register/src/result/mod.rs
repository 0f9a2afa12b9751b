//! What a registration has found. It stays in shards until it is asked for, whole or piece by piece.

mod inverse;
mod warp;
mod warped;

pub use warp::{Folding, Warp};
pub use warped::{MovingPlanes, Shown, ShownLabels};

use burn::tensor::Device;

use crate::context::{Estimate, Run};
use crate::fields::Fields;
use crate::methods::Stage;
use crate::models::Deformed;
use crate::pair::overlap_percent;
use crate::parametric::Parametric;
use crate::places::Places;
use crate::processes::Processes;
use crate::pyramid::finest_spacing_mm;
use crate::report::{Outcome, StageReport};
use crate::schedule::Settings;
use crate::stages::StagesResult;
use crate::start::Start;
use crate::verdict::Evidence;
use ffdp_burn::transform::{Composite, Displacement, Step};
use ffdp_image::error::Result;
use ffdp_image::image::{Affine, Geometry, Physical, Volume};
use ffdp_image::metrics::{FieldPlanes, JacobianReport};
use warp::{pieces, values};

/// What a transform is held on that is evaluated anew wherever it is read.
const COARSE: usize = 8;

/// What a registration found: the map `phi(x) = A (x + w(x))` from fixed to moving.
#[derive(Clone, Debug)]
pub struct Registration {
    /// `A`, in RAS mm; the initial placement where no stage changed it.
    pub affine: Affine<Physical, Physical>,
    /// `w`; `None` without a deformable stage, or if it was undone.
    pub warp: Option<Warp>,
    /// `w'` with `id + w' = (id + w)^-1`, where the last deformable stage gives it
    /// (SyN, velocities): `phi^-1(y) = A^-1 y + w'(A^-1 y)`.
    pub inverse: Option<Warp>,
    /// The stationary velocity `v` with `id + w = exp(v)`, where the last deformable stage found one.
    pub velocity: Option<Warp>,
    /// One report per stage.
    pub stages: Vec<StageReport>,
    /// The loss of the last stage's finest level as the images were placed at the start; the
    /// similarity alone, without penalties.
    pub loss_before: f64,
    /// The same with the result.
    pub loss_after: f64,
    /// How the intensities of both images go together where the first deformation begins: Pearson's correlation within
    /// the object, on a coarse level; `None` where none compares intensities.
    pub contrast: Option<f64>,
    /// Whether it is worth anything.
    pub outcome: Outcome,
    start: Start,
    /// The grid of the fixed image.
    fixed: Geometry,
    home: Device,
    processes: Processes,
}

impl Registration {
    /// Of a run whose stages have ended.
    pub(super) fn of(run: Run, result: StagesResult) -> Result<Self> {
        let StagesResult { found, stages, loss_before, loss_after, contrast, outcome } = result;
        let Estimate { affine, deformed } = found;
        let deformed = deformed.map(|deformed| match run.whole {
            true => on_full_grid(&run, deformed),
            false => Ok(deformed),
        });
        let Run { grids: [fixed, _], placement, processes, start, .. } = run;
        let warp_of = |fields: Fields| Warp::new(fields, &fixed, &processes);
        let (mut warp, mut inverse, mut velocity) = (None, None, None);
        if let Some(deformed) = deformed.transpose()? {
            let (w, back) = deformed.maps()?;
            velocity = deformed.model.velocity(&deformed.fields).cloned().map(warp_of);
            (warp, inverse) = (Some(warp_of(w)), back.map(warp_of));
        }
        let home = placement.home().clone();
        Ok(Self {
            affine,
            warp,
            inverse,
            velocity,
            stages,
            loss_before,
            loss_after,
            contrast,
            outcome,
            start,
            fixed,
            home,
            processes,
        })
    }

    /// No motion at all, in the form in which such stages give theirs: what can be tried before there is a result.
    pub fn without_motion(fixed: &Geometry, device: &Device, stages: &[Stage]) -> Self {
        let deforms = stages.iter().any(|stage| !stage.is_linear());
        let gives_inverse = stages.last().is_some_and(Stage::gives_inverse);
        let warp = || {
            let zero = Displacement::zero(fixed.clone(), device);
            Warp::new(Fields::whole(zero), fixed, &Processes::alone())
        };
        Self {
            affine: Affine::identity(),
            warp: deforms.then(warp),
            inverse: gives_inverse.then(warp),
            velocity: None,
            stages: Vec::new(),
            loss_before: 1.0,
            loss_after: 0.0,
            contrast: None,
            outcome: Outcome::Improved,
            start: Start::of(&Composite::default()),
            fixed: fixed.clone(),
            home: device.clone(),
            processes: Processes::alone(),
        }
    }

    /// The grid of the fixed image.
    pub fn grid(&self) -> &Geometry {
        &self.fixed
    }

    /// The device that holds what is not cut.
    pub fn device(&self) -> &Device {
        &self.home
    }

    /// Where the run began, to be measured as the result is.
    ///
    /// # Errors
    /// Those of a deformation that cannot be evaluated on the grid.
    pub fn before(&self) -> Result<Self> {
        let Start { affine, deformation } = &self.start;
        let (affine, stages) = (*affine, Vec::new());
        let warp = deformation.as_ref().map(|given| {
            let coarse = self.fixed.resized(self.fixed.size.map(|n| n.div_ceil(COARSE)))?;
            let fields = Fields::of_start(given.clone(), &coarse, &self.home)?;
            Ok(Warp::new(fields, &self.fixed, &Processes::alone()))
        });
        let warp = warp.transpose()?;
        Ok(Self { affine, warp, inverse: None, velocity: None, stages, ..self.clone() })
    }

    /// What is known of the result without measuring it, of a run with `settings`.
    ///
    /// # Errors
    /// [`Error::Invalid`](ffdp_image::Error::Invalid) for an initial map that cannot be inverted.
    pub fn evidence(&self, settings: &Settings, moving: &Geometry) -> Result<Evidence<'_>> {
        let initial = &self.start.affine;
        let overlap = |affine| overlap_percent([&self.fixed, moving], affine);
        Ok(Evidence {
            stages: &self.stages,
            loss: Some([self.loss_before, self.loss_after]),
            contrast: self.contrast,
            overlap_percent: Some([overlap(initial), overlap(&self.affine)]),
            affine: Some(initial.inverse()?.then(&self.affine)),
            may_mirror: settings.stages.iter().any(Stage::may_mirror),
            voxel_mm: finest_spacing_mm(&self.fixed),
            ..Evidence::default()
        })
    }

    /// The Jacobian of the deformation, without the affine map, in two sweeps over it; NaN on other ranks than 0. `each` is
    /// shown every run of planes once, in their order.
    ///
    /// # Errors
    /// Those of `each`, and as [`Warp::planes`].
    pub fn jacobian(
        &self,
        mut each: impl FnMut(&FieldPlanes) -> Result<()>,
    ) -> Result<JacobianReport> {
        let mut is_first_sweep = true;
        JacobianReport::of_runs(self.fixed.size, |add| {
            self.each_displacement(|planes| {
                if is_first_sweep {
                    each(planes)?;
                }
                add(planes)
            })?;
            is_first_sweep = false;
            Ok(())
        })
    }

    /// Shows the displacement run of planes by run of planes, on rank 0.
    fn each_displacement(&self, mut each: impl FnMut(&FieldPlanes) -> Result<()>) -> Result<()> {
        if let Some(warp) = &self.warp {
            return warp.each_piece(1, |own, block, first| {
                let displacement = &values(block)?;
                each(&FieldPlanes { displacement, first, own: own.clone() })
            });
        }
        let [x, y, planes] = self.fixed.size;
        for own in pieces(&self.fixed).filter(|_| self.processes.is_first()) {
            let (first, end) = (own.start.saturating_sub(1), (own.end + 1).min(planes));
            let displacement = &vec![0.0; 3 * x * y * (end - first)];
            each(&FieldPlanes { displacement, first, own })?;
        }
        Ok(())
    }

    /// What the displacement is exactly, where the last deformable stage says so and began from rest or from its like.
    pub fn exact(&self) -> Option<&dyn Parametric> {
        self.warp.as_ref()?.exact.as_deref()
    }

    /// The map as its steps, the displacement in one piece on the first device.
    ///
    /// # Errors
    /// [`Error::Device`](ffdp_image::Error::Device) when it cannot be read.
    pub fn transform(&self) -> Result<Composite> {
        let warp = self.warp.as_ref().map(Warp::displacement).transpose()?;
        let warp = warp.map(Step::Displacement);
        Ok(Composite::new(warp.into_iter().chain([Step::Affine(self.affine)]).collect()))
    }

    /// Where the map carries points of the fixed image, RAS mm; on all ranks.
    ///
    /// # Errors
    /// As [`Warp::planes`].
    pub fn map_points(&self, points: &[[f64; 3]]) -> Result<Vec<[f64; 3]>> {
        let moved = match &self.warp {
            Some(warp) => warp.map_points(points)?,
            None => points.to_vec(),
        };
        Ok(moved.into_iter().map(|p| self.affine.apply(p)).collect())
    }

    /// The moving image as the map shows it: on the grid of the fixed image, in the moving image's intensities, 0 where
    /// it does not reach.
    ///
    /// # Errors
    /// As [`Registration::transform`].
    pub fn warped(&self, moving: &Volume) -> Result<Volume> {
        self.transform()?.warp(moving, &self.fixed, &self.home)
    }
}

/// Fields in one piece on the grid of the fixed image: maps are made of them there.
fn on_full_grid(run: &Run, deformed: Deformed) -> Result<Deformed> {
    let Deformed { model, fields } = deformed;
    let places = Places::whole(run.placement.home(), run.grids.each_ref().map(Geometry::dims))?;
    Ok(Deformed { model, fields: fields.resampled(&run.grids[0], &places)? })
}
