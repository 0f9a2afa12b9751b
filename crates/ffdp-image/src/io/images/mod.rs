//! Images in files of the formats that [`read_formats`] lists; those of [`written_endings`] are written too. Read and
//! written strictly: a damaged or unsuitable file is refused with the value at fault, never read on a guess. Gzip streams
//! (also of several members) are read to their end with their checksums, lengths are compared with the header before
//! anything is allocated. What is unusual but clear is read and noted in [`Header::warnings`]; nothing is printed here.
//!
//! Every format is a [`Header`] and one stream of voxels, x fastest, so data goes to `[1, 1, D, H, W]` tensors as it
//! is; what reads or writes volumes, labels, planes and displacements knows no format. Physical space is RAS+ mm, except
//! for displacement fields, whose vectors ITK and ANTs keep in LPS; see [`write_displacement`].
//!
//! Read `format.rs` first: what a format is; the one list of them is below. Then `header.rs`, `open.rs` (the one way in) and
//! `sink.rs` (the one way out). A new format is a module that implements `ImageFormat`, and a line of that list; its
//! sources stand in its module. Those of NIfTI: the official headers `nifti1.h` (2007) and `nifti2.h` (2011).

mod convert;
mod data_type;
mod decoded_planes;
mod dicom;
mod displacement;
mod file_writer;
mod foreign;
mod format;
mod formats;
mod header;
mod integers;
mod metaimage;
mod mgh;
mod new_image;
mod nifti;
mod nrrd;
mod open;
mod pictures;
mod planes;
mod read;
mod refuse;
mod reserve;
mod series;
mod sink;
mod source;
mod stream;
mod text_header;
mod units;
mod write;
pub(super) mod zarr;

#[cfg(test)]
mod tests;

pub use convert::convert;
pub use data_type::{DataType, Endian};
pub(super) use displacement::lps_to_voxels;
pub use displacement::{DisplacementReader, read_displacement, write_displacement};
pub use formats::{is_displacement_name, is_packed_name, read_formats, written_endings};
pub use header::{Form, Format, GeometrySource, Header, INTENT_LABEL};
pub use integers::{IntegerForm, IntegerWriter, write_integers};
pub(super) use mgh::grid_of_centre;
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

/// All formats, in the order in which they are listed.
const FORMATS: &[&dyn format::ImageFormat] = &[
    &nifti::Nifti,
    &zarr::OmeZarr,
    &nrrd::Nrrd,
    &metaimage::MetaImage,
    &mgh::Mgh,
    &dicom::Dicom,
    &pictures::Tiff,
    &pictures::Png,
    &pictures::Jpeg,
    &pictures::PictureFolder,
];
