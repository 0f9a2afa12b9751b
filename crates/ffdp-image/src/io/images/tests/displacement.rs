//! Displacement fields for ITK and ANTs.

use super::*;
use crate::io::images::{
    DisplacementWriter, header, read_displacement, read_volume, write_displacement,
};

/// Relative rounding of a value that goes to f32 mm and back.
const F32_ROUNDING: f32 = 1e-5;

fn field(geometry: &Geometry) -> Vec<f32> {
    (0..3 * geometry.len()).map(|i| (i as f32 * 0.7).sin() * 5.0).collect()
}

#[test]
fn a_field_written_in_slices_is_the_same_file() {
    let straight = Geometry::new([5, 4, 3], [1.0, 2.0, 0.5]).unwrap();
    for geometry in [sheared([5, 4, 3]), straight] {
        let folder = Folder::new();
        let voxels = field(&geometry);
        let count = geometry.len();
        for name in ["warp.nii", "warp.nii.gz"] {
            let (at_once, in_slices) = (folder.path(name), folder.path(&format!("slices_{name}")));
            write_displacement(&at_once, &voxels, &geometry).unwrap();
            let mut file = DisplacementWriter::create(&in_slices, &geometry).unwrap();
            for i in 0..3 {
                let row = file.row(i);
                for first in (0..count).step_by(20) {
                    let slice = |c: usize| &voxels[c * count + first..][..20];
                    // What does not count is left out, but for one that says how many there are.
                    let parts = [0, 1, 2].map(|c| (row[c] != 0.0 || c == i).then(|| slice(c)));
                    file.write(i, parts).unwrap();
                }
            }
            let too_many = file.write(2, [Some(&voxels[..1]); 3]).unwrap_err();
            assert!(too_many.to_string().contains("warp"), "{too_many}");
            assert!(!in_slices.exists(), "nothing appears before the end");
            file.finish().unwrap();
            let [a, b] = [at_once, in_slices].map(|path| read_displacement(path).unwrap());
            assert_eq!(a, b, "{name}");
        }
    }
    let folder = Folder::new();
    let file = DisplacementWriter::create(folder.path("few.nii"), &sheared([5, 4, 3])).unwrap();
    let too_few = file.finish().unwrap_err().to_string();
    assert!(too_few.contains("180"), "{too_few}");
}

#[test]
fn fields_come_back_in_voxels() {
    let folder = Folder::new();
    let geometry = sheared([5, 4, 3]);
    let voxels = field(&geometry);
    for name in ["warp.nii", "warp.nii.gz"] {
        let path = folder.path(name);
        write_displacement(&path, &voxels, &geometry).unwrap();
        let (back, grid) = read_displacement(&path).unwrap();
        assert_eq!(grid, geometry, "{name}");
        for (i, (a, b)) in back.iter().zip(&voxels).enumerate() {
            assert!((a - b).abs() < F32_ROUNDING * 5.0, "{name} value {i}: {a} {b}");
        }
    }
}

#[test]
fn the_file_holds_lps_millimetres_with_the_component_slowest() {
    let folder = Folder::new();
    // Voxel axes: x along minus R, y along S, z along A, with spacings 2, 3, 4.
    let direction = [[-1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]];
    let geometry = Geometry::new([2, 1, 1], [2.0, 3.0, 4.0])
        .and_then(|grid| grid.with_direction(direction))
        .unwrap();
    let path = folder.path("warp.nii");
    // Voxel 0 moves by (1, 10, 100), voxel 1 by (-2, -20, -200).
    write_displacement(&path, &[1.0, -2.0, 10.0, -20.0, 100.0, -200.0], &geometry).unwrap();
    let read = header(&path).unwrap();
    assert_eq!((read.dims, read.intent_code), (vec![2, 1, 1, 1, 3], 1007));
    let bytes = fs::read(&path).unwrap();
    let stored: Vec<f32> =
        bytes[352..].chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    // RAS of voxel 0: (-2, 400, 30); LPS: (2, -400, 30).
    assert_eq!(stored, [2.0, -4.0, -400.0, 800.0, 30.0, -60.0]);
}

#[test]
fn wrong_lengths_are_refused() {
    let folder = Folder::new();
    let text = write_displacement(folder.path("a.nii"), &[0.0; 35], &sheared([3, 2, 2]));
    let text = text.unwrap_err().to_string();
    assert!(text.contains("[3, 2, 2, 3]") && text.contains("[36]") && text.contains("[35]"));
}

#[test]
fn other_files_are_no_displacement() {
    let folder = Folder::new();
    let vectors = |rank: i64, tail: [i64; 2], intent: i32| {
        let mut raw = raw(DataType::U8);
        raw.dim[0] = rank;
        raw.dim[4..6].copy_from_slice(&tail);
        raw.intent_code = intent;
        folder.file("vectors.nii", &counting(&raw))
    };
    for (rank, tail, shown) in [
        (3, [1, 1], "got [3, 2, 2];"),
        (4, [2, 1], "got [3, 2, 2, 2];"),
        (5, [2, 3], "got [3, 2, 2, 2, 3];"),
        (5, [1, 2], "got [3, 2, 2, 1, 2];"),
    ] {
        let path = vectors(rank, tail, 1007);
        let text = message(&path, read_displacement(&path));
        assert!(text.contains("[x, y, z, 1, 3]") && text.contains(shown), "{text}");
    }
    // FSL's own fields, and others.
    for (intent, fix) in [(2006, "-from-fnirt"), (2009, "fnirtfileutils"), (1005, "set the intent")]
    {
        let path = vectors(5, [1, 3], intent);
        let text = message(&path, read_displacement(&path));
        assert!(text.contains("intent 1007") && text.contains(fix), "{text}");
    }
    let path = vectors(5, [1, 3], 1007);
    // NiftyReg gives its transforms the intent of ITK's.
    let mut bytes = std::fs::read(&path).expect("just written");
    bytes[328..338].copy_from_slice(b"NREG_TRANS");
    let nifty = folder.file("nifty.nii", &bytes);
    let text = message(&nifty, read_displacement(&nifty));
    assert!(text.contains("NiftyReg") && text.contains("reg_transform -disp"), "{text}");
    assert!(read_displacement(&path).is_ok());
    assert!(message(&path, read_volume(&path)).contains("displacement field as a transform"));
}

#[test]
fn fields_without_the_intent_or_with_four_axes_are_read_as_those_of_itk() {
    let folder = Folder::new();
    let field = |rank: i64, tail: [i64; 2], intent: i32| {
        let mut raw = raw(DataType::U8);
        raw.dim[0] = rank;
        raw.dim[4..6].copy_from_slice(&tail);
        raw.intent_code = intent;
        read_displacement(folder.file("vectors.nii", &counting(&raw))).unwrap()
    };
    let expected = field(5, [1, 3], 1007);
    assert_eq!(field(5, [1, 3], 0), expected);
    assert_eq!(field(4, [3, 1], 0), expected);
    assert_eq!(field(4, [3, 1], 1007), expected);
}

#[test]
fn vectors_must_be_finite() {
    let folder = Folder::new();
    let mut raw = raw(DataType::F32);
    (raw.dim[0], raw.dim[5], raw.intent_code) = (5, 3, 1007);
    let mut values = [0.5; 36];
    (values[12 + 7], values[30]) = (f64::NAN, f64::INFINITY);
    let bytes = file_bytes(&raw, &encode(&values, DataType::F32, Endian::Little));
    let path = folder.file("warp.nii", &bytes);
    let text = message(&path, read_displacement(&path));
    assert!(text.contains("2 NaN") && text.contains("[1, 0, 1], component 1"), "{text}");
}

#[test]
fn displacement_vectors_by_intent_are_in_ras() {
    // As SimpleITK 2.5.7 reads them: the vectors (1, 2, 3) of intent 1006 as (-1, -2, 3) in LPS.
    let folder = Folder::new();
    let mut raw = raw(DataType::F32);
    (raw.dim[0], raw.dim[5], raw.intent_code) = (5, 3, 1007);
    let geometry = sheared([3, 2, 2]);
    let values: Vec<f64> = (0..36).map(|i| [1.0, 2.0, 3.0][i / 12]).collect();
    let bytes = |intent| {
        let raw = RawHeader { intent_code: intent, ..raw.clone() };
        file_bytes(&raw, &encode(&values, DataType::F32, Endian::Little))
    };
    for (intent, ras) in [(1006, [1.0, 2.0, 3.0]), (1007, [-1.0, -2.0, 3.0])] {
        let (field, _) = read_displacement(folder.file("warp.nii", &bytes(intent))).unwrap();
        let expected = geometry.mm_to_voxel().apply_vector(ras);
        for c in 0..3 {
            assert!(
                (f64::from(field[12 * c]) - expected[c]).abs() < 1e-6,
                "{intent}: {expected:?}"
            );
        }
    }
}
