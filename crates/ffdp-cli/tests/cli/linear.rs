//! Images that do not lie where they should: the stages before the deformation.

use ffdp_burn::image::{Affine, Geometry, Physical, Volume};
use ffdp_burn::io::nifti::{read_volume, write_volume};
use ffdp_burn::io::{LandmarkSpace, read_transform_file, write_landmarks};
use serde_json::Value;

use crate::register_with;
use crate::support::{Folder, ffdp, relative_difference, write_pair};

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
    let [warp, short, long] =
        ["out/warp.nii.gz", "short.csv", "long.csv"].map(|name| folder.path(name));
    for (more, words) in [
        (&["--initial", &warp][..], ["must be affine", "help:"]),
        (&["--landmarks", &short, &long], ["1 landmarks", "same order"]),
        (&["--transform", "rigid", "--aligned"], ["--aligned", "--transform greedy"]),
    ] {
        let run = register_with(&folder, "fixed.nii.gz", "moving.nii.gz", "next", more);
        assert_eq!(run.code, 1, "{more:?}: {}", run.stderr);
        assert!(words.iter().all(|word| run.stderr.contains(word)), "{more:?}: {}", run.stderr);
    }
}
