//! Words that a reader of the field does not know at once, or takes for something else, do not come back.

use std::fs;
use std::path::{Path, PathBuf};

/// Words and phrases, in comments, messages, names and the guide; and what to write instead.
const WORDS: &[(&str, &str)] = &[
    ("beside", "next to, besides, concurrently or in parallel"),
    ("told", "given, reported or broadcast"),
    ("tell", "report, say or distinguish"),
    ("tells", "reports, says or shows"),
    ("slip", "mistake or typing error"),
    ("slips of the pen", "typing errors"),
    ("let go of", "released"),
    ("lets go of", "releases"),
    ("of no account", "ignored"),
    ("for ever", "without end; of waiting: may deadlock"),
    ("none to pay", "not applicable"),
    ("journey", "transfer"),
    ("journeys", "transfers"),
    ("paint", "synthesise"),
    ("painted", "synthetic"),
    ("painting", "synthesis"),
    ("whose like", "repeated"),
    ("became more alike", "aligned"),
    ("become more alike", "aligned"),
    ("fixed and moving in turn", "checkerboard of fixed and moving"),
    ("beforehand", "in advance, or first"),
    ("shower", "sampler"),
    ("rooms", "modules or placements"),
];

/// Names in code, and the names by their role. One that ends with a parenthesis is that of a function.
const NAMES: &[(&str, &str)] = &[
    ("Room", "Placement"),
    ("Taken", "LevelMemory"),
    ("Given", "StageInputs"),
    ("Finding", "MethodResult"),
    ("Ended", "StagesResult"),
    ("Staged", "StageResult"),
    ("Worth", "Outcome"),
    ("Known", "GlobalSums"),
    ("THREE", "V3_TYPES"),
    ("two_type", "parse_v2_type"),
    ("is_three", "is_v3"),
    ("first_does", "run_on_root"),
    ("prove", "warm_up"),
    ("see(", "evaluate"),
    ("still(", "zero_displacement"),
];

/// Names of types that mean one thing each: at most one type of all crates has them.
const TYPES: &[&str] = &["Similarity", "Method", "Outcome", "Seen", "Search", "Run", "Place"];

/// The one file that may have all of them: the lists above.
const THIS: &str = "tests/words.rs";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files below a folder with this extension, which may be empty; none that a build has made.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let paths = entries.map(|entry| entry.expect("readable").path());
    paths
        .filter(|path| !path.ends_with("target"))
        .flat_map(|path| if path.is_dir() { files(&path, extension) } else { vec![path] })
        .filter(|path| path.extension().unwrap_or_default() == extension)
        .collect()
}

/// Lower case, with one space around each word: also around those that `snake_case` and `CamelCase` join.
fn words(text: &str) -> String {
    let (mut words, mut before) = (String::from(" "), ' ');
    for c in text.chars() {
        if !c.is_alphanumeric() || (before.is_lowercase() && c.is_uppercase()) {
            words.push(' ');
        }
        if c.is_alphanumeric() {
            words.extend(c.to_lowercase());
        }
        before = c;
    }
    words.push(' ');
    words.split_whitespace().fold(String::from(" "), |words, word| words + word + " ")
}

/// The lines of a source text without comments and without what stands in quotes.
fn code(text: &str) -> String {
    let (mut code, mut rest) = (String::new(), text);
    while let Some(c) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(raw) = rest.strip_prefix("r#\"") {
            raw.find("\"#").map_or(rest.len(), |end| end + 5)
        } else if rest.starts_with("'\"'") {
            3
        } else if rest.starts_with("'\\") {
            rest[3..].find('\'').map_or(rest.len(), |end| end + 4)
        } else if c == '"' {
            quoted(rest)
        } else {
            code.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        // Lines keep their numbers.
        code.extend(rest[..skipped].chars().filter(|c| *c == '\n'));
        rest = &rest[skipped..];
    }
    code
}

/// The length of the string literal that a text begins with.
fn quoted(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !escaped => return at + 1,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

/// Whether a line of code has a name as a whole.
fn has_name(line: &str, name: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(name).any(|(start, _)| {
        !line[..start].ends_with(part)
            && (name.ends_with('(') || !line[start + name.len()..].starts_with(part))
    })
}

/// What is wrong in a text, with the numbers of its lines. A phrase may go on in the next line.
fn hits(text: &str, is_rust: bool) -> Vec<(usize, &'static str, &'static str)> {
    let lines: Vec<String> = text.lines().map(words).collect();
    let mut hits = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let next = lines.get(i + 1).map_or("", |next| next.trim_start());
        let both = format!("{line}{next}");
        for (word, instead) in WORDS {
            let padded = format!(" {word} ");
            if both.match_indices(&padded).any(|(at, _)| at + 1 < line.len()) {
                hits.push((i + 1, *word, *instead));
            }
        }
    }
    if is_rust {
        for (i, line) in code(text).lines().enumerate() {
            let found = NAMES.iter().filter(|(name, _)| has_name(line, name));
            hits.extend(found.map(|(name, instead)| (i + 1, *name, *instead)));
        }
    }
    hits
}

/// All sources of the workspace.
fn sources() -> Vec<PathBuf> {
    let folders = ["src", "crates", "examples", "benches", "benchmarks", "tests"];
    folders.iter().flat_map(|folder| files(&root().join(folder), "rs")).collect()
}

#[test]
fn names_of_types_mean_one_thing() {
    for name in TYPES {
        let kinds =
            ["struct", "enum", "trait", "type", "union"].map(|kind| format!("{kind} {name}"));
        let defines = |path: &PathBuf| {
            let code = code(&fs::read_to_string(path).expect("sources are UTF-8"));
            code.lines().any(|line| kinds.iter().any(|definition| has_name(line, definition)))
        };
        let found: Vec<PathBuf> = sources().into_iter().filter(defines).collect();
        assert!(found.len() <= 1, "several types are called {name}: {found:?}");
    }
}

#[test]
fn words_of_the_field_are_used() {
    let mut all = sources();
    all.extend(files(&root().join("docs"), "md"));
    all.extend(["scripts", ".ci"].iter().flat_map(|folder| files(&root().join(folder), "")));
    all.extend(files(&root().join("scripts"), "py"));
    all.extend(files(&root().join("crates"), "toml"));
    all.extend(["README.md", "Cargo.toml", "justfile"].map(|name| root().join(name)));
    // Guards the walk itself: an empty list would pass.
    assert!(all.len() > 500, "only {} files were found", all.len());
    let mut found = Vec::new();
    for path in all {
        let name = path.strip_prefix(root()).expect("found below it").display().to_string();
        if path == root().join(THIS) {
            continue;
        }
        let text = fs::read_to_string(&path).expect("sources and pages are UTF-8");
        let is_rust = path.extension().is_some_and(|extension| extension == "rs");
        let hits = hits(&text, is_rust).into_iter();
        found.extend(
            hits.map(|(line, word, instead)| format!("{name}:{line}: \"{word}\": write {instead}")),
        );
    }
    found.sort();
    assert!(found.is_empty(), "{} words to replace:\n{}", found.len(), found.join("\n"));
}

#[test]
fn words_are_found_in_prose_names_and_over_lines() {
    let found = |text: &str| hits(text, true).iter().map(|hit| (hit.0, hit.1)).collect::<Vec<_>>();
    assert_eq!(found("let x = 1;\n/// The result, Beside it."), [(2, "beside")]);
    assert_eq!(found("fn a_log_tells_all() {}"), [(1, "tells")]);
    assert_eq!(found("// It is let\n// go of."), [(1, "let go of")]);
    assert_eq!(found("struct Room;\nfn of(room: &Room)"), [(1, "Room"), (2, "Room")]);
    assert_eq!(found("a.see(b); c.still();"), [(1, "see("), (1, "still(")]);
    // Besides, a name as a word of a sentence or a message, and a part of a longer name.
    assert_eq!(found("// Room for six; besides.\nlet a = \"Given \\\" // it\"; Roomy"), []);
    assert_eq!(found("let c = '\"'; struct Taken; let still = \"Known\";"), [(1, "Taken")]);
}
