//! NIfTI-1 and NIfTI-2 files (`.nii`, `.nii.gz`; pairs `.hdr/.img` are read), read and written strictly.
//!
//! A damaged or unsuitable file is refused with the value at fault, never read on a guess:
//! `vox_offset` is honoured, gzip streams (also of several members) are read to their end with
//! their checksums, lengths are compared with the header before anything is allocated, and bytes
//! after the last voxel are an error. What is unusual but clear is read and noted in
//! [`Header::warnings`]; nothing is printed here.
//!
//! Memory order is that of the file: x fastest, so data goes to `[1, 1, D, H, W]` tensors as it
//! is. Physical space is RAS+ mm in both, except for displacement fields, whose vectors ITK and
//! ANTs keep in LPS; see [`write_displacement`].
//!
//! Source: the official headers `nifti1.h` (2007) and `nifti2.h` (2011).
//! Read `header.rs` first; `layout.rs` knows byte positions, `source.rs` streams and lengths.

mod data_type;
mod displacement;
mod header;
mod integers;
mod layout;
mod orientation;
mod planes;
mod read;
mod refuse;
mod series;
mod source;
mod stream;
mod write;

#[cfg(test)]
mod tests;

pub use data_type::DataType;
pub(super) use displacement::lps_to_voxels;
pub use displacement::{read_displacement, write_displacement};
pub use header::{Header, header};
pub use integers::{IntegerForm, write_integers};
pub use layout::{Endian, Version};
pub use orientation::{Form, GeometrySource};
pub use planes::PlaneReader;
pub use read::{
    read_label_slab, read_labels, read_labels_at, read_slab, read_stored_at, read_volume,
    read_volume_at,
};
pub use series::{read_volumes, write_volumes};
pub use source::other_of_pair;
pub use stream::{DisplacementWriter, LabelWriter, VolumeWriter};
pub use write::{write_labels, write_volume};
