//! OME-Zarr: images as microscopes store them, in chunks, with their pyramid.
//!
//! Read: OME-Zarr up to 0.6 in local folders or behind an address (HTTP), arrays of Zarr 2 and Zarr 3, sharded or not, whose chunks are packed by
//! blosc (LZ4, Zstandard, zlib, BloscLZ), zstd, gzip or zlib. Written: OME-Zarr 0.5, displacements 0.6; sharded, blosc with LZ4.
//!
//! A thin Zarr of our own: the crate `zarrs` needs a C compiler and 43 packages, and switches on `preserve_order` of
//! `serde_json` in every crate of the build; `ome_zarr_metadata` keeps scales in f32 and refuses the orientation of
//! axes (RFC-4).
//!
//! Sources: the Zarr specifications 2 and 3 with the codec `sharding_indexed`, OME-NGFF 0.4, 0.5 and 0.6, RFC-4.
//! Read `ome.rs` first (what the metadata means; `systems.rs` for transforms between images), then `array.rs` (arrays and chunks), `read.rs`, `write.rs`.

mod array;
mod blosc;
mod codecs;
mod ome;
mod pyramid;
mod read;
mod store;
mod systems;
mod trust;
mod unpack;
mod write;

#[cfg(test)]
mod remote_tests;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use super::format::{Holds, ImageFormat, ImageWriter};
use super::header::{Components, Header, Vectors};
use super::new_image::NewImage;
use super::source::Source;
use crate::error::Result;
use crate::io::zarr_name::is_named;

pub(super) use store::open as open_file;
pub(in crate::io) use systems::{Stored, field, metadata, system};
pub(in crate::io) use write::{axis, write_json};

/// The format.
pub(super) struct OmeZarr;

impl ImageFormat for OmeZarr {
    fn name(&self) -> &'static str {
        "OME-Zarr"
    }

    fn help(&self) -> String {
        "OME-Zarr (image.zarr, image.zarr#LEVEL,c=CHANNEL,t=TIME)".to_string()
    }

    fn endings(&self) -> &'static [&'static str] {
        &[".zarr"]
    }

    fn written(&self) -> &'static [&'static str] {
        self.endings()
    }

    fn is_named(&self, path: &Path) -> bool {
        is_named(path)
    }

    fn open(&self, path: &Path) -> Result<(Source, Header)> {
        let (voxels, header) = read::open(path)?;
        Ok((Source::decoded(path, voxels), header))
    }

    fn files(&self, path: &Path) -> Result<Vec<PathBuf>> {
        read::files(path)
    }

    fn holds(&self) -> Holds {
        Holds { scale: false, displacement: Some(Vectors::AlongAxes(Components::ZYX_MM)) }
    }

    fn create(&self, path: &Path, image: &NewImage) -> Result<Box<dyn ImageWriter>> {
        Ok(Box::new(write::ZarrSink::create(path, image)?))
    }
}
