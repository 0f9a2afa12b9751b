//! The modules of a crate import downwards only, as the map in its `lib.rs` says. Between crates Cargo sees to it.
//! Functions are short, and take no tuples.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What holds for every function.
#[path = "architecture/functions.rs"]
mod functions;

/// What the modules of `ffdp-train` may import, besides themselves.
const TRAINING: &[(&str, &[&str])] = &[
    ("settings", &[]),
    ("folder", &[]),
    ("user_flags", &[]),
    ("metrics", &[]),
    ("stderr", &[]),
    ("progress", &["stderr"]),
    ("schedule", &[]),
    ("optimizer", &[]),
    ("arguments", &["settings", "user_flags"]),
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
    ("report", &["evaluate", "folder", "pictures", "run", "settings", "train"]),
    ("predict", &["checkpoint", "data", "folder", "input", "model", "objective", "settings"]),
    ("import", &["checkpoint", "folder", "input", "model", "objective", "settings"]),
];

/// What the modules of `ffdp-image` may import, besides themselves.
const IMAGES: &[(&str, &[&str])] = &[
    ("error", &[]),
    ("image", &["error"]),
    // Files only: no kernel runs here.
    ("io", &["image", "error"]),
    ("metrics", &["image", "error"]),
    ("synth", &["image", "error"]),
];

/// What the modules of `ffdp-burn` may import, besides themselves, and of `ffdp-image`. (A transform is read from files,
/// whose matrices and fields it turns into steps.)
const ARROWS: &[(&str, &[&str])] = &[
    ("ops", &["error"]),
    ("losses", &["ops", "image", "error"]),
    ("transform", &["io", "ops", "image", "error"]),
];

/// What the modules of `ffdp-nets` may import, besides themselves, and of `ffdp-image`.
const NETWORKS: &[(&str, &[&str])] = &[
    ("ops", &[]),
    ("layers", &["ops"]),
    ("padding", &["layers"]),
    ("spline_head", &["layers", "ops"]),
    ("activations", &["ops", "parallel"]),
    ("sharded", &["activations", "layers", "parallel", "error"]),
    (
        "transmorph",
        &["spline_head", "sharded", "activations", "padding", "layers", "ops", "parallel", "error"],
    ),
    (
        "voxelmorph",
        &["spline_head", "sharded", "activations", "padding", "layers", "ops", "parallel", "error"],
    ),
    (
        "affine",
        &["voxelmorph", "sharded", "activations", "padding", "layers", "ops", "parallel", "error"],
    ),
    ("network", &["affine", "transmorph", "voxelmorph", "sharded", "ops", "parallel", "error"]),
];

/// What the modules of `ffdp-kit` may import, besides themselves.
const KIT: &[(&str, &[&str])] = &[
    // A macro of its own stands in the crate's root.
    ("vjp", &["refuse"]),
    ("half", &[]),
    ("dense", &[]),
    ("exp", &[]),
    ("place", &[]),
    ("kernels", &[]),
    ("rehearsal", &["kernels"]),
    // So does this one's.
    ("real", &["half", "__by_dtype"]),
    ("window", &["real"]),
    ("adapters", &[]),
    ("cubes", &[]),
    ("launch", &["adapters", "cubes"]),
    ("march", &["cubes", "launch"]),
    ("tensor_cores", &[]),
];

/// What the modules of `ffdp-shapes` may import, besides themselves, and of `ffdp-image`.
const SHAPES: &[(&str, &[&str])] = &[
    ("formula", &[]),
    ("ranges", &[]),
    ("reduce", &["formula", "ranges"]),
    ("kernel", &["formula"]),
    ("product", &["kernel", "formula", "reduce"]),
    ("normalized", &["kernel", "product"]),
    ("shape", &["image", "error"]),
    ("files", &["shape", "io", "error"]),
    ("surface", &["shape", "image", "error"]),
    ("tensors", &["shape", "error"]),
    ("sinkhorn", &["tensors", "formula", "ranges", "reduce", "error"]),
    ("attachment", &["sinkhorn", "shape", "tensors", "kernel", "product", "error"]),
    (
        "lddmm",
        &["attachment", "shape", "tensors", "normalized", "kernel", "product", "image", "error"],
    ),
];

/// Modules for tests and benches: free to compare everything with everything.
const FREE: [&str; 2] = ["testing", "baseline"];

/// The names at the root of the crate that are a module's.
fn module_of(name: &str) -> &str {
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

/// The first segments of all paths in a source text that start with one of `roots`, groups resolved;
/// comments are left out.
fn imports(source: &str, roots: &[&str]) -> BTreeSet<String> {
    let lines = source.lines().map(|line| line.split("//").next().unwrap_or(""));
    let code = lines.collect::<Vec<_>>().join("\n");
    let mut found = BTreeSet::new();
    for (start, marker) in roots.iter().flat_map(|root| code.match_indices(root)) {
        // `other_crate::x` is none of ours, nor is `super::super::x` where `super::x` was asked for.
        if code[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') {
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

/// A crate, whether the modules of `ffdp-image` stand on its map too, the map, and modules that must have been seen.
type Map = (&'static str, bool, Arrows, &'static [&'static str]);
type Arrows = &'static [(&'static str, &'static [&'static str])];

const MAPS: [Map; 6] = [
    ("ffdp-kit", false, KIT, &["vjp", "real", "launch"]),
    ("ffdp-image", false, IMAGES, &["error", "image", "io", "metrics", "synth"]),
    ("ffdp-burn", true, ARROWS, &["ops", "losses", "transform"]),
    ("ffdp-nets", true, NETWORKS, &["ops", "layers", "activations", "transmorph", "network"]),
    ("ffdp-shapes", true, SHAPES, &["formula", "reduce", "shape", "files", "lddmm"]),
    ("ffdp-train", false, TRAINING, &["settings", "data", "train", "predict"]),
];

#[test]
fn modules_import_downwards_only() {
    MAPS.iter().for_each(check);
}

/// `super::` as often as it leads from a file of a crate to the crate's root.
fn way_up(relative: &Path) -> String {
    let parts = relative.components().count();
    let depth = if relative.ends_with("mod.rs") { parts - 1 } else { parts };
    "super::".repeat(depth)
}

fn check((name, images, arrows, some): &Map) {
    let source = format!("crates/{name}/src");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let mut violations = Vec::new();
    let mut seen = BTreeSet::new();
    let on_map = |import: &String| arrows.iter().any(|(module, _)| module == import);
    for path in rust_files(&source) {
        let relative = path.strip_prefix(&source).expect("found below it");
        let module = relative.components().next().expect("a file").as_os_str().to_string_lossy();
        let module = module.trim_end_matches(".rs");
        if module == "lib" || FREE.contains(&module) || is_test(relative) {
            continue;
        }
        let Some((_, allowed)) = arrows.iter().find(|(name, _)| *name == module) else {
            violations
                .push(format!("{}: the module {module} is not on the map", relative.display()));
            continue;
        };
        seen.insert(module.to_string());
        let text = fs::read_to_string(&path).expect("source files are UTF-8");
        let up = way_up(relative);
        // In an inline module the same way leads elsewhere: there it names no module.
        let by_super = imports(&text, &[&up]).into_iter().filter(|import| on_map(import));
        let below = images.then_some("ffdp_image::");
        let roots: Vec<&str> = std::iter::once("crate::").chain(below).collect();
        for import in imports(&text, &roots).into_iter().chain(by_super) {
            let target = module_of(&import);
            // Inline test modules take their tools from `testing`.
            if target != module && target != "testing" && !allowed.contains(&target) {
                violations.push(format!("{}: {module} imports {target}", relative.display()));
            }
        }
    }
    assert!(violations.is_empty(), "arrows that do not point down:\n{}", violations.join("\n"));
    // Guards the walk itself: an empty folder would pass.
    for module in *some {
        assert!(seen.contains(*module), "no file of {module} was found in {}", source.display());
    }
}

/// Crates whose roots have maps of their modules.
const MAPPED: &str = "image burn optim parallel register groups nets shapes train cli";

/// The words of the map in a crate's root, and the names that its lines begin with, up to two spaces.
fn map_of(root: &str) -> [BTreeSet<String>; 2] {
    let [mut words, mut named] = [BTreeSet::new(), BTreeSet::new()];
    let mut on_map = false;
    for line in root.lines().filter_map(|line| line.strip_prefix("//!")).map(str::trim) {
        if line.starts_with("```") {
            on_map = line == "```text";
        } else if on_map {
            let parts = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            words.extend(parts.map(str::to_string));
            let left = line.split("  ").next().expect("a line has a beginning");
            let names = left.split([',', '>']).map(|name| name.trim().trim_end_matches('/'));
            named.extend(names.filter(|name| !name.is_empty()).map(str::to_string));
        }
    }
    [words, named]
}

#[test]
fn maps_of_crates_name_their_modules() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    for name in MAPPED.split(' ') {
        let root = crates.join(format!("ffdp-{name}/src/lib.rs"));
        let root = fs::read_to_string(root).expect("a crate has a root");
        let items = root.lines().map(|line| line.trim_start_matches("pub "));
        let modules = items.filter_map(|item| item.strip_prefix("mod ")?.strip_suffix(';'));
        let modules: BTreeSet<&str> = modules.filter(|module| *module != "tests").collect();
        let [words, named] = map_of(&root);
        let missing: Vec<_> = modules.iter().filter(|module| !words.contains(**module)).collect();
        assert!(missing.is_empty(), "not on the map of ffdp-{name}: {missing:?}");
        let is_there = |at: &&String| modules.contains(at.as_str()) || crates.join(at).is_dir();
        let gone: Vec<_> = named.iter().filter(|at| !is_there(at)).collect();
        assert!(gone.is_empty(), "on the map of ffdp-{name}, and no module: {gone:?}");
    }
}

/// Only the facade passes on what lives in another crate: an import names the crate where a thing is.
#[test]
fn crates_pass_on_no_names_of_other_crates() {
    /// What a program that brings a stage along needs next to its settings.
    const ALLOWED: [&str; 1] = ["ffdp_burn::losses::similarities"];
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    let mut passed_on = Vec::new();
    for path in rust_files(&crates) {
        let text = fs::read_to_string(&path).expect("source files are UTF-8");
        let lines = text.lines().filter(|line| line.starts_with("pub"));
        let uses = lines.filter_map(|line| line.split_once(" use ")).map(|(_, path)| path);
        let others = uses.filter(|path| path.starts_with("ffdp_"));
        let others = others.filter(|path| !ALLOWED.iter().any(|allowed| path.starts_with(allowed)));
        passed_on.extend(others.map(|names| format!("{}: {names}", path.display())));
    }
    assert!(passed_on.is_empty(), "names of other crates that are passed on:\n{passed_on:#?}");
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
    let found = imports(source, &["crate::"]);
    assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    let source = "use super::super::ops::mse; use super::own; use below::{losses, io::nifti};";
    let found = imports(source, &[&way_up(Path::new("module/file.rs")), "below::"]);
    assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), ["io", "losses", "ops"]);
}

/// All paths in a source text that start with `crate::`, `self::` or `super::`, groups resolved: how they start, and
/// the names that follow.
fn paths(source: &str) -> Vec<(String, Vec<String>)> {
    let lines = source.lines().map(|line| line.split("//").next().unwrap_or(""));
    let code = lines.collect::<Vec<_>>().join("\n");
    let code = code.split("#[cfg(test)]\nmod tests").next().unwrap_or("");
    let mut found = Vec::new();
    for root in ["crate::", "self::", "super::"] {
        for (start, marker) in code.match_indices(root) {
            if code[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let (mut root, mut rest) = (marker.to_string(), &code[start + marker.len()..]);
            while let Some(up) = rest.strip_prefix("super::") {
                (root, rest) = (root + "super::", up);
            }
            tree(rest, &mut Vec::new(), &mut |names| found.push((root.clone(), names.to_vec())));
        }
    }
    found
}

/// Every leaf of a use tree.
fn tree(path: &str, before: &mut Vec<String>, leaf: &mut dyn FnMut(&[String])) {
    let path = path.trim_start();
    if let Some(group) = path.strip_prefix('{') {
        entries(group).iter().for_each(|entry| tree(entry, before, leaf));
        return;
    }
    let Some(name) = segment(path) else { return leaf(before) };
    let rest = &path[name.len()..];
    before.push(name);
    match rest.strip_prefix("::") {
        Some(rest) => tree(rest, before, leaf),
        None => leaf(before),
    }
    before.pop();
}

/// The modules of a crate and, for every folder, which of its children import which.
fn imports_of_children(source: &Path) -> Vec<(Vec<String>, String, String)> {
    let module = |path: &Path| -> Vec<String> {
        let relative = path.strip_prefix(source).expect("found below it").with_extension("");
        let names = relative.components().map(|part| part.as_os_str().to_string_lossy().into());
        let mut names: Vec<String> = names.collect();
        if ["mod", "lib", "main"].contains(&names[names.len() - 1].as_str()) {
            names.pop();
        }
        names
    };
    let files: Vec<PathBuf> = rust_files(source).into_iter().filter(|f| !is_test(f)).collect();
    let modules: BTreeSet<Vec<String>> = files
        .iter()
        .map(|file| module(file))
        .flat_map(|module| (1..=module.len()).map(move |n| module[..n].to_vec()))
        .collect();
    let mut edges = Vec::new();
    for file in &files {
        let me = module(file);
        for (root, names) in paths(&fs::read_to_string(file).expect("readable")) {
            let up = root.matches("super::").count();
            let base = match root.as_str() {
                "crate::" => &[][..],
                "self::" => &me[..],
                _ => &me[..me.len().saturating_sub(up)],
            };
            let mut target = [base, &names[..]].concat();
            while !target.is_empty() && !modules.contains(&target) {
                target.pop();
            }
            let common = me.iter().zip(&target).take_while(|(a, b)| a == b).count();
            if common < me.len() && common < target.len() {
                edges.push((me[..common].to_vec(), me[common].clone(), target[common].clone()));
            }
        }
    }
    edges
}

/// The files of a folder can be read one after the other: none imports one that, by whatever way, imports it.
#[test]
fn files_of_a_folder_do_not_lean_on_each_other() {
    let mut violations = Vec::new();
    let crates = [
        "ffdp-optim",
        "ffdp-kit",
        "ffdp-image",
        "ffdp-burn",
        "ffdp-parallel",
        "ffdp-mpi",
        "ffdp-register",
        "ffdp-groups",
        "ffdp-nets",
        "ffdp-shapes",
        "ffdp-train",
        "ffdp-cli",
        "ffdp-python",
    ];
    for name in crates {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("crates/{name}/src"));
        let edges = imports_of_children(&source);
        assert!(!edges.is_empty() || name == "ffdp-kit", "{name}: no import was found");
        let folders: BTreeSet<&Vec<String>> = edges.iter().map(|(folder, ..)| folder).collect();
        for folder in folders {
            let here = |from: &str| -> BTreeSet<String> {
                let of = edges.iter().filter(|(f, a, _)| f == folder && a == from);
                of.map(|(_, _, b)| b.clone()).collect()
            };
            let children = edges.iter().filter(|(f, ..)| f == folder).map(|(_, a, _)| a);
            let leans = children.collect::<BTreeSet<_>>().into_iter().find(|child| {
                let mut reached = here(child);
                loop {
                    let further: BTreeSet<String> =
                        reached.iter().flat_map(|to| here(to)).collect();
                    let before = reached.len();
                    reached.extend(further);
                    if reached.len() == before {
                        break reached.contains(*child);
                    }
                }
            });
            let place = folder.join("/");
            violations.extend(leans.map(|child| format!("{name} {place}: {child}")));
        }
    }
    assert!(violations.is_empty(), "files that import each other:\n{}", violations.join("\n"));
}
