//! Plans, completions, the manual; closed pipes and odd names.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::register;
use crate::support::{Folder, ffdp, write_pair};

#[test]
fn a_plan_lists_every_level_and_does_nothing() {
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

#[test]
fn a_closed_stderr_does_not_end_a_registration() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    let [fixed, moving, out] = ["fixed.nii.gz", "moving.nii.gz", "out"].map(|n| folder.path(n));
    let flags = ["--device", "cpu", "--aligned", "--shrink", "2", "--iterations", "4", "-v"];
    let started = |moving: &str, out: &str| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ffdp"))
            .args(["register", "-f", &fixed, "-m", moving, "-o", out])
            .args(flags)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        // As `| head -1` does once it has its line.
        drop(child.stderr.take());
        child.wait().expect("our child").code()
    };
    assert_eq!(started(&moving, &out), Some(0));
    assert!(folder.has("out/warped.nii.gz") && folder.has("out/metrics.json"));
    assert_eq!(started("/nowhere.nii", &out), Some(1), "a failure keeps its exit code");
}

/// Linux lets a name be any bytes.
#[cfg(target_os = "linux")]
#[test]
fn file_names_that_are_no_text_are_names_like_others() {
    use std::ffi::{OsStr, OsString};
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;

    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    let named = |name: &[u8]| PathBuf::from(folder.path("")).join(OsStr::from_bytes(name));
    let odd: [PathBuf; 2] = [named(b"fixed\xff\xfe.nii.gz"), named(b"moving\xe9.nii.gz")];
    let labels = [named(b"labels\xff.nii.gz"), named(b"other\xff.nii.gz")];
    for (from, to) in [
        ("fixed.nii.gz", &odd[0]),
        ("moving.nii.gz", &odd[1]),
        ("fixed_labels.nii.gz", &labels[0]),
        ("moving_labels.nii.gz", &labels[1]),
    ] {
        if let Err(reason) = fs::copy(folder.path(from), to) {
            println!("skipped: this file system has no such names ({reason})");
            return;
        }
    }
    let out = named(b"out\xff");
    let run = |arguments: &[&OsStr]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ffdp"));
        let output = command.args(arguments).env("FFDP_DEVICE", "cpu").output();
        let output = output.expect("the binary starts");
        let talk = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {talk}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let s = OsStr::new;
    let register = [s("register"), s("-f"), odd[0].as_os_str(), s("-m"), odd[1].as_os_str()];
    let more = [s("--fixed-labels"), labels[0].as_os_str(), s("--moving-labels")];
    let more = [&more[..], &[labels[1].as_os_str(), s("-o"), out.as_os_str(), s("--device")]];
    let few = ["cpu", "--aligned", "--shrink", "2", "--iterations", "3", "--json"].map(s);
    let metrics = run(&[&register[..], &more.concat(), &few].concat());
    let metrics: Value = serde_json::from_str(&metrics).expect("JSON");
    let path = metrics["fixed"]["path"].as_str().expect("text");
    assert!(path.ends_with("fixed\u{fffd}\u{fffd}.nii.gz"), "{path}");
    run(&[&register[..], &[s("-o"), out.as_os_str(), s("--overwrite"), s("--slabs")], &few[1..]]
        .concat());

    let warp = out.join("warp.nii.gz");
    let measure = [s("measure"), s("-f"), odd[0].as_os_str(), s("-m"), odd[1].as_os_str()];
    run(&[&measure[..], &[s("--warp"), warp.as_os_str(), s("--json")]].concat());
    let moved = named(b"moved\xff.nii");
    for (start, end) in [("", ""), ("[", ",1]")] {
        let mut transform = OsString::from(start);
        transform.push(&warp);
        transform.push(end);
        let apply = [s("apply"), s("-i"), odd[1].as_os_str(), s("-t"), &transform, s("-o")];
        let more = [moved.as_os_str(), s("-r"), odd[0].as_os_str(), s("--device"), s("cpu")];
        run(&[&apply[..], &more].concat());
    }
    run(&[s("info"), moved.as_os_str()]);
    run(&[s("info"), moved.as_os_str(), s("--json")]);
    let set = named(b"set\xff");
    run(&[s("synth"), s("-o"), set.as_os_str(), s("--spacing"), s("16"), s("--json")]);
}

#[test]
fn quiet_prints_nothing_unless_data_was_asked_for() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    let few = ["--shrink", "2", "--iterations", "3"];
    let run = |out: &str, more: &[&str]| {
        let run = register(&folder, "fixed.nii.gz", "moving.nii.gz", out, &[&few, more].concat());
        run.succeeded();
        run
    };
    for (out, more) in [("whole", &[][..]), ("slabs", &["--slabs"])] {
        let quiet = run(out, &[more, &["-q"]].concat());
        assert_eq!((&*quiet.stdout, &*quiet.stderr), ("", ""), "{out}");
        let data = run(out, &[more, &["-q", "--json"]].concat());
        assert!(data.stderr.is_empty() && data.stdout.starts_with('{'), "{out}");
        let loud = run(out, more);
        assert!(loud.stdout.contains("folds") && !loud.stderr.is_empty(), "{out}");
    }
}

#[test]
fn help_says_what_hd95_is_and_how_many_levels_there_are() {
    let help = ffdp(&["measure", "--help"]).stdout;
    assert!(help.contains("surface elements"), "{help}");
    let help = ffdp(&["register", "--help"]).stdout;
    assert!(help.contains("200,200,100,50"), "{help}");
}
