//! Header and voxels in two files.

use super::*;
use crate::image::Planes;
use crate::io::images::{PlaneReader, header, read_volume};

/// Header and voxels of a file, apart; voxels from byte `offset` of theirs.
fn apart(version: Version, offset: usize) -> (Vec<u8>, Vec<u8>) {
    let raw = converted(new_header(&sheared([4, 3, 9]), DataType::U8), version, Endian::Big);
    let mut bytes = counting(&raw);
    let voxels = bytes.split_off(version.first_data_byte());
    match version {
        Version::One => {
            bytes[344..348].copy_from_slice(b"ni1\0");
            bytes[108..112].copy_from_slice(&(offset as f32).to_be_bytes());
        }
        Version::Two => {
            bytes[4..12].copy_from_slice(b"ni2\0\r\n\x1a\n");
            bytes[168..176].copy_from_slice(&(offset as i64).to_be_bytes());
        }
    }
    (bytes, [vec![0xEE; offset], voxels].concat())
}

#[test]
fn a_pair_is_read_by_either_name() {
    for (version, offset) in [(Version::One, 0), (Version::One, 64), (Version::Two, 0)] {
        let (head, voxels) = apart(version, offset);
        for (names, compressed) in [
            (["a.hdr", "a.img"], [false, false]),
            (["a.b.HDR", "a.b.IMG"], [false, false]),
            (["a.hdr.gz", "a.img.gz"], [true, true]),
            (["a.hdr", "a.img.gz"], [false, true]),
        ] {
            let folder = Folder::new();
            let form = |bytes: &[u8], gz: bool| if gz { gzip(bytes) } else { bytes.to_vec() };
            folder.file(names[0], &form(&head, compressed[0]));
            folder.file(names[1], &form(&voxels, compressed[1]));
            // A name in capitals is found from the header alone.
            for name in &names[..if names[0].ends_with("HDR") { 1 } else { 2 }] {
                let path = folder.path(name);
                assert_eq!(header(&path).unwrap().warnings, [""; 0], "{name}");
                let volume = read_volume(&path).unwrap();
                let expected: Vec<f32> = (0..108).map(|i| i as f32).collect();
                assert_eq!(volume.data, expected, "{name}");
                let mut reader = PlaneReader::open(&path, None).unwrap();
                assert_eq!(reader.read(5..7).unwrap(), &expected[60..84], "{name}");
                assert_eq!(reader.read(1..2).unwrap(), &expected[12..24], "{name}");
            }
        }
    }
}

#[test]
fn half_a_pair_is_refused_with_the_missing_name() {
    let folder = Folder::new();
    let (head, voxels) = apart(Version::One, 0);
    folder.file("a.hdr", &head);
    let text = header(folder.path("a.hdr")).expect_err("no voxels").to_string();
    assert!(text.contains("a.img"), "{text}");
    let path = folder.file("a.img", &voxels[1..]);
    assert!(message(&path, read_volume(folder.path("a.hdr"))).contains("truncated"));
    folder.file("b.img", &voxels);
    let text = header(folder.path("b.img")).expect_err("no header").to_string();
    assert!(text.contains("b.hdr"), "{text}");
}
