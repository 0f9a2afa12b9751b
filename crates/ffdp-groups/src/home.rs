//! The device on which what belongs to all images of a group is computed.

use burn::tensor::Device;
use ffdp_image::error::{Error, Result};
use ffdp_register::Placement;

/// The first device, without autodiff; `what` is done by one process.
pub(crate) fn home(placement: &Placement, what: &str) -> Result<Device> {
    match placement {
        Placement::DeviceMesh(mesh) => Ok(mesh.device(0).clone().inner()),
        Placement::Device { device, .. } => Ok(device.clone().inner()),
        Placement::Ranks { ranks, .. } => Err(Error::invalid(
            format!("{what} by one process"),
            format!("{} processes", ranks.count()),
            "start one, and give each of its devices images of their own",
        )),
    }
}
