//! A file that stays open and is read plane by plane: what a registration of images that do not fit
//! into memory reads.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::header::{Header, INTENT_LABEL};
use super::open::open;
use super::read::{Selection, for_each_chunk, read_floats, refuse_colours, refuse_vectors};
use super::reserve::reserve;
use super::source::Source;
use crate::error::{Error, Result};
use crate::image::{Geometry, MovedLabels, Planes, check_planes};

/// The planes of a 3-D image in a file, rounded to f32 with slope and intercept applied.
///
/// Holds the planes of the last reading; those that the next one shares with it are not read again. A plain
/// file is read where the planes are, and of an OME-Zarr the chunks that have them. A compressed one is streamed: planes that lie before those of the
/// last reading take it from its beginning once more. Its checksum is compared when its last plane is
/// read for the first time.
pub struct PlaneReader {
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
    /// What values stand for: themselves but where they are labels.
    labels: MovedLabels,
    /// Where planes have places of values in place of them: the values, ascending, without 0, whose place is 0.
    listed: Option<Vec<i64>>,
}

/// Integers up to this magnitude are exact in f64.
const EXACT_IN_F64: f64 = 9_007_199_254_740_992.0;
/// So many different values have places that are exact in f32.
const MOST_LISTED: usize = (1 << 24) - 2;

impl PlaneReader {
    /// Opens a file; `volume` is the number of the volume, from 0, where there are several.
    ///
    /// # Errors
    /// As [`read_volume_at`](super::read_volume_at).
    pub fn open(path: impl AsRef<Path>, volume: Option<usize>) -> Result<Self> {
        let (source, header) = open(path.as_ref())?;
        let volume = volume.filter(|_| header.volumes() > 1);
        let (first, _) = Selection { volume, z: None }.resolve(&header, path.as_ref())?;
        Ok(Self::new(path.as_ref(), source, header, first))
    }

    /// Opens a file of one or more volumes as one stack of planes: those of the first volume, then those of the next.
    ///
    /// # Errors
    /// As [`header()`](super::header()).
    pub fn open_all(path: impl AsRef<Path>) -> Result<Self> {
        let (source, mut header) = open(path.as_ref())?;
        refuse_vectors(&header, path.as_ref())?;
        let planes = header.geometry.size[2];
        header.geometry.size[2] = planes * header.volumes();
        Ok(Self::new(path.as_ref(), source, header, 0))
    }

    /// Opens a field whose components lie together: a row has three values a voxel.
    pub(super) fn open_interleaved(path: &Path) -> Result<Self> {
        let (source, mut header) = open(path)?;
        header.geometry.size[0] *= 3;
        Ok(Self::new(path, source, header, 0))
    }

    fn new(path: &Path, source: Source, header: Header, first: u64) -> Self {
        Self {
            path: path.to_path_buf(),
            header,
            first,
            source: Some(source),
            next: 0,
            held: 0..0,
            values: Vec::new(),
            is_sound: false,
            labels: MovedLabels::Themselves,
            listed: None,
        }
    }

    /// The values as they are stored, without slope and intercept.
    pub fn stored(mut self) -> Self {
        (self.header.slope, self.header.intercept) = (1.0, 0.0);
        self
    }

    /// Reads a label map that was just opened once, for its labels: all but 0, ascending. Planes then have the labels, or,
    /// where f32 would round one, their numbers ([`Planes::labels`]).
    ///
    /// # Errors
    /// Those of reading and of [`read_labels`](super::read_labels).
    pub fn with_labels(self) -> Result<(Self, Vec<i32>)> {
        let mut reader = self;
        refuse_colours(&reader.header, &reader.path)?;
        let mut source = match reader.source.take() {
            Some(source) => source,
            None => open(&reader.path)?.0,
        };
        let (geometry, mut ids) = (&reader.header.geometry, BTreeSet::new());
        let (mut last, mut position, mut count, mut offender) = (0, 0, 0, None);
        for_each_chunk(&mut source, &reader.header, reader.first, geometry.len(), |chunk| {
            for &value in chunk {
                let label = value as i32; // saturates, so that anything else compares unequal
                if f64::from(label) != value {
                    count += 1;
                    offender.get_or_insert((position, value));
                } else if label != last {
                    // Labels come in runs.
                    ids.insert(label);
                    last = label;
                }
                position += 1;
            }
        })?;
        source.finish(reader.header.vox_offset + reader.header.data_bytes())?;
        if let Some((offset, value)) = offender {
            let first = geometry.index_of(offset);
            return Err(Error::NotLabels { path: reader.path, count, first, value });
        }
        ids.remove(&0);
        let ids: Vec<i32> = ids.into_iter().collect();
        reader.labels = MovedLabels::of(&ids)?;
        reader.is_sound = true;
        Ok((reader, ids))
    }

    /// Reads an image of integers that was just opened once, for its values, exact up to 2^53 in magnitude. Planes then have
    /// the places of values in the list that is returned, whose first is 0. `None` where a value is no such integer, or
    /// they are too many.
    ///
    /// # Errors
    /// Those of reading; [`Error::NotLabels`] for a value that is no such integer where the header says labels, or where
    /// others are integers that f32 would round.
    pub fn with_values(self) -> Result<Option<(Self, Vec<i64>)>> {
        let mut reader = self;
        let mut source = match reader.source.take() {
            Some(source) => source,
            None => open(&reader.path)?.0,
        };
        let (count, mut values) = (reader.header.geometry.len(), BTreeSet::new());
        let (mut last, mut position, mut odd, mut offender) = (0.0, 0, 0, None);
        let mut are_labels = reader.header.intent_code == INTENT_LABEL;
        for_each_chunk(&mut source, &reader.header, reader.first, count, |chunk| {
            for &value in chunk {
                position += 1;
                // Values come in runs; NaN is none.
                if value == last {
                    continue;
                }
                if value.fract() != 0.0 || value.abs() >= EXACT_IN_F64 {
                    odd += 1;
                    offender.get_or_insert((position - 1, value));
                    continue;
                }
                are_labels = are_labels || f64::from(value as f32) != value;
                if values.len() <= MOST_LISTED {
                    values.insert(value as i64);
                }
                last = value;
            }
        })?;
        source.finish(reader.header.vox_offset + reader.header.data_bytes())?;
        match offender {
            Some((offset, value)) if are_labels => {
                let first = reader.header.geometry.index_of(offset);
                return Err(Error::NotLabels { path: reader.path, count: odd, first, value });
            }
            None if values.len() <= MOST_LISTED => {}
            _ => return Ok(None),
        }
        values.remove(&0);
        let values: Vec<i64> = values.into_iter().collect();
        let all = [&[0], &values[..]].concat();
        reader.listed = Some(values);
        reader.is_sound = true;
        Ok(Some((reader, all)))
    }

    /// What the file says of itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Releases the planes that are not in `z`, and appends those that are missing.
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
            Some(source) if source.goes_back() || self.next <= self.held.end => source,
            _ => open(&self.path)?.0,
        };
        let (first, values) = (self.first + (self.held.end * plane) as u64, &mut self.values);
        let of_chunks = |source: &mut Source, place: &dyn Fn(f64) -> f32, values: &mut Vec<f32>| {
            for_each_chunk(source, &self.header, first, missing * plane, |chunk| {
                values.extend(chunk.iter().map(|&value| place(value)));
            })
        };
        match (&self.listed, &self.labels) {
            (Some(listed), _) => {
                let place = |value: f64| match value == 0.0 {
                    true => 0.0,
                    false => {
                        let place = listed.binary_search(&(value as i64));
                        (place.expect("every value was listed") + 1) as f32
                    }
                };
                of_chunks(&mut source, &place, values)?;
            }
            (None, MovedLabels::Themselves) => {
                read_floats(&mut source, &self.header, first, missing * plane, values)?;
            }
            (None, numbered) => {
                of_chunks(&mut source, &|label| numbered.number(label as i32), values)?;
            }
        }
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

    fn labels(&self) -> &MovedLabels {
        &self.labels
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
