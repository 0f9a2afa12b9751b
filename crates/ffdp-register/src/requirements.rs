//! What must hold before a registration starts.

use burn::tensor::{DType, Device};

use super::checks::{check_sizes, check_sources};
use super::landmarks::Pairs;
use super::methods::Stage;
use super::methods::deformable::check_placement;
use super::places::Placement;
use super::problem::{Content, Problem};
use super::pyramid::plane_axis;
use super::schedule::Settings;
use super::start::Start;
use ffdp_burn::ops::MomentStorage;
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
    placement.devices().iter().try_for_each(|device| match stores {
        true => check_bf16(device),
        false => Ok(()),
    })?;
    settings.check_room(placement, &grids, content)?;
    Pairs::of(problem, settings)?;
    Start::check(&problem.initial, settings, &grids)
}

impl Settings {
    /// Demands that the levels of all stages have room.
    pub(super) fn check_room(
        &self,
        placement: &Placement,
        grids: &[Geometry; 2],
        content: Content,
    ) -> Result<()> {
        let minimum = self.minimum_axis_voxels;
        let mut methods = self.stages.iter().filter_map(Stage::fields);
        methods.try_for_each(|method| check_placement(placement, method, (grids, content), minimum))
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
