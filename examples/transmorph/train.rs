//! Training: Burn's `Learner` with our data, metrics and checkpoints.

use std::io::IsTerminal;
use std::time::Instant;

use burn::module::Module;
use burn::optim::AdamConfig;
use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLrScheduler;
use burn::tensor::Device;
use burn::train::checkpoint::{
    ComposedCheckpointingStrategy, KeepLastNCheckpoints, MetricCheckpointingStrategy,
};
use burn::train::metric::store::{Aggregate, Direction, Split};
use burn::train::renderer::MetricsRenderer;
use burn::train::renderer::tui::TuiMetricsRendererWrapper;
use burn::train::{Interrupter, Learner, SupervisedTraining};
use ffdp::{Error, Result};

use crate::args::Settings;
use crate::checkpoint::{self, AtomicCheckpointer, PARTS};
use crate::data::{Dataset, Loader};
use crate::journal::{self, Journal};
use crate::metrics::{Scalar, SecondsPerStep, peak_memory_mib};
use crate::model::Registration;
use crate::objective::Objective;
use crate::progress::PlainLines;
use crate::schedule::Polynomial;

/// Adam's epsilon. Burn's default of 1e-5 would swallow the gradients of a mean over hundreds of
/// thousands of voxels.
const ADAM_EPSILON: f32 = 1e-8;

/// A trained network and how long it took.
pub struct Trained {
    pub model: Registration,
    seconds: f64,
    seconds_per_step: f64,
    steps: usize,
    parameters: usize,
}

/// Trains from epoch `done + 1` on.
///
/// # Errors
/// Files that cannot be written, and failures of the device or of a checkpoint.
pub fn train(
    settings: &Settings,
    dataset: &Dataset,
    device: &Device,
    done: usize,
) -> Result<Trained> {
    let started = Instant::now();
    let tracking = device.clone().autodiff();
    let config = settings.network(dataset.size());
    let network_file = settings.out.join("network.json");
    burn::config::Config::save(&config, &network_file)
        .map_err(|error| Error::io(&network_file, "write", error))?;
    let objective = Objective::new(settings, dataset.evaluated_labels.as_deref());
    let model = Registration::new(config.init(&tracking), objective);
    let parameters = model.num_params();

    let pictures = settings.out.join("pictures");
    let training = Loader::training(&dataset.training, settings.seed, done + 1, device);
    let validation = Loader::validation(&dataset.validation, pictures, done + 1, device);
    let journal_file = settings.out.join("metrics.jsonl");
    let journal = Journal::open(&journal_file, done)?;
    let interrupter = Interrupter::new();
    let folder = checkpoint::folder(settings);
    let part = |index: usize| AtomicCheckpointer::new(&folder, PARTS[index]);
    let strategy = ComposedCheckpointingStrategy::builder()
        .add(KeepLastNCheckpoints::new(2))
        .add(best(dataset))
        .build();
    let mut training = SupervisedTraining::<Registration>::new(
        &settings.out,
        std::sync::Arc::new(training),
        std::sync::Arc::new(validation),
    )
    .num_epochs(settings.epochs)
    .renderer(renderer(settings, &interrupter, done))
    .with_interrupter(interrupter)
    .with_metric_logger(journal)
    .with_custom_checkpointers(part(0), part(1), part(2))
    .with_checkpointing_strategy(strategy)
    .metric_train_numeric(Scalar::loss())
    .metric_train_numeric(Scalar::similarity())
    .metric_train_numeric(Scalar::smoothness())
    .metric_train_numeric(SecondsPerStep::new())
    .metric_train_numeric(Scalar::peak_memory())
    .metric_train_numeric(Scalar::learning_rate())
    .metric_valid_numeric(Scalar::loss())
    .metric_valid_numeric(Scalar::similarity())
    .metric_valid_numeric(Scalar::smoothness())
    .metric_valid_numeric(Scalar::dice())
    .metric_valid_numeric(Scalar::folds());
    if settings.dice_weight > 0.0 {
        training = training
            .metric_train_numeric(Scalar::overlap())
            .metric_valid_numeric(Scalar::overlap());
    }
    if done > 0 {
        training = training.checkpoint(done);
    }

    let steps = dataset.steps_per_epoch() * settings.epochs;
    let optimizer = AdamConfig::new().with_amsgrad(true).with_epsilon(ADAM_EPSILON).init();
    let schedule = ModuleLrScheduler::new(Polynomial::new(settings.learning_rate, steps));
    let result = training.launch(Learner::new(model, optimizer, schedule));
    // Leaves the dashboard and gives the terminal back.
    drop(result.renderer);
    if let Some(error) = result.error {
        return Err(Error::device("training", error));
    }
    if let Some(stop) = result.interrupted {
        let reason = stop.reason.unwrap_or_else(|| "stopped by the user".into());
        eprintln!("training ended early: {reason}; continue it with --resume");
    }
    let records = journal::read(&journal_file)?;
    let timed: Vec<f64> = records
        .iter()
        .filter(|record| record.get("kind").is_some_and(|kind| kind == "step"))
        .map(|record| journal::number(record, "seconds"))
        .filter(|seconds| seconds.is_finite())
        .collect();
    Ok(Trained {
        model: result.model,
        seconds: started.elapsed().as_secs_f64(),
        seconds_per_step: timed.iter().sum::<f64>() / timed.len() as f64,
        steps: timed.len(),
        parameters,
    })
}

/// Keeps the checkpoint of the best validation Dice, or of the lowest loss without labels.
fn best(dataset: &Dataset) -> MetricCheckpointingStrategy {
    let labelled = dataset
        .validation
        .iter()
        .all(|pair| pair.fixed.labels.is_some() && pair.moving.labels.is_some());
    let (metric, direction) = match labelled {
        true => (Scalar::dice(), Direction::Highest),
        false => (Scalar::loss(), Direction::Lowest),
    };
    MetricCheckpointingStrategy::new(&metric, Aggregate::Mean, direction, Split::Valid)
}

/// Burn's dashboard on a terminal, plain lines in a pipe.
fn renderer(
    settings: &Settings,
    interrupter: &Interrupter,
    done: usize,
) -> Box<dyn MetricsRenderer> {
    if std::io::stdout().is_terminal() && !settings.plain {
        let checkpoint = (done > 0).then_some(done);
        return Box::new(TuiMetricsRendererWrapper::new(interrupter.clone(), checkpoint));
    }
    Box::new(PlainLines::new())
}

impl Trained {
    /// Time and memory, as a table.
    pub fn table(&self) -> String {
        let memory = match peak_memory_mib() {
            Some(mib) => format!("{mib:.0} MiB resident at most (host)"),
            None => "unknown on this system".into(),
        };
        format!(
            "parameters      {}\nsteps           {}\nseconds a step  {:.3}\ntraining        {:.0} \
             s, validation included\nmemory          {memory}",
            self.parameters, self.steps, self.seconds_per_step, self.seconds
        )
    }
}
