//! Where the grid lies: sform, qform, spacing.

use std::f64::consts::{FRAC_PI_2, PI};

use super::*;
use crate::io::images::{GeometrySource, Header, header};

/// f32 rounding of a header's entries, in mm, for coordinates up to 100.
const HEADER_ROUNDING_MM: f64 = 2e-5;

fn read(raw: &RawHeader) -> Header {
    let folder = Folder::new();
    header(folder.file("image.nii", &counting(raw))).unwrap()
}

/// A rotation by `angle` about `axis` (Rodrigues), an independent way to what quaternions do.
fn rotation(axis: [f64; 3], angle: f64) -> [[f64; 3]; 3] {
    let norm = (axis[0].powi(2) + axis[1].powi(2) + axis[2].powi(2)).sqrt();
    let [x, y, z] = axis.map(|v| v / norm);
    let (s, c) = angle.sin_cos();
    let t = 1.0 - c;
    [
        [c + t * x * x, t * x * y - s * z, t * x * z + s * y],
        [t * x * y + s * z, c + t * y * y, t * y * z - s * x],
        [t * x * z - s * y, t * y * z + s * x, c + t * z * z],
    ]
}

fn assert_same_place(a: &Geometry, b: &Geometry, case: &str) {
    for corner in [[0.0; 3], [2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]] {
        let (p, q) = (a.voxel_to_mm().apply(corner), b.voxel_to_mm().apply(corner));
        for i in 0..3 {
            assert!((p[i] - q[i]).abs() < HEADER_ROUNDING_MM, "{case}: {p:?} {q:?}");
        }
    }
}

#[test]
fn rotations_pass_through_the_quaternion() {
    for axis in [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, -2.0, 0.5], [-1.0; 3]] {
        for angle in [0.0, 1e-4, 0.3, FRAC_PI_2, 2.5, PI - 1e-4, PI, -2.0] {
            for flip in [1.0, -1.0] {
                let case = format!("axis {axis:?} angle {angle} flip {flip}");
                let turned = rotation(axis, angle).map(|[x, y, z]| [x, y, flip * z]);
                let grid = Geometry::new([3, 2, 2], [0.5, 2.0, 3.5])
                    .and_then(|grid| grid.with_direction(turned))
                    .and_then(|grid| grid.with_origin([-90.0, 12.5, 33.0]))
                    .unwrap();
                let mut raw = new_header(&grid, DataType::U8);
                assert_eq!((raw.qform_code, raw.sform_code), (1, 1), "{case}");
                raw.sform_code = 0;
                let from_qform = read(&raw);
                assert_eq!(from_qform.geometry_source, GeometrySource::Qform, "{case}");
                // A quaternion in f32 fixes an angle near a half turn only to 3e-4.
                let loose = (angle.abs() - PI).abs() < 1e-3;
                if loose {
                    let distance = grid.grid_distance_voxels(&from_qform.geometry);
                    assert!(distance < 2e-3, "{case}: {distance}");
                } else {
                    assert_same_place(&from_qform.geometry, &grid, &case);
                }
                raw.sform_code = 1;
                let both = read(&raw);
                assert_same_place(&both.geometry, &grid, &case);
                assert!(both.warnings.is_empty(), "{case}: {:?}", both.warnings);
            }
        }
    }
}

#[test]
fn the_sform_decides_and_disagreement_is_reported() {
    let mut raw = raw(DataType::U8);
    (raw.qform_code, raw.sform_code) = (1, 2);
    let header = read(&raw);
    assert_eq!(header.geometry, sheared([3, 2, 2]));
    assert_eq!(header.geometry_source, GeometrySource::Sform);
    let warning = &header.warnings[0];
    assert!(warning.contains("disagree") && warning.contains("sform is used"), "{warning}");
    // Both are kept, each with its code.
    assert_eq!((header.qform.unwrap().code, header.sform.unwrap().code), (1, 2));
    assert_ne!(header.qform.unwrap().voxel_to_mm, header.sform.unwrap().voxel_to_mm);
    // A qform that is not set says nothing.
    raw.qform_code = 0;
    let header = read(&raw);
    assert!(header.warnings.is_empty() && header.qform.is_none(), "{:?}", header.warnings);
}

#[test]
fn a_senseless_qform_and_a_sound_sform_are_a_disagreement() {
    let mut raw = raw(DataType::U8);
    raw.qform_code = 1;
    raw.quatern = [f64::NAN; 3];
    assert!(read(&raw).warnings[0].contains("disagree by up to inf"));
    raw.quatern = [2.0, 0.0, 0.0];
    assert!(read(&raw).warnings.iter().any(|w| w.contains("longer than 1")));
}

#[test]
fn spacing_that_contradicts_the_sform_is_reported() {
    let mut raw = raw(DataType::U8);
    raw.pixdim[2] *= 1.01;
    assert!(read(&raw).warnings[0].contains("pixdim says spacing"));
}

#[test]
fn without_either_form_the_spacing_remains() {
    let mut raw = raw(DataType::U8);
    (raw.qform_code, raw.sform_code) = (0, 0);
    raw.pixdim[1..4].copy_from_slice(&[0.5, 2.0, 4.0]);
    let header = read(&raw);
    assert_eq!(header.geometry, Geometry::new([3, 2, 2], [0.5, 2.0, 4.0]).unwrap());
    assert_eq!(header.geometry_source, GeometrySource::Pixdim);
    assert!(header.warnings[0].contains("neither qform nor sform"));
}

#[test]
fn a_zero_sign_of_the_third_axis_counts_as_plus() {
    let mut raw = raw(DataType::U8);
    (raw.qform_code, raw.sform_code) = (1, 0);
    raw.quatern = [0.0; 3];
    raw.qoffset = [1.0, 2.0, 3.0];
    raw.pixdim[..4].copy_from_slice(&[0.0, 2.0, 3.0, 4.0]);
    assert_eq!(read(&raw).geometry.voxel_to_mm().apply([1.0; 3]), [3.0, 5.0, 7.0]);
    raw.pixdim[0] = -1.0;
    assert_eq!(read(&raw).geometry.voxel_to_mm().apply([1.0; 3]), [3.0, 5.0, -1.0]);
}

#[test]
fn lengths_in_other_units_become_millimetres() {
    let sound = read(&raw(DataType::U8)).geometry;
    for (unit, factor, name) in [(1, 1e-3, "metres"), (3, 1e3, "micrometres"), (7, 1.0, "unknown")]
    {
        let mut raw = converted(raw(DataType::U8), Version::Two, Endian::Little);
        raw.xyzt_units = unit | 8; // seconds, which do not matter
        raw.srow = raw.srow.map(|row| row.map(|v| v * factor));
        raw.pixdim[1..4].iter_mut().for_each(|v| *v *= factor);
        let header = read(&raw);
        assert_same_place(&header.geometry, &sound, name);
        assert!(header.warnings[0].contains(name), "{:?}", header.warnings);
    }
}
