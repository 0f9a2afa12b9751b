//! Byte positions against the field lists of the official headers, added up here.

use super::{Endian, Version, raw};
use crate::io::images::data_type::DataType;

/// Fields of `nifti_1_header` in order, with their sizes in bytes.
const NIFTI1: [(&str, usize); 43] = [
    ("sizeof_hdr", 4),
    ("data_type", 10),
    ("db_name", 18),
    ("extents", 4),
    ("session_error", 2),
    ("regular", 1),
    ("dim_info", 1),
    ("dim", 16),
    ("intent_p1", 4),
    ("intent_p2", 4),
    ("intent_p3", 4),
    ("intent_code", 2),
    ("datatype", 2),
    ("bitpix", 2),
    ("slice_start", 2),
    ("pixdim", 32),
    ("vox_offset", 4),
    ("scl_slope", 4),
    ("scl_inter", 4),
    ("slice_end", 2),
    ("slice_code", 1),
    ("xyzt_units", 1),
    ("cal_max", 4),
    ("cal_min", 4),
    ("slice_duration", 4),
    ("toffset", 4),
    ("glmax", 4),
    ("glmin", 4),
    ("descrip", 80),
    ("aux_file", 24),
    ("qform_code", 2),
    ("sform_code", 2),
    ("quatern_b", 4),
    ("quatern_c", 4),
    ("quatern_d", 4),
    ("qoffset_x", 4),
    ("qoffset_y", 4),
    ("qoffset_z", 4),
    ("srow_x", 16),
    ("srow_y", 16),
    ("srow_z", 16),
    ("intent_name", 16),
    ("magic", 4),
];

/// Fields of `nifti_2_header` in order, with their sizes in bytes.
const NIFTI2: [(&str, usize); 37] = [
    ("sizeof_hdr", 4),
    ("magic", 8),
    ("datatype", 2),
    ("bitpix", 2),
    ("dim", 64),
    ("intent_p1", 8),
    ("intent_p2", 8),
    ("intent_p3", 8),
    ("pixdim", 64),
    ("vox_offset", 8),
    ("scl_slope", 8),
    ("scl_inter", 8),
    ("cal_max", 8),
    ("cal_min", 8),
    ("slice_duration", 8),
    ("toffset", 8),
    ("slice_start", 8),
    ("slice_end", 8),
    ("descrip", 80),
    ("aux_file", 24),
    ("qform_code", 4),
    ("sform_code", 4),
    ("quatern_b", 8),
    ("quatern_c", 8),
    ("quatern_d", 8),
    ("qoffset_x", 8),
    ("qoffset_y", 8),
    ("qoffset_z", 8),
    ("srow_x", 32),
    ("srow_y", 32),
    ("srow_z", 32),
    ("slice_code", 4),
    ("xyzt_units", 4),
    ("intent_code", 4),
    ("intent_name", 16),
    ("dim_info", 1),
    ("unused_str", 15),
];

fn field<'a>(fields: &[(&str, usize)], bytes: &'a [u8], name: &str) -> &'a [u8] {
    let index = fields.iter().position(|(field, _)| *field == name).unwrap();
    let start: usize = fields[..index].iter().map(|(_, size)| size).sum();
    &bytes[start..start + fields[index].1]
}

fn f32s(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks(4).map(|b| f32::from_be_bytes(b.try_into().unwrap())).collect()
}

fn f64s(bytes: &[u8]) -> Vec<f64> {
    bytes.chunks(8).map(|b| f64::from_be_bytes(b.try_into().unwrap())).collect()
}

fn distinct_header(version: Version) -> crate::io::images::nifti::layout::RawHeader {
    let mut raw = super::converted(raw(DataType::I16), version, Endian::Big);
    raw.dim = [3, 4, 5, 6, 7, 8, 9, 10];
    raw.intent_parameters = [0.5, 1.5, 2.5];
    raw.intent_code = 1007;
    raw.intent_name = "vectors".to_string();
    raw.pixdim = [-1.0, 1.25, 2.25, 3.25, 4.25, 5.25, 6.25, 7.25];
    (raw.scl_slope, raw.scl_inter) = (0.125, 11.0);
    raw.xyzt_units = 10;
    raw.description = "what it is".to_string();
    (raw.qform_code, raw.sform_code) = (3, 4);
    raw.quatern = [0.25, 0.375, 0.5];
    raw.qoffset = [21.0, 22.0, 23.0];
    raw
}

#[test]
fn version_one_fields_lie_where_the_struct_has_them() {
    assert_eq!(NIFTI1.iter().map(|f| f.1).sum::<usize>(), 348);
    let raw = distinct_header(Version::One);
    let bytes = raw.to_bytes();
    assert_eq!(bytes.len(), 352);
    let get = |name| field(&NIFTI1, &bytes, name);
    assert_eq!(get("sizeof_hdr"), 348i32.to_be_bytes());
    assert_eq!(get("magic"), b"n+1\0");
    assert_eq!(get("dim"), [0, 3, 0, 4, 0, 5, 0, 6, 0, 7, 0, 8, 0, 9, 0, 10]);
    assert_eq!(f32s(get("intent_p2")), [1.5]);
    assert_eq!(get("intent_code"), 1007i16.to_be_bytes());
    assert!(get("intent_name").starts_with(b"vectors\0"));
    assert_eq!(get("datatype"), 4i16.to_be_bytes());
    assert_eq!(get("bitpix"), 16i16.to_be_bytes());
    assert_eq!(f32s(get("pixdim")), [-1.0, 1.25, 2.25, 3.25, 4.25, 5.25, 6.25, 7.25]);
    assert_eq!(f32s(get("vox_offset")), [352.0]);
    assert_eq!((f32s(get("scl_slope")), f32s(get("scl_inter"))), (vec![0.125], vec![11.0]));
    assert_eq!(get("xyzt_units"), [10]);
    assert!(get("descrip").starts_with(b"what it is\0"));
    assert_eq!((get("qform_code"), get("sform_code")), (&[0u8, 3][..], &[0u8, 4][..]));
    assert_eq!(f32s(get("quatern_b")), [0.25]);
    assert_eq!(f32s(get("quatern_d")), [0.5]);
    assert_eq!(f32s(get("qoffset_z")), [23.0]);
    assert_eq!(f32s(get("srow_x")), [-1.5, 0.25, 0.0, 10.0]);
    assert_eq!(f32s(get("srow_z")), [0.0, -0.5, 3.0, 30.0]);
}

#[test]
fn version_two_fields_lie_where_the_struct_has_them() {
    assert_eq!(NIFTI2.iter().map(|f| f.1).sum::<usize>(), 540);
    let raw = distinct_header(Version::Two);
    let bytes = raw.to_bytes();
    assert_eq!(bytes.len(), 544);
    let get = |name| field(&NIFTI2, &bytes, name);
    assert_eq!(get("sizeof_hdr"), 540i32.to_be_bytes());
    assert_eq!(get("magic"), b"n+2\0\r\n\x1a\n");
    let dims: Vec<i64> =
        get("dim").chunks(8).map(|b| i64::from_be_bytes(b.try_into().unwrap())).collect();
    assert_eq!(dims, raw.dim);
    assert_eq!(f64s(get("intent_p3")), [2.5]);
    assert_eq!(get("intent_code"), 1007i32.to_be_bytes());
    assert!(get("intent_name").starts_with(b"vectors\0"));
    assert_eq!(get("datatype"), 4i16.to_be_bytes());
    assert_eq!(get("bitpix"), 16i16.to_be_bytes());
    assert_eq!(f64s(get("pixdim")), raw.pixdim);
    assert_eq!(get("vox_offset"), 544i64.to_be_bytes());
    assert_eq!((f64s(get("scl_slope")), f64s(get("scl_inter"))), (vec![0.125], vec![11.0]));
    assert_eq!(get("xyzt_units"), 10i32.to_be_bytes());
    assert!(get("descrip").starts_with(b"what it is\0"));
    assert_eq!(get("qform_code"), 3i32.to_be_bytes());
    assert_eq!(get("sform_code"), 4i32.to_be_bytes());
    assert_eq!(f64s(get("quatern_c")), [0.375]);
    assert_eq!(f64s(get("qoffset_x")), [21.0]);
    assert_eq!(f64s(get("srow_y")), [0.125, 2.0, 0.5, -20.0]);
}
