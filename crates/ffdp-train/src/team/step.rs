//! A step of the optimiser: the gradients of its pairs, wherever they are computed, and the same weights on
//! every device after it.

use std::time::Instant;

use burn::data::dataset::DatasetError;
use burn::module::Module;
use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::Device;
use burn::train::Learner;
use ffdp_parallel::{
    self, DeviceMesh,
    collective::{Reduction, all_reduce},
    replicas::{Replicas, gradients_of_line, line_of_gradients},
};

use super::inference::Inference;
use super::{Share, volume};
use crate::data::Item;
use crate::model::Registration;
use crate::objective::Terms;

/// A pair that was computed, its terms not yet read.
pub struct Computed {
    /// When its step began.
    pub started: Instant,
    /// Seconds that it waited for its images.
    pub waited: f64,
    /// Where its terms lie.
    pub device: Device,
    /// They.
    pub terms: Terms,
}

/// The networks that are trained, all the same.
pub struct Learners {
    /// On tape; the first holds what is saved and validated.
    devices: Vec<Device>,
    kind: Kind,
}

enum Kind {
    /// A learner for each device. All take every step with the same gradients, so that no weights travel.
    Pairs(Vec<Learner<Registration>>),
    /// One learner, whose weights the others follow: one tape goes over all devices.
    Volume { learner: Box<Learner<Registration>>, replicas: Replicas<Registration> },
}

impl Learners {
    /// `learner`, which moves to the first device, and as many more as are needed.
    pub fn new(mut learner: Learner<Registration>, devices: Vec<Device>, share: Share) -> Self {
        learner.fork(&devices[0]);
        let kind = match share {
            Share::Pairs => {
                let further = devices[1..].iter().map(|device| {
                    let mut copy = learner.clone();
                    // Burn's own transfer is not ordered with the computations of both.
                    let _ = devices[0].sync();
                    copy.fork(device);
                    let _ = device.sync();
                    copy
                });
                let further: Vec<_> = further.collect();
                Kind::Pairs(std::iter::once(learner).chain(further).collect())
            }
            Share::Volume => {
                let mesh = DeviceMesh::new(&devices, devices.len()).expect("a team has a device");
                let replicas = Replicas::new(&learner.model(), &mesh);
                Kind::Volume { learner: Box::new(learner), replicas }
            }
        };
        Self { devices, kind }
    }

    /// That of the first device.
    pub fn learner(&self) -> &Learner<Registration> {
        match &self.kind {
            Kind::Pairs(learners) => &learners[0],
            Kind::Volume { learner, .. } => learner,
        }
    }

    /// The networks as they are now, to validate with.
    pub fn inference(&self) -> Inference {
        let models = match &self.kind {
            Kind::Pairs(learners) => vec![learners[0].model().valid()],
            Kind::Volume { replicas, .. } => {
                replicas.wait();
                (0..self.devices.len()).map(|k| replicas.at(k).valid()).collect()
            }
        };
        Inference::new(models, &self.devices)
    }

    /// The rate of the last step.
    pub fn rate(&self) -> ModuleLearningRate {
        self.learner().lr_current()
    }

    /// One step with the mean of the losses of `items`, of which the devices have theirs in turn. Nothing is
    /// read.
    ///
    /// # Errors
    /// A pair that cannot be cut.
    pub fn step(&mut self, items: Vec<Item>) -> Result<Vec<Computed>, DatasetError> {
        let share = 1.0 / items.len() as f64;
        match &mut self.kind {
            Kind::Pairs(learners) => Ok(of_pairs(learners, &self.devices, items, share)),
            Kind::Volume { learner, replicas } => {
                let mut sum = GradientsAccumulator::new();
                let mut computed = Vec::with_capacity(items.len());
                for item in items {
                    let (started, waited) = (Instant::now(), item.waited);
                    let (gradients, terms) = volume::step(replicas, &self.devices, &item, share)
                        .map_err(DatasetError::new)?;
                    sum.accumulate(replicas.at(0), gradients);
                    computed.push(Computed {
                        started,
                        waited,
                        device: self.devices[0].clone(),
                        terms,
                    });
                }
                learner.lr_step();
                learner.optimizer_step(sum.grads());
                replicas.follow(learner.model());
                Ok(computed)
            }
        }
    }
}

/// Every device computes its pairs; one sum of the gradients; every device steps.
fn of_pairs(
    learners: &mut [Learner<Registration>],
    devices: &[Device],
    items: Vec<Item>,
    share: f64,
) -> Vec<Computed> {
    let count = items.len();
    let mut of_device: Vec<Vec<(usize, Item)>> = devices.iter().map(|_| Vec::new()).collect();
    for (i, item) in items.into_iter().enumerate() {
        of_device[i % devices.len()].push((i, item));
    }
    let models: Vec<Registration> = learners.iter().map(Learner::model).collect();
    let parts = models.iter().zip(of_device).collect();
    let found = ffdp_parallel::on_each_device(devices, parts, |k, (model, items)| {
        gradients_of(model, &devices[k], items, share)
    });
    let (gradients, computed): (Vec<GradientsParams>, Vec<_>) = found.into_iter().unzip();
    let gradients = summed(&models, devices, gradients);
    let parts = learners.iter_mut().zip(gradients).collect();
    ffdp_parallel::on_each_device(devices, parts, |_, (learner, gradients)| {
        learner.lr_step();
        learner.optimizer_step(gradients);
    });
    let mut all: Vec<Option<Computed>> = (0..count).map(|_| None).collect();
    for (i, computed) in computed.into_iter().flatten() {
        all[i] = Some(computed);
    }
    all.into_iter().map(|computed| computed.expect("every pair has a device")).collect()
}

/// The sum over the devices, for each of them.
fn summed(
    models: &[Registration],
    devices: &[Device],
    gradients: Vec<GradientsParams>,
) -> Vec<GradientsParams> {
    if devices.len() == 1 {
        return gradients;
    }
    let parts = models.iter().zip(gradients).collect();
    let lines = ffdp_parallel::on_each_device(devices, parts, |_, (model, gradients)| {
        line_of_gradients(model, gradients)
    });
    let parts = models.iter().zip(all_reduce(lines, Reduction::Sum)).collect();
    ffdp_parallel::on_each_device(devices, parts, |_, (model, line)| gradients_of_line(model, line))
}

/// The sum of the gradients of a device's pairs.
fn gradients_of(
    model: &Registration,
    device: &Device,
    items: Vec<(usize, Item)>,
    share: f64,
) -> (GradientsParams, Vec<(usize, Computed)>) {
    let mut sum = GradientsAccumulator::new();
    let mut computed = Vec::with_capacity(items.len());
    for (i, item) in items {
        let (started, waited) = (Instant::now(), item.waited);
        let terms = model.terms(&item);
        let gradients = terms.share(share).backward();
        sum.accumulate(model, GradientsParams::from_grads(gradients, model));
        computed.push((i, Computed { started, waited, device: device.clone(), terms }));
    }
    (sum.grads(), computed)
}
