//! The page, the log and the numbers of a run.

use std::fs;

use ffdp_image::io::images::write_volume;
use ffdp_image::synth::{PhantomSettings, pair};
use serde_json::Value;

use crate::register;
use crate::support::{Folder, ProcessOutput, ffdp, ffdp_in, write_pair};

/// A short run with labels, its folder and what it wrote.
fn finished() -> (Folder, String) {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    let labels = ["fixed_labels.nii.gz", "moving_labels.nii.gz"].map(|name| folder.path(name));
    let more = ["--fixed-labels", &labels[0], "--moving-labels", &labels[1], "-q"];
    register(&folder, "fixed.nii.gz", "moving.nii.gz", "out", &more).succeeded();
    let page = fs::read_to_string(folder.path("out/report.html")).expect("written");
    (folder, page)
}

#[test]
fn the_report_is_complete_and_needs_nothing_else() {
    let (folder, page) = finished();
    // Names of the SVG standard are no links; everything else would be.
    let page_without_names = page.replace("http://www.w3.org/2000/svg", "");
    for link in ["http:", "https:", "<script ", "<link", "@import", "url(\"", "file:"] {
        assert!(!page_without_names.contains(link), "{link}");
    }
    assert!(
        !page_without_names.contains("src=\"") || page.contains("src=\"data:image/png;base64,")
    );
    // Three planes of nine views and, with labels, two of their borders, each with its text.
    assert_eq!(page.matches("\" src=\"data:image/png;base64,").count(), 33);
    // Two over each other, which a script fills.
    assert_eq!(page.matches("alt=\"").count(), 33 + 6);
    assert_eq!(page.matches("<script>").count(), 1);
    assert_eq!(page.matches("class=\"chart\"").count(), 1, "one stage");
    assert_eq!(page.matches("<polyline").count(), 2, "two levels");
    let metrics = fs::read_to_string(folder.path("out/metrics.json")).expect("written");
    let metrics: Value = serde_json::from_str(&metrics).expect("JSON");
    let hash = metrics["fixed"]["sha256"].as_str().expect("a hash");
    assert_eq!(hash.len(), 64);
    let labels = metrics["dice"]["labels"].as_array().expect("labels").len();
    assert_eq!(page.matches("class=\"dumbbell").count(), labels);
    for part in [hash, "--iterations", "gradient_floor", "converged", "RAS", "Folded in any"] {
        let there = page.contains(part) || part == "converged" && page.contains("all iterations");
        assert!(there, "no {part}");
    }
    // The tags close.
    for tag in ["section", "table", "figure", "svg", "tr", "td", "div"] {
        let (open, close) = (format!("<{tag}"), format!("</{tag}>"));
        let opened =
            page.matches(&format!("{open}>")).count() + page.matches(&format!("{open} ")).count();
        assert_eq!(opened, page.matches(&close).count(), "{tag}");
    }
}

#[test]
fn names_of_files_cannot_break_the_page() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    let odd = "a<b>&\"c\".nii.gz";
    fs::copy(folder.path("moving.nii.gz"), folder.path(odd)).expect("copied");
    let few = ["--shrink", "2", "--iterations", "2", "-q"];
    register(&folder, "fixed.nii.gz", odd, "out", &few).succeeded();
    let page = fs::read_to_string(folder.path("out/report.html")).expect("written");
    assert!(page.contains("a&lt;b&gt;&amp;") && !page.contains("a<b>"));
}

#[test]
fn the_log_has_every_event_in_order() {
    let (folder, _) = finished();
    let log = fs::read_to_string(folder.path("out/log.jsonl")).expect("written");
    let events: Vec<Value> =
        log.lines().map(|line| serde_json::from_str(line).expect("an object per line")).collect();
    let names: Vec<&str> = events.iter().filter_map(|event| event["event"].as_str()).collect();
    assert_eq!(names.first(), Some(&"start"));
    assert_eq!(names.last(), Some(&"end"));
    let mut kinds = names.clone();
    // A slow machine saves a checkpoint on the way.
    kinds.retain(|kind| *kind != "checkpoint");
    kinds.dedup();
    let expected =
        ["start", "stage", "level", "loss", "level_end", "level", "loss", "level_end", "end"];
    assert_eq!(kinds, expected);
    let seconds: Vec<f64> = events.iter().filter_map(|event| event["seconds"].as_f64()).collect();
    assert!(seconds.len() == events.len() && seconds.is_sorted());
    let losses: Vec<f64> = events.iter().filter_map(|event| event["loss"].as_f64()).collect();
    assert!(losses.len() >= 4 && losses.iter().all(|loss| loss.is_finite()));
    assert_eq!(events[events.len() - 1]["verdict"], "aligned");
    let time = events[0]["time"].as_str().expect("a time");
    assert!(time.starts_with("20") && time.ends_with('Z'), "{time}");
}

#[test]
fn the_measures_have_what_a_user_is_promised() {
    let (folder, _) = finished();
    let metrics = fs::read_to_string(folder.path("out/metrics.json")).expect("written");
    let metrics: Value = serde_json::from_str(&metrics).expect("JSON");
    for path in [
        "/folds/jacobian_central/p99",
        "/folds/sd_log_jacobian",
        "/similarity/before/ncc",
        "/stages/0/levels/1/losses/0",
        "/stages/0/levels/1/seconds",
        "/stages/0/loss_after",
        "/seconds/results",
        "/affine/0/0",
        "/threads",
        "/dice/inverse_volume_mean/after",
        "/dice/surfaces/hd95_mm/before",
        "/dice/surfaces/hd90_cumulative_mm/after",
    ] {
        assert!(metrics.pointer(path).is_some_and(Value::is_number), "{path} in {metrics}");
    }
    #[cfg(target_os = "linux")]
    assert!(metrics["peak_memory_bytes"].as_u64().is_some_and(|bytes| bytes > 10_000_000));
    let command = metrics["command"].as_array().expect("arguments");
    assert!(command.iter().any(|argument| argument == "register"));
}

/// How far a plan may be off the peak of the process, as a part of it, in the nearest of [`RUNS`]. Results are measured, drawn
/// and written in parallel, and what waits for a core is held: the peak of a greedy run was 117 to 146 MB on one
/// pair, one of SyN 162 to 179. Too little may end a run, too much does not.
const PLAN: [f64; 2] = [-0.1, 0.25];
const RUNS: usize = 3;

/// Compares the plan of every method with what a process says of itself.
fn plans_are_near(size: [usize; 3]) {
    let folder = Folder::new();
    let pair = pair(&PhantomSettings::with_size(size), 3).expect("valid settings");
    let [fixed, moving, out] = ["fixed.nii.gz", "moving.nii.gz", "out"].map(|n| folder.path(n));
    write_volume(&fixed, &pair.fixed.image).expect("writable");
    write_volume(&moving, &pair.moving.image).expect("writable");
    let mut far = Vec::new();
    for (kind, levels) in [
        ("rigid", ["--shrink", "4,2", "--iterations", "2,2"]),
        ("affine", ["--shrink", "4,2", "--iterations", "2,2"]),
        ("greedy", ["--shrink", "2,1", "--iterations", "2,2"]),
        ("syn", ["--shrink", "2,1", "--iterations", "2,2"]),
        ("svf", ["--shrink", "2,1", "--iterations", "2,2"]),
        ("ffd", ["--shrink", "2,1", "--iterations", "2,2"]),
    ] {
        let flags = [&["-f", &fixed, "-m", &moving, "--json", "--transform", kind], &levels[..]];
        let flags = flags.concat();
        let json = |run: ProcessOutput| -> Value {
            run.succeeded();
            serde_json::from_str(&run.stdout).expect("JSON")
        };
        let plan = json(ffdp(&[&["plan"], &flags[..]].concat()));
        let planned = plan["host_peak_bytes"].as_f64().expect("bytes");
        let mut off = Vec::new();
        while off.len() < RUNS && !off.last().is_some_and(|off| (PLAN[0]..=PLAN[1]).contains(off)) {
            let found = ["register", "-o", &out, "--overwrite", "-q"];
            let found = json(ffdp(&[&found, &flags[..]].concat()));
            // Where the system does not say there is nothing to compare.
            let Some(peak) = found["peak_memory_bytes"].as_f64() else { return };
            off.push(planned / peak - 1.0);
            let [peak, planned] = [peak, planned].map(|bytes| bytes / 1e6);
            println!(
                "{kind} {size:?}: {peak:.1} MB, planned {planned:.1}, {:+.3}",
                off[off.len() - 1]
            );
        }
        if !off.last().is_some_and(|off| (PLAN[0]..=PLAN[1]).contains(off)) {
            far.push(format!("{kind}: {off:+.3?}"));
        }
    }
    assert!(far.is_empty(), "{far:?}");
}

#[test]
fn plans_are_near_the_peak_of_every_method_at_2_mm() {
    plans_are_near([91, 109, 91]);
}

#[test]
#[ignore = "minutes: all methods at 1.1 mm"]
fn plans_are_near_the_peak_of_every_method_at_1_mm() {
    plans_are_near([160, 192, 160]);
}

/// On a GPU a first registration starts the program again for parts of its kernels (`register/rehearsal.rs`).
#[test]
fn a_process_that_helps_to_compile_does_its_part_and_writes_nothing() {
    let folder = Folder::new();
    write_pair(&folder, 24, 5);
    let [fixed, moving, out] = ["fixed.nii.gz", "moving.nii.gz", "out"].map(|n| folder.path(n));
    let request = ["register", "-f", &fixed, "-m", &moving, "-o", &out, "--transform", "syn"];
    for part in ["results", "0", "1"] {
        let run = ffdp_in(&[("FFDP_REHEARSAL", part)], &request);
        run.succeeded();
        assert!(run.stdout.is_empty() && !folder.has("out"), "{part}: {}", run.stdout);
    }
    // Of a list the pair with the name that comes after the part, or those that follow it.
    let list = folder.path("pairs.csv");
    let line = |name| format!("{fixed},{moving},{name}\n");
    let lines = ["fixed,moving,name\n".into(), line("one"), line("two 2")].concat();
    std::fs::write(&list, lines).expect("writable");
    let request = ["register", "--pairs", &list, "-o", &out, "--transform", "syn"];
    for part in ["results one", "1 two 2", "0/2 one", "1/2 one", "0/1 two 2", "0 unknown"] {
        let run = ffdp_in(&[("FFDP_REHEARSAL", part)], &request);
        run.succeeded();
        assert!(run.stdout.is_empty() && !folder.has("out"), "{part}: {}", run.stdout);
    }
}
