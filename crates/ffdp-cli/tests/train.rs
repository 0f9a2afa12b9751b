//! `ffdp train` and `ffdp predict` as a user meets them: killed and resumed, from files to files.

#[allow(dead_code)] // shared with the other commands' tests
mod support;

use std::fs;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ffdp_image::image::{LabelMap, Volume};
use ffdp_image::io::images::{read_labels, read_volume, write_labels, write_volume};
use serde_json::Value;
use support::{Folder, ffdp, relative_difference, restored, write_pair};

/// Everything that is random is used: stochastic depth, partners, augmentation.
const SHORT: [&str; 17] = [
    "--size",
    "32",
    "--pairs",
    "2",
    "--plain",
    "--drop-path",
    "0.2",
    "--augment-flips",
    "--augment-rotation",
    "5",
    "--augment-noise",
    "0.02",
    "--augment-gamma",
    "0.1",
    "--epochs",
    "5",
    "--integrate",
];

/// Displacements go through mm and f32 in the file: the image read with them differs by rounding.
const FILE_ROUNDING: f64 = 1e-4;

/// The journal without the numbers that no seed decides.
fn journal(path: &str) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    // A killed run may have written half a line.
    let records = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let decided = records.map(|mut record| {
        let fields = record.as_object_mut().expect("records are objects");
        for name in ["seconds", "waiting", "peak_memory", "device_memory"] {
            fields.remove(name);
        }
        record
    });
    decided.collect()
}

#[test]
fn a_killed_run_goes_on_to_the_same_numbers() {
    let folder = Folder::new();
    let train = |out: &str, more: &[&str]| {
        ffdp(&[&["train", "--output", &folder.path(out)], &SHORT[..], more].concat())
    };
    train("whole", &[]).succeeded();

    let journal_file = folder.path("killed/metrics.jsonl");
    let mut killed = Command::new(env!("CARGO_BIN_EXE_ffdp"))
        .args(["train", "--device", "cpu", "--output", &folder.path("killed")])
        .args(SHORT)
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts");
    let deadline = Instant::now() + Duration::from_secs(120);
    // In the middle of the third epoch: checkpoints of two are there.
    while !journal(&journal_file).iter().any(|record| record["epoch"] == 3) {
        assert!(Instant::now() < deadline, "no third epoch in two minutes");
        sleep(Duration::from_millis(2));
    }
    killed.kill().expect("it runs");
    killed.wait().expect("it ends");
    assert!(!folder.has("killed/evaluation.json"), "the run was to be killed before its end");

    // No flags: the settings are those of the run.
    let out = folder.path("killed");
    ffdp(&["train", "--resume", "--plain", "--output", &out]).succeeded();
    let [whole, killed] =
        ["whole", "killed"].map(|run| journal(&folder.path(&format!("{run}/metrics.jsonl"))));
    assert_eq!(whole.len(), 5 * (4 + 1 + 2 + 1), "4 steps, 2 validations and 2 means an epoch");
    assert_eq!(whole, killed, "the same numbers, to the last bit");
    let [whole, killed] = ["whole", "killed"].map(|run| {
        let text = fs::read_to_string(folder.path(&format!("{run}/evaluation.json")));
        let mut value: Value = serde_json::from_str(&text.expect("evaluated")).expect("JSON");
        for pair in value["pairs"].as_array_mut().expect("pairs") {
            pair.as_object_mut().expect("an object").remove("seconds");
        }
        value
    });
    assert_eq!(whole, killed, "and the same network");
}

/// The labels as [`restored`] stores an image.
fn restored_labels(labels: &LabelMap) -> LabelMap {
    let values = labels.data.iter().map(|&label| label as f32).collect();
    let values = Volume::new(values, labels.geometry.clone()).expect("as many values");
    let Volume { data, geometry } = restored(&values);
    LabelMap::new(data.into_iter().map(|v| v as i32).collect(), geometry).expect("as many labels")
}

/// That the label is called "Left, cortex" in the metrics and in the table of `out`, and no other has a name.
fn check_names_of_labels(metrics: &Value, folder: &Folder, id: i32) {
    let labels = metrics["dice"]["labels"].as_array().expect("a list");
    let named: Vec<&Value> = labels.iter().filter(|label| label.get("name").is_some()).collect();
    assert!(named.len() == 1 && named[0]["id"] == id, "{labels:?}");
    assert_eq!(named[0]["name"], "Left, cortex");
    let after = metrics["dice"]["mean"]["after"].as_f64().expect("a number");
    assert_eq!(metrics["phases"][2]["dice"].as_f64(), Some(after));
    let csv = fs::read_to_string(folder.path("out/labels.csv")).expect("written");
    assert_eq!(csv.lines().count(), 1 + labels.len());
    assert!(csv.contains(&format!("\n{id},\"Left, cortex\",")), "{csv}");
}

#[test]
fn a_trained_network_registers_files_of_any_grid() {
    let folder = Folder::new();
    let model = folder.path("model");
    let flags = ["--size", "32", "--pairs", "4", "--epochs", "8", "--plain", "--keep", "2"];
    ffdp(&[&["train", "--output", &model], &flags[..]].concat()).succeeded();

    // Twice as many voxels an axis as the network has; the fixed image lies otherwise in memory.
    let pair = write_pair(&folder, 64, 3);
    let fixed = restored(&pair.fixed.image);
    let labels = restored_labels(&pair.fixed.labels);
    write_volume(folder.path("turned.nii.gz"), &fixed).expect("writable");
    write_labels(folder.path("turned_labels.nii.gz"), &labels).expect("writable");
    let path = |name: &str| folder.path(name);
    let predict = |fixed: &str, out: &str, more: &[&str]| {
        let names = [path(&format!("{fixed}.nii.gz")), path("moving.nii.gz"), path(out)];
        let labels = [path(&format!("{fixed}_labels.nii.gz")), path("moving_labels.nii.gz")];
        let flags = ["predict", "--model", &model, "--fixed", &names[0], "--moving", &names[1]];
        let more_flags =
            ["--output", &names[2], "--fixed-labels", &labels[0], "--moving-labels", &labels[1]];
        let run = ffdp(&[&flags[..], &more_flags, &["--json"], more].concat());
        run.succeeded();
        serde_json::from_str::<Value>(&run.stdout).expect("--json prints JSON only")
    };
    let straight = predict("fixed", "straight", &[]);
    // A list gives the same, next to a pair that fails.
    fs::write(
        path("pairs.csv"),
        "fixed,moving,name\nabsent.nii,moving.nii.gz,no\nfixed.nii.gz,moving.nii.gz,yes\n",
    )
    .expect("writable");
    let (list, out) = (path("pairs.csv"), path("list"));
    let run = ffdp(&["predict", "--model", &model, "--pairs", &list, "--output", &out]);
    assert!(run.code == 1 && run.stderr.contains("absent.nii"), "{}", run.stderr);
    let warp = |out: &str| fs::read(path(&format!("{out}/warp.nii.gz"))).expect("written");
    assert!(warp("list/yes") == warp("straight") && folder.has("list/index.html"));
    let (table, id) = (path("names.csv"), pair.fixed.labels.ids()[0]);
    fs::write(&table, format!("id,name\n{id},\"Left, cortex\"\n")).expect("writable");
    let metrics = predict("turned", "out", &["--refine", "20", "--label-names", &table]);
    check_names_of_labels(&metrics, &folder, id);
    fs::write(&table, "no,table\n").expect("writable");
    let images = [path("fixed.nii.gz"), path("moving.nii.gz")];
    let base = ["predict", "--model", &model, "-f", &images[0], "-m", &images[1], "-o", &out];
    let labels = [path("fixed_labels.nii.gz"), path("moving_labels.nii.gz")];
    let labels = ["--fixed-labels", &labels[0], "--moving-labels", &labels[1]];
    let run = ffdp(&[&base[..], &labels, &["--label-names", &table]].concat());
    assert!(run.code == 1 && run.stderr.contains("id and name"), "{}", run.stderr);
    let run = ffdp(&[&base[..], &["--label-names", &table]].concat());
    assert!(run.code == 1 && run.stderr.contains("--fixed-labels"), "{}", run.stderr);
    let figure = |metrics: &Value, phase: usize, name: &str| {
        metrics["phases"][phase][name].as_f64().expect("a figure")
    };
    for (name, gain) in [("dice", 0.02), ("local_ncc_foreground", 0.05)] {
        let [before, predicted, refined] = [0, 1, 2].map(|phase| figure(&metrics, phase, name));
        assert!(predicted > before, "{name}: {before} -> {predicted}");
        assert!(refined > predicted + gain, "{name}: {predicted} -> {refined}");
        // The orientation in memory plays no part, but for rounding.
        let other = figure(&straight, 1, name);
        assert!((predicted - other).abs() < 1e-3, "{name}: {predicted} and {other}");
    }

    // The written map is the whole result: applied to the moving image it gives the warped one.
    let warp = path("out/warp.nii.gz");
    for (image, output, more) in [
        ("moving.nii.gz", "again.nii.gz", "linear"),
        ("moving_labels.nii.gz", "again_labels.nii.gz", "nearest"),
    ] {
        let (image, output) = (path(image), path(output));
        ffdp(&["apply", "-i", &image, "-t", &warp, "-o", &output, "--interpolation", more])
            .succeeded();
    }
    let read = |name: &str| read_volume(path(name)).expect("an image");
    let (warped, again) = (read("out/warped.nii.gz"), read("again.nii.gz"));
    assert_eq!(warped.geometry.size, fixed.geometry.size);
    let difference = relative_difference(&again.data, &warped.data);
    assert!(difference < FILE_ROUNDING, "{difference}");
    let read = |name: &str| read_labels(path(name)).expect("labels").data;
    let (ours, again) = (read("out/warped_labels.nii.gz"), read("again_labels.nii.gz"));
    let other = ours.iter().zip(&again).filter(|(a, b)| a != b).count();
    // Voxels between two labels may fall to either by rounding.
    assert!(other * 10_000 < ours.len(), "{other} of {} labels differ", ours.len());
}

#[test]
fn models_that_cannot_be_used_are_named_with_a_way_out() {
    let folder = Folder::new();
    write_pair(&folder, 32, 1);
    let [fixed, moving, out] =
        ["fixed.nii.gz", "moving.nii.gz", "out"].map(|name| folder.path(name));
    let images = ["--fixed", &fixed, "--moving", &moving, "--output", &out];
    let run = ffdp(&[&["predict", "--model", "/nowhere"], &images[..]].concat());
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("--model must name the folder of a training"), "{}", run.stderr);

    let weights = folder.path("weights.pth");
    fs::write(&weights, "not weights").expect("writable");
    let flags = ["import", "--variant", "tiny", "--resolution", "half", "--size", "32"];
    let import = |axes: &str| {
        ffdp(&[&flags[..], &["--weights", &weights, "--axes", axes, "--output", &out]].concat())
    };
    let run = import("LIA");
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("scripts/safetensors_of.py"), "{}", run.stderr);
    let run = import("LLA");
    assert!(run.stderr.contains("--axes must name one direction of each pair"), "{}", run.stderr);
    assert!(!folder.has("out"), "nothing was written");
}
