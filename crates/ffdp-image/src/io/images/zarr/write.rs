//! Writing an OME-Zarr 0.5, or 0.6 for displacements, plane by plane: a layer of shards is collected, packed and written, and the levels of the
//! pyramid follow it.
//!
//! A shard is written once, from the whole of what it holds. One thread packs and writes layers, on all cores, while
//! the next planes come: both take as long where images are large. All of it appears under a temporary name
//! next to the final one, which the folder gets when it is complete: what is killed leaves nothing that reads as an
//! image.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use crc32c::crc32c;
use rayon::prelude::*;
use serde_json::{Value, json};

use super::super::data_type::DataType;
use super::super::format::ImageWriter;
use super::super::new_image::{Kind, NewImage};
use super::array::type_name;
use super::blosc;
use super::ome::{OWN, Own, along, orientation};
use super::pyramid::{Pooling, halved, pooled};
use crate::error::{Error, Result};
use crate::image::Matrix3;
use crate::io::atomic::AtomicFolder;

/// Voxels of a chunk along x, y, z: few planes, so that few are held.
const CHUNK: [usize; 3] = [128, 128, 32];
/// Chunks of a shard along x and y; one along z.
const CHUNKS_PER_SHARD: usize = 8;
/// The pyramid ends with a level that is not larger.
const SMALLEST_LEVEL: usize = 64;

/// An image that grows by bytes, x fastest, volume after volume.
pub struct ZarrSink {
    path: PathBuf,
    /// Before the folder: what is dropped first has written what it was given.
    writer: Writer,
    folder: AtomicFolder,
    finest: Level,
    metadata: Value,
}

/// The array of a level.
struct Form {
    folder: PathBuf,
    size: [usize; 3],
    volumes: Option<usize>,
    data_type: DataType,
    chunk: [usize; 3],
    /// Along x and y.
    shard: [usize; 2],
}

/// Planes that are complete: the last of them is the one before `planes`, of all volumes.
struct Layer {
    form: Arc<Form>,
    bytes: Vec<u8>,
    planes: usize,
}

/// The thread that packs and writes layers.
struct Writer {
    layers: Option<SyncSender<Layer>>,
    /// Memory of those that are written.
    written: Receiver<Vec<u8>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Writer {
    fn new() -> io::Result<Self> {
        // One is written, and no other waits.
        let (layers, given) = sync_channel::<Layer>(0);
        let (empty, written) = channel();
        let work = move || {
            given.iter().try_for_each(|layer| {
                layer.write()?;
                // Nobody takes the last ones.
                let _ = empty.send(layer.bytes);
                Ok(())
            })
        };
        let thread = std::thread::Builder::new().name("zarr".into()).spawn(work)?;
        Ok(Self { layers: Some(layers), written, thread: Some(thread) })
    }

    /// Memory for so many bytes: that of a layer before, where it is as much.
    fn empty(&self, bytes: usize) -> Vec<u8> {
        match self.written.try_iter().find(|memory| memory.capacity() == bytes) {
            Some(mut memory) => {
                memory.clear();
                memory
            }
            None => Vec::with_capacity(bytes),
        }
    }

    /// Hands a layer on when the one before is written.
    fn give(&mut self, layer: Layer) -> io::Result<()> {
        let layers = self.layers.as_ref().ok_or_else(|| io::Error::other("writing has ended"))?;
        match layers.send(layer) {
            Ok(()) => Ok(()),
            // It has ended with an error, which it reports once.
            Err(_) => {
                Err(self.end().err().unwrap_or_else(|| io::Error::other("writing has ended")))
            }
        }
    }

    /// Waits until all is written.
    fn end(&mut self) -> io::Result<()> {
        drop(self.layers.take());
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(io::Error::other("the thread that writes has panicked")),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Whoever wants to know has asked.
        let _ = self.end();
    }
}

/// One level, and those below it.
struct Level {
    form: Arc<Form>,
    pooling: Pooling,
    /// The layer that is collected, and how many planes came before it, of all volumes.
    layer: Vec<u8>,
    planes: usize,
    next: Option<Box<Level>>,
}

impl ZarrSink {
    /// Begins an image.
    ///
    /// # Errors
    /// [`Error::Io`] when the folder cannot be made, [`Error::Invalid`] for scaled values.
    pub fn create(path: &Path, image: &NewImage) -> Result<Self> {
        if image.scale != [1.0, 0.0] {
            let what = "an OME-Zarr holds values without slope and intercept";
            return Err(Error::invalid(what, image.scale, "write a NIfTI file, or floats"));
        }
        let folder = AtomicFolder::create(path)?;
        let pooling = match image.kind {
            Kind::Labels => Pooling::Most,
            _ => Pooling::Mean,
        };
        let mut sizes = vec![image.geometry.size];
        while sizes[sizes.len() - 1].iter().any(|n| *n > SMALLEST_LEVEL) {
            sizes.push(halved(sizes[sizes.len() - 1]));
        }
        let is_one = image.volumes == 1 && image.kind != Kind::Displacement;
        let volumes = (!is_one).then_some(image.volumes);
        let mut next = None;
        for (k, size) in sizes.iter().enumerate().rev() {
            let chunk: [usize; 3] = std::array::from_fn(|i| CHUNK[i].min(size[i]));
            let shard = [0, 1].map(|i| chunk[i] * CHUNKS_PER_SHARD.min(size[i].div_ceil(chunk[i])));
            let form = Form {
                folder: folder.path().join(k.to_string()),
                size: *size,
                volumes,
                data_type: image.data_type,
                chunk,
                shard,
            };
            form.begin().map_err(|source| Error::io(path, "create", source))?;
            next = Some(Box::new(Level {
                form: Arc::new(form),
                pooling,
                layer: Vec::new(),
                planes: 0,
                next,
            }));
        }
        let finest = *next.expect("there is at least one level");
        let writer = Writer::new().map_err(|source| Error::io(path, "create", source))?;
        let metadata = group(image, sizes.len());
        let path = path.to_path_buf();
        Ok(Self { path, writer, folder, finest, metadata })
    }
}

impl ImageWriter for ZarrSink {
    /// Writes what says that it is an image, and puts it in place.
    fn commit(mut self: Box<Self>) -> Result<()> {
        let ended = self.writer.end();
        let failed = |source| Error::io(&self.path, "write", source);
        ended.map_err(failed)?;
        write_json(&self.folder.path().join("zarr.json"), &self.metadata).map_err(failed)?;
        self.folder.commit()
    }
}

impl Write for ZarrSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.finest.take(bytes, &mut self.writer)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Form {
    fn plane_bytes(&self) -> usize {
        self.size[0] * self.size[1] * self.data_type.bytes()
    }

    /// The array's folder and metadata.
    fn begin(&self) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let axes = |inner: [usize; 3], volumes: usize| {
            let [x, y, z] = inner;
            let all = self.volumes.map(|_| volumes).into_iter().chain([z, y, x]);
            all.collect::<Vec<usize>>()
        };
        let [x, y] = self.shard;
        let width = self.data_type.bytes();
        let mut bytes = json!({"name": "bytes"});
        if width > 1 {
            bytes["configuration"] = json!({"endian": "little"});
        }
        let blosc = json!({"name": "blosc", "configuration": {
            "cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": width, "blocksize": 0}});
        let mut names = vec!["z", "y", "x"];
        if self.volumes.is_some() {
            names.insert(0, "c");
        }
        let array = json!({
            "zarr_format": 3,
            "node_type": "array",
            "shape": axes(self.size, self.volumes.unwrap_or(1)),
            "data_type": type_name(self.data_type),
            "chunk_grid": {"name": "regular", "configuration": {
                "chunk_shape": axes([x, y, self.chunk[2]], 1)}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 0,
            "codecs": [{"name": "sharding_indexed", "configuration": {
                "chunk_shape": axes(self.chunk, 1),
                "codecs": [bytes, blosc],
                "index_codecs": [
                    {"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
                "index_location": "end"}}],
            "dimension_names": names,
            "attributes": {}
        });
        write_json(&self.folder.join("zarr.json"), &array)
    }
}

impl Level {
    /// Takes what comes next; hands every two planes of a volume on to the next level, and layers to the writer.
    fn take(&mut self, mut bytes: &[u8], writer: &mut Writer) -> io::Result<()> {
        let (plane, [x, y, all]) = (self.form.plane_bytes(), self.form.size);
        while !bytes.is_empty() {
            // Of this layer, which may be the last one of a volume.
            let z = self.planes % all;
            let depth = self.form.chunk[2].min(all - z);
            if self.layer.capacity() == 0 {
                self.layer = writer.empty(plane * self.form.chunk[2]);
            }
            let before = self.layer.len() / plane;
            let (now, later) = bytes.split_at(bytes.len().min(depth * plane - self.layer.len()));
            self.layer.extend_from_slice(now);
            bytes = later;
            let complete = self.layer.len() / plane;
            if let Some(next) = &mut self.next {
                for k in before..complete {
                    // A layer has an even number of planes, or is the last one.
                    let is_last = z + k + 1 == all;
                    if k % 2 == 1 || is_last {
                        let pair = self.layer[k / 2 * 2 * plane..(k + 1) * plane].chunks(plane);
                        let pair: Vec<&[u8]> = pair.collect();
                        let (data_type, pooling) = (self.form.data_type, self.pooling);
                        next.take(&pooled(&pair, [x, y], data_type, pooling), writer)?;
                    }
                }
            }
            if complete == depth {
                self.planes += depth;
                let bytes = std::mem::take(&mut self.layer);
                writer.give(Layer { form: self.form.clone(), bytes, planes: self.planes })?;
            }
        }
        Ok(())
    }
}

impl Layer {
    /// Packs and writes the shards, which are one layer of one volume.
    fn write(&self) -> io::Result<()> {
        let Form { folder, size, volumes, chunk, shard, .. } = &*self.form;
        let (volume, z) = ((self.planes - 1) / size[2], (self.planes - 1) % size[2]);
        let layer = z / chunk[2];
        let mut folder = folder.join("c");
        if volumes.is_some() {
            folder.push(volume.to_string());
        }
        folder.push(layer.to_string());
        let [nx, ny] = [0, 1].map(|i| size[i].div_ceil(shard[i]));
        // The disk is waited for together.
        (0..nx * ny).into_par_iter().try_for_each(|k| {
            let (sx, sy) = (k % nx, k / nx);
            // The first is always there, empty or not: an array without any is refused, as one whose files are lost.
            let is_first = (volume, layer, k) == (0, 0, 0);
            let Some(shard) = self.shard(sx, sy).or_else(|| is_first.then(|| self.empty_shard()))
            else {
                return Ok(());
            };
            let folder = folder.join(sy.to_string());
            fs::create_dir_all(&folder)?;
            let mut file = File::create(folder.join(sx.to_string()))?;
            shard.iter().try_for_each(|part| file.write_all(part))?;
            file.sync_all()
        })
    }

    /// The chunks of a shard, packed, and their index; none where all voxels are 0.
    fn shard(&self, sx: usize, sy: usize) -> Option<Vec<Vec<u8>>> {
        let chunks = [0, 1].map(|i| self.form.shard[i] / self.form.chunk[i]);
        let packed: Vec<Option<Vec<u8>>> = (0..chunks[0] * chunks[1])
            .into_par_iter()
            .map(|k| {
                let x = sx * self.form.shard[0] + k % chunks[0] * self.form.chunk[0];
                let y = sy * self.form.shard[1] + k / chunks[0] * self.form.chunk[1];
                let chunk = self.chunk_at(x, y)?;
                Some(blosc::pack(&chunk, self.form.data_type.bytes()))
            })
            .collect();
        if packed.iter().all(Option::is_none) {
            return None;
        }
        Some(with_index(packed))
    }

    /// A shard of no chunks.
    fn empty_shard(&self) -> Vec<Vec<u8>> {
        let chunks = [0, 1].map(|i| self.form.shard[i] / self.form.chunk[i]);
        with_index(vec![None; chunks[0] * chunks[1]])
    }

    /// The voxels of a chunk, 0 where it leaves the array; none where all are 0, as the fill value says.
    fn chunk_at(&self, x: usize, y: usize) -> Option<Vec<u8>> {
        let [nx, ny, _] = self.form.size;
        if x >= nx || y >= ny {
            return None;
        }
        let width = self.form.data_type.bytes();
        let [cx, cy, cz] = self.form.chunk;
        let mut chunk = vec![0; cx * cy * cz * width];
        let columns = cx.min(nx - x) * width;
        let mut is_empty = true;
        for (z, plane) in self.bytes.chunks_exact(self.form.plane_bytes()).enumerate() {
            for row in 0..cy.min(ny - y) {
                let from = &plane[((y + row) * nx + x) * width..][..columns];
                is_empty = is_empty && from.iter().all(|byte| *byte == 0);
                chunk[(z * cy + row) * cx * width..][..columns].copy_from_slice(from);
            }
        }
        (!is_empty).then_some(chunk)
    }
}

/// Packed chunks, and after them where each of them lies.
fn with_index(packed: Vec<Option<Vec<u8>>>) -> Vec<Vec<u8>> {
    let (mut index, mut position) = (Vec::new(), 0u64);
    for chunk in &packed {
        let (start, length) = match chunk {
            None => (u64::MAX, u64::MAX),
            Some(chunk) => (position, chunk.len() as u64),
        };
        index.extend_from_slice(&start.to_le_bytes());
        index.extend_from_slice(&length.to_le_bytes());
        position += chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
    }
    index.extend_from_slice(&crc32c(&index).to_le_bytes());
    packed.into_iter().flatten().chain([index]).collect()
}

/// The metadata of the image.
fn group(image: &NewImage, levels: usize) -> Value {
    let grid = &image.geometry;
    let space: Vec<Value> = (0..3).rev().map(|j| axis(&grid.direction, j)).collect();
    let mut axes = space.clone();
    let is_displacement = image.kind == Kind::Displacement;
    let mut first = Vec::new();
    if image.volumes > 1 || is_displacement {
        let time = image.time_step_seconds;
        let (axis, step) = match image.kind {
            Kind::Displacement => {
                (json!({"name": "c", "type": "displacement", "discrete": true}), 1.0)
            }
            _ if time > 0.0 => (json!({"name": "t", "type": "time", "unit": "second"}), time),
            _ => (json!({"name": "c", "type": "channel"}), 1.0),
        };
        axes.insert(0, axis);
        first.push(step);
    }
    let dataset = |level: usize| {
        let factor = f64::from(1u32 << level);
        let of = |number: &dyn Fn(usize) -> f64| (0..3).rev().map(number).collect::<Vec<f64>>();
        let scale = of(&|j| grid.spacing_mm[j] * factor);
        // The centre of the first block.
        let start = of(&|j| {
            along(&grid.direction, &grid.origin_mm, j) + grid.spacing_mm[j] * (factor - 1.0) / 2.0
        });
        let still = vec![0.0; first.len()];
        let (scale, start) = ([first.clone(), scale].concat(), [still, start].concat());
        let (path, steps) = (
            level.to_string(),
            json!([
            {"type": "scale", "scale": scale},
            {"type": "translation", "translation": start}]),
        );
        match is_displacement {
            true => json!({"path": path, "coordinateTransformations": [{
                "type": "sequence", "transformations": steps,
                "input": {"path": path}, "output": {"name": FIELD}}]}),
            false => json!({"path": path, "coordinateTransformations": steps}),
        }
    };
    let datasets: Vec<Value> = (0..levels).map(dataset).collect();
    let mut ome = match is_displacement {
        true => json!({"version": "0.6", "multiscales": [displacement(axes, space, datasets)]}),
        false => json!({"version": "0.5", "multiscales": [
            {"name": "image", "axes": axes, "datasets": datasets}]}),
    };
    if image.kind == Kind::Labels {
        ome["image-label"] = json!({"version": "0.5"});
    }
    let own = serde_json::to_value(Own::of(grid)).expect("texts");
    json!({"zarr_format": 3, "node_type": "group", "attributes": {"ome": ome, OWN: own}})
}

/// The coordinate systems of a field: with its components, and without them.
const FIELD: &str = "field";
const PHYSICAL: &str = "physical";

/// A field that says what it is: a transform within the space of its own grid (0.6).
fn displacement(axes: Vec<Value>, space: Vec<Value>, datasets: Vec<Value>) -> Value {
    json!({
        "name": "displacement",
        "coordinateSystems": [
            {"name": FIELD, "axes": axes},
            {"name": PHYSICAL, "axes": space}],
        "coordinateTransformations": [{
            "type": "displacements", "path": "0", "interpolation": "linear",
            "input": {"name": PHYSICAL}, "output": {"name": PHYSICAL}}],
        "datasets": datasets})
}

/// An axis of space, 0 is x, with its orientation (RFC-4) where it has one.
pub fn axis(direction: &Matrix3, j: usize) -> Value {
    let name = ["x", "y", "z"][j];
    let mut axis = json!({"name": name, "type": "space", "unit": "millimeter"});
    let column = std::array::from_fn(|row| direction[row][j]);
    if let Some(value) = orientation(column) {
        axis["orientation"] = json!({"type": "anatomical", "value": value});
    }
    axis
}

/// Metadata, on the disk when it returns.
pub fn write_json(path: &Path, value: &Value) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&serde_json::to_vec_pretty(value).map_err(io::Error::other)?)?;
    file.write_all(b"\n")?;
    file.sync_all()
}
