//! What is written can be read again, or is not there at all.

use super::*;
use crate::image::{LabelMap, Volume};
use crate::io::images::new_image::{Kind, NewImage};
use crate::io::images::{
    IntegerForm, header, read_labels, read_labels_at, read_volume, write_integers, write_labels,
    write_volume,
};

fn ramp(geometry: Geometry) -> Volume {
    let data = (0..geometry.len()).map(|i| (i as f32).sin() * 1e3).collect();
    Volume::new(data, geometry).unwrap()
}

#[test]
fn volumes_come_back_bit_for_bit() {
    let folder = Folder::new();
    let volume = ramp(sheared([7, 5, 3]));
    for (name, compressed) in [("a.nii", false), ("b.nii.gz", true), ("c.NII.GZ", true)] {
        let path = folder.path(name);
        write_volume(&path, &volume).unwrap();
        assert_eq!(read_volume(&path).unwrap(), volume, "{name}");
        assert_eq!(fs::read(&path).unwrap()[..2] == [0x1f, 0x8b], compressed, "{name}");
        let header = header(&path).unwrap();
        assert_eq!((header.format, header.data_type), (Version::One.format(), DataType::F32));
        assert!(header.warnings.is_empty() && header.qform.is_none(), "{:?}", header.warnings);
    }
    assert_eq!(fs::read_dir(folder.0.path()).unwrap().count(), 3, "no temporary file is left");
}

#[test]
fn large_volumes_come_back_through_several_blocks() {
    let folder = Folder::new();
    let volume = ramp(sheared([101, 53, 31]));
    write_volume(folder.path("large.nii.gz"), &volume).unwrap();
    assert_eq!(read_volume(folder.path("large.nii.gz")).unwrap(), volume);
}

#[test]
fn an_axis_beyond_32767_selects_version_two() {
    let folder = Folder::new();
    for (n, version) in [(32767, Version::One), (32768, Version::Two), (70000, Version::Two)] {
        let volume = ramp(sheared([2, n, 1]));
        let path = folder.path("long.nii");
        write_volume(&path, &volume).unwrap();
        assert_eq!(header(&path).unwrap().format, version.format(), "{n}");
        assert_eq!(read_volume(&path).unwrap(), volume, "{n}");
    }
}

#[test]
fn a_place_that_f32_cannot_hold_selects_version_two() {
    let folder = Folder::new();
    // Micrometre voxels far from the origin: f32 is off by 4 voxels there.
    let grid = Geometry::new([4, 3, 2], [1e-3; 3])
        .and_then(|grid| grid.with_origin([123456.789012, -0.5, 3.25]))
        .unwrap();
    let path = folder.path("micro.nii");
    write_volume(&path, &ramp(grid.clone())).unwrap();
    assert_eq!(header(&path).unwrap().format, Version::Two.format());
    assert_eq!(read_volume(&path).unwrap().geometry.origin_mm, grid.origin_mm);
}

#[test]
fn labels_take_the_smallest_type_that_holds_them() {
    let folder = Folder::new();
    for (labels, data_type) in [
        ([0, 0], DataType::U8),
        ([0, 255], DataType::U8),
        ([-1, 127], DataType::I8),
        ([-128, 0], DataType::I8),
        ([-1, 128], DataType::I16),
        ([0, 256], DataType::I16),
        ([0, 32767], DataType::I16),
        ([-32768, 32767], DataType::I16),
        ([0, 32768], DataType::U16),
        ([0, 65535], DataType::U16),
        ([-1, 65535], DataType::I32),
        ([0, 65536], DataType::I32),
        ([i32::MIN, i32::MAX], DataType::I32),
    ] {
        let map = LabelMap::new(labels.repeat(6), sheared([3, 2, 2])).unwrap();
        for name in ["labels.nii", "labels.nii.gz"] {
            let path = folder.path(name);
            write_labels(&path, &map).unwrap();
            let header = header(&path).unwrap();
            assert_eq!((header.data_type, header.intent_code), (data_type, 1002), "{labels:?}");
            assert_eq!(read_labels(&path).unwrap(), map, "{labels:?} {name}");
        }
    }
}

#[test]
fn integers_keep_their_type_and_intercept() {
    let folder = Folder::new();
    for (data_type, values) in [
        (DataType::U8, [-24, 231]),
        (DataType::I8, [-152, 103]),
        (DataType::U16, [-24, 65511]),
        (DataType::I16, [-32792, 32743]),
        (DataType::U32, [-24, i32::MAX]),
        (DataType::I32, [i32::MIN + 24, 7]),
        (DataType::U64, [-24, i32::MAX]),
        (DataType::I64, [i32::MIN, i32::MAX]),
    ] {
        let form = IntegerForm {
            data_type,
            intercept: -24,
            scale: None,
            intent_code: 0,
            time_step_seconds: 2.5,
        };
        let map = LabelMap::new(values.repeat(6), sheared([3, 2, 2])).unwrap();
        let path = folder.path("integers.nii.gz");
        write_integers(&path, std::slice::from_ref(&map), form).unwrap();
        let one = IntegerForm { time_step_seconds: 0.0, ..form };
        assert_eq!(IntegerForm::of(&header(&path).unwrap()), Some(one));
        assert_eq!(read_labels(&path).unwrap(), map, "{data_type:?}");
        write_integers(&path, &[map.clone(), map.clone()], form).unwrap();
        assert_eq!(IntegerForm::of(&header(&path).unwrap()), Some(form));
        assert_eq!(read_labels_at(&path, 1).unwrap(), map, "{data_type:?}");
        if data_type.bytes() < 4 {
            let one_more = values.map(|value| value + 1);
            let map = LabelMap::new(one_more.repeat(6), sheared([3, 2, 2])).unwrap();
            let refused = write_integers(&path, &[map], form).unwrap_err().to_string();
            assert!(refused.contains(&one_more[1].to_string()), "{data_type:?}: {refused}");
        }
    }
}

#[test]
fn other_names_and_wrong_lengths_write_nothing() {
    let folder = Folder::new();
    let volume = ramp(sheared([3, 2, 2]));
    for name in ["image.mnc", "image", "image.gz", "image.nii.bz2", "nii"] {
        let path = folder.path(name);
        let text = message(&path, write_volume(&path, &volume));
        assert!(text.contains(".nii, .nii.gz, .zarr"), "{text}");
    }
    let short = Volume { data: vec![0.0; 11], geometry: volume.geometry.clone() };
    let text = write_volume(folder.path("a.nii"), &short).unwrap_err().to_string();
    assert!(text.contains("[12]") && text.contains("[11]"), "{text}");
    assert_eq!(fs::read_dir(folder.0.path()).unwrap().count(), 0);
}

#[test]
fn failures_leave_the_old_file() {
    let folder = Folder::new();
    let path = folder.file("old.nii", b"precious");
    let image = NewImage::new(&sheared([3, 2, 2]), DataType::U8, Kind::Image);
    for name in ["old.nii", "old.nii.gz", "old.nrrd", "old.mha", "old.zarr"] {
        let path = folder.path(name);
        let failed = crate::io::images::sink::write_image(&path, &image, |file| {
            file.write_all(&[1, 2, 3])?;
            Err(std::io::Error::other("the cable was pulled"))
        });
        assert!(message(&path, failed).contains("the cable was pulled"));
    }
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    assert_eq!(fs::read_dir(folder.0.path()).unwrap().count(), 1);
    let missing = folder.path("no/such/folder/a.nii");
    assert!(message(&missing, write_volume(&missing, &ramp(sheared([1; 3])))).contains("create"));
}

#[test]
fn a_sheared_nifti_is_said_to_be_unreadable_by_itk() {
    use crate::io::images::unreadable_by_itk;
    let with_shear = |shear: f64| {
        let rows = [[2.0, 2.0 * shear, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0], [0.0, 0.0, 2.0, 0.0]];
        Geometry::from_affine([5; 3], Affine::from_rows(rows)).unwrap()
    };
    // SimpleITK 2.5 reads the first three, and refuses the others.
    for (shear, is_refused) in
        [(0.0, false), (1e-5, false), (0.9e-4, false), (3e-4, true), (5e-3, true)]
    {
        let warning = unreadable_by_itk("warp.nii.gz", &with_shear(shear));
        assert_eq!(warning.is_some(), is_refused, "{shear}: {warning:?}");
    }
    assert!(unreadable_by_itk("warp.mha", &with_shear(0.1)).is_none());
}
