//! The voxels of an OME-Zarr as one stream, x fastest, a layer of chunks unpacked at a time on all cores; where there are
//! many, while the layer before is used.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crc32c::crc32c;
use rayon::prelude::*;

use super::super::header::{Format, Header, INTENT_LABEL, INTENT_VECTOR, Vectors};
use super::super::source::Decoded;
use super::array::{Array, Shard};
use super::codecs::{decode, strides};
use super::ome::{Kind, Multiscale};
use super::store;
use crate::error::{Error, Result};
use crate::io::check_memory;
use crate::io::zarr_name::{Choice, address, parse};

/// Unpacked planes that are held, at most, unless that is less than one: of deep chunks, a part of their depth.
const HELD_BYTES: usize = 1 << 29;
/// Chunks that are unpacked in parallel, per core: enough that cores do not wait for the last one.
const CHUNKS_PER_CORE: usize = 4;

/// Cores from which on the next layer is unpacked while one is used.
const MANY_CORES: usize = 4;

/// A chunk: its file, and position and length in it where that is a shard.
struct Located {
    file: PathBuf,
    part: Option<(u64, u64)>,
}

/// An open level of an image.
pub struct Voxels {
    chunks: Arc<Chunks>,
    held: Band,
    /// The next one, where planes were asked for one after the other.
    ahead: Option<Ahead>,
    /// Memory that was held before.
    empty: Vec<u8>,
}

/// A band that a thread unpacks: its volume and first plane.
struct Ahead {
    place: (usize, usize),
    thread: JoinHandle<Result<Band>>,
}

/// Where the voxels are.
struct Chunks {
    path: PathBuf,
    array: Array,
    /// The axes of x, y and z in the array.
    space: [Option<usize>; 3],
    /// The other axes, those with one index chosen, and those over which volumes run, the first fastest.
    chosen: Vec<(usize, usize)>,
    volumes: Vec<usize>,
    /// Where the chunks of shards lie in their files.
    indices: Mutex<HashMap<Vec<usize>, Index>>,
}

/// Planes of one volume.
#[derive(Default)]
struct Band {
    volume: usize,
    planes: Range<usize>,
    bytes: Vec<u8>,
}

/// Position and length of the chunks of a shard; `None` for a shard that is not there.
type Index = Option<Arc<Vec<Option<(u64, u64)>>>>;

/// Opens the image, level, channel and time that a name means.
pub fn open(path: &Path) -> Result<(Voxels, Header)> {
    let (folder, choice) = parse(path)?;
    let image = Multiscale::open(&folder)?;
    let refuse = |what: String, value: String, fix: &str| Error::file(&folder, what, value, fix);
    if choice.level >= image.levels() {
        let what = format!("the level after # must be less than {}", image.levels());
        return Err(refuse(what, choice.level.to_string(), "choose a finer level"));
    }
    let array = Array::open(&image.array(choice.level))?;
    if array.shape.len() != image.axes.len() {
        let what = format!("the array must have the {} axes of the image", image.axes.len());
        let fix = "repair the metadata, or convert the image anew";
        return Err(refuse(what, format!("{:?}", array.shape), fix));
    }
    let missing = array.check_chunks()?;
    let (geometry, warnings) = image.geometry(choice.level, &array.shape)?;
    let mut chunks = Chunks {
        path: path.to_path_buf(),
        space: [0, 1, 2].map(|j| image.axis(Kind::Space(j))),
        chosen: Vec::new(),
        volumes: Vec::new(),
        indices: Mutex::default(),
        array,
    };
    let mut dims = geometry.size.to_vec();
    let is_displacement = chunks.choose(&image, choice, &mut dims)?;
    let mut header =
        Header::new(Format::named(image.version), chunks.array.data_type, dims, geometry);
    header.time_step_seconds = match header.volumes() {
        1 => 0.0,
        _ => image.time_step_seconds(choice.level),
    };
    header.intent_code = match (is_displacement, image.is_labels) {
        (true, _) => INTENT_VECTOR,
        (false, true) => INTENT_LABEL,
        _ => 0,
    };
    header.vectors = Vectors::AlongAxes(image.components());
    header.warnings = [image.warnings, warnings, missing.into_iter().collect()].concat();
    Ok((Voxels::new(chunks), header))
}

/// The files of the level that a name means, in a fixed order: the metadata, then the chunks that are there. Behind an
/// address, the metadata alone.
pub fn files(path: &Path) -> Result<Vec<PathBuf>> {
    let (folder, choice) = parse(path)?;
    let image = Multiscale::open(&folder)?;
    let mut files = vec![image.file.clone()];
    if address(path).is_some() {
        // Nothing lists what a server has.
        return Ok(files);
    }
    if choice.level < image.levels() {
        collect(&image.array(choice.level), &mut files)?;
    }
    Ok(files)
}

/// All files below a folder, in the order of their names.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let failed = |source| Error::io(folder, "read", source);
    let entries = std::fs::read_dir(folder).map_err(failed)?;
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>().map_err(failed)?;
    paths.sort();
    for path in paths {
        match path.is_dir() {
            true => collect(&path, files)?,
            false => files.push(path),
        }
    }
    Ok(())
}

impl Decoded for Voxels {
    fn bytes_at(&mut self, position: u64, most: usize) -> Result<&[u8]> {
        let (plane, planes) = (self.chunks.plane_bytes(), self.chunks.size()[2]);
        let position = position as usize;
        let (volume, z) = (position / plane / planes, position / plane % planes);
        if self.held.volume != volume || !self.held.planes.contains(&z) {
            self.hold(volume, z)?;
        }
        let start = position - (volume * planes + self.held.planes.start) * plane;
        let count = most.min(self.held.bytes.len() - start);
        Ok(&self.held.bytes[start..start + count])
    }
}

impl Voxels {
    fn new(chunks: Chunks) -> Self {
        let (chunks, held) = (Arc::new(chunks), Band::default());
        Self { chunks, held, ahead: None, empty: Vec::new() }
    }

    /// Unpacks the planes from `z` to the end of their layer of chunks, and has the next layer unpacked where these follow
    /// those before.
    fn hold(&mut self, volume: usize, z: usize) -> Result<()> {
        let last = std::mem::take(&mut self.held);
        let follows = (last.volume, last.planes.end) == (volume, z);
        self.held = match self.ahead.take() {
            Some(Ahead { place, thread }) if place == (volume, z) => {
                self.empty = last.bytes;
                thread.join().unwrap_or_else(|panic| resume_unwind(panic))?
            }
            _ => self.chunks.band(volume, z, last.bytes)?,
        };
        let next = self.held.planes.end;
        let is_worth_it = follows && rayon::current_num_threads() >= MANY_CORES;
        if is_worth_it && next < self.chunks.size()[2] {
            let (chunks, memory) = (self.chunks.clone(), std::mem::take(&mut self.empty));
            let work = move || chunks.band(volume, next, memory);
            let thread = thread::Builder::new().name("zarr".into()).spawn(work).ok();
            self.ahead = thread.map(|thread| Ahead { place: (volume, next), thread });
        }
        Ok(())
    }
}

impl Chunks {
    /// Takes the chosen channel and time, or all of them as volumes, time fastest; whether components of
    /// displacements are among the axes.
    fn choose(
        &mut self,
        image: &Multiscale,
        choice: Choice,
        dims: &mut Vec<usize>,
    ) -> Result<bool> {
        let mut is_displacement = false;
        let asked = [
            (Kind::Time, choice.time, "t"),
            (Kind::Channel, choice.channel, "c"),
            (Kind::Displacement, None, ""),
        ];
        for (kind, chosen, name) in asked {
            let (axis, chosen) = match (image.axis(kind), chosen) {
                (None, None | Some(0)) => continue,
                (None, Some(_)) => (None, chosen),
                (Some(axis), chosen) => (Some(axis), chosen),
            };
            let size = axis.map_or(1, |axis| self.array.shape[axis]);
            match (axis, chosen) {
                (_, Some(k)) if k >= size => {
                    let what = format!("{name}= after # must be less than {size}");
                    return Err(Error::file(&self.path, what, k, "choose one that is there"));
                }
                (Some(axis), Some(k)) => self.chosen.push((axis, k)),
                (Some(axis), None) => {
                    if kind == Kind::Displacement {
                        is_displacement = true;
                        // As NIfTI has it: no time, then the components.
                        dims.resize(4, 1);
                    }
                    if size > 1 || is_displacement {
                        dims.push(size);
                    }
                    self.volumes.push(axis);
                }
                (None, _) => {}
            }
        }
        Ok(is_displacement)
    }

    fn size(&self) -> [usize; 3] {
        self.space.map(|axis| axis.map_or(1, |axis| self.array.shape[axis]))
    }

    fn plane_bytes(&self) -> usize {
        let [x, y, _] = self.size();
        x * y * self.array.data_type.bytes()
    }

    /// The index along every axis of the array of the first voxel of a volume.
    fn corner(&self, mut volume: usize) -> Vec<usize> {
        let mut corner = vec![0; self.array.shape.len()];
        self.chosen.iter().for_each(|(axis, k)| corner[*axis] = *k);
        for axis in &self.volumes {
            corner[*axis] = volume % self.array.shape[*axis];
            volume /= self.array.shape[*axis];
        }
        corner
    }

    /// The planes from `z` to the end of their layer of chunks, unpacked, in memory that was held before.
    fn band(&self, volume: usize, z: usize, memory: Vec<u8>) -> Result<Band> {
        let [_, _, planes] = self.size();
        let depth = self.space[2].map_or(1, |axis| self.array.chunk[axis]);
        let plane = self.plane_bytes();
        let most = (HELD_BYTES / plane).max(1);
        let end = (z / depth * depth).saturating_add(depth).min(planes).min(z + most);
        let bytes = plane * (end - z);
        let mut values = memory;
        if values.capacity() < bytes {
            values = Vec::new();
            let chunk = self.array.chunk_bytes();
            check_memory(&format!("reading {}", self.path.display()), (bytes + chunk) as u64)?;
        }
        values.truncate(bytes);
        values.par_chunks_mut(plane).for_each(|plane| plane.fill(0));
        values.resize(bytes, 0);
        if self.array.fill.iter().any(|byte| *byte != 0) {
            let fill = &self.array.fill;
            values.par_chunks_mut(plane).for_each(|plane| {
                plane.chunks_exact_mut(fill.len()).for_each(|value| value.copy_from_slice(fill));
            });
        }
        self.fill(self.corner(volume), z..end, &mut values)?;
        Ok(Band { volume, planes: z..end, bytes: values })
    }

    /// Copies the chunks of some planes into them.
    fn fill(&self, corner: Vec<usize>, planes: Range<usize>, values: &mut [u8]) -> Result<()> {
        let [nx, ny, _] = self.size();
        let steps = |j: usize, n: usize| {
            let chunk = self.space[j].map_or(1, |axis| self.array.chunk[axis]);
            (0..n.div_ceil(chunk)).map(move |k| (k, k * chunk))
        };
        let mut places = Vec::new();
        for (ky, y) in steps(1, ny) {
            for (kx, x) in steps(0, nx) {
                let mut at: Vec<usize> = corner
                    .iter()
                    .zip(&self.array.chunk)
                    .map(|(index, chunk)| index / chunk)
                    .collect();
                let depth = self.space[2].map_or(1, |axis| self.array.chunk[axis]);
                for (axis, k) in self.space.iter().zip([kx, ky, planes.start / depth]) {
                    axis.iter().for_each(|axis| at[*axis] = k);
                }
                places.push((at, [x, y]));
            }
        }
        let many = CHUNKS_PER_CORE * rayon::current_num_threads();
        // No more in parallel than fits where chunks are large.
        let many = many.min(HELD_BYTES / self.array.chunk_bytes()).max(1);
        for places in places.chunks(many) {
            let located: Vec<_> =
                places.iter().map(|(at, _)| self.located(at)).collect::<Result<_>>()?;
            let unpacked: Vec<Option<Vec<u8>>> =
                located.par_iter().map(|place| self.chunk(place)).collect::<Result<_>>()?;
            let plane_bytes = self.plane_bytes();
            values.par_chunks_mut(plane_bytes).enumerate().for_each(|(i, plane)| {
                for ((_, start), chunk) in places.iter().zip(&unpacked) {
                    if let Some(chunk) = chunk {
                        self.copy(chunk, &corner, planes.start + i, *start, plane);
                    }
                }
            });
        }
        Ok(())
    }

    /// The part of an unpacked chunk that lies in one plane.
    fn copy(&self, chunk: &[u8], corner: &[usize], z: usize, start: [usize; 2], plane: &mut [u8]) {
        let width = self.array.data_type.bytes();
        let steps = strides(&self.array.codecs, &self.array.chunk);
        let [nx, ny, _] = self.size();
        let of = |j: usize| self.space[j].map_or((1, 0), |a| (self.array.chunk[a], steps[a]));
        let ((cx, dx), (cy, dy), (cz, dz)) = (of(0), of(1), of(2));
        let others = (0..corner.len()).filter(|axis| !self.space.contains(&Some(*axis)));
        let first: usize = others.map(|a| corner[a] % self.array.chunk[a] * steps[a]).sum();
        let first = first + z % cz * dz;
        let columns = cx.min(nx - start[0]);
        for y in 0..cy.min(ny - start[1]) {
            let from = (first + y * dy) * width;
            let to = ((start[1] + y) * nx + start[0]) * width;
            let row = &mut plane[to..to + columns * width];
            if dx == 1 || columns == 1 {
                row.copy_from_slice(&chunk[from..from + columns * width]);
            } else {
                for (x, value) in row.chunks_exact_mut(width).enumerate() {
                    value.copy_from_slice(&chunk[from + x * dx * width..][..width]);
                }
            }
        }
    }

    /// The shard of a chunk, and the chunk's place in it.
    fn in_shard(&self, shard: &Shard, at: &[usize]) -> (Vec<usize>, usize) {
        let mut place = 0;
        let mut outer = Vec::with_capacity(at.len());
        for (axis, at) in at.iter().enumerate() {
            let count = shard.shape[axis] / self.array.chunk[axis];
            outer.push(at / count);
            place = place * count + at % count;
        }
        (outer, place)
    }

    /// Where a chunk lies; `None` for one that is not there. The index of a shard is read once for its layer.
    fn located(&self, at: &[usize]) -> Result<Option<Located>> {
        let Some(shard) = &self.array.shard else {
            return Ok(Some(Located { file: self.array.file(at), part: None }));
        };
        let (outer, place) = self.in_shard(shard, at);
        let file = self.array.file(&outer);
        let mut indices = self.indices.lock().unwrap_or_else(PoisonError::into_inner);
        let index = match indices.get(&outer) {
            Some(known) => known.clone(),
            None => {
                let index = read_index(&file, shard, &self.array.chunk);
                let index = index.map_err(|reason| failed(&file, reason))?;
                // Of those before only the shards of this layer are needed again, and of the next one, which may be under way.
                if let Some(axis) = self.space[2] {
                    let layer = outer[axis];
                    indices.retain(|outer, _| outer[axis].abs_diff(layer) <= 1);
                }
                indices.insert(outer, index.clone());
                index
            }
        };
        Ok(index.and_then(|index| index[place]).map(|part| Located { file, part: Some(part) }))
    }

    /// A chunk, unpacked; `None` for one that is not there, whose voxels have the fill value.
    fn chunk(&self, place: &Option<Located>) -> Result<Option<Vec<u8>>> {
        let array = &self.array;
        let Some(Located { file, part }) = place else { return Ok(None) };
        let packed = match part {
            None => store::read(file),
            Some((start, length)) => store::read_part(file, *start, *length).map(Some),
        };
        let (bytes, width) = array.stored_bytes();
        let unpacked = packed.and_then(|packed| {
            let unpack = |packed| {
                decode(&array.codecs, packed, bytes, width).map(|chunk| array.widened(chunk))
            };
            packed.map(unpack).transpose()
        });
        unpacked.map_err(|reason| failed(file, reason))
    }
}

fn failed(file: &Path, reason: io::Error) -> Error {
    match reason.kind() {
        ErrorKind::Other
        | ErrorKind::InvalidData
        | ErrorKind::InvalidInput
        | ErrorKind::UnexpectedEof => {
            let value = format!("\"{reason}\"");
            let fix = "it is damaged: copy or download it again";
            Error::file(file, "a chunk must be sound and complete", value, fix)
        }
        _ => Error::io(file, "read", reason),
    }
}

fn read_index(file: &Path, shard: &Shard, chunk: &[usize]) -> io::Result<Index> {
    let count: usize = shard.shape.iter().zip(chunk).map(|(shard, chunk)| shard / chunk).product();
    let length = 16 * count as u64 + if shard.index_has_checksum { 4 } else { 0 };
    let Some(there) = store::length(file)? else { return Ok(None) };
    let start = match shard.index_at_end {
        true => {
            there.checked_sub(length).ok_or_else(|| io::Error::other("the shard is truncated"))?
        }
        false => 0,
    };
    let bytes = store::read_part(file, start, length)?;
    let (numbers, sum) = bytes.split_at(16 * count);
    if shard.index_has_checksum && crc32c(numbers).to_le_bytes() != sum {
        return Err(io::Error::other("the checksum of the shard's index does not match"));
    }
    let number = |bytes: &[u8]| u64::from_le_bytes(std::array::from_fn(|i| bytes[i]));
    let entry = |bytes: &[u8]| match (number(bytes), number(&bytes[8..])) {
        (u64::MAX, u64::MAX) => None,
        place => Some(place),
    };
    Ok(Some(Arc::new(numbers.chunks_exact(16).map(entry).collect())))
}
