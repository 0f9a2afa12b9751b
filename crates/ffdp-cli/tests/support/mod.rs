//! A scratch folder, the binary in a process, and files that are good or bad in a known way.

use std::fs;
use std::process::Command;

use ffdp_image::image::{Geometry, Volume};
use ffdp_image::io::images::{write_labels, write_volume};
use ffdp_image::synth::{Pair, PhantomSettings, pair};

/// A folder that is removed at the end.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder can be made"))
    }

    pub fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("temporary folders have plain names").to_string()
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.path().join(name).exists()
    }
}

/// What a process left behind.
pub struct ProcessOutput {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl ProcessOutput {
    pub fn succeeded(&self) {
        assert_eq!(self.code, 0, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
    }
}

/// Runs the binary, on the CPU whatever was compiled in.
pub fn ffdp(arguments: &[&str]) -> ProcessOutput {
    ffdp_in(&[], arguments)
}

/// The same with more in its environment.
pub fn ffdp_in(environment: &[(&str, &str)], arguments: &[&str]) -> ProcessOutput {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ffdp"));
    command.args(arguments).env("FFDP_DEVICE", "cpu").envs(environment.iter().copied());
    let output = command.output().expect("the binary starts");
    ProcessOutput {
        code: output.status.code().expect("ended by itself"),
        stdout: String::from_utf8(output.stdout).expect("UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

/// Writes `fixed`, `moving` and their labels, `size`^3 voxels, and returns the pair with its answer.
pub fn write_pair(folder: &Folder, size: usize, seed: u64) -> Pair {
    let pair = pair(&PhantomSettings::with_size([size; 3]), seed).expect("valid settings");
    for (name, subject) in [("fixed", &pair.fixed), ("moving", &pair.moving)] {
        write_volume(folder.path(&format!("{name}.nii.gz")), &subject.image).expect("writable");
        write_labels(folder.path(&format!("{name}_labels.nii.gz")), &subject.labels)
            .expect("writable");
    }
    pair
}

/// Writes masks of both images, their labels as far as a plane across x, and returns the files.
pub fn write_masks(folder: &Folder, pair: &Pair) -> [String; 2] {
    [("fixed", &pair.fixed), ("moving", &pair.moving)].map(|(name, side)| {
        let geometry = side.image.geometry.clone();
        let middle = 3 * geometry.size[0] / 5;
        let counts = |i: usize| side.labels.data[i] != 0 && geometry.index_of(i)[0] < middle;
        let weights = (0..geometry.len()).map(|i| f32::from(u8::from(counts(i)))).collect();
        let mask = Volume::new(weights, geometry.clone()).expect("one weight for each voxel");
        let file = folder.path(&format!("{name}_mask.nii.gz"));
        write_volume(&file, &mask).expect("writable");
        file
    })
}

/// Mean distance in voxels between a field and the pair's answer over the labelled voxels.
pub fn mean_error(field: &[f32], pair: &Pair) -> f64 {
    let count = pair.fixed.labels.data.len();
    let labelled: Vec<usize> = (0..count).filter(|&p| pair.fixed.labels.data[p] != 0).collect();
    let difference = |p: usize, c: usize| field[c * count + p] - pair.displacement[c * count + p];
    let distance = |p: usize| (0..3).map(|c| difference(p, c).powi(2)).sum::<f32>().sqrt();
    labelled.iter().map(|&p| f64::from(distance(p))).sum::<f64>() / labelled.len() as f64
}

/// Largest difference as a part of the range of `expected`.
pub fn relative_difference(actual: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(actual.len(), expected.len());
    let range = expected.iter().fold(0f32, |m, v| m.max(v.abs()));
    let largest = actual.iter().zip(expected).fold(0f32, |m, (a, b)| m.max((a - b).abs()));
    f64::from(largest) / f64::from(range)
}

/// The same image stored with axes (y, z, x), the last one reversed; the header says so.
pub fn restored(volume: &Volume) -> Volume {
    let g = &volume.geometry;
    let [nx, ny, nz] = g.size;
    let mut data = Vec::with_capacity(g.len());
    for x in (0..nx).rev() {
        for z in 0..nz {
            for y in 0..ny {
                data.push(volume.data[(z * ny + y) * nx + x]);
            }
        }
    }
    let [dx, dy, dz] = g.spacing_mm;
    let direction = g.direction.map(|row| [row[1], row[2], -row[0]]);
    let geometry = Geometry::new([ny, nz, nx], [dy, dz, dx])
        .and_then(|new| new.with_direction(direction))
        .and_then(|new| new.with_origin(g.voxel_to_mm().apply([nx as f64 - 1.0, 0.0, 0.0])))
        .expect("valid");
    Volume::new(data, geometry).expect("same number of voxels")
}

/// The same voxels with a header that doubles every length.
pub fn twice_as_large(volume: &Volume) -> Volume {
    let g = &volume.geometry;
    let geometry = Geometry::new(g.size, g.spacing_mm.map(|s| 2.0 * s))
        .and_then(|new| new.with_direction(g.direction))
        .and_then(|new| new.with_origin(g.origin_mm.map(|o| 2.0 * o)))
        .expect("valid");
    Volume::new(volume.data.clone(), geometry).expect("same size")
}

/// The image averaged over 2 x 2 x 1 voxels, on the grid of these blocks.
pub fn on_coarser_grid(volume: &Volume) -> Volume {
    let [nx, ny, nz] = volume.geometry.size;
    let geometry = volume.geometry.resized([nx / 2, ny / 2, nz]).expect("valid");
    let at = |x: usize, y: usize, z: usize| volume.data[(z * ny + y) * nx + x];
    let mean = |offset| {
        let [x, y, z] = geometry.index_of(offset);
        let [x, y] = [2 * x, 2 * y];
        (at(x, y, z) + at(x + 1, y, z) + at(x, y + 1, z) + at(x + 1, y + 1, z)) / 4.0
    };
    Volume::new((0..geometry.len()).map(mean).collect(), geometry).expect("sizes match")
}

/// Files with one thing wrong each, on a grid of 16^3 voxels of 12 mm around the phantom.
pub fn write_bad_files(folder: &Folder) {
    let geometry =
        Geometry::new([16; 3], [12.0; 3]).and_then(|g| g.with_origin([-90.0; 3])).expect("valid");
    let value = |offset: usize| {
        let centre = geometry.index_of(offset).map(|i| i as f32 - 7.5);
        (-0.05 * centre.map(|v| v * v).iter().sum::<f32>()).exp()
    };
    let good = Volume::new((0..geometry.len()).map(value).collect(), geometry.clone());
    let good = good.expect("sizes match");
    let save = |name: &str, volume: &Volume| {
        write_volume(folder.path(name), volume).expect("writable");
    };
    fs::write(folder.path("text.nii"), "no image at all\n".repeat(40)).expect("writable");
    save("whole.nii.gz", &good);
    let whole = fs::read(folder.path("whole.nii.gz")).expect("written");
    fs::write(folder.path("truncated.nii.gz"), &whole[..whole.len() / 2]).expect("writable");
    let mut nan = good.clone();
    (nan.data[100], nan.data[200]) = (f32::NAN, f32::NAN);
    save("nan.nii.gz", &nan);
    save("constant.nii.gz", &Volume { data: vec![2.0; good.data.len()], ..good.clone() });
    let far = geometry.with_origin([1000.0; 3]).expect("valid");
    save("far.nii.gz", &Volume { geometry: far, ..good.clone() });
    let small = Geometry::new([6; 3], [30.0; 3]).and_then(|g| g.with_origin([-75.0; 3]));
    let small = small.expect("valid");
    let one = Geometry::new([1; 3], [1.0; 3]).expect("valid");
    save("one.nii.gz", &Volume::new(vec![1.0], one).expect("fits"));
    save("small.nii.gz", &Volume::new((0..216).map(|v| v as f32).collect(), small).expect("fits"));
    write_four_dimensional(folder, &good);
}

/// Two volumes in one file: a 3-D file with its sizes patched (dim[0] at byte 40, dim[4] at 48).
fn write_four_dimensional(folder: &Folder, volume: &Volume) {
    write_volume(folder.path("3d.nii"), volume).expect("writable");
    let mut bytes = fs::read(folder.path("3d.nii")).expect("written");
    assert_eq!(bytes[..4], 348i32.to_le_bytes(), "NIfTI-1");
    let data = bytes[352..].to_vec();
    bytes.extend(data);
    bytes[40..42].copy_from_slice(&4i16.to_le_bytes());
    bytes[48..50].copy_from_slice(&2i16.to_le_bytes());
    fs::write(folder.path("4d.nii"), bytes).expect("writable");
}
