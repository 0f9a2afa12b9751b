//! Points come back in RAS mm from every form of file; damaged files are named with the line.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::image::Affine;

fn grid() -> Geometry {
    let rows = [[-1.5, 0.25, 0.0, 10.0], [0.125, 2.0, 0.5, -20.0], [0.0, -0.5, 3.0, 30.0]];
    Geometry::from_affine([9, 8, 7], Affine::from_rows(rows)).expect("valid")
}

/// Lengths in mm after a round trip through decimal text and one matrix inverse in f64.
const ROUNDING_MM: f64 = 1e-10;

#[test]
fn every_form_of_file_gives_the_same_points() {
    let folder = tempfile::tempdir().expect("temporary");
    let points = [[1.25, -2.5, 30.0], [-7.0, 8.125, -9.5]];
    let voxel = LandmarkSpace::Voxel(grid());
    for (name, space) in [
        ("voxel.csv", &voxel),
        ("ras.csv", &LandmarkSpace::Ras),
        ("ants.csv", &LandmarkSpace::Lps),
        ("slicer.fcsv", &LandmarkSpace::Lps),
        ("slicer_voxel.fcsv", &voxel),
    ] {
        let path = folder.path().join(name);
        write_landmarks(&path, &points, space).expect("writable");
        let back = read_landmarks(&path, space).expect(name);
        for (a, b) in back.iter().flatten().zip(points.iter().flatten()) {
            assert!((a - b).abs() < ROUNDING_MM, "{name}: {back:?}");
        }
    }
    let text = |name: &str| fs::read_to_string(folder.path().join(name)).expect("written");
    assert_eq!(text("ants.csv"), "x,y,z,t\n-1.25,2.5,30,0\n7,-8.125,-9.5,0\n");
    assert_eq!(text("ras.csv"), "x,y,z\n1.25,-2.5,30\n-7,8.125,-9.5\n");
    assert!(text("voxel.csv").starts_with("i,j,k\n"), "{}", text("voxel.csv"));
    assert!(text("slicer.fcsv").contains("\n1,-1.25,2.5,30,"), "{}", text("slicer.fcsv"));
}

#[test]
fn headers_separators_and_comments_are_understood() {
    let folder = tempfile::tempdir().expect("temporary");
    let path = folder.path().join("points.csv");
    for text in [
        "1,2,3\n4,5,6\n",
        "1 2 3\n4 5 6",
        "1;2;3\r\n4;5;6\r\n",
        "# comment\n\n1\t2\t3\n4\t5\t6\n",
        "\u{feff}1,2,3\n4,5,6\n",
        "label,X,Y,Z\na,1,2,3\nb,4,5,6\n",
        "i,j,k\n1,2,3\n4,5,6\n",
        "\"z\",\"y\",\"x\"\n3,2,1\n6,5,4\n",
        "# Markups fiducial file version = 4.6\n# CoordinateSystem = 0\nF,1,2,3,0\nF,4,5,6,0\n",
        "# Markups fiducial file version = 4.11\n# CoordinateSystem = LPS\nF,-1,-2,3\nF,-4,-5,6\n",
    ] {
        fs::write(&path, text).expect("writable");
        let points = read_landmarks(&path, &LandmarkSpace::Ras).expect(text);
        assert_eq!(points, [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], "{text:?}");
    }
}

#[test]
fn damaged_files_are_refused_with_the_line() {
    let folder = tempfile::tempdir().expect("temporary");
    let path = folder.path().join("points.csv");
    for (text, words) in [
        ("", ["must hold a landmark", "none"]),
        ("x,y,z\n", ["must hold a landmark", "none"]),
        ("1,2,3\n4,5\n", ["line 2", "4,5"]),
        ("1,2,3\n# c\n4,nan,6\n", ["line 3", "4,nan,6"]),
        ("1,2,3\n4,5,six\n", ["line 2", "six"]),
        ("1,2,3,4\n", ["line 1", "three coordinates"]),
        ("inf,2,3\n", ["line 1", "finite"]),
        ("a,b,c\n1,2,3\n", ["line 1", "names the columns"]),
        ("# Markups fiducial file\n# CoordinateSystem = 7\n", ["CoordinateSystem", "7"]),
    ] {
        fs::write(&path, text).expect("writable");
        let message = read_landmarks(&path, &LandmarkSpace::Ras).expect_err(text).to_string();
        assert!(message.contains("points.csv"), "{message}");
        assert!(words.iter().all(|word| message.contains(word)), "{text:?}: {message}");
    }
    let absent = read_landmarks(folder.path().join("no.csv"), &LandmarkSpace::Ras);
    assert!(absent.expect_err("absent").to_string().contains("no.csv"));
}

/// Mean distance of corresponding landmarks in mm.
fn error_mm(a: &[[f64; 3]], b: &[[f64; 3]]) -> f64 {
    let square = |p: &[f64; 3], q: &[f64; 3]| (0..3).map(|c| (p[c] - q[c]).powi(2)).sum::<f64>();
    a.iter().zip(b).map(|(p, q)| square(p, q).sqrt()).sum::<f64>() / a.len() as f64
}

/// The README of the images: mean distance of the 300 landmarks of a pair by the masks' headers, of the
/// first Learn2Reg case 20.18 mm.
#[test]
fn real_landmarks_have_their_documented_distance() {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/lung");
    if !folder.is_dir() {
        println!("skipped: no real landmarks in {}", folder.display());
        return;
    }
    for (fixed, moving, mask, count, expected) in [
        ("dirlab_copd_01_exp", "dirlab_copd_01_insp", "dirlab_copd_01_exp", 300, 16.87),
        ("dirlab_copd_02_exp", "dirlab_copd_02_insp", "dirlab_copd_02_exp", 300, 14.26),
        ("l2r_LungCT_0001_0000", "l2r_LungCT_0001_0001", "l2r_LungCT_0001_0000", 81, 20.18),
    ] {
        let mask = folder.join(format!("{mask}_mask.nii.gz"));
        let grid = crate::io::images::header(mask).expect("readable").geometry;
        let space = LandmarkSpace::Voxel(grid);
        let points = |name: &str| {
            read_landmarks(folder.join(format!("{name}_landmarks.csv")), &space).expect(name)
        };
        let (fixed, moving) = (points(fixed), points(moving));
        assert_eq!(fixed.len(), count);
        let distance = error_mm(&fixed, &moving);
        // The README gives two decimals.
        assert!((distance - expected).abs() < 0.006, "{distance} {expected}");
    }
}
