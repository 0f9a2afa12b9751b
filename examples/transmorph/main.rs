//! Trains TransMorph to register pairs of volumes, evaluates it on held-out pairs and draws what it
//! learnt:
//!
//! ```text
//! cargo run --example transmorph -- --loss lncc
//! ```
//! Without `--data` the images are synthetic brains (`ffdp::synth`), so nothing has to be
//! downloaded. See `README.md` for all settings and for real images; `ffdp train` is the same on the
//! command line of the tool, and `ffdp predict` registers with what was trained.
//!
//! [`train`] is a run written out with the modules of the crate `ffdp-train`; read its `objective.rs`
//! (what is minimised) and `model.rs` (what a training step is) next.

mod device;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use ffdp_image::Result;
use ffdp_train::data::Dataset;
use ffdp_train::evaluate::evaluate;
use ffdp_train::team::Team;
use ffdp_train::{TrainArguments, TrainingRun, pictures, report};

/// Train TransMorph to register pairs of 3-D images, on synthetic brains or on your own NIfTI
/// files.
#[derive(Parser)]
#[command(name = "transmorph")]
pub struct Arguments {
    #[command(flatten)]
    train: TrainArguments,

    /// Where to compute: cpu, cuda, cuda:1, wgpu (GPUs: build with --features cuda or wgpu)
    #[arg(long, default_value = "cpu")]
    device: String,
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            error.print().expect("the terminal takes text");
            let informed =
                matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            return if informed { ExitCode::SUCCESS } else { ExitCode::from(1) };
        }
    };
    match train(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(1)
        }
    }
}

fn train(arguments: &Arguments) -> Result<()> {
    let device = device::parse(&arguments.device)?;
    // The recipe: defaults, a settings file, flags. Then the images: files are checked, not read.
    let run = TrainingRun::open(&arguments.train)?;
    let dataset = Dataset::open(&run.settings)?;
    run.prepare()?;
    eprintln!("{}", dataset.summary());
    if arguments.device != "cpu" {
        eprintln!(
            "the first step compiles the kernels, about half a minute on a GPU that has not seen them"
        );
    }
    // Burn's `Learner`, with a journal, checkpoints and pictures in the folder of the run.
    let team = Team::one(&device);
    let trained = ffdp_train::train(&run, &dataset, &team)?;
    // Pairs that were not trained on: overlap, folds, a picture each.
    let inference = team.inference(trained.model.clone())?;
    let evaluation = evaluate(&run, &dataset, &inference)?;
    pictures::curves::draw(&run.folder, run.settings.loss.name(), evaluation.mean_dice())?;
    report::write(&run, &trained, &evaluation)?;
    println!("{}", evaluation.table());
    println!("{}", trained.table());
    eprintln!("report.html, metrics and checkpoints are in {}", run.folder.root().display());
    Ok(())
}
