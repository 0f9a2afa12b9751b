//! Flags that were given where they have no effect: they are refused, whatever the command.
//!
//! A command keeps [`UserFlags`] and asks it to refuse by a list of [`WithoutEffect`]: which flags, in which combination, and
//! why. What is known by other ways to be without effect is refused by [`Error::without_effect`] in the same words.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use ffdp_image::{Error, Result};

/// The flags on the command line with their values; what has its default is not among them.
///
/// It adds no flag. As a part of other arguments it must be their first field: those before it take their values away.
#[derive(Clone, Debug, Default)]
pub struct UserFlags(BTreeMap<String, String>);

/// Flags that have no effect in a combination.
#[derive(Clone, Copy, Debug)]
pub struct WithoutEffect<'a> {
    /// Their names as fields, `patch_radius` for `--patch-radius`.
    pub flags: &'a [&'a str],
    /// Whether the combination is there.
    pub when: bool,
    /// The reason.
    pub because: &'a str,
    /// What gives them an effect; leaving them out is advised anyway.
    pub fix: &'a str,
}

impl UserFlags {
    /// Whether a flag was given, by its name as a field.
    pub fn has(&self, flag: &str) -> bool {
        self.0.contains_key(flag)
    }

    /// The flags that were given, by their names as fields.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// # Errors
    /// For the first flag that was given and has no effect.
    pub fn refuse(&self, all: &[WithoutEffect]) -> Result<()> {
        for WithoutEffect { flags, because, fix, .. } in all.iter().filter(|rule| rule.when) {
            if let Some(flag) = flags.iter().find(|flag| self.has(flag)) {
                return Err(Error::without_effect(self.written(flag), because, fix));
            }
        }
        Ok(())
    }

    /// A flag as it is typed.
    fn written(&self, flag: &str) -> String {
        let value = self.0.get(flag).map_or("", String::as_str);
        format!("--{} {value}", flag.replace('_', "-")).trim_end().to_string()
    }
}

impl Args for UserFlags {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl FromArgMatches for UserFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let from_user =
            |id: &&clap::Id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine);
        let value = |name: &str| {
            // A switch has none.
            if matches.try_get_one::<bool>(name).is_ok() {
                return String::new();
            }
            let words = matches.try_get_raw(name).ok().flatten().into_iter().flatten();
            words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
        };
        let named = |id: &clap::Id| (id.as_str().to_string(), value(id.as_str()));
        Ok(Self(matches.ids().filter(from_user).map(named).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        given: UserFlags,
        #[arg(long, default_value_t = 0.1)]
        trim: f64,
        #[arg(long, value_delimiter = ',')]
        scales: Vec<f64>,
        #[arg(long)]
        no_inverse: bool,
    }

    fn flags(words: &[&str]) -> Flags {
        Flags::parse_from([&["test"], words].concat())
    }

    #[test]
    fn what_has_its_default_was_not_given() {
        let none = flags(&[]);
        assert_eq!(none.given.names().count(), 0, "{:?}", none.given);
        let all = flags(&["--trim", "0.1", "--scales", "1,2", "--no-inverse"]);
        assert!((all.trim, all.no_inverse) == (0.1, true) && all.scales == [1.0, 2.0]);
        let written = ["trim", "scales", "no_inverse"].map(|flag| all.given.written(flag));
        assert_eq!(written, ["--trim 0.1", "--scales 1 2", "--no-inverse"]);
    }

    #[test]
    fn a_flag_without_effect_is_refused_with_its_value_the_reason_and_a_way_out() {
        let rules = |when| {
            let (because, fix) = ("nothing is trimmed", "add --average trimmed");
            [WithoutEffect { flags: &["scales", "trim"], when, because, fix }]
        };
        let given = flags(&["--trim", "0.2"]).given;
        assert!(
            given.refuse(&rules(false)).is_ok() && flags(&[]).given.refuse(&rules(true)).is_ok()
        );
        let refused = given.refuse(&rules(true)).expect_err("it was given").to_string();
        for word in ["--trim 0.2", "nothing is trimmed", "leave it out, or add --average trimmed"] {
            assert!(refused.contains(word), "no {word:?} in {refused}");
        }
    }
}
