//! A run that was killed goes on where it was, to the same bits.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ffdp_image::io::images::{read_displacement, read_volume};

use crate::register_with;
use crate::support::{Folder, write_pair};

const LEVELS: [&str; 5] = ["--aligned", "--shrink", "4,2,2,1,1", "--iterations", "30,30,30,10,10"];

fn bits(folder: &Folder, out: &str) -> (Vec<u32>, Vec<u32>) {
    let words = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect();
    let (field, _) = read_displacement(folder.path(&format!("{out}/warp.nii.gz"))).expect("ITK");
    let warped = read_volume(folder.path(&format!("{out}/warped.nii.gz"))).expect("written");
    (words(field), words(warped.data))
}

/// Starts the run with a checkpoint after every level, waits until `ready` or its end, and kills it.
fn kill(folder: &Folder, ready: impl Fn(Duration) -> bool) {
    kill_with(folder, &LEVELS, ready);
}

/// The same with other flags.
fn kill_with(folder: &Folder, flags: &[&str], ready: impl Fn(Duration) -> bool) {
    let [fixed, moving, out] = ["fixed.nii.gz", "moving.nii.gz", "out"].map(|n| folder.path(n));
    let mut child = Command::new(env!("CARGO_BIN_EXE_ffdp"))
        .args(["register", "-f", &fixed, "-m", &moving, "-o", &out, "--device", "cpu"])
        .args(flags)
        .args(["--checkpoint-every", "0", "--resume"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts");
    let start = Instant::now();
    while !ready(start.elapsed()) && child.try_wait().expect("our child").is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    // SIGKILL on Unix: nothing can be tidied up.
    child.kill().expect("our child");
    child.wait().expect("our child");
}

#[test]
fn a_killed_run_goes_on_to_the_same_bits() {
    let folder = Folder::new();
    write_pair(&folder, 32, 4);
    let (fixed, moving) = ("fixed.nii.gz", "moving.nii.gz");
    let whole = register_with(&folder, fixed, moving, "whole", &[&LEVELS[..], &["-q"]].concat());
    whole.succeeded();
    let expected = bits(&folder, "whole");

    // Killed once a checkpoint is there, then at moments that a counter spreads over the rest.
    kill(&folder, |_| folder.has("out/checkpoint/state"));
    assert!(!folder.has("out/metrics.json"), "the run was killed before its end");
    for round in 0..4u64 {
        let after = Duration::from_millis(20 + round * 37 % 200);
        kill(&folder, |elapsed| elapsed > after);
    }
    // Whatever was there is whole: no file is half-written under its final name.
    for entry in fs::read_dir(folder.path("out")).expect("made").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".nii.gz") && !name.starts_with('.') {
            assert!(ffdp_image::io::images::header(entry.path()).is_ok(), "{name}");
        }
    }
    let more = [&LEVELS[..], &["--resume", "--checkpoint-every", "0"]].concat();
    let run = register_with(&folder, fixed, moving, "out", &more);
    run.succeeded();
    assert!(run.stderr.contains("going on after"), "{}", run.stderr);
    assert!(bits(&folder, "out") == expected);
    assert!(!folder.has("out/checkpoint"), "removed at the end");
    let names = fs::read_dir(folder.path("out")).expect("made").flatten().map(|e| e.file_name());
    let left: Vec<_> = names.filter(|n| n.to_string_lossy().ends_with(".part")).collect();
    assert!(left.is_empty(), "half-written files of killed runs: {left:?}");
    let log = fs::read_to_string(folder.path("out/log.jsonl")).expect("written");
    assert!(log.contains("\"resumed\":false") && log.contains("\"resumed\":true"), "{log}");
    assert!(log.lines().all(|line| line.starts_with('{') && line.ends_with('}')), "{log}");

    // Nothing to go on from: the whole run again.
    let run = register_with(&folder, fixed, moving, "out", &more);
    run.succeeded();
    assert!(run.stderr.contains("starting anew"), "{}", run.stderr);
}

#[test]
fn a_killed_run_slab_by_slab_goes_on_to_the_same_bits() {
    let folder = Folder::new();
    write_pair(&folder, 32, 4);
    let (fixed, moving) = ("fixed.nii.gz", "moving.nii.gz");
    for transform in ["greedy", "svf"] {
        let flags = [&LEVELS[..], &["--slabs", "--shards", "3", "--transform", transform]].concat();
        let (whole, out) = (format!("whole_{transform}"), "out");
        let run = register_with(&folder, fixed, moving, &whole, &[&flags[..], &["-q"]].concat());
        run.succeeded();
        kill_with(&folder, &flags, |_| folder.has("out/checkpoint/state"));
        assert!(!folder.has("out/metrics.json"), "{transform}: the run was killed before its end");
        let more = [&flags[..], &["--resume"]].concat();
        let run = register_with(&folder, fixed, moving, out, &more);
        run.succeeded();
        assert!(run.stderr.contains("going on after"), "{transform}: {}", run.stderr);
        assert!(bits(&folder, out) == bits(&folder, &whole), "{transform}");
        assert!(!folder.has("out/checkpoint"), "removed at the end");
        fs::remove_dir_all(folder.path(out)).expect("ours");
    }
}

#[test]
fn a_checkpoint_of_another_run_is_refused() {
    let folder = Folder::new();
    write_pair(&folder, 32, 4);
    kill(&folder, |_| folder.has("out/checkpoint/state"));
    let state = folder.path("out/checkpoint/state");
    assert!(folder.has("out/checkpoint/state"), "killed before the end");
    let resumed = |fixed: &str, more: &[&str]| {
        let more = [&["--resume"], more].concat();
        register_with(&folder, fixed, "moving.nii.gz", "out", &more)
    };
    let levels = LEVELS;
    for (fixed, more, word) in [
        ("fixed.nii.gz", &["--shrink", "2", "--iterations", "3"][..], "the settings changed"),
        ("moving.nii.gz", &levels, "the fixed image changed"),
        (
            "fixed.nii.gz",
            &[&levels[..], &["--nan-policy", "zero"]].concat(),
            "--nan-policy changed",
        ),
    ] {
        let run = resumed(fixed, more);
        assert_eq!(run.code, 1, "{}", run.stderr);
        assert!(run.stderr.contains(word), "no {word:?} in {}", run.stderr);
        assert!(run.stderr.contains("without --resume"), "{}", run.stderr);
    }
    let mut bytes = fs::read(&state).expect("written");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&state, &bytes).expect("writable");
    let run = resumed("fixed.nii.gz", &levels);
    assert!(run.code == 1 && run.stderr.contains("damaged"), "{}", run.stderr);
    // Without the flag it begins anew, and says so.
    let run = register_with(&folder, "fixed.nii.gz", "moving.nii.gz", "out", &levels);
    run.succeeded();
    assert!(run.stderr.contains("is dropped"), "{}", run.stderr);
}

/// Random moments in every kind of stage; `FFDP_KILLED_RUNS` chooses how many runs.
#[test]
#[ignore = "minutes: 50 runs of every kind of stage, each killed up to five times"]
fn runs_killed_at_random_moments_go_on_to_the_same_bits() {
    let runs = std::env::var("FFDP_KILLED_RUNS").map_or(50, |runs| runs.parse().expect("a number"));
    let folder = Folder::new();
    write_pair(&folder, 32, 4);
    let (fixed, moving) = ("fixed.nii.gz", "moving.nii.gz");
    let kinds = ["rigid", "affine", "greedy", "syn", "svf"];
    let flags = |kind| {
        let iterations = if kind == "rigid" || kind == "affine" { "30,20" } else { "20,10" };
        ["--transform", kind, "--shrink", "2,1", "--iterations", iterations, "-q"]
    };
    // A linear congruence (Knuth): moments that a failure can be repeated with.
    let mut state = 7u64;
    let mut random = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as f64 / (1u64 << 31) as f64
    };
    let expected: Vec<_> = kinds
        .iter()
        .map(|kind| {
            let clock = Instant::now();
            let more = [&flags(kind)[..], &["--overwrite"]].concat();
            register_with(&folder, fixed, moving, "out", &more).succeeded();
            (files(&folder), clock.elapsed())
        })
        .collect();
    let (mut kills, mut resumed) = (0, 0);
    for run in 0..runs {
        let kind = run % kinds.len();
        fs::remove_dir_all(folder.path("out")).expect("ours");
        for _ in 0..1 + (random() * 5.0) as usize {
            let moment = expected[kind].1.mul_f64(random());
            kill_with(&folder, &flags(kinds[kind]), |elapsed| elapsed > moment);
            kills += 1;
        }
        resumed += usize::from(folder.has("out/checkpoint/state"));
        let more = [&flags(kinds[kind])[..], &["--resume", "--checkpoint-every", "0"]].concat();
        register_with(&folder, fixed, moving, "out", &more).succeeded();
        assert!(files(&folder) == expected[kind].0, "run {run}, {}", kinds[kind]);
    }
    println!("{runs} runs killed {kills} times; {resumed} went on from a checkpoint at the end");
    assert!(resumed * 4 > runs, "of {runs} runs only {resumed} were killed after a level");
}

/// The transform and the image that a run has written, as bytes.
fn files(folder: &Folder) -> Vec<Option<Vec<u8>>> {
    let names = ["affine.txt", "warp.nii.gz", "inverse_warp.nii.gz", "warped.nii.gz"];
    names.map(|name| fs::read(folder.path(&format!("out/{name}"))).ok()).into()
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_says_how_to_go_on() {
    let folder = Folder::new();
    write_pair(&folder, 32, 4);
    let [fixed, moving, out] = ["fixed.nii.gz", "moving.nii.gz", "out"].map(|n| folder.path(n));
    let child = Command::new(env!("CARGO_BIN_EXE_ffdp"))
        .args(["register", "-f", &fixed, "-m", &moving, "-o", &out, "--device", "cpu", "-q"])
        .args(["--aligned", "--shrink", "4,2,1", "--iterations", "30,3000,3000"])
        .args(["--checkpoint-every", "0"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let start = Instant::now();
    while !folder.has("out/checkpoint/state") && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(5));
    }
    // The file appears just before the text is ready.
    std::thread::sleep(Duration::from_millis(200));
    let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(sent.expect("kill").success());
    let ended = child.wait_with_output().expect("our child");
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && stderr.contains("with --resume goes on"), "{stderr}");
}
