//! The rooms of `ffdp-burn` and of `ffdp-train` import downwards only, as the maps in their `lib.rs` say.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What the rooms of `ffdp-train` may import, besides themselves.
const TRAINING: &[(&str, &[&str])] = &[
    ("settings", &[]),
    ("folder", &[]),
    ("metrics", &[]),
    ("stderr", &[]),
    ("progress", &["stderr"]),
    ("schedule", &[]),
    ("optimizer", &[]),
    ("arguments", &["settings"]),
    ("journal", &["folder", "stderr"]),
    ("data", &["settings"]),
    ("checkpoint", &["data", "folder", "journal"]),
    ("input", &["data", "folder"]),
    ("run", &["arguments", "checkpoint", "folder", "settings"]),
    ("pictures", &["data", "folder", "journal", "settings"]),
    ("objective", &["data", "settings"]),
    ("model", &["data", "metrics", "objective", "pictures", "stderr"]),
    (
        "train",
        &[
            "checkpoint",
            "data",
            "input",
            "journal",
            "metrics",
            "model",
            "objective",
            "optimizer",
            "progress",
            "run",
            "schedule",
            "settings",
            "stderr",
            "team",
        ],
    ),
    ("team", &["data", "metrics", "model", "objective", "settings"]),
    ("evaluate", &["data", "folder", "pictures", "run", "settings", "team"]),
    ("report", &["arguments", "evaluate", "folder", "run", "train"]),
    (
        "predict",
        &["arguments", "checkpoint", "data", "folder", "input", "model", "objective", "settings"],
    ),
    ("import", &["arguments", "checkpoint", "folder", "input", "model", "objective", "settings"]),
];

/// What the rooms of `ffdp-burn` may import, besides themselves.
const ARROWS: &[(&str, &[&str])] = &[
    ("error", &[]),
    ("image", &["error"]),
    ("ops", &["error"]),
    ("losses", &["ops", "image", "error"]),
    // A transform is read from files, whose matrices and fields it turns into steps.
    ("transform", &["io", "ops", "image", "error"]),
    // Drives losses and resampling shard by shard; neither of them knows of shards.
    ("parallel", &["losses", "transform", "ops", "image", "error"]),
    ("metrics", &["ops", "image", "error"]),
    ("synth", &["ops", "image", "error"]),
    // Files only: no kernel runs here.
    ("io", &["image", "error"]),
    ("nets", &["parallel", "transform", "ops", "image", "error"]),
    (
        "register",
        &["parallel", "losses", "transform", "metrics", "io", "synth", "ops", "image", "error"],
    ),
];

/// Rooms for tests and benches: free to compare everything with everything.
const FREE: [&str; 2] = ["testing", "baseline"];

/// The names at the root of the crate that are a room's.
fn room_of(name: &str) -> &str {
    match name {
        "Error" | "Result" => "error",
        other => other,
    }
}

/// Tests may look sideways, for an oracle.
fn is_test(relative: &Path) -> bool {
    relative.components().any(|part| {
        let name = part.as_os_str();
        name == "tests" || name == "tests.rs"
    })
}

/// The first segments of all paths that start with `crate::` in a source text, groups resolved;
/// comments are left out.
fn imports(source: &str) -> BTreeSet<String> {
    let lines = source.lines().map(|line| line.split("//").next().unwrap_or(""));
    let code = lines.collect::<Vec<_>>().join("\n");
    let mut found = BTreeSet::new();
    for (start, marker) in code.match_indices("crate::") {
        // `other_crate::x` is none of ours.
        if code[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &code[start + marker.len()..];
        match rest.strip_prefix('{') {
            None => found.extend(segment(rest)),
            Some(group) => found.extend(entries(group).iter().filter_map(|entry| segment(entry))),
        }
    }
    found
}

/// The first name of a path.
fn segment(path: &str) -> Option<String> {
    let name: String =
        path.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (!name.is_empty()).then_some(name)
}

/// The entries of a use group, from after its opening brace.
fn entries(group: &str) -> Vec<String> {
    let (mut depth, mut entries) = (0, vec![String::new()]);
    for c in group.chars() {
        match c {
            '}' if depth == 0 => break,
            ',' if depth == 0 => {
                entries.push(String::new());
                continue;
            }
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        entries.last_mut().expect("starts with one").push(c);
    }
    entries
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let paths = entries.map(|entry| entry.expect("readable").path());
    paths
        .flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

#[test]
fn rooms_import_downwards_only() {
    let rooms = ["error", "image", "ops", "io", "transform", "parallel", "register"];
    check("crates/ffdp-burn/src", ARROWS, &rooms);
    check("crates/ffdp-train/src", TRAINING, &["settings", "data", "train", "predict"]);
}

/// `some` are rooms that must have been seen.
fn check(source: &str, arrows: &[(&str, &[&str])], some: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let mut violations = Vec::new();
    let mut seen = BTreeSet::new();
    for path in rust_files(&source) {
        let relative = path.strip_prefix(&source).expect("found below it");
        let room = relative.components().next().expect("a file").as_os_str().to_string_lossy();
        let room = room.trim_end_matches(".rs");
        if room == "lib" || FREE.contains(&room) || is_test(relative) {
            continue;
        }
        let Some((_, allowed)) = arrows.iter().find(|(name, _)| *name == room) else {
            violations.push(format!("{}: the room {room} is not on the map", relative.display()));
            continue;
        };
        seen.insert(room.to_string());
        let text = fs::read_to_string(&path).expect("source files are UTF-8");
        for import in imports(&text) {
            let target = room_of(&import);
            // Inline test modules take their tools from `testing`.
            if target != room && target != "testing" && !allowed.contains(&target) {
                violations.push(format!("{}: {room} imports {target}", relative.display()));
            }
        }
    }
    assert!(violations.is_empty(), "arrows that do not point down:\n{}", violations.join("\n"));
    // Guards the walk itself: an empty folder would pass.
    for room in some {
        assert!(seen.contains(*room), "no file of {room} was found in {}", source.display());
    }
}

#[test]
fn imports_are_read_from_every_form_of_path() {
    let source = "
        use crate::image::{Geometry, Volume};
        use crate::{Error, ops::{lncc, mse::mse}, synth};
        pub(crate) use crate::transform::affine_tensor; // crate::comment
        /// See [`crate::documented`].
        fn f() -> crate::metrics::Dice { my_crate::third() }
    ";
    let expected = ["Error", "image", "metrics", "ops", "synth", "transform"];
    assert_eq!(imports(source).iter().map(String::as_str).collect::<Vec<_>>(), expected);
}
