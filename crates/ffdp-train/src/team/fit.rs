//! The epochs of a team: Burn's order of events, with steps of our own.

use std::time::Instant;

use burn::data::dataloader::Progress;
use burn::data::dataset::DatasetError;
use burn::module::Module;
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::Device;
use burn::train::{
    EventProcessorTraining, InferenceStep, Interrupter, Learner, LearnerEvent,
    SupervisedLearningStrategy, SupervisedTrainingEventProcessor, TrainLoader, TrainingComponents,
    TrainingItem, ValidLoader,
};
use ffdp_burn::parallel::{Mesh, Replicas};

use super::{Share, Team, volume};
use crate::data::Item;
use crate::metrics::{Measured, Scores};
use crate::model::Registration;
use crate::objective::Terms;

/// A team with the pairs of a step.
#[derive(Debug)]
pub struct Steps {
    team: Team,
    batch: usize,
    seed: u64,
}

/// A pair that was computed, its terms not yet read.
struct Computed {
    started: Instant,
    waited: f64,
    device: Device,
    terms: Terms,
}

impl Computed {
    fn read(self) -> Measured {
        let terms = self.terms.read();
        Measured::now(Scores::of_terms(self.started, terms, self.waited, &self.device))
    }
}

impl Team {
    /// The strategy of a training with `batch` pairs a step; `seed` that of the run.
    pub fn steps(&self, batch: usize, seed: u64) -> Steps {
        Steps { team: self.clone(), batch, seed }
    }
}

impl Steps {
    /// The gradient of the mean loss of the pairs, and their terms.
    fn step(
        &self,
        replicas: &Replicas<Registration>,
        devices: &[Device],
        items: Vec<Item>,
    ) -> Result<(GradientsParams, Vec<Computed>), DatasetError> {
        let share = 1.0 / items.len() as f64;
        let mut computed = Vec::with_capacity(items.len());
        let mut sums: Vec<GradientsAccumulator<Registration>> =
            replicas.copies().iter().map(|_| GradientsAccumulator::new()).collect();
        for (i, item) in items.into_iter().enumerate() {
            let (started, waited) = (Instant::now(), item.waited);
            let (copy, gradients, terms) = match self.team.share {
                Share::Volume => {
                    let (gradients, terms) = volume::step(replicas, devices, &item, share)?;
                    (0, gradients, terms)
                }
                Share::Pairs => {
                    let copy = i % replicas.copies().len();
                    let model = &replicas.copies()[copy];
                    let item = if copy == 0 { item } else { item.on(&devices[copy]) };
                    let terms = model.terms(&item);
                    let gradients = terms.share(share).backward();
                    (copy, GradientsParams::from_grads(gradients, model), terms)
                }
            };
            sums[copy].accumulate(&replicas.copies()[copy], gradients);
            let device = devices[copy].clone();
            computed.push(Computed { started, waited, device, terms });
        }
        let gradients = match self.team.share {
            Share::Volume => sums[0].grads(),
            Share::Pairs => replicas.sum(sums.iter_mut().map(|sum| sum.grads()).collect()),
        };
        Ok((gradients, computed))
    }

    fn train(
        &self,
        epoch: usize,
        learner: &mut Learner<Registration>,
        replicas: &mut Replicas<Registration>,
        loader: &TrainLoader<Registration>,
        (processor, interrupter): (
            &mut SupervisedTrainingEventProcessor<Registration>,
            &Interrupter,
        ),
    ) {
        let mut items = loader.iter();
        let devices: Vec<Device> =
            self.team.devices.iter().map(|device| device.clone().autodiff()).collect();
        // The loader seeds the first device. Burn's CPU has one generator for the whole process.
        for (k, device) in (1u64..).zip(&self.team.devices[1..]) {
            if device != self.team.first() {
                device.seed(self.seed.wrapping_add(epoch as u64).wrapping_add(k << 32));
            }
        }
        let mut iteration = 0;
        loop {
            let mut batch: Vec<Item> = Vec::with_capacity(self.batch);
            let mut progress: Vec<Progress> = Vec::with_capacity(self.batch);
            while batch.len() < self.batch {
                match items.next() {
                    Some(Ok(item)) => {
                        batch.push(item);
                        progress.push(items.progress());
                    }
                    Some(Err(error)) => return interrupter.fail(error),
                    None => break,
                }
            }
            if batch.is_empty() {
                return;
            }
            let (gradients, computed) = match self.step(replicas, &devices, batch) {
                Ok(step) => step,
                Err(error) => return interrupter.fail(error),
            };
            learner.lr_step();
            learner.optimizer_step(gradients);
            replicas.follow(learner.model());
            for (computed, progress) in computed.into_iter().zip(progress) {
                iteration += 1;
                let rate = Some(learner.lr_current());
                let item = TrainingItem::new(computed.read(), progress, Some(iteration), rate);
                interrupter
                    .fail_on_error(processor.process_train(LearnerEvent::ProcessedItem(item)));
            }
            if interrupter.should_stop() {
                return;
            }
        }
    }

    fn validate(
        model: &Registration,
        loader: &ValidLoader<Registration>,
        (processor, interrupter): (
            &mut SupervisedTrainingEventProcessor<Registration>,
            &Interrupter,
        ),
    ) {
        let mut items = loader.iter();
        let mut iteration = 0;
        while let Some(item) = items.next() {
            let item = match item {
                Ok(item) => item,
                Err(error) => return interrupter.fail(error),
            };
            iteration += 1;
            let scores = InferenceStep::step(model, item);
            let item = TrainingItem::new(scores, items.progress(), Some(iteration), None);
            interrupter.fail_on_error(processor.process_valid(LearnerEvent::ProcessedItem(item)));
            if interrupter.should_stop() {
                return;
            }
        }
    }
}

impl SupervisedLearningStrategy<Registration> for Steps {
    fn fit(
        &self,
        components: TrainingComponents<Registration>,
        mut learner: Learner<Registration>,
        training: TrainLoader<Registration>,
        validation: ValidLoader<Registration>,
        starting_epoch: usize,
    ) -> (Registration, SupervisedTrainingEventProcessor<Registration>) {
        let first = self.team.first().clone().autodiff();
        let training = training.to_device(&first);
        let validation = validation.to_device(&first.clone().inner());
        learner.fork(&first);
        let devices: Vec<Device> =
            self.team.devices.iter().map(|device| device.clone().autodiff()).collect();
        let mut replicas = match self.team.share {
            Share::Pairs => Replicas::one_each(&learner.model(), &devices),
            Share::Volume => {
                let mesh = Mesh::new(&devices, devices.len()).expect("a team has a device");
                Replicas::new(&learner.model(), &mesh)
            }
        };

        let mut processor = components.event_processor;
        let (mut checkpointer, mut early) = (components.checkpointer, components.early_stopping);
        let interrupter = components.interrupter;
        for epoch in starting_epoch..=components.num_epochs {
            let total_items = training.num_items();
            let start = LearnerEvent::StartSplit { epoch_number: epoch, total_items };
            interrupter.fail_on_error(processor.process_train(start));
            let events = (&mut processor, &interrupter);
            self.train(epoch, &mut learner, &mut replicas, &training, events);
            interrupter.fail_on_error(processor.process_train(LearnerEvent::EndSplit(epoch)));
            if interrupter.should_stop() {
                break;
            }
            let total_items = validation.num_items();
            let start = LearnerEvent::StartSplit { epoch_number: epoch, total_items };
            interrupter.fail_on_error(processor.process_valid(start));
            Self::validate(&learner.model().valid(), &validation, (&mut processor, &interrupter));
            interrupter.fail_on_error(processor.process_valid(LearnerEvent::EndSplit(epoch)));
            interrupter.fail_on_error(processor.process_train(LearnerEvent::EndEpoch(epoch)));
            if checkpointer.is_some() || early.is_some() {
                interrupter.fail_on_error(processor.flush());
            }
            if interrupter.should_stop() {
                break;
            }
            if let Some(checkpointer) = &mut checkpointer {
                checkpointer.checkpoint(&learner, epoch, &components.event_store);
            }
            if let Some(early) = &mut early
                && early.should_stop(epoch, &components.event_store)
            {
                break;
            }
        }
        (learner.model(), processor)
    }
}
