//! Trains TransMorph to register pairs of volumes, evaluates it on held-out pairs and draws what it
//! learnt:
//!
//! ```text
//! cargo run --example transmorph -- --loss lncc
//! ```
//! Without `--data` the images are synthetic brains (`ffdp::synth`), so nothing has to be
//! downloaded. See `README.md` for all settings and for real images.
//!
//! Read `objective.rs` (what is minimised) and `model.rs` (what a training step is) first, then `train.rs` (how Burn's `Learner` drives
//! it): `args.rs` settings · `data/` images and pairs · `metrics.rs`, `journal.rs`, `progress.rs`
//! what is recorded and shown · `checkpoint.rs` saving and resuming · `evaluate.rs` the closing
//! table · `pictures/` PNG files.

mod args;
mod checkpoint;
mod data;
mod device;
mod evaluate;
mod journal;
mod metrics;
mod model;
mod objective;
mod pictures;
mod progress;
mod schedule;
#[cfg(test)]
mod tests;
mod train;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use ffdp::Result;

use args::Settings;
use data::Dataset;

fn main() -> ExitCode {
    let settings = match Settings::try_parse() {
        Ok(settings) => settings,
        Err(error) => {
            error.print().expect("the terminal takes text");
            let informed =
                matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            return if informed { ExitCode::SUCCESS } else { ExitCode::from(1) };
        }
    };
    match run(&settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(1)
        }
    }
}

fn run(settings: &Settings) -> Result<()> {
    settings.validate()?;
    let device = device::parse(&settings.device)?;
    let done = checkpoint::resumed_epoch(settings)?;
    let dataset = Dataset::load(settings, &device)?;
    checkpoint::prepare(settings)?;
    eprintln!("{}", dataset.summary());
    if settings.device != "cpu" {
        eprintln!("the first step takes minutes: Burn tunes its matrix products for this GPU");
    }
    let trained = train::train(settings, &dataset, &device, done)?;
    let evaluation = evaluate::evaluate(settings, &dataset, &trained.model, &device)?;
    pictures::curves::draw(settings, &evaluation)?;
    println!("{}", evaluation.table());
    println!("{}", trained.table());
    eprintln!("pictures, metrics and checkpoints are in {}", settings.out.display());
    Ok(())
}
