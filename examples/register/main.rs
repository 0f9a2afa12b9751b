//! Registration from Rust: two files in, a transform and the warped image out.
//!
//! `cargo run --example register -- fixed.nii.gz moving.nii.gz out/`, or without arguments on two synthetic brains.

use std::path::{Path, PathBuf};

use ffdp::prelude::*;
use ffdp::synth::{PhantomSettings, pair};

/// Registers two images with the default settings: moments, rigid, affine, greedy by LNCC.
///
/// # Errors
/// Those of a registration.
pub fn run(fixed: &Volume, moving: &Volume, preset: Preset) -> Result<Registration> {
    Register::new(fixed, moving).settings(&Settings::preset(preset)).run()
}

/// Writes what was found as `ffdp register` does.
///
/// # Errors
/// Files that cannot be written.
pub fn write(found: &Registration, moving: &Volume, folder: &Path) -> Result<()> {
    write_volume(folder.join("warped.nii.gz"), &found.warped(moving)?)?;
    write_transform(folder.join("transform.h5"), &found.transform()?)
}

/// Two synthetic brains.
///
/// # Errors
/// None with these settings.
pub fn brains() -> Result<[Volume; 2]> {
    let pair = pair(&PhantomSettings::with_size([40; 3]), 3)?;
    Ok([pair.fixed.image, pair.moving.image])
}

#[allow(dead_code)] // A test includes this file.
fn main() -> Result<()> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let (images, folder) = match &arguments[..] {
        [fixed, moving, folder] => ([read_volume(fixed)?, read_volume(moving)?], folder.clone()),
        _ => (brains()?, std::env::temp_dir()),
    };
    let [fixed, moving] = images;
    let found = run(&fixed, &moving, Preset::Default)?;
    for stage in &found.stages {
        println!("{}: {} levels", stage.transform, stage.levels.len());
    }
    println!("loss {:.4} -> {:.4}", found.loss_before, found.loss_after);
    if let Some(advice) = found.outcome.advice() {
        println!("{advice}");
    }
    write(&found, &moving, &folder)?;
    println!("wrote warped.nii.gz and transform.h5 into {}", folder.display());
    Ok(())
}
