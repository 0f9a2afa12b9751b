//! A run that is about to start or to continue: its recipe, its folder, what is done already.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use burn::train::Interrupter;
use ffdp_image::io::write_text;
use ffdp_image::{Error, Result};

#[cfg(feature = "cli")]
use crate::arguments::TrainArguments;
use crate::checkpoint;
use crate::folder::RunFolder;
use crate::settings::{Settings, file};

/// Settings that a resumed run may change: how long, and what does not touch the numbers.
const CHANGEABLE: [&str; 5] = ["epochs", "patience", "keep", "workers", "cache_mib"];

/// A run that is about to start or to continue.
#[derive(Clone, Debug)]
pub struct TrainingRun {
    /// The recipe.
    pub settings: Settings,
    /// Where everything is written.
    pub folder: RunFolder,
    /// Epochs that are done, 0 for a new run.
    pub done: usize,
    /// Lines instead of the dashboard.
    pub plain: bool,
    /// Ends it early.
    pub ending: Ending,
}

/// Asks a training that runs in another thread to end; epochs that are done stay.
#[derive(Clone, Default)]
pub struct Ending(Interrupter);

impl Ending {
    /// The training ends after the step that it is at, and `reason` is printed.
    pub fn ask(&self, reason: &str) {
        self.0.stop(Some(reason));
    }

    /// What Burn's learner looks at.
    pub(crate) fn interrupter(&self) -> Interrupter {
        self.0.clone()
    }
}

impl fmt::Debug for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ending").field("asked", &self.0.should_stop()).finish()
    }
}

impl TrainingRun {
    /// Settles the recipe and, with `--resume`, where to continue. Nothing is written yet.
    ///
    /// # Errors
    /// Those of [`Self::begin`], or with `--resume` of [`Self::resume`].
    #[cfg(feature = "cli")]
    pub fn open(arguments: &TrainArguments) -> Result<Self> {
        let TrainArguments { recipe, output, .. } = arguments;
        let run = match arguments.resume {
            true => {
                let saved = RunFolder::new(output).settings();
                Self::resume(recipe.resolve(Some(&saved))?, output)
            }
            false => Self::begin(recipe.resolve(arguments.settings.as_deref())?, output),
        };
        Ok(Self { plain: arguments.plain, ..run? })
    }

    /// A new run in the folder `out`. Nothing is written yet.
    ///
    /// # Errors
    /// A folder that holds a run already, settings without meaning, data that is not there.
    pub fn begin(mut settings: Settings, out: &Path) -> Result<Self> {
        let folder = RunFolder::new(out);
        if folder.settings().exists() {
            return Err(Error::invalid(
                "--output must name a folder without a run in it",
                folder.root().display(),
                "continue that run with --resume, or choose another folder",
            ));
        }
        settings.validate()?;
        settings.data = found(settings.data)?;
        Ok(Self { settings, folder, done: 0, plain: false, ending: Ending::default() })
    }

    /// The run in the folder `out`, from its last checkpoint on.
    ///
    /// # Errors
    /// A folder without a run, settings without meaning or that differ from those of the run.
    pub fn resume(mut settings: Settings, out: &Path) -> Result<Self> {
        let folder = RunFolder::new(out);
        settings.validate()?;
        settings.data = found(settings.data)?;
        check_same(&file::read(&folder.settings())?, &settings)?;
        let done = checkpoint::last_complete(&folder.checkpoints())?;
        if done >= settings.epochs {
            let what = format!("--epochs must exceed the {done} epochs that are done");
            return Err(Error::invalid(what, settings.epochs, "ask for more epochs"));
        }
        Ok(Self { settings, folder, done, plain: false, ending: Ending::default() })
    }

    /// Makes the folder of the run and saves the settings in it.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn prepare(&self) -> Result<()> {
        self.folder.create()?;
        let version = env!("CARGO_PKG_VERSION");
        let heading = format!(
            "# All settings of a training by ffdp {version}.\n# ffdp train --settings with this \
             file repeats it.\n\n"
        );
        let text = file::to_toml(&self.settings);
        write_text(&self.folder.settings(), &format!("{heading}{text}"))
    }
}

/// A path that holds in any working directory: a run may be resumed from another one.
fn found(data: Option<PathBuf>) -> Result<Option<PathBuf>> {
    let find =
        |data: PathBuf| fs::canonicalize(&data).map_err(|error| Error::io(&data, "find", error));
    data.map(find).transpose()
}

fn check_same(saved: &Settings, given: &Settings) -> Result<()> {
    let (saved, given) = (file::table(saved), file::table(given));
    let names = saved.keys().chain(given.keys());
    for name in names.filter(|name| !CHANGEABLE.contains(&name.as_str())) {
        let text = |table: &toml::Table| match table.get(name) {
            Some(value) => value.to_string(),
            None => "nothing".to_string(),
        };
        let (old, new) = (text(&saved), text(&given));
        if old != new {
            let flag = name.replace('_', "-");
            return Err(Error::invalid(
                format!("--resume: the run was started with --{flag} {old}"),
                new,
                "leave the flag out, or start another run with another --output",
            ));
        }
    }
    Ok(())
}
