//! apply, compose and invert as a user meets them, on the files of SimpleITK in `tests/golden`.

use std::fs;
use std::path::Path;

use ffdp_image::image::{Affine, LabelMap, Volume};
use ffdp_image::io::images::{
    header, read_displacement, read_labels, read_volume, read_volumes, write_labels, write_volume,
    write_volumes,
};
use ffdp_image::io::{
    LandmarkSpace, TransformPart, read_landmarks, read_transform_file, write_affine,
};
use serde_json::Value;

use crate::support::{Folder, ProcessOutput, ffdp, relative_difference};

/// Vectors of a file are f32 mm; images are interpolated at positions that differ by as much.
const FILE_ROUNDING: f64 = 1e-4;

fn golden(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    folder.join(name).to_str().expect("plain names").to_string()
}

/// `-t warp.nii.gz -t affine.txt`: what a registration has found, in the order of `antsApplyTransforms`.
fn chain() -> [String; 4] {
    ["-t".into(), golden("warp.nii.gz"), "-t".into(), golden("affine.txt")]
}

fn run(arguments: &[&str], more: &[String]) -> ProcessOutput {
    let more: Vec<&str> = more.iter().map(String::as_str).collect();
    ffdp(&[arguments, &more].concat())
}

#[test]
fn a_chain_applied_at_once_or_as_one_file_gives_the_same_image() {
    let folder = Folder::new();
    let [moving, fixed] = ["moving.nii.gz", "warped.nii.gz"].map(golden);
    let [once, whole, again] = ["once.nii", "whole.nii.gz", "again.nii"].map(|n| folder.path(n));
    run(&["apply", "-i", &moving, "-r", &fixed, "-o", &once], &chain()).succeeded();
    run(&["compose", "-r", &fixed, "-o", &whole], &chain()).succeeded();
    // Without a reference: on the grid of the displacement.
    ffdp(&["apply", "-i", &moving, "-t", &whole, "-o", &again]).succeeded();
    let [once, again] = [once, again].map(|path| read_volume(path).expect("written"));
    assert!(once.geometry.same_grid(&again.geometry, 1e-3));
    let difference = relative_difference(&again.data, &once.data);
    assert!(difference < FILE_ROUNDING, "{difference}");

    // In the wrong order it is another image; [..,1] undoes what it follows.
    let [affine, warp] = ["affine.txt", "warp.nii.gz"].map(golden);
    let [wrong, undone] = ["wrong.nii", "undone.nii"].map(|n| folder.path(n));
    let base = ["apply", "-i", &moving, "-r", &fixed];
    ffdp(&[&base[..], &["-o", &wrong, "-t", &affine, "-t", &warp]].concat()).succeeded();
    let wrong = read_volume(wrong).expect("written");
    assert!(relative_difference(&wrong.data, &once.data) > 0.01);
    let back = [format!("[{warp},1]"), format!("[{affine},1]")];
    let there_and_back =
        ["-o", &undone, "-t", &warp, "-t", &affine, "-t", &back[1], "-t", &back[0]];
    let run = ffdp(&[&["apply", "-i", &fixed, "-r", &fixed], &there_and_back[..]].concat());
    run.succeeded();
    let [undone, original] = [undone, fixed].map(|path| read_volume(path).expect("written"));
    // Where the map does not leave the grids: all but a rim.
    let inside = |v: &Volume| v.data[v.data.len() / 2 - 11];
    let scale = original.min_max().expect("voxels").1;
    assert!((inside(&undone) - inside(&original)).abs() < 1e-3 * scale);
}

#[test]
fn a_chain_is_kept_part_by_part_in_a_composite() {
    let folder = Folder::new();
    let [composite, back, once, again] =
        ["composite.h5", "back.h5", "once.nii", "again.nii"].map(|name| folder.path(name));
    let [moving, fixed] = ["moving.nii.gz", "warped.nii.gz"].map(golden);
    run(&["apply", "-i", &moving, "-r", &fixed, "-o", &once], &chain()).succeeded();
    run(&["compose", "-o", &composite], &chain()).succeeded();
    let parts = read_transform_file(&composite).expect("written");
    assert!(matches!(parts[..], [TransformPart::Displacement { .. }, TransformPart::Affine(_)]));
    ffdp(&["apply", "-i", &moving, "-r", &fixed, "-t", &composite, "-o", &again]).succeeded();
    let [once, again] = [once, again].map(|path| read_volume(path).expect("written"));
    let difference = relative_difference(&again.data, &once.data);
    assert!(difference < FILE_ROUNDING, "{difference}");
    // The inverse of a displacement becomes one, on its own grid.
    ffdp(&["compose", "-t", &format!("[{composite},1]"), "-o", &back]).succeeded();
    let parts = read_transform_file(&back).expect("written");
    assert!(matches!(parts[..], [TransformPart::Affine(_), TransformPart::Displacement { .. }]));
}

#[test]
fn affine_chains_become_matrices_of_either_format() {
    let folder = Folder::new();
    let [text, mat, inverse] = ["a.txt", "a.mat", "i.txt"].map(|name| folder.path(name));
    let affine = golden("affine.txt");
    ffdp(&["compose", "-t", &affine, "-t", &affine, "-o", &mat]).succeeded();
    ffdp(&["invert", "-t", &mat, "-o", &inverse]).succeeded();
    ffdp(&["compose", "-t", &inverse, "-t", &affine, "-t", &affine, "-o", &text]).succeeded();
    let parts = read_transform_file(&text).expect("written");
    let [TransformPart::Affine(unit)] = parts.as_slice() else { panic!("{parts:?}") };
    let identity = Affine::<(), ()>::identity();
    for (a, b) in unit.rows().iter().flatten().zip(identity.rows().iter().flatten()) {
        assert!((a - b).abs() < 1e-12, "{unit:?}");
    }
    assert!(fs::read(&mat).expect("written").starts_with(&[0, 0, 0, 0, 12]));
}

#[test]
fn inverses_are_written_with_their_error() {
    let folder = Folder::new();
    let [inverse, whole] = ["inverse.nii.gz", "whole.nii.gz"].map(|name| folder.path(name));
    let warp = golden("warp.nii.gz");
    let run_one = ffdp(&["invert", "-t", &warp, "-o", &inverse, "--json"]);
    run_one.succeeded();
    let error: Value = serde_json::from_str(&run_one.stdout).expect("JSON only");
    let p95 = error["p95_voxels"].as_f64().expect("a number");
    assert!(p95 > 0.0 && p95 < 0.5, "{error}");
    assert_eq!(run_one.stderr, "");
    let (_, grid) = read_displacement(&inverse).expect("written");
    assert!(grid.same_grid(&header(&warp).expect("golden").geometry, 1e-3));

    let moving = golden("moving.nii.gz");
    let inverted = run(&["invert", "-r", &moving, "-o", &whole], &chain());
    inverted.succeeded();
    for word in ["95th percent", "largest", "voxels"] {
        assert!(inverted.stdout.contains(word), "{}", inverted.stdout);
    }
    // Landmarks: there, and back through the file.
    let [there, back] = ["there.csv", "back.csv"].map(|name| folder.path(name));
    let points = golden("points.csv");
    let lps = ["--landmark-space", "lps"];
    run(&[&["apply", "--landmarks", &points, "-o", &there], &lps[..]].concat(), &chain())
        .succeeded();
    let through = ["apply", "--landmarks", &there, "-t", &whole, "-o", &back];
    ffdp(&[&through[..], &lps].concat()).succeeded();
    let read = |path: &str| read_landmarks(path, &LandmarkSpace::Lps).expect("written");
    for (a, b) in read(&back).iter().flatten().zip(read(&points).iter().flatten()) {
        // A stored inverse, interpolated on a grid of 2 mm.
        assert!((a - b).abs() < 0.2, "{a} {b}");
    }
    let expected = read(&golden("mapped.csv"));
    for (a, b) in read(&there).iter().flatten().zip(expected.iter().flatten()) {
        assert!((a - b).abs() < 1e-4, "{a} {b}");
    }
}

#[test]
fn landmarks_in_voxels_go_from_the_grid_of_one_image_to_that_of_the_other() {
    let folder = Folder::new();
    let geometry = header(golden("moving.nii.gz")).expect("golden").geometry;
    let [image, points, out, affine] =
        ["image.nii", "points.csv", "out.csv", "affine.txt"].map(|name| folder.path(name));
    // Two voxels of the moving image for each of the reference, along the reference's axes.
    let half = geometry.resized(geometry.size.map(|n| 2 * n)).expect("valid");
    write_volume(&image, &Volume::new(vec![0.0; half.len()], half).expect("fits"))
        .expect("writable");
    write_affine(&affine, &Affine::identity()).expect("writable");
    fs::write(&points, "1,2,3\n4.5,5,6\n").expect("writable");
    let (reference, voxel) = (golden("moving.nii.gz"), ["--landmark-space", "voxel"]);
    let base = ["apply", "--landmarks", &points, "-t", &affine, "-o", &out, "-r", &reference];
    ffdp(&[&base[..], &voxel, &["-i", &image]].concat()).succeeded();
    let back = read_landmarks(&out, &LandmarkSpace::Ras).expect("written");
    for (a, b) in back.iter().flatten().zip([2.5, 4.5, 6.5, 9.5, 10.5, 12.5]) {
        // Headers hold f32.
        assert!((a - b).abs() < 1e-4, "{back:?}");
    }
    let run = ffdp(&[&base[..], &voxel].concat());
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("--image"), "{}", run.stderr);
}

#[test]
fn series_are_warped_volume_by_volume_and_integers_stay_integers() {
    let folder = Folder::new();
    let moving = read_volume(golden("moving.nii.gz")).expect("golden");
    let brighter = Volume { data: moving.data.iter().map(|v| 2.0 * v).collect(), ..moving.clone() };
    let [series, out, one] = ["series.nii", "out.nii.gz", "one.nii"].map(|name| folder.path(name));
    write_volumes(&series, &[moving.clone(), brighter], 1.5).expect("writable");
    run(&["apply", "-i", &series, "-o", &out], &chain()).succeeded();
    run(&["apply", "-i", &series, "-o", &one, "--volume", "1"], &chain()).succeeded();
    let volumes = read_volumes(&out).expect("written");
    assert_eq!(header(&out).expect("written").time_step_seconds, 1.5);
    assert_eq!(volumes.len(), 2);
    assert_eq!(volumes[1], read_volume(&one).expect("written"));
    let twice: Vec<f32> = volumes[0].data.iter().map(|v| 2.0 * v).collect();
    assert!(relative_difference(&volumes[1].data, &twice) < 1e-6);

    let labels: Vec<i32> = moving.data.iter().map(|&v| (v / 100.0) as i32).collect();
    let labels = LabelMap::new(labels, moving.geometry.clone()).expect("fits");
    let [input, out] = ["labels.nii", "out_labels.nii"].map(|name| folder.path(name));
    write_labels(&input, &labels).expect("writable");
    for how in ["nearest", "label"] {
        run(&["apply", "-i", &input, "-o", &out, "--interpolation", how], &chain()).succeeded();
        assert!(header(&out).expect("written").data_type.is_integer(), "{how}");
        let warped = read_labels(&out).expect("written");
        let known = labels.ids();
        assert!(
            warped.ids().len() > 5 && warped.ids().iter().all(|id| known.contains(id)),
            "{how}"
        );
    }
}

#[test]
fn requests_that_cannot_work_are_refused_with_a_way_out() {
    let folder = Folder::new();
    let [moving, affine, warp] = ["moving.nii.gz", "affine.txt", "warp.nii.gz"].map(golden);
    let out = folder.path("out.nii.gz");
    let flirt = folder.path("flirt.mat");
    fs::write(&flirt, "1 0 0 0\n0 1 0 0\n0 0 1 0\n0 0 0 1\n").expect("writable");
    let far = folder.path("far.txt");
    let rows = [[1.0, 0.0, 0.0, 5000.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]];
    write_affine(&far, &Affine::from_rows(rows)).expect("writable");
    let matrix = folder.path("out.xml");
    let chain_far: [&str; 4] = ["-t", &warp, "-t", &far];
    let cases: &[(&[&str], &str, &[&str])] = &[
        (&["apply", "-i", &moving, "-t", &moving], &out, &["[x, y, z, 1, 3]", "moving.nii.gz"]),
        (&["apply", "-i", &moving, "-t", &affine], &out, &["grid", "--reference"]),
        (&["apply", "-i", &moving, "-t", "absent.txt"], &out, &["absent.txt", "No such file"]),
        (&["apply", "-i", &moving, "-t", &flirt], &out, &["FLIRT", "flirt:MATRIX,MOVING,FIXED"]),
        (&["apply", "-i", &moving, "-t", "[a.txt,2]"], &out, &["0 or 1"]),
        (&["apply", "-t", &warp], &out, &["--image"]),
        (&["apply", "-i", &moving], &out, &["--reference"]),
        (&[&["apply", "-i", &moving], &chain_far[..]].concat(), &out, &["overlap by 0.00 %"]),
        (&["apply", "-i", &moving, "-t", &warp, "--interpolation", "quintic"], &out, &["linear"]),
        (&["compose", "-t", &affine], &matrix, &[".mat", "xml"]),
        (&["compose", "-t", &warp], &matrix, &[".nii"]),
        (&["invert", "-t", &affine], &out, &["--reference"]),
    ];
    for (arguments, output, words) in cases {
        let run = ffdp(&[arguments, &["-o", output][..]].concat());
        assert_eq!(run.code, 1, "{arguments:?}: {}", run.stderr);
        for word in *words {
            assert!(run.stderr.contains(word), "{arguments:?}: no {word:?} in: {}", run.stderr);
        }
        assert!(!Path::new(output).exists(), "{arguments:?}: a result was written");
    }
    let copy = folder.path("copy.nii.gz");
    fs::copy(&moving, &copy).expect("copied");
    for command in ["apply", "invert", "compose"] {
        let image: &[&str] = if command == "apply" { &["-i", &copy] } else { &["-r", &copy] };
        let run = ffdp(&[&[command, "-t", &warp, "-o", &copy], image].concat());
        assert_eq!(run.code, 1, "{command}");
        assert!(run.stderr.contains("overwrite an input"), "{command}: {}", run.stderr);
    }
}

#[test]
fn the_help_says_in_which_order_transforms_are_applied() {
    for command in ["apply", "compose", "invert"] {
        let run = ffdp(&[command, "--help"]);
        run.succeeded();
        for words in [
            "list the warp, then the affine, as for antsApplyTransforms",
            "-t warp.nii.gz -t affine.txt",
        ] {
            assert!(run.stdout.contains(words), "{command}: no {words:?} in {}", run.stdout);
        }
    }
}
