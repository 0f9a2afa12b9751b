//! Values in files: `FOLDER/NAMESPACE/KEY`, both as hashes.
//!
//! A file is written under another name and renamed, so that it is whole, whoever reads it and whatever process writes it at the
//! same time. It begins with its checksum: a damaged one is not there. What nobody has read for long is removed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::{Error, Result};

/// Kernels of programs that were built anew are never asked for again.
const KEPT_UNREAD: Duration = Duration::from_secs(60 * 24 * 60 * 60);
/// How exactly it is known when a file was last read.
const READ_WITHIN: Duration = Duration::from_secs(24 * 60 * 60);

/// A value with its key, and where it came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    pub origin: i64,
}

impl Entry {
    fn to_bytes(&self, namespace: &str) -> Vec<u8> {
        let mut bytes = vec![0; 8];
        bytes.extend(self.origin.to_le_bytes());
        for part in [namespace.as_bytes(), &self.key, &self.value] {
            bytes.extend((part.len() as u64).to_le_bytes());
            bytes.extend(part);
        }
        let checksum = hash(&bytes[8..]) as u64;
        bytes[..8].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// `None` for what is damaged or of another namespace.
    fn from_bytes(bytes: &[u8], namespace: &str) -> Option<Self> {
        let (checksum, rest) = number(bytes)?;
        if hash(rest) as u64 != checksum {
            return None;
        }
        let (origin, rest) = number(rest)?;
        let (of, rest) = part(rest)?;
        let (key, rest) = part(rest)?;
        let (value, rest) = part(rest)?;
        let whole = rest.is_empty() && of == namespace.as_bytes();
        whole.then(|| Self { key: key.to_vec(), value: value.to_vec(), origin: origin as i64 })
    }
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*number), rest))
}

fn part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = number(bytes)?;
    rest.split_at_checked(usize::try_from(length).ok()?)
}

/// FNV-1a, 128 bits: two keys that share one are told apart by what the file holds.
fn hash(bytes: &[u8]) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(BASIS, |hash, &byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}

/// The folder.
#[derive(Clone, Debug)]
pub struct Files {
    folder: PathBuf,
    read_only: bool,
}

impl Files {
    /// # Errors
    /// When the folder cannot be made, or is not there and may not be.
    pub fn open(folder: PathBuf, read_only: bool) -> Result<Self> {
        let files = Self { folder, read_only };
        match read_only {
            true if !files.folder.is_dir() => {
                return Err(Error::IoError(io::ErrorKind::NotFound, "opening the folder"));
            }
            true => {}
            false => {
                fs::create_dir_all(&files.folder).map_err(failed("making the folder"))?;
                files.forget_unread();
            }
        }
        Ok(files)
    }

    /// A value, if it is there.
    pub fn get(&self, namespace: &str, key: &[u8]) -> Option<Entry> {
        let path = self.place(namespace, key);
        let entry = Entry::from_bytes(&fs::read(&path).ok()?, namespace)?;
        if !self.read_only && age(&path).is_some_and(|age| age > READ_WITHIN) {
            let _ = File::options().append(true).open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        }
        (entry.key == key).then_some(entry)
    }

    /// All values of a namespace.
    pub fn all(&self, namespace: &str) -> Vec<Entry> {
        let read = |path: PathBuf| Entry::from_bytes(&fs::read(path).ok()?, namespace);
        paths(&self.namespace(namespace)).into_iter().filter_map(read).collect()
    }

    /// Keeps a value in the place of another.
    pub fn put(&self, namespace: &str, entry: &Entry) -> Result<()> {
        self.write(&self.place(namespace, &entry.key), &entry.to_bytes(namespace))
    }

    /// Removes a value, if it is there.
    pub fn remove(&self, namespace: &str, key: &[u8]) -> Result<()> {
        self.writable()?;
        gone(fs::remove_file(self.place(namespace, key)))
    }

    /// Removes all values of a namespace.
    pub fn remove_namespace(&self, namespace: &str) -> Result<()> {
        self.writable()?;
        gone(fs::remove_dir_all(self.namespace(namespace)))
    }

    /// Removes all values.
    pub fn remove_all(&self) -> Result<()> {
        self.writable()?;
        let folders = paths(&self.folder).into_iter().filter(|path| path.is_dir());
        folders.into_iter().try_for_each(|folder| gone(fs::remove_dir_all(folder)))
    }

    /// A word about the folder itself.
    pub fn meta(&self, key: &str) -> Option<String> {
        fs::read_to_string(self.meta_place(key)).ok()
    }

    /// Says it.
    pub fn set_meta(&self, key: &str, value: &str) -> Result<()> {
        self.write(&self.meta_place(key), value.as_bytes())
    }

    fn meta_place(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{:032x}.meta", hash(key.as_bytes())))
    }

    fn namespace(&self, namespace: &str) -> PathBuf {
        self.folder.join(format!("{:032x}", hash(namespace.as_bytes())))
    }

    fn place(&self, namespace: &str, key: &[u8]) -> PathBuf {
        self.namespace(namespace).join(format!("{:032x}", hash(key)))
    }

    fn writable(&self) -> Result<()> {
        match self.read_only {
            true => Err(Error::IoError(io::ErrorKind::PermissionDenied, "opened to be read")),
            false => Ok(()),
        }
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        self.writable()?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let part = path.with_extension(format!("{}-{number}.part", std::process::id()));
        let folder = path.parent().unwrap_or(&self.folder);
        let written = fs::create_dir_all(folder)
            .and_then(|()| fs::write(&part, bytes))
            .and_then(|()| fs::rename(&part, path));
        written.map_err(|error| {
            let _ = fs::remove_file(&part);
            failed("writing a value")(error)
        })
    }

    fn forget_unread(&self) {
        for folder in paths(&self.folder).into_iter().filter(|path| path.is_dir()) {
            for path in paths(&folder) {
                if age(&path).is_some_and(|age| age > KEPT_UNREAD) {
                    let _ = fs::remove_file(path);
                }
            }
        }
    }
}

/// Since it was last written, or known to be read.
fn age(path: &Path) -> Option<Duration> {
    fs::metadata(path).and_then(|data| data.modified()).ok()?.elapsed().ok()
}

/// What a folder holds; nothing where there is none.
fn paths(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Removed, by whomever.
fn gone(removed: io::Result<()>) -> Result<()> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("removing values")(error)),
        _ => Ok(()),
    }
}

fn failed(doing: &'static str) -> impl Fn(io::Error) -> Error {
    move |error| Error::IoError(error.kind(), doing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &str, value: usize, origin: i64) -> Entry {
        Entry { key: key.into(), value: vec![7; value], origin }
    }

    #[test]
    fn values_come_back_and_damaged_ones_are_not_there() {
        let folder = std::env::temp_dir().join(format!("kept-{}", std::process::id()));
        let files = Files::open(folder.clone(), false).expect("writable");
        for (namespace, key, value) in [("a", "k", 5), ("b", "k", 0), ("a", "", 70_000)] {
            files.put(namespace, &entry(key, value, 0)).expect("writable");
        }
        let again = Files::open(folder.clone(), true).expect("there");
        assert_eq!(again.get("a", b"k"), Some(entry("k", 5, 0)));
        assert_eq!(again.get("b", b"k"), Some(entry("k", 0, 0)));
        assert_eq!(again.get("b", b""), None);
        assert_eq!(again.all("a").len(), 2);
        assert!(again.put("a", &entry("k", 1, 0)).is_err(), "opened to be read");
        let path = files.place("a", b"k");
        let mut bytes = fs::read(&path).expect("there");
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(&path, &bytes).expect("writable");
        assert_eq!(files.get("a", b"k"), None);
        fs::write(&path, &bytes[..20]).expect("writable");
        assert_eq!(files.get("a", b"k"), None);
        files.remove_namespace("a").expect("writable");
        assert_eq!((files.all("a").len(), files.all("b").len()), (0, 1));
        let old = File::options().append(true).open(files.place("b", b"k")).expect("there");
        old.set_modified(SystemTime::now() - 2 * KEPT_UNREAD).expect("settable");
        Files::open(folder.clone(), false).expect("writable");
        assert_eq!(files.all("b").len(), 0, "nobody has read it for long");
        fs::remove_dir_all(folder).expect("ours");
    }
}
