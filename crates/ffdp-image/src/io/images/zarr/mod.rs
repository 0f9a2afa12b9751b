//! OME-Zarr: images as microscopes store them, in chunks, with their pyramid.
//!
//! Read: OME-Zarr up to 0.5 in local folders or behind an address (HTTP), arrays of Zarr 2 and Zarr 3, sharded or not, whose chunks are packed by
//! blosc (LZ4, Zstandard, zlib, BloscLZ), zstd, gzip or zlib. Written: OME-Zarr 0.5, sharded, blosc with LZ4.
//!
//! A thin Zarr of our own: the crate `zarrs` needs a C compiler and 43 packages, and switches on `preserve_order` of
//! `serde_json` in every crate of the build; `ome_zarr_metadata` keeps scales in f32 and refuses the orientation of
//! axes (RFC-4).
//!
//! Sources: the Zarr specifications 2 and 3 with the codec `sharding_indexed`, OME-NGFF 0.4 and 0.5, RFC-4.
//! Read `ome.rs` first (what the metadata means), then `array.rs` (arrays and chunks), `read.rs`, `write.rs`.

mod array;
mod blosc;
mod codecs;
mod ome;
mod pyramid;
mod read;
mod store;
mod trust;
mod unpack;
mod write;

#[cfg(test)]
mod remote_tests;
#[cfg(test)]
mod tests;

pub(super) use read::{Voxels, files, open};
pub(super) use store::open as open_file;
pub(super) use write::ZarrSink;
