//! What a file held, in 64 letters.

use std::io::{self, Read};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};

use ffdp_image::Error;
use ffdp_image::io::images::{files, open_file};
use sha2::{Digest, Sha256};

use crate::failure::Result;
use crate::in_parallel::has_many_cores;

/// The SHA-256 of a file, worked on by a thread while others go on: a large file takes longer to hash than to read. Where
/// cores are few, the work is done when it is asked for. When the last copy is dropped, the thread ends.
#[derive(Clone)]
pub struct Hash(Arc<Work>);

struct Work {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<Result<String>>>>,
    /// `None` of a file that could not be read.
    done: OnceLock<Option<String>>,
}

impl Hash {
    /// Begins with a file, as [`sha256`] takes it.
    pub fn begin(path: &Path) -> Self {
        let Self(work) = Self::later(path);
        if has_many_cores() {
            let (until, file) = (work.stop.clone(), work.path.clone());
            let thread = thread::Builder::new().spawn(move || sha256_unless(&until, &file));
            *work.thread.lock().unwrap_or_else(PoisonError::into_inner) = thread.ok();
        }
        Self(work)
    }

    /// Does nothing until it is asked.
    pub fn later(path: &Path) -> Self {
        let (path, done) = (path.to_path_buf(), OnceLock::new());
        Self(Arc::new(Work { path, stop: Arc::default(), thread: Mutex::default(), done }))
    }

    /// The hash; waits for it.
    ///
    /// # Errors
    /// As [`sha256`].
    pub fn get(&self) -> Result<String> {
        let Work { path, thread, done, .. } = &*self.0;
        let found = done.get_or_init(|| {
            let thread = thread.lock().unwrap_or_else(PoisonError::into_inner).take();
            let joined = thread.map(|thread| thread.join().unwrap_or_else(|e| resume_unwind(e)));
            joined.unwrap_or_else(|| sha256(path)).ok()
        });
        // What went wrong is found again.
        found.clone().map_or_else(|| sha256(path), Ok)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The SHA-256 of a file, in hexadecimal, as `sha256sum` prints it; of an image in several files (a pair `.hdr/.img`, a
/// level of an OME-Zarr), that of all one after the other; of an OME-Zarr behind an address, that of its metadata.
pub fn sha256(path: &Path) -> Result<String> {
    sha256_unless(&AtomicBool::new(false), path)
}

/// The same; of what was read by then, once `stop` is set.
fn sha256_unless(stop: &AtomicBool, path: &Path) -> Result<String> {
    let mut hash = Sha256::new();
    for file in files(path)? {
        let mut from = Unless { stop, from: open_file(&file)? };
        take(&mut from, &mut hash).map_err(|source| Error::io(&file, "read", source))?;
    }
    Ok(hexadecimal(&hash.finalize()))
}

/// Ends where its source does, or when it is stopped.
struct Unless<'a, R> {
    stop: &'a AtomicBool,
    from: R,
}

impl<R: Read> Read for Unless<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.load(Ordering::Relaxed) { Ok(0) } else { self.from.read(buffer) }
    }
}

/// Takes all that there is to read.
fn take(from: &mut dyn Read, hash: &mut Sha256) -> io::Result<()> {
    let mut block = vec![0; 1 << 20];
    loop {
        match from.read(&mut block)? {
            0 => return Ok(()),
            n => hash.update(&block[..n]),
        }
    }
}

/// The SHA-256 of a text.
pub fn sha256_of(text: &str) -> String {
    hexadecimal(&Sha256::digest(text))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_sha256sum() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("abc");
        std::fs::write(&path, "abc").expect("writable");
        // FIPS 180-2, appendix B.1.
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(&path).expect("readable"), expected);
        assert_eq!(Hash::begin(&path).get().expect("readable"), expected);
        let absent = Hash::begin(&folder.path().join("absent"));
        let refused = absent.get().expect_err("it is not there").to_string();
        assert!(refused.contains("absent"), "{refused}");
        assert_eq!(absent.get().expect_err("still").to_string(), refused);
    }

    #[cfg(unix)]
    #[test]
    fn what_has_no_end_is_hashed_until_it_is_refused() {
        let refused = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let hash = scope.spawn(|| sha256_unless(&refused, Path::new("/dev/zero")));
            std::thread::sleep(std::time::Duration::from_millis(20));
            refused.store(true, Ordering::Relaxed);
            assert!(hash.join().expect("no panic").is_ok());
        });
    }
}
