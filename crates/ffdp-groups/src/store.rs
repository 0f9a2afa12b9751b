//! What a run has reached, on disk: what belongs to each image, and to each round of a template. Every file appears whole or
//! not at all, so a run that was killed goes on from the last image that was registered, and what belongs to all images is
//! never in memory.
//!
//! A file is the length of a header, the header in MessagePack (which keeps every bit of a float), and values as f32 in the
//! order of the machine.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use bytemuck::Pod;
use ffdp_image::error::{Error, Result};
use ffdp_image::image::Geometry;
use ffdp_image::io::write_atomically;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// The file with what decides the result.
const STATE: &str = "state";

/// How folders in it begin.
const ROUND: &str = "round-";

/// The folder of a run.
#[derive(Debug)]
pub(crate) struct Store {
    folder: PathBuf,
    /// Where nobody named a folder: it goes with the run.
    _temporary: Option<TempDir>,
}

impl Store {
    /// In a folder that may hold what an earlier run with the same `identity` has reached, or in a temporary one.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the folder holds another run's state; those of writing.
    pub fn open(folder: Option<&Path>, identity: &str) -> Result<Self> {
        let Some(folder) = folder else {
            let temporary = TempDir::new();
            let parent = std::env::temp_dir();
            let temporary = temporary.map_err(|source| Error::io(&parent, "create in", source))?;
            let folder = temporary.path().to_path_buf();
            return Ok(Self { folder, _temporary: Some(temporary) });
        };
        let store = Self { folder: folder.to_path_buf(), _temporary: None };
        fs::create_dir_all(folder).map_err(|source| Error::io(folder, "create", source))?;
        match store.read::<String>(STATE)? {
            None => {
                // Of a run whose identity was removed nothing can be gone on with.
                store.clear_rounds()?;
                store.write(STATE, &identity, &[])?;
            }
            Some(there) if there == identity => {}
            Some(_) => {
                return Err(Error::invalid(
                    "the state of an unfinished run must be of the same images, settings, device and version",
                    folder.display(),
                    "run it with those again, or begin anew in another folder (of the command: without --resume)",
                ));
            }
        }
        Ok(store)
    }

    /// Writes a file; one that is there is replaced.
    pub fn write<H: Serialize + ?Sized>(
        &self,
        name: &str,
        header: &H,
        parts: &[&[f32]],
    ) -> Result<()> {
        let path = self.folder.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|source| Error::io(parent, "create", source))?;
        }
        let header = rmp_serde::to_vec(header).map_err(|reason| {
            Error::invalid("the header of a state", reason.to_string(), "report this")
        })?;
        write_atomically(&path, |file| {
            file.write_all(&(header.len() as u64).to_le_bytes())?;
            file.write_all(&header)?;
            parts.iter().try_for_each(|values| file.write_all(bytemuck::cast_slice(values)))
        })
    }

    /// The header of a file; `None` where there is no such file.
    pub fn read<H: DeserializeOwned>(&self, name: &str) -> Result<Option<H>> {
        let path = self.folder.join(name);
        if !path.exists() {
            return Ok(None);
        }
        let (header, _) = self.opened(name)?;
        let header = rmp_serde::from_slice(&header);
        header.map(Some).map_err(|reason| damaged(&path, reason.to_string()))
    }

    /// Values of a file, of four bytes each, by their numbers.
    ///
    /// # Errors
    /// Those of reading, also of a file with fewer values.
    pub fn values<T: Pod>(&self, name: &str, range: Range<usize>) -> Result<Vec<T>> {
        let path = self.folder.join(name);
        let failed = |source| Error::io(&path, "read", source);
        let (_, mut file) = self.opened(name)?;
        file.seek(SeekFrom::Current(4 * range.start as i64)).map_err(failed)?;
        const { assert!(size_of::<T>() == 4, "labels are kept as values are") };
        let mut values = vec![T::zeroed(); range.len()];
        file.read_exact(bytemuck::cast_slice_mut(&mut values)).map_err(failed)?;
        Ok(values)
    }

    /// Removes a file or a folder, if it is there.
    pub fn remove(&self, name: &str) -> Result<()> {
        let path = self.folder.join(name);
        let removed = match path.is_dir() {
            true => fs::remove_dir_all(&path),
            false if path.exists() => fs::remove_file(&path),
            false => Ok(()),
        };
        removed.map_err(|source| Error::io(&path, "remove", source))
    }

    /// Removes everything that a run has kept, and the folder if nothing else is in it.
    pub fn clear(&self) -> Result<()> {
        self.clear_rounds()?;
        self.remove(STATE)?;
        let _ = fs::remove_dir(&self.folder);
        Ok(())
    }

    fn clear_rounds(&self) -> Result<()> {
        let failed = |source| Error::io(&self.folder, "list", source);
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            if let Some(name) = name.to_str().filter(|name| name.starts_with(ROUND)) {
                self.remove(name)?;
            }
        }
        self.remove("labels")
    }

    /// The header of a file that is there, and the file where its values begin.
    fn opened(&self, name: &str) -> Result<(Vec<u8>, File)> {
        let path = self.folder.join(name);
        let failed = |source| Error::io(&path, "read", source);
        let mut file = File::open(&path).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        let mut length = [0; 8];
        file.read_exact(&mut length).map_err(failed)?;
        let length = u64::from_le_bytes(length);
        if length > bytes {
            return Err(damaged(&path, format!("a header of {length} bytes in {bytes}")));
        }
        let mut header = vec![0; length as usize];
        file.read_exact(&mut header).map_err(failed)?;
        Ok((header, file))
    }
}

/// What decides the result of a run: its settings, version, device and grid, and what `images` adds.
pub(crate) fn identity(
    settings: &impl Serialize,
    device: &Device,
    grid: &Geometry,
    images: impl FnOnce(&mut Sha256),
) -> Result<String> {
    let settings = serde_json::to_string(settings).map_err(|reason| {
        Error::invalid("settings must be serializable", reason.to_string(), "report this")
    })?;
    let mut hash = Sha256::new();
    hash.update(format!("{}\n{settings}\n{device:?}\n{grid:?}\n", env!("CARGO_PKG_VERSION")));
    images(&mut hash);
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn damaged(path: &Path, reason: String) -> Error {
    let fix = "remove the folder, and begin anew";
    Error::in_file(path)(Error::invalid("the state of a run must be readable", reason, fix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_bit_by_bit() {
        let store = Store::open(None, "a run").expect("a temporary folder");
        let header = ("name".to_string(), [1.0 / 3.0, f64::MIN_POSITIVE]);
        store.write("round-01/found", &header, &[&[1.0, -0.0], &[f32::NAN]]).expect("writable");
        let read: Option<(String, [f64; 2])> = store.read("round-01/found").expect("readable");
        assert_eq!(read, Some(header));
        let values: Vec<f32> = store.values("round-01/found", 1..3).expect("there are three");
        assert!(values[0].to_bits() == (-0.0f32).to_bits() && values[1].is_nan());
        store.values::<f32>("round-01/found", 2..4).expect_err("there are three");
        assert_eq!(store.read::<String>("round-02/found").expect("no failure"), None);
        store.remove("round-01").expect("removable");
        assert_eq!(store.read::<String>("round-01/found").expect("no failure"), None);
    }

    #[test]
    fn the_state_of_another_run_and_a_damaged_one_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        Store::open(Some(folder.path()), "a run").expect("new");
        Store::open(Some(folder.path()), "a run").expect("the same");
        let refused = Store::open(Some(folder.path()), "another").expect_err("another");
        assert!(refused.to_string().contains("same images"), "{refused}");
        fs::write(folder.path().join(STATE), [255; 9]).expect("writable");
        let refused = Store::open(Some(folder.path()), "a run").expect_err("damaged");
        assert!(refused.to_string().contains("state"), "{refused}");
    }
}
