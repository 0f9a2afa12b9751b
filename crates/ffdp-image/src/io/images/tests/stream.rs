//! Images that grow by slices.

use super::*;
use crate::image::{LabelMap, Volume};
use crate::io::images::{
    LabelWriter, VolumeWriter, header, read_labels, read_volume, write_labels, write_volume,
};

fn volume() -> Volume {
    let geometry = sheared([7, 5, 9]);
    let values = (0..geometry.len()).map(|i| (i as f32 * 0.37).sin()).collect();
    Volume::new(values, geometry).unwrap()
}

#[test]
fn a_volume_written_in_parts_is_the_one_written_at_once() {
    let folder = Folder::new();
    let volume = volume();
    for name in ["a.nii", "a.nii.gz"] {
        let mut writer = VolumeWriter::create(folder.path(name), &volume.geometry).unwrap();
        volume.data.chunks(35 * 2).for_each(|part| writer.write(part).unwrap());
        assert!(!folder.path(name).exists(), "{name} appears at the end");
        writer.finish().unwrap();
        assert_eq!(read_volume(folder.path(name)).unwrap(), volume, "{name}");
    }
    write_volume(folder.path("b.nii"), &volume).unwrap();
    assert!(fs::read(folder.path("a.nii")).unwrap() == fs::read(folder.path("b.nii")).unwrap());
}

#[test]
fn labels_take_the_smallest_type_of_those_announced() {
    let folder = Folder::new();
    let geometry = sheared([4, 3, 2]);
    for (low, high) in [(0, 255), (-3, 100), (-3, 3000), (0, 65_535), (-5, 70_000)] {
        let data = (0..24).map(|i| low + (high - low) * i / 23).collect();
        let labels = LabelMap::new(data, geometry.clone()).unwrap();
        let mut writer =
            LabelWriter::create(folder.path("a.nii"), &geometry, &[low, 0, high]).unwrap();
        labels.data.chunks(12).for_each(|part| writer.write(part).unwrap());
        writer.finish().unwrap();
        write_labels(folder.path("b.nii"), &labels).unwrap();
        assert_eq!(read_labels(folder.path("a.nii")).unwrap(), labels, "{low}..{high}");
        let of = |name| header(folder.path(name)).unwrap();
        assert_eq!(of("a.nii").data_type, of("b.nii").data_type, "{low}..{high}");
        assert_eq!(of("a.nii").intent_code, of("b.nii").intent_code);
    }
}

#[test]
fn too_few_too_many_and_foreign_voxels_are_refused_and_leave_nothing() {
    let folder = Folder::new();
    let geometry = sheared([4, 3, 2]);
    let create = || VolumeWriter::create(folder.path("a.nii.gz"), &geometry).unwrap();
    let mut few = create();
    few.write(&[0.0; 12]).unwrap();
    let text = few.finish().unwrap_err().to_string();
    assert!(text.contains("[24]") && text.contains("[12]"), "{text}");
    let mut many = create();
    many.write(&[0.0; 12]).unwrap();
    let text = many.write(&[0.0; 13]).unwrap_err().to_string();
    assert!(text.contains("[24]") && text.contains("[25]"), "{text}");
    drop(many);
    let mut foreign = LabelWriter::create(folder.path("b.nii"), &geometry, &[0, 7]).unwrap();
    let text = foreign.write(&[300; 12]).unwrap_err().to_string();
    assert!(text.contains("300"), "{text}");
    drop(foreign);
    assert!(VolumeWriter::create(folder.path("a.png"), &geometry).is_err());
    assert!(VolumeWriter::create(folder.path("none/a.nii"), &geometry).is_err());
    assert_eq!(fs::read_dir(folder.path("")).unwrap().count(), 0);
}
