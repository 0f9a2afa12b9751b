//! What must hold for any file: it is refused, or what is read fits together.

use std::path::Path;

use ffdp_image::io::images::{
    header, read_displacement, read_labels, read_slab, read_volume, read_volume_at, write_volume,
};

/// Reads a file in every way; says whether it was read as an image.
///
/// # Panics
/// If the reader panics, or contradicts itself.
pub fn read_in_every_way(path: &Path) -> bool {
    let described = header(path);
    if let Ok((field, geometry)) = read_displacement(path) {
        assert_eq!(field.len(), 3 * geometry.len());
        assert!(field.iter().all(|v| v.is_finite()));
    }
    if let Ok(labels) = read_labels(path) {
        assert_eq!(labels.data.len(), labels.geometry.len());
    }
    let Ok(volume) = read_volume(path) else { return false };
    let described = described.expect("an image that is read has a header");
    assert_eq!(volume.data.len(), volume.geometry.len());
    assert_eq!(described.geometry, volume.geometry);
    let first = read_volume_at(path, 0).expect("a file with one volume has the first");
    assert!(same(&first.data, &volume.data));
    let last = volume.geometry.size[2] - 1;
    let slab = read_slab(path, last..last + 1).expect("the last plane of a sound file");
    let plane = volume.geometry.size[0] * volume.geometry.size[1];
    assert!(same(&slab.data, &volume.data[last * plane..]));
    // Written and read again it is the same image.
    let again = path.with_file_name("again.nii");
    write_volume(&again, &volume).expect("what was read can be written");
    let back = read_volume(&again).expect("what was written can be read");
    assert!(same(&back.data, &volume.data));
    true
}

/// Bit by bit: NaN is equal to itself.
fn same(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}
