//! What a command line says about a run: the recipe as flags on top of a file, and the folder.

use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use ffdp_burn::io::read_toml;
use ffdp_burn::{Error, Result};
use toml::{Table, Value};

use crate::settings::Settings;

/// The arguments of a training command.
#[derive(Args, Clone, Debug)]
pub struct TrainArguments {
    /// What is learnt, from what, and how.
    #[command(flatten)]
    pub recipe: Recipe,

    /// Settings to start from (TOML, as every run saves them); flags change them
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    pub settings: Option<PathBuf>,

    /// Continue the run in --out from its last checkpoint, with its settings; --epochs may be larger
    /// than before
    #[arg(long)]
    pub resume: bool,

    /// Plain lines instead of the dashboard, as in a pipe
    #[arg(long)]
    pub plain: bool,

    /// Folder for metrics, checkpoints and pictures
    #[arg(short, long, default_value = "transmorph-run")]
    pub out: PathBuf,
}

/// The flags of the recipe, and which of them were given.
#[derive(Clone, Debug)]
pub struct Recipe {
    flags: Settings,
    given: Vec<String>,
}

impl Args for Recipe {
    fn augment_args(command: Command) -> Command {
        Settings::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Settings::augment_args_for_update(command)
    }
}

impl FromArgMatches for Recipe {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let from_user =
            |id: &&clap::Id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine);
        let given = matches.ids().filter(from_user).map(|id| id.as_str().to_string()).collect();
        Ok(Self { flags: Settings::from_arg_matches(matches)?, given })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Recipe {
    /// The settings of `file`, or the default ones, changed by the flags that were given.
    ///
    /// # Errors
    /// A file that cannot be read or holds other entries, and values without meaning.
    pub fn resolve(&self, file: Option<&Path>) -> Result<Settings> {
        let mut settings = file.map_or_else(|| Ok(Settings::default()), read)?;
        // settings.toml has to lead back to the images.
        if let Some(data) = self.flags.data.as_ref().filter(|data| data.to_str().is_none()) {
            let what = "the name of --data must be UTF-8 to be kept in settings.toml";
            return Err(Error::invalid(what, data.display(), "rename it, or name it by a link"));
        }
        if !self.given.is_empty() {
            let mut table = table(&settings);
            self.override_in(&mut table, &self::table(&self.flags));
            settings = table.try_into().expect("both tables are settings");
        }
        settings.validate()?;
        Ok(settings)
    }

    fn override_in(&self, base: &mut Table, flags: &Table) {
        for (name, value) in flags {
            match (base.get_mut(name), value) {
                (Some(Value::Table(inner)), Value::Table(flags)) => self.override_in(inner, flags),
                _ if self.given.contains(name) => {
                    base.insert(name.clone(), value.clone());
                }
                _ => {}
            }
        }
    }
}

/// The settings in a file.
///
/// # Errors
/// A file that cannot be read, with the line of the first entry that is not understood.
pub fn read(path: &Path) -> Result<Settings> {
    read_toml(path, "entries have the names of the settings.toml of a run")
}

/// The settings as the text of a file.
pub fn to_toml(settings: &Settings) -> String {
    toml::to_string_pretty(settings).expect("settings are plain values")
}

/// The settings by name.
pub fn table(settings: &Settings) -> Table {
    Table::try_from(settings).expect("settings are plain values")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::settings::{Loss, VariantArg};

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        arguments: TrainArguments,
    }

    fn recipe(flags: &[&str]) -> Recipe {
        Flags::parse_from([&["train"], flags].concat()).arguments.recipe
    }

    #[test]
    fn flags_override_a_file_and_a_file_the_defaults() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("recipe.toml");
        let text =
            "loss = \"mi\"\nepochs = 7\nseed = 3\n[augmentation]\nnoise = 0.1\ngamma = 0.2\n";
        std::fs::write(&path, text).expect("writable");
        // 0.02 and 13 are given, though 13 is the default.
        let flags = recipe(&["--augment-noise", "0.02", "--epochs", "13", "--variant", "small"]);
        let settings = flags.resolve(Some(&path)).expect("valid");
        assert_eq!((settings.loss, settings.seed), (Loss::Mi, 3), "from the file");
        assert_eq!((settings.epochs, settings.variant), (13, VariantArg::Small), "from the flags");
        assert_eq!((settings.augmentation.noise, settings.augmentation.gamma), (0.02, 0.2));
        assert_eq!(settings.window, Settings::default().window, "the default");
        std::fs::write(&path, to_toml(&settings)).expect("writable");
        assert_eq!(recipe(&[]).resolve(Some(&path)).expect("valid"), settings);
    }

    #[test]
    fn unknown_entries_are_named_with_their_line() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("recipe.toml");
        std::fs::write(&path, "epochs = 7\nlearning_rat = 1e-3\n").expect("writable");
        let error = recipe(&[]).resolve(Some(&path)).expect_err("a typing error").to_string();
        assert!(error.contains("line 2") && error.contains("learning_rat"), "{error}");
    }
}
