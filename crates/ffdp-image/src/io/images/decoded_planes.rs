//! Voxels of formats that are decoded a plane at a time: pages, pictures, DICOM files.

use super::reserve::reserve;
use super::source::Decoded;
use crate::error::Result;
use std::path::{Path, PathBuf};

/// Planes of equal length, of which one is held.
pub struct DecodedPlanes<F> {
    path: PathBuf,
    plane_bytes: usize,
    held: Option<usize>,
    bytes: Vec<u8>,
    /// Fills the bytes of a plane, least significant byte first.
    decode: F,
}

impl<F: FnMut(usize, &mut [u8]) -> Result<()> + Send> DecodedPlanes<F> {
    /// Planes of so many bytes of the image at `path`, which `decode` fills by their number.
    pub fn new(path: &Path, plane_bytes: usize, decode: F) -> Self {
        Self { path: path.to_path_buf(), plane_bytes, held: None, bytes: Vec::new(), decode }
    }
}

impl<F: FnMut(usize, &mut [u8]) -> Result<()> + Send> Decoded for DecodedPlanes<F> {
    fn bytes_at(&mut self, position: u64, most: usize) -> Result<&[u8]> {
        let (plane, start) =
            ((position / self.plane_bytes as u64) as usize, position % self.plane_bytes as u64);
        if self.held != Some(plane) {
            self.held = None;
            if self.bytes.is_empty() {
                self.bytes = reserve(&self.path, self.plane_bytes)?;
                self.bytes.resize(self.plane_bytes, 0);
            }
            (self.decode)(plane, &mut self.bytes)?;
            self.held = Some(plane);
        }
        let start = start as usize;
        Ok(&self.bytes[start..self.plane_bytes.min(start.saturating_add(most))])
    }
}
