//! A flag has its effect or is refused with its value, the reason and a way out: nothing is silently ignored.
//!
//! Those of `template`, `fuse`, `measure`, `bench` and of a series are tested next to what these commands do.

use std::fs;

use ffdp_image::image::Affine;
use ffdp_image::io::write_affine;

use crate::support::{Folder, ffdp, write_pair};

/// Arguments, and words of the message.
type Case<'a> = (&'a [&'a str], &'a [&'a str]);

/// Demands that every command is refused, and writes nothing.
fn are_refused(folder: &Folder, base: &[&str], cases: &[Case]) {
    for (more, words) in cases {
        let run = ffdp(&[base, more].concat());
        assert_eq!(run.code, 1, "{base:?} {more:?}: {}", run.stderr);
        for word in ["help:"].iter().chain(*words) {
            assert!(run.stderr.contains(word), "{more:?}: no {word:?} in {}", run.stderr);
        }
        assert!(!folder.has("out"), "{more:?}: something was written");
    }
}

#[test]
fn flags_of_register_without_an_effect_are_refused() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    let [fixed, moving, out] =
        ["fixed.nii.gz", "moving.nii.gz", "out"].map(|name| folder.path(name));
    let [points, fcsv, other_fcsv] =
        ["points.csv", "a.fcsv", "b.fcsv"].map(|name| folder.path(name));
    for file in [&points, &fcsv, &other_fcsv] {
        fs::write(file, "x,y,z\n1,2,3\n").expect("writable");
    }
    let landmarks = ["--landmarks", &points, &points];
    let slicer = ["--landmarks", &fcsv, &other_fcsv];
    let discrete = ["--aligned", "--transform", "discrete"];
    let rigid = ["--transform", "rigid"];
    let cases: &[Case] = &[
        (
            &[&rigid[..], &["--shards", "2"]].concat(),
            &["--shards 2", "linear", "--transform greedy"],
        ),
        (&[&rigid[..], &["--devices", "cpu,cpu"]].concat(), &["--devices cpu cpu", "linear"]),
        (&[&rigid[..], &["--device-memory", "4"]].concat(), &["--device-memory 4", "linear"]),
        (&["--volume", "3"], &["--volume 3", "more than one volume"]),
        (&["--preset", "hard", "--multimodal"], &["--multimodal", "MIND"]),
        (
            &[&discrete[..], &["--metric", "lncc"]].concat(),
            &["--metric lncc", "no deformable stage"],
        ),
        (&["--features", "ngf"], &["--features ngf", "no stage is a discrete search"]),
        (&[&slicer[..], &["--landmark-space", "ras"]].concat(), &["--landmark-space", "Slicer"]),
    ];
    let base = ["register", "-f", &fixed, "-m", &moving, "-o", &out];
    are_refused(&folder, &base, cases);
    // By a plan as well.
    are_refused(&folder, &[&base[..], &["--plan"]].concat(), cases);
    // A file of one volume has the number 0.
    ffdp(&[&base[..], &["--volume", "0", "--plan"]].concat()).succeeded();
    // A discrete search is driven by landmarks and labels as other deformable stages are.
    let [fixed_labels, moving_labels] =
        ["fixed_labels.nii.gz", "moving_labels.nii.gz"].map(|name| folder.path(name));
    let labels = ["--fixed-labels", &fixed_labels, "--moving-labels", &moving_labels];
    let drivers = [&landmarks[..], &labels, &["--landmark-sigma", "1", "--label-terms", "1"]];
    let found = ffdp(&[&base[..], &discrete, &drivers.concat(), &["--no-inverse"]].concat());
    found.succeeded();
    let settings = fs::read_to_string(folder.path("out/settings.toml")).expect("written");
    assert!(settings.contains("landmark_sigma_mm = 1") && settings.contains("[1]"), "{settings}");
}

/// An image, landmarks and a matrix.
fn write_few(folder: &Folder) -> [String; 3] {
    write_pair(folder, 16, 1);
    let files = ["fixed.nii.gz", "points.csv", "affine.txt"].map(|name| folder.path(name));
    fs::write(&files[1], "x,y,z\n1,2,3\n").expect("writable");
    write_affine(&files[2], &Affine::identity()).expect("writable");
    files
}

#[test]
fn flags_of_apply_without_an_effect_are_refused() {
    let folder = Folder::new();
    let [image, points, affine] = write_few(&folder);
    let [csv, nifti] = ["out.csv", "out.nii"].map(|name| folder.path(name));
    let landmarks = ["apply", "--landmarks", &points, "-t", &affine, "-o", &csv];
    are_refused(
        &folder,
        &landmarks,
        &[
            (&["--interpolation", "nearest"], &["--interpolation nearest", "landmarks"]),
            (&["--nan-policy", "zero"], &["--nan-policy zero", "landmarks"]),
            (&["--volume", "0"], &["--volume 0", "landmarks"]),
            (&["--image", &image], &["--image", "fixed.nii.gz", "no voxels"]),
            (&["--reference", &image], &["--reference", "fixed.nii.gz", "no voxels"]),
        ],
    );
    are_refused(
        &folder,
        &["apply", "-i", &image, "-r", &image, "-o", &nifti],
        &[
            (&["--inverse"], &["--inverse", "no transform"]),
            (&["--nan-policy", "mask"], &["--nan-policy mask", "--nan-policy zero"]),
            (&["--volume", "3"], &["--volume 3", "more than one volume"]),
        ],
    );
    let spaceless =
        ffdp(&["apply", "-i", &image, "-r", &image, "-o", &nifti, "--landmark-space", "ras"]);
    assert!(
        spaceless.code == 1 && spaceless.stderr.contains("--landmarks"),
        "{}",
        spaceless.stderr
    );
}

#[test]
fn flags_of_compose_invert_convert_and_info_without_an_effect_are_refused() {
    let folder = Folder::new();
    let [image, _, affine] = write_few(&folder);
    let [nifti, text] = ["out.nii", "out.txt"].map(|name| folder.path(name));
    for command in ["compose", "invert"] {
        are_refused(
            &folder,
            &[command, "-t", &affine, "-o", &text],
            &[(&["-r", &image], &["--reference", "fixed.nii.gz", "no displacement"])],
        );
    }
    are_refused(
        &folder,
        &["invert", "-t", &affine, "-o", &text],
        &[(&["--json"], &["--json", "exact"])],
    );
    are_refused(
        &folder,
        &["convert", &image, &nifti],
        &[(&["--volume", "2"], &["--volume 2", "more than one volume"])],
    );
    let idle = ffdp(&["convert", &image, &nifti, "--device", "cpu"]);
    assert!(idle.code == 1 && idle.stderr.contains("--features"), "{}", idle.stderr);
    are_refused(
        &folder,
        &["info", &affine],
        &[(&["--volume", "1"], &["--volume 1", "no volumes"])],
    );
    ffdp(&["info", &affine, &image, "--volume", "0"]).succeeded();
}

#[test]
fn flags_of_synth_and_train_without_an_effect_are_refused() {
    let folder = Folder::new();
    let out = folder.path("out");
    are_refused(
        &folder,
        &["synth", "-o", &out, "--spacing", "16", "--warp-mm", "0"],
        &[
            (&["--warp-spacing", "8"], &["--warp-spacing 8", "not warped", "--warp-mm"]),
            (&["--warp-knots-mm", "32"], &["--warp-knots-mm 32", "not warped"]),
        ],
    );
    let network = ["--network", "voxelmorph"];
    are_refused(
        &folder,
        &["train", "--output", &out],
        &[
            (&[&network[..], &["--variant", "small"]].concat(), &["--variant small", "VoxelMorph"]),
            (&[&network[..], &["--drop-path", "0.1"]].concat(), &["--drop-path 0.1", "VoxelMorph"]),
            (&["--control-spacing", "8"], &["--control-spacing 8", "--head bspline"]),
            (
                &["--smoothness", "0", "--regularizer", "bending"],
                &["--regularizer bending", "is 0"],
            ),
            (&["--hold-out", "2"], &["--hold-out 2", "--data"]),
            (&["--share", "volume"], &["--share volume", "--devices"]),
        ],
    );
}

#[test]
fn a_list_that_says_what_is_held_out_or_paired_is_not_overruled_in_silence() {
    let folder = Folder::new();
    write_pair(&folder, 16, 1);
    let (data, out) = (folder.path("."), folder.path("out"));
    fs::write(folder.path("pairs.csv"), "fixed,moving\nfixed.nii.gz,moving.nii.gz\n").expect("it");
    let train = ["train", "--data", &data, "--output", &out, "--plain", "--epochs", "1"];
    for (more, words) in [
        (["--hold-out", "1"], ["--hold-out 1", "column part"]),
        (["--pairs", "3"], ["--pairs 3", "images.csv"]),
    ] {
        let run = ffdp(&[&train[..], &more].concat());
        assert_eq!(run.code, 1, "{more:?}: {}", run.stderr);
        for word in words {
            assert!(run.stderr.contains(word), "{more:?}: no {word:?} in {}", run.stderr);
        }
    }
}
