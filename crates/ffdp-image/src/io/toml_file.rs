//! Settings from TOML files, with errors that name the line at fault.
//!
//! Serde reports an error in a tagged entry (a stage, a loss) for the whole of it. Which part is at fault is found by
//! leaving out one after the other.

use std::path::Path;

use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

use super::words::closest;
use crate::error::{Error, Result};

/// Reads settings; `fix` says where the names of the entries stand.
///
/// # Errors
/// [`Error::Io`] when the file cannot be read, [`Error::File`] with the line of the entry that is at fault, and with the
/// word that was probably meant.
pub fn read_toml<T: DeserializeOwned>(path: impl AsRef<Path>, fix: &str) -> Result<T> {
    let path = path.as_ref();
    let text = std::fs::read_to_string(path).map_err(|source| Error::io(path, "read", source))?;
    parse(&text).map_err(|Fault { line, message, value, meant }| {
        let fix = meant.map_or(fix.to_string(), |meant| format!("did you mean `{meant}`?"));
        Error::file(path, format!("line {line}: {message}"), value, fix)
    })
}

/// What is wrong in a text.
#[derive(Debug)]
struct Fault {
    line: usize,
    message: String,
    /// The line itself.
    value: String,
    meant: Option<String>,
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Fault> {
    toml::from_str(text).map_err(|error| {
        let message = error.message().trim().to_string();
        let of_entry = entry_at_fault::<T>(text, &message);
        let at = of_entry.or(error.span().map(|span| span.start)).unwrap_or(0);
        let line = 1 + text[..at].matches('\n').count();
        let value = text.lines().nth(line - 1).unwrap_or_default().trim();
        let value = format!("`{}`", value.chars().take(80).collect::<String>());
        Fault { line, meant: meant(&message), message, value }
    })
}

/// The known word of a message of serde ("unknown field `a`, expected one of `b`, `c`") that is nearest to the unknown one.
fn meant(message: &str) -> Option<String> {
    let mut words = message.strip_prefix("unknown ")?.split('`').skip(1).step_by(2);
    let unknown = words.next()?;
    let known: Vec<&str> = words.collect();
    let in_other_case = known.iter().find(|word| word.eq_ignore_ascii_case(unknown)).copied();
    in_other_case.or_else(|| closest(unknown, known)).map(str::to_string)
}

/// Where the entry begins without which a text has no longer this error; `None` where there is none, or where the text is
/// no TOML.
fn entry_at_fault<T: DeserializeOwned>(text: &str, message: &str) -> Option<usize> {
    let mut table: Table = text.parse().ok()?;
    let document = DeTable::parse(text).ok()?;
    let fails = |table: &Table| {
        table.clone().try_into::<T>().err().map(|error| error.message().trim().to_string())
    };
    let message = fails(&table).unwrap_or_else(|| message.to_string());
    let mut path = Vec::new();
    while let Some(step) = next_step(&mut table, &path, &message, &fails) {
        path.push(step);
    }
    place(document.get_ref(), &path, message.starts_with("unknown field"))
}

/// A step into a document.
#[derive(Clone, Debug)]
enum Step {
    Key(String),
    Index(usize),
}

/// The part of what a path leads to that is at fault; further entries of a list are left out, so that what they have of
/// the same error does not hide it.
fn next_step(
    table: &mut Table,
    path: &[Step],
    message: &str,
    fails: &impl Fn(&Table) -> Option<String>,
) -> Option<Step> {
    match at(table, path)? {
        Container::List(list) => {
            let all = list.clone();
            for count in 1..=all.len() {
                if let Some(Container::List(list)) = at(table, path) {
                    *list = all[..count].to_vec();
                }
                if fails(table).as_deref() == Some(message) {
                    return all[count - 1].is_table().then_some(Step::Index(count - 1));
                }
            }
            None
        }
        Container::Entries(entries) => {
            let keys: Vec<String> = entries.keys().cloned().collect();
            let without = |key: &String| {
                let mut table = table.clone();
                if let Some(Container::Entries(entries)) = at(&mut table, path) {
                    entries.remove(key);
                }
                fails(&table)
            };
            // An entry that must be there is at fault only if no other one is.
            let missing = |key: &String| format!("missing field `{key}`");
            let cured = |key: &&String| match without(key) {
                None => true,
                Some(other) => other != message && !other.starts_with("missing field"),
            };
            let needed = |key: &&String| without(key).as_deref() == Some(&missing(key));
            let found = keys.iter().find(cured).or_else(|| keys.iter().find(needed));
            found.cloned().map(Step::Key)
        }
    }
}

enum Container<'a> {
    Entries(&'a mut Table),
    List(&'a mut Vec<Value>),
}

/// What a path leads to, if it has parts.
fn at<'a>(table: &'a mut Table, path: &[Step]) -> Option<Container<'a>> {
    let Some((first, rest)) = path.split_first() else { return Some(Container::Entries(table)) };
    let Step::Key(key) = first else { return None };
    let mut value = table.get_mut(key)?;
    for step in rest {
        value = match step {
            Step::Key(key) => value.as_table_mut()?.get_mut(key)?,
            Step::Index(index) => value.as_array_mut()?.get_mut(*index)?,
        };
    }
    match value {
        Value::Table(entries) => Some(Container::Entries(entries)),
        Value::Array(list) => Some(Container::List(list)),
        _ => None,
    }
}

/// Where the entry of a path begins in its text: its name, or its value.
fn place(document: &DeTable, path: &[Step], of_name: bool) -> Option<usize> {
    let (last, before) = path.split_last()?;
    let mut entries = document;
    let mut list: Option<&[Spanned<DeValue>]> = None;
    for step in before {
        let value = match step {
            Step::Key(key) => entries.get(key.as_str())?,
            Step::Index(index) => list?.get(*index)?,
        };
        match value.get_ref() {
            DeValue::Table(table) => (entries, list) = (table, None),
            DeValue::Array(values) => list = Some(values),
            _ => return None,
        }
    }
    Some(match last {
        Step::Key(key) => {
            let (name, value) = entries.get_key_value(key.as_str())?;
            if of_name { name.span().start } else { value.span().start }
        }
        Step::Index(index) => list?.get(*index)?.span().start,
    })
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Settings {
        #[allow(dead_code, reason = "read by serde alone")]
        name: String,
        #[allow(dead_code, reason = "read by serde alone")]
        stages: Vec<Stage>,
    }

    impl Default for Settings {
        fn default() -> Self {
            Self { name: "a".into(), stages: Vec::new() }
        }
    }

    #[derive(Debug, Deserialize)]
    #[serde(tag = "transform", rename_all = "lowercase")]
    #[allow(dead_code, reason = "read for the errors alone")]
    enum Stage {
        Rigid(Numbers),
        Greedy(Numbers),
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Numbers {
        #[allow(dead_code, reason = "read by serde alone")]
        learning_rate: f64,
        #[allow(dead_code, reason = "read by serde alone")]
        levels: Vec<Level>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Level {
        #[allow(dead_code, reason = "read by serde alone")]
        shrink: f64,
        #[allow(dead_code, reason = "read by serde alone")]
        iterations: usize,
    }

    #[test]
    fn the_line_of_the_value_at_fault_is_named() {
        let good = "name = \"a\"\n\n[[stages]]\ntransform = \"rigid\"\nlearning_rate = 1.0\n\n\
            [[stages]]\ntransform = \"greedy\"\nlearning_rate = 0.5\nlevels = [\n  { shrink = 2.0, iterations = 3 },\n  \
            { shrink = 1.0, iterations = 4 },\n]\n";
        parse::<Settings>(good).expect("well formed");
        for (old, new, line, word) in [
            ("name = \"a\"", "nam = \"a\"", 1, "unknown field `nam`"),
            ("name = \"a\"", "name = 3", 1, "string"),
            ("learning_rate = 1.0", "learning_rte = 1.0", 5, "unknown field `learning_rte`"),
            ("learning_rate = 0.5", "learning_rate = \"fast\"", 9, "fast"),
            ("learning_rate = 0.5", "levls = 1\nlearning_rate = 0.5", 9, "levls"),
            ("transform = \"greedy\"", "transform = \"Greedy\"", 8, "unknown variant `Greedy`"),
            ("shrink = 1.0, iterations = 4", "shrink = 1.0, iterations = -4", 12, "-4"),
            ("shrink = 2.0, iterations = 3", "shrink = 2.0, iteration = 3", 11, "iteration"),
            ("shrink = 2.0, iterations = 3", "shrink = 2.0", 11, "missing field `iterations`"),
            ("learning_rate = 0.5", "learning_rate == 0.5", 9, ""),
        ] {
            let text = good.replacen(old, new, 1);
            let fault = parse::<Settings>(&text).expect_err(new);
            assert_eq!(fault.line, line, "{new}: {fault:?}");
            assert!(fault.message.contains(word), "{new}: {fault:?}");
        }
        // The same error twice: the first one.
        let twice = good.replace("learning_rate", "learning_rte");
        assert_eq!(parse::<Settings>(&twice).expect_err("twice").line, 5);
    }

    #[test]
    fn the_word_that_was_meant_is_suggested() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("settings.toml");
        for (entry, meant) in [
            ("transform = \"Greedy\"", Some("greedy")),
            ("transform = \"rigd\"", Some("rigid")),
            ("transform = \"greedy\"\nlearnng_rate = 1.0", Some("learning_rate")),
            ("transform = \"greedy\"\nweight = 1.0", None),
        ] {
            std::fs::write(&path, format!("[[stages]]\n{entry}\n")).unwrap();
            let message = read_toml::<Settings>(&path, "look").unwrap_err().to_string();
            let expected =
                meant.map_or("; look".into(), |word| format!("; did you mean `{word}`?"));
            assert!(message.ends_with(&expected) && message.contains("line "), "{message}");
        }
    }
}
