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

/// A table of a text by a name, read as it says itself.
fn table_of(name: &str, text: &str) -> (tempfile::TempDir, LandmarkTable) {
    let folder = tempfile::tempdir().expect("temporary");
    let path = folder.path().join(name);
    fs::write(&path, text).expect("writable");
    let table = LandmarkTable::read(&path, &LandmarkSpace::OfFile).expect(text);
    (folder, table)
}

/// What is written under a name.
fn written(table: &LandmarkTable, name: &str, space: &LandmarkSpace) -> String {
    let folder = tempfile::tempdir().expect("temporary");
    let path = folder.path().join(name);
    table.write(&path, space).expect("writable");
    fs::read_to_string(&path).expect("written")
}

#[test]
fn points_of_ants_are_lps_by_their_header() {
    let text = "x,y,z,t,label,comment\n1,2,3,0,7,tip\n4,5,6,0,8,\"left, lower\"\n";
    let (folder, table) = table_of("points.csv", text);
    assert_eq!(table.points, [[-1.0, -2.0, 3.0], [-4.0, -5.0, 6.0]]);
    assert_eq!(written(&table, "out.csv", &LandmarkSpace::OfFile), text);
    // Who says otherwise is believed.
    let path = folder.path().join("points.csv");
    assert_eq!(
        read_landmarks(&path, &LandmarkSpace::Ras).unwrap(),
        [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    );
    // Other columns, or another order, are not those of ANTs.
    for header in ["x,y,z\n", "x,y,z,label\n", "t,x,y,z\n"] {
        let (_folder, table) = table_of("points.csv", &format!("{header}1,1,1,1\n"));
        assert_eq!(table.points, [[1.0; 3]], "{header}");
    }
}

#[test]
fn other_columns_stay_as_they_are() {
    let text = "label,X,Y,Z,note\nA 1,1,2,3,\"a, \"\"b\"\"\"\n007,4,5,6,\n";
    let (_folder, table) = table_of("points.csv", text);
    let moved = table.clone().with_points(vec![[0.5, 1.0, 2.0], [3.0, -4.0, 5.0]]);
    let expected = "X,Y,Z,label,note\n0.5,1,2,A 1,\"a, \"\"b\"\"\"\n3,-4,5,007,\n";
    assert_eq!(written(&moved, "out.csv", &LandmarkSpace::OfFile), expected);
    // ANTs goes by the first four columns.
    let lps = written(&moved, "out.csv", &LandmarkSpace::Lps);
    assert_eq!(lps.lines().next(), Some("X,Y,Z,t,label,note"));
    assert_eq!(lps.lines().nth(1), Some("-0.5,-1,2,0,A 1,\"a, \"\"b\"\"\""));
    let slicer = written(&moved, "out.fcsv", &LandmarkSpace::Ras);
    assert!(slicer.ends_with("\n2,3,-4,5,0,0,0,1,1,1,0,007,,\n"), "{slicer}");
    // The index of a table without a name; a line that is shorter.
    let (_folder, table) = table_of("p.csv", ",x,y,z,w\n0,1,2,3,5\n1,4,5,6\n");
    assert_eq!(written(&table, "o.csv", &LandmarkSpace::OfFile), "x,y,z,,w\n1,2,3,0,5\n4,5,6,1,\n");
}

#[test]
fn decimal_commas_are_read_where_they_separate_nothing() {
    for text in ["x;y;z\n1,5;-2,25;3\n", "1,5;-2,25;3\n", "1,5 -2,25 3\n", "1,5\t-2,25\t3\n"] {
        let (_folder, table) = table_of("points.csv", text);
        assert_eq!(table.points, [[1.5, -2.25, 3.0]], "{text:?}");
    }
}

const FCSV: &str = "# Markups fiducial file version = 4.11\n# CoordinateSystem = LPS\n\
    # columns = id,x,y,z,ow,ox,oy,oz,vis,sel,lock,label,desc,associatedNodeID\n\
    vtkMRMLMarkupsFiducialNode_0,-1,-2,3,0,0,0,1,1,0,1,AC,\"the, first\",node\n";

#[test]
fn fiducials_of_slicer_keep_their_space_and_their_words() {
    let (folder, table) = table_of("points.fcsv", FCSV);
    assert_eq!(table.points, [[1.0, 2.0, 3.0]]);
    assert_eq!(written(&table, "out.fcsv", &LandmarkSpace::OfFile), FCSV);
    // The file says it, whatever is asked for.
    let path = folder.path().join("points.fcsv");
    assert_eq!(read_landmarks(path, &LandmarkSpace::Ras).unwrap(), [[1.0, 2.0, 3.0]]);
    let csv = written(&table, "out.csv", &LandmarkSpace::OfFile);
    assert!(csv.starts_with("x,y,z,id,ow,"), "{csv}");
    assert!(
        csv.contains("\n1,2,3,vtkMRMLMarkupsFiducialNode_0,0,") && csv.contains(",AC,"),
        "{csv}"
    );
}

#[test]
fn markups_of_slicer_are_read_and_written() {
    let text = r#"{"@schema": "s", "markups": [{"type": "Fiducial", "coordinateSystem": "LPS", "display": {"opacity": 0.5},
        "controlPoints": [{"id": "1", "label": "AC", "position": [-1.0, -2.0, 3.0], "positionStatus": "defined"},
                          {"id": "2", "label": "PC", "position": [-4.0, -5.0, 6.0]}]}]}"#;
    let (_folder, table) = table_of("points.mrk.json", text);
    assert_eq!(table.points, [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    let moved = table.with_points(vec![[1.5, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    let out: serde_json::Value =
        serde_json::from_str(&written(&moved, "o.mrk.json", &LandmarkSpace::OfFile)).unwrap();
    let list = &out["markups"][0];
    assert_eq!(list["controlPoints"][0]["position"], serde_json::json!([-1.5, -2.0, 3.0]));
    assert_eq!(
        (&list["coordinateSystem"], &list["display"]["opacity"]),
        (&"LPS".into(), &0.5.into())
    );
    assert_eq!(list["controlPoints"][1]["label"], "PC");
    let csv = written(&moved, "o.csv", &LandmarkSpace::OfFile);
    assert_eq!(csv, "x,y,z,id,label,description\n1.5,2,3,1,AC,\n4,5,6,2,PC,\n");
    // From another file, too.
    let (_folder, table) = table_of("points.csv", "name,x,y,z\nAC,1,2,3\n");
    let new = written(&table, "o.mrk.json", &LandmarkSpace::Lps);
    let (_folder, again) = table_of("o.mrk.json", &new);
    assert_eq!(
        (again.points.as_slice(), again.rows[0][1].as_str()),
        (&[[1.0, 2.0, 3.0]][..], "AC")
    );
}

#[test]
fn points_of_elastix_are_read_and_written() {
    let text = "point\n2\n1 2 3\n4 5 6.5\n";
    let (folder, table) = table_of("points.txt", text);
    assert_eq!(table.points, [[-1.0, -2.0, 3.0], [-4.0, -5.0, 6.5]]);
    assert_eq!(written(&table, "out.txt", &LandmarkSpace::OfFile), text);
    assert_eq!(written(&table, "out.csv", &LandmarkSpace::OfFile), "x,y,z\n-1,-2,3\n-4,-5,6.5\n");
    let path = folder.path().join("points.txt");
    fs::write(&path, text.replace("point", "index")).expect("writable");
    let voxel = LandmarkSpace::Voxel(grid());
    assert_eq!(read_landmarks(&path, &voxel).unwrap()[0], voxel.to_ras([1.0, 2.0, 3.0]));
}

#[test]
fn landmarks_that_cannot_be_placed_are_refused() {
    let markups = |status: &str, system: &str| {
        format!(
            "{{\"markups\": [{{\"coordinateSystem\": \"{system}\", \"controlPoints\": \
             [{{\"label\": \"AC\", \"position\": [1, 2, 3], \"positionStatus\": \"{status}\"}}]}}]}}"
        )
    };
    let folder = tempfile::tempdir().expect("temporary");
    let path = folder.path().join("points");
    for (text, words) in [
        ("i,j,k\n1,2,3\n".to_string(), ["voxel indices", "--landmark-space"]),
        ("index\n1\n1 2 3\n".to_string(), ["voxel indices", "--landmark-space"]),
        ("point\n2\n1 2 3\n".to_string(), ["2 points are announced", "1"]),
        ("point\nmany\n1 2 3\n".to_string(), ["number of points", "many"]),
        ("point\n1\n1 2\n".to_string(), ["line 3", "three finite numbers"]),
        ("{".to_string(), ["whole JSON", "EOF"]),
        ("{\"markups\": []}".to_string(), ["one entry", "0"]),
        (markups("undefined", "LPS"), ["must have a position", "AC"]),
        (markups("defined", "IJK"), ["RAS (0) or LPS (1)", "IJK"]),
    ] {
        fs::write(&path, &text).expect("writable");
        let message = read_landmarks(&path, &LandmarkSpace::OfFile).expect_err(&text).to_string();
        assert!(words.iter().all(|word| message.contains(word)), "{text:?}: {message}");
    }
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
