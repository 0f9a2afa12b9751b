use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::shape::norm;
use crate::shape::sub;

const FORMATS: [&str; 5] = ["ply", "vtk", "obj", "stl", "gii"];

fn written(shape: &Shape, extension: &str) -> Vec<u8> {
    match extension {
        "ply" => ply::bytes(shape, &[]),
        "vtk" => vtk::bytes(shape, &[]),
        "obj" => obj::bytes(shape),
        "stl" => stl::bytes(shape),
        _ => gifti::bytes(shape),
    }
}

/// Reads bytes as a file of that name.
fn read_as(bytes: &[u8], extension: &str) -> Result<Shape> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(format!("shape.{extension}"));
    std::fs::write(&path, bytes).unwrap();
    read_shape(&path)
}

fn refusal(bytes: impl AsRef<[u8]>, extension: &str) -> String {
    read_as(bytes.as_ref(), extension).expect_err("must be refused").to_string()
}

#[test]
fn meshes_come_back_from_every_format() {
    let sphere = Shape::sphere(37.25, 2);
    for format in FORMATS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("Sphere.{}", format.to_uppercase()));
        write_shape(&path, &sphere).unwrap();
        let back = read_shape(&path).unwrap();
        assert_eq!(back.points.len(), sphere.points.len(), "{format}");
        // STL numbers its points anew; f32 keeps 7 digits.
        let corners =
            |shape: &Shape| shape.triangles().iter().map(|t| shape.corners(t)).collect::<Vec<_>>();
        for (a, b) in corners(&back).iter().zip(corners(&sphere)) {
            for (p, q) in a.iter().zip(b) {
                assert!(norm(sub(*p, q)) < 37.25 * 1e-6, "{format}: {p:?} {q:?}");
            }
        }
        if format != "stl" {
            assert_eq!(back.cells, sphere.cells, "{format}");
        }
    }
}

#[test]
fn curves_and_clouds_come_back_where_they_can_be_held() {
    let points: Vec<Position> = (0..7).map(|i| [f64::from(i), 0.5, -2.0]).collect();
    for shape in [Shape::curve(points.clone(), true).unwrap(), Shape::cloud(points).unwrap()] {
        for format in ["ply", "vtk", "obj"] {
            assert_eq!(read_as(&written(&shape, format), format).unwrap(), shape, "{format}");
        }
        let folder = tempfile::tempdir().unwrap();
        for format in ["stl", "gii"] {
            let refused = write_shape(folder.path().join(format!("a.{format}")), &shape);
            assert!(refused.unwrap_err().to_string().contains("triangles only"), "{format}");
        }
    }
}

#[test]
fn numbers_of_points_stand_in_the_file() {
    let cloud = Shape::cloud(vec![[0.0; 3], [1.0; 3]]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for format in ["ply", "vtk"] {
        let path = folder.path().join(format!("a.{format}"));
        write_shape_with(&path, &cloud, &[("distance", &[1.5, 2.5])]).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes.windows(8).any(|w| w == b"distance"), "{format}");
        assert_eq!(read_shape(&path).unwrap(), cloud, "{format}");
    }
    assert!(write_shape_with(folder.path().join("a.obj"), &cloud, &[("d", &[0.0, 0.0])]).is_err());
}

#[test]
fn text_of_other_programs_is_read() {
    let square = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 1.0, 0.0]];
    let expected = Shape::mesh(square.to_vec(), vec![[0, 1, 2], [0, 2, 3]]).unwrap();
    let texts = [
        (
            "obj",
            "# c\nmtllib x.mtl\nv 0 0 0\nv 1 0 0 1.0\nvn 0 0 1\nv 1 1 0\nv 0 1 0\ng a\nf 1/1/1 2//1 3 -1\n",
        ),
        (
            "ply",
            "ply\nformat ascii 1.0\nelement vertex 4\nproperty double x\nproperty double y\nproperty double z\n\
          property uchar red\nelement face 1\nproperty list uchar uint vertex_index\nend_header\n\
          0 0 0 9\n1 0 0 9\n1 1 0 9\n0 1 0 9\n4 0 1 2 3\n",
        ),
        (
            "vtk",
            "# vtk DataFile Version 3.0\nsquare\nASCII\nDATASET POLYDATA\nPOINTS 4 float\n0 0 0 1 0 0\n1 1 0 0 1 0\n\
          \nPOLYGONS 1 5\n4 0 1 2 3\nPOINT_DATA 4\nSCALARS a float\n",
        ),
        (
            "vtk",
            "# vtk DataFile Version 5.1\nsquare SPACE=LPS\nASCII\nDATASET POLYDATA\nPOINTS 4 float\n0 0 0 -1 0 0\n\
          -1 -1 0 0 -1 0\nMETADATA\nINFORMATION 0\n\nPOLYGONS 3 6\nOFFSETS vtktypeint64\n0 3 6\n\
          CONNECTIVITY vtktypeint64\n0 1 2 0 2 3\n",
        ),
        (
            "gii",
            "<?xml version=\"1.0\"?><GIFTI><DataArray Intent=\"NIFTI_INTENT_POINTSET\" \
          DataType=\"NIFTI_TYPE_FLOAT32\" Encoding=\"ASCII\" ArrayIndexingOrder=\"ColumnMajorOrder\" Dim0=\"4\" Dim1=\"3\">\
          <Data>0 1 1 0  0 0 1 1  0 0 0 0</Data></DataArray><DataArray Intent=\"NIFTI_INTENT_TRIANGLE\" \
          DataType=\"NIFTI_TYPE_INT32\" Encoding=\"ASCII\" Dim0=\"2\" Dim1=\"3\"><Data>0 1 2 0 2 3</Data></DataArray></GIFTI>",
        ),
    ];
    for (format, text) in texts {
        assert_eq!(read_as(text.as_bytes(), format).unwrap(), expected, "{format}: {text}");
    }
    let facet = "facet normal 0 0 1\nouter loop\nvertex 0 0 0\nvertex 1 0 0\nvertex 1 1 0\nendloop\nendfacet\n";
    let stl = read_as(format!("solid a\n{facet}endsolid a\n").as_bytes(), "stl").unwrap();
    assert_eq!(stl.measure(), 0.5);
}

#[test]
fn damage_is_named() {
    let text = |format: &str, text: &str| refusal(text, format);
    let head = "# vtk DataFile Version 3.0\nt\nASCII\nDATASET POLYDATA\n";
    let cases = [
        (text("vtk", "hello"), "first line"),
        (text("vtk", "# vtk DataFile Version 3.0\nt\nASCII\nDATASET IMAGE_DATA\n"), "POLYDATA"),
        (text("vtk", &format!("{head}POINTS 99999999999 float\n0 0 0\n")), "announced"),
        (text("vtk", &format!("{head}POINTS 2 float\n0 0 0 1 1 NaN\n")), "finite"),
        (
            text(
                "vtk",
                &format!("{head}POINTS 3 float\n0 0 0 1 1 1 2 2 2\nPOLYGONS 1 4\n3 0 1 7\n"),
            ),
            "got 7",
        ),
        (
            text("vtk", &format!("{head}POINTS 1 float\n0 0 0\nPOLYGONS 1 4\n9 0 0 0\n")),
            "announced",
        ),
        (text("obj", "v 0 0\n"), "line 1"),
        (text("obj", "v 0 0 0\nf 1 2 3\n"), "got 1"),
        (text("obj", "v 0 0 0\nv 0 0 inf\n"), "finite"),
        (text("obj", "v 0 0 0\nf 0 1 1\n"), "line 2"),
        (text("obj", ""), "must have points"),
        (
            text(
                "ply",
                "ply\nformat ascii 1.0\nelement vertex 2\nproperty float x\nend_header\n1\n2\n",
            ),
            "x, y, z",
        ),
        (text("ply", "no"), "PLY"),
        (text("stl", "short"), "84 bytes"),
        (
            text(
                "gii",
                "<GIFTI><DataArray Intent=\"NIFTI_INTENT_POINTSET\" Dim0=\"1\" Dim1=\"2\"></DataArray></GIFTI>",
            ),
            "Dim1",
        ),
        (text("gii", "<GIFTI></GIFTI>"), "POINTSET"),
        (text("xyz", ""), "must end in"),
    ];
    for (message, part) in cases {
        assert!(message.contains(part) && message.contains("shape."), "{message:?} lacks {part:?}");
    }
}

#[test]
fn truncated_files_are_refused_or_hold_fewer_triangles() {
    let sphere = Shape::sphere(2.0, 1);
    for format in FORMATS {
        let whole = written(&sphere, format);
        for length in (0..whole.len() - 1).step_by(7) {
            if let Ok(shape) = read_as(&whole[..length], format) {
                // A text without counts cannot show that lines are missing; a binary mesh may have lost the section
                // of its triangles.
                assert!(shape.cells.len() <= sphere.cells.len(), "{format} {length}");
                let cut_number = format == "obj";
                let all = shape.cells.is_empty() || cut_number;
                assert!(all || shape.cells == sphere.cells, "{format} {length}");
            }
        }
    }
}

#[test]
fn no_byte_makes_a_reader_panic_or_ask_for_endless_memory() {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let sphere = Shape::sphere(2.0, 0);
    let mut accepted = 0;
    for format in FORMATS {
        let whole = written(&sphere, format);
        for _ in 0..400 {
            let mut bytes = whole.clone();
            for _ in 0..rng.random_range(1..4) {
                let at = rng.random_range(0..bytes.len());
                bytes[at] = rng.random();
            }
            let read = match format {
                "ply" => ply::read(&bytes),
                "vtk" => vtk::read(&bytes),
                "obj" => obj::read(&bytes),
                "stl" => stl::read(&bytes),
                _ => gifti::read(&bytes),
            };
            if let Ok((points, cells)) = read {
                accepted += usize::from(Shape::new(points, cells).is_ok());
            }
        }
    }
    assert!(accepted > 0, "a changed coordinate is no damage");
}
