//! What a person types and expects: headings, flags that are the same everywhere, folders and tables that are taken.

use std::fs;

use ffdp_image::image::{Affine, Geometry, Volume};
use ffdp_image::io::images::{read_displacement, read_volume, write_volume};
use ffdp_image::io::{LandmarkSpace, write_affine, write_landmarks};
use serde_json::Value;

use crate::support::{Folder, ffdp, relative_difference, write_pair};
use crate::{register, register_with};

const FEW: [&str; 4] = ["--shrink", "2,1", "--iterations", "6,4"];

/// Voxels of a file are f32, in mm or as logarithms.
const FILE_ROUNDING: f64 = 1e-4;

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON only")
}

fn number(json: &Value, pointer: &str) -> f64 {
    let value = json.pointer(pointer).and_then(Value::as_f64);
    value.unwrap_or_else(|| panic!("no number at {pointer} in {json}"))
}

/// The files of `write_pair`: labels of both images as flags, and landmarks with a head.
fn labels(folder: &Folder) -> [String; 4] {
    let [fixed, moving] = ["fixed_labels.nii.gz", "moving_labels.nii.gz"].map(|n| folder.path(n));
    ["--fixed-labels".into(), fixed, "--moving-labels".into(), moving]
}

#[test]
fn a_person_asks_for_the_short_and_the_long_help() {
    for command in ["register", "measure", "apply", "template", "fuse", "train", "predict", "plan"]
    {
        let [short, long] = ["-h", "--help"].map(|help| ffdp(&[command, help]).stdout);
        for heading in ["Inputs:", "Output:"] {
            assert!(short.contains(heading) && long.contains(heading), "{command}: {short}");
        }
        assert!(long.contains("Values:"), "{command}: {long}");
        assert!(short.lines().count() < long.lines().count() / 2, "{command}: {short}");
    }
}

#[test]
fn a_person_asks_for_the_map_of_volume_change() {
    let folder = Folder::new();
    let pair = write_pair(&folder, 32, 3);
    let map = |out: &str, more: &[&str]| -> (Volume, Value) {
        let more = [&FEW[..], &["--jacobian", "--json"], more].concat();
        let run = register(&folder, "fixed.nii.gz", "moving.nii.gz", out, &more);
        run.succeeded();
        let map = read_volume(folder.path(&format!("{out}/log_jacobian.nii.gz"))).expect("written");
        (map, json(&run.stdout))
    };
    let (whole, metrics) = map("whole", &[]);
    assert!(whole.geometry.same_grid(&pair.fixed.image.geometry, 1e-3));
    let [least, most] = whole.min_max().map(|(a, b)| [a, b].map(f64::from)).expect("voxels");
    for (found, at) in [(least, "min"), (most, "max")] {
        let det = number(&metrics, &format!("/folds/jacobian_central/{at}"));
        assert!((found.exp() - det).abs() < FILE_ROUNDING * det, "{at}: {found} {det}");
    }
    assert!(least < -0.02 && most > 0.02, "the pair is deformed: {least} {most}");
    // What was measured by itself, of the displacement in its file.
    let (values, grid) = read_displacement(folder.path("whole/warp.nii.gz")).expect("written");
    let own = ffdp_image::metrics::jacobian_determinants(
        &values,
        grid.size,
        ffdp_image::metrics::Difference::Central,
    );
    let own: Vec<f32> = own.expect("its size").into_iter().map(|det| det.max(1e-3).ln()).collect();
    assert!(relative_difference(&whole.data, &own) < FILE_ROUNDING);
    // Slab by slab the registration is the same up to sums in another order.
    let (slabs, _) = map("slabs", &["--slabs"]);
    let difference = relative_difference(&slabs.data, &whole.data);
    assert!(difference < 0.02, "{difference}");
    let without = register(&folder, "fixed.nii.gz", "moving.nii.gz", "without", &FEW);
    without.succeeded();
    assert!(!folder.has("without/log_jacobian.nii.gz"));
}

#[test]
fn a_person_names_labels_by_a_table_of_itk_snap() {
    let folder = Folder::new();
    let pair = write_pair(&folder, 32, 3);
    let id = pair.fixed.labels.ids()[1];
    let table = folder.path("labels.txt");
    let text = format!(
        "# ITK-SnAP\n    0 0 0 0 0 0 0 \"Clear Label\"\n {id} 9 9 9 1 1 1 \"Left, cortex\"\n"
    );
    fs::write(&table, text).expect("writable");
    let points = ["fixed.csv", "moving.csv"].map(|name| folder.path(name));
    let centre = pair.fixed.image.geometry.center_mm();
    for (file, shift) in points.iter().zip([0.0, 4.0]) {
        let at = [centre[0] + shift, centre[1], centre[2]];
        write_landmarks(file, &[at], &LandmarkSpace::Ras).expect("writable");
    }
    let labels = labels(&folder);
    let labels = labels.each_ref().map(String::as_str);
    let named = ["--label-names", &table, "--landmarks", &points[0], &points[1], "--json"];
    let more = [&FEW[..], &labels, &named].concat();
    let run = register(&folder, "fixed.nii.gz", "moving.nii.gz", "out", &more);
    run.succeeded();
    let name_of = |list: &Value| -> Option<String> {
        let mut labels = list.as_array().expect("a list").iter();
        let label = labels.find(|label| label["id"] == id).expect("the label");
        Some(label["name"].as_str()?.to_string())
    };
    let metrics = json(&run.stdout);
    assert_eq!(name_of(&metrics["dice"]["labels"]).as_deref(), Some("Left, cortex"));
    let csv = fs::read_to_string(folder.path("out/labels.csv")).expect("written");
    let line = csv.lines().find(|line| line.starts_with(&format!("{id},"))).expect("a line");
    assert!(line.starts_with(&format!("{id},\"Left, cortex\",")), "{csv}");
    assert_eq!(
        csv.lines().count(),
        1 + metrics["dice"]["labels"].as_array().expect("labels").len()
    );
    let page = fs::read_to_string(folder.path("out/report.html")).expect("written");
    for word in ["Left, cortex", "Borders of labels", "type=\"range\"", "Turned about", "Sheared"] {
        assert!(page.contains(word), "no {word} in the report");
    }

    // Slab by slab what is seen is looked up at the pixels.
    let slabs = [&FEW[..], &labels, &["--slabs", "--label-names", &table]].concat();
    register(&folder, "fixed.nii.gz", "moving.nii.gz", "slabs", &slabs).succeeded();
    let page = fs::read_to_string(folder.path("slabs/report.html")).expect("written");
    assert!(page.contains("Left, cortex") && page.contains("Borders of labels"));

    let run = ffdp(&[&["measure", "--label-names", &table], &labels[..]].concat());
    run.succeeded();
    assert!(run.stdout.contains("Left, cortex"), "{}", run.stdout);
    let alone =
        register(&folder, "fixed.nii.gz", "moving.nii.gz", "alone", &["--label-names", &table]);
    assert!(alone.code == 1 && alone.stderr.contains("--fixed-labels"), "{}", alone.stderr);
    fs::write(&table, "no,table\n").expect("writable");
    let run = ffdp(&[&["measure", "--label-names", &table], &labels[..]].concat());
    assert!(run.code == 1 && run.stderr.contains("id and name"), "{}", run.stderr);
}

#[test]
fn a_person_chooses_where_the_linear_stages_begin() {
    let folder = Folder::new();
    let pair = write_pair(&folder, 24, 3);
    // Its header places it far away; the middles of the grids are right.
    let Volume { data, geometry } = pair.fixed.image;
    let origin = geometry.origin_mm.map(|mm| mm + 400.0);
    let far = geometry.with_origin(origin).expect("finite");
    write_volume(folder.path("far.nii.gz"), &Volume { data, geometry: far }).expect("writable");
    let run = |centre: &str, moving: &str| {
        let flags =
            ["--centre", centre, "--transform", "rigid", "--shrink", "2", "--iterations", "8"];
        let flags = [&flags[..], &["--json"]].concat();
        register_with(&folder, "fixed.nii.gz", moving, centre, &flags)
    };
    let geometry = run("geometry", "far.nii.gz");
    geometry.succeeded();
    let geometry = json(&geometry.stdout);
    let shift = geometry["affine_parts"]["shift_mm"].as_array().expect("three");
    assert!(shift.iter().all(|mm| (mm.as_f64().expect("mm") - 400.0).abs() < 2.0), "{shift:?}");
    assert_eq!(geometry["settings"]["stages"][0]["centre"], "frame", "{geometry}");
    let header = run("header", "moving.nii.gz");
    header.succeeded();
    assert_eq!(json(&header.stdout)["settings"]["stages"].as_array().expect("stages").len(), 1);
    let lost = run("header", "far.nii.gz");
    assert_eq!(lost.code, 1, "by the headers they do not meet: {}", lost.stderr);
    let moments = run("moments", "far.nii.gz");
    moments.succeeded();
    assert_eq!(json(&moments.stdout)["settings"]["stages"][0]["centre"], "mass");
}

#[test]
fn a_person_converts_by_place_or_by_flags() {
    let folder = Folder::new();
    write_pair(&folder, 16, 3);
    let from = folder.path("fixed.nii.gz");
    let results = ["a.nrrd", "b.nrrd", "c.nrrd"].map(|name| folder.path(name));
    ffdp(&["convert", &from, &results[0]]).succeeded();
    ffdp(&["convert", "-i", &from, "-o", &results[1]]).succeeded();
    ffdp(&["convert", &from, "--output", &results[2]]).succeeded();
    let bytes = results.each_ref().map(|path| fs::read(path).expect("written"));
    assert!(bytes[0] == bytes[1] && bytes[0] == bytes[2]);
    for wrong in [&[&*from][..], &[], &[&from, &results[0], "-o", &results[1]]] {
        let run = ffdp(&[&["convert"], wrong].concat());
        assert!(run.code == 1 && run.stderr.contains("-i IN -o OUT"), "{wrong:?}: {}", run.stderr);
    }
}

#[test]
fn a_person_plans_without_files() {
    let peak = |size: &[&str]| {
        let run = ffdp(&[&["plan", "--json"], size].concat());
        run.succeeded();
        number(&json(&run.stdout), "/host_peak_bytes")
    };
    let large = peak(&["--size", "256x256x200"]);
    assert_eq!(large, peak(&["--size", "256,256,200", "--spacing", "1"]));
    assert!(large > 4.0 * peak(&["--size", "128"]), "{large}");
    // The level of a search is 112 voxels long: by 1.714 fewer.
    let searched = ffdp(&["plan", "--size", "192x160x192", "--preset", "hard"]);
    searched.succeeded();
    let words: Vec<Vec<&str>> =
        searched.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    let level =
        words.iter().find(|words| words.first() == Some(&"discrete")).expect("a line of the stage");
    assert_eq!(level[1..7], ["1.71", "112", "x", "93", "x", "112"], "{}", searched.stdout);
    let folder = Folder::new();
    let grid = Geometry::new([40, 30, 20], [1.0, 1.0, 2.0]).expect("positive");
    let image = Volume::new((0..grid.len()).map(|i| i as f32).collect(), grid).expect("it fits");
    let file = folder.path("image.nii.gz");
    write_volume(&file, &image).expect("writable");
    assert_eq!(
        peak(&["-f", &file, "-m", &file]),
        peak(&["--size", "40,30,20", "--spacing", "1,1,2"])
    );
    for (wrong, word) in
        [(&["--size", "1,2"][..], "--size"), (&[], "--size"), (&["-f", &file], "--moving")]
    {
        let run = ffdp(&[&["plan"], wrong].concat());
        assert!(run.code == 1 && run.stderr.contains(word), "{wrong:?}: {}", run.stderr);
    }
}

#[test]
fn a_person_looks_at_transforms_and_folders_of_results() {
    let folder = Folder::new();
    write_pair(&folder, 24, 3);
    let affine = folder.path("a.txt");
    let rows = [[0.0, -2.0, 0.0, 3.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, -4.0]];
    write_affine(&affine, &Affine::from_rows(rows)).expect("writable");
    let info = json(&ffdp(&["info", "--json", &affine]).stdout);
    assert_eq!(info["steps"][0]["kind"], "affine");
    for (pointer, expected) in [
        ("/steps/0/determinant", 2.0),
        ("/steps/0/parts/turns_degrees/2", 90.0),
        ("/steps/0/parts/scales/1", 2.0),
        ("/steps/0/parts/shift_mm/2", -4.0),
    ] {
        // The file has LPS millimetres in decimal.
        assert!((number(&info, pointer) - expected).abs() < 1e-9, "{pointer}: {info}");
    }
    let run = register(
        &folder,
        "fixed.nii.gz",
        "moving.nii.gz",
        "out",
        &[&FEW[..], &["--json"]].concat(),
    );
    run.succeeded();
    let metrics = json(&run.stdout);
    let out = folder.path("out");
    let info = json(&ffdp(&["info", "--json", &out]).stdout);
    let kinds: Vec<&Value> =
        info["steps"].as_array().expect("steps").iter().map(|s| &s["kind"]).collect();
    assert_eq!(kinds, ["displacement", "affine"]);
    for (here, there) in [
        ("/steps/0/displacement_mm/mean", "/displacement_mm/mean"),
        ("/steps/0/displacement_mm/max", "/displacement_mm/max"),
        ("/steps/0/determinant/min", "/folds/jacobian_central/min"),
    ] {
        let (here, there) = (number(&info, here), number(&metrics, there));
        assert!((here - there).abs() < FILE_ROUNDING * there.abs().max(1.0), "{here} {there}");
    }
    let text = ffdp(&["info", &out, &folder.path("fixed.nii.gz")]).stdout;
    for word in ["displacement", "affine", "det J", "turns", "voxel type"] {
        assert!(text.contains(word), "no {word} in {text}");
    }
}

#[test]
fn a_person_measures_and_warps_by_a_folder_of_results() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    let labels = labels(&folder);
    let labels = labels.each_ref().map(String::as_str);
    let more = [&FEW[..], &labels, &["--json"]].concat();
    let run = register(&folder, "fixed.nii.gz", "moving.nii.gz", "out", &more);
    run.succeeded();
    let metrics = json(&run.stdout);
    let [fixed, moving, out, warped] =
        ["fixed.nii.gz", "moving.nii.gz", "out", "warped.nii"].map(|name| folder.path(name));
    let images = ["--fixed", &fixed, "--moving", &moving];
    let measure = |more: &[&str]| {
        let run = ffdp(&[&["measure", "--json"], &images[..], &labels, more].concat());
        run.succeeded();
        json(&run.stdout)
    };
    let through = measure(&["-t", &out]);
    // Nearest labels may differ at a few voxels by the rounding of the displacement's file.
    let dice = number(&through, "/labels/mean/dice");
    assert!((dice - number(&metrics, "/dice/mean/after")).abs() < 1e-3, "{dice}");
    let (folds, least) = (number(&through, "/jacobian/true_folds"), "/jacobian/central/min");
    assert_eq!(folds, number(&metrics, "/folds/voxels"));
    let least = (number(&through, least), number(&metrics, "/folds/jacobian_central/min"));
    assert!((least.0 - least.1).abs() < 1e-3, "{least:?}");
    let [warp, affine] = ["out/warp.nii.gz", "out/affine.txt"].map(|name| folder.path(name));
    assert_eq!(through["labels"], measure(&["-t", &warp, "-t", &affine])["labels"]);
    // A list has the transforms in a column.
    let list = folder.path("pairs.csv");
    let [_, fixed_labels, _, moving_labels] = labels;
    let line = format!("{fixed_labels},{moving_labels},{out}");
    fs::write(&list, format!("fixed_labels,moving_labels,transform\n{line}\n")).expect("writable");
    let run = ffdp(&["measure", "--pairs", &list, "--json"]);
    run.succeeded();
    assert!(run.stdout.contains(&format!("{dice}")), "{dice} in {}", run.stdout);

    // The folder as a transform, and none at all: the image by its header.
    ffdp(&["apply", "-i", &moving, "-r", &fixed, "-t", &out, "-o", &warped]).succeeded();
    let read = |path: &str| read_volume(path).expect("written");
    let found = read(&folder.path("out/warped.nii.gz"));
    assert!(relative_difference(&read(&warped).data, &found.data) < FILE_ROUNDING);
    ffdp(&["apply", "-i", &moving, "-r", &fixed, "-o", &warped]).succeeded();
    let shown = read(&warped);
    assert!(shown.geometry.same_grid(&found.geometry, 1e-3));
    assert!(relative_difference(&shown.data, &found.data) > 0.01, "it was not deformed");
    let nothing = ffdp(&["apply", "-i", &moving, "-o", &warped]);
    assert!(nothing.code == 1 && nothing.stderr.contains("--reference"), "{}", nothing.stderr);
}
