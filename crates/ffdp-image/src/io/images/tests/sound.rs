//! What is unusual but clear in a NIfTI header: read, with a warning.

use super::*;
use crate::io::images::{GeometrySource, Header, header, read_volume};

/// A header that was changed, and what is read of its file.
fn read(change: impl Fn(&mut RawHeader)) -> Header {
    let folder = Folder::new();
    let mut raw = raw(DataType::U8);
    let voxels = counting(&raw)[352..].to_vec();
    change(&mut raw);
    let path = folder.file("image.nii", &file_bytes(&raw, &voxels));
    let values: Vec<f32> = (0..12).map(|i| i as f32).collect();
    assert_eq!(read_volume(&path).unwrap().data, values);
    header(&path).unwrap()
}

fn assert_warns(header: &Header, part: &str) {
    assert!(header.warnings.iter().any(|w| w.contains(part)), "{part}: {:?}", header.warnings);
}

#[test]
fn a_slope_of_no_number_means_not_scaled() {
    for slope in [f64::NAN, f64::INFINITY] {
        for intercept in [0.0, 5.0, f64::NAN] {
            let header = read(|h| (h.scl_slope, h.scl_inter) = (slope, intercept));
            assert_eq!((header.slope, header.intercept), (1.0, 0.0));
            assert_warns(&header, "not scaled");
        }
    }
    let header = read(|h| (h.scl_slope, h.scl_inter) = (0.0, f64::NAN));
    assert_eq!((header.slope, header.intercept), (1.0, 0.0));
}

#[test]
fn an_intercept_of_no_number_means_that_nothing_is_added() {
    for intercept in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let header = read(|h| (h.scl_slope, h.scl_inter) = (1.0, intercept));
        assert_eq!((header.slope, header.intercept), (1.0, 0.0));
        assert_warns(&header, "nothing is added");
    }
}

#[test]
fn an_sform_makes_up_for_a_spacing_of_no_meaning() {
    for value in [0.0, -2.0, f64::NAN] {
        let header = read(|h| h.pixdim[1..4].fill(value));
        assert_eq!(header.geometry, sheared([3, 2, 2]));
        assert_warns(&header, "the placement is that of the sform");
    }
}

#[test]
fn a_qform_takes_spacings_without_their_sign_and_1_mm_for_none() {
    let header = read(|h| {
        (h.sform_code, h.qform_code, h.quatern, h.qoffset) = (0, 1, [0.0; 3], [1.0, 2.0, 3.0]);
        h.pixdim[..4].copy_from_slice(&[1.0, 2.0, 0.0, -3.0]);
    });
    assert_eq!(header.geometry.spacing_mm, [2.0, 1.0, 3.0]);
    assert_eq!(header.geometry.direction, [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]);
    assert_warns(&header, "the qform is used");
}

#[test]
fn an_sform_of_zeros_counts_as_none() {
    let header = read(|h| {
        (h.srow, h.qform_code, h.quatern) = ([[0.0; 4]; 3], 1, [0.0; 3]);
        h.qoffset = [1.0, 2.0, 3.0];
    });
    assert_eq!(header.geometry_source, GeometrySource::Qform);
    assert_eq!(header.geometry.origin_mm, [1.0, 2.0, 3.0]);
    assert_warns(&header, "counts as none");
}

#[test]
fn a_fourth_axis_of_no_size_has_one() {
    let header = read(|h| (h.dim[0], h.dim[4]) = (4, 0));
    assert_eq!((header.dims.as_slice(), header.volumes()), (&[3, 2, 2, 1][..], 1));
    assert_warns(&header, "dim[4] is 0");
}

#[test]
fn voxels_of_less_than_a_nanometre_are_read() {
    let rows = [[4e-7, 0.0, 0.0, 0.0], [0.0, 4e-7, 0.0, 0.0], [0.0, 0.0, 5e-7, 0.0]];
    let header = read(|h| {
        (h.srow, h.qform_code) = (rows, 0);
        h.pixdim[1..4].copy_from_slice(&[4e-7, 4e-7, 5e-7]);
    });
    assert!((header.geometry.spacing_mm[2] - 5e-7).abs() < 1e-12);
}
