//! What is in a file arrives exactly.

use super::*;
use crate::error::Error;
use crate::image::Volume;
use crate::io::images::{
    header, read_labels, read_volume, read_volume_at, read_volumes, write_volumes,
};

/// Values that a type holds exactly, its extremes among them.
fn typical(data_type: DataType) -> [f64; 12] {
    let extremes: [f64; 4] = match data_type {
        DataType::U8 => [255.0, 128.0, 127.0, 0.0],
        DataType::I8 => [127.0, -128.0, -1.0, 0.0],
        DataType::U16 => [65535.0, 32768.0, 256.0, 0.0],
        DataType::I16 => [32767.0, -32768.0, -256.0, 0.0],
        DataType::U32 => [4294967040.0, 2147483648.0, 65536.0, 0.0],
        DataType::I32 => [2147483520.0, -2147483648.0, -65536.0, 0.0],
        DataType::U64 => [2f64.powi(63), 2f64.powi(40), 2f64.powi(24), 0.0],
        DataType::I64 => [2f64.powi(62), -(2f64.powi(63)), -(2f64.powi(33)), 0.0],
        DataType::F32 | DataType::F64 => [
            f64::from(f32::MAX),
            f64::from(f32::MIN_POSITIVE),
            f64::from(-0.1f32),
            f64::from(1e-45f32),
        ],
    };
    std::array::from_fn(|i| if i < 4 { extremes[i] } else { i as f64 * 3.0 })
}

#[test]
fn every_type_version_order_and_compression_reads_exactly() {
    let folder = Folder::new();
    for data_type in DataType::ALL {
        for version in [Version::One, Version::Two] {
            for endian in [Endian::Little, Endian::Big] {
                for compressed in [false, true] {
                    let case = format!("{data_type:?} {version:?} {endian:?} gz {compressed}");
                    let values = typical(data_type);
                    let raw = converted(raw(data_type), version, endian);
                    let bytes = file_bytes(&raw, &encode(&values, data_type, endian));
                    let bytes = if compressed { gzip(&bytes) } else { bytes };
                    let path = folder.file("image.nii", &bytes);
                    let volume = read_volume(&path).expect(&case);
                    let expected: Vec<f32> = values.iter().map(|&v| v as f32).collect();
                    assert_eq!(volume.data, expected, "{case}");
                    assert_eq!(volume.geometry, sheared([3, 2, 2]), "{case}");
                    let header = header(&path).expect(&case);
                    assert_eq!(
                        (header.format, header.endian),
                        (version.format(), endian),
                        "{case}"
                    );
                    assert_eq!(header.data_type, data_type, "{case}");
                    assert!(header.warnings.is_empty(), "{case}: {:?}", header.warnings);
                }
            }
        }
    }
}

#[test]
fn integer_labels_of_every_type_read_exactly() {
    let folder = Folder::new();
    let labels = [0, 1, 2, 3, 10, 17, 41, 42, 53, 60, 100, 127];
    for data_type in DataType::ALL {
        let values = labels.map(f64::from);
        let bytes = file_bytes(&raw(data_type), &encode(&values, data_type, Endian::Little));
        let read = read_labels(folder.file("labels.nii", &bytes)).unwrap();
        assert_eq!(read.data, labels, "{data_type:?}");
    }
    let extremes = [i32::MIN, i32::MAX, 0, -1].map(f64::from).repeat(3);
    for data_type in [DataType::I32, DataType::I64, DataType::F64] {
        let bytes = file_bytes(&raw(data_type), &encode(&extremes, data_type, Endian::Little));
        let read = read_labels(folder.file("labels.nii", &bytes)).unwrap();
        assert_eq!(&read.data[..4], [i32::MIN, i32::MAX, 0, -1], "{data_type:?}");
    }
}

#[test]
fn scaling_is_applied_and_slope_zero_means_one() {
    let folder = Folder::new();
    let stored: Vec<f64> = (-6..6).map(f64::from).collect();
    for (slope, intercept, factor, offset) in
        [(0.5, 10.0, 0.5, 10.0), (-2.0, 0.0, -2.0, 0.0), (1.0, 3.0, 1.0, 3.0), (0.0, 9.0, 1.0, 0.0)]
    {
        let mut raw = raw(DataType::I16);
        (raw.scl_slope, raw.scl_inter) = (slope, intercept);
        let bytes = file_bytes(&raw, &encode(&stored, DataType::I16, Endian::Little));
        let read = read_volume(folder.file("scaled.nii", &bytes)).unwrap();
        let expected: Vec<f32> = stored.iter().map(|v| (v * factor + offset) as f32).collect();
        assert_eq!(read.data, expected, "slope {slope} intercept {intercept}");
    }
}

#[test]
fn vox_offset_is_honoured_without_an_extension_flag() {
    let folder = Folder::new();
    for version in [Version::One, Version::Two] {
        for gap in [0, 1, 16, 1000] {
            let mut raw = converted(raw(DataType::U8), version, Endian::Little);
            raw.vox_offset += f64::from(gap);
            let bytes = counting(&raw);
            assert_eq!(bytes[version.header_bytes()], 0, "the extension flag stays 0");
            let expected: Vec<f32> = (0..12).map(|i| i as f32).collect();
            for bytes in [gzip(&bytes), bytes] {
                let read = read_volume(folder.file("gap.nii", &bytes)).unwrap();
                assert_eq!(read.data, expected, "{version:?} gap {gap}");
            }
        }
    }
}

#[test]
fn vox_offset_zero_is_read_after_the_header_with_a_warning() {
    let folder = Folder::new();
    let mut raw = raw(DataType::U8);
    let bytes = counting(&raw);
    raw.vox_offset = 0.0;
    let path = folder.file("zero.nii", &[&raw.to_bytes(), &bytes[352..]].concat());
    assert_eq!(read_volume(&path).unwrap().data[11], 11.0);
    assert!(header(&path).unwrap().warnings[0].contains("vox_offset is 0"));
}

#[test]
fn volumes_of_a_series_are_read_by_number() {
    let folder = Folder::new();
    for dims in [vec![3, 2, 2, 4], vec![3, 2, 2, 2, 2], vec![3, 2, 2, 1, 4, 1, 1]] {
        let mut raw = raw(DataType::U8);
        raw.dim[0] = dims.len() as i64;
        raw.dim[1..=dims.len()].copy_from_slice(&dims);
        let bytes = counting(&raw);
        for bytes in [gzip(&bytes), bytes] {
            let path = folder.file("series.nii", &bytes);
            assert_eq!(header(&path).unwrap().volumes(), 4);
            for k in 0..4 {
                let read = read_volume_at(&path, k).unwrap();
                let expected: Vec<f32> = (0..12).map(|i| (12 * k + i) as f32).collect();
                assert_eq!(read.data, expected, "{dims:?} volume {k}");
            }
        }
    }
}

#[test]
fn axes_of_size_one_make_no_series_and_missing_axes_are_one() {
    let folder = Folder::new();
    for (dims, size) in [
        (vec![3, 2, 2, 1], [3, 2, 2]),
        (vec![3, 2, 2, 1, 1], [3, 2, 2]),
        (vec![6, 2], [6, 2, 1]),
        (vec![12], [12, 1, 1]),
    ] {
        let mut raw = raw(DataType::U8);
        raw.dim = [1; 8];
        raw.dim[0] = dims.len() as i64;
        raw.dim[1..=dims.len()].copy_from_slice(&dims);
        // Many writers leave the spacing of missing axes 0.
        raw.pixdim[dims.len() + 1..].fill(0.0);
        let read: Volume = read_volume(folder.file("flat.nii", &counting(&raw))).unwrap();
        assert_eq!((read.geometry.size, read.data[11]), (size, 11.0), "{dims:?}");
    }
}

#[test]
fn non_finite_voxels_are_kept_for_the_caller_to_judge() {
    let folder = Folder::new();
    let mut values = [1.0; 12];
    (values[3], values[7]) = (f64::NAN, f64::INFINITY);
    let bytes = file_bytes(&raw(DataType::F32), &encode(&values, DataType::F32, Endian::Little));
    let volume = read_volume(folder.file("nan.nii", &bytes)).unwrap();
    let message = volume.check_finite("fixed").unwrap_err().to_string();
    assert!(message.contains("1 NaN and 1 infinite") && message.contains("[0, 1, 0]"), "{message}");
}

#[test]
fn series_come_back_with_their_time_step() {
    let folder = Folder::new();
    let geometry = sheared([3, 2, 2]);
    let volume = |k: usize| {
        let data = (0..12).map(|i| (100 * k + i) as f32 + 0.5).collect();
        Volume::new(data, geometry.clone()).unwrap()
    };
    let volumes: Vec<Volume> = (0..4).map(volume).collect();
    for name in ["series.nii", "series.nii.gz"] {
        let path = folder.path(name);
        write_volumes(&path, &volumes, 2.5).unwrap();
        let header = header(&path).unwrap();
        assert_eq!((header.dims.as_slice(), header.time_step_seconds), (&[3, 2, 2, 4][..], 2.5));
        assert!(header.warnings.is_empty(), "{:?}", header.warnings);
        assert_eq!(read_volumes(&path).unwrap(), volumes);
        assert_eq!(read_volume_at(&path, 2).unwrap(), volumes[2]);
    }
    assert!(write_volumes(folder.path("none.nii"), &[], 1.0).is_err());
    let other = Volume::new(vec![0.0; 12], sheared([2, 3, 2])).unwrap();
    let mixed = [volumes[0].clone(), other];
    assert!(matches!(write_volumes(folder.path("a.nii"), &mixed, 1.0), Err(Error::Grid { .. })));
}

#[test]
fn time_steps_are_reported_in_seconds() {
    let folder = Folder::new();
    // Units of the fourth axis: none, seconds, milliseconds, microseconds.
    for (unit, stored, seconds) in [(0, 2.0, 2.0), (8, 2.0, 2.0), (16, 720.0, 0.72), (24, 5e5, 0.5)]
    {
        let mut raw = raw(DataType::U8);
        (raw.dim[0], raw.dim[4], raw.pixdim[4]) = (4, 3, stored);
        raw.xyzt_units = 2 | unit;
        let path = folder.file("series.nii", &counting(&raw));
        let step = header(&path).unwrap().time_step_seconds;
        assert!((step - seconds).abs() < 1e-9, "unit {unit}: {step}");
    }
    let path = folder.file("image.nii", &counting(&raw(DataType::U8)));
    assert_eq!(header(&path).unwrap().time_step_seconds, 0.0);
}
