//! The epochs of a team: Burn's order of events, with steps of our own.

use burn::data::dataloader::Progress;
use burn::tensor::Device;
use burn::train::{
    EventProcessorTraining, Interrupter, Learner, LearnerEvent, SupervisedLearningStrategy,
    SupervisedTrainingEventProcessor, TrainLoader, TrainingComponents, TrainingItem, ValidLoader,
};

use super::Team;
use super::inference::Inference;
use super::read::{Numbers, Unread};
use super::step::Learners;
use crate::data::Item;
use crate::model::Registration;

/// A team with the pairs of a step.
#[derive(Debug)]
pub struct Steps {
    team: Team,
    batch: usize,
}

impl Team {
    /// The strategy of a training with `batch` pairs a step.
    pub fn steps(&self, batch: usize) -> Steps {
        Steps { team: self.clone(), batch }
    }
}

type Events<'a> = (&'a mut SupervisedTrainingEventProcessor<Registration>, &'a Interrupter);

impl Steps {
    fn train(
        &self,
        learners: &mut Learners,
        loader: &TrainLoader<Registration>,
        (processor, interrupter): Events<'_>,
    ) {
        let mut items = loader.iter();
        let mut unread = Unread::on(self.team.first());
        let mut iteration = 0;
        let mut report = |numbers: Vec<Numbers>| {
            for Numbers { measured, progress, rate } in numbers {
                iteration += 1;
                let item = TrainingItem::new(measured, progress, Some(iteration), Some(rate));
                interrupter
                    .fail_on_error(processor.process_train(LearnerEvent::ProcessedItem(item)));
            }
        };
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
                return report(unread.read());
            }
            let computed = match learners.step(batch) {
                Ok(computed) => computed,
                Err(error) => return interrupter.fail(error),
            };
            for (computed, progress) in computed.into_iter().zip(progress) {
                unread.push(computed, progress, learners.rate());
            }
            report(unread.read_in_time());
            if interrupter.should_stop() {
                return;
            }
        }
    }

    fn validate(
        inference: &Inference,
        loader: &ValidLoader<Registration>,
        (processor, interrupter): Events<'_>,
    ) {
        let mut items = loader.iter();
        let mut iteration = 0;
        while let Some(item) = items.next() {
            let item = match item {
                Ok(item) => item,
                Err(error) => return interrupter.fail(error),
            };
            iteration += 1;
            let scores = match inference.validate(item) {
                Ok(scores) => scores,
                Err(error) => return interrupter.fail(error),
            };
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
        learner: Learner<Registration>,
        training: TrainLoader<Registration>,
        validation: ValidLoader<Registration>,
        starting_epoch: usize,
    ) -> (Registration, SupervisedTrainingEventProcessor<Registration>) {
        let devices: Vec<Device> =
            self.team.devices.iter().map(|device| device.clone().autodiff()).collect();
        let mut learners = Learners::new(learner, devices, self.team.share);

        let mut processor = components.event_processor;
        let (mut checkpointer, mut early) = (components.checkpointer, components.early_stopping);
        let interrupter = components.interrupter;
        for epoch in starting_epoch..=components.num_epochs {
            let total_items = training.num_items();
            let start = LearnerEvent::StartSplit { epoch_number: epoch, total_items };
            interrupter.fail_on_error(processor.process_train(start));
            let events = (&mut processor, &interrupter);
            self.train(&mut learners, &training, events);
            interrupter.fail_on_error(processor.process_train(LearnerEvent::EndSplit(epoch)));
            if interrupter.should_stop() {
                break;
            }
            let total_items = validation.num_items();
            let start = LearnerEvent::StartSplit { epoch_number: epoch, total_items };
            interrupter.fail_on_error(processor.process_valid(start));
            Self::validate(&learners.inference(), &validation, (&mut processor, &interrupter));
            interrupter.fail_on_error(processor.process_valid(LearnerEvent::EndSplit(epoch)));
            interrupter.fail_on_error(processor.process_train(LearnerEvent::EndEpoch(epoch)));
            if checkpointer.is_some() || early.is_some() {
                interrupter.fail_on_error(processor.flush());
            }
            if interrupter.should_stop() {
                break;
            }
            if let Some(checkpointer) = &mut checkpointer {
                checkpointer.checkpoint(learners.learner(), epoch, &components.event_store);
            }
            if let Some(early) = &mut early
                && early.should_stop(epoch, &components.event_store)
            {
                break;
            }
        }
        (learners.learner().model(), processor)
    }
}
