//! Every command of `benchmarks/` is one that its program takes: read by the same parser, not run. Those of `ffdp` are
//! read in `crates/ffdp-cli/src/args.rs`.

#![allow(
    dead_code,
    unused_imports,
    missing_docs,
    reason = "of the programs, only what reads the command line"
)]
#![allow(clippy::duplicate_mod, reason = "they have some files in common")]

use std::path::Path;
use std::process::Command;

use clap::Parser;
use serde_json::Value;

#[path = "../crates/ffdp-register/benches/gnk.rs"]
mod gnk;
// Of `ops`, whose allocator would be a second one.
#[path = "../benches/support/mod.rs"]
mod ops;
#[path = "../crates/ffdp-shapes/benches/products.rs"]
mod products;
#[path = "../benches/scaling/main.rs"]
mod scaling;
#[path = "../crates/ffdp-shapes/benches/sinkhorn.rs"]
mod sinkhorn;
#[path = "../examples/transmorph/main.rs"]
mod transmorph;
#[path = "../benches/transmorph_step.rs"]
mod transmorph_step;

/// All commands, with the file that each is from.
fn commands() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("benchmarks");
    let files = std::fs::read_dir(folder).expect("the folder is part of the repository");
    let files = files.map(|file| file.expect("it can be listed").path());
    let of_file = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(&path).expect("a file of text");
        let found: Value = serde_json::from_str(&text).expect("JSON");
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        let commands = found["command"].as_array().cloned().unwrap_or_default();
        let text = |command: Value| command.as_str().expect("a command is text").to_string();
        commands.into_iter().map(move |command| (name.clone(), text(command)))
    };
    let json = files.filter(|path| path.extension().is_some_and(|kind| kind == "json"));
    json.flat_map(of_file).collect()
}

/// The words of a command without what is set for it: variables, and the processors of `taskset`.
fn words(command: &str) -> Vec<&str> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let is_variable = |word: &&&str| {
        word.split_once('=')
            .is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
    };
    let variables = words.iter().take_while(is_variable).count();
    let skipped = if words.get(variables) == Some(&"taskset") { 3 } else { 0 };
    words[variables + skipped..].to_vec()
}

/// Whether the program's parser takes the command; of a script of Python, whether it is there.
fn check(command: &str) -> Result<(), String> {
    let words = words(command);
    let after = |flag: &str| words.iter().position(|word| *word == flag).map(|at| words[at + 1]);
    let given = words.iter().position(|word| *word == "--").map_or(&[][..], |at| &words[at + 1..]);
    let with_name = || std::iter::once("program").chain(given.iter().copied());
    let taken = |found: Result<(), clap::Error>| found.map_err(|error| error.to_string());
    match (words.first(), words.get(1), after("--bench"), after("--example")) {
        // The other test's.
        (Some(&"ffdp"), ..) => Ok(()),
        (Some(&"python"), Some(script), ..) => {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(script);
            path.is_file().then_some(()).ok_or_else(|| format!("there is no {script}"))
        }
        (Some(&"cargo"), Some(&"test"), ..) => Ok(()),
        (Some(&"cargo"), Some(&"bench"), Some(bench), _) => match bench {
            "gnk" => taken(gnk::Arguments::try_parse_from(with_name()).map(drop)),
            "ops" => taken(ops::Args::try_parse_from(with_name()).map(drop)),
            "products" => taken(products::Arguments::try_parse_from(with_name()).map(drop)),
            "scaling" => taken(scaling::Cli::try_parse_from(with_name()).map(drop)),
            "sinkhorn" => taken(sinkhorn::Arguments::try_parse_from(with_name()).map(drop)),
            "transmorph_step" => {
                taken(transmorph_step::Args::try_parse_from(with_name()).map(drop))
            }
            _ => Err(format!("there is no bench {bench}")),
        },
        (Some(&"cargo"), Some(&"run"), _, Some("transmorph")) => {
            taken(transmorph::Arguments::try_parse_from(with_name()).map(drop))
        }
        _ => Err("this is no command of cargo, ffdp or python".to_string()),
    }
}

#[test]
fn every_command_of_the_measurements_is_taken_by_its_program() {
    let commands = commands();
    assert!(commands.len() > 50, "{}", commands.len());
    let check = |(file, command): &(String, String)| {
        check(command).err().map(|reason| format!("{file}: {command}\n{reason}"))
    };
    let refused: Vec<String> = commands.iter().filter_map(check).collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn every_command_of_the_papers_is_taken_by_its_program() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/paper");
    for device in ["cpu", "cuda"] {
        let mut run = Command::new("python3");
        run.args([script, "all", "--print", "--device", device]);
        let output = match run.output() {
            Ok(output) => output,
            Err(reason) => return println!("skipped: there is no python3 ({reason})"),
        };
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let commands: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert!(commands.len() >= 8, "{text}");
        let refused = commands.iter().filter_map(|command| check(command).err());
        let refused: Vec<String> = refused.collect();
        assert!(refused.is_empty(), "{}", refused.join("\n"));
    }
}

#[test]
fn a_command_that_its_program_refuses_is_noticed() {
    let bench = "cargo bench --bench scaling --features cuda -- --device cuda";
    assert!(check(&format!("{bench} register --size 64x64x64 --shards 4")).is_ok());
    for command in [
        &format!("{bench} register --shards 4"),
        &format!("{bench} --size 64x64x64 register"),
        "cargo bench --bench none",
        "python scripts/none.py",
        "the same with --transform syn",
        "taskset -c 0,1 cargo bench --bench ops -- --none",
    ] {
        assert!(check(command).is_err(), "{command}");
    }
}
