//! Whether the results of a run fit onto the disk, asked before the work.
//!
//! How far files shrink is not known before. What is expected is what was measured; where that might not fit, it is
//! said. A registration is refused where half of it does not fit, and a single file where it would not fit even if every
//! voxel were the same.

use std::path::Path;

use ffdp_image::Error;
use ffdp_image::io::available_disk_bytes;
use ffdp_image::io::images::is_packed_name;
use ffdp_register::Settings;

use crate::failure::Result;
use crate::printer::Printer;
use crate::settings::deforms;

/// Parts of their size that compressed files keep. Five pairs at 2 mm: displacements 0.88 to 0.93, warped images
/// 0.41 to 0.85.
const OF_A_DISPLACEMENT: f64 = 0.9;
const OF_AN_IMAGE: f64 = 0.63;
/// Emptier images shrink further; displacements fill the whole image.
const LEAST_OF_EXPECTED: f64 = 0.5;
/// What is left of images whose voxels are all the same.
const LEAST_OF_ANY: f64 = 0.001;
/// Settings, log and measures, and the pictures of the report: 1.1 to 1.4 MB at 2 mm.
const OTHER_FILES: u64 = 1_250_000;
const LEAST_OTHER_FILES: u64 = 20_000;
const MOST_OTHER_FILES: u64 = 8_000_000;

/// Bytes of voxels, and of vectors.
const IMAGE: u64 = 4;
const DISPLACEMENT: u64 = 12;

/// Bytes that a run writes, between two bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecast {
    pub least: u64,
    /// In the end, without the checkpoint.
    pub expected: u64,
    pub most: u64,
}

/// A folder for results, and how strictly its disk is checked.
#[derive(Clone, Copy, Debug)]
pub struct ResultFolder<'a> {
    /// It may still have to be made.
    pub path: &'a Path,
    /// Bytes of earlier results, which are removed before new ones are written.
    pub freed_bytes: u64,
    /// Whether a disk that seems too small is only warned of (--ignore-disk).
    pub ignores_disk: bool,
}

/// What a registration writes besides its warped image.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// Displacements: forth and back.
    pub displacements: u64,
    pub labels: bool,
    /// The map of volume change.
    pub jacobian: bool,
    /// A checkpoint, without which the run goes on.
    pub checkpoint: bool,
}

impl Written {
    /// All that settings and labels may ask for.
    pub fn all(settings: &Settings, labels: bool) -> Self {
        let displacements = if deforms(settings) { 2 } else { 0 };
        Self { displacements, labels, jacobian: false, checkpoint: true }
    }
}

impl Forecast {
    /// Of a registration on a fixed grid of so many voxels.
    pub fn of_registration(voxels: u64, written: Written) -> Self {
        let Written { displacements, labels, jacobian, checkpoint } = written;
        let fields = displacements * DISPLACEMENT * voxels;
        let images = (1 + u64::from(labels) + u64::from(jacobian)) * IMAGE * voxels;
        let checkpoint = if checkpoint { DISPLACEMENT * voxels } else { 0 };
        // Volume change fills the whole image, as displacements do.
        let full = fields + if jacobian { IMAGE * voxels } else { 0 };
        let shrunk = OF_AN_IMAGE * (IMAGE * voxels) as f64 + OF_A_DISPLACEMENT * full as f64;
        Self {
            least: (LEAST_OF_EXPECTED * shrunk) as u64 + LEAST_OTHER_FILES,
            expected: shrunk as u64 + OTHER_FILES,
            most: images + fields + checkpoint + MOST_OTHER_FILES,
        }
    }

    /// Of compressed images and label maps with so many voxels in all, and perhaps more.
    pub fn of_images(voxels: u64, more: u64) -> Self {
        let expected = (OF_AN_IMAGE * (IMAGE * voxels) as f64) as u64 + more;
        Self { least: least_of(IMAGE * voxels), expected, most: 2 * IMAGE * voxels + more }
    }

    /// Of a file with so many bytes of voxels, which its name says are packed or not.
    pub fn of_file(output: &Path, bytes: u64) -> Self {
        match is_packed_name(output) {
            false => Self { least: bytes, expected: bytes, most: bytes },
            true => {
                let expected = (OF_AN_IMAGE * bytes as f64) as u64;
                Self { least: least_of(bytes), expected, most: bytes }
            }
        }
    }

    /// Of a displacement of so many voxels in a file.
    pub fn of_displacement(output: &Path, voxels: usize) -> Self {
        Self::of_file(output, DISPLACEMENT * voxels as u64)
    }

    /// Compares it with what is free for the file `output`, for commands that cannot be made to try it all the same.
    ///
    /// # Errors
    /// When even the least does not fit.
    pub fn check_file(&self, what: &str, output: &Path) -> Result<()> {
        let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let folder = ResultFolder { path: folder, freed_bytes: 0, ignores_disk: false };
        self.check(what, folder, Printer::new(false, false)).map_err(|failure| {
            failure.with_help("free some space, or choose a folder on another disk")
        })
    }

    /// Compares it with what is free for `what` in a folder once its earlier results are removed.
    ///
    /// # Errors
    /// When even the least does not fit, unless the folder ignores its disk.
    pub fn check(&self, what: &str, folder: ResultFolder, printer: Printer) -> Result<()> {
        let ResultFolder { path, freed_bytes, ignores_disk } = folder;
        // A folder that is still to be made lies on the disk of the one around it.
        let mut there = path.ancestors().filter(|folder| !folder.as_os_str().is_empty());
        let there = there.find(|folder| folder.exists()).unwrap_or(Path::new("."));
        let Some(free) = available_disk_bytes(there) else { return Ok(()) };
        match self.compare(free.saturating_add(freed_bytes)) {
            Fit::Fits => Ok(()),
            Fit::Not { needed_bytes, available_bytes } if !ignores_disk => Err(Error::TooLarge {
                what: format!("{what} in {}", path.display()),
                needed_bytes,
                available_bytes,
                fix: "free some space, choose a folder on another disk, write less, or try it all the same \
                      with --ignore-disk"
                    .to_string(),
            }
            .into()),
            Fit::Not { needed_bytes, available_bytes } | Fit::Perhaps { needed_bytes, available_bytes } => {
                printer.warning(&format!(
                    "{what} may take {:.1} MB, and {:.1} MB are free in {}",
                    needed_bytes as f64 / 1e6,
                    available_bytes as f64 / 1e6,
                    path.display()
                ));
                Ok(())
            }
        }
    }

    fn compare(&self, available_bytes: u64) -> Fit {
        match available_bytes {
            free if free < self.least => Fit::Not { needed_bytes: self.least, available_bytes },
            free if free < self.most => Fit::Perhaps { needed_bytes: self.most, available_bytes },
            _ => Fit::Fits,
        }
    }
}

/// Bytes of compressed files, at least.
fn least_of(bytes: u64) -> u64 {
    (LEAST_OF_ANY * bytes as f64) as u64
}

/// Whether it fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    Fits,
    /// It depends on how far files shrink.
    Perhaps {
        needed_bytes: u64,
        available_bytes: u64,
    },
    Not {
        needed_bytes: u64,
        available_bytes: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pair of 64^3 voxels, deformed forth and back.
    fn forecast() -> Forecast {
        let written =
            Written { displacements: 2, labels: false, jacobian: false, checkpoint: true };
        Forecast::of_registration(64 * 64 * 64, written)
    }

    #[test]
    fn a_run_that_would_fit_is_not_refused() {
        // It writes 7.6 MB: 0.9 of its 28 bytes a voxel, and the report.
        let written = 7_600_000;
        let Forecast { least, expected, most } = forecast();
        assert!(expected.abs_diff(written) * 5 < written, "{expected}");
        // Half of it would have to be the same everywhere.
        assert!(least < written * 6 / 10 && written < most, "{least} {most}");
        for free in [12_000_000, 6_000_000, 4_000_000] {
            assert!(matches!(forecast().compare(free), Fit::Perhaps { .. }), "{free}");
        }
        assert_eq!(forecast().compare(most), Fit::Fits);
        let not = Fit::Not { needed_bytes: least, available_bytes: least - 1 };
        assert_eq!(forecast().compare(least - 1), not);
    }

    #[test]
    fn what_is_not_written_needs_no_space() {
        let of = |displacements, labels, checkpoint| {
            Forecast::of_registration(
                1 << 20,
                Written { displacements, labels, jacobian: false, checkpoint },
            )
            .most
        };
        assert_eq!(of(2, false, false) - of(1, false, false), 12 << 20);
        assert_eq!(of(0, true, false) - of(0, false, false), 4 << 20);
        assert_eq!(of(1, false, true) - of(1, false, false), 12 << 20);
    }

    #[test]
    fn a_disk_too_small_is_found_before_the_work() {
        // Displacements of 0.88 to 0.93 of their size do not fit into a third of it.
        for free in [60_000, 1_000_000, 2_500_000] {
            assert!(matches!(forecast().compare(free), Fit::Not { .. }), "{free}");
        }
        // What is not packed has its size.
        let file = |name: &str| Forecast::of_file(Path::new(name), 1_000_000);
        assert!(matches!(file("a.nii").compare(999_999), Fit::Not { .. }));
        assert_eq!(file("A.MHA").compare(1_000_000), Fit::Fits);
        assert!(matches!(file("a.nii.gz").compare(999_999), Fit::Perhaps { .. }));
        assert!(matches!(file("a.zarr").compare(999), Fit::Not { .. }));
        assert_eq!(Forecast::of_displacement(Path::new("w.nii"), 10).least, 120);
    }

    #[test]
    fn results_that_cannot_fit_are_refused_unless_the_disk_is_ignored() {
        let temporary = std::env::temp_dir();
        let folder = ResultFolder { path: &temporary, freed_bytes: 0, ignores_disk: false };
        let printer = Printer::new(true, false);
        let what = "the results of the registration";
        let small = Forecast { least: 1, expected: 1, most: 1 };
        small.check(what, folder, printer).expect("a byte");
        if available_disk_bytes(&temporary).is_none() {
            println!("skipped: this system does not say how much is free");
            return;
        }
        let large = Forecast { least: u64::MAX / 2, expected: u64::MAX / 2, most: u64::MAX };
        let refused = large.check(what, folder, printer).expect_err("no such disk");
        assert!(refused.to_string().contains("results of the registration"), "{refused}");
        let help = refused.help_text().unwrap_or_default();
        assert!(help.contains("--ignore-disk"), "{help}");
        let ignoring = ResultFolder { ignores_disk: true, ..folder };
        large.check(what, ignoring, printer).expect("it was asked for");
        let freed = ResultFolder { freed_bytes: u64::MAX / 2, ..folder };
        large.check(what, freed, printer).expect("an earlier run makes room");
    }
}
