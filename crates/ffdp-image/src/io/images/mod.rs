//! Images in files: NIfTI-1 and NIfTI-2 (`.nii`, `.nii.gz`; pairs `.hdr/.img` are read), OME-Zarr (`.zarr`), NRRD
//! (`.nrrd`; `.nhdr` is read) and MetaImage (`.mha`; `.mhd` is read), read and written strictly. An OME-Zarr may lie
//! behind an address (`http://`).
//!
//! A damaged or unsuitable file is refused with the value at fault, never read on a guess: gzip streams (also of
//! several members) are read to their end with their checksums, lengths are compared with the header before anything is
//! allocated. What is unusual but clear is read and noted in
//! [`Header::warnings`]; nothing is printed here.
//!
//! Every format is a [`Header`] and one stream of voxels, x fastest, so data goes to `[1, 1, D, H, W]` tensors as it
//! is; what reads or writes volumes, labels, planes and displacements knows no format. Physical space is RAS+ mm, except
//! for displacement fields, whose vectors ITK and ANTs keep in LPS; see [`write_displacement`].
//!
//! Sources: the official headers `nifti1.h` (2007) and `nifti2.h` (2011); the others stand in their modules.
//! Read `header.rs` first, then `open.rs` (the one way in) and `sink.rs` (the one way out).

mod convert;
mod data_type;
mod displacement;
mod foreign;
mod format;
mod header;
mod integers;
mod metaimage;
mod new_image;
mod nifti;
mod nrrd;
mod open;
mod planes;
mod read;
mod refuse;
mod series;
mod sink;
mod source;
mod stream;
mod units;
mod write;
mod zarr;

#[cfg(test)]
mod tests;

pub use convert::convert;
pub use data_type::{DataType, Endian};
pub(super) use displacement::lps_to_voxels;
pub use displacement::{DisplacementReader, read_displacement, write_displacement};
pub(super) use format::format_names;
pub use format::{is_displacement_name, is_packed_name, read_formats, written_endings};
pub use header::{Form, Format, GeometrySource, Header};
pub use integers::{IntegerForm, IntegerWriter, write_integers};
pub(super) use open::is_image;
pub use open::{files, header, open_file};
pub use planes::PlaneReader;
pub use read::{
    read_label_slab, read_labels, read_labels_at, read_slab, read_stored_at, read_volume,
    read_volume_at,
};
pub use series::{read_volumes, write_volumes};
pub use stream::{DisplacementWriter, LabelWriter, VolumeWriter};
pub use write::{unreadable_by_itk, write_labels, write_volume};
