//! The volumes of a series, read one after the other.

use std::path::{Path, PathBuf};

use ffdp_image::error::{Error, Result};
use ffdp_image::image::{Geometry, OneOf, Planes, Volume};
use ffdp_image::io::images::{Header, PlaneReader, header, read_volume_at};

/// A 4-D image: a file that is read volume by volume, or volumes in memory.
pub struct SeriesImage<'a> {
    grid: Geometry,
    count: usize,
    held: Held<'a>,
}

enum Held<'a> {
    File { path: PathBuf, header: Box<Header> },
    Memory(&'a [Volume]),
}

impl<'a> SeriesImage<'a> {
    /// Reads the header of a file.
    ///
    /// # Errors
    /// As [`header()`], and [`Error::InFile`] for a file of one volume.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let header = Box::new(header(path)?);
        let (grid, count) = (header.geometry.clone(), header.volumes());
        check_count(count).map_err(Error::in_file(path))?;
        Ok(Self { grid, count, held: Held::File { path: path.to_path_buf(), header } })
    }

    /// Volumes of one grid.
    ///
    /// # Errors
    /// [`Error::Invalid`] for fewer than two, [`Error::Grid`] where their grids differ.
    pub fn of(volumes: &'a [Volume]) -> Result<Self> {
        check_count(volumes.len())?;
        let grid = volumes[0].geometry.clone();
        for volume in volumes {
            grid.check_same_grid(&volume.geometry, "a volume of a series")?;
        }
        Ok(Self { grid, count: volumes.len(), held: Held::Memory(volumes) })
    }

    /// The grid of each volume.
    pub fn grid(&self) -> &Geometry {
        &self.grid
    }

    /// How many volumes there are: two at least.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The file, where it is one.
    pub fn path(&self) -> Option<&Path> {
        match &self.held {
            Held::File { path, .. } => Some(path),
            Held::Memory(_) => None,
        }
    }

    /// What is unusual about the file.
    pub fn warnings(&self) -> &[String] {
        match &self.held {
            Held::File { header, .. } => &header.warnings,
            Held::Memory(_) => &[],
        }
    }

    /// The volume with a number, from 0.
    ///
    /// # Errors
    /// Those of reading; [`Error::Invalid`] for a number beyond the last.
    pub fn volume(&self, k: usize) -> Result<Volume> {
        if k >= self.count {
            let what = format!("a volume of the series must be one of 0..={}", self.count - 1);
            return Err(Error::invalid(what, k, "choose a smaller number"));
        }
        match &self.held {
            Held::File { path, .. } => read_volume_at(path, k),
            Held::Memory(volumes) => Ok(volumes[k].clone()),
        }
    }

    /// All volumes in their order.
    ///
    /// # Errors
    /// Those of opening.
    pub fn read(&self) -> Result<VolumeReader<'_>> {
        let stack = match &self.held {
            Held::File { path, .. } => Some(PlaneReader::open_all(path)?),
            Held::Memory(_) => None,
        };
        Ok(VolumeReader { images: self, stack, next: 0 })
    }
}

fn check_count(count: usize) -> Result<()> {
    match count {
        0 | 1 => Err(Error::invalid(
            "a series must have at least two volumes",
            count,
            "register a single volume as a pair, with a fixed image",
        )),
        _ => Ok(()),
    }
}

/// The volumes of a series in their order.
pub struct VolumeReader<'a> {
    images: &'a SeriesImage<'a>,
    /// Of a file that stays open.
    stack: Option<PlaneReader>,
    next: usize,
}

impl Iterator for VolumeReader<'_> {
    type Item = Result<Volume>;

    fn next(&mut self) -> Option<Self::Item> {
        let k = self.next;
        if k >= self.images.count {
            return None;
        }
        self.next += 1;
        let Some(stack) = &mut self.stack else { return Some(self.images.volume(k)) };
        let grid = &self.images.grid;
        let mut one = OneOf::new(stack, grid, k);
        let values = one.read(0..grid.size[2]).map(<[f32]>::to_vec);
        Some(values.and_then(|values| Volume::new(values, grid.clone())))
    }
}

/// Why a volume cannot be registered; `None` where it can.
pub(super) fn unusable(volume: &Volume) -> Option<String> {
    let odd = volume.data.iter().filter(|value| !value.is_finite()).count();
    if odd > 0 {
        return Some(format!("{odd} of its voxels are NaN or infinite"));
    }
    let first = volume.data[0];
    let is_constant = volume.data.iter().all(|value| *value == first);
    is_constant.then(|| format!("every voxel is {first}: there is nothing to align"))
}
