//! What a command line says about a run: the recipe as flags on top of a file, and the folder.

use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args, Command, FromArgMatches};
use ffdp_image::{Error, Result};
use toml::{Table, Value};

use crate::settings::file::{read, table};
use crate::settings::{HeadArg, NetworkArg, Settings};
use crate::user_flags::{UserFlags, WithoutEffect};

/// The arguments of a training command.
#[derive(Args, Clone, Debug)]
pub struct TrainArguments {
    /// What is learnt, from what, and how.
    #[command(flatten)]
    pub recipe: Recipe,

    /// Settings to start from (TOML, as every run saves them). Flags change them
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    pub settings: Option<PathBuf>,

    /// Continue the run in --output from its last checkpoint, with its settings; --epochs may be larger
    /// than before
    #[arg(long)]
    pub resume: bool,

    /// Plain lines instead of the dashboard (builds with the feature tui), as in a pipe
    #[arg(long)]
    pub plain: bool,

    /// Folder for metrics, checkpoints and pictures
    #[arg(short, long, alias = "out", value_name = "DIR", default_value = "transmorph-run")]
    pub output: PathBuf,
}

/// The flags of the recipe, and which of them were given.
#[derive(Clone, Debug)]
pub struct Recipe {
    flags: Settings,
    given: UserFlags,
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
        let given = UserFlags::from_arg_matches(matches)?;
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
    /// A file that cannot be read or holds other entries, values without meaning, and flags without an effect.
    pub fn resolve(&self, file: Option<&Path>) -> Result<Settings> {
        let mut settings = file.map_or_else(|| Ok(Settings::default()), read)?;
        // settings.toml has to lead back to the images.
        if let Some(data) = self.flags.data.as_ref().filter(|data| data.to_str().is_none()) {
            let what = "the name of --data must be UTF-8 to be kept in settings.toml";
            return Err(Error::invalid(what, data.display(), "rename it, or name it by a link"));
        }
        if self.given.names().next().is_some() {
            let (mut base, mut flags) = (table(&settings), table(&self.flags));
            // A loss that the file has keeps its settings there.
            if settings.loss.name() == self.flags.loss.name() {
                flags.remove("loss");
            }
            self.override_in(&mut base, &flags);
            settings = base.try_into().expect("both tables are settings");
        }
        settings.validate()?;
        self.refuse_without_effect(&settings)?;
        Ok(settings)
    }

    /// Refuses flags that these settings do not look at. Entries of a file may wait for other ones.
    fn refuse_without_effect(&self, settings: &Settings) -> Result<()> {
        self.given.refuse(&[
            WithoutEffect {
                flags: &["variant", "resolution", "drop_path"],
                when: settings.network == NetworkArg::Voxelmorph,
                because: "VoxelMorph has one size",
                fix: "use --network transmorph",
            },
            WithoutEffect {
                flags: &["control_spacing"],
                when: settings.head == HeadArg::Dense,
                because: "the head dense has no control points",
                fix: "add --head bspline",
            },
            WithoutEffect {
                flags: &["regularizer"],
                when: settings.smoothness_weight() == 0.0,
                because: "its weight --smoothness is 0",
                fix: "give it a weight",
            },
            WithoutEffect {
                flags: &["hold_out"],
                when: settings.data.is_none(),
                because: "synthetic subjects are held out by themselves",
                fix: "name a folder of images by --data",
            },
        ])
    }

    fn override_in(&self, base: &mut Table, flags: &Table) {
        for (name, value) in flags {
            match (base.get_mut(name), value) {
                _ if self.given.has(name) => {
                    base.insert(name.clone(), value.clone());
                }
                (Some(Value::Table(inner)), Value::Table(flags)) => self.override_in(inner, flags),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use ffdp_burn::losses::similarities::{LnccSettings, MiSettings, Similarity};

    use crate::settings::VariantArg;
    use crate::settings::file::to_toml;

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
        assert_eq!(
            (&settings.loss, settings.seed),
            (&Similarity::Mi(MiSettings::default()), 3),
            "from the file"
        );
        assert_eq!((settings.epochs, settings.variant), (13, VariantArg::Small), "from the flags");
        assert_eq!((settings.augmentation.noise, settings.augmentation.gamma), (0.02, 0.2));
        assert_eq!(settings.window, Settings::default().window, "the default");
        std::fs::write(&path, to_toml(&settings)).expect("writable");
        assert_eq!(recipe(&[]).resolve(Some(&path)).expect("valid"), settings);
    }

    #[test]
    fn flags_have_the_defaults_of_a_file() {
        assert_eq!(recipe(&[]).flags, Settings::default());
    }

    #[test]
    fn unknown_entries_are_named_with_their_line() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("recipe.toml");
        std::fs::write(&path, "epochs = 7\nlearning_rat = 1e-3\n").expect("writable");
        let error = recipe(&[]).resolve(Some(&path)).expect_err("a typing error").to_string();
        assert!(error.contains("line 2") && error.contains("learning_rat"), "{error}");
    }

    /// What a run of version 0.1 wrote, with another loss and window.
    fn of_an_earlier_run(loss: &str, window: usize) -> String {
        format!(
            "loss = \"{loss}\"\nwindow = {window}\nregularizer = \"diffusion\"\ndice_weight = 0.0\n\
             integrate = false\nnetwork = \"transmorph\"\nhead = \"dense\"\ncontrol_spacing = 4\n\
             affine = false\nvariant = \"tiny\"\nresolution = \"half\"\nepochs = 13\nseed = 0\n\
             batch = 1\nlearning_rate = 0.003\ndrop_path = 0.0\nalign = \"headers\"\nhold_out = 0\n\
             keep = 1\nworkers = 2\ncache_mib = 2048\nbaseline = false\n\n[augmentation]\n\
             flips = false\nrotation = 0.0\nscaling = 0.0\nshift = 0.0\ngamma = 0.0\n\
             brightness = 0.0\nnoise = 0.0\n"
        )
    }

    fn resolved(text: &str, flags: &[&str]) -> Result<Settings> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("recipe.toml");
        std::fs::write(&path, text).expect("writable");
        recipe(flags).resolve(Some(&path))
    }

    fn lncc(window: usize) -> Similarity {
        Similarity::Lncc(LnccSettings { window, ..LnccSettings::transmorph() })
    }

    #[test]
    fn settings_of_earlier_runs_are_read() {
        let mi = Similarity::Mi(MiSettings::default());
        // What each was trained with, and the window of the correlation that was reported.
        for (name, window, loss) in
            [("lncc", 9, lncc(9)), ("lncc", 7, lncc(7)), ("mse", 9, Similarity::Mse), ("mi", 5, mi)]
        {
            let text = of_an_earlier_run(name, window);
            let settings = resolved(&text, &[]).expect("valid");
            assert_eq!((&settings.loss, settings.reported_window()), (&loss, window), "{name}");
            let others = Settings { loss, window: settings.window, ..Settings::default() };
            assert_eq!(settings, others, "{name}");
            // As it is written now, and with the flags that it was started with.
            assert_eq!(resolved(&to_toml(&settings), &[]).expect("valid"), settings);
            let flags = ["--loss", name, "--window", &window.to_string()];
            assert_eq!(resolved(&text, &flags).expect("valid"), settings);
        }
    }

    #[test]
    fn a_loss_is_what_a_stage_has_or_a_name() {
        let nmi = |bins| Similarity::Nmi(MiSettings { bins, ..MiSettings::default() });
        let stage = Similarity::Lncc(LnccSettings { window: 5, ..LnccSettings::default() });
        for (text, flags, loss) in [
            ("", &[][..], lncc(9)),
            ("[loss.lncc]\nwindow = 5\n", &[], stage.clone()),
            ("[loss.lncc]\nwindow = 5\n", &["--loss", "lncc"], stage),
            ("[loss.lncc]\nwindow = 5\n", &["--loss", "nmi", "--bins", "64"], nmi(64)),
            ("loss = \"nmi\"\n", &[], nmi(32)),
            ("loss = \"nmi\"\nbins = 48\n", &[], nmi(48)),
            ("loss = { nmi = { bins = 48 } }\n", &["--bins", "16"], nmi(16)),
            ("loss = { nmi = { bins = 48 } }\n", &["--epochs", "3"], nmi(48)),
            ("loss = \"mse\"\n", &["--loss", "lncc", "--window", "7"], lncc(7)),
        ] {
            let settings = resolved(text, flags).expect("valid");
            assert_eq!(settings.loss, loss, "{text}{flags:?}");
            assert_eq!(resolved(&to_toml(&settings), &[]).expect("valid"), settings);
        }
        for (text, flags, expected) in [
            ("loss = \"ncc\"\n", &[][..], "unknown loss `ncc`, expected one of lncc, mse, mi, nmi"),
            ("loss = { lncc = { windw = 5 } }\n", &[], "windw"),
            ("loss = { nmi = { bins = 4 } }\n", &[], "8..256"),
            ("", &["--bins", "16"], "--bins is given, but the loss lncc has none"),
        ] {
            let error = resolved(text, flags).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
