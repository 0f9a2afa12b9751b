//! Arrays written by other means than our writer, what we write read again, and what must be refused.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use crate::image::{Affine, Geometry, LabelMap, Planes, Volume};
use crate::io::images::{
    DataType, PlaneReader, VolumeWriter, convert, header, read_displacement, read_labels,
    read_slab, read_stored_at, read_volume, read_volume_at, read_volumes, write_displacement,
    write_labels, write_volume, write_volumes,
};

/// A grid that no file but ours can place: oblique, anisotropic, sheared.
fn oblique(size: [usize; 3]) -> Geometry {
    let rows = [[-1.5, 0.25, 0.0, 10.0], [0.125, 2.0, 0.5, -20.1], [0.0, -0.5, 3.0, 30.0]];
    Geometry::from_affine(size, Affine::from_rows(rows)).expect("it can be inverted")
}

fn random(geometry: Geometry, seed: u64) -> Volume {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let data = (0..geometry.len()).map(|_| rng.random_range(-1e3..1e3)).collect();
    Volume::new(data, geometry).expect("one value for each voxel")
}

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().expect("in a folder")).expect("a folder");
    fs::write(path, bytes).expect("writable");
}

fn write_text(path: &Path, json: &Value) {
    write(path, json.to_string().as_bytes());
}

fn message<T: std::fmt::Debug>(result: crate::Result<T>) -> String {
    result.expect_err("must be refused").to_string()
}

#[test]
fn images_of_any_size_come_back_to_the_bit() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("image.zarr");
    // One voxel, one plane, more than one chunk and layer, more than one shard.
    let sizes = [[1, 1, 1], [7, 5, 1], [130, 3, 40], [33, 129, 65], [1030, 9, 2], [64, 64, 64]];
    for (seed, size) in sizes.into_iter().enumerate() {
        let mut volume = random(oblique(size), seed as u64);
        volume.data[0] = -0.0;
        write_volume(&path, &volume).expect("writable");
        let back = read_volume(&path).expect("readable");
        assert_eq!(back.geometry, volume.geometry, "{size:?}");
        let bits = |volume: &Volume| volume.data.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert!(bits(&back) == bits(&volume), "{size:?}");
        let last = size[2] - 1;
        let slab = read_slab(&path, last..size[2]).expect("the last plane");
        assert_eq!(slab.data, volume.data[last * size[0] * size[1]..]);
        let header = header(&path).expect("readable");
        assert_eq!((header.format.name(), header.data_type), ("OME-Zarr 0.5", DataType::F32));
    }
    // The folder was replaced each time, and nothing is left next to it.
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
}

#[test]
fn planes_are_read_in_any_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("image.zarr");
    let mut volume = random(oblique([20, 30, 100]), 5);
    write_volume(&path, &volume).expect("writable");
    let mut reader = PlaneReader::open(&path, None).expect("readable");
    for z in [0..3, 30..70, 60..100, 10..12, 99..100, 0..100, 5..6] {
        let expected = volume.read(z.clone()).expect("inside").to_vec();
        assert!(reader.read(z.clone()).expect("readable") == expected, "{z:?}");
    }
}

#[test]
fn labels_series_and_displacements_come_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let grid = oblique([40, 33, 35]);
    let path = folder.path().join("labels.zarr");
    for largest in [3, 70_000, 600_000_000] {
        let data = (0..grid.len()).map(|i| (i / 100 % 7) as i32 * (largest / 6)).collect();
        let labels = LabelMap::new(data, grid.clone()).expect("one for each voxel");
        write_labels(&path, &labels).expect("writable");
        assert_eq!(read_labels(&path).expect("readable"), labels, "{largest}");
        assert_eq!(header(&path).expect("readable").intent_code, 1002);
    }
    let path = folder.path().join("series.zarr");
    let series = [1, 2, 3].map(|seed| random(grid.clone(), seed));
    write_volumes(&path, &series, 2.5).expect("writable");
    assert_eq!(read_volumes(&path).expect("readable"), series);
    assert_eq!(header(&path).expect("readable").time_step_seconds, 2.5);
    let second = folder.path().join("series.zarr#0,t=1");
    assert_eq!(read_volume(&second).expect("readable"), series[1]);
    assert_eq!(read_volume_at(&path, 2).expect("readable"), series[2]);
    assert!(message(read_volume(&path)).contains("--volume K"));
    let path = folder.path().join("warp.zarr");
    let field: Vec<f32> = (0..3).flat_map(|seed| random(grid.clone(), seed).data).collect();
    write_displacement(&path, &field, &grid).expect("writable");
    let (back, same) = read_displacement(&path).expect("readable");
    assert_eq!(same, grid);
    // Through mm and back: two roundings of f32.
    let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 2.0 * f32::EPSILON * b.abs();
    assert!(back.iter().zip(&field).all(near));
}

#[test]
fn conversions_keep_every_value() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let grid = oblique([21, 18, 37]);
    let labels: Vec<i32> = (0..grid.len()).map(|i| i as i32 % 300).collect();
    let labels = LabelMap::new(labels, grid.clone()).expect("one for each voxel");
    write_labels(at("0.nii.gz"), &labels).expect("writable");
    let names = ["1.zarr", "2.nrrd", "3.mha", "4.zarr", "5.nii", "6.zarr"];
    let mut from = at("0.nii.gz");
    for name in names {
        convert(&from, at(name), None).expect("convertible");
        from = at(name);
        let back = read_labels(&from).expect("readable");
        assert_eq!(back.data, labels.data, "{name}");
        assert!(back.geometry.same_grid(&grid, 1e-4), "{name}");
        assert_eq!(header(&from).expect("readable").data_type, DataType::I16, "{name}");
    }
    let field: Vec<f32> = (0..3).flat_map(|seed| random(grid.clone(), seed).data).collect();
    write_displacement(at("warp.nii.gz"), &field, &grid).expect("writable");
    convert(at("warp.nii.gz"), at("warp.zarr"), None).expect("convertible");
    convert(at("warp.zarr"), at("warp.nii"), None).expect("convertible");
    let (back, _) = read_displacement(at("warp.nii")).expect("readable");
    let worst = back.iter().zip(&field).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    // Numbers up to 1000 in f32 through a sheared grid, four roundings.
    assert!(worst < 2e-3, "{worst}");
    let refused = message(convert(at("warp.zarr"), at("warp.mha"), None));
    assert!(refused.contains("write a .nii.gz file"), "{refused}");
}

#[test]
fn levels_lie_where_the_first_one_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("image.zarr");
    let grid = oblique([128, 96, 66]);
    // Linear in space: means of blocks are the values in their middle.
    let plane = |p: [f64; 3]| (0.5 * p[0] - 0.25 * p[1] + 2.0 * p[2]) as f32;
    let value = |geometry: &Geometry, i: usize| {
        plane(geometry.voxel_to_mm().apply(geometry.index_of(i).map(|k| k as f64)))
    };
    let data = (0..grid.len()).map(|i| value(&grid, i)).collect();
    write_volume(&path, &Volume::new(data, grid.clone()).expect("one a voxel")).expect("writable");
    for level in 1..=1 {
        let name = folder.path().join(format!("image.zarr#{level}"));
        let coarse = read_volume(&name).expect("readable");
        assert_eq!(coarse.geometry.size, [64, 48, 33]);
        assert!(coarse.geometry.same_grid(&grid.resized([64, 48, 33]).expect("a grid"), 1e-6));
        for (i, v) in coarse.data.iter().enumerate() {
            assert!((v - value(&coarse.geometry, i)).abs() < 1e-3, "{i}: {v}");
        }
    }
    let none = message(read_volume(folder.path().join("image.zarr#2")));
    assert!(none.contains("must be less than 2"), "{none}");
}

/// An array built by hand from a formula, in the order of its axes.
struct Made {
    shape: Vec<usize>,
    chunk: Vec<usize>,
}

impl Made {
    fn value(at: &[usize]) -> u16 {
        at.iter().fold(7usize, |sum, k| sum * 31 + k) as u16
    }

    /// The bytes of a chunk whose number along each axis is given, padded with 0.
    fn chunk(&self, number: &[usize]) -> Vec<u8> {
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

    fn chunks(&self) -> Vec<Vec<usize>> {
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

fn joined(at: &[usize], separator: &str) -> String {
    at.iter().map(usize::to_string).collect::<Vec<_>>().join(separator)
}

/// Packs a chunk.
type Pack<'a> = &'a dyn Fn(&[u8]) -> Vec<u8>;

/// Writes an image of axes (t, c, z, y, x) as Zarr 2 and OME-Zarr 0.4.
fn write_two(folder: &Path, made: &Made, compressor: &Value, pack: Pack) {
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

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("into memory");
    encoder.finish().expect("into memory")
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("into memory");
    encoder.finish().expect("into memory")
}

#[test]
fn channels_times_units_and_chunks_of_zarr_2_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    for (k, compressor) in
        [json!(null), json!({"id": "gzip"}), json!({"id": "zlib"})].iter().enumerate()
    {
        let shape: Vec<usize> =
            [3, 2, 9, 8, 7].iter().map(|n| n + rng.random_range(0..3)).collect();
        let chunk = [2, 1, 4, 5, 3].iter().map(|n| n + rng.random_range(0..3)).collect();
        let made = Made { shape: shape.clone(), chunk };
        let path = folder.path().join(format!("{k}.zarr"));
        let pack: [Pack; 3] = [&<[u8]>::to_vec, &gzip, &zlib];
        write_two(&path, &made, compressor, pack[k]);
        let seen = header(&path).expect("readable");
        assert_eq!(seen.dims, [shape[4], shape[3], shape[2], shape[0], shape[1]]);
        assert_eq!((seen.format.name(), seen.time_step_seconds), ("OME-Zarr 0.4", 0.5));
        let near = |a: [f64; 3], b: [f64; 3]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12);
        assert!(near(seen.geometry.spacing_mm, [0.002, 0.004, 0.006]), "{:?}", seen.geometry);
        // x to the left, y to the back: as ITK has it.
        assert!(near(seen.geometry.origin_mm, [-0.02, -0.04, 0.06]), "{:?}", seen.geometry);
        assert_eq!(seen.geometry.axis_codes(), "LPS");
        for (t, c) in [(0, 0), (shape[0] - 1, 1), (1, shape[1] - 1)] {
            let name = folder.path().join(format!("{k}.zarr#0,c={c},t={t}"));
            let volume = read_volume(&name).expect("readable");
            for (i, v) in volume.data.iter().enumerate() {
                let [x, y, z] = volume.geometry.index_of(i);
                assert_eq!(*v, f32::from(Made::value(&[t, c, z, y, x])), "{t} {c} {x} {y} {z}");
            }
            assert_eq!(read_volume_at(&path, c * shape[0] + t).expect("readable"), volume);
        }
        // A chunk that is not there has the fill value.
        fs::remove_file(path.join("s0").join("0/0/0/0/0")).expect("it is there");
        let volume =
            read_volume(folder.path().join(format!("{k}.zarr#t=0,c=0"))).expect("readable");
        assert_eq!(volume.data[0], 9.0);
    }
}

/// A sharded Zarr 3 array of axes given by their names, with an index at the start or end.
fn write_three(folder: &Path, names: &str, made: &Made, shards: &[usize], at_end: bool) {
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
            chunk.extend(super::codecs::crc32c(&chunk).to_le_bytes());
            index.extend(((start + data.len()) as u64).to_le_bytes());
            index.extend((chunk.len() as u64).to_le_bytes());
            data.extend(chunk);
        }
        index.extend(super::codecs::crc32c(&index).to_le_bytes());
        let file = if at_end { [data, index].concat() } else { [index, data].concat() };
        write(&folder.join("0/c").join(joined(&at, "/")), &file);
    }
}

#[test]
fn shards_of_any_axes_are_read_by_type_and_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    for (k, names) in ["zyx", "xyz", "czyx", "yzxc", "yx", "zxy"].into_iter().enumerate() {
        let axes = names.len();
        let mut some = |from: usize, to: usize| -> Vec<usize> {
            (0..axes).map(|_| rng.random_range(from..to)).collect()
        };
        let made = Made { shape: some(4, 12), chunk: some(1, 5) };
        let shards = some(1, 4);
        let path = folder.path().join(format!("{k}.zarr"));
        write_three(&path, names, &made, &shards, k % 2 == 0);
        let axis = |name| names.find(name);
        let channel = axis('c').map(|axis| made.shape[axis] - 1);
        let name = match channel {
            Some(c) => folder.path().join(format!("{k}.zarr#0,c={c}")),
            None => path,
        };
        let volume = read_volume(&name).expect("readable");
        for (i, v) in volume.data.iter().enumerate() {
            let [x, y, z] = volume.geometry.index_of(i);
            let mut at = vec![0; axes];
            for (name, k) in [('x', x), ('y', y), ('z', z), ('c', channel.unwrap_or(0))] {
                axis(name).into_iter().for_each(|axis| at[axis] = k);
            }
            assert_eq!(*v, f32::from(Made::value(&at)), "{names} {x} {y} {z}");
        }
    }
}

/// A sound image of 40 planes, whose parts are then damaged.
fn sound(folder: &Path) -> PathBuf {
    let path = folder.join("image.zarr");
    let volume = random(Geometry::new([20, 20, 40], [1.0; 3]).expect("a grid"), 1);
    write_volume(&path, &volume).expect("writable");
    path
}

#[test]
fn damaged_chunks_are_refused_with_their_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = sound(folder.path());
    let shard = path.join("0/c/1/0/0");
    let whole = fs::read(&shard).expect("there");
    for cut in [0, 1, 10, whole.len() / 2, whole.len() - 21, whole.len() - 1] {
        fs::write(&shard, &whole[..cut]).expect("writable");
        let text = message(read_volume(&path));
        assert!(text.contains("damaged"), "{cut}: {text}");
        // What lies elsewhere can be read.
        assert!(read_slab(&path, 0..32).is_ok());
    }
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let mut refused = 0;
    for _ in 0..200 {
        let mut bytes = whole.clone();
        let at = rng.random_range(0..bytes.len());
        bytes[at] ^= 1 << rng.random_range(0..8);
        fs::write(&shard, &bytes).expect("writable");
        // Blosc has no checksum: what it cannot notice is read, never with a panic.
        refused += usize::from(read_volume(&path).is_err());
    }
    assert!(refused > 0);
}

#[test]
fn metadata_that_cannot_be_meant_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = sound(folder.path());
    let (group, array) = (path.join("zarr.json"), path.join("0/zarr.json"));
    let read = |file: &Path| -> Value {
        serde_json::from_slice(&fs::read(file).expect("there")).expect("JSON")
    };
    let (group_json, array_json) = (read(&group), read(&array));
    let huge = 1u64 << 40;
    let multiscale = "/attributes/ome/multiscales/0";
    let cases = [
        (
            &group,
            format!("{multiscale}/axes"),
            json!([{"name": "a", "type": "channel"}]),
            "axes must be",
        ),
        (&group, format!("{multiscale}/axes/1/name"), json!("z"), "axes must be"),
        (&group, format!("{multiscale}/datasets"), json!([]), "at least one level"),
        (&group, format!("{multiscale}/datasets/0/path"), json!("../other"), "lies in the folder"),
        (
            &group,
            format!("{multiscale}/datasets/0/coordinateTransformations/0/scale"),
            json!([1, 2]),
            "3 axes",
        ),
        (
            &group,
            format!("{multiscale}/datasets/0/coordinateTransformations/0/scale/0"),
            json!(-1),
            "spacing",
        ),
        (&group, "/attributes/ome/multiscales".to_string(), json!(null), "must hold an image"),
        (&array, "/shape".to_string(), json!([huge, huge, huge]), "addressable"),
        (&array, "/shape".to_string(), json!([20, 20]), "axes"),
        (&array, "/shape".to_string(), json!([0, 20, 20]), "positive sizes"),
        (&array, "/data_type".to_string(), json!("complex64"), "integers or floats"),
        (&array, "/chunk_grid/name".to_string(), json!("rectilinear"), "regular"),
        (&array, "/codecs/0/configuration/chunk_shape".to_string(), json!([3, 20, 20]), "divide"),
        (&array, "/codecs/0/configuration/codecs/1/name".to_string(), json!("lzma"), "codec"),
        (&array, "/codecs/0/configuration/index_codecs".to_string(), json!([]), "index"),
        (&array, "/fill_value".to_string(), json!("none"), "fill_value"),
        (&array, "/zarr_format".to_string(), json!(4), "zarr_format"),
    ];
    for (file, pointer, value, word) in cases {
        let mut json = if file == &group { group_json.clone() } else { array_json.clone() };
        *json.pointer_mut(&pointer).unwrap_or_else(|| panic!("{pointer}")) = value.clone();
        write_text(file, &json);
        let text = message(read_volume(&path));
        assert!(text.contains(word), "{pointer} {value}: {text}");
        write_text(&group, &group_json);
        write_text(&array, &array_json);
    }
    // Sizes that can be addressed and do not fit are found before anything is allocated, empty as the file is.
    let mut json = array_json.clone();
    json["shape"] = json!([1u64 << 20, 1u64 << 14, 1u64 << 14]);
    write_text(&array, &json);
    let text = message(read_volume(&path));
    assert!(text.contains("bytes"), "{text}");
    write(&array, b"{\"zarr_format\": 3");
    assert!(message(read_volume(&path)).contains("must be JSON"));
    let empty = folder.path().join("empty.zarr");
    fs::create_dir(&empty).expect("a folder");
    assert!(message(read_volume(&empty)).contains("must be an OME-Zarr"));
    assert!(message(read_volume(folder.path().join("none.zarr"))).contains("none.zarr"));
}

#[test]
fn mutated_metadata_never_panic() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = sound(folder.path());
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    let files = [path.join("zarr.json"), path.join("0/zarr.json")];
    let texts = files.each_ref().map(|file| fs::read(file).expect("there"));
    let words: [&[u8]; 8] =
        [b"0", b"-1", b"99999999999999999999", b"null", b"[]", b"{}", b"\"x\"", b"1e400"];
    let mut read = 0;
    for _ in 0..600 {
        let k = rng.random_range(0..2);
        let mut text = texts[k].clone();
        // A number, or any place, is replaced.
        let digits: Vec<usize> = (0..text.len()).filter(|i| text[*i].is_ascii_digit()).collect();
        let at = match rng.random_bool(0.7) {
            true => digits[rng.random_range(0..digits.len())],
            false => rng.random_range(0..text.len()),
        };
        let word = words[rng.random_range(0..words.len())];
        text.splice(at..at + 1, word.iter().copied());
        fs::write(&files[k], &text).expect("writable");
        read += usize::from(read_volume(&path).is_ok());
        fs::write(&files[k], &texts[k]).expect("writable");
    }
    assert!(read > 10, "{read}: otherwise only JSON itself was tested");
}

#[cfg(unix)]
#[test]
fn names_need_not_be_utf_8() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().expect("a folder");
    let named = |bytes: &[u8]| folder.path().join(std::ffi::OsStr::from_bytes(bytes));
    let volume = random(Geometry::new([70, 70, 3], [1.0; 3]).expect("a grid"), 1);
    write_volume(named(b"a\xff#b.zarr"), &volume).expect("writable");
    assert_eq!(read_volume(named(b"a\xff#b.zarr")).expect("readable"), volume);
    let coarse = read_volume(named(b"a\xff#b.zarr#1")).expect("readable");
    assert_eq!(coarse.geometry.size, [35, 35, 2]);
}

#[test]
fn a_write_that_ends_early_leaves_nothing_and_the_old_image() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = sound(folder.path());
    let old = read_volume(&path).expect("readable");
    let grid = Geometry::new([20, 20, 40], [1.0; 3]).expect("a grid");
    let mut writer = crate::io::images::VolumeWriter::create(&path, &grid).expect("writable");
    writer.write(&vec![1.0; 20 * 20 * 39]).expect("writable");
    assert!(message(writer.finish()).contains("number of values"));
    assert_eq!(read_volume(&path).expect("readable"), old);
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    // A folder that is no image is not replaced.
    let other = folder.path().join("mine.zarr");
    write(&other.join("notes.txt"), b"mine");
    assert!(crate::io::check_writable(&other).is_err() && write_volume(&other, &old).is_err());
    assert!(other.join("notes.txt").exists());
}

#[test]
fn a_layer_that_cannot_be_written_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("image.zarr");
    let geometry = Geometry::new([64, 64, 100], [1.0; 3]).expect("positive");
    let mut writer = VolumeWriter::create(&path, &geometry).expect("writable");
    // Where its first level was there is a file now.
    let parts = fs::read_dir(folder.path()).expect("a folder").map(|part| part.expect("read"));
    let level = parts.map(|part| part.path().join("0")).find(|level| level.is_dir());
    let level = level.expect("the level has begun");
    fs::remove_dir_all(&level).expect("removable");
    fs::write(&level, "").expect("writable");
    // The thread that writes meets it while planes come, or when they have.
    let planes = vec![1.0; geometry.len()];
    let ended = writer.write(&planes).and_then(|()| writer.finish());
    assert!(message(ended).contains("image.zarr"));
    assert!(!path.exists());
}

#[test]
fn a_scale_of_another_tool_is_used_and_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = sound(folder.path());
    let group = path.join("zarr.json");
    let text = fs::read_to_string(&group).expect("there");
    let mut json: Value = serde_json::from_str(&text).expect("JSON");
    json["attributes"]["ome"]["multiscales"][0]["datasets"][0]["coordinateTransformations"][0]["scale"] =
        json!([3, 2, 2]);
    write_text(&group, &json);
    let header = header(&path).expect("readable");
    assert_eq!(header.geometry.spacing_mm, [2.0, 2.0, 3.0]);
    assert!(header.warnings.iter().any(|warning| warning.contains("were changed")));
    assert!(read_stored_at(&path, 0).is_err(), "floats are no labels");
}

/// `scripts/golden/zarr_images.py make`: zarr 3.1.3, numcodecs.
#[test]
fn every_codec_of_zarr_python_is_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/ome-zarr");
    let mut count = 0;
    for entry in fs::read_dir(&folder).expect("it is committed").flatten() {
        let path = entry.path();
        let volume = read_volume(&path).unwrap_or_else(|error| panic!("{error}"));
        let stored = header(&path).expect("readable").data_type;
        for (i, v) in volume.data.iter().enumerate() {
            let [x, y, z] = volume.geometry.index_of(i);
            let value = 100 * z + 10 * y + x;
            let value = if stored == DataType::U8 { value % 256 } else { value };
            assert_eq!(*v, value as f32, "{} at {x} {y} {z}", path.display());
        }
        let near = |a: [f64; 3], b: [f64; 3]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12);
        assert!(near(volume.geometry.spacing_mm, [0.002, 0.003, 0.004]), "{}", path.display());
        assert!(near(volume.geometry.origin_mm, [-0.02, -0.03, 0.04]), "{}", path.display());
        count += 1;
    }
    assert_eq!(count, 24);
}

/// A Zarr 2 image of 2 x 3 x 4 voxels in one chunk, with these metadata and the chunk under a name.
fn one_chunk(folder: &Path, metadata: &Value, chunk: Option<(&str, &[u8])>) -> PathBuf {
    let path = folder.join("one.zarr");
    let _ = fs::remove_dir_all(&path);
    let axes = json!([{"name": "z", "type": "space"}, {"name": "y", "type": "space"}, {"name": "x", "type": "space"}]);
    let scale = json!([{"type": "scale", "scale": [1.0, 1.0, 1.0]}]);
    let datasets = json!([{"path": "0", "coordinateTransformations": scale}]);
    let image = json!([{"version": "0.4", "axes": axes, "datasets": datasets}]);
    write_text(&path.join(".zgroup"), &json!({"zarr_format": 2}));
    write_text(&path.join(".zattrs"), &json!({"multiscales": image}));
    let mut array = json!({"zarr_format": 2, "shape": [2, 3, 4], "chunks": [2, 3, 4], "dtype": "|u1",
        "compressor": null, "fill_value": 0, "order": "C", "filters": null});
    for (name, value) in metadata.as_object().expect("an object") {
        array[name] = value.clone();
    }
    write_text(&path.join("0/.zarray"), &array);
    if let Some((name, bytes)) = chunk {
        write(&path.join("0").join(name), bytes);
    }
    path
}

#[test]
fn an_array_of_which_no_chunk_is_found_is_refused_with_the_path_and_the_other_separator() {
    let folder = tempfile::tempdir().expect("a folder");
    let voxels: Vec<u8> = (0..24).collect();
    let nested = json!({"dimension_separator": "/"});
    for (metadata, name) in [(&json!({}), "0.0.0"), (&nested, "0/0/0")] {
        let path = one_chunk(folder.path(), metadata, Some((name, &voxels)));
        assert_eq!(read_volume(path).expect("sound").data[23], 23.0);
    }
    let first =
        |name: &str| format!("as {}", folder.path().join("one.zarr/0").join(name).display());
    for (metadata, name, looked_for, other) in [
        (&json!({}), "0/0/0", "0.0.0", "chunks named with '/'"),
        (&nested, "0.0.0", "0/0/0", "chunks named with '.'"),
    ] {
        let path = one_chunk(folder.path(), metadata, Some((name, &voxels)));
        let text = message(read_volume(&path));
        assert!(text.contains(&first(looked_for)) && text.contains(other), "{text}");
        assert_eq!(message(header(&path)), text);
        let text = message(read_volume(one_chunk(folder.path(), metadata, None)));
        assert!(text.contains(&first(looked_for)) && text.contains("no chunk at all"), "{text}");
    }
    // Chunks that are not there have the fill value where any is.
    let halves = json!({"chunks": [1, 3, 4], "fill_value": 9});
    let path = one_chunk(folder.path(), &halves, Some(("1.0.0", &voxels[..12])));
    assert_eq!(read_volume(path).expect("sparse").data[..13], [&[9.0; 12][..], &[0.0]].concat());
    // An image of zeros that we write is one.
    let path = folder.path().join("zeros.zarr");
    let zeros = Volume::new(vec![0.0; 64 * 64 * 70], oblique([64, 64, 70])).expect("fits");
    write_volume(&path, &zeros).expect("writable");
    assert_eq!(read_volume(&path).expect("readable"), zeros);
}

#[test]
fn booleans_and_half_floats_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let booleans: Vec<u8> = (0..24).map(|i| u8::from(i % 5 == 0)).collect();
    let metadata = json!({"dtype": "|b1", "fill_value": false});
    let path = one_chunk(folder.path(), &metadata, Some(("0.0.0", &booleans)));
    assert_eq!(header(&path).expect("readable").data_type, DataType::U8);
    assert!(
        read_labels(&path)
            .expect("labels")
            .data
            .iter()
            .zip(&booleans)
            .all(|(a, b)| *a == i32::from(*b))
    );
    // Bits and values as numpy has them: zero, the smallest, the largest subnormal, the smallest normal, one and more.
    let known: [(u16, f32); 8] = [
        (0x0000, 0.0),
        (0x0001, 5.960_464_5e-8),
        (0x03FF, 6.097_555e-5),
        (0x0400, 6.103_515_6e-5),
        (0x3C00, 1.0),
        (0xC500, -5.0),
        (0x7BFF, 65504.0),
        (0x7C00, f32::INFINITY),
    ];
    for big in [false, true] {
        let bytes = (0..24).map(|i| known[i % 8].0);
        let bytes: Vec<u8> =
            bytes.flat_map(|b| if big { b.to_be_bytes() } else { b.to_le_bytes() }).collect();
        let metadata = json!({"dtype": if big { ">f2" } else { "<f2" }, "fill_value": 0.0});
        let path = one_chunk(folder.path(), &metadata, Some(("0.0.0", &bytes)));
        let read = read_volume(&path).expect("readable").data;
        assert!(read.iter().enumerate().all(|(i, value)| *value == known[i % 8].1), "{read:?}");
    }
    let metadata = json!({"dtype": "<f2", "chunks": [1, 3, 4], "fill_value": 1.5});
    let path = one_chunk(folder.path(), &metadata, Some(("0.0.0", &[0; 24])));
    assert_eq!(read_volume(path).expect("readable").data[12..], [1.5; 12]);
}
