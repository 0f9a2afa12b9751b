//! Further channels of both images: other contrasts, or features that a network has written, in files of one or several
//! volumes.

use std::path::{Path, PathBuf};

use ffdp_image::image::Volume;
use ffdp_image::io::FileRow;
use ffdp_image::io::images::{PlaneReader, header, read_volumes};

use crate::commands::input::settle_nan;
use crate::failure::{Failure, Result};
use crate::nan_policy::NanPolicy;

/// Those of a line of a list, as the flag has them: the columns `fixed_channels` and `moving_channels`, several files
/// with semicolons between.
///
/// # Errors
/// When one column names more files than the other.
pub fn of_row(row: &FileRow) -> Result<Vec<PathBuf>> {
    let side = |column| row.several(column).collect::<Vec<_>>();
    let [fixed, moving] = ["fixed_channels", "moving_channels"].map(side);
    if fixed.len() != moving.len() {
        let what = format!(
            "as many files as in fixed_channels ({}) must stand in moving_channels ({})",
            fixed.len(),
            moving.len()
        );
        return Err(row.error(&what, "name files that belong together, in the same order").into());
    }
    Ok(fixed.into_iter().zip(moving).flat_map(<[PathBuf; 2]>::from).collect())
}

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
                "give channels (--channels, or fixed_channels and moving_channels of a list) in files with as many volumes, in \
                 the same order",
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
