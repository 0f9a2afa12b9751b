//! What a registration has found. It stays in shards until it is asked for, whole or piece by piece.

mod warp;
mod warped;

pub use warp::{Folding, Warp};

use burn::tensor::Device;

use crate::context::{Estimate, Run};
use crate::fields::Fields;
use crate::methods::Stage;
use crate::models::Deformed;
use crate::parametric::Parametric;
use crate::places::Places;
use crate::processes::Processes;
use crate::report::{Outcome, StageReport};
use crate::stages::StagesResult;
use crate::start::Start;
use ffdp_burn::transform::{Composite, Displacement, Step};
use ffdp_image::error::Result;
use ffdp_image::image::{Affine, Geometry, Physical, Volume};

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

    /// Where the run began, as its steps: the displacement on the grid of the fixed image.
    ///
    /// # Errors
    /// As [`Registration::transform`].
    pub fn start(&self) -> Result<Composite> {
        self.before()?.transform()
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

    /// Where the start of the run carried them; on all ranks.
    ///
    /// # Errors
    /// As [`Registration::map_points`].
    pub fn map_points_before(&self, points: &[[f64; 3]]) -> Result<Vec<[f64; 3]>> {
        self.before()?.map_points(points)
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
