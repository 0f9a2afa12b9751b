//! The crate `nifti` 0.18 as a second opinion, where it is right: little and big endian NIfTI-1
//! with the data directly after the header.

use nifti::volume::RandomAccessNiftiVolume;
use nifti::{NiftiObject, ReaderOptions};

use super::*;
use crate::image::{LabelMap, Volume};
use crate::io::images::{read_volume, write_labels, write_volume};

#[test]
fn files_we_write_are_read_alike() {
    let folder = Folder::new();
    let (s, c) = 0.4f64.sin_cos();
    let turned = Geometry::new([5, 4, 3], [0.5, 2.0, 3.0])
        .and_then(|grid| grid.with_direction([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, -1.0]]))
        .and_then(|grid| grid.with_origin([-12.5, 7.25, 100.0]))
        .unwrap();
    let volume = Volume::new((0..60).map(|i| i as f32 * 0.3 - 7.0).collect(), turned).unwrap();
    let labels =
        LabelMap::new((0..60).map(|i| i * 7 - 100).collect(), volume.geometry.clone()).unwrap();
    for name in ["image.nii", "image.nii.gz"] {
        let path = folder.path(name);
        write_volume(&path, &volume).unwrap();
        let object = ReaderOptions::new().read_file(&path).unwrap();
        let header = object.header();
        assert_eq!(header.dim[..4], [3, 5, 4, 3], "{name}");
        assert_eq!((header.vox_offset, header.scl_slope), (352.0, 1.0), "{name}");
        assert_eq!((header.qform_code, header.sform_code), (1, 1), "{name}");
        assert_eq!(header.pixdim[..4], [-1.0, 0.5, 2.0, 3.0], "{name}");
        let rows = volume.geometry.voxel_to_mm().rows().map(|row| row.map(|v| v as f32));
        assert_eq!([header.srow_x, header.srow_y, header.srow_z], rows, "{name}");
        let quaternion = [header.quatern_b, header.quatern_c, header.quatern_d];
        let half = (0.2f64).sin() as f32; // a turn by 0.4 about z
        assert!(quaternion[2] - half < 1e-7 && quaternion[..2] == [0.0; 2], "{quaternion:?}");
        assert_eq!([header.quatern_x, header.quatern_y, header.quatern_z], [-12.5, 7.25, 100.0]);
        let theirs = object.into_volume();
        for (offset, &ours) in volume.data.iter().enumerate() {
            let index = volume.geometry.index_of(offset).map(|i| i as u16);
            assert_eq!(theirs.get_f32(&index).unwrap(), ours, "{name} {index:?}");
        }
        write_labels(&path, &labels).unwrap();
        let theirs = ReaderOptions::new().read_file(&path).unwrap().into_volume();
        for (offset, &ours) in labels.data.iter().enumerate() {
            let index = labels.geometry.index_of(offset).map(|i| i as u16);
            assert_eq!(theirs.get_i32(&index).unwrap(), ours, "{name} {index:?}");
        }
    }
}

#[test]
fn every_type_and_byte_order_is_decoded_alike() {
    let folder = Folder::new();
    let values: Vec<f64> = (0..12).map(|i| f64::from(i * 11)).collect();
    for data_type in DataType::ALL {
        for endian in [Endian::Little, Endian::Big] {
            let mut raw = converted(raw(data_type), Version::One, endian);
            (raw.scl_slope, raw.scl_inter) = (0.5, -3.0);
            let bytes = file_bytes(&raw, &encode(&values, data_type, endian));
            let path = folder.file("image.nii", &bytes);
            let ours = read_volume(&path).unwrap();
            let theirs = ReaderOptions::new().read_file(&path).unwrap().into_volume();
            for (offset, &value) in ours.data.iter().enumerate() {
                let index = ours.geometry.index_of(offset).map(|i| i as u16);
                let other = theirs.get_f32(&index).unwrap();
                assert_eq!(other, value, "{data_type:?} {endian:?} {index:?}");
            }
        }
    }
}
