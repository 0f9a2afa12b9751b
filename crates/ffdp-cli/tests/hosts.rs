//! `mpirun -n N ffdp register --slabs`: what one process finds, and how all end when one is lost.
//!
//! Needs an MPI library with `mpirun` (Debian: openmpi-bin), as the feature does.

#![cfg(feature = "mpi")]
// What other tests need of it.
#[allow(dead_code)]
mod support;

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ffdp_image::io::images::{read_displacement, read_volume};
use serde_json::Value;
use support::{Folder, ProcessOutput, ffdp, relative_difference, write_masks, write_pair};

/// The library's bound on the field of a shared registration, here in mm: voxels of the pair are 4 mm at most.
const FIELD_MM: f32 = 4e-3;

/// As [`FIELD_MM`], across the steepest edge.
const WARPED: f64 = 2e-3;

/// All processes end within that time when one is lost.
const LOST: Duration = Duration::from_secs(30);

/// The flags of a short registration into `out`.
fn register(folder: &Folder, [fixed, moving]: [&str; 2], out: &str, more: &[&str]) -> Vec<String> {
    let [fixed, moving, out] = [fixed, moving, out].map(|name| folder.path(name));
    let arguments = ["register", "--slabs", "--aligned", "-f", &fixed, "-m", &moving, "-o", &out];
    arguments.iter().chain(more).map(|argument| argument.to_string()).collect()
}

const PAIR: [&str; 2] = ["fixed.nii.gz", "moving.nii.gz"];

/// Rank 0 does the coarse level; up to four processes share the fine one of 64 planes.
const SHORT: [&str; 4] = ["--shrink", "2,1", "--iterations", "10,5"];

/// Many iterations of a level that is shared.
const LONG: [&str; 4] = ["--shrink", "1", "--iterations", "5000"];

/// So many processes with these arguments each.
fn mpirun(processes: &[(usize, Vec<String>)]) -> Command {
    let mut command = Command::new("mpirun");
    command.args(["--oversubscribe", "--allow-run-as-root", "--bind-to", "none"]);
    for (i, (count, arguments)) in processes.iter().enumerate() {
        if i > 0 {
            command.arg(":");
        }
        command.args(["-n", &count.to_string(), env!("CARGO_BIN_EXE_ffdp")]);
        command.args(arguments).args(["--device", "cpu"]);
    }
    command
}

fn ended(mut command: Command) -> ProcessOutput {
    let output = command.output().expect("mpirun is installed: Debian has it in openmpi-bin");
    ProcessOutput {
        code: output.status.code().expect("ended by itself"),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

#[test]
fn processes_write_what_one_writes() {
    let folder = Folder::new();
    let pair = write_pair(&folder, 64, 3);
    let [fixed_mask, moving_mask] = write_masks(&folder, &pair);
    let labels = ["fixed_labels.nii.gz", "moving_labels.nii.gz"].map(|name| folder.path(name));
    let more = ["--fixed-mask", &fixed_mask, "--moving-mask", &moving_mask];
    let more = [&more, &["--fixed-labels", &labels[0], "--moving-labels", &labels[1]][..]].concat();
    let more = [&SHORT[..], &more].concat();
    let arguments = |out: &str| register(&folder, PAIR, out, &more);
    let alone: Vec<String> = arguments("alone");
    ffdp(&alone.iter().map(String::as_str).collect::<Vec<_>>()).succeeded();
    let read = |out: &str| {
        let path = |name: &str| folder.path(&format!("{out}/{name}"));
        let field = read_displacement(path("warp.nii.gz")).expect("ITK").0;
        let metrics = std::fs::read_to_string(path("metrics.json")).expect("written");
        let metrics: Value = serde_json::from_str(&metrics).expect("JSON");
        (field, read_volume(path("warped.nii.gz")).expect("an image").data, metrics)
    };
    let (field, image, metrics) = read("alone");
    for count in [2, 4] {
        let out = format!("of_{count}");
        let run = ended(mpirun(&[(count, arguments(&out))]));
        run.succeeded();
        let (shared, warped, reported) = read(&out);
        let off = field.iter().zip(&shared).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
        println!("{count} processes: {off:.1e} mm; {}", reported["processes"]);
        assert!(off <= FIELD_MM, "{count}: {off} mm");
        let off = relative_difference(&warped, &image);
        assert!(off <= WARPED, "{count}: {off} of the range");
        // Each held its part.
        let part = |rank: usize| serde_json::json!([rank * 64 / count, (rank + 1) * 64 / count]);
        for rank in 0..count {
            assert_eq!(
                reported["processes"][rank]["planes"],
                part(rank),
                "{}",
                reported["processes"]
            );
        }
        assert!(reported["processes"][count].is_null(), "{}", reported["processes"]);
        assert_eq!(reported["folds"]["voxels"], metrics["folds"]["voxels"], "{count}");
        let ncc = |reported: &Value| reported["similarity"]["after"]["ncc"].as_f64().expect("it");
        assert!((ncc(&reported) - ncc(&metrics)).abs() < WARPED, "{count}");
        for which in ["before", "after"] {
            let dice =
                |reported: &Value| reported["dice"]["mean"][which].as_f64().expect("a number");
            let [one, all] = [dice(&metrics), dice(&reported)];
            // Labels of voxels that rounding moves past the middle between two.
            assert!(one > 0.1 && (one - all).abs() < 1e-3, "{count}: {which} {one} {all}");
        }
        for name in ["affine.txt", "settings.toml", "log.jsonl", "warped_labels.nii.gz"] {
            assert!(folder.has(&format!("{out}/{name}")), "{count}: no {name}");
        }
        // One process speaks.
        assert_eq!(run.stdout.matches("loss").count(), 1, "{}", run.stdout);
        assert_eq!(run.stderr.matches("results are in").count(), 1, "{}", run.stderr);
    }
}

#[test]
fn what_processes_cannot_do_is_said_once() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    let of = |more: &[&str]| register(&folder, PAIR, "out", more);
    let whole: Vec<String> = of(&[]).into_iter().filter(|flag| flag != "--slabs").collect();
    for (arguments, words) in [
        (whole, &["2 processes", "--slabs"][..]),
        (of(&["--device-memory", "1"]), &["--device-memory", "one process"]),
        (of(&["--resume"]), &["several processes", "--resume"]),
    ] {
        let run = ended(mpirun(&[(2, arguments)]));
        assert_eq!(run.code, 1, "{}", run.stderr);
        assert_eq!(run.stderr.matches("error: ").count(), 1, "{}", run.stderr);
        for word in words {
            assert!(run.stderr.contains(word), "no {word:?} in {}", run.stderr);
        }
    }
    // Others than rank 0's: which rank it is.
    let run = ended(mpirun(&[(1, of(&[])), (1, of(&["--iterations", "1,1,1"]))]));
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stderr.contains("rank 1 of 2"), "{}", run.stderr);
}

#[test]
fn a_rank_that_cannot_read_its_planes_ends_the_others() {
    let folder = Folder::new();
    write_pair(&folder, 64, 3);
    let good = std::fs::read(folder.path(PAIR[1])).expect("written");
    std::fs::write(folder.path("bad.nii.gz"), &good[..good.len() / 2]).expect("writable");
    let of = |moving: &str| register(&folder, [PAIR[0], moving], "out", &LONG);
    let start = Instant::now();
    // The header is sound: it is found when the upper half is read, in a level that is shared.
    let run = ended(mpirun(&[(1, of(PAIR[1])), (1, of("bad.nii.gz")), (1, of(PAIR[1]))]));
    let took = start.elapsed();
    assert_ne!(run.code, 0, "{}", run.stderr);
    assert!(took < LOST, "{took:?}");
    for word in ["rank 1 of 3 on ", "bad.nii.gz"] {
        assert!(run.stderr.contains(word), "no {word:?} in {}", run.stderr);
    }
}

/// A run of three processes that iterate, and the process of each rank.
fn iterating(folder: &Folder) -> (Child, Vec<u32>) {
    write_pair(folder, 64, 3);
    let arguments = register(folder, PAIR, "out", &[&LONG[..], &["-v"]].concat());
    let mut command = mpirun(&[(3, arguments)]);
    command.stderr(Stdio::from(std::fs::File::create(folder.path("said")).expect("writable")));
    let mut child = command.stdout(Stdio::null()).spawn().expect("mpirun is installed");
    let start = Instant::now();
    loop {
        let said = said(folder);
        // What the launcher passes on may come late, or in the middle of another line.
        let process = |rank: usize| -> Option<u32> {
            let (_, line) = said.split_once(&format!("rank {rank} of 3 on "))?;
            let (_, rest) = line.split_once(": process ")?;
            let (id, _) = rest.split_once(|c: char| !c.is_ascii_digit())?;
            id.parse().ok()
        };
        let processes: Option<Vec<u32>> = (0..3).map(process).collect();
        if let (Some(processes), true) = (processes, said.matches("loss ").count() > 2) {
            return (child, processes);
        }
        let status = child.try_wait().expect("it can be asked");
        assert!(status.is_none(), "it ended: {said}");
        if start.elapsed() > Duration::from_secs(120) {
            let _ = child.kill();
            panic!("it does not begin: {said}");
        }
        sleep(Duration::from_millis(50));
    }
}

fn said(folder: &Folder) -> String {
    let mut text = Vec::new();
    let mut file = std::fs::File::open(folder.path("said")).expect("it is written");
    file.read_to_end(&mut text).expect("readable");
    String::from_utf8_lossy(&text).into_owned()
}

/// Whether a process runs or waits. One that has ended is none, even while nobody asks how it ended.
fn is_running(process: u32) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{process}/stat")) else { return false };
    let state = status.rsplit_once(") ").and_then(|(_, fields)| fields.chars().next());
    !matches!(state, Some('Z' | 'X'))
}

/// Sends a signal to a rank and demands that all end in time, not well, and that somebody names the rank.
fn loses(signal: &str, names: &[&str]) {
    let folder = Folder::new();
    let (mut child, processes) = iterating(&folder);
    let start = Instant::now();
    let sent = Command::new("kill").args([signal, &processes[1].to_string()]).status();
    assert!(sent.expect("there is a kill").success());
    let status = loop {
        if let Some(status) = child.try_wait().expect("it can be asked") {
            break status;
        }
        if start.elapsed() > LOST {
            let _ = child.kill();
            panic!("{signal}: not within {LOST:?}: {}", said(&folder));
        }
        sleep(Duration::from_millis(50));
    };
    let (took, said) = (start.elapsed(), said(&folder));
    println!("{signal}: all ended after {:.1} s", took.as_secs_f64());
    assert!(!status.success(), "{signal}: {said}");
    for name in names {
        assert!(said.contains(name), "{signal}: no {name:?} in {said}");
    }
    for process in processes {
        // Gone, or about to be: a killed process may take a moment.
        while is_running(process) {
            assert!(start.elapsed() < LOST, "{signal}: process {process} is still there");
            sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn a_rank_that_is_killed_ends_the_others() {
    // Open MPI's own words, in which the host is a node.
    loses("-KILL", &["rank 1", "on node", "signal 9"]);
}

#[test]
fn a_rank_that_falls_silent_ends_the_others() {
    loses("-STOP", &["rank 1 of 3 on ", "is lost", "nothing was received from it for 20 s"]);
}
