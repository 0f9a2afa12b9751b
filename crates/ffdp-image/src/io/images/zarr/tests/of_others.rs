//! What other programs write.

use super::array::{Made, Pack, write_three, write_two};
use super::*;

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
