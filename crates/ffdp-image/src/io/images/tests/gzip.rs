//! Damaged and unusual compressed files.

use super::*;
use crate::io::images::{header, read_slab, read_volume};

fn sound() -> Vec<u8> {
    // Noise does not shrink, so that the stream has a body worth damaging.
    let mut state = 1u32;
    let values: Vec<f64> = (0..12)
        .map(|_| {
            state = state.wrapping_mul(1664525).wrapping_add(1013904223);
            f64::from(state >> 8)
        })
        .collect();
    file_bytes(&raw(DataType::F32), &encode(&values, DataType::F32, Endian::Little))
}

#[test]
fn streams_of_several_members_are_one_file() {
    let folder = Folder::new();
    let bytes = sound();
    let whole = read_volume(folder.file("plain.nii", &bytes)).unwrap();
    // Cut within the header, within a voxel, at the end (an empty last member, as bgzip writes).
    for cuts in [vec![100], vec![350, 365], vec![352, 356, 360], vec![bytes.len()]] {
        let mut members = Vec::new();
        let mut start = 0;
        for &end in cuts.iter().chain([&bytes.len()]) {
            members.extend(gzip(&bytes[start..end]));
            start = end;
        }
        let path = folder.file("members.nii.gz", &members);
        assert_eq!(read_volume(&path).unwrap(), whole, "{cuts:?}");
        assert_eq!(read_slab(&path, 1..2).unwrap().data, whole.data[6..], "{cuts:?}");
    }
}

#[test]
fn compression_is_recognised_by_content_not_by_name() {
    let folder = Folder::new();
    let bytes = sound();
    let plain = read_volume(folder.file("a.nii.gz", &bytes)).unwrap();
    assert_eq!(read_volume(folder.file("b.nii", &gzip(&bytes))).unwrap(), plain);
}

#[test]
fn every_truncation_is_an_error() {
    let folder = Folder::new();
    for bytes in [sound(), gzip(&sound()), [gzip(&sound()[..360]), gzip(&sound()[360..])].concat()]
    {
        for length in 0..bytes.len() {
            let path = folder.file("cut.nii", &bytes[..length]);
            message(&path, read_volume(&path));
        }
        assert!(read_volume(folder.file("whole.nii", &bytes)).is_ok());
    }
}

#[test]
fn truncation_is_called_so() {
    let folder = Folder::new();
    let bytes = gzip(&sound());
    let path = folder.file("cut.nii.gz", &bytes[..bytes.len() - 20]);
    assert!(message(&path, read_volume(&path)).contains("gzip stream must be complete"));
    let path = folder.file("cut.nii", &sound()[..399]);
    let text = message(&path, read_volume(&path));
    assert!(text.contains("truncated") && text.contains("asks for 400") && text.contains("399"));
}

#[test]
fn a_wrong_checksum_is_an_error_also_for_a_slab() {
    let folder = Folder::new();
    let mut bytes = gzip(&sound());
    let crc = bytes.len() - 8;
    bytes[crc] ^= 1;
    let path = folder.file("crc.nii.gz", &bytes);
    assert!(header(&path).is_ok(), "the header alone is read without the end");
    assert!(message(&path, read_volume(&path)).contains("checksum"));
    assert!(message(&path, read_slab(&path, 0..1)).contains("checksum"));
}

#[test]
fn no_flipped_bit_goes_unnoticed() {
    let folder = Folder::new();
    let sound = gzip(&sound());
    let whole = read_volume(folder.file("whole.nii.gz", &sound)).unwrap();
    for position in 0..sound.len() {
        for bit in 0..8 {
            let mut damaged = sound.clone();
            damaged[position] ^= 1 << bit;
            // Time stamp and padding bits carry no data: equal voxels are the other good answer.
            if let Ok(read) = read_volume(folder.file("flip.nii.gz", &damaged)) {
                assert_eq!(read, whole, "byte {position} bit {bit}");
            }
        }
    }
}

#[test]
fn nothing_may_follow_a_gzip_stream_but_bytes_after_the_voxels_are_counted() {
    let folder = Folder::new();
    let (plain, packed) = (sound(), gzip(&sound()));
    for garbage in [&b"x"[..], b"\0", &[0; 512], b"trailing garbage of some length"] {
        let path = folder.file("long.nii.gz", &[&packed, garbage].concat());
        let text = message(&path, read_volume(&path));
        let says = ["nothing after it", "must be complete"];
        assert!(says.iter().any(|part| text.contains(part)), "{garbage:?}: {text}");
        message(&path, read_slab(&path, 0..1));
        // Of the voxels themselves, more than there are do no harm, packed or not.
        let voxels = read_volume(folder.file("sound.nii", &plain)).unwrap();
        let long = [&plain[..], garbage].concat();
        for bytes in [long.clone(), gzip(&long)] {
            let path = folder.file("long.nii.gz", &bytes);
            assert_eq!(read_volume(&path).unwrap(), voxels);
            assert_eq!(read_slab(&path, 0..1).unwrap().data, voxels.data[..6]);
            let warnings = crate::io::images::header(&path).unwrap().warnings;
            let says = format!("{} bytes follow the last voxel", garbage.len());
            assert!(warnings.iter().any(|warning| warning.contains(&says)), "{warnings:?}");
        }
    }
}

#[test]
fn a_small_file_cannot_make_us_allocate() {
    let folder = Folder::new();
    let mut raw = converted(raw(DataType::F64), Version::Two, Endian::Little);
    raw.dim[1..4].copy_from_slice(&[1 << 19, 1 << 19, 1 << 19]);
    let path = folder.file("bomb.nii.gz", &gzip(&file_bytes(&raw, &[0; 96])));
    assert!(message(&path, read_volume(&path)).contains("cannot hold the voxels"));
    assert!(message(&path, header(&path)).contains("cannot hold the voxels"));
    let path = folder.file("bomb.nii", &file_bytes(&raw, &[0; 96]));
    assert!(message(&path, read_volume(&path)).contains("truncated"));
}
