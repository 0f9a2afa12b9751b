//! Files in and out: images, transforms, landmarks, and the promises every file operation keeps.
//!
//! Nothing half-written is ever left under a final name ([`write_atomically`]), nothing is
//! allocated before it is known to exist and to fit, and every refusal says which file, which
//! value and what to do.

mod atomic;
mod disk;
mod gzip;
pub mod images;
mod landmarks;
mod lps;
mod memory;
mod table;
mod toml_file;
mod transform_file;
mod words;
mod zarr_name;

pub use atomic::{check_not_an_input, check_writable, write_atomically, write_text};
pub use disk::{available_disk_bytes, check_disk};
pub use landmarks::{LandmarkSpace, LandmarkTable, read_landmarks, write_landmarks};
pub use memory::{available_memory_bytes, check_memory};
pub use table::{FileList, FileRow, LIST_COLUMNS, csv_line, csv_records};
pub use toml_file::read_toml;
pub use transform_file::{
    TransformPart, is_composite_name, is_deforming, open_displacement, read_flirt,
    read_transform_file, transform_files, write_affine, write_bspline, write_composite,
};
pub use words::closest;
pub use zarr_name::is_zarr_name;
