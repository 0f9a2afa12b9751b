//! Images that do not lie where they should: the stages before the deformation.

use std::fs;

use ffdp_image::image::{Affine, Geometry, Physical, Volume};
use ffdp_image::io::images::{read_volume, write_volume};
use ffdp_image::io::{LandmarkSpace, read_transform_file, write_affine, write_landmarks};
use serde_json::Value;

use crate::support::{Folder, ffdp, relative_difference, write_pair};
use crate::{register, register_with};

/// The phantom is 200 mm wide: voxels of 48^3 are 4.2 mm long. The affine map is found to a fraction
/// of one, from images that differ by interpolation only.
const TOLERANCE_MM: f64 = 1.0;

/// Vectors of a file are f32 mm; images are interpolated at positions that differ by as much.
const FILE_ROUNDING: f64 = 1e-4;

/// Turned by 15 degrees about z and moved by some centimetres: RAS mm, fixed to moving.
fn placement() -> Affine<Physical, Physical> {
    let (s, c) = 15f64.to_radians().sin_cos();
    Affine::from_rows([[c, -s, 0.0, 60.0], [s, c, 0.0, -35.0], [0.0, 0.0, 1.0, 20.0]])
}

#[test]
fn a_head_that_lies_elsewhere_is_found_and_the_files_say_where() {
    let folder = Folder::new();
    let fixed = write_pair(&folder, 48, 3).fixed.image;
    let there = fixed.geometry.voxel_to_mm().then(&placement());
    let geometry = Geometry::from_affine(fixed.geometry.size, there).expect("valid");
    let moving = Volume { geometry, ..fixed.clone() };
    write_volume(folder.path("moving.nii.gz"), &moving).expect("writable");
    let points: Vec<[f64; 3]> = (0..8)
        .map(|corner| [0, 1, 2].map(|i| if corner >> i & 1 == 1 { 50.0 } else { -40.0 }))
        .collect();
    let moved: Vec<[f64; 3]> = points.iter().map(|&p| placement().apply(p)).collect();
    let landmarks = ["fixed.csv", "moving.csv"].map(|name| folder.path(name));
    for (path, points) in landmarks.iter().zip([&points, &moved]) {
        write_landmarks(path, points, &LandmarkSpace::Ras).expect("writable");
    }

    let (names, out) = (["fixed.nii.gz", "moving.nii.gz"], "out");
    let more = ["--landmarks", &landmarks[0], &landmarks[1], "--json", "-q"];
    let affine = [&["--transform", "affine"], &more[..]].concat();
    let run = register_with(&folder, names[0], names[1], out, &affine);
    run.succeeded();
    let metrics: Value = serde_json::from_str(&run.stdout).expect("JSON");
    let tre = |when: &str| metrics["landmarks_mm"][when]["max"].as_f64().expect("a number");
    println!("landmarks {} -> {} mm at most", tre("before"), tre("after"));
    assert!(tre("before") > 50.0);
    assert!(tre("after") < TOLERANCE_MM, "{}", run.stdout);
    assert!(!folder.has("out/warp.nii.gz"), "nothing was deformed");

    // The file is the map that was applied, and a place to start from.
    let file = folder.path("out/affine.txt");
    assert_eq!(read_transform_file(&file).expect("ITK").len(), 1);
    let [moving, reference, again] =
        ["moving.nii.gz", "fixed.nii.gz", "again.nii.gz"].map(|name| folder.path(name));
    ffdp(&["apply", "-i", &moving, "-r", &reference, "-t", &file, "-o", &again]).succeeded();
    let [again, warped] =
        [again, folder.path("out/warped.nii.gz")].map(|path| read_volume(path).expect("written"));
    let difference = relative_difference(&again.data, &warped.data);
    assert!(difference < FILE_ROUNDING, "{difference}");

    let start = ["--initial", &file, "--aligned", "--shrink", "2", "--iterations", "2"];
    let run = register_with(&folder, names[0], names[1], "next", &[&start, &more[..]].concat());
    run.succeeded();
    let metrics: Value = serde_json::from_str(&run.stdout).expect("JSON");
    let before = metrics["similarity"]["before"]["ncc"].as_f64().expect("a number");
    assert!(before > 0.98, "the start is where the first run ended, {before}");
}

#[test]
fn what_cannot_be_a_start_is_refused() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    let few = ["--aligned", "--shrink", "2", "--iterations", "1", "-q"];
    register_with(&folder, "fixed.nii.gz", "moving.nii.gz", "out", &few).succeeded();
    std::fs::write(folder.path("short.csv"), "0,0,0\n").expect("writable");
    std::fs::write(folder.path("long.csv"), "0,0,0\n1,1,1\n").expect("writable");
    let [short, long] = ["short.csv", "long.csv"].map(|name| folder.path(name));
    fs::create_dir(folder.path("empty")).expect("a folder");
    let empty = folder.path("empty");
    for (more, words) in [
        (&["--initial", &empty][..], ["affine.txt", "help:"]),
        (&["--landmark-sigma", "1"], ["--landmark-sigma", "--landmarks"]),
        (&["--search", "--settings", &folder.path("out/settings.toml")], ["--search", "moments"]),
        (&["--landmarks", &short, &long], ["1 landmarks", "same order"]),
        (&["--transform", "rigid", "--aligned"], ["--aligned", "--transform greedy"]),
    ] {
        let run = register_with(&folder, "fixed.nii.gz", "moving.nii.gz", "next", more);
        assert_eq!(run.code, 1, "{more:?}: {}", run.stderr);
        assert!(words.iter().all(|word| run.stderr.contains(word)), "{more:?}: {}", run.stderr);
    }
}

#[test]
fn a_run_goes_on_from_the_folder_of_another_by_its_deformable_stages_alone() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    let few = ["--aligned", "--shrink", "2", "--iterations", "20", "-q"];
    register_with(&folder, "fixed.nii.gz", "moving.nii.gz", "out", &few).succeeded();
    let out = folder.path("out");
    let metrics = |name: &str| -> Value {
        let text = fs::read_to_string(folder.path(&format!("{name}/metrics.json")));
        serde_json::from_str(&text.expect("written")).expect("JSON")
    };
    let reached = metrics("out")["similarity"]["after"]["ncc"].as_f64().expect("a number");
    for (name, more) in [("whole", &[][..]), ("slabs", &["--slabs"])] {
        let start = ["--initial", &out, "--shrink", "2", "--iterations", "1", "-q"];
        let all = [&start[..], more].concat();
        register_with(&folder, "fixed.nii.gz", "moving.nii.gz", name, &all).succeeded();
        let metrics = metrics(name);
        let stages = metrics["stages"].as_array().expect("stages");
        assert_eq!(stages.len(), 1, "{name}: {stages:?}");
        let before = metrics["similarity"]["before"]["ncc"].as_f64().expect("a number");
        assert!(
            (before - reached).abs() < 1e-3,
            "{name}: {before}, the first ended with {reached}"
        );
    }
    // Neither may end where the other begins.
    let run = register_with(&folder, "fixed.nii.gz", "moving.nii.gz", "out", &["--initial", &out]);
    assert!(run.code == 1 && run.stderr.contains("must not overwrite"), "{}", run.stderr);
    // And `apply` takes it as one transform.
    let [image, moved] = ["moving.nii.gz", "moved.nii.gz"].map(|name| folder.path(name));
    ffdp(&["apply", "-i", &image, "-t", &out, "-o", &moved]).succeeded();
    let [a, b] = ["moved.nii.gz", "out/warped.nii.gz"]
        .map(|name| read_volume(folder.path(name)).expect("written").data);
    assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-4), "the transform of the folder");
}

#[test]
fn landmarks_drive_a_run_only_when_it_is_said_how_exactly_they_are_known() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    fs::write(folder.path("f.csv"), "0,0,0\n10,-15,5\n").expect("writable");
    fs::write(folder.path("m.csv"), "9,0,0\n19,-15,5\n").expect("writable");
    let [f, m] = ["f.csv", "m.csv"].map(|name| folder.path(name));
    let off = |name: &str, more: &[&str]| -> f64 {
        let few =
            ["--aligned", "--shrink", "2", "--iterations", "60", "-q", "--landmark-space", "ras"];
        let all = [&few[..], &["--landmarks", &f, &m], more].concat();
        register_with(&folder, "fixed.nii.gz", "moving.nii.gz", name, &all).succeeded();
        let text = fs::read_to_string(folder.path(&format!("{name}/metrics.json")));
        let metrics: Value = serde_json::from_str(&text.expect("written")).expect("JSON");
        metrics["landmarks_mm"]["after"]["mean"].as_f64().expect("a number")
    };
    let (measured, driven) = (off("measured", &[]), off("driven", &["--landmark-sigma", "0.5"]));
    println!("{measured:.2} mm measured, {driven:.2} mm driven");
    assert!(driven < 0.5 * measured, "{driven} mm of {measured}");
}

#[test]
fn the_affine_map_is_written_for_matlab_too_as_ants_wants_it_for_inverses() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    let [fixed, moving, out] = ["fixed.nii.gz", "moving.nii.gz", "out"].map(|n| folder.path(n));
    for more in [&["--transform", "affine"][..], &["--slabs", "--overwrite"]] {
        let register = ["register", "-f", &fixed, "-m", &moving, "-o", &out, "-q"];
        let few = ["--shrink", "4", "--iterations", "3"];
        ffdp(&[&register[..], &few, more].concat()).succeeded();
        let bytes = fs::read(folder.path("out/affine.mat")).expect("written");
        // MATLAB v4: double, 12 x 1, real, the name with its zero.
        let name = b"AffineTransform_double_3_3\0";
        let head: Vec<u8> =
            [0, 12, 1, 0, name.len() as u32].into_iter().flat_map(u32::to_le_bytes).collect();
        assert!(bytes.starts_with(&[&head[..], name].concat()), "{more:?}: {bytes:?}");
        let images = ["mat", "txt"].map(|end| {
            let (affine, moved) = (folder.path(&format!("out/affine.{end}")), folder.path("m.nii"));
            ffdp(&["apply", "-i", &moving, "-r", &fixed, "-t", &affine, "-o", &moved]).succeeded();
            read_volume(moved).expect("written").data
        });
        assert!(relative_difference(&images[0], &images[1]) < 1e-6, "{more:?}");
    }
}

#[test]
fn a_pair_of_header_and_image_is_registered_as_one_file_is() {
    let folder = Folder::new();
    let pair = write_pair(&folder, 32, 3);
    // 352 bytes of header, then the voxels.
    write_volume(folder.path("whole.nii"), &pair.fixed.image).expect("writable");
    let mut head = fs::read(folder.path("whole.nii")).expect("written");
    let voxels = head.split_off(352);
    head[344..348].copy_from_slice(b"ni1\0");
    head[108..112].copy_from_slice(&0f32.to_le_bytes());
    fs::write(folder.path("apart.hdr"), head).expect("writable");
    fs::write(folder.path("apart.img"), &voxels).expect("writable");
    let few = ["--shrink", "2", "--iterations", "3", "--json"];
    let of = |fixed: &str, out: &str, more: &[&str]| {
        let run = register(&folder, fixed, "moving.nii.gz", out, &[&few, more].concat());
        run.succeeded();
        let metrics: Value = serde_json::from_str(&run.stdout).expect("JSON");
        let warp = fs::read(folder.path(&format!("{out}/warp.nii.gz"))).expect("written");
        (metrics["fixed"]["sha256"].clone(), warp)
    };
    for more in [&[][..], &["--slabs"]] {
        let whole = of("whole.nii", "whole", &[more, &["--overwrite"]].concat()).1;
        for name in ["apart.hdr", "apart.img"] {
            let more = [more, &["--overwrite"]].concat();
            assert!(of(name, "apart", &more).1 == whole, "{name} {more:?}");
        }
    }
    // Another image is another hash, though the header is the same.
    let hash = of("apart.hdr", "apart", &["--overwrite"]).0;
    fs::write(folder.path("apart.img"), [&voxels[4..], &voxels[..4]].concat()).expect("writable");
    assert_ne!(of("apart.hdr", "apart", &[]).0, hash);
}

#[test]
fn the_inverse_of_a_file_is_a_start() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    let shift = |mm: f64| {
        Affine::from_rows([[1.0, 0.0, 0.0, mm], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -mm]])
    };
    let [there, back] = ["there.txt", "back.txt"].map(|name| folder.path(name));
    write_affine(&there, &shift(4.0)).expect("writable");
    write_affine(&back, &shift(-4.0)).expect("writable");
    let inverse = format!("[{there},1]");
    let ncc = |out: &str, initial: &str| {
        let start = ["--initial", initial, "--aligned", "--shrink", "2", "--iterations", "1"];
        let all = [&start[..], &["--json", "-q"]].concat();
        let run = register_with(&folder, "fixed.nii.gz", "moving.nii.gz", out, &all);
        run.succeeded();
        let metrics: Value = serde_json::from_str(&run.stdout).expect("JSON");
        metrics["similarity"]["before"]["ncc"].as_f64().expect("a number")
    };
    let (a, b, other) = (ncc("a", &inverse), ncc("b", &back), ncc("c", &there));
    assert!((a - b).abs() < 1e-6 && (a - other).abs() > 1e-4, "{a} {b} {other}");
}
