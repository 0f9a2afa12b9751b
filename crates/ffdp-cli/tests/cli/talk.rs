//! Plans, completions, the manual.

use std::process::Command;

use serde_json::Value;

use crate::support::{Folder, ffdp, write_pair};

#[test]
fn a_plan_tells_every_level_and_does_nothing() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    let [fixed, moving, out] = ["fixed.nii.gz", "moving.nii.gz", "out"].map(|n| folder.path(n));
    let run = ffdp(&["plan", "-f", &fixed, "-m", &moving]);
    run.succeeded();
    for word in ["affine", "greedy", "16 x 16 x 16", "32 x 32 x 32", "available", "disk"] {
        assert!(run.stdout.contains(word), "no {word:?} in {}", run.stdout);
    }
    let run = ffdp(&[
        "register",
        "-f",
        &fixed,
        "-m",
        &moving,
        "-o",
        &out,
        "--aligned",
        "--plan",
        "--json",
    ]);
    run.succeeded();
    let plan: Value = serde_json::from_str(&run.stdout).expect("JSON only");
    let levels = plan["levels"].as_array().expect("levels");
    let bytes: Vec<u64> = levels.iter().filter_map(|l| l["host_bytes"].as_u64()).collect();
    assert!(bytes.len() == 3 && bytes.is_sorted(), "finer levels need more: {plan}");
    let peak = bytes[2].max(plan["results_host_bytes"].as_u64().expect("a number"));
    assert_eq!(plan["host_peak_bytes"], peak);
    assert!(!folder.has("out"), "nothing was done");
}

#[test]
fn completions_know_the_flags() {
    for shell in ["bash", "zsh", "fish"] {
        let run = ffdp(&["completions", shell]);
        run.succeeded();
        for word in ["register", "checkpoint-every", "sigma-warp"] {
            assert!(run.stdout.contains(word), "{shell}: no {word}");
        }
    }
    let run = ffdp(&["completions", "bash"]);
    let checked = Command::new("bash").args(["-n", "-c", &run.stdout]).status();
    // Where there is no bash, there is nothing to check.
    assert!(checked.map_or(true, |status| status.success()), "bash cannot read it");
}

#[test]
fn the_manual_has_every_command() {
    let run = ffdp(&["man"]);
    run.succeeded();
    for word in [".TH ffdp", ".SH FFDP REGISTER", ".SH FFDP APPLY", "metrics.json"] {
        assert!(run.stdout.contains(word), "no {word:?} in {}", run.stdout);
    }
}
