//! A file that is read plane by plane.

use super::*;
use crate::image::Planes;
use crate::io::images::{PlaneReader, read_volume};

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
