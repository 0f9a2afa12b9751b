//! `ffdp train`: a network that learns to register.

use clap::Args;
use clap::ValueEnum;
use ffdp_train::TrainArguments;
use ffdp_train::team::{Share, Team};
use ffdp_train::user_flags::{UserFlags, WithoutEffect};

use crate::device::DeviceChoice;
use crate::failure::{Failure, Result};
use crate::interrupt::of_command;
use crate::printer::{print_to_stdout, say};

const HELP: &str = "\
Without --data the images are synthetic brains. --data names NIfTI images:
  a folder with pairs.csv     columns fixed,moving,fixed_labels,moving_labels,part
  a folder with images.csv    columns image,labels,part: any two images form a pair
  (or the path of such a list)
  any other folder            its NIfTI files (those in images/, if there is such a folder), labels of
                              the same names in labels/
`part` is train (the default), validation or test. Every pair is trained in both directions.

The published recipe of TransMorph (days on a GPU):
  --variant large --dice-weight 1 --smoothness 1 --epochs 500 --learning-rate 1e-4 --drop-path 0.3 \
--keep 8

The folder --output then holds report.html, settings.toml, network.json, input.json, metrics.jsonl, \
evaluation.json, checkpoint/ and pictures/; `ffdp predict --model` takes it.

Exit code: 0 done, 1 an error in the input or the request, 2 a defect.";

/// `ffdp train`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct TrainCommand {
    #[command(flatten)]
    given: UserFlags,
    #[command(flatten)]
    pub arguments: TrainArguments,
    /// Where to compute. Only what was compiled in is accepted
    #[arg(long, value_name = "cpu|cuda[:I]|wgpu", default_value = DeviceChoice::AUTO)]
    pub device: DeviceChoice,
    /// Several devices that train together, as cuda:0,cuda:1; the first also validates
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with = "device")]
    pub devices: Vec<DeviceChoice>,
    /// What the devices share
    #[arg(long, value_enum, default_value_t = ShareArg::Pairs)]
    pub share: ShareArg,
}

/// `--share`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ShareArg {
    /// The pairs of a step (--batch): each is computed on one device
    Pairs,
    /// Each pair: every device holds a part of the volumes and of all activations, for volumes too large
    /// for one
    Volume,
}

impl TrainCommand {
    fn team(&self) -> Result<Team> {
        let all = match &self.devices[..] {
            [] => std::slice::from_ref(&self.device),
            several => several,
        };
        if let Some((_, again)) =
            all.iter().enumerate().find(|(k, device)| all[..*k].contains(device))
        {
            return Err(Failure::user(
                format!("--devices must name each device once, got {again} twice"),
                "name other devices, or one with --batch",
            ));
        }
        self.given.refuse(&[WithoutEffect {
            flags: &["share"],
            when: all.len() < 2,
            because: "one device shares nothing",
            fix: "name several: --devices cuda:0,cuda:1",
        }])?;
        let devices = all.iter().map(|device| device.open()).collect::<Result<Vec<_>>>()?;
        let share = match self.share {
            ShareArg::Pairs => Share::Pairs,
            ShareArg::Volume => Share::Volume,
        };
        Ok(Team::new(devices, share)?)
    }
}

/// Trains, and prints how well the network registers pairs that it has not seen.
pub fn run_command(request: &TrainCommand) -> Result<()> {
    let team = request.team()?;
    of_command(
        "interrupted: epochs that are done are kept; the same command with --resume goes on after the last one",
    );
    if request.devices.first().unwrap_or(&request.device) != &DeviceChoice::Cpu {
        say(
            "the first step compiles the kernels, about half a minute on a GPU that has not seen them",
        );
    }
    let finished = ffdp_train::run(&request.arguments, &team)?;
    say(&format!(
        "report.html, metrics and checkpoints are in {}",
        request.arguments.output.display()
    ));
    print_to_stdout(&format!("{}\n{}\n", finished.evaluation.table(), finished.trained.table()))
}
