//! Several devices that train one network, and steps of several pairs.
//!
//! ```text
//! share pairs    every device has the network and pairs of its own      gradients: one mean over the pairs
//! share volume   every device has the network and a part of each pair   gradients: one sum over the parts
//! ```
//! A step of the optimiser takes `--batch` pairs in the order of the epoch, wherever they are computed: which
//! devices share a run changes its numbers by rounding only, and a run may be resumed on others. One device with
//! a pair a step is a team too. `step.rs` is a step, `read.rs` says when its numbers are read, `inference.rs` is for
//! pairs of which nothing is learnt.
//!
//! Why not the strategies of Burn's `Learner`: they read the loss of every step before they enqueue the next,
//! sum the gradients in the order in which threads are done, divide the epoch among the devices in advance, and
//! move tensors between GPUs without the order that `ffdp_parallel` takes care of. Everything else, the
//! checkpoints too, is Burn's.

mod fit;
mod inference;
mod read;
mod step;
mod volume;

use burn::tensor::Device;
use ffdp_image::{Error, Result};

pub use inference::Inference;
pub use step::{Computed, Learners};

use crate::settings::{HeadArg, Settings};

/// What the devices share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Share {
    /// The pairs of a step: each is computed on one device.
    #[default]
    Pairs,
    /// Each pair: every device holds a part of the images and of all activations.
    Volume,
}

/// The devices of a run; the first holds the optimiser, and validates unless volumes are shared.
#[derive(Clone, Debug)]
pub struct Team {
    devices: Vec<Device>,
    share: Share,
}

impl Team {
    /// One device.
    pub fn one(device: &Device) -> Self {
        Self { devices: vec![device.clone()], share: Share::Pairs }
    }

    /// Several; a device may occur twice, as if it were two.
    ///
    /// # Errors
    /// No device.
    pub fn new(devices: Vec<Device>, share: Share) -> Result<Self> {
        match devices.len() {
            0 => Err(Error::invalid("a training needs devices", 0, "name one at least")),
            _ => Ok(Self { devices, share }),
        }
    }

    /// That of the optimiser and of images.
    pub fn first(&self) -> &Device {
        &self.devices[0]
    }

    /// The devices of the pairs of a step, in turn.
    pub fn of_pairs(&self) -> &[Device] {
        match self.share {
            Share::Pairs => &self.devices,
            Share::Volume => &self.devices[..1],
        }
    }

    /// Whether these devices can train so.
    ///
    /// # Errors
    /// More devices than pairs a step, or what cannot be computed in parts.
    pub fn check(&self, settings: &Settings) -> Result<()> {
        let devices = self.devices.len();
        self.devices.iter().try_for_each(|device| settings.loss.check_on(device))?;
        match self.share {
            Share::Pairs if settings.batch < devices => Err(Error::invalid(
                format!("--batch must give each of the {devices} devices a pair"),
                settings.batch,
                format!("use --batch {devices}, or --share volume to cut every pair into parts"),
            )),
            Share::Volume if devices > 1 && settings.head == HeadArg::Bspline => {
                Err(Error::invalid(
                    "--head bspline cannot be predicted in parts of a volume",
                    "--share volume",
                    "leave one of them out, or use --share pairs",
                ))
            }
            Share::Volume if devices > 1 && settings.inverse_weight > 0.0 => Err(Error::invalid(
                "--inverse-weight cannot be computed in parts of a volume",
                "--share volume",
                "leave one of them out, or use --share pairs",
            )),
            Share::Volume if devices > 1 && settings.baseline => Err(Error::invalid(
                "--baseline cannot be computed in parts of a volume",
                "--share volume",
                "leave one of them out, or use --share pairs",
            )),
            _ => Ok(()),
        }
    }
}
