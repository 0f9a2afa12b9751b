//! Words and lists of numbers as people write them who come from other programs.

use std::ffi::OsStr;
use std::ops::Deref;
use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, StyledStr, TypedValueParser};
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Command, Error};

/// A word of another program, in lower case, and the one here.
#[derive(Clone, Copy, Debug)]
pub struct Other {
    word: &'static str,
    here: &'static str,
    /// Whether both mean the same, so that it is taken; otherwise it is suggested.
    same: bool,
}

impl Other {
    pub const fn same(word: &'static str, here: &'static str) -> Self {
        Self { word, here, same: true }
    }

    /// The word here, if this is the other one.
    pub fn meaning(&self, word: &str) -> Option<&'static str> {
        (self.word == word).then_some(self.here)
    }

    pub const fn near(word: &'static str, here: &'static str) -> Self {
        Self { word, here, same: false }
    }
}

/// Reads one of some words in any case, or what another program calls it.
#[derive(Clone)]
pub struct Words {
    words: Vec<PossibleValue>,
    others: &'static [Other],
}

impl Words {
    /// Words with what each is for.
    pub fn new(
        words: impl IntoIterator<Item = (&'static str, &'static str)>,
        others: &'static [Other],
    ) -> Self {
        let words = words.into_iter().map(|(word, about)| PossibleValue::new(word).help(about));
        Self { words: words.collect(), others }
    }

    /// The word that is meant, and whether without doubt.
    fn meant(&self, written: &str) -> Option<(&str, bool)> {
        let written = written.to_lowercase();
        // ANTs: SyN[0.1,3,0].
        let (name, numbers) =
            written.split_once('[').map_or((&*written, false), |(name, _)| (name, true));
        let own = self.words.iter().map(PossibleValue::get_name).find(|word| *word == name);
        let other = || self.others.iter().find(|other| other.word == name);
        let (word, same) =
            own.map(|word| (word, true)).or_else(|| other().map(|o| (o.here, o.same)))?;
        Some((word, same && !numbers))
    }
}

impl TypedValueParser for Words {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, Error> {
        let written = value.to_string_lossy();
        match self.meant(&written) {
            Some((word, true)) => Ok(word.to_string()),
            found => {
                let known = PossibleValuesParser::new(self.words.clone());
                let mut error = match known.parse_ref(command, arg, value) {
                    Ok(word) => return Ok(word),
                    Err(error) => error,
                };
                if let Some((word, _)) = found {
                    let tip = match written.contains('[') {
                        true => format!("use '{word}'; its numbers are flags of their own"),
                        false => format!("the nearest that ffdp has is '{word}'"),
                    };
                    let tips = ContextValue::StyledStrs(vec![StyledStr::from(tip)]);
                    error.remove(ContextKind::SuggestedValue);
                    error.insert(ContextKind::Suggested, tips);
                }
                Err(error)
            }
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.words.iter().cloned()))
    }
}

/// Numbers with commas, blanks or (ANTs) an x between.
#[derive(Clone, Debug, PartialEq)]
pub struct Numbers<T>(pub Vec<T>);

impl<T> Deref for Numbers<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T: FromStr> FromStr for Numbers<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let inside = text.trim().strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        if let Some((schedule, _)) = inside.and_then(|inside| inside.split_once(',')) {
            let schedule = schedule.replace('x', ",");
            return Err(format!(
                "convergence is set in settings.toml; give the numbers alone: {schedule}"
            ));
        }
        let parts = inside.unwrap_or(text).split([',', 'x', 'X', ' ']);
        let number = |part: &str| {
            part.parse()
                .map_err(|_| format!("{part:?} is no number; write, for example, 200,100,50"))
        };
        parts
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(number)
            .collect::<Result<_, _>>()
            .and_then(|numbers: Vec<T>| match numbers.is_empty() {
                true => Err("there must be a number".to_string()),
                false => Ok(Self(numbers)),
            })
    }
}

/// All words of a command and of its subcommands in any case.
pub fn in_any_case(command: Command) -> Command {
    command.mut_args(|arg| arg.ignore_case(true)).mut_subcommands(in_any_case)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHERS: [Other; 2] = [Other::same("cc", "lncc"), Other::near("demons", "mse")];

    fn parse(value: &str) -> Result<String, String> {
        let words = Words::new(["lncc", "mse", "syn"].map(|word| (word, "")), &OTHERS);
        let command = Command::new("test").arg(Arg::new("word").value_parser(words));
        let found = command.try_get_matches_from(["test", value]);
        found
            .map(|found| found.get_one::<String>("word").expect("given").clone())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn words_of_other_programs_are_taken_or_answered() {
        for (word, here) in [("lncc", "lncc"), ("LNCC", "lncc"), ("SyN", "syn"), ("CC", "lncc")] {
            assert_eq!(parse(word).as_deref(), Ok(here), "{word}");
        }
        for (word, tip) in [
            ("Demons", "'mse'"),
            ("SyN[0.1,3,0]", "'syn'"),
            ("lnc", "'lncc'"),
            ("xyz", "lncc, mse, syn"),
        ] {
            let message = parse(word).expect_err(word);
            assert!(message.contains(tip), "{word}: {message}");
        }
    }

    #[test]
    fn schedules_may_be_written_as_ants_and_elastix_have_them() {
        for text in ["100,50,10", "100x50x10", "100 50 10", "100, 50, 10", "[100x50x10]"] {
            assert_eq!(text.parse(), Ok(Numbers(vec![100, 50, 10])), "{text}");
        }
        assert_eq!("4x2.5x1".parse(), Ok(Numbers(vec![4.0, 2.5, 1.0])));
        for (text, word) in [
            ("100,fifty", "\"fifty\""),
            ("", "a number"),
            ("[100x50x10,1e-6,10]", "100,50,10"),
            ("10.5", "\"10.5\""),
        ] {
            let message = text.parse::<Numbers<usize>>().expect_err(text);
            assert!(message.contains(word), "{text}: {message}");
        }
    }
}
