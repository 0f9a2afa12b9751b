//! Parts of a file, without the rest.

use std::fs::File;
use std::io::{Seek, SeekFrom};

use super::*;
use crate::error::Error;
use crate::io::available_memory_bytes;
use crate::io::images::{read_label_slab, read_slab, read_volume};

#[test]
fn slabs_are_the_slices_of_the_whole_on_their_own_grid() {
    let folder = Folder::new();
    let raw = new_header(&sheared([4, 3, 5]), DataType::U8);
    let bytes = counting(&raw);
    for bytes in [gzip(&bytes), bytes] {
        let path = folder.file("image.nii", &bytes);
        let whole = read_volume(&path).unwrap();
        for z in [0..1, 0..5, 2..4, 4..5] {
            let slab = read_slab(&path, z.clone()).unwrap();
            assert_eq!(slab.data, whole.data[12 * z.start..12 * z.end], "{z:?}");
            assert_eq!(slab.geometry.size, [4, 3, z.len()], "{z:?}");
            let corner = whole.geometry.voxel_to_mm().apply([0.0, 0.0, z.start as f64]);
            assert_eq!(slab.geometry.origin_mm, corner, "{z:?}");
            assert_eq!(slab.geometry.direction, whole.geometry.direction, "{z:?}");
            let labels = read_label_slab(&path, z.clone()).unwrap();
            assert!(labels.data.iter().zip(&slab.data).all(|(&l, &v)| l as f32 == v), "{z:?}");
        }
        #[allow(clippy::reversed_empty_ranges)]
        for z in [0..0, 3..2, 0..6, 5..6, usize::MAX..usize::MAX] {
            let text = message(&path, read_slab(&path, z.clone()));
            assert!(text.contains("0..5"), "{z:?}: {text}");
        }
    }
}

#[test]
fn offenders_in_a_label_slab_are_numbered_in_the_whole_image() {
    let folder = Folder::new();
    let mut values = [1.0; 60];
    values[12 * 3 + 4 + 2] = 0.5;
    let raw = new_header(&sheared([4, 3, 5]), DataType::F32);
    let bytes = file_bytes(&raw, &encode(&values, DataType::F32, Endian::Little));
    let path = folder.file("labels.nii", &bytes);
    assert!(read_label_slab(&path, 0..3).is_ok());
    assert!(message(&path, read_label_slab(&path, 2..5)).contains("[2, 1, 3]"));
}

/// A sparse file of ten terabytes: read at the slab's offset, or the test takes hours.
#[test]
fn a_slab_of_a_file_larger_than_memory_is_read_by_offset() {
    const SLICES: usize = 10_000_000;
    let folder = Folder::new();
    let mut raw = converted(raw(DataType::U8), Version::Two, Endian::Little);
    raw.dim[1..4].copy_from_slice(&[1000, 1000, SLICES as i64]);
    let path = folder.file("huge.nii", &raw.to_bytes());
    let mut file = File::options().write(true).open(&path).unwrap();
    let slice = 544 + 1_000_000 * (SLICES as u64 - 1);
    if let Err(reason) = file.set_len(slice + 1_000_000) {
        println!("skipped: no sparse files of this size here ({reason})");
        return;
    }
    file.seek(SeekFrom::Start(slice + 1234)).unwrap();
    file.write_all(&[77]).unwrap();
    drop(file);
    let slab = read_slab(&path, SLICES - 1..SLICES).unwrap();
    assert_eq!((slab.data.len(), slab.data[1234]), (1_000_000, 77.0));
    assert_eq!(slab.data.iter().sum::<f32>(), 77.0);
    if available_memory_bytes().is_some() {
        let refused = read_volume(&path).unwrap_err();
        assert!(matches!(refused, Error::TooLarge { .. }), "{refused}");
        assert!(refused.to_string().contains("needs 40000000000000 bytes"), "{refused}");
    }
}
