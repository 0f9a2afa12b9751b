//! Training: Burn's `Learner` with our data, metrics and checkpoints.

use std::path::Path;
use std::time::Instant;

use burn::module::Module;
use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLrScheduler;
use burn::tensor::Device;
use burn::train::renderer::MetricsRenderer;
use burn::train::{Interrupter, Learner, SupervisedTraining, TrainingStrategy};
use ffdp_image::io::check_disk;
use ffdp_image::{Error, Result};

use crate::checkpoint::{self, AtomicCheckpointer, Criterion, Keep, PARTS, Patience, Scores};
use crate::data::{Dataset, Loader};
use crate::input::InputGrid;
use crate::journal::{self, Journal};
use crate::metrics::{Scalar, SecondsPerStep, peak_memory_mib};
use crate::model::Registration;
use crate::objective::Objective;
use crate::optimizer::AmsGrad;
use crate::progress::PlainLines;
use crate::run::TrainingRun;
use crate::schedule::Polynomial;
use crate::settings::Settings;
use crate::team::Team;

/// Adam's epsilon. Burn's default of 1e-5 would swallow the gradients of a mean over hundreds of
/// thousands of voxels.
const ADAM_EPSILON: f64 = 1e-8;

/// Numbers of a checkpoint for each parameter: itself, and the three moments of AMSGrad.
const CHECKPOINT_NUMBERS: u64 = 4;

/// A trained network and how long it took.
#[derive(Debug)]
pub struct Trained {
    /// The network as it was after the best epoch.
    pub model: Registration,
    /// That epoch, from 1.
    pub epoch: usize,
    seconds: f64,
    /// Median of the seconds of a step: the first one compiles kernels.
    pub seconds_per_step: f64,
    /// Steps in all.
    pub steps: usize,
    parameters: usize,
}

/// Trains from epoch `done + 1` on.
///
/// # Errors
/// Files that cannot be written, failures of the devices or of a checkpoint, and devices that cannot train so.
pub fn train(run: &TrainingRun, dataset: &Dataset, team: &Team) -> Result<Trained> {
    let started = Instant::now();
    team.check(&run.settings)?;
    let device = team.first();
    let TrainingRun { settings, folder, .. } = run;
    let tracking = device.clone().autodiff();
    let config = settings.network(dataset.size);
    let network_file = folder.network();
    burn::config::Config::save(&config, &network_file)
        .map_err(|error| Error::io(&network_file, "write", error))?;
    InputGrid::of(dataset).save(&folder.input())?;
    let objective = Objective::new(settings, dataset.evaluated_labels.as_deref());
    let model = Registration::new(config.init(&tracking), objective);
    let parameters = model.num_params();
    // The last two and the best ones stay, and a new one is saved before another goes.
    let checkpoints = settings.keep.min(settings.epochs) + 3;
    let bytes =
        checkpoints as u64 * CHECKPOINT_NUMBERS * size_of::<f32>() as u64 * parameters as u64;
    check_disk("the checkpoints of the training", folder.root(), bytes)?;

    let training = supervised(run, dataset, team)?;
    let optimizer = AmsGrad::with_epsilon(ADAM_EPSILON).init();
    let schedule = ModuleLrScheduler::new(Polynomial::new(
        settings.learning_rate,
        dataset.steps_per_epoch().div_ceil(settings.batch),
        settings.epochs,
    ));
    let steps = std::sync::Arc::new(team.steps(settings.batch));
    let training = training.with_training_strategy(TrainingStrategy::Custom(steps));
    let result = training.launch(Learner::new(model, optimizer, schedule));
    // Leaves the dashboard and gives the terminal back.
    drop(result.renderer);
    if let Some(error) = result.error {
        return Err(Error::device("training", error));
    }
    if let Some(stop) = result.interrupted {
        let reason = stop.reason.unwrap_or_else(|| "stopped by the user".into());
        crate::stderr::say(&format!("training ended early: {reason}; continue it with --resume"));
    }
    let timed = seconds_of_steps(&folder.journal())?;
    let epoch = checkpoint::best_weights(folder)?;
    Ok(Trained {
        model: checkpoint::load_weights(folder, epoch, result.model)?,
        epoch,
        seconds: started.elapsed().as_secs_f64(),
        seconds_per_step: timed.get(timed.len() / 2).copied().unwrap_or(f64::NAN),
        steps: timed.len(),
        parameters,
    })
}

/// The training by Burn, with what it reads, logs and saves, and what it ends by.
fn supervised(
    run: &TrainingRun,
    dataset: &Dataset,
    team: &Team,
) -> Result<SupervisedTraining<Registration>> {
    let TrainingRun { settings, folder, done, .. } = run;
    let (done, device) = (*done, team.first());
    let tracked: Vec<Device> =
        team.of_pairs().iter().map(|device| device.clone().autodiff()).collect();
    let training = Loader::training(dataset, settings, done + 1, &tracked);
    let validation = Loader::validation(dataset, settings, folder.pictures(), done + 1, device);
    let journal_file = folder.journal();
    let journal = Journal::open(&journal_file, done)?;
    let known = journal::read(&journal_file)?;
    let interrupter = run.ending.interrupter();
    let checkpoints = folder.checkpoints();
    let part = |index: usize| AtomicCheckpointer::new(&checkpoints, PARTS[index]);
    let criterion = Criterion::of(dataset);
    let scores = Scores::new(criterion, criterion.scores(&known));
    let saved = checkpoint::complete(&checkpoints).into_iter().filter(|&epoch| epoch <= done);
    let keep = Keep::new(scores.clone(), settings.keep, saved.collect());
    let mut training = SupervisedTraining::<Registration>::new(
        folder.root(),
        std::sync::Arc::new(training),
        std::sync::Arc::new(validation),
    )
    .num_epochs(settings.epochs)
    .renderer(renderer(run, &interrupter))
    .with_interrupter(interrupter)
    .with_metric_logger(journal)
    .with_custom_checkpointers(part(0), part(1), part(2))
    .with_checkpointing_strategy(keep);
    training = measured(training, settings);
    if let Some(epochs) = settings.patience {
        training = training.early_stopping(Patience::new(scores, epochs));
    }
    if done > 0 {
        training = training.checkpoint(done);
    }
    Ok(training)
}

/// How long each step took, from the shortest to the longest.
fn seconds_of_steps(journal_file: &Path) -> Result<Vec<f64>> {
    let records = journal::read(journal_file)?;
    let mut timed: Vec<f64> = records
        .iter()
        .filter(|record| record.get("kind").is_some_and(|kind| kind == "step"))
        .map(|record| journal::number(record, "seconds"))
        .filter(|seconds| seconds.is_finite())
        .collect();
    timed.sort_by(f64::total_cmp);
    Ok(timed)
}

/// The numbers that are logged and shown.
fn measured(
    training: SupervisedTraining<Registration>,
    settings: &Settings,
) -> SupervisedTraining<Registration> {
    let training = training
        .metric_train_numeric(Scalar::loss())
        .metric_train_numeric(Scalar::similarity())
        .metric_train_numeric(Scalar::smoothness())
        .metric_train_numeric(SecondsPerStep::new())
        .metric_train_numeric(Scalar::waiting())
        .metric_train_numeric(Scalar::peak_memory())
        .metric_train_numeric(Scalar::device_memory())
        .metric_train_numeric(Scalar::learning_rate())
        .metric_valid_numeric(Scalar::loss())
        .metric_valid_numeric(Scalar::similarity())
        .metric_valid_numeric(Scalar::smoothness())
        .metric_valid_numeric(Scalar::dice())
        .metric_valid_numeric(Scalar::folds())
        .metric_valid_numeric(Scalar::sd_log_jacobian());
    if settings.dice_weight == 0.0 {
        return training;
    }
    training.metric_train_numeric(Scalar::overlap()).metric_valid_numeric(Scalar::overlap())
}

/// Burn's dashboard on a terminal, plain lines in a pipe.
#[cfg(feature = "tui")]
fn renderer(run: &TrainingRun, interrupter: &Interrupter) -> Box<dyn MetricsRenderer> {
    use burn::train::renderer::tui::TuiMetricsRendererWrapper;
    use std::io::IsTerminal;

    if std::io::stdout().is_terminal() && !run.plain {
        let checkpoint = (run.done > 0).then_some(run.done);
        return Box::new(TuiMetricsRendererWrapper::new(interrupter.clone(), checkpoint));
    }
    Box::new(PlainLines::new())
}

/// Plain lines.
#[cfg(not(feature = "tui"))]
fn renderer(_: &TrainingRun, _: &Interrupter) -> Box<dyn MetricsRenderer> {
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
            "best epoch      {}\nparameters      {}\nsteps           {}\nseconds a step  {:.3}\ntraining        {:.0} \
             s, validation included\nmemory          {memory}",
            self.epoch, self.parameters, self.steps, self.seconds_per_step, self.seconds
        )
    }
}
