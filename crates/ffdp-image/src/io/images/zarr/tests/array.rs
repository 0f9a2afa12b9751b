//! Arrays written by hand: chunks of Zarr 2, shards of Zarr 3.

use super::*;

/// An array built by hand from a formula, in the order of its axes.
pub struct Made {
    pub shape: Vec<usize>,
    pub chunk: Vec<usize>,
}

impl Made {
    pub fn value(at: &[usize]) -> u16 {
        at.iter().fold(7usize, |sum, k| sum * 31 + k) as u16
    }

    /// The bytes of a chunk whose number along each axis is given, padded with 0.
    pub fn chunk(&self, number: &[usize]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for k in 0..self.chunk.iter().product() {
            let (mut rest, mut at) = (k, vec![0; self.chunk.len()]);
            for axis in (0..at.len()).rev() {
                at[axis] = number[axis] * self.chunk[axis] + rest % self.chunk[axis];
                rest /= self.chunk[axis];
            }
            let inside = at.iter().zip(&self.shape).all(|(k, n)| k < n);
            bytes.extend((if inside { Self::value(&at) } else { 0 }).to_le_bytes());
        }
        bytes
    }

    pub fn chunks(&self) -> Vec<Vec<usize>> {
        let counts: Vec<usize> =
            self.shape.iter().zip(&self.chunk).map(|(n, c)| n.div_ceil(*c)).collect();
        let place = |mut k: usize| {
            let mut at = vec![0; counts.len()];
            for axis in (0..counts.len()).rev() {
                (at[axis], k) = (k % counts[axis], k / counts[axis]);
            }
            at
        };
        (0..counts.iter().product()).map(place).collect()
    }
}

pub fn joined(at: &[usize], separator: &str) -> String {
    at.iter().map(usize::to_string).collect::<Vec<_>>().join(separator)
}

/// Packs a chunk.
pub type Pack<'a> = &'a dyn Fn(&[u8]) -> Vec<u8>;

/// Writes an image of axes (t, c, z, y, x) as Zarr 2 and OME-Zarr 0.4.
pub fn write_two(folder: &Path, made: &Made, compressor: &Value, pack: Pack) {
    let axes = json!([{"name": "t", "type": "time", "unit": "millisecond"}, {"name": "c", "type": "channel"},
        {"name": "z", "type": "space", "unit": "micrometer"}, {"name": "y", "type": "space", "unit": "micrometer"},
        {"name": "x", "type": "space", "unit": "micrometer"}]);
    write_text(
        &folder.join(".zattrs"),
        &json!({"multiscales": [{"version": "0.4", "axes": axes,
            "coordinateTransformations": [{"type": "scale", "scale": [1, 1, 2, 2, 2]}],
            "datasets": [{"path": "s0", "coordinateTransformations": [
                {"type": "scale", "scale": [500, 1, 3, 2, 1]},
                {"type": "translation", "translation": [0, 0, 30, 20, 10]}]}]}]}),
    );
    write_text(
        &folder.join("s0/.zarray"),
        &json!({"zarr_format": 2, "shape": made.shape, "chunks": made.chunk, "dtype": "<u2", "order": "C",
            "compressor": compressor, "filters": null, "fill_value": 9, "dimension_separator": "/"}),
    );
    for at in made.chunks() {
        write(&folder.join("s0").join(joined(&at, "/")), &pack(&made.chunk(&at)));
    }
}

/// A sharded Zarr 3 array of axes given by their names, with an index at the start or end.
pub fn write_three(folder: &Path, names: &str, made: &Made, shards: &[usize], at_end: bool) {
    let kind = |name| match name {
        'c' => "channel",
        _ => "space",
    };
    let axes: Vec<Value> = names
        .chars()
        .map(|name| json!({"name": name.to_string(), "type": kind(name), "unit": "millimeter"}))
        .collect();
    let ones = vec![1.0; names.len()];
    write_text(
        &folder.join("zarr.json"),
        &json!({"zarr_format": 3, "node_type": "group", "attributes": {"ome": {"version": "0.5",
            "multiscales": [{"axes": axes, "datasets": [{"path": "0", "coordinateTransformations": [
                {"type": "scale", "scale": ones}]}]}]}}}),
    );
    let shard: Vec<usize> = made.chunk.iter().zip(shards).map(|(chunk, n)| chunk * n).collect();
    let location = if at_end { "end" } else { "start" };
    write_text(
        &folder.join("0/zarr.json"),
        &json!({"zarr_format": 3, "node_type": "array", "shape": made.shape, "data_type": "uint16",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shard}},
            "chunk_key_encoding": {"name": "default"}, "fill_value": 5, "attributes": {},
            "codecs": [{"name": "sharding_indexed", "configuration": {"chunk_shape": made.chunk,
                "codecs": [{"name": "bytes", "configuration": {"endian": "big"}}, {"name": "crc32c"}],
                "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
                "index_location": location}}]}),
    );
    let outer = Made { shape: made.shape.clone(), chunk: shard };
    for at in outer.chunks() {
        let inside = Made { shape: shards.to_vec(), chunk: vec![1; shards.len()] };
        let (mut data, mut index) = (Vec::new(), Vec::new());
        let count = shards.iter().product::<usize>();
        let start = if at_end { 0 } else { 16 * count + 4 };
        for place in inside.chunks() {
            let number: Vec<usize> = (0..at.len()).map(|a| at[a] * shards[a] + place[a]).collect();
            let is_out = (0..at.len()).any(|a| number[a] * made.chunk[a] >= made.shape[a]);
            if is_out {
                index.extend([0xff; 16]);
                continue;
            }
            let mut chunk = made.chunk(&number);
            chunk.chunks_exact_mut(2).for_each(<[u8]>::reverse);
            chunk.extend(crc32c::crc32c(&chunk).to_le_bytes());
            index.extend(((start + data.len()) as u64).to_le_bytes());
            index.extend((chunk.len() as u64).to_le_bytes());
            data.extend(chunk);
        }
        index.extend(crc32c::crc32c(&index).to_le_bytes());
        let file = if at_end { [data, index].concat() } else { [index, data].concat() };
        write(&folder.join("0/c").join(joined(&at, "/")), &file);
    }
}
