//! The names under which `scripts/gpu-bundle` packs executables for a machine without Rust.

use std::io::Write;
use std::process::{Command, Stdio};

/// A message of Cargo about an executable.
fn built(package: &str, name: &str, kind: &str, is_test: bool, executable: &str) -> String {
    format!(
        r#"{{"reason":"compiler-artifact","package_id":"path+file:///w/{package}#0.1.0","target":{{"name":"{name}","kind":["{kind}"]}},"profile":{{"test":{is_test}}},"executable":"{executable}"}}"#
    )
}

/// `test-ffdp` was both the library's and the program's, and `ops` was called `test-ops`, so that it was not found.
#[test]
fn the_artifacts_of_gpu_bundle_have_names_of_their_own_and_benches_theirs() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/artifact_names.py");
    let started =
        Command::new("python3").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(reason) => return println!("skipped: there is no python3 ({reason})"),
    };
    let messages = [
        r#"{"reason":"build-finished","success":true}"#.to_string(),
        built("w", "ffdp", "lib", true, "/t/ffdp-1"),
        built("crates/ffdp-cli", "ffdp", "bin", true, "/t/ffdp-2"),
        built("crates/ffdp-cli", "ffdp", "bin", false, "/t/ffdp"),
        built("w", "ops", "bench", true, "/t/ops-3"),
        built("w", "transmorph_step", "bench", true, "/t/transmorph_step-4"),
        built("w", "offload", "test", true, "/t/offload-5"),
        built("w", "transmorph", "example", false, "/t/transmorph"),
    ];
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(messages.join("\n").as_bytes()).expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let names: Vec<&str> = text.lines().filter_map(|line| line.split('\t').next()).collect();
    let expected = [
        "test-ffdp",
        "test-ffdp-cli",
        "ffdp",
        "ops",
        "transmorph_step",
        "test-offload",
        "transmorph",
    ];
    assert_eq!(names, expected);
}
