//! NRRD and MetaImage, placed as ITK places them. The right values are those of SimpleITK 2.5 for the same files, in RAS.

use super::*;
use crate::io::images::{DisplacementReader, Header, header, read_displacement, read_volume};

const DIAGONAL: [[f64; 4]; 3] =
    [[-2.0, 0.0, 0.0, 0.0], [0.0, -3.0, 0.0, 0.0], [0.0, 0.0, 4.0, 0.0]];

/// With another origin.
fn at(x: f64, y: f64, z: f64) -> [[f64; 4]; 3] {
    let mut rows = DIAGONAL;
    (rows[0][3], rows[1][3], rows[2][3]) = (x, y, z);
    rows
}

fn nrrd(folder: &Folder, fields: &str) -> PathBuf {
    let text =
        format!("NRRD0005\ntype: uchar\ndimension: 3\nsizes: 4 3 2\nencoding: raw\n{fields}\n");
    let voxels: Vec<u8> = (0..24).collect();
    folder.file("image.nrrd", &[text.as_bytes(), &voxels].concat())
}

fn assert_rows(header: &Header, expected: [[f64; 4]; 3], case: &str) {
    let map = header.geometry.voxel_to_mm();
    let pairs = map.rows().as_flattened().iter().zip(expected.as_flattened());
    let apart = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(apart < 1e-12, "{case}: {:?} {expected:?}", map.rows());
}

#[test]
fn a_nrrd_without_a_space_lies_along_lps() {
    let folder = Folder::new();
    let directions = "space directions: (2,0,0) (0,3,0) (0,0,4)\nspace origin: (1,2,3)\n";
    let um = "space units: \"microns\" \"um\" \"micrometer\"\n";
    let small = at(-1.0, -2.0, 3.0).map(|row| row.map(|v| v / 1000.0));
    let mut ras = at(1.0, 2.0, 3.0);
    (ras[0][0], ras[1][1]) = (2.0, 3.0);
    for (fields, expected) in [
        ("spacings: 2 3 4\n".to_string(), DIAGONAL),
        ("spacings: 2 3 4\naxis mins: 5 6 7\n".into(), at(-6.0, -7.5, 9.0)),
        (
            "spacings: 2 3 4\naxis mins: 5 6 7\ncenters: cell cell cell\n".into(),
            at(-6.0, -7.5, 9.0),
        ),
        (
            "spacings: 2 3 4\naxis mins: 5 6 7\ncenterings: node node node\n".into(),
            at(-5.0, -6.0, 7.0),
        ),
        ("spacings: 2 3 4\naxis mins: nan 6 7\n".into(), DIAGONAL),
        (format!("space dimension: 3\n{directions}"), at(-1.0, -2.0, 3.0)),
        (format!("space: scanner-xyz\n{directions}"), at(-1.0, -2.0, 3.0)),
        (format!("space: RAS\n{directions}"), ras),
        // Units are converted, which ITK leaves to its user.
        (format!("space dimension: 3\n{directions}{um}"), small),
        ("spacings: 2000 3000 4000\nunits: \"um\" \"um\" \"um\"\n".into(), DIAGONAL),
    ] {
        let path = nrrd(&folder, &fields);
        assert_rows(&header(&path).unwrap(), expected, &fields);
        assert_eq!(read_volume(&path).unwrap().data[23], 23.0);
    }
    let fields = "space: LPS\nbyte skip: -1\n\nsomething else\n";
    assert_eq!(read_volume(nrrd(&folder, fields)).unwrap().data[0], 0.0);
    let path = nrrd(&folder, "space: up\nspace directions: (2,0,0) (0,3,0) (0,0,4)\n");
    assert!(message(&path, header(&path)).contains("the space must be"));
}

#[test]
fn slices_in_files_of_their_own_are_refused_with_a_way_out() {
    let folder = Folder::new();
    for (name, text) in [
        (
            "a.nhdr",
            "NRRD0005\ntype: uchar\ndimension: 3\nsizes: 4 3 2\nencoding: raw\ndata file: LIST\na.raw\nb.raw\n",
        ),
        (
            "a.nhdr",
            "NRRD0005\ntype: uchar\ndimension: 3\nsizes: 4 3 2\nencoding: raw\ndata file: s%d.raw 0 1 1\n",
        ),
        (
            "a.mhd",
            "NDims = 3\nDimSize = 4 3 2\nElementType = MET_UCHAR\nElementDataFile = LIST\na.raw\nb.raw\n",
        ),
    ] {
        let path = folder.file(name, text.as_bytes());
        assert!(message(&path, header(&path)).contains("data must be in one file"), "{text}");
    }
}

fn meta(folder: &Folder, fields: &str, bytes: &[u8]) -> PathBuf {
    let text = format!("ObjectType = Image\n{fields}\nElementDataFile = LOCAL\n");
    folder.file("image.mha", &[text.as_bytes(), bytes].concat())
}

#[test]
fn the_spacing_of_a_metaimage_is_its_element_spacing_wherever_it_stands() {
    let folder = Folder::new();
    for (fields, expected) in [
        ("ElementSize = 9 9 9\nElementSpacing = 2 3 4", [2.0, 3.0, 4.0]),
        ("ElementSpacing = 2 3 4\nElementSize = 9 9 9", [2.0, 3.0, 4.0]),
        ("ElementSize = 9 8 7", [9.0, 8.0, 7.0]),
    ] {
        let fields = format!("NDims = 3\nDimSize = 4 3 2\n{fields}\nElementType = MET_UCHAR");
        let path = meta(&folder, &fields, &[0; 24]);
        assert_eq!(header(path).unwrap().geometry.spacing_mm, expected, "{fields}");
    }
}

#[test]
fn a_long_of_a_metaimage_has_four_bytes() {
    let folder = Folder::new();
    let voxels: Vec<u8> = (0..24i32).flat_map(|i| (i - 3).to_le_bytes()).collect();
    let wide: Vec<u8> = (0..24i64).flat_map(|i| (i - 3).to_le_bytes()).collect();
    for (name, bytes) in [("MET_LONG", &voxels), ("MET_INT", &voxels), ("MET_LONG_LONG", &wide)] {
        let path =
            meta(&folder, &format!("NDims = 3\nDimSize = 4 3 2\nElementType = {name}"), bytes);
        let read = read_volume(path).unwrap().data;
        assert_eq!((read[0], read[23]), (-3.0, 20.0), "{name}");
    }
    let path = meta(&folder, "NDims = 3\nDimSize = 4 3 2\nElementType = MET_ULONG", &voxels);
    assert_eq!(read_volume(path).unwrap().data[23], 20.0);
}

#[test]
fn a_metaimage_of_two_axes_is_a_plane() {
    let folder = Folder::new();
    let fields = "NDims = 2\nDimSize = 6 4\nElementSpacing = 2 3\nOffset = 5 6\nTransformMatrix = 0 1 -1 0\nElementType = MET_UCHAR";
    let path = meta(&folder, fields, &[7; 24]);
    let header = header(&path).unwrap();
    assert_eq!(header.geometry.size, [6, 4, 1]);
    // ITK's direction is (0, -1, 1, 0) by rows.
    let rows = [[0.0, 3.0, 0.0, -5.0], [-2.0, 0.0, 0.0, -6.0], [0.0, 0.0, 1.0, 0.0]];
    assert_rows(&header, rows, fields);
    assert_eq!(read_volume(&path).unwrap().data, [7.0; 24]);
}

#[test]
fn fields_of_metaimage_and_nrrd_are_vectors_in_lps_mm() {
    let folder = Folder::new();
    // LPS mm (2 v, 6 v, -4 v) at voxel v: in voxels of 2, 3 and 4 mm along L, P and S (v, 2 v, -v).
    let vectors: Vec<u8> = (0..24)
        .flat_map(|v| [2.0, 6.0, -4.0].map(|c| c * v as f32))
        .flat_map(f32::to_le_bytes)
        .collect();
    let fields = "NDims = 3\nDimSize = 4 3 2\nElementSpacing = 2 3 4\nElementNumberOfChannels = 3\nElementType = MET_FLOAT";
    let mha = meta(&folder, fields, &vectors);
    let text = "NRRD0004\ntype: float\ndimension: 4\nspace: left-posterior-superior\nsizes: 3 4 3 2\n\
                space directions: none (2,0,0) (0,3,0) (0,0,4)\nkinds: vector domain domain domain\n\
                endian: little\nencoding: raw\nspace origin: (0,0,0)\n\n";
    let nrrd = folder.file("field.nrrd", &[text.as_bytes(), &vectors].concat());
    let expected: Vec<f32> =
        [1.0, 2.0, -1.0].iter().flat_map(|c| (0..24).map(move |v| c * v as f32)).collect();
    for path in [mha, nrrd] {
        assert_eq!(header(&path).unwrap().dims, [4, 3, 2, 1, 3]);
        let (read, geometry) = read_displacement(&path).unwrap();
        assert_eq!((&read, geometry.size), (&expected, [4, 3, 2]), "{path:?}");
        let second: Vec<f32> = expected.chunks(24).flat_map(|c| c[12..].to_vec()).collect();
        assert_eq!(DisplacementReader::open(&path).unwrap().read(1..2).unwrap(), second);
        assert!(message(&path, read_volume(&path)).contains("displacement field as a transform"));
        let parts = crate::io::read_transform_file(&path).unwrap();
        assert!(matches!(&parts[..], [crate::io::TransformPart::Displacement { .. }]));
    }
}

#[test]
fn the_offset_of_a_metaimage_comes_before_older_names_wherever_it_stands() {
    // As SimpleITK 2.5 reads them: (4, 5, 6) along the axes of LPS, in both orders.
    let folder = Folder::new();
    let old = "Position = 1 2 3\nOrientation = -1 0 0 0 1 0 0 0 1";
    let new = "Offset = 4 5 6\nTransformMatrix = 1 0 0 0 1 0 0 0 1";
    for fields in [format!("{old}\n{new}"), format!("{new}\n{old}")] {
        let fields = format!(
            "NDims = 3\nDimSize = 4 3 2\nElementSpacing = 2 3 4\n{fields}\nElementType = MET_UCHAR"
        );
        let path = meta(&folder, &fields, &[0; 24]);
        assert_rows(&header(path).unwrap(), at(-4.0, -5.0, 6.0), &fields);
    }
}

#[test]
fn a_long_of_eight_bytes_is_refused_and_not_read_by_halves() {
    let folder = Folder::new();
    let wide: Vec<u8> = (0..24i64).flat_map(i64::to_le_bytes).collect();
    for name in ["MET_LONG", "MET_ULONG"] {
        let fields = format!("NDims = 3\nDimSize = 4 3 2\nElementType = {name}");
        let path = meta(&folder, &fields, &wide);
        assert!(message(&path, read_volume(&path)).contains("MET_LONG_LONG"), "{name}");
    }
}

#[test]
fn vectors_of_a_nrrd_in_micrometres_are_as_long_as_its_grid_says() {
    let folder = Folder::new();
    let vectors: Vec<u8> =
        (0..24).flat_map(|_| [2000f32, 6000.0, -4000.0]).flat_map(f32::to_le_bytes).collect();
    let file = |name: &str, kind: &str, bytes: &[u8]| {
        let text = format!(
            "NRRD0005\ntype: float\ndimension: 4\nsizes: 3 4 3 2\nkinds: {kind} domain domain domain\n\
             endian: little\nencoding: raw\nspace: left-posterior-superior\n\
             space directions: none (2000,0,0) (0,3000,0) (0,0,4000)\nspace units: \"um\" \"um\" \"um\"\n\n"
        );
        folder.file(name, &[text.as_bytes(), bytes].concat())
    };
    let (field, grid) = read_displacement(file("um.nrrd", "vector", &vectors)).unwrap();
    assert_eq!(grid.spacing_mm, [2.0, 3.0, 4.0]);
    for (component, expected) in [1.0, 2.0, -1.0].into_iter().enumerate() {
        assert!(
            // The relative rounding of three products in f32.
            (field[24 * component] - expected).abs() < 1e-6,
            "{component}: {}",
            field[24 * component]
        );
    }
    let path = file("rgb.nrrd", "RGB-color", &vectors);
    assert!(message(&path, read_displacement(&path)).contains("one value a voxel"));
}
