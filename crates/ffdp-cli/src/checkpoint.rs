//! `checkpoint/state`: what a run has reached, on disk, for `--resume`.
//!
//! The file is the length of a header, the header in MessagePack (which keeps every bit of a float) and its digest, then the
//! values of its fields as f32 in the order of the header and of the machine, and their digest: the SHA-256 of those of
//! blocks, which all cores make while the values are written.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use ffdp_image::Error;
use ffdp_image::image::{Affine, Geometry};
use ffdp_image::io::{check_disk, write_atomically};
use ffdp_register::{
    Settings,
    checkpoint::{Checkpoint, SavedField},
    report::{LevelReport, StageReport},
};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::failure::{Failure, Result};
use crate::hash::Hash;
use crate::interrupt::at_interrupt;
use crate::leftovers::remove_leftovers;
use crate::printer::Printer;

/// What decides the result of a run: only a run with the same may go on from a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Identity {
    ffdp_version: String,
    /// As `--device` has it.
    device: String,
    fixed_sha256: String,
    moving_sha256: String,
    /// Of the masks of both.
    masks_sha256: [Option<String>; 2],
    /// How the images were read: volume and NaN policy.
    reading: String,
    /// As settings.toml has them.
    settings: String,
}

/// What an [`Identity`] is made of, while files are still being hashed.
#[derive(Clone)]
pub struct Identified {
    pub device: String,
    /// Of the fixed and the moving image.
    pub images: [Hash; 2],
    pub masks: [Option<Hash>; 2],
    pub reading: String,
    pub settings: String,
}

impl Identified {
    /// Waits for the hashes.
    fn identity(&self) -> Result<Identity> {
        let Self { device, images: [fixed, moving], masks: [of_fixed, of_moving], .. } = self;
        let mask = |mask: &Option<Hash>| mask.as_ref().map(Hash::get).transpose();
        Ok(Identity {
            ffdp_version: env!("CARGO_PKG_VERSION").to_string(),
            device: device.clone(),
            fixed_sha256: fixed.get()?,
            moving_sha256: moving.get()?,
            masks_sha256: [mask(of_fixed)?, mask(of_moving)?],
            reading: self.reading.clone(),
            settings: self.settings.clone(),
        })
    }
}

impl Identity {
    /// What of it is another here than in the checkpoint, for people.
    fn differences(&self, saved: &Self) -> Vec<&'static str> {
        let same = [
            ("the version of ffdp", self.ffdp_version == saved.ffdp_version),
            ("the device", self.device == saved.device),
            ("the fixed image", self.fixed_sha256 == saved.fixed_sha256),
            ("the moving image", self.moving_sha256 == saved.moving_sha256),
            ("the masks", self.masks_sha256 == saved.masks_sha256),
            ("--volume or --nan-policy", self.reading == saved.reading),
            ("the settings", self.settings == saved.settings),
        ];
        same.into_iter().filter(|(_, same)| !same).map(|(what, _)| what).collect()
    }
}

/// The header of the file.
#[derive(Serialize, Deserialize)]
struct Header {
    identity: Identity,
    stages: Vec<StageReport>,
    affine: [[f64; 4]; 3],
    found: Vec<Grid>,
    levels: Vec<LevelReport>,
    carried: Vec<Grid>,
}

/// A geometry with every bit: composing it again from a matrix would round.
#[derive(Serialize, Deserialize)]
struct Grid {
    size: [usize; 3],
    spacing_mm: [f64; 3],
    origin_mm: [f64; 3],
    direction: [[f64; 3]; 3],
}

impl From<&Geometry> for Grid {
    fn from(geometry: &Geometry) -> Self {
        let Geometry { size, spacing_mm, origin_mm, direction } = geometry.clone();
        Self { size, spacing_mm, origin_mm, direction }
    }
}

impl From<Grid> for Geometry {
    fn from(grid: Grid) -> Self {
        let Grid { size, spacing_mm, origin_mm, direction } = grid;
        Self { size, spacing_mm, origin_mm, direction }
    }
}

/// The folder of a run's checkpoint.
#[derive(Clone, Debug)]
pub struct CheckpointFolder {
    folder: PathBuf,
}

impl CheckpointFolder {
    /// Inside the output folder.
    pub fn in_folder(output: &Path) -> Self {
        Self { folder: output.join("checkpoint") }
    }

    /// The output folder.
    fn output(&self) -> &Path {
        self.folder.parent().unwrap_or(&self.folder)
    }

    /// What a run goes on from.
    pub fn file(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// Whether an unfinished run has left something.
    pub fn exists(&self) -> bool {
        self.file().exists()
    }

    /// Removes what is there: the run is complete, or begins anew.
    pub fn clear(&self) -> Result<()> {
        let failed = |source| Error::io(&self.folder, "remove", source);
        if self.exists() {
            fs::remove_file(self.file()).map_err(failed)?;
        }
        remove_leftovers(&self.file());
        at_interrupt(None);
        // Only ours: a folder that holds something else, or is not there, stays as it is.
        let _ = fs::remove_dir(&self.folder);
        Ok(())
    }

    /// Where a run goes on from, if it is to `resume` and there is something; `None` to start anew.
    ///
    /// # Errors
    /// As [`CheckpointFolder::load`].
    pub fn start(
        &self,
        resume: bool,
        run: &Identified,
        settings: &Settings,
        printer: Printer,
    ) -> Result<Option<Checkpoint>> {
        match (resume, self.exists()) {
            (true, true) => {
                let found = self.load(&run.identity()?, settings)?;
                let (stages, levels) = (found.stages.len(), found.levels.len());
                printer.note(&format!("going on after {stages} stages and {levels} levels"));
                Ok(Some(found))
            }
            (true, false) => {
                printer.note("there is no checkpoint to go on from: starting anew");
                Ok(None)
            }
            (false, true) => {
                printer.warning(
                    "the checkpoint of an unfinished run is dropped; --resume would go on from it",
                );
                Ok(None)
            }
            (false, false) => Ok(None),
        }
    }

    /// The checkpoint, if it is of the same run.
    ///
    /// # Errors
    /// When the file is damaged, or of a run with other inputs or settings.
    fn load(&self, identity: &Identity, settings: &Settings) -> Result<Checkpoint> {
        let mut reader = Reader::open(self.file())?;
        let header = reader.header()?;
        let differences = identity.differences(&header.identity);
        if !differences.is_empty() {
            return Err(Failure::user(
                format!(
                    "{} is of another run: {} changed since",
                    reader.path.display(),
                    differences.join(", ")
                ),
                "give the same files and flags as before, or run without --resume, with --overwrite, to \
                 start anew",
            ));
        }
        let [found, carried] = reader.fields([header.found, header.carried])?;
        let named = |(saved, stage): (StageReport, &ffdp_register::Stage)| StageReport {
            transform: stage.name(),
            ..saved
        };
        Ok(Checkpoint {
            stages: header.stages.into_iter().zip(&settings.stages).map(named).collect(),
            affine: Affine::from_rows(header.affine),
            found,
            levels: header.levels,
            carried,
        })
    }

    fn save(&self, identity: &Identity, checkpoint: &Checkpoint) -> Result<()> {
        let grid = |field: &SavedField| Grid::from(field.geometry());
        let header = Header {
            identity: identity.clone(),
            stages: checkpoint.stages.clone(),
            affine: *checkpoint.affine.rows(),
            found: checkpoint.found.iter().map(grid).collect(),
            levels: checkpoint.levels.clone(),
            carried: checkpoint.carried.iter().map(grid).collect(),
        };
        let header = rmp_serde::to_vec_named(&header)
            .map_err(|reason| Failure::defect(format!("the checkpoint's header: {reason}")))?;
        fs::create_dir_all(&self.folder)
            .map_err(|source| Error::io(&self.folder, "create", source))?;
        Ok(write_atomically(&self.file(), |file| {
            file.write_all(&(header.len() as u64).to_le_bytes())?;
            file.write_all(&header)?;
            file.write_all(&Sha256::digest(&header))?;
            let mut hash = Sha256::new();
            for field in checkpoint.found.iter().chain(&checkpoint.carried) {
                for planes in SavedField::runs(field.geometry()) {
                    let values = field.planes(planes).map_err(io::Error::other)?;
                    let bytes: &[u8] = bytemuck::cast_slice(&values);
                    let digests = thread::scope(|scope| {
                        let made = scope.spawn(|| digests(bytes));
                        file.write_all(bytes)?;
                        Ok::<_, io::Error>(made.join().unwrap_or_else(|panic| resume_unwind(panic)))
                    })?;
                    digests.iter().for_each(|digest| hash.update(digest));
                }
            }
            file.write_all(&hash.finalize())
        })?)
    }
}

/// A file that is read from its beginning to its end.
struct Reader {
    path: PathBuf,
    file: File,
}

impl Reader {
    fn open(path: PathBuf) -> Result<Self> {
        let file = File::open(&path).map_err(|source| Error::io(&path, "read", source))?;
        Ok(Self { path, file })
    }

    fn damaged(&self, reason: &str) -> Failure {
        let message = format!("{}: the checkpoint is damaged: {reason}", self.path.display());
        Failure::user(message, "run without --resume to start anew")
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.file.read_exact(bytes).map_err(|reason| match reason.kind() {
            io::ErrorKind::UnexpectedEof => self.damaged("it is too short"),
            _ => Error::io(&self.path, "read", reason).into(),
        })
    }

    /// Compares the digest that comes next with that of what came before.
    fn check(&mut self, hash: Sha256, wrong: &str) -> Result<()> {
        let mut digest = [0; 32];
        self.read(&mut digest)?;
        match hash.finalize().as_slice() == digest {
            true => Ok(()),
            false => Err(self.damaged(wrong)),
        }
    }

    fn header(&mut self) -> Result<Header> {
        let metadata = self.file.metadata();
        let file_bytes = metadata.map_err(|source| Error::io(&self.path, "read", source))?.len();
        let mut length = [0; 8];
        self.read(&mut length)?;
        let length = u64::from_le_bytes(length);
        if length > file_bytes {
            return Err(self.damaged("it is too short"));
        }
        let mut header = vec![0; length as usize];
        self.read(&mut header)?;
        let hash = Sha256::new_with_prefix(&header);
        self.check(hash, "the checksum of its header does not match")?;
        rmp_serde::from_slice(&header).map_err(|reason| self.damaged(&reason.to_string()))
    }

    /// The fields on these grids, those of the first list before those of the second.
    fn fields(&mut self, lists: [Vec<Grid>; 2]) -> Result<[Vec<SavedField>; 2]> {
        let mut hash = Sha256::new();
        let mut fields = [Vec::new(), Vec::new()];
        for (fields, grids) in fields.iter_mut().zip(lists) {
            for grid in grids {
                fields.push(self.field(grid, &mut hash)?);
            }
        }
        self.check(hash, "its checksum does not match")?;
        Ok(fields)
    }

    fn field(&mut self, grid: Grid, hash: &mut Sha256) -> Result<SavedField> {
        let geometry = Geometry::from(grid);
        let plane = 3 * geometry.size[0] * geometry.size[1];
        SavedField::read(geometry, |planes| {
            let mut values = vec![0.0f32; plane * planes.len()];
            let bytes = bytemuck::cast_slice_mut::<f32, u8>(&mut values);
            self.read(bytes)?;
            digests(bytes).iter().for_each(|digest| hash.update(digest));
            Ok::<_, Failure>(values)
        })
    }
}

/// Bytes of a block with a digest of its own.
const BLOCK: usize = 1 << 22;

/// The SHA-256 of each block.
fn digests(bytes: &[u8]) -> Vec<[u8; 32]> {
    bytes.par_chunks(BLOCK).map(|block| Sha256::digest(block).into()).collect()
}

/// Saves what a run reaches, not more often than is worth it.
pub struct Keeper {
    place: CheckpointFolder,
    run: Identified,
    interval: Duration,
    /// Of the disk, for the results: a checkpoint does not take their room.
    results_bytes: u64,
    last: Instant,
    printer: Printer,
}

impl Keeper {
    /// Saves into `place`, when `interval` has passed since the last time or since now, as long as that leaves the
    /// disk room for results of about `results_bytes`.
    pub fn new(
        place: CheckpointFolder,
        run: Identified,
        interval: Duration,
        results_bytes: u64,
        printer: Printer,
    ) -> Self {
        at_interrupt(Some(
            "interrupted before the first checkpoint (--checkpoint-every SECONDS): the same command begins anew",
        ));
        Self { place, run, interval, results_bytes, last: Instant::now(), printer }
    }

    /// Whether it is time to save.
    pub fn is_due(&self) -> bool {
        self.last.elapsed() >= self.interval
    }

    /// Saves it, where the folder is `ready` for it; says whether it was. What cannot be saved is no reason to end the
    /// run.
    pub fn keep(&mut self, ready: Result<()>, checkpoint: &Checkpoint) -> bool {
        let saved = ready.and_then(|()| {
            let bytes = fields_bytes(checkpoint) + self.results_bytes;
            check_disk("the checkpoint next to the results", self.place.output(), bytes)?;
            self.place.save(&self.run.identity()?, checkpoint)
        });
        self.last = Instant::now();
        match &saved {
            Ok(()) => at_interrupt(Some(
                "interrupted: a checkpoint is kept; the same command with --resume goes on from it",
            )),
            Err(reason) => {
                self.printer.warning(&format!("no checkpoint was saved: {reason}"));
            }
        }
        saved.is_ok()
    }
}

/// Bytes of the fields, which are nearly all of a checkpoint.
fn fields_bytes(checkpoint: &Checkpoint) -> u64 {
    let fields = checkpoint.found.iter().chain(&checkpoint.carried);
    fields.map(|field| 12 * field.geometry().len() as u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_does_not_take_the_disk_space_of_the_results() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = CheckpointFolder::in_folder(folder.path());
        let image = folder.path().join("image");
        fs::write(&image, "an image").expect("writable");
        let run = Identified {
            device: String::new(),
            images: [Hash::begin(&image), Hash::begin(&image)],
            masks: [None, None],
            reading: String::new(),
            settings: String::new(),
        };
        let reached = Checkpoint {
            stages: Vec::new(),
            affine: Affine::identity(),
            found: Vec::new(),
            levels: Vec::new(),
            carried: Vec::new(),
        };
        for (results_bytes, kept) in [(u64::MAX / 2, false), (0, true)] {
            let (place, run) = (place.clone(), run.clone());
            let printer = Printer::new(true, false);
            let mut keeper = Keeper::new(place, run, Duration::ZERO, results_bytes, printer);
            assert_eq!(keeper.keep(Ok(()), &reached), kept);
            assert_eq!(folder.path().join("checkpoint/state").exists(), kept);
        }
    }
}
