//! A free-form deformation between two contrasts: the control points found by NMI, written for ITK, read back, and
//! compared with the motion that was put in.
//!
//! `cargo run --example ffd -- [FOLDER]` writes fixed.nii.gz, moving.nii.gz and bspline.tfm. The same on the command
//! line: `ffdp register -f FOLDER/fixed.nii.gz -m FOLDER/moving.nii.gz --aligned --transform ffd --metric nmi
//! --spacing-mm 20 --shrink 2,1 --iterations 60,40 -o FOLDER/run`.

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use ffdp::prelude::*;
use ffdp::synth::{Modality, Pair, PhantomSettings, pair};

/// A T1-weighted brain of 4 mm (moving), and the same brain moved, T2-weighted (fixed): what is bright in one is dark
/// in the other, so that neither MSE nor LNCC finds the way.
///
/// # Errors
/// None with these settings.
pub fn brains() -> Result<Pair> {
    let settings = PhantomSettings {
        fixed_modality: Some(Modality::T2),
        ..PhantomSettings::with_size([40, 50, 42])
    };
    pair(&settings, 3)
}

/// Finds control points 20 mm apart. NMI is the default similarity of this method.
///
/// # Errors
/// Those of a registration.
pub fn run(brains: &Pair) -> Result<Registration> {
    let level = |shrink, iterations| LevelSettings { shrink, iterations };
    let stage = FfdSettings {
        levels: vec![level(2.0, 60), level(1.0, 40)],
        spacing_mm: [20.0; 3], // on the last level; 40 mm on the first
        ..FfdSettings::default()
    };
    let settings = Settings { stages: vec![Stage::Ffd(stage)], ..Settings::default() };
    Register::new(&brains.fixed.image, &brains.moving.image).settings(&settings).run()
}

/// Writes the control points as `ffdp register` does, and reads them back.
///
/// # Errors
/// A file that cannot be written.
pub fn through_a_file(found: &Registration, path: &Path) -> Result<Composite> {
    let spline = found.exact().and_then(|exact| exact.step());
    let spline = spline.expect("the only deformable stage is a free-form one");
    write_transform(path, &Composite::new(vec![spline]))?;
    read_transform(path, &Device::flex())
}

/// Mean distance in mm, inside the brain, from where points of the fixed image belong: as they lie, and where `phi`
/// moves them. Every third voxel along each axis.
///
/// # Errors
/// None for a transform of points.
pub fn errors_mm(brains: &Pair, phi: &Composite) -> Result<[f64; 2]> {
    let grid = &brains.fixed.image.geometry;
    let to_mm = grid.voxel_to_mm();
    let voxels = grid.len();
    let (mut points, mut answers) = (Vec::new(), Vec::new());
    for offset in (0..voxels).filter(|&offset| brains.fixed.labels.data[offset] != 0) {
        let at = grid.index_of(offset);
        if at.iter().all(|i| i % 3 == 0) {
            let u = [0, 1, 2].map(|axis| f64::from(brains.displacement[axis * voxels + offset]));
            points.push(to_mm.apply(at.map(|i| i as f64)));
            answers.push(to_mm.apply([0, 1, 2].map(|axis| at[axis] as f64 + u[axis])));
        }
    }
    let moved = phi.map_points(&points)?;
    let mean = |from: &[[f64; 3]]| {
        let squares = |(a, b): (&[f64; 3], &[f64; 3])| -> f64 {
            (0..3).map(|axis| (a[axis] - b[axis]).powi(2)).sum()
        };
        let distances = from.iter().zip(&answers).map(|pair| squares(pair).sqrt());
        distances.sum::<f64>() / from.len() as f64
    };
    Ok([mean(&points), mean(&moved)])
}

#[allow(dead_code)] // A test includes this file.
fn main() -> Result<()> {
    let folder = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "ffd-run".into()));
    std::fs::create_dir_all(&folder).map_err(|e| ffdp::Error::io(&folder, "create", e))?;
    let brains = brains()?;
    write_volume(folder.join("fixed.nii.gz"), &brains.fixed.image)?;
    write_volume(folder.join("moving.nii.gz"), &brains.moving.image)?;

    let found = run(&brains)?;
    let levels = &found.stages[0].levels;
    println!(
        "{} levels; NMI loss {:.4} before, {:.4} after",
        levels.len(),
        found.loss_before,
        found.loss_after
    );
    let path = folder.join("bspline.tfm");
    let phi = through_a_file(&found, &path)?;
    if let [Step::Bspline(spline)] = phi.steps() {
        println!("{:?} control points in {}", spline.geometry().size, path.display());
    }
    let [before, after] = errors_mm(&brains, &phi)?;
    println!("mean error against the known motion: {before:.2} mm before, {after:.2} mm after");
    Ok(())
}
