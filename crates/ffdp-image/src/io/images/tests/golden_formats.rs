//! Files of `scripts/golden/formats.py`: as nibabel, tifffile, pydicom and Pillow write them, placed as nibabel and
//! SimpleITK read them.

use super::*;
use crate::image::{Planes, Volume};
use crate::io::images::{PlaneReader, files, header, read_stored_at, read_volume, read_volumes};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/formats").join(name)
}

/// From voxel to RAS mm.
fn affine(name: &str) -> Vec<Vec<f64>> {
    let text = fs::read_to_string(golden("affine.json")).expect("it is committed");
    let all: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    serde_json::from_value(all[name].clone()).expect("a matrix")
}

fn assert_placed(name: &str, grid: &Geometry, expected: &[Vec<f64>]) {
    for (row, expected) in grid.voxel_to_mm().rows().iter().zip(expected) {
        for (a, b) in row.iter().zip(expected) {
            // f32 of the header, and decimal numbers of 10 digits.
            assert!((a - b).abs() < 1e-6 * b.abs().max(1.0), "{name}: {row:?}, not {expected:?}");
        }
    }
}

/// Voxel (x, y, z) of volume v has the value 1000 v + 100 z + 10 y + x.
fn assert_values(name: &str, volumes: &[Volume], value: impl Fn(usize) -> f64) {
    for (v, volume) in volumes.iter().enumerate() {
        assert_eq!(volume.geometry.size, [6, 5, 4], "{name}");
        for (i, found) in volume.data.iter().enumerate() {
            let [x, y, z] = volume.geometry.index_of(i);
            let expected = value(1000 * v + 100 * z + 10 * y + x);
            assert_eq!(f64::from(*found), expected, "{name}, volume {v}, {x} {y} {z}");
        }
    }
}

#[test]
fn volumes_of_freesurfer_are_those_of_nibabel() {
    for (name, data_type, count) in [
        ("uchar.mgz", DataType::U8, 1),
        ("short.mgz", DataType::I16, 2),
        ("int.mgz", DataType::I32, 2),
        ("float.mgh", DataType::F32, 2),
    ] {
        let found = header(golden(name)).unwrap();
        assert_eq!((found.format.name(), found.data_type), ("MGH", data_type), "{name}");
        assert!(found.warnings.is_empty(), "{name}: {:?}", found.warnings);
        assert_placed(name, &found.geometry, &affine("mgz"));
        let volumes = read_volumes(golden(name)).unwrap();
        assert_eq!(volumes.len(), count, "{name}");
        let is_byte = data_type == DataType::U8;
        assert_values(name, &volumes, |v| if is_byte { v % 256 } else { v } as f64);
    }
}

#[test]
fn stacks_of_pages_are_those_of_tifffile() {
    for (name, format, data_type, count) in [
        ("stack.tif", "TIFF", DataType::U16, 1),
        ("deflate.tif", "TIFF", DataType::F32, 1),
        ("big-endian.tif", "TIFF", DataType::U16, 1),
        ("czt.ome.tif", "OME-TIFF", DataType::U16, 4),
        ("zct.ome.tif", "OME-TIFF", DataType::U16, 4),
        ("imagej.tif", "TIFF (ImageJ)", DataType::U16, 4),
    ] {
        let found = header(golden(name)).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((found.format.name(), found.data_type), (format, data_type), "{name}");
        let is_measured = count > 1;
        assert_eq!(found.warnings.is_empty(), is_measured, "{name}: {:?}", found.warnings);
        let expected = if is_measured { [0.002, 0.003, 0.004] } else { [1.0; 3] };
        for (a, b) in found.geometry.spacing_mm.iter().zip(expected) {
            // ImageJ's resolution is a fraction of two integers.
            assert!((a - b).abs() < 1e-9, "{name}: {:?}", found.geometry.spacing_mm);
        }
        assert_eq!(found.geometry.axis_codes(), "LPS", "{name}");
        let volumes = read_volumes(golden(name)).unwrap();
        assert_eq!(volumes.len(), count, "{name}");
        assert_values(name, &volumes, |v| v as f64);
        let mut planes = PlaneReader::open(golden(name), Some(0)).unwrap();
        assert_eq!(planes.read(2..4).unwrap(), &volumes[0].data[60..120], "{name}");
        assert_eq!(planes.read(1..2).unwrap(), &volumes[0].data[30..60], "{name}");
    }
}

#[test]
fn folders_of_pictures_are_in_the_order_of_their_numbers() {
    for (name, data_type) in [("png8", DataType::U8), ("png16", DataType::U16)] {
        let volume = read_volume(golden(name)).unwrap();
        let is_byte = data_type == DataType::U8;
        assert_eq!(header(golden(name)).unwrap().data_type, data_type);
        assert_values(name, &[volume], |v| if is_byte { v % 256 } else { v } as f64);
        let names = ["plane8.png", "plane9.png", "plane10.png", "plane11.png"];
        let expected = names.map(|file| golden(name).join(file));
        assert_eq!(files(golden(name)).unwrap(), expected);
    }
    let jpeg = read_volume(golden("jpeg")).unwrap();
    assert_eq!(jpeg.geometry.size, [24, 16, 4]);
    for (i, value) in jpeg.data.iter().enumerate() {
        // A lossy format, of one value a plane.
        assert!((value - 40.0 * (i / (24 * 16)) as f32).abs() <= 1.0, "{i}: {value}");
    }
    let bits = read_volume(golden("bits.png")).unwrap();
    assert_eq!(bits.geometry.size, [6, 5, 1]);
    assert!(bits.data.iter().enumerate().all(|(i, v)| *v == (i % 6 % 2) as f32), "{:?}", bits.data);
}

#[test]
fn a_picture_has_the_same_luminance_in_every_format() {
    const LUMINANCE: [f32; 6] = [76.0, 150.0, 29.0, 148.0, 234.0, 63.0];
    // 65535 R, G or B, and 257 times the luminance of the others.
    const LUMINANCE_16: [f32; 6] = [19595.0, 38469.0, 7471.0, 38159.0, 60025.0, 16173.0];
    // JPEG and YCbCr have rounded values.
    for (name, planes, loss) in [
        ("palette.png", 1, 0.0),
        ("interlaced.png", 1, 0.0),
        ("tiles.tif", 1, 0.0),
        ("separate16.tif", 1, 0.0),
        ("stack.ome.tif", 2, 0.0),
        ("jpeg.tif", 1, 1.0),
        ("ycbcr.tif", 1, 1.0),
        ("rgb.jpg", 1, 1.0),
        ("subsampled.jpg", 1, 1.0),
        ("progressive.jpg", 1, 1.0),
    ] {
        let path = golden("colours").join(name);
        let volume = read_volume(&path).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(volume.geometry.size, [37, 21, planes], "{name}");
        let warnings = header(&path).unwrap().warnings;
        assert!(warnings.iter().any(|text| text.contains("luminance")), "{name}: {warnings:?}");
        let expected = if name.contains("16") { LUMINANCE_16 } else { LUMINANCE };
        for (i, value) in volume.data.iter().enumerate() {
            let [x, y, _] = volume.geometry.index_of(i);
            let luminance = expected[x / 16 + 3 * (y / 16)];
            assert!((value - luminance).abs() <= loss, "{name}, {x} {y}: {value}, not {luminance}");
        }
    }
    let path = golden("colours").join("cmyk.jpg");
    let text = message(&path, read_volume(&path));
    assert!(text.contains("must be grey, YCbCr or RGB, got 4 components"), "{text}");
}

#[test]
fn series_of_dicom_are_sorted_scaled_and_placed_as_simpleitk_does() {
    for name in ["dicom", "dicom-rle", "dicom-implicit"] {
        let found = header(golden(name)).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((found.format.name(), found.data_type), ("DICOM", DataType::I16), "{name}");
        assert_eq!((found.slope, found.intercept), (2.0, -1024.0), "{name}");
        assert!(found.warnings.is_empty(), "{name}: {:?}", found.warnings);
        assert_placed(name, &found.geometry, &affine("dicom"));
        let volume = read_volume(golden(name)).unwrap();
        assert_values(name, &[volume], |v| 2.0 * (2.0 * v as f64 - 1000.0) - 1024.0);
        assert_eq!(read_stored_at(golden(name), 0).unwrap().data[0], -1000, "{name}");
        // The planes are numbered 0, 7 mod 4, 14 mod 4, 21 mod 4.
        let names = ["0.dcm", "3.dcm", "2.dcm", "1.dcm"].map(|file| golden(name).join(file));
        assert_eq!(files(golden(name)).unwrap(), names);
        let one = read_volume(&names[2]).unwrap();
        assert_eq!(one.geometry.size, [6, 5, 1]);
        let warnings = header(&names[2]).unwrap().warnings;
        assert!(warnings[0].contains("name the folder"), "{warnings:?}");
    }
}
