//! A registered series as files: its transforms as a list, its motion as a table, its volumes warped.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use ffdp_image::error::{Error, Result};
use ffdp_image::io::{FileList, write_affine, write_text};
use ffdp_parallel::chain::PlaneChain;
use ffdp_register::{
    Registration,
    file_warp::{FileWarp, NonFiniteVoxels},
    verdict::Verdict,
};

use super::result::{SeriesRegistration, VolumeResult};

/// The list of the transforms in the folder of a registered series, a file of its own for each volume.
pub const TRANSFORMS: &str = "transforms.csv";

/// The image that the volumes were registered to, in the same folder.
pub const REFERENCE: &str = "reference.nii.gz";

/// The folder of the files that the list names.
const FOLDER: &str = "transforms";

/// Whether a folder is that of a registered series, or a file such a list.
pub fn is_series_transform(path: &Path) -> bool {
    let is_list = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("csv"));
    path.join(TRANSFORMS).is_file() || (is_list && path.is_file())
}

/// The transforms of a series: for each volume the files through which a point of the reference goes, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesTransforms {
    path: PathBuf,
    volumes: Vec<Vec<PathBuf>>,
}

impl SeriesTransforms {
    /// Reads the list of a folder, or a list: the column `transform` has the files of a volume with semicolons between,
    /// relative to the list's folder, one volume a line.
    ///
    /// # Errors
    /// As [`FileList::read`].
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let path = if path.is_dir() { path.join(TRANSFORMS) } else { path.to_path_buf() };
        let list = FileList::read(&path, &["transform"])?;
        let volumes = list.rows.iter().map(|row| row.several("transform").collect()).collect();
        Ok(Self { path, volumes })
    }

    /// How many volumes it is for.
    pub fn count(&self) -> usize {
        self.volumes.len()
    }

    /// The image that the volumes were registered to, where it lies next to the list.
    pub fn reference(&self) -> Option<PathBuf> {
        Some(self.path.with_file_name(REFERENCE)).filter(|path| path.is_file())
    }

    /// All files that it names, and itself.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        [&self.path].into_iter().chain(self.volumes.iter().flatten()).map(PathBuf::as_path)
    }

    /// The files of one volume, in the order in which a point goes through them.
    ///
    /// # Errors
    /// [`Error::InFile`] for a volume that the list does not have.
    pub fn of(&self, volume: usize) -> Result<&[PathBuf]> {
        let found = self.volumes.get(volume).map(Vec::as_slice);
        found.ok_or_else(|| {
            let what = format!("the list has transforms of {} volumes, from 0", self.count());
            let fix = "give the list of this series";
            Error::in_file(&self.path)(Error::invalid(what, format_args!("volume {volume}"), fix))
        })
    }

    /// The map from the reference to one volume.
    ///
    /// # Errors
    /// Those of [`SeriesTransforms::of`] and of reading.
    pub fn map(&self, volume: usize, device: &Device) -> Result<PlaneChain> {
        let files = self.of(volume)?.iter();
        files.into_iter().try_fold(PlaneChain::default(), |map, file| map.then_file(file, device))
    }
}

/// Where the displacement of a volume lies, relative to the folder of the series.
fn warp_name(volume: usize) -> String {
    format!("{FOLDER}/{volume:04}_warp.nii.gz")
}

fn affine_name(volume: usize) -> String {
    format!("{FOLDER}/{volume:04}_affine.txt")
}

impl SeriesTransforms {
    /// Every file that a series of so many volumes may write into a folder for its transforms.
    pub fn names(folder: &Path, volumes: usize, deforms: bool) -> Vec<PathBuf> {
        let warps = (0..if deforms { volumes } else { 0 }).map(warp_name);
        let names = (0..volumes).map(affine_name).chain(warps).map(|name| folder.join(name));
        std::iter::once(folder.join(TRANSFORMS)).chain(names).collect()
    }

    /// Writes the displacement of a volume, while it is in memory ([`SeriesObserver::found`](super::SeriesObserver::found)).
    ///
    /// # Errors
    /// Those of writing.
    pub fn write_warp(folder: &Path, volume: usize, found: &Registration) -> Result<()> {
        make(&folder.join(FOLDER))?;
        found.warp.as_ref().map_or(Ok(()), |warp| warp.write(folder.join(warp_name(volume))))
    }
}

fn make(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|source| Error::io(folder, "create", source))
}

impl SeriesRegistration {
    /// Writes the linear maps as files of ITK, and the list of all transforms, into a folder. Displacements were written
    /// when they were found; a volume without one has that of the volume whose transform it has.
    ///
    /// # Errors
    /// Those of writing.
    pub fn write_transforms(&self, folder: &Path) -> Result<SeriesTransforms> {
        make(&folder.join(FOLDER))?;
        let mut list = String::from("volume,transform\n");
        for (k, volume) in self.volumes.iter().enumerate() {
            write_affine(folder.join(affine_name(k)), &volume.affine)?;
            let warp = warp_name(volume.transform_of);
            let warp = if folder.join(&warp).exists() { warp + ";" } else { String::new() };
            let _ = writeln!(list, "{k},{warp}{}", affine_name(k));
        }
        write_text(&folder.join(TRANSFORMS), &list)?;
        SeriesTransforms::read(folder)
    }

    /// The motion as a table with tabs between its columns: six numbers of each volume, its framewise displacement, its
    /// loss, its verdict, and what speaks against it.
    pub fn table(&self) -> String {
        let mut text = String::from(
            "volume\trotation_x_rad\trotation_y_rad\trotation_z_rad\ttranslation_x_mm\ttranslation_y_mm\t\
             translation_z_mm\tframewise_displacement_mm\tloss\ttransform_of\tverdict\treasons\n",
        );
        for (k, volume) in self.volumes.iter().enumerate() {
            let VolumeResult { motion, framewise_displacement_mm, transform_of, .. } = volume;
            let _ = write!(text, "{k}");
            for value in motion.rotations_rad.iter().chain(&motion.translations_mm) {
                let _ = write!(text, "\t{value:.9}");
            }
            let loss = volume.loss.map_or("n/a".to_string(), |loss| format!("{loss:.6}"));
            let verdict = match volume.verdict {
                Verdict::Aligned => "aligned",
                Verdict::Doubtful => "doubtful",
                Verdict::Failed => "failed",
            };
            let _ = writeln!(
                text,
                "\t{framewise_displacement_mm:.6}\t{loss}\t{transform_of}\t{verdict}\t{}",
                volume.reasons.join("; ").replace(['\t', '\n'], " ")
            );
        }
        text
    }

    /// Writes the volumes of a file as the transforms of a list show them on the grid of the reference: one 4-D image of
    /// float32, in the intensities of the volumes. Voxels that are not finite become 0; what is said about them is
    /// returned.
    ///
    /// # Errors
    /// Those of reading and writing, and as [`FileWarp::write_each`].
    pub fn write_warped(
        &self,
        series: &Path,
        output: &Path,
        transforms: &SeriesTransforms,
        background: f32,
        device: &Device,
    ) -> Result<Vec<String>> {
        let warp = FileWarp::open(series)?.background(background).non_finite(NonFiniteVoxels::Zero);
        let mut map = |volume: usize| transforms.map(volume, device);
        let last = warp.write_each(&mut map, self.grid(), device, output)?;
        let warnings = last.warnings.clone();
        last.finish()?;
        Ok(warnings)
    }
}
