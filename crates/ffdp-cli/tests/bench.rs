//! `ffdp bench registration` as a user meets it.

#[allow(dead_code)] // shared with the other commands' tests
mod support;

use std::cmp::Reverse;
use std::fs;

use ffdp_image::io::images::read_labels;
use serde_json::Value;
use support::{Folder, ProcessOutput, ffdp};

/// Two warped brains of 4 mm and 8 mm.
fn subjects(folder: &Folder) {
    let output = folder.path("data");
    ffdp(&["synth", "-o", &output, "-n", "2", "--spacing", "4", "8", "-q"]).succeeded();
}

fn bench(folder: &Folder, more: &[&str]) -> ProcessOutput {
    let [coarse, fine] = ["data/8mm/pairs.csv", "data/4mm/pairs.csv"].map(|name| folder.path(name));
    let output = folder.path("out");
    let command = ["bench", "registration", &fine, &coarse, "-o", &output, "--device", "cpu"];
    ffdp(&[&command[..], more].concat())
}

fn rows(folder: &Folder) -> Vec<Value> {
    let json = fs::read_to_string(folder.path("out/results.json")).expect("written");
    serde_json::from_str(&json).expect("a list of rows")
}

fn number(rows: &[Value], method: &str, spacing_mm: f64, name: &str) -> f64 {
    let row = rows.iter().find(|row| row["method"] == method && row["spacing_mm"] == spacing_mm);
    let row = row.unwrap_or_else(|| panic!("no {method} at {spacing_mm} mm in {rows:?}"));
    row[name].as_f64().unwrap_or_else(|| panic!("no {name} in {row}"))
}

#[test]
fn methods_and_resolutions_become_rows_tables_and_plots() {
    let folder = Folder::new();
    subjects(&folder);
    let methods = ["--methods", "identity,greedy,upsampled"];
    let run = bench(&folder, &methods);
    run.succeeded();
    let rows = self::rows(&folder);
    assert_eq!(rows.len(), 5, "upsampled has no row at the coarsest resolution: {rows:?}");
    for spacing_mm in [8.0, 4.0] {
        let [before, after] =
            ["identity", "greedy"].map(|method| number(&rows, method, spacing_mm, "dice"));
        // The known warps of 3 mm per component cost the labels several hundredths of Dice.
        assert!(after > before + 0.03, "{spacing_mm} mm: {before} to {after}");
        assert!(number(&rows, "greedy", spacing_mm, "gb_hours") > 0.0);
    }
    let upsampled = number(&rows, "greedy at 8 mm, upsampled", 4.0, "dice");
    let identity = number(&rows, "identity", 4.0, "dice");
    assert!(upsampled > identity, "{identity} to {upsampled}");
    assert!(
        rows[0]["seconds"].is_null() && rows[0]["folds"].is_null(),
        "the identity: {}",
        rows[0]
    );
    assert!(
        run.stdout.contains("| 4 mm | greedy at 8 mm, upsampled | cpu | 1 |"),
        "{}",
        run.stdout
    );
    for name in ["results.csv", "tables.md", "accuracy_over_time.svg", "accuracy_over_memory.svg"] {
        assert!(folder.has(&format!("out/{name}")), "{name}");
    }

    // A second run has nothing to do, and adds to what is there when asked for more.
    let again = bench(&folder, &methods);
    again.succeeded();
    assert!(!again.stderr.contains("to measure it"), "{}", again.stderr);
    assert_eq!(self::rows(&folder), rows);
    bench(&folder, &["--methods", "affine"]).succeeded();
    assert_eq!(self::rows(&folder).len(), rows.len() + 2);
}

/// The two labels of a map that have most voxels.
fn largest_labels(file: &str) -> [i32; 2] {
    let map = read_labels(file).expect("labels");
    let voxels = |id: i32| map.data.iter().filter(|label| **label == id).count();
    let mut ids = map.ids();
    ids.sort_by_key(|id| Reverse(voxels(*id)));
    [ids[0], ids[1]]
}

#[test]
fn a_person_names_the_labels_of_a_comparison() {
    let folder = Folder::new();
    subjects(&folder);
    let [first, second] = largest_labels(&folder.path("data/8mm/subject-001_labels.nii.gz"));
    let (table, ids) = (folder.path("names.tsv"), format!("{first},{second}"));
    bench(&folder, &["--methods", "identity", "--labels", &ids]).succeeded();
    let csv = || fs::read_to_string(folder.path("out/labels.csv")).expect("written");
    assert_eq!(csv().matches(&format!(",identity,cpu,{first},,")).count(), 2, "{}", csv());
    // The table names the labels of earlier rows as well.
    fs::write(&table, format!("label\tname\n{first}\tCortex, left\n")).expect("writable");
    let named = |method| ["--methods", method, "--labels", &ids, "--label-names", &table];
    bench(&folder, &named("identity")).succeeded();
    let rows = self::rows(&folder);
    assert!(rows.iter().all(|row| row["of_labels"][0]["name"] == "Cortex, left"), "{rows:?}");
    let named = named("affine");
    bench(&folder, &named).succeeded();
    let rows = self::rows(&folder);
    assert_eq!(rows.len(), 4, "{rows:?}");
    for row in &rows {
        let labels = row["of_labels"].as_array().expect("a list");
        assert!(labels.len() == 2 && labels[0]["id"] == first, "{row}");
        assert_eq!(labels[0]["name"], "Cortex, left");
        assert!(labels[1]["id"] == second && labels[1].get("name").is_none(), "{row}");
        let dice: f64 = labels.iter().filter_map(|label| label["dice"].as_f64()).sum();
        assert!((dice / 2.0 - row["dice"].as_f64().expect("a number")).abs() < 1e-9, "{row}");
    }
    assert_eq!(csv().matches(&format!(",{first},\"Cortex, left\",")).count(), 4, "{}", csv());
    assert_eq!(csv().lines().count(), 1 + 4 * 2);
    fs::write(&table, "no,table\n").expect("writable");
    let run = bench(&folder, &named);
    assert!(run.code == 1 && run.stderr.contains("id and name"), "{}", run.stderr);
    // All rows are there, with labels that are not asked for.
    let run = bench(&folder, &["--methods", "affine", "--labels", &first.to_string()]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stderr.contains(&format!("counts label {second}")), "{}", run.stderr);
}

#[test]
fn a_network_is_compared_on_the_whole_image_and_in_patches() {
    let folder = Folder::new();
    subjects(&folder);
    let [data, run] = ["data/8mm", "run"].map(|name| folder.path(name));
    let epoch = ["--epochs", "1", "--network", "voxelmorph", "--plain", "--device", "cpu"];
    ffdp(&[&["train", "--data", &data, "--output", &run], &epoch[..]].concat()).succeeded();
    let methods = ["--methods", "identity,network,patches"];
    let without = bench(&folder, &methods);
    assert_eq!(without.code, 1);
    assert!(without.stderr.contains("needs a network"), "{}", without.stderr);
    assert!(without.stderr.contains("--model"), "{}", without.stderr);

    bench(&folder, &[&methods[..], &["--model", &run]].concat()).succeeded();
    let rows = self::rows(&folder);
    assert_eq!(rows.len(), 5, "the coarsest resolution is one patch: {rows:?}");
    for (method, spacing_mm) in [
        ("VoxelMorph", 8.0),
        ("VoxelMorph on the whole image, upsampled", 4.0),
        ("VoxelMorph in patches", 4.0),
    ] {
        // After two steps a network still moves little, so neither may its map, whatever its grid.
        let change = number(&rows, method, spacing_mm, "dice")
            - number(&rows, "identity", spacing_mm, "dice");
        assert!(change.abs() < 0.05, "{method}: {change}");
        assert!(number(&rows, method, spacing_mm, "sd_log_jacobian") > 0.0, "{method}");
        assert!(number(&rows, method, spacing_mm, "seconds") > 0.0, "{method}");
    }
}

#[test]
fn mistakes_are_named() {
    let folder = Folder::new();
    subjects(&folder);
    let unknown = bench(&folder, &["--labels", "99"]);
    assert_eq!(unknown.code, 1);
    assert!(
        unknown.stderr.contains("99") && unknown.stderr.contains("help:"),
        "{}",
        unknown.stderr
    );

    let list = folder.path("data/4mm/pairs.csv");
    let output = folder.path("out");
    let twice = ffdp(&["bench", "registration", &list, &list, "-o", &output, "--device", "cpu"]);
    assert_eq!(twice.code, 1);
    assert!(twice.stderr.contains("two pairs at 4 mm"), "{}", twice.stderr);

    let text = fs::read_to_string(&list).expect("written by synth");
    fs::write(&list, text.replace("subject-001_labels.nii.gz", "nowhere.nii.gz"))
        .expect("writable");
    let missing = ffdp(&["bench", "registration", &list, "-o", &output, "--device", "cpu"]);
    assert_eq!(missing.code, 1);
    assert!(missing.stderr.contains("nowhere.nii.gz"), "{}", missing.stderr);
}
