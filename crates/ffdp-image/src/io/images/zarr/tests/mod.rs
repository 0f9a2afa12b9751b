//! Arrays written by other means than our writer, what we write read again, and what must be refused.

mod array;
mod of_others;
mod read_back;
mod refused;

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

/// A sound image of 40 planes, whose parts are then damaged.
fn sound(folder: &Path) -> PathBuf {
    let path = folder.join("image.zarr");
    let volume = random(Geometry::new([20, 20, 40], [1.0; 3]).expect("a grid"), 1);
    write_volume(&path, &volume).expect("writable");
    path
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
