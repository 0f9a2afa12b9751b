//! The networks of a team off the tape: one, or one for each part of a volume.

use burn::data::dataset::DatasetError;
use burn::tensor::{Device, Tensor};
use burn::train::InferenceStep;
use ffdp_image::Result;
use ffdp_parallel::{DeviceMesh, replicas::Replicas};

use super::{Share, Team, volume};
use crate::data::Item;
use crate::metrics::Measured;
use crate::model::{Prediction, Registration, predict};

/// Networks that do not learn.
pub struct Inference {
    models: Vec<Registration>,
    devices: Vec<Device>,
}

impl Team {
    /// Copies of a network that does not learn, where pairs are computed.
    ///
    /// # Errors
    /// Devices that make no mesh.
    pub fn inference(&self, model: Registration) -> Result<Inference> {
        let models = match self.share {
            Share::Volume if self.devices.len() > 1 => {
                let copies =
                    Replicas::new(&model, &DeviceMesh::new(&self.devices, self.devices.len())?);
                (0..self.devices.len()).map(|k| copies.at(k).clone()).collect()
            }
            _ => vec![model],
        };
        Ok(Inference::new(models, &self.devices))
    }
}

impl Inference {
    /// `models`, on as many of the devices.
    pub(super) fn new(models: Vec<Registration>, devices: &[Device]) -> Self {
        let devices = devices[..models.len()].iter().map(|device| device.clone().inner());
        Self { devices: devices.collect(), models }
    }

    /// Where images have to be: the first device.
    pub fn device(&self) -> &Device {
        &self.devices[0]
    }

    /// The scores of a pair.
    ///
    /// # Errors
    /// A pair that cannot be cut.
    pub fn validate(&self, item: Item) -> std::result::Result<Measured, DatasetError> {
        match &self.models[..] {
            [model] => Ok(InferenceStep::step(model, item)),
            models => volume::validate(models, &self.devices, item).map_err(DatasetError::new),
        }
    }

    /// Registers one pair.
    ///
    /// # Errors
    /// A pair that cannot be cut, or a device that cannot hand back its result.
    pub fn predict(&self, moving: Tensor<5>, fixed: Tensor<5>) -> Result<Prediction> {
        match &self.models[..] {
            [model] => predict(model, moving, fixed),
            models => volume::predict(models, &self.devices, [moving, fixed]),
        }
    }

    /// The network.
    pub fn model(&self) -> &Registration {
        &self.models[0]
    }
}
