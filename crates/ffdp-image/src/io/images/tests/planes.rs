//! A file that is read plane by plane.

use super::*;
use crate::image::{OneOf, Planes};
use crate::io::images::{
    DisplacementReader, IntegerForm, IntegerWriter, PlaneReader, read_displacement, read_volume,
    read_volume_at, write_displacement,
};

#[test]
fn planes_are_those_of_the_whole_in_any_order() {
    let folder = Folder::new();
    let raw = new_header(&sheared([4, 3, 9]), DataType::U8);
    let bytes = counting(&raw);
    for bytes in [gzip(&bytes), bytes] {
        let path = folder.file("image.nii", &bytes);
        let whole = read_volume(&path).unwrap();
        let mut reader = PlaneReader::open(&path, None).unwrap();
        assert_eq!(reader.geometry(), &whole.geometry);
        // Forward with a common part, without one, backward, within, the same again, all.
        for z in [0..3, 2..5, 4..6, 7..9, 0..2, 0..6, 3..5, 3..5, 4..9, 8..9, 0..9, 2..3] {
            let planes = reader.read(z.clone()).unwrap();
            assert_eq!(planes, &whole.data[12 * z.start..12 * z.end], "{z:?}");
        }
        #[allow(clippy::reversed_empty_ranges)]
        for z in [0..0, 3..2, 0..10, 9..10] {
            let text = reader.read(z.clone()).unwrap_err().to_string();
            assert!(text.contains("0..9"), "{z:?}: {text}");
        }
        assert_eq!(reader.read(1..4).unwrap(), &whole.data[12..48], "it goes on after an error");
    }
}

#[test]
fn damage_shows_when_the_last_plane_is_read() {
    let folder = Folder::new();
    let raw = new_header(&sheared([4, 3, 9]), DataType::U8);
    let mut bytes = gzip(&counting(&raw));
    let checksum = bytes.len() - 6;
    bytes[checksum] ^= 1;
    let path = folder.file("image.nii.gz", &bytes);
    let mut reader = PlaneReader::open(&path, None).unwrap();
    reader.read(0..3).unwrap();
    let text = reader.read(6..9).unwrap_err().to_string();
    assert!(text.contains("checksum"), "{text}");
}

#[test]
fn several_volumes_are_one_stack_of_planes() {
    let folder = Folder::new();
    let mut raw = new_header(&sheared([4, 3, 5]), DataType::U8);
    (raw.dim[0], raw.dim[4]) = (4, 3);
    (raw.scl_slope, raw.scl_inter) = (0.5, 2.0);
    let bytes = counting(&raw);
    for bytes in [gzip(&bytes), bytes] {
        let path = folder.file("series.nii", &bytes);
        let mut stack = PlaneReader::open_all(&path).unwrap();
        assert_eq!(stack.geometry().size, [4, 3, 15]);
        let grid = sheared([4, 3, 5]);
        for k in [0, 1, 2, 1] {
            let whole = read_volume_at(&path, k).unwrap();
            let mut volume = OneOf::new(&mut stack, &grid, k);
            for z in [0..2, 1..5, 4..5] {
                let planes = volume.read(z.clone()).unwrap();
                assert_eq!(planes, &whole.data[12 * z.start..12 * z.end], "{k} {z:?}");
            }
            assert!(volume.read(4..6).is_err(), "the next volume is another");
        }
        let mut stored = PlaneReader::open(&path, Some(1)).unwrap().stored();
        let whole = read_volume_at(&path, 1).unwrap();
        let real = |v: &f32| 0.5 * v + 2.0;
        assert!(stored.read(0..5).unwrap().iter().map(real).eq(whole.data));
    }
}

#[test]
fn planes_of_a_displacement_are_those_of_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let grid = sheared([6, 5, 7]);
    let values: Vec<f32> = (0..3 * grid.len()).map(|i| (i * i % 97) as f32 * 0.125).collect();
    for name in ["warp.nii", "warp.nii.gz", "warp.zarr"] {
        let path = folder.path().join(name);
        // OME-Zarr has no sheared axes.
        let grid = match name {
            "warp.zarr" => Geometry::new(grid.size, [1.0, 2.0, 0.5]).unwrap(),
            _ => grid.clone(),
        };
        write_displacement(&path, &values, &grid).unwrap();
        let (whole, geometry) = read_displacement(&path).unwrap();
        let mut reader = DisplacementReader::open(&path).unwrap();
        assert_eq!(reader.geometry(), &geometry);
        for z in [0..3, 2..7, 6..7, 0..7, 1..2] {
            let planes = reader.read(z.clone()).unwrap();
            let of = |c: usize| &whole[30 * (7 * c + z.start)..30 * (7 * c + z.end)];
            assert_eq!(planes, [of(0), of(1), of(2)].concat(), "{name} {z:?}");
        }
    }
    let path = folder.path().join("odd.nii");
    let mut odd = values.clone();
    // Component 1 at voxel (2, 3, 4).
    odd[grid.len() + 30 * 4 + 6 * 3 + 2] = f32::NAN;
    write_displacement(&path, &odd, &grid).unwrap();
    let mut reader = DisplacementReader::open(&path).unwrap();
    assert!(reader.read(0..4).is_ok());
    let whole = read_displacement(&path).unwrap_err().to_string();
    // A turned vector has no component that is finite.
    assert!(whole.contains("the first at voxel [2, 3, 4], component"), "{whole}");
    let text = reader.read(3..6).unwrap_err().to_string();
    assert!(text.contains("the first at voxel [2, 3, 4], component"), "{text}");
}

#[test]
fn integers_of_every_type_are_listed_exactly() {
    let folder = Folder::new();
    let large = [614_454_277.0, 3_000_000_007.0, 9_007_199_254_740_991.0];
    for (data_type, values) in [
        (DataType::U32, &large[..2]),
        (DataType::U64, &large[..]),
        (DataType::I64, &[-5.0, 614_454_277.0, 4e15]),
        (DataType::F64, &[-5.0, 614_454_277.0, 9_007_199_254_740_991.0]),
    ] {
        let voxels: Vec<f64> = (0..12).map(|i| *values.get(i % 5).unwrap_or(&0.0)).collect();
        let bytes = file_bytes(&raw(data_type), &encode(&voxels, data_type, Endian::Little));
        let path = folder.file("labels.nii", &bytes);
        let reader = PlaneReader::open(&path, None).unwrap();
        let (mut reader, list) = reader.with_values().unwrap().expect("integers");
        let places = reader.read(0..2).unwrap();
        let read: Vec<f64> = places.iter().map(|place| list[*place as usize] as f64).collect();
        assert_eq!((list[0], read), (0, voxels.clone()), "{data_type:?}");
        // And written in the type that they came in.
        let places: Vec<i32> = places.iter().map(|place| *place as i32).collect();
        let header = crate::io::images::header(&path).unwrap();
        let form = IntegerForm::of(&header).or_else(|| IntegerForm::of_doubles(&header)).unwrap();
        let written = folder.path("written.nii");
        let mut writer = IntegerWriter::create(&written, &header.geometry, 1, form).unwrap();
        writer.write_listed(&places, &list).unwrap();
        writer.finish().unwrap();
        let stored = std::fs::read(&written).unwrap();
        assert_eq!(stored[352..], encode(&voxels, data_type, Endian::Little), "{data_type:?}");
    }
    for odd in [0.5, f64::NAN, 1e16] {
        let voxels: Vec<f64> = (0..12).map(|i| if i == 7 { odd } else { 1.0 }).collect();
        let bytes =
            file_bytes(&raw(DataType::F64), &encode(&voxels, DataType::F64, Endian::Little));
        let reader = PlaneReader::open(folder.file("odd.nii", &bytes), None).unwrap();
        assert!(reader.with_values().unwrap().is_none(), "{odd}");
        // Not what f32 would round, nor where the header says labels.
        for (intent, label) in [(0, 16_777_217.0), (1002, 1.0)] {
            let voxels: Vec<f64> =
                voxels.iter().map(|v| if *v == 1.0 { label } else { *v }).collect();
            let mut raw = raw(DataType::F64);
            raw.intent_code = intent;
            let bytes = file_bytes(&raw, &encode(&voxels, DataType::F64, Endian::Little));
            let reader = PlaneReader::open(folder.file("odd.nii", &bytes), None).unwrap();
            let text = reader.with_values().err().expect("no labels").to_string();
            let expected = format!(
                "1 voxels are no integer labels in the range of i32, the first at voxel (x, y, z) = [1, 0, 1] with value {odd};"
            );
            assert!(text.contains(&expected), "{text}");
        }
    }
}
