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

/// A facet of a text with its corners.
fn facet([a, b, c]: [[i32; 3]; 3]) -> String {
    let vertex = |[x, y, z]: [i32; 3]| format!("    vertex {x} {y} {z}\n");
    let corners = [a, b, c].map(vertex).concat();
    format!("  facet normal 0 0 1\n   outer loop\n{corners}   endloop\n  endfacet\n")
}

const HALVES: [[[i32; 3]; 3]; 2] =
    [[[0, 0, 0], [1, 0, 0], [1, 1, 0]], [[0, 0, 0], [1, 1, 0], [0, 1, 0]]];

fn square() -> Shape {
    let corners = vec![[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 1.0, 0.0]];
    Shape::mesh(corners, vec![[0, 1, 2], [0, 2, 3]]).unwrap()
}

/// As Slicer writes them: x and y have the other sign.
fn mirrored(shape: &Shape) -> Shape {
    shape.with_points(shape.points.iter().map(|p| [-p[0], -p[1], p[2]]).collect()).unwrap()
}

#[test]
fn text_stl_keeps_every_solid() {
    let [a, b] = HALVES.map(facet);
    let text = format!("solid a\n{a}endsolid a\n\nsolid b\n{b}endsolid b\n");
    assert_eq!(read_as(text.as_bytes(), "stl").unwrap(), square());
}

#[test]
fn text_stl_is_known_in_any_case_and_whatever_its_name() {
    let facets = HALVES.map(facet).concat();
    let text = format!("solid exported facet by facet\n{facets}endsolid\n");
    for text in
        [text.to_uppercase().replace("EXPORTED", "Exported"), text.clone(), format!("\r\n{text}")]
    {
        assert_eq!(read_as(text.as_bytes(), "stl").unwrap(), square(), "{text}");
    }
    for (text, part) in [
        (text.replacen("vertex 1 0 0\n", "", 1), "line 7: a facet has three vertices"),
        (text.replace("endsolid", ""), "endsolid"),
        (text[..text.len() - 28].to_string(), "endsolid"),
        (text.replace("vertex 1 0 0", "vertex 1 0"), "line 5: a vertex has three numbers"),
        (text.replace("outer", "inner"), "line 3"),
    ] {
        let message = refusal(&text, "stl");
        assert!(message.contains(part), "{message} for {text}");
    }
}

#[test]
fn binary_stl_may_be_titled_as_a_text() {
    let mut bytes = written(&square(), "stl");
    bytes[..20].copy_from_slice(b"solid facet exporter");
    assert_eq!(read_as(&bytes, "stl").unwrap(), square());
    // Some programs add bytes.
    bytes.extend([0; 7]);
    assert_eq!(read_as(&bytes, "stl").unwrap(), square());
}

#[test]
fn meshes_of_slicer_in_lps_are_turned_to_ras() {
    let shape = square();
    let mut binary = written(&shape, "stl");
    binary[..27].copy_from_slice(b"3D Slicer output. SPACE=LPS");
    let text =
        format!("solid 3D Slicer output. SPACE=LPS\n{}endsolid\n", HALVES.map(facet).concat());
    let vertices = "v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\n";
    let obj = format!("# 3D Slicer output. SPACE=LPS\n\nmtllib a.mtl\n{vertices}f 1 2 3 4\n");
    let points = "POINTS 4 float\n0 0 0 1 0 0 1 1 0 0 1 0\nPOLYGONS 1 5\n4 0 1 2 3\n";
    let vtk = |title: &str, field: &str| {
        format!("# vtk DataFile Version 4.2\n{title}\nASCII\nDATASET POLYDATA\n{field}{points}")
    };
    let titled = vtk("3D Slicer output. SPACE=LPS", "");
    let in_field = vtk("a", "FIELD FieldData 1\nSPACE 1 1 string\nLPS\n");
    let ply = "ply\nformat ascii 1.0\ncomment 3D Slicer output. SPACE=LPS\nelement vertex 4\n\
        property float x\nproperty float y\nproperty float z\nelement face 1\n\
        property list uchar int vertex_indices\nend_header\n0 0 0\n1 0 0\n1 1 0\n0 1 0\n4 0 1 2 3\n";
    let files = [
        ("stl", binary.as_slice()),
        ("stl", text.as_bytes()),
        ("obj", obj.as_bytes()),
        ("vtk", titled.as_bytes()),
        ("vtk", in_field.as_bytes()),
        ("ply", ply.as_bytes()),
    ];
    for (format, bytes) in files {
        let read = read_as(bytes, format).unwrap();
        assert_eq!(read, mirrored(&shape), "{format}: {}", String::from_utf8_lossy(bytes));
        // The same without the words of Slicer, or with those for RAS.
        let mut text = bytes.to_vec();
        let at = text.windows(3).position(|word| word == b"LPS").unwrap();
        text[at..at + 3].copy_from_slice(b"RAS");
        assert_eq!(read_as(&text, format).unwrap(), shape, "{format}");
    }
}

#[test]
fn files_say_that_they_are_ras() {
    for format in ["ply", "vtk", "obj", "stl"] {
        let bytes = written(&square(), format);
        assert!(bytes.windows(9).any(|w| w == b"SPACE=RAS"), "{format}: Slicer would take LPS");
    }
}

#[test]
fn strips_become_triangles_with_one_outside() {
    let strip = [0, 1, 3, 2];
    // Another strip after -1; a point that comes twice joins strips and has no area.
    let list = "9 0 1 3 2 -1 0 0 1 3\n";
    let ply = format!(
        "ply\nformat ascii 1.0\nelement vertex 4\nproperty float x\nproperty float y\nproperty float z\n\
         element tristrips 1\nproperty list int int vertex_indices\nend_header\n\
         0 0 0\n1 0 0\n1 1 0\n0 1 0\n{list}"
    );
    let vtk = "# vtk DataFile Version 4.2\nt\nASCII\nDATASET POLYDATA\nPOINTS 4 float\n\
        0 0 0 1 0 0 1 1 0 0 1 0\nTRIANGLE_STRIPS 2 10\n4 0 1 3 2\n4 0 0 1 3\n";
    for (format, text) in [("ply", &*ply), ("vtk", vtk)] {
        let mesh = read_as(text.as_bytes(), format).unwrap();
        // Of the second strip the third triangle alone has an area, and is turned as its place demands.
        assert_eq!(mesh.triangles(), [[0, 1, 3], [3, 1, 2], [1, 0, 3]], "{format}");
        for triangle in &mesh.triangles()[..2] {
            let [a, b, c] = mesh.corners(triangle);
            assert!(crate::shape::cross(sub(b, a), sub(c, a))[2] > 0.0, "{format}: {triangle:?}");
        }
    }
    assert_eq!(super::strip(&strip).collect::<Vec<_>>(), [[0, 1, 3], [3, 1, 2]]);
}

#[test]
fn vtk_has_fields_before_points_and_words_in_any_case() {
    let body = "POINTS 4 float\n0 0 0 1 0 0 1 1 0 0 1 0\nPOLYGONS 2 8\n3 0 1 2 3 0 2 3\n";
    let head = "# vtk DataFile Version 4.2\nt\nASCII\nDATASET POLYDATA\n";
    let field = "FIELD FieldData 3\nTIME 1 1 double\n0.5\nNAME 1 2 string\nfirst one\nPOINTS\n\
        METADATA\nINFORMATION 0\n\nids 2 2 vtkIdType\n1 2 3 4\n";
    let text = format!("{head}{field}{body}");
    assert_eq!(read_as(text.as_bytes(), "vtk").unwrap(), square());
    let lower = format!("{head}{body}")
        .to_lowercase()
        .replace("vtk datafile version", "vtk DataFile Version");
    assert_eq!(read_as(lower.as_bytes(), "vtk").unwrap(), square());
    // Binary, with words of which the lengths come first: one byte that begins with 11, two that begin with 10.
    let mut bytes = head.replace("ASCII", "BINARY").into_bytes();
    bytes.extend(b"FIELD FieldData 2\nNAME 1 2 string\n");
    bytes.extend([0b1100_0011, b'a', b'\n', b'b', 0b1000_0000, 100]);
    bytes.extend([b'c'; 100]);
    bytes.extend(b"\nn 1 3 unsigned_char\n\x01\x02\x03\nPOINTS 4 double\n");
    square().points.as_flattened().iter().for_each(|v| bytes.extend(v.to_be_bytes()));
    bytes.extend(b"\nPOLYGONS 1 5\n");
    [4, 0, 1, 2, 3].iter().for_each(|v: &i32| bytes.extend(v.to_be_bytes()));
    assert_eq!(read_as(&bytes, "vtk").unwrap(), square());
    let cut = format!("{head}FIELD FieldData 1\nTIME 1 1\n{body}");
    assert!(refusal(&cut, "vtk").contains("an array of a FIELD"), "{}", refusal(&cut, "vtk"));
}

#[test]
fn obj_lines_go_on_after_a_backslash() {
    let text = "v 0 0 0\nv 1 0 \\\n 0\nv 1 1 0\nv 0 1 0\nf 1 2 \\\r\n3 \\\n  4\n";
    assert_eq!(read_as(text.as_bytes(), "obj").unwrap(), square());
    // Lines are counted as the file has them.
    assert!(refusal("v 0 0 \\\n0\nv 0 0\n", "obj").contains("line 3"));
}

#[test]
fn packed_meshes_are_read_and_written() {
    let folder = tempfile::tempdir().unwrap();
    let sphere = Shape::sphere(4.0, 1);
    for name in ["lh.surf.gii.gz", "a.PLY.GZ", "a.stl.gz"] {
        let path = folder.path().join(name);
        write_shape(&path, &sphere).unwrap();
        assert!(is_gzip(&std::fs::read(&path).unwrap()), "{name}");
        assert_eq!(
            read_shape(&path).unwrap().triangles().len(),
            sphere.triangles().len(),
            "{name}"
        );
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        let message = read_shape(&path).unwrap_err().to_string();
        assert!(message.contains("gzip"), "{name}: {message}");
    }
    assert!(read_shape("a.csv.gz").unwrap_err().to_string().contains("must end in"));
    let fix = |name: &str| read_shape(name).unwrap_err().to_string();
    assert!(fix("lh.pial").contains("mris_convert") && fix("a.vtp").contains(".ply"));
}

/// A GIfTI file of the square with arrays of these types, whose data an encoding has made.
fn gifti_of(types: [&str; 2], attributes: &str, data: [String; 2]) -> String {
    let array = |intent: &str, kind: &str, rows: usize, data: &str| {
        format!(
            "<DataArray Intent=\"NIFTI_INTENT_{intent}\" DataType=\"NIFTI_TYPE_{kind}\" Dim0=\"{rows}\" Dim1=\"3\" \
             ArrayIndexingOrder=\"RowMajorOrder\" {attributes}><Data>{data}</Data></DataArray>"
        )
    };
    let arrays =
        [array("POINTSET", types[0], 4, &data[0]), array("TRIANGLE", types[1], 2, &data[1])];
    format!("<GIFTI>{}</GIFTI>", arrays.concat())
}

#[test]
fn gifti_of_other_programs_is_read() {
    use base64::Engine;
    let base64 = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
    let shape = square();
    let points = || shape.points.as_flattened().iter().copied();
    let corners = || shape.triangles().as_flattened().iter().copied();
    let doubles: Vec<u8> = points().flat_map(f64::to_be_bytes).collect();
    let longs: Vec<u8> = corners().flat_map(|i| i64::from(i).to_be_bytes()).collect();
    let big = "Encoding=\"Base64Binary\" Endian=\"GIFTI_ENDIAN_BIG\"";
    let text = gifti_of(["FLOAT64", "INT64"], big, [base64(&doubles), base64(&longs)]);
    assert_eq!(read_as(text.as_bytes(), "gii").unwrap(), shape, "big-endian, 64 bits");

    let singles: Vec<u8> = points().flat_map(|v| (v as f32).to_le_bytes()).collect();
    let ints: Vec<u8> = corners().flat_map(|i| (i as i32).to_le_bytes()).collect();
    let gzip = |bytes: &[u8]| {
        let mut packer = GzEncoder::new(Vec::new(), Compression::default());
        packer.write_all(bytes).unwrap();
        base64(&packer.finish().unwrap())
    };
    let packed = "Encoding=\"GZipBase64Binary\" Endian=\"LittleEndian\"";
    let text = gifti_of(["FLOAT32", "INT32"], packed, [gzip(&singles), gzip(&ints)]);
    assert_eq!(read_as(text.as_bytes(), "gii").unwrap(), shape, "gzip in place of zlib");

    let latin = format!("<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?>{text}")
        .replace("<GIFTI>", "<GIFTI><!-- J\u{fc}rgen -->");
    let latin: Vec<u8> = latin.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
    assert_eq!(read_as(&latin, "gii").unwrap(), shape, "Latin-1");
    assert!(refusal(&latin[43..], "gii").contains("XML"), "no encoding is named");
}

#[test]
fn gifti_data_may_lie_in_another_file_of_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.gii");
    let shape = square();
    let mut data: Vec<u8> =
        shape.points.as_flattened().iter().flat_map(|v| (*v as f32).to_le_bytes()).collect();
    let start = data.len();
    shape.triangles().as_flattened().iter().for_each(|i| data.extend((*i as i32).to_le_bytes()));
    std::fs::write(folder.path().join("a.dat"), &data).unwrap();
    let file = |name: &str, second: usize| {
        let external = format!(
            "Encoding=\"ExternalFileBinary\" Endian=\"LittleEndian\" ExternalFileName=\"{name}\""
        );
        let text = gifti_of(["FLOAT32", "INT32"], &external, [String::new(), String::new()]);
        let (first, rest) = text.split_once("ExternalFileName").unwrap();
        let rest = rest.replace(
            "ExternalFileName",
            &format!("ExternalFileOffset=\"{second}\" ExternalFileName"),
        );
        std::fs::write(&path, format!("{first}ExternalFileOffset=\"0\" ExternalFileName{rest}"))
            .unwrap();
        read_shape(&path)
    };
    assert_eq!(file("a.dat", start).unwrap(), shape);
    for (name, second, part) in [
        ("a.dat", start + 4, "a.dat"),
        ("../a.dat", start, "same folder"),
        ("b.dat", start, "b.dat"),
    ] {
        let message = file(name, second).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
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
                _ => gifti::read(&bytes, Path::new("")),
            };
            if let Ok((points, cells)) = read {
                accepted += usize::from(Shape::new(points, cells).is_ok());
            }
        }
    }
    assert!(accepted > 0, "a changed coordinate is no damage");
}
