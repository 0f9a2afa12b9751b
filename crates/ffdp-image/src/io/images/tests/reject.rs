//! What is refused, one test each, with the message a user sees.

use super::*;
use crate::error::Error;
use crate::io::images::{header, read_labels, read_volume, read_volume_at};

/// The message for a u8 file whose header was changed.
fn refused(change: impl Fn(&mut RawHeader)) -> String {
    refused_in(Version::One, change)
}

/// Without a placement but the spacing.
fn only_pixdim(header: &mut RawHeader) {
    (header.sform_code, header.qform_code) = (0, 0);
}

fn refused_in(version: Version, change: impl Fn(&mut RawHeader)) -> String {
    let folder = Folder::new();
    let sound = converted(raw(DataType::U8), version, Endian::Little);
    let voxels = encode(&[0.0; 12], DataType::U8, Endian::Little);
    let mut raw = sound.clone();
    change(&mut raw);
    let bytes = [raw.to_bytes(), voxels].concat();
    let path = folder.file("image.nii", &bytes);
    let text = message(&path, read_volume(&path));
    assert_eq!(message(&path, header(&path)), text, "`ffdp info` must say the same");
    // The unchanged file is read: the change is what is refused.
    assert!(read_volume(folder.file("sound.nii", &counting(&sound))).is_ok());
    text
}

fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
}

#[test]
fn a_vox_offset_that_is_no_place_for_data() {
    for (value, shown) in [
        (f64::NAN, "NaN"),
        (f64::INFINITY, "inf"),
        (-352.0, "-352"),
        (351.0, "351"),
        (4.0, "4"),
        (352.5, "352.5"),
        (1e30, "10000"),
    ] {
        let text = refused(|h| h.vox_offset = value);
        assert_says(&text, &["vox_offset", "at least 352", shown]);
    }
    assert_says(&refused_in(Version::Two, |h| h.vox_offset = 352.0), &["at least 544", "352"]);
    assert_says(&refused(|h| h.vox_offset = 1e6), &["truncated", "1000012"]);
}

#[test]
fn sizes_that_are_not_positive() {
    assert_says(&refused(|h| h.dim[1] = -8), &["positive size", "[-8, 2, 2]"]);
    assert_says(&refused(|h| h.dim[3] = 0), &["positive size", "[3, 2, 0]"]);
    assert_says(&refused_in(Version::Two, |h| h.dim[2] = i64::MIN), &["positive size"]);
    for rank in [0, -1, 8, 30000] {
        assert_says(&refused(|h| h.dim[0] = rank), &["1 to 7 axes", &format!("dim[0] = {rank}")]);
    }
}

#[test]
fn more_voxels_than_can_be_addressed() {
    let text = refused_in(Version::Two, |h| h.dim[1..4].fill(i64::MAX));
    assert_says(&text, &["addressable", "9223372036854775807"]);
    let wraps_to_zero = refused_in(Version::Two, |h| h.dim[1..4].copy_from_slice(&[1 << 32; 3]));
    assert_says(&wraps_to_zero, &["addressable"]);
    let bytes_overflow = refused_in(Version::Two, |h| h.dim[1] = 1 << 60);
    assert_says(&bytes_overflow, &["addressable"]);
}

#[test]
fn spacing_that_has_no_meaning() {
    for (value, shown) in [
        (0.0, "0.0"),
        (-1.0, "-1.0"),
        (f64::NAN, "NaN"),
        (f64::INFINITY, "inf"),
        (1e-10, "e-10"),
        (2e6, "2000000.0"),
    ] {
        for axis in 1..=3 {
            let text = refused(|h| {
                only_pixdim(h);
                h.pixdim[axis] = value;
            });
            assert_says(&text, &["spacing (pixdim)", "1e-9..1e6", shown]);
        }
    }
}

#[test]
fn a_singular_or_senseless_matrix() {
    assert_says(&refused(|h| h.srow[0] = [0.0; 4]), &["singular"]);
    assert_says(&refused(|h| h.srow[2] = h.srow[1]), &["singular", "exceeds 1e6"]);
    assert_says(&refused(|h| h.srow[1][3] = f64::NAN), &["origin", "finite"]);
    assert_says(&refused(|h| h.srow[1][1] = f64::NAN), &["spacing must be"]);
    let qform_only = |h: &mut RawHeader| {
        (h.sform_code, h.qform_code) = (0, 1);
        h.quatern = [f64::NAN, 0.0, 0.0];
    };
    assert_says(&refused(qform_only), &["spacing must be"]);
}

#[test]
fn voxels_that_are_no_real_numbers() {
    for (code, name) in [
        (128, "RGB24"),
        (2304, "RGBA32"),
        (32, "complex64"),
        (1792, "complex128"),
        (2048, "complex256"),
        (1536, "float128"),
        (1, "binary"),
        (0, "unknown"),
        (999, "not in the standard"),
    ] {
        let text = refused(|h| h.datatype = code);
        assert_says(&text, &["integers or floats", &format!("datatype {code} ({name}")]);
    }
}

#[test]
fn a_series_where_an_image_is_meant() {
    let folder = Folder::new();
    let mut raw = raw(DataType::U8);
    (raw.dim[0], raw.dim[4]) = (4, 5);
    let path = folder.file("series.nii", &counting(&raw));
    let text = message(&path, read_volume(&path));
    assert_says(&text, &["5 volumes", "[3, 2, 2, 5]", "--volume K", "0..=4"]);
    assert_says(&message(&path, read_labels(&path)), &["--volume K"]);
    assert_says(&message(&path, read_volume_at(&path, 5)), &["--volume", "5"]);
    assert!(read_volume_at(&path, 4).is_ok());
}

#[test]
fn labels_given_as_intensities() {
    let folder = Folder::new();
    let sound = [1.0; 12];
    for (value, shown) in [
        (0.5, "0.5"),
        (-0.25, "-0.25"),
        (f64::NAN, "NaN"),
        (f64::INFINITY, "inf"),
        (3e9, "3000000000"),
    ] {
        let mut values = sound;
        (values[7], values[10]) = (value, value);
        let bytes =
            file_bytes(&raw(DataType::F32), &encode(&values, DataType::F32, Endian::Little));
        let path = folder.file("labels.nii", &bytes);
        let text = message(&path, read_labels(&path));
        assert_says(&text, &["2 voxels", "[1, 0, 1]", shown, "no integer labels"]);
    }
    for (data_type, value) in [(DataType::U32, 2147483648.0), (DataType::I64, -2147483649.0)] {
        let mut values = sound;
        values[0] = value;
        let bytes = file_bytes(&raw(data_type), &encode(&values, data_type, Endian::Little));
        let result = read_labels(folder.file("labels.nii", &bytes));
        assert!(matches!(result, Err(Error::NotLabels { count: 1, first: [0, 0, 0], .. })));
    }
    // Scaled labels: the real value counts, not the stored one.
    let mut scaled = raw(DataType::U8);
    scaled.scl_slope = 0.25;
    assert!(read_labels(folder.file("scaled.nii", &counting(&scaled))).is_err());
}

#[test]
fn bytes_missing() {
    let folder = Folder::new();
    let bytes = counting(&raw(DataType::U8));
    let path = folder.file("short.nii", &bytes[..363]);
    assert_says(&message(&path, header(&path)), &["truncated", "asks for 364", "got 363"]);
}

#[test]
fn files_of_other_kinds() {
    let folder = Folder::new();
    let sound = counting(&raw(DataType::U8));
    let with_magic = |magic: &[u8]| {
        let mut bytes = sound.clone();
        bytes[344..344 + magic.len()].copy_from_slice(magic);
        bytes
    };
    let cases: [(&[u8], &[&str]); 6] = [
        (b"", &["complete NIfTI header"]),
        (&sound[..347], &["complete NIfTI header", "truncated"]),
        (b"# a text file with more than a few bytes in it", &["must be a NIfTI", "23, 20"]),
        (&with_magic(b"ni1\0"), &[".hdr/.img pair", "end in .hdr"]),
        (&with_magic(b"\0\0\0\0"), &["Analyze 7.5"]),
        (&[0; 1000], &["must be a NIfTI-1 or NIfTI-2", "00, 00, 00, 00"]),
    ];
    for (bytes, parts) in cases {
        let path = folder.file("other.nii", bytes);
        assert_says(&message(&path, read_volume(&path)), parts);
    }
    let path = folder.path("missing.nii");
    assert_says(&message(&path, read_volume(&path)), &["could not open"]);
    assert!(read_volume(folder.0.path()).is_err(), "a folder");
}

#[test]
fn a_bitpix_that_contradicts_the_type_is_only_a_warning() {
    let folder = Folder::new();
    let mut raw = raw(DataType::U8);
    raw.bitpix = 16;
    let read = header(folder.file("bitpix.nii", &counting(&raw))).unwrap();
    assert!(read.warnings[0].contains("bitpix 16"), "{:?}", read.warnings);
}

#[test]
fn no_header_byte_makes_a_panic() {
    let folder = Folder::new();
    for version in [Version::One, Version::Two] {
        let sound = counting(&converted(raw(DataType::U8), version, Endian::Little));
        for position in 0..version.first_data_byte() {
            for value in [0, 1, 0x7F, 0x80, 0xFF] {
                let mut bytes = sound.clone();
                bytes[position] = value;
                // Either answer is fine, but there must be one, and it must be the file's size.
                if let Ok(read) = read_volume(folder.file("fuzz.nii", &bytes)) {
                    assert_eq!(read.data.len(), read.geometry.len(), "byte {position} = {value}");
                }
            }
        }
    }
}
