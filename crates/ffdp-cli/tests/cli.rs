//! The binary as a user meets it: files in, files out, messages, exit codes.

#[path = "cli/apply.rs"]
mod apply;
#[path = "cli/cohort.rs"]
mod cohort;
#[path = "cli/effect.rs"]
mod effect;
#[path = "cli/flags.rs"]
mod flags;
#[path = "cli/folders.rs"]
mod folders;
#[path = "cli/labels.rs"]
mod labels;
#[path = "cli/linear.rs"]
mod linear;
#[path = "cli/outputs.rs"]
mod outputs;
#[path = "cli/planes.rs"]
mod planes;
#[path = "cli/reject.rs"]
mod reject;
#[path = "cli/resume.rs"]
mod resume;
#[path = "cli/settings.rs"]
mod settings;
#[path = "cli/shards.rs"]
mod shards;
mod support;
#[path = "cli/talk.rs"]
mod talk;
mod transforms;
#[path = "cli/verdict.rs"]
mod verdict;
#[path = "cli/zarr.rs"]
mod zarr;

use std::fs;

use ffdp_image::image::Volume;
use ffdp_image::io::images::{
    read_displacement, read_labels, read_volume, write_labels, write_volume,
};
use serde_json::Value;
use support::{Folder, ProcessOutput, ffdp, mean_error, relative_difference, restored, write_pair};

/// Two levels with few iterations: seconds on one core for 48^3 voxels.
const SHORT: [&str; 4] = ["--shrink", "2,1", "--iterations", "40,30"];

/// Displacements go through mm and f32 in the file: the image read with them differs by rounding.
const FILE_ROUNDING: f64 = 1e-4;

/// Rounding of coordinates is 1e-6 voxels; it may grow over iterations where gradients nearly vanish.
const STORAGE_ROUNDING_VOXELS: f32 = 1e-4;

fn register_with(
    folder: &Folder,
    fixed: &str,
    moving: &str,
    out: &str,
    more: &[&str],
) -> ProcessOutput {
    let [fixed, moving, out] = [fixed, moving, out].map(|name| folder.path(name));
    let arguments = ["register", "-f", &fixed, "-m", &moving, "-o", &out];
    ffdp(&[&arguments, more].concat())
}

/// With [`SHORT`], unless `more` has levels of its own.
fn register(folder: &Folder, fixed: &str, moving: &str, out: &str, more: &[&str]) -> ProcessOutput {
    let levels = SHORT.chunks(2).filter(|flag| !more.contains(&flag[0])).flatten().copied();
    let more: Vec<&str> = levels.chain(more.iter().copied()).chain(["--aligned"]).collect();
    register_with(folder, fixed, moving, out, &more)
}

#[test]
fn register_finds_a_known_warp_and_writes_what_it_promises() {
    let folder = Folder::new();
    let pair = write_pair(&folder, 48, 3);
    let labels = ["fixed_labels.nii.gz", "moving_labels.nii.gz"].map(|name| folder.path(name));
    let labels = ["--fixed-labels", &labels[0], "--moving-labels", &labels[1], "--json"];
    let run = register(&folder, "fixed.nii.gz", "moving.nii.gz", "new/out", &labels);
    run.succeeded();

    let metrics: Value = serde_json::from_str(&run.stdout).expect("--json prints JSON only");
    let written = fs::read_to_string(folder.path("new/out/metrics.json")).expect("written");
    assert_eq!(metrics, serde_json::from_str::<Value>(&written).expect("JSON"));
    let number = |path: &str| {
        let value = metrics.pointer(path).and_then(Value::as_f64);
        value.unwrap_or_else(|| panic!("no number at {path} in {written}"))
    };
    assert!(number("/dice/mean/after") > number("/dice/mean/before") + 0.15, "{written}");
    assert!(number("/similarity/after/ncc") > number("/similarity/before/ncc"));
    let local = "local_ncc_foreground";
    let local = |when: &str| number(&format!("/similarity/{when}/{local}"));
    assert!(local("after") > local("before") + 0.1, "{written}");
    assert_eq!(number("/folds/voxels"), 0.0);
    assert!(number("/folds/jacobian_central/min") > 0.0);
    assert_eq!(metrics["verdict"], "aligned");
    assert_eq!(metrics["settings"]["stages"][0]["levels"][0]["shrink"], 2.0);
    assert_eq!(metrics["stages"][0]["levels"].as_array().map(Vec::len), Some(2));

    let (field, geometry) = read_displacement(folder.path("new/out/warp.nii.gz")).expect("ITK");
    assert!(geometry.same_grid(&pair.fixed.image.geometry, 1e-3));
    let before = mean_error(&vec![0.0; field.len()], &pair);
    let after = mean_error(&field, &pair);
    // Measured: 0.511 of 2.04, as the engine's own test finds.
    assert!(after < 1.2 * 0.511, "error {before} -> {after} voxels");

    let warped = read_volume(folder.path("new/out/warped.nii.gz")).expect("written");
    assert!(warped.geometry.same_grid(&pair.fixed.image.geometry, 1e-3));
    assert!(!folder.has("new/out/checkpoint"), "a finished run leaves no checkpoint");
    assert!(run.stderr.contains("level 2/2"), "progress on stderr: {}", run.stderr);
}

#[test]
fn control_points_are_written_and_move_the_image_as_the_warp_does() {
    let folder = Folder::new();
    write_pair(&folder, 32, 4);
    let register = |out: &str, spacing: &str, more: &[&str]| {
        let ffd = ["--transform", "ffd", "--spacing-mm", spacing, "-q"];
        register(&folder, "fixed.nii.gz", "moving.nii.gz", out, &[&ffd, more].concat())
    };
    register("out", "20", &[]).succeeded();
    let path = |name: &str| folder.path(name);
    let (image, again) = (path("moving.nii.gz"), path("again.nii"));
    let (spline, like) = (path("out/bspline.tfm"), path("fixed.nii.gz"));
    ffdp(&["apply", "-i", &image, "-t", &spline, "-r", &like, "-o", &again]).succeeded();
    let expected = read_volume(path("out/warped.nii.gz")).expect("written");
    let applied = read_volume(&again).expect("written");
    let difference = relative_difference(&applied.data, &expected.data);
    assert!(difference < FILE_ROUNDING, "{difference}");
    let moved = relative_difference(&read_volume(&image).expect("there").data, &expected.data);
    assert!(moved > 0.05, "{moved}");
    // Slab by slab they are written too.
    register("slabs", "20,20,25", &["--slabs"]).succeeded();
    assert!(folder.has("slabs/bspline.tfm"));
    let refused = register("other", "20,20", &[]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("--spacing-mm") && refused.stderr.contains("three"));
}

#[test]
fn the_written_warp_applied_again_gives_the_written_results() {
    let folder = Folder::new();
    write_pair(&folder, 32, 4);
    let labels = folder.path("moving_labels.nii.gz");
    let more = ["--moving-labels", &labels, "-q"];
    let run = register(&folder, "fixed.nii.gz", "moving.nii.gz", "out", &more);
    run.succeeded();
    assert_eq!(run.stderr, "", "-q says nothing");
    assert_eq!(run.stdout, "", "-q wants no summary");

    let path = |name: &str| folder.path(name);
    let (warp, image, again) = (path("out/warp.nii.gz"), path("moving.nii.gz"), path("again.nii"));
    ffdp(&["apply", "-i", &image, "-t", &warp, "-o", &again]).succeeded();
    let expected = read_volume(path("out/warped.nii.gz")).expect("written");
    let applied = read_volume(&again).expect("written");
    assert!(applied.geometry.same_grid(&expected.geometry, 1e-6));
    let difference = relative_difference(&applied.data, &expected.data);
    assert!(difference < FILE_ROUNDING, "{difference}");

    let again = path("again_labels.nii.gz");
    ffdp(&["apply", "-i", &labels, "-t", &warp, "-o", &again, "--interpolation", "nearest"])
        .succeeded();
    let expected = read_labels(path("out/warped_labels.nii.gz")).expect("written");
    let applied = read_labels(&again).expect("written");
    let differing = applied.data.iter().zip(&expected.data).filter(|(a, b)| a != b).count();
    // Only where a rounded position crosses the middle between two voxels.
    assert!(differing <= 3, "{differing} labels differ");
    assert!(expected.ids().len() > 5, "{:?}", expected.ids());

    let smoother = folder.path("smoother_labels.nii.gz");
    ffdp(&["apply", "-i", &labels, "-t", &warp, "-o", &smoother, "--interpolation", "label"])
        .succeeded();
    let voted = read_labels(&smoother).expect("written");
    let moved = voted.data.iter().zip(&applied.data).filter(|(a, b)| a != b).count();
    // Only borders of labels differ.
    assert!(moved > 0 && moved < applied.data.len() / 5, "{moved} labels differ");
    let known = read_labels(&labels).expect("written").ids();
    assert!(voted.ids().iter().all(|id| known.contains(id)), "{:?}", voted.ids());
}

#[test]
fn other_grids_of_the_moving_image_give_the_same_physical_result() {
    let folder = Folder::new();
    let pair = write_pair(&folder, 32, 5);
    // Off the lattice, where the slope of a trilinear image does not depend on the storage order.
    let moving = pair.moving.image;
    let [x, y, z] = moving.geometry.origin_mm;
    let moved = moving.geometry.with_origin([x + 2.1, y + 1.7, z - 2.6]).expect("valid");
    let moving = Volume::new(moving.data, moved).expect("same size");
    let save = |name: &str, volume: &Volume| {
        write_volume(folder.path(name), volume).expect("writable");
    };
    save("moving.nii.gz", &moving);
    save("restored.nii.gz", &restored(&moving));
    // The same with headers of twice the size.
    save("fixed_larger.nii.gz", &support::twice_as_large(&pair.fixed.image));
    save("moving_larger.nii.gz", &support::twice_as_large(&moving));
    let field = |fixed, moving, out: &str| {
        let more = ["-q", "--aligned", "--shrink", "1", "--iterations", "15"];
        register_with(&folder, fixed, moving, out, &more).succeeded();
        read_displacement(folder.path(&format!("{out}/warp.nii.gz"))).expect("ITK").0
    };
    let a = field("fixed.nii.gz", "moving.nii.gz", "a");
    assert!(a.iter().fold(0f32, |m, u| m.max(u.abs())) > 0.5, "something moved");
    for (case, b) in [
        ("other storage order", field("fixed.nii.gz", "restored.nii.gz", "b")),
        ("other spacing", field("fixed_larger.nii.gz", "moving_larger.nii.gz", "c")),
    ] {
        let largest = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
        println!("{case}: {largest} voxels");
        assert!(largest < STORAGE_ROUNDING_VOXELS, "{case}: fields differ by {largest} voxels");
    }
}

#[test]
fn a_coarser_moving_image_is_registered_by_its_header() {
    let folder = Folder::new();
    let pair = write_pair(&folder, 48, 6);
    let coarse = support::on_coarser_grid(&pair.moving.image);
    write_volume(folder.path("coarse.nii.gz"), &coarse).expect("writable");
    register(&folder, "fixed.nii.gz", "coarse.nii.gz", "out", &["-q"]).succeeded();
    let (field, _) = read_displacement(folder.path("out/warp.nii.gz")).expect("ITK");
    let (before, after) = (mean_error(&vec![0.0; field.len()], &pair), mean_error(&field, &pair));
    println!("error {before} -> {after}");
    assert!(after < 0.65 * before, "error {before} -> {after} voxels");
}

#[test]
fn requests_that_cannot_work_are_refused_with_a_way_out() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    support::write_bad_files(&folder);
    fs::create_dir(folder.path("inside")).expect("writable");
    fs::copy(folder.path("fixed.nii.gz"), folder.path("inside/warped.nii.gz")).expect("copied");
    let f = "fixed.nii.gz";
    let labels = folder.path("fixed_labels.nii.gz");
    let other_grid = folder.path("small.nii.gz");
    /// Name, two files, arguments, words of the message.
    type Case<'a> = (&'a str, &'a str, &'a str, &'a [&'a str], &'a [&'a str]);
    let cases: &[Case] = &[
        (f, "absent.nii.gz", "o", &[], &["absent.nii.gz", "No such file"]),
        (f, "text.nii", "o", &[], &["text.nii", "NIfTI", "help:"]),
        (f, "truncated.nii.gz", "o", &[], &["truncated.nii.gz"]),
        (f, "nan.nii.gz", "o", &[], &["nan.nii.gz", "2 NaN", "--nan-policy zero"]),
        ("constant.nii.gz", f, "o", &[], &["fixed image", "constant", "help:"]),
        (f, "far.nii.gz", "o", &[], &["overlap by 0.00 %", "1000.0", "moving spans"]),
        ("4d.nii", f, "o", &[], &["2 volumes", "--volume K"]),
        (f, "4d.nii", "o", &["--volume", "2"], &["--volume", "got 2"]),
        (f, "small.nii.gz", "o", &[], &["moving image", "at least 8 voxels", "[6, 6, 6]"]),
        ("one.nii.gz", "one.nii.gz", "o", &[], &["at least 8 voxels", "[1, 1, 1]"]),
        (f, f, "o", &["--window", "6"], &["window", "odd", "got 6"]),
        (f, f, "o", &["--metric", "mse", "--window", "5"], &["mse has no window"]),
        (f, f, "o", &["--metric", "mi", "--window", "5"], &["mi has no window"]),
        (f, f, "o", &["--lr", "0"], &["learning rate", "got 0"]),
        (f, f, "o", &["--sigma-warp=-1"], &["sigma_warp_voxels", "got -1"]),
        (f, f, "o", &["--iterations", "0,0"], &["iterations"]),
        (f, f, "o", &["--metric", "ssim"], &["ssim", "lncc"]),
        (f, f, "o", &["--device", "tpu"], &["tpu", "cpu"]),
        (f, f, "o", &["--frobnicate"], &["--frobnicate"]),
        (f, f, "text.nii", &[], &["text.nii", "create"]),
        (f, "inside/warped.nii.gz", "inside", &[], &["overwrite an input"]),
        (f, f, "o", &["--fixed-labels", &labels], &["--moving-labels"]),
        (f, f, "o", &["--moving-labels", &other_grid], &["small.nii.gz", "another grid"]),
    ];
    for (fixed, moving, output, more, words) in cases {
        let run = register(&folder, fixed, moving, output, more);
        let case = format!("{fixed} {moving} {more:?}");
        assert_eq!(run.code, 1, "{case}: exit code; {}", run.stderr);
        assert_eq!(run.stdout, "", "{case}: nothing on stdout");
        for word in *words {
            assert!(run.stderr.contains(word), "{case}: no {word:?} in: {}", run.stderr);
        }
        assert!(!folder.has("o/warped.nii.gz"), "{case}: results were written");
    }
    #[cfg(not(feature = "cuda"))]
    {
        let run = register(&folder, f, f, "o", &["--device", "cuda:0"]);
        assert_eq!(run.code, 1);
        assert!(run.stderr.contains("--features cuda"), "{}", run.stderr);
    }
}

#[test]
fn nan_can_be_set_to_zero_and_a_volume_chosen() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    support::write_bad_files(&folder);
    let few = ["--shrink", "2", "--iterations", "5"];
    let [fixed, nan, four] = ["fixed.nii.gz", "nan.nii.gz", "4d.nii"].map(|f| folder.path(f));
    let out = folder.path("out");
    let base = ["register", "-f", &fixed, "-o", &out];
    let with = |more: &[&str]| ffdp(&[&base, &few[..], more].concat());
    let run = with(&["-m", &nan, "--nan-policy", "zero"]);
    run.succeeded();
    assert!(run.stderr.contains("2 NaN or infinite voxels were set to 0"), "{}", run.stderr);
    with(&["-m", &four, "--volume", "1", "--overwrite"]).succeeded();
}

#[test]
fn info_explains_images_labels_and_displacements() {
    let folder = Folder::new();
    let pair = write_pair(&folder, 32, 3);
    write_volume(folder.path("restored.nii.gz"), &restored(&pair.moving.image)).expect("writable");
    let run = ffdp(&["info", &folder.path("restored.nii.gz")]);
    run.succeeded();
    for word in ["32 x 32 x 32", "ASL", "f32", "sform", "percentiles", "scaling       none"] {
        assert!(run.stdout.contains(word), "no {word:?} in {}", run.stdout);
    }

    let run = ffdp(&["info", &folder.path("fixed_labels.nii.gz"), "--json"]);
    run.succeeded();
    let info: Value = serde_json::from_str(&run.stdout).expect("JSON only");
    assert_eq!(info["axes"], "RAS");
    let ids = pair.fixed.labels.ids();
    let voxels = |id: i32| pair.fixed.labels.data.iter().filter(|&&l| l == id).count();
    for id in ids {
        assert_eq!(info["values"]["labels"][id.to_string()], voxels(id), "label {id}");
    }
    let max = f64::from(*pair.fixed.labels.data.iter().max().expect("voxels"));
    assert_eq!(info["values"]["max"].as_f64(), Some(max));
}

#[test]
fn info_takes_several_files() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    let names = ["fixed.nii.gz", "absent.nii.gz", "moving_labels.nii.gz"].map(|n| folder.path(n));
    let all = ["info", &names[0], &names[1], &names[2]];
    let run = ffdp(&all);
    assert_eq!(run.code, 1, "one of them cannot be read");
    assert!(run.stdout.contains(&names[0]) && run.stdout.contains(&names[2]), "{}", run.stdout);
    assert!(run.stderr.contains(&names[1]) && run.stderr.contains("1 of 3"), "{}", run.stderr);
    let run = ffdp(&[&all[..2], &all[3..], &["--json"]].concat());
    run.succeeded();
    let infos: Value = serde_json::from_str(&run.stdout).expect("JSON only");
    assert_eq!(infos[1]["file"], names[2]);
    assert_eq!(infos.as_array().map(Vec::len), Some(2));
}

#[test]
fn info_refuses_files_that_are_none() {
    let folder = Folder::new();
    support::write_bad_files(&folder);
    for (file, words) in [
        ("absent.nii.gz", ["absent.nii.gz", "No such file"]),
        ("text.nii", ["text.nii", "help:"]),
        ("truncated.nii.gz", ["truncated.nii.gz", "error:"]),
    ] {
        let run = ffdp(&["info", &folder.path(file)]);
        assert_eq!(run.code, 1, "{file}");
        assert!(words.iter().all(|w| run.stderr.contains(w)), "{file}: {}", run.stderr);
    }
    let run = ffdp(&["info", &folder.path("nan.nii.gz")]);
    run.succeeded();
    assert!(run.stdout.contains("2 of 4096 voxels are NaN or infinite"), "{}", run.stdout);
    let run = ffdp(&["info", &folder.path("4d.nii"), "--volume", "1"]);
    run.succeeded();
    assert!(run.stdout.contains("2 volumes"), "{}", run.stdout);
}

#[test]
fn help_says_what_is_missing_and_goes_to_stdout() {
    for arguments in [&["--help"][..], &["register", "--help"], &["--version"]] {
        let run = ffdp(arguments);
        run.succeeded();
        assert!(!run.stdout.is_empty() && run.stderr.is_empty(), "{arguments:?}");
    }
    let run = ffdp(&["register", "--help"]);
    assert!(run.stdout.contains("--aligned starts with the deformation"), "{}", run.stdout);
    assert_eq!(ffdp(&[]).code, 1, "no command");
}

#[test]
fn labels_without_any_label_are_refused() {
    let folder = Folder::new();
    let mut pair = write_pair(&folder, 32, 3);
    pair.moving.labels.data.fill(0);
    write_labels(folder.path("empty.nii.gz"), &pair.moving.labels).expect("writable");
    let empty = folder.path("empty.nii.gz");
    let more = ["--moving-labels", &empty];
    let run = register(&folder, "fixed.nii.gz", "moving.nii.gz", "out", &more);
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("no label but background"), "{}", run.stderr);
}
