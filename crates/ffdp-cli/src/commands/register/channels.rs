//! Further channels of both images: other contrasts, or features that a network has written, in files of one or several
//! volumes.

use std::path::{Path, PathBuf};

use ffdp_image::image::Volume;
use ffdp_image::io::images::{PlaneReader, header, read_volumes};

use crate::commands::input::settle_nan;
use crate::failure::{Failure, Result};
use crate::nan_policy::NanPolicy;

/// How many channels the files have: one of the fixed image and one of the moving image follow each other.
///
/// # Errors
/// When two that belong together have different numbers of volumes.
pub fn count(files: &[PathBuf]) -> Result<usize> {
    let mut all = 0;
    for pair in files.chunks(2) {
        let [fixed, moving] = pair else { unreachable!("the parser takes two at a time") };
        let [here, there] = [header(fixed)?.volumes(), header(moving)?.volumes()];
        if here != there {
            return Err(Failure::user(
                format!(
                    "{} has {here} volumes and {} has {there}: each is a channel of both images",
                    fixed.display(),
                    moving.display()
                ),
                "give --channels files with as many volumes, in the same order",
            ));
        }
        all += here;
    }
    Ok(all)
}

/// All volumes of the files, in memory.
pub fn read(files: &[&Path], nan_policy: NanPolicy) -> Result<Vec<Volume>> {
    let mut channels = Vec::new();
    for file in files {
        for mut volume in read_volumes(file)? {
            settle_nan(&mut volume, &file.display().to_string(), nan_policy)?;
            channels.push(volume);
        }
    }
    Ok(channels)
}

/// The same, to be read plane by plane.
pub fn open(files: &[&Path]) -> Result<Vec<PlaneReader>> {
    let mut channels = Vec::new();
    for file in files {
        for k in 0..header(file)?.volumes() {
            channels.push(PlaneReader::open(file, Some(k))?);
        }
    }
    Ok(channels)
}
