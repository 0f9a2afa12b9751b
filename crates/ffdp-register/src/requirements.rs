//! What must hold before a registration starts.

use burn::tensor::{DType, Device};

use super::checks::{MINIMUM_OVERLAP_PERCENT, check_overlap, check_sizes, check_sources};
use super::labels::LabelChannels;
use super::landmarks::{Pairs, Sigma};
use super::level_memory::LevelProblem;
use super::methods::Stage;
use super::places::Placement;
use super::problem::{Content, Problem};
use super::pyramid::{finest_spacing_mm, level_grids, plane_axis};
use super::schedule::Settings;
use super::settings::LevelSettings;
use super::start::Start;
use ffdp_burn::ops::MomentStorage;
use ffdp_burn::transform::Composite;
use ffdp_image::error::{Error, Result};
use ffdp_image::image::{Geometry, Planes};

/// What can be known before anything is read: settings that suit devices and grids, and a level of every stage that has
/// room.
pub(super) fn check(
    problem: &Problem,
    content: Content,
    settings: &Settings,
    placement: &Placement,
) -> Result<()> {
    settings.validate()?;
    let grids = [problem.fixed.geometry().clone(), problem.moving.geometry().clone()];
    check_sources(problem)?;
    check_sizes(&grids, settings.deforms())?;
    check_cuts(placement, &grids[0])?;
    let stores = settings.stages.iter().any(|s| s.moments() == Some(MomentStorage::Bf16));
    placement.devices().iter().try_for_each(|device| {
        let mut similarities = settings.stages.iter().map(|stage| stage.listed().1.similarity());
        similarities.try_for_each(|similarity| similarity.check_on(device))?;
        if stores { check_bf16(device) } else { Ok(()) }
    })?;
    settings.check_room(placement, &grids, content)?;
    settings.check_channels(problem.image_channels())?;
    driving_labels(problem, settings)?;
    driving_landmarks(problem, settings)?;
    check_start(&problem.initial, settings, &grids)
}

/// Demands images that meet where `initial` carries them, and stages that take a deformation into account.
fn check_start(initial: &Composite, settings: &Settings, grids: &[Geometry; 2]) -> Result<()> {
    let [fixed, moving] = grids;
    let Start { affine, deformation } = Start::of(initial);
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

/// The labels of a problem, if there are any and they count.
///
/// # Errors
/// Without a weight, or a stage whose loss they are a term of.
pub(super) fn driving_labels(
    problem: &Problem,
    settings: &Settings,
) -> Result<Option<LabelChannels>> {
    if problem.labels.is_none() {
        return Ok(None);
    }
    let Some(term) = &settings.label_term else {
        let what = "labels drive a registration by those that are named";
        let fix = "set label_term (its labels and their weight), or leave the label maps out";
        return Err(Error::invalid(what, "no label_term", fix));
    };
    if !settings.deforms() {
        let names: Vec<_> = settings.stages.iter().map(Stage::name).collect();
        let what = "labels drive deformable stages, of which there is none";
        return Err(Error::invalid(what, names, "add one, or leave label_term out"));
    }
    Ok(Some(LabelChannels::new(problem.image_channels(), term)))
}

/// The landmarks of a problem, if there are any and they count.
///
/// # Errors
/// Without a standard deviation; other numbers of points; no finite coordinates.
pub(super) fn driving_landmarks(problem: &Problem, settings: &Settings) -> Result<Option<Pairs>> {
    let Some(points) = &problem.landmarks else { return Ok(None) };
    let Some(sigma_mm) = settings.landmark_sigma_mm else {
        let what = "landmarks drive a registration by how exactly they are known";
        let fix = "set landmark_sigma_mm (mm), or leave the landmarks out";
        return Err(Error::invalid(what, "no landmark_sigma_mm", fix));
    };
    let [fixed, moving] = points.each_ref().map(Vec::len);
    if fixed != moving || fixed == 0 {
        let what = "landmarks of the fixed and the moving image".to_string();
        return Err(Error::Shape { what, expected: vec![fixed.max(1)], got: vec![moving] });
    }
    if let Some(point) = points.iter().flatten().find(|p| p.iter().any(|x| !x.is_finite())) {
        let what = "landmarks must have finite coordinates";
        return Err(Error::invalid(what, point, "leave the point out"));
    }
    let first = settings.landmark_sigma_first_mm.unwrap_or(sigma_mm);
    let spacings_mm = spacings_mm(problem, settings)?;
    Ok(Some(Pairs::new(points.clone(), Sigma { mm: [first, sigma_mm], spacings_mm })))
}

/// The finest spacing of the coarsest and of the finest level of all stages, mm.
fn spacings_mm(problem: &Problem, settings: &Settings) -> Result<[f64; 2]> {
    let grids = [problem.fixed.geometry().clone(), problem.moving.geometry().clone()];
    let mut levels = settings.stages.iter().flat_map(Stage::levels);
    levels.try_fold([0.0f64, f64::INFINITY], |[coarsest, finest], level| {
        let [fixed, _] = level_grids(&grids, settings.minimum_axis_voxels, level)?;
        let mm = finest_spacing_mm(&fixed);
        Ok([coarsest.max(mm), finest.min(mm)])
    })
}

/// How coarse the grid is on which the overlap under a deformation is counted.
const OVERLAP_SHRINK: f64 = 8.0;

impl Settings {
    /// Demands that the levels of all stages have room.
    pub(super) fn check_room(
        &self,
        placement: &Placement,
        grids: &[Geometry; 2],
        content: Content,
    ) -> Result<()> {
        let minimum = self.minimum_axis_voxels;
        let check = |stage: &Stage, level: &LevelSettings| {
            let [fixed, moving] = &level_grids(grids, minimum, level)?;
            let problem = stage.problem([fixed, moving], content);
            if matches!(problem, LevelProblem::Linear { .. }) {
                return Ok(());
            }
            placement.check_level(fixed.size, &problem)?;
            stage.check_stays(placement, &problem, fixed.size)
        };
        // The finest level, which takes the most, is the one to be reported.
        let of_stage =
            |stage: &Stage| stage.levels().iter().rev().try_for_each(|level| check(stage, level));
        self.stages.iter().try_for_each(of_stage)
    }

    /// Demands the channels that similarities name of images that have so many, the image itself counted.
    ///
    /// # Errors
    /// [`Error::Invalid`] for the first stage that names one which is not there.
    pub fn check_channels(&self, channels: usize) -> Result<()> {
        for stage in &self.stages {
            let needed = stage.method().similarity().loss().least_channels();
            if needed > channels {
                let what = format!(
                    "the similarity of {} names channel {}, counted from 0: both images must have it",
                    stage.name(),
                    needed - 1
                );
                let fix = "give more channels (--channels FIXED MOVING, or fixed_channels and moving_channels of a \
                           list), or name others in its terms";
                return Err(Error::invalid(what, format_args!("{channels} of each image"), fix));
            }
        }
        Ok(())
    }
}

/// Demands that volumes which are to be cut have several planes.
fn check_cuts(placement: &Placement, fixed: &Geometry) -> Result<()> {
    let is_cut = match placement {
        Placement::DeviceMesh(mesh) => mesh.count() > 1,
        Placement::Device { .. } => false,
        Placement::Ranks { .. } => true,
    };
    if !is_cut || plane_axis(fixed).is_none() {
        return Ok(());
    }
    let what = "in several shards images have several planes";
    Err(Error::invalid(what, fixed.size, "use one device and one shard"))
}

fn check_bf16(device: &Device) -> Result<()> {
    if device.supports_dtype(DType::BF16) {
        return Ok(());
    }
    let what = "moments in bf16 need a device that has the type";
    Err(Error::invalid(what, device, "use moments = \"full\", or another device"))
}
