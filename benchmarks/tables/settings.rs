//! The settings: their names and meaning from the source, their defaults from the values that a file is filled up with.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::{entries, root};

/// A struct or an enum, and what its documentation says.
#[derive(Debug, Default)]
struct Type {
    is_enum: bool,
    about: String,
    /// Fields, or variants as a file has them: name, type (of a variant's content), documentation.
    members: Vec<[String; 3]>,
}

/// All types of these folders and files, by name.
fn types(places: &[&str]) -> BTreeMap<String, Type> {
    let mut found = BTreeMap::new();
    let mut places: Vec<PathBuf> = places.iter().map(PathBuf::from).collect();
    while let Some(place) = places.pop() {
        places.extend(entries(&place));
        if place.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(root().join(&place)).expect("a source file can be read");
            read_types(&text, &mut found);
        }
    }
    found
}

fn read_types(text: &str, found: &mut BTreeMap<String, Type>) {
    let (mut docs, mut skipped, mut renamed, mut own_name) = (Vec::new(), false, "", None);
    let (mut open, mut attribute): (Option<(String, Type, &str)>, _) = (None, String::new());
    for line in text.lines() {
        let trimmed = line.trim();
        if let Some(doc) = trimmed.strip_prefix("///") {
            docs.push(doc.trim());
            continue;
        }
        if trimmed.starts_with("#[") || !attribute.is_empty() {
            attribute += trimmed;
            if attribute.matches('[').count() > attribute.matches(']').count() {
                continue; // It goes on in the next line.
            }
            skipped |= attribute.contains("serde(skip)");
            let quoted =
                attribute.split_once("serde(rename = \"").and_then(|(_, s)| s.split_once('"'));
            own_name = quoted.map(|(name, _)| name.to_string()).or(own_name);
            for rule in ["snake_case", "lowercase", "kebab-case"] {
                if attribute.contains(&format!("rename_all = \"{rule}\"")) {
                    renamed = rule;
                }
            }
            attribute.clear();
            continue;
        }
        let start = |kind: &str| trimmed.strip_prefix(kind)?.strip_suffix(" {").map(str::to_string);
        if let Some(name) = start("pub struct ").or_else(|| start("pub enum ")) {
            let is_enum = trimmed.starts_with("pub enum");
            let about = plain(&docs.join(" "));
            open = Some((name, Type { is_enum, about, members: Vec::new() }, renamed));
            renamed = "";
        } else if line == "}" {
            if let Some((name, kind, _)) = open.take() {
                found.insert(name, kind);
            }
        } else if let Some((of, kind, rule)) = open.as_mut().filter(|_| line.starts_with("    ")) {
            let member = member(trimmed, kind.is_enum, rule).filter(|_| !docs.is_empty());
            let is_field = !kind.is_enum && trimmed.starts_with("pub ");
            assert!(!is_field || skipped || member.is_some(), "{of}: no row for `{trimmed}`");
            if let Some([name, inner]) = member.filter(|_| !skipped) {
                // With another name in a file it may have another type there, and be left out as well.
                let optional = if inner.starts_with("Option<") { "Option<" } else { "" };
                let inner = if own_name.is_some() { optional.to_string() } else { inner };
                let name = own_name.take().unwrap_or(name);
                kind.members.push([name, inner, plain(&docs.join(" "))]);
            }
        }
        if !trimmed.is_empty() {
            (docs, skipped, own_name) = (Vec::new(), false, None);
        }
    }
}

/// Name and type of a field or a variant.
fn member(line: &str, is_enum: bool, rule: &str) -> Option<[String; 2]> {
    if !is_enum {
        let (name, kind) = line.strip_prefix("pub ")?.strip_suffix(',')?.split_once(": ")?;
        return Some([name.to_string(), kind.to_string()]);
    }
    let variant = line.split('=').next()?.trim().trim_end_matches(',');
    let (name, inner) = variant.split_once('(').unwrap_or((variant, ""));
    if !name.chars().all(char::is_alphanumeric) || name.is_empty() {
        return None;
    }
    let mut written = String::new();
    for (at, letter) in name.chars().enumerate() {
        let between = if rule == "snake_case" { "_" } else { "-" };
        if letter.is_uppercase() && at > 0 && rule != "lowercase" {
            written += between;
        }
        written.extend(letter.to_lowercase());
    }
    Some([written, inner.trim_end_matches(')').to_string()])
}

/// Documentation without the addresses of its links, as sentences, fit for a cell.
fn plain(docs: &str) -> String {
    let mut text = String::new();
    let mut rest = docs;
    while let Some(start) = rest.find("[`") {
        text += &rest[..start];
        let Some(end) = rest[start..].find("`]") else { break };
        text += &rest[start + 1..=start + end];
        rest = &rest[start + end + 2..];
        if rest.starts_with('(') {
            // An address may hold brackets of its own.
            let mut depth = 0;
            let close = rest.char_indices().find(|(_, c)| {
                depth += i32::from(*c == '(') - i32::from(*c == ')');
                depth == 0
            });
            rest = &rest[close.map_or(rest.len(), |(at, _)| at + 1)..];
        }
    }
    let mut text = (text + rest).replace('|', "\\|");
    if text.ends_with(|last: char| !last.is_whitespace() && !".:!".contains(last)) {
        text.push('.');
    }
    text
}

/// A value as a TOML file has it, on one line.
fn toml(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Array(values) => {
            format!("[{}]", values.iter().map(toml).collect::<Vec<_>>().join(", "))
        }
        Value::Object(entries) => {
            // Whatever order the map keeps.
            let entries: BTreeMap<_, _> = entries.iter().collect();
            let entries = entries.iter().map(|(name, value)| format!("{name} = {}", toml(value)));
            format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

/// A value as a file has it.
fn value(settings: &impl serde::Serialize) -> Value {
    serde_json::to_value(settings).expect("settings are plain values")
}

/// Tables of types, each followed by those that it mentions.
struct Reference {
    types: BTreeMap<String, Type>,
    /// What the values that a file is filled up with have for the entries of structs.
    defaults: HashMap<String, Value>,
}

impl Reference {
    fn new(places: &[&str]) -> Self {
        Self { types: types(places), defaults: HashMap::new() }
    }

    /// The struct whose fields are the entries of a value; an option may be left out there.
    fn struct_of(&self, value: &Value) -> Option<String> {
        let value = value.as_object()?;
        let is_member =
            |kind: &Type, entry: &str| kind.members.iter().any(|[name, ..]| name == entry);
        let fits = |kind: &Type| {
            !kind.is_enum
                && value.keys().all(|entry| entry == "transform" || is_member(kind, entry))
                && kind.members.iter().all(|[name, inner, _]| {
                    inner.starts_with("Option<") || value.contains_key(name)
                })
        };
        let found = self.types.iter().find(|(_, kind)| !kind.members.is_empty() && fits(kind));
        found.map(|(name, _)| name.clone())
    }

    /// Takes over the defaults of a struct and of the structs in it.
    fn with(mut self, value: &Value) -> Self {
        if let Some(name) = self.struct_of(value) {
            self.defaults.entry(name).or_insert_with(|| value.clone());
        }
        let inner = value.as_object().into_iter().flat_map(|entries| entries.values());
        inner.fold(self, |reference, value| reference.with(value))
    }

    fn table(&self, name: &str) -> String {
        let kind = &self.types[name];
        let mut text = format!("\n### `{name}`\n{}\n\n", kind.about);
        text += match kind.is_enum {
            true => "| value | meaning |\n|---|---|\n",
            false => "| entry | default | meaning |\n|---|---|---|\n",
        };
        for [member, inner, docs] in &kind.members {
            let link = match self.inner(inner) {
                Some(inner) => format!(" See [`{inner}`](#{}).", inner.to_lowercase()),
                None => String::new(),
            };
            let default = self.defaults.get(name).and_then(|default| default.get(member));
            // Stages have tables of their own.
            let default = default.filter(|_| inner != "Vec<Stage>");
            text += &match (kind.is_enum, default.map(toml).filter(|text| !text.is_empty())) {
                (true, _) => format!("| `{member}` | {docs}{link} |\n"),
                (false, None) => format!("| `{member}` | | {docs}{link} |\n"),
                (false, Some(default)) => format!("| `{member}` | `{default}` | {docs}{link} |\n"),
            };
        }
        text
    }

    /// The type in a list or an option, if it has a table.
    fn inner<'a>(&self, kind: &'a str) -> Option<&'a str> {
        let kind = kind.trim_start_matches("Vec<").trim_start_matches("Option<");
        let kind = kind.trim_end_matches('>');
        self.types.contains_key(kind).then_some(kind)
    }

    /// The tables of a type and of all that it mentions, but for what is `described` above it.
    fn tables(&self, first: &str, described: &[&str]) -> String {
        let (mut names, mut text) = (vec![first.to_string()], String::new());
        let mut at = 0;
        while let Some(name) = names.get(at).cloned() {
            text += &self.table(&name);
            for [_, kind, _] in &self.types[&name].members {
                match self.inner(kind) {
                    Some(inner) if described.contains(&inner) => {}
                    Some(inner) if !names.iter().any(|n| n == inner) => names.push(inner.into()),
                    _ => {}
                }
            }
            at += 1;
        }
        text
    }
}

/// Those of `ffdp register --settings`.
pub fn of_a_registration() -> String {
    let reference = Reference::new(&[
        "crates/ffdp-register/src/settings",
        "crates/ffdp-register/src/methods",
        "crates/ffdp-register/src/schedule/mod.rs",
        "crates/ffdp-burn/src/losses/similarities",
        "crates/ffdp-burn/src/ops/adam/mod.rs",
        "crates/ffdp-burn/src/ops/lncc/mod.rs",
        "crates/ffdp-burn/src/ops/mind/mod.rs",
        "crates/ffdp-parallel/src/alignment.rs",
    ]);
    let reference = reference.with(&value(&ffdp::register::Settings::default()));
    let stages = ffdp::register::Stage::built_in().into_iter();
    let reference = stages.fold(reference, |all, (stage, _)| all.with(&value(&stage)));
    reference.tables("Settings", &[])
}

/// Those of `ffdp train --settings`.
pub fn of_a_training() -> String {
    let reference = Reference::new(&[
        "crates/ffdp-train/src/settings",
        "crates/ffdp-burn/src/losses/similarities",
    ]);
    let defaults = value(&ffdp_train::settings::Settings::default());
    // A stage has it, too.
    reference.with(&defaults).tables("Settings", &["Similarity"])
}
