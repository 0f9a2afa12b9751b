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

#[test]
fn a_method_is_ended_sooner_for_dice_over_time() {
    let folder = Folder::new();
    subjects(&folder);
    let methods = ["--methods", "identity,greedy"];
    bench(&folder, &methods).succeeded();
    let curve = |rows: &[Value], method: &str, spacing_mm: f64| -> Vec<f64> {
        let row =
            rows.iter().find(|row| row["method"] == method && row["spacing_mm"] == spacing_mm);
        let curve = row.and_then(|row| row["curve"].as_array()).into_iter().flatten();
        curve.map(|point| point["dice"].as_f64().expect("a number")).collect()
    };
    assert!(
        curve(&rows(&folder), "greedy", 4.0).is_empty() && !folder.has("out/dice_over_time.svg")
    );
    // Rows that are there get what they lack.
    bench(&folder, &[&methods[..], &["--curve"]].concat()).succeeded();
    let rows = self::rows(&folder);
    assert_eq!(rows.len(), 4);
    // One level of 8 mm, and at 4 mm one of 4: a quarter of it. Then the row itself.
    for spacing_mm in [8.0, 4.0] {
        let before = number(&rows, "identity", spacing_mm, "dice");
        let points = curve(&rows, "greedy", spacing_mm);
        assert!(points.len() == 1 && points[0] > before, "{spacing_mm} mm: {points:?}");
        assert!(curve(&rows, "identity", spacing_mm).is_empty());
    }
    assert!(folder.has("out/dice_over_time.svg"));
    let again = bench(&folder, &[&methods[..], &["--curve"]].concat());
    again.succeeded();
    assert!(!again.stderr.contains("to measure it"), "{}", again.stderr);
    let refused = bench(&folder, &["--methods", "identity", "--curve"]);
    assert!(refused.code == 1 && refused.stderr.contains("--curve"), "{}", refused.stderr);
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
    // Another training of such a network has the same name.
    let other = folder.path("other");
    ffdp(&[&["train", "--data", &data, "--output", &other, "--seed", "1"], &epoch[..]].concat())
        .succeeded();
    let run = bench(&folder, &["--methods", "network", "--model", &other]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    for word in ["with VoxelMorph already", "run/checkpoint", "other/checkpoint"] {
        assert!(run.stderr.contains(word), "no {word:?} in {}", run.stderr);
    }
}

#[test]
fn rows_of_files_that_were_rewritten_in_place_are_made_again() {
    let folder = Folder::new();
    subjects(&folder);
    bench(&folder, &["--methods", "identity,affine"]).succeeded();
    let before = self::rows(&folder);
    // Another brain under the name of the moving image: at the fine resolution alone.
    let [image, labels] = ["", "_labels"].map(|what| {
        let file = |subject: &str| folder.path(&format!("data/4mm/{subject}{what}.nii.gz"));
        let list = fs::read_to_string(folder.path("data/4mm/pairs.csv")).expect("written");
        let line = list.lines().nth(1).expect("a pair").to_string();
        let name = |at: usize| {
            let cell = line.split(',').nth(at).expect("four files").to_string();
            cell.trim_end_matches(".nii.gz").to_string()
        };
        (file(&name(0)), file(&name(1)))
    });
    for (fixed, moving) in [image, labels] {
        fs::copy(fixed, moving).expect("both are there");
    }
    let run = bench(&folder, &["--methods", "identity"]);
    run.succeeded();
    let after = self::rows(&folder);
    assert_eq!(after.len(), before.len(), "in the place of the old ones: {after:?}");
    assert_eq!(number(&after, "identity", 4.0, "dice"), 1.0, "a brain on itself");
    let coarse = |rows: &[Value]| number(rows, "identity", 8.0, "dice");
    assert_eq!(coarse(&after), coarse(&before), "those of other files stay");
    // What was not asked for is not made again, and said to be of other files.
    for word in ["at 4 mm with affine", "changed since", "--methods"] {
        assert!(run.stderr.contains(word), "no {word:?} in {}", run.stderr);
    }
    let run = bench(&folder, &["--methods", "identity,affine"]);
    run.succeeded();
    assert!(!run.stderr.contains("changed since"), "{}", run.stderr);
}

#[test]
fn a_row_of_other_files_under_the_same_name_is_no_row_of_these() {
    let folder = Folder::new();
    subjects(&folder);
    bench(&folder, &["--methods", "identity"]).succeeded();
    fs::rename(folder.path("data"), folder.path("elsewhere")).expect("ours");
    let [list, out] = ["elsewhere/8mm/pairs.csv", "out"].map(|name| folder.path(name));
    let base = ["bench", "registration", &list, "-o", &out, "--device", "cpu"];
    let run = ffdp(&[&base[..], &["--methods", "identity"]].concat());
    assert_eq!(run.code, 1, "{}", run.stderr);
    for word in ["there is a row of", "in place of", "another output folder"] {
        assert!(run.stderr.contains(word), "no {word:?} in {}", run.stderr);
    }
}

#[test]
fn a_model_that_no_method_uses_and_methods_without_a_row_are_refused() {
    let folder = Folder::new();
    subjects(&folder);
    let (list, out) = (folder.path("data/8mm/pairs.csv"), folder.path("out"));
    let base = ["bench", "registration", &list, "-o", &out, "--device", "cpu", "--methods"];
    for (more, words) in [
        (&["greedy", "--model", "run"][..], ["--model run", "network"]),
        (&["identity,upsampled"], ["--methods upsampled", "finer resolution"]),
    ] {
        let run = ffdp(&[&base[..], more].concat());
        assert_eq!(run.code, 1, "{more:?}: {}", run.stderr);
        for word in words {
            assert!(run.stderr.contains(word), "{more:?}: no {word:?} in {}", run.stderr);
        }
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
