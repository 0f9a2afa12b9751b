//! A file that stays open and is read plane by plane: what a registration of images that do not fit
//! into memory reads.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::header::Header;
use super::read::{Selection, for_each_chunk, reserve};
use super::source::Source;
use crate::error::Result;
use crate::image::{Geometry, Planes, check_planes};

/// The planes of a 3-D image in a file, rounded to f32 with slope and intercept applied.
///
/// Holds the planes of the last reading; those that the next one shares with it are not read again. A plain
/// file is read where the planes are. A compressed one is streamed: planes that lie before those of the
/// last reading take it from its beginning once more. Its checksum is compared when its last plane is
/// read for the first time.
pub struct PlaneReader {
    /// Of a pair, the file with the voxels.
    path: PathBuf,
    header: Header,
    /// Position of the volume's first voxel among all.
    first: u64,
    /// Before the plane `next`; `None` where the file must be opened anew.
    source: Option<Source>,
    next: usize,
    held: Range<usize>,
    values: Vec<f32>,
    is_sound: bool,
}

impl PlaneReader {
    /// Opens a file; `volume` is the number of the volume, from 0, where there are several.
    ///
    /// # Errors
    /// As [`read_volume_at`](super::read_volume_at).
    pub fn open(path: impl AsRef<Path>, volume: Option<usize>) -> Result<Self> {
        let mut source = Source::open(path.as_ref())?;
        let header = Header::read(&mut source)?;
        let volume = volume.filter(|_| header.volumes() > 1);
        let (first, _) = Selection { volume, z: None }.resolve(&header, path.as_ref())?;
        let path = source.path().to_path_buf();
        let (source, values) = (Some(source), Vec::new());
        Ok(Self { path, header, first, source, next: 0, held: 0..0, values, is_sound: false })
    }

    /// What the file says of itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Lets go of the planes that are not in `z`, and appends those that are missing.
    fn hold(&mut self, z: Range<usize>) -> Result<()> {
        let [x, y, planes] = self.header.geometry.size;
        let plane = x * y;
        if !self.held.contains(&z.start) {
            self.values.clear();
            self.held = z.start..z.start;
        }
        self.values.drain(..(z.start - self.held.start) * plane);
        self.values.truncate(z.len() * plane);
        self.held = z.start..self.held.end.min(z.end);
        let missing = z.end - self.held.end;
        if missing == 0 {
            return Ok(());
        }
        if self.values.capacity() < z.len() * plane {
            let mut larger = reserve(&self.path, z.len() * plane)?;
            larger.append(&mut self.values);
            self.values = larger;
        }
        let mut source = match self.source.take() {
            Some(source) if self.next <= self.held.end => source,
            _ => Source::open_file(&self.path)?,
        };
        let (first, values) = (self.first + (self.held.end * plane) as u64, &mut self.values);
        for_each_chunk(&mut source, &self.header, first, missing * plane, |chunk| {
            values.extend(chunk.iter().map(|&v| v as f32));
        })?;
        (self.held, self.next) = (z.clone(), z.end);
        if z.end == planes && !self.is_sound {
            source.finish(self.header.vox_offset + self.header.data_bytes())?;
            self.is_sound = true;
        } else {
            self.source = Some(source);
        }
        Ok(())
    }
}

impl Planes for PlaneReader {
    fn geometry(&self) -> &Geometry {
        &self.header.geometry
    }

    fn read(&mut self, z: Range<usize>) -> Result<&[f32]> {
        check_planes(&z, self.header.geometry.size[2])?;
        if let Err(error) = self.hold(z) {
            // What is held may end anywhere.
            (self.held, self.source) = (0..0, None);
            self.values.clear();
            return Err(error);
        }
        Ok(&self.values)
    }
}
