//! The guide is whole: its tables are those of the measurements and of the code, its links lead somewhere, its settings
//! are understood. What it shows in Rust are doctests (`src/lib.rs`); `ffdp-cli` runs its commands.

#[path = "../benchmarks/tables/main.rs"]
mod tables;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Lines of README.md, at most: the guide is in docs/.
const README_LINES: usize = 120;

/// Every page that has links.
fn pages() -> Vec<PathBuf> {
    let mut pages = tables::pages();
    pages.push("CHANGELOG.md".into());
    pages
}

/// The page outside of its blocks of code, line by line.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().map(|(at, line)| (at + 1, line)).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// The targets of the links of a line, outside of code.
fn links(line: &str) -> Vec<&str> {
    let outside: Vec<&str> = line.split('`').step_by(2).collect();
    // A link's text may be code, so that its parts lie in different pieces: its target never is.
    let targets = outside.iter().flat_map(|piece| {
        piece.match_indices("](").filter_map(|(at, _)| Some(piece[at + 2..].split_once(')')?.0))
    });
    targets.collect()
}

/// A heading as its address: what GitHub and mdBook make of it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

fn anchors(text: &str) -> Vec<String> {
    let headings = prose(text).filter_map(|(_, line)| line.strip_prefix('#'));
    headings.map(|heading| anchor(heading.trim_start_matches('#').trim())).collect()
}

/// What is wrong with a link, if anything.
fn broken(page: &Path, target: &str) -> Option<String> {
    if target.starts_with("http://") || target.starts_with("https://") {
        return None;
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let folder = page.parent().expect("a page lies in a folder");
    let path = if file.is_empty() { page.to_path_buf() } else { folder.join(file) };
    let found = tables::root().join(&path);
    if !found.exists() {
        return Some(format!("{} is not there", path.display()));
    }
    if heading.is_empty() || anchors(&tables::read(&path)).iter().any(|found| found == heading) {
        return None;
    }
    Some(format!("{} has no heading #{heading}", path.display()))
}

#[test]
fn links_lead_somewhere() {
    let mut wrong = Vec::new();
    for page in pages() {
        let text = tables::read(&page);
        for (line, content) in prose(&text) {
            let broken = links(content).into_iter().filter_map(|target| broken(&page, target));
            wrong.extend(broken.map(|what| format!("{} line {line}: {what}", page.display())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn tables_are_those_of_the_measurements_and_of_the_code() {
    for page in tables::pages() {
        let text = tables::read(&page);
        let new = tables::filled(&page, &text).unwrap_or_else(|error| panic!("{error}"));
        if let Some(at) = text.lines().zip(new.lines()).position(|(old, new)| old != new) {
            let line = new.lines().nth(at).expect("it is there");
            panic!(
                "{} line {}: `cargo run --example tables` makes\n{line}",
                page.display(),
                at + 1
            );
        }
        assert_eq!(text.len(), new.len(), "{}: run `cargo run --example tables`", page.display());
    }
}

#[test]
fn a_table_without_its_measurement_is_an_error() {
    let filled = |text| tables::filled(Path::new("docs/a.md"), text);
    assert!(filled("<!-- table: no-such-file -->\n<!-- end -->\n").is_err());
    assert!(filled("<!-- table: ops-h200 | columns: none -->\n<!-- end -->\n").is_err());
    assert!(filled("<!-- table: ops-h200 -->\nnothing ends it\n").is_err());
    let chosen = filled(
        "<!-- table: ops-h200 | columns: operation; 512^3 | rows: mse, both -->\nold\n<!-- end -->\n",
    );
    let lines: Vec<String> = chosen.expect("it is there").lines().map(str::to_string).collect();
    assert_eq!(lines[1..4], ["| operation | 512^3 |", "|---|---|", "| mse | 0.910 |"]);
    assert!(lines.iter().any(|line| line.contains("cargo bench --bench ops")), "{lines:?}");
    assert!(!lines.contains(&"old".to_string()));
}

#[test]
fn every_page_is_in_the_summary_once() {
    let summary = tables::read(Path::new("docs/SUMMARY.md"));
    let mut listed: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, line) in prose(&summary) {
        links(line).into_iter().for_each(|target| *listed.entry(target).or_default() += 1);
    }
    for page in fs::read_dir(tables::root().join("docs")).expect("the guide is there") {
        let name = page.expect("a folder can be listed").file_name().into_string().expect("UTF-8");
        if name.ends_with(".md") && name != "SUMMARY.md" {
            assert_eq!(listed.get(name.as_str()), Some(&1), "docs/SUMMARY.md lists {name} once");
        }
    }
}

#[test]
fn settings_of_the_guide_are_understood() {
    let mut read = 0;
    for page in tables::pages() {
        let text = tables::read(&page);
        let starts = text.match_indices("```toml\n").map(|(at, fence)| at + fence.len());
        for start in starts {
            let block = text[start..].split("```").next().expect("a block has an end");
            if block.contains("[[stages]]") {
                let settings: ffdp::register::Settings = toml::from_str(block)
                    .unwrap_or_else(|error| panic!("{}: {error}\n{block}", page.display()));
                settings.validate().unwrap_or_else(|error| panic!("{}: {error}", page.display()));
                read += 1;
            }
        }
    }
    assert!(read > 0, "the guide shows settings");
}

/// The entries of settings whose tables are written by hand, with their defaults.
#[test]
fn settings_of_shapes_have_rows() {
    use ffdp::shapes::lddmm::LddmmSettings;
    use ffdp::shapes::sinkhorn::{Multiscale, SinkhornSettings};
    let page = tables::read(Path::new("docs/settings.md"));
    let of = |name: &str, settings: serde_json::Value| {
        let start = page.find(&format!("### `{name}`\n")).expect("it has a table") + 1;
        let rows: Vec<&str> = page[start..].split("\n### ").next().unwrap_or("").lines().collect();
        let rows: Vec<&&str> = rows.iter().filter(|row| row.starts_with("| `")).collect();
        let entries = settings.as_object().expect("a struct has entries");
        assert_eq!(rows.len(), entries.len(), "{name}: {rows:?}");
        for (entry, default) in entries {
            let default = match default {
                serde_json::Value::Object(_) => "`{ ".to_string(),
                serde_json::Value::Null => "|".to_string(),
                other => format!("`{}` |", other.to_string().replace(',', ", ")),
            };
            let row = format!("| `{entry}` | {default}");
            assert!(rows.iter().any(|found| found.starts_with(&row)), "{name} has no row {row}");
        }
    };
    let value = |settings: serde_json::Result<_>| settings.expect("plain values");
    of("LddmmSettings", value(serde_json::to_value(LddmmSettings::default())));
    of("SinkhornSettings", value(serde_json::to_value(SinkhornSettings::default())));
    of("Multiscale", value(serde_json::to_value(Multiscale::default())));
}

#[test]
fn readme_is_short() {
    let lines = tables::read(Path::new("README.md")).lines().count();
    assert!(lines <= README_LINES, "{lines} lines: the guide in docs/ has room");
}

#[test]
fn headings_and_links_are_found_as_readers_see_them() {
    assert_eq!(
        anchor("`transform = \"svf\"`: Deformed, with it"),
        "transform--svf-deformed-with-it"
    );
    assert_eq!(links("[a](b.md#c), `[no](x)` and [`code`](d.md)"), ["b.md#c", "d.md"]);
    assert_eq!(anchors("# A b\n```\n# no\n```\n## C"), ["a-b", "c"]);
}
