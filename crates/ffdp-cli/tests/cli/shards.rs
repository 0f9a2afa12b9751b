//! `--devices`, `--shards`, `--device-memory`: the same result in parts, and what is refused.

use std::fs;

use ffdp_image::image::{Geometry, LabelMap};
use ffdp_image::io::images::{
    VolumeWriter, read_displacement, read_labels, read_volume, write_labels,
};
use serde_json::Value;

use crate::register;
use crate::support::{Folder, ffdp, relative_difference, write_masks, write_pair};

/// The library's bound on the field of a registration in shards, here in mm: voxels of the pair are 6 mm
/// at most.
const FIELD_MM: f32 = 6e-3;

#[test]
fn shards_give_the_same_displacement() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    let field = |out: &str, more: &[&str]| {
        let few = ["--shrink", "2,1", "--iterations", "10,6"];
        let run = register(&folder, "fixed.nii.gz", "moving.nii.gz", out, &[&few, more].concat());
        run.succeeded();
        let field = read_displacement(folder.path(&format!("{out}/warp.nii.gz"))).expect("ITK").0;
        (field, run.stderr)
    };
    let (whole, _) = field("whole", &[]);
    let (cut, talk) = field("cut", &["--shards", "3", "-v"]);
    assert!(talk.contains("3 shards"), "{talk}");
    let off = whole.iter().zip(&cut).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
    assert!(off <= FIELD_MM, "{off} mm");
    let (listed, _) = field("listed", &["--devices", "cpu", "--shards", "3"]);
    assert!(listed.iter().zip(&cut).all(|(a, b)| a.to_bits() == b.to_bits()));
    // 85 bytes for each of 32^3 voxels: the whole takes 100, with the images that are not cut.
    let (_, talk) = field("memory", &["--device-memory", "0.0028", "-v"]);
    assert!(talk.contains(" shards"), "{talk}");
}

#[test]
fn meshes_that_make_no_sense_are_refused() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    for (more, words) in [
        (&["--shards", "0"][..], &["shard", "0"][..]),
        (&["--device-memory", "0"], &["positive", "0"]),
        (&["--device-memory", "0.001"], &["bytes", "available"]),
        (&["--device-memory", "8", "--shards", "2"], &["--shards"]),
        (&["--devices", "cpu,cpu"], &["once", "cpu", "--shards"]),
        (&["--devices", "cpu,gpu"], &["--devices", "gpu"]),
        (&["--devices", "cpu", "--device", "cpu"], &["--devices", "--device"]),
    ] {
        let run = register(&folder, "fixed.nii.gz", "moving.nii.gz", "out", more);
        assert_eq!(run.code, 1, "{more:?}: {}", run.stderr);
        for word in words {
            assert!(run.stderr.contains(word), "{more:?}: no {word:?} in {}", run.stderr);
        }
    }
}

#[test]
fn slabs_give_the_same_displacement_and_the_same_image() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    let run = |out: &str, more: &[&str]| {
        let few = ["--shrink", "2,1", "--iterations", "10,6", "--overwrite"];
        let run = register(&folder, "fixed.nii.gz", "moving.nii.gz", out, &[&few, more].concat());
        run.succeeded();
        let path = |name: &str| folder.path(&format!("{out}/{name}"));
        let field = read_displacement(path("warp.nii.gz")).expect("ITK").0;
        (field, read_volume(path("warped.nii.gz")).expect("an image").data, run)
    };
    let (whole, image, _) = run("whole", &[]);
    // 56 bytes for each of 32^3 voxels, of which 35 are given away; 44 rest.
    for more in [&["--slabs"][..], &["--slabs", "--device-memory", "0.00184"]] {
        let (cut, warped, run) = run("cut", more);
        let off = whole.iter().zip(&cut).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
        assert!(off <= FIELD_MM, "{more:?}: {off} mm");
        let off = relative_difference(&warped, &image);
        assert!(off <= 2e-3, "{more:?}: {off} of the range");
        assert!(run.stdout.contains("loss") && run.stdout.contains("folds"), "{}", run.stdout);
        for name in ["affine.txt", "metrics.json", "settings.toml", "log.jsonl"] {
            assert!(folder.has(&format!("cut/{name}")), "{more:?}: no {name}");
        }
    }
    let image = folder.path("moving.nii.gz");
    let labels = ["fixed_labels.nii.gz", "moving_labels.nii.gz"].map(|name| folder.path(name));
    let flags = ["--fixed-labels", &labels[0], "--moving-labels", &labels[1]];
    let dice = |out: &str, more: &[&str]| {
        run(out, &[&flags, more].concat());
        let metrics = fs::read_to_string(folder.path(&format!("{out}/metrics.json")));
        let metrics: Value = serde_json::from_str(&metrics.expect("written")).expect("JSON");
        let labels = read_labels(folder.path(&format!("{out}/warped_labels.nii.gz")));
        (metrics["dice"]["mean"].clone(), labels.expect("labels"))
    };
    let [(whole, map), (cut, other)] = [dice("whole", &[]), dice("cut", &["--slabs"])];
    for which in ["before", "after"] {
        let [a, b] = [&whole, &cut].map(|mean| mean[which].as_f64().expect("a number"));
        assert!(a > 0.1 && (a - b).abs() < 1e-3, "{which}: {a} {b}");
    }
    let apart = map.data.iter().zip(&other.data).filter(|(a, b)| a != b).count();
    assert!(apart * 1000 < map.data.len(), "{apart} labels differ");
    for (more, word) in [
        (&["--slabs", "--nan-policy", "zero"][..], "NaN"),
        (&["--slabs", "--moving-labels", &image], "pass an intensity image as an image"),
    ] {
        let run = register(&folder, "fixed.nii.gz", "moving.nii.gz", "out", more);
        assert_eq!(run.code, 1, "{more:?}: {}", run.stderr);
        assert!(run.stderr.contains(word), "{more:?}: no {word:?} in {}", run.stderr);
    }
}

#[test]
fn masks_count_in_shards_and_slabs_as_in_the_whole() {
    let folder = Folder::new();
    let pair = write_pair(&folder, 32, 3);
    let masks = write_masks(&folder, &pair);
    let flags = ["--fixed-mask", &masks[0], "--moving-mask", &masks[1]];
    let field = |out: &str, more: &[&str]| {
        let few = ["--shrink", "2,1", "--iterations", "10,6"];
        let run = register(&folder, "fixed.nii.gz", "moving.nii.gz", out, &[&few, more].concat());
        run.succeeded();
        read_displacement(folder.path(&format!("{out}/warp.nii.gz"))).expect("ITK").0
    };
    let off =
        |a: &[f32], b: &[f32]| a.iter().zip(b).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
    let (plain, whole) = (field("plain", &[]), field("whole", &flags));
    assert!(off(&plain, &whole) > 1.0, "masks matter");
    for (out, more) in [("shards", &["--shards", "3"][..]), ("slabs", &["--slabs"])] {
        let off = off(&field(out, &[&flags, more].concat()), &whole);
        assert!(off <= FIELD_MM, "{out}: {off} mm");
    }
}

/// Writes a ball with stripes, off the centre by `shift` voxels, plane by plane.
fn write_ball(path: &str, size: usize, shift: f32) {
    let geometry = Geometry::new([size; 3], [1.0; 3]).expect("positive");
    let mut file = VolumeWriter::create(path, &geometry).expect("writable");
    let centre = size as f32 / 2.0;
    for z in 0..size {
        let value = |i: usize| {
            let p = [i % size, i / size, z].map(|i| i as f32 - centre);
            let square = (p[0] - shift).powi(2) + p[1].powi(2) + p[2].powi(2);
            let stripes = 1.5 + (0.1 * (p[0] - shift)).sin() + (0.13 * p[1]).cos() * 0.5;
            if square < (0.4 * size as f32).powi(2) { 100.0 * stripes } else { 0.0 }
        };
        let plane: Vec<f32> = (0..size * size).map(value).collect();
        file.write(&plane).expect("writable");
    }
    file.finish().expect("writable");
}

#[test]
fn a_run_of_slabs_takes_less_memory_than_one_of_its_images() {
    let folder = Folder::new();
    let size = 416;
    for (name, shift) in [("fixed.nii", 0.0), ("moving.nii", 8.0)] {
        write_ball(&folder.path(name), size, shift);
    }
    let few = ["--slabs", "--shrink", "8,4", "--iterations", "10,5", "--json"];
    let run = register(&folder, "fixed.nii", "moving.nii", "out", &few);
    run.succeeded();
    let metrics: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON");
    assert!(metrics["loss"]["after"].as_f64() < metrics["loss"]["before"].as_f64(), "{metrics}");
    // Where the system does not say there is nothing to compare.
    let Some(peak) = metrics["peak_memory_bytes"].as_u64() else { return };
    let image = 4 * (size as u64).pow(3);
    println!("{} MB for images of {} MB each", peak / 1_000_000, image / 1_000_000);
    // Whole images are held six times in all, as they were read, scaled, and as tensors. Levels of linear stages, and the
    // planes of the moving image that are read at a time, take about as much as one.
    assert!(4 * peak < 5 * image, "{peak} bytes for an image of {image}");
    let plan =
        register(&folder, "fixed.nii", "moving.nii", "none", &[&few[..], &["--plan"]].concat());
    plan.succeeded();
    let plan: serde_json::Value = serde_json::from_str(&plan.stdout).expect("JSON");
    let planned = plan["host_peak_bytes"].as_u64().expect("bytes");
    println!("planned {} MB", planned / 1_000_000);
    // The peak varies with what threads hold at a time: 243 to 319 MB, of 324 planned.
    assert!((0.9..1.4).contains(&(planned as f64 / peak as f64)), "{planned} of {peak}");
    assert!(!folder.has("none"), "nothing was done");
    // What rests in host memory is counted there.
    let short = [&few[..1], &["--shrink", "1", "--iterations", "1", "--plan", "--json"]].concat();
    let level = |more: &[&str]| {
        let plan = register(&folder, "fixed.nii", "moving.nii", "none", &[&short, more].concat());
        plan.succeeded();
        let plan: serde_json::Value = serde_json::from_str(&plan.stdout).expect("JSON");
        plan["levels"].as_array().expect("levels").last().expect("a level").clone()
    };
    let (whole, cut) = (level(&[]), level(&["--device-memory", "2"]));
    assert_eq!((&whole["shards"], &whole["shards_at_rest"]), (&1.into(), &0.into()));
    let at_rest = cut["shards_at_rest"].as_u64().expect("a number");
    assert!(at_rest > 0 && Some(at_rest) < cut["shards"].as_u64(), "{cut}");
}

/// By its plan as well, and before a run begins.
#[test]
fn gnk_is_refused_where_shards_would_rest_in_host_memory() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    let gnk =
        ["--transform", "gnk", "--metric", "mse", "--shrink", "1", "--iterations", "1", "--slabs"];
    let run = |more: &[&str]| {
        register(&folder, "fixed.nii.gz", "moving.nii.gz", "out", &[&gnk[..], more].concat())
    };
    // 32^3 voxels of 324 bytes are 10.6 MB, more than there is; one plane of them at work has room.
    for plan in [&["--plan"][..], &[]] {
        let refused = run(&[&["--device-memory", "0.01"], plan].concat());
        assert_eq!(refused.code, 1, "{}", refused.stderr);
        assert!(refused.stderr.contains("level of gnk"), "{}", refused.stderr);
        assert!(!folder.has("out/log.jsonl"), "it began");
    }
    run(&["--device-memory", "0.1", "--plan"]).succeeded();
}

/// What once took whole images: SyN slab by slab has its inverse, and the stiff preset goes on in shards.
#[test]
fn every_method_goes_slab_by_slab_and_in_shards() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    let few = ["--iterations", "4,2", "--shrink", "2,1"];
    // Greedy's inverse is solved for whole images alone.
    let fields = |out: &str, more: &[&str]| {
        let flags = [&few[..], more].concat();
        let run = register(&folder, "fixed.nii.gz", "moving.nii.gz", out, &flags);
        assert_eq!(run.code, 0, "{more:?}: {}", run.stderr);
        let files = ["warp.nii.gz", "inverse_warp.nii.gz"];
        let count = if more.contains(&"--multimodal") { 1 } else { 2 };
        files[..count]
            .iter()
            .map(|file| {
                let path = folder.path(&format!("{out}/{file}"));
                (*file, read_displacement(path).expect("it was written").0)
            })
            .collect::<Vec<_>>()
    };
    for (name, more) in [
        ("syn", &["--transform", "syn"][..]),
        ("svf", &["--transform", "svf"]),
        ("multimodal", &["--multimodal"]),
    ] {
        let whole = fields(&format!("{name}_whole"), more);
        for (i, place) in [&["--slabs"][..], &["--shards", "3"]].into_iter().enumerate() {
            let parts = fields(&format!("{name}_{i}"), &[more, place].concat());
            for ((file, whole), (_, parts)) in whole.iter().zip(&parts) {
                let off = whole.iter().zip(parts).map(|(a, b)| (a - b).abs());
                let off = off.fold(0.0, f32::max);
                assert!(off <= FIELD_MM, "{name} {place:?} {file}: {off} mm");
            }
        }
    }
}

#[test]
fn large_labels_are_carried_exactly_slab_by_slab() {
    let folder = Folder::new();
    let pair = write_pair(&folder, 32, 3);
    // f32 has every 64th number here.
    let large = |label: i32| if label == 0 { 0 } else { 614_454_200 + label };
    for (name, labels) in [("fixed", &pair.fixed.labels), ("moving", &pair.moving.labels)] {
        let data = labels.data.iter().map(|label| large(*label)).collect();
        let labels = LabelMap::new(data, labels.geometry.clone()).expect("the same number");
        write_labels(folder.path(&format!("{name}_large.nii.gz")), &labels).expect("writable");
    }
    let run = |kind: &str| {
        let [fixed, moving] =
            ["fixed", "moving"].map(|side| folder.path(&format!("{side}_{kind}.nii.gz")));
        let labels = ["--fixed-labels", &fixed, "--moving-labels", &moving, "--slabs", "--json"];
        let more = [&["--shrink", "2", "--iterations", "5"][..], &labels].concat();
        let run = register(&folder, "fixed.nii.gz", "moving.nii.gz", kind, &more);
        run.succeeded();
        let metrics: Value = serde_json::from_str(&run.stdout).expect("JSON");
        let warped = read_labels(folder.path(&format!("{kind}/warped_labels.nii.gz")));
        (metrics["dice"]["mean"].clone(), warped.expect("written").data)
    };
    let ((small_dice, small), (large_dice, got)) = (run("labels"), run("large"));
    let expected: Vec<i32> = small.iter().map(|label| large(*label)).collect();
    assert!(got == expected && small.iter().any(|label| *label != 0));
    assert_eq!(small_dice, large_dice);
}

#[test]
fn metrics_of_slabs_lack_no_measure_of_a_whole_run() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    let points = "x,y,z\n3,-20,11\n-40,7,33\n0,0,0\n";
    fs::write(folder.path("points.csv"), points).expect("writable");
    let files = ["fixed_labels.nii.gz", "moving_labels.nii.gz", "points.csv"];
    let [fixed, moving, points] = files.map(|name| folder.path(name));
    let given = ["--fixed-labels", &fixed, "--moving-labels", &moving, "--landmarks", &points];
    let few = ["--shrink", "2,1", "--iterations", "10,6", "--match-histograms", "--json"];
    let metrics = |out: &str, more: &[&str]| -> Value {
        let more = [&few[..], &given, &[points.as_str()], more].concat();
        let run = register(&folder, "fixed.nii.gz", "moving.nii.gz", out, &more);
        run.succeeded();
        serde_json::from_str(&run.stdout).expect("JSON")
    };
    let (whole, slabs) = (metrics("whole", &[]), metrics("slabs", &["--slabs"]));
    let names = |metrics: &Value| -> Vec<String> {
        metrics.as_object().expect("an object").keys().cloned().collect()
    };
    assert_eq!(names(&whole), names(&slabs));
    assert_eq!(whole["fixed"], slabs["fixed"]);
    for pointer in [
        "/similarity/before/ncc",
        "/similarity/before/local_ncc_foreground",
        "/similarity/after/ncc",
        "/similarity/after/local_ncc_foreground",
        "/similarity/after/nmi",
        "/overlap_percent/after",
        "/folds/jacobian_central/min",
        "/folds/jacobian_forward/median",
        "/folds/jacobian_backward/p99",
        "/folds/sd_log_jacobian",
        "/motion_mm/mean",
        "/displacement_mm/max",
        "/landmarks_mm/after/mean",
        "/dice/mean/after",
    ] {
        let [a, b] = [&whole, &slabs].map(|metrics| {
            metrics.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer}"))
        });
        assert!((a - b).abs() <= 5e-3 * a.abs().max(0.1), "{pointer}: {a} {b}");
    }
}

#[test]
fn a_run_of_slabs_has_a_report_with_every_picture() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    let few = ["--shrink", "2", "--iterations", "5", "--slabs"];
    for (out, more) in [("greedy", &[][..]), ("rigid", &["--transform", "rigid"])] {
        let [fixed, moving, to] = ["fixed.nii.gz", "moving.nii.gz", out].map(|n| folder.path(n));
        let base = ["register", "-f", &fixed, "-m", &moving, "-o", &to];
        let run = ffdp(&[&base[..], &few, more].concat());
        run.succeeded();
        let page = fs::read_to_string(folder.path(&format!("{out}/report.html"))).expect("it");
        assert_eq!(page.matches("data:image/png;base64").count(), 27, "{out}");
        for words in ["the middle of the fixed image", "Loss that was minimised", "Inputs", "Run"] {
            assert!(page.contains(words), "{out}: no {words:?}");
        }
        let source = |alt: &str| {
            let image = page.split("<img ").find(|image| image.contains(alt)).expect("a picture");
            image.split('"').nth(1).expect("its source").to_string()
        };
        let moved = source("alt=\"Images: moving, registered, axial plane\"");
        assert!(moved != source("alt=\"Images: moving, as its header places it, axial plane\""));
        assert!(moved != source("alt=\"Images: moving, registered, coronal plane\""));
    }
}
