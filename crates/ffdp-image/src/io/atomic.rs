//! Files that appear whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile, TempDir};

use super::zarr_name::{address, dataset_folder, holds_zarr, is_zarr_name};
use crate::error::{Error, Result};

/// Writes `path` through a temporary file in the same folder: write, fsync, rename.
///
/// Until the rename the final name keeps its old content; a failed or killed run leaves it so. An
/// existing file is replaced (see [`check_not_an_input`]).
///
/// # Errors
/// [`Error::Io`] naming the step that failed; the temporary file is removed.
pub fn write_atomically(
    path: &Path,
    content: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
) -> Result<()> {
    let temporary = temporary_beside(path)?;
    let mut writer = BufWriter::with_capacity(1 << 20, temporary.as_file());
    content(&mut writer)
        .and_then(|()| writer.flush())
        .map_err(|source| Error::io(path, "write", source))?;
    drop(writer);
    put_in_place(temporary, path)
}

/// Writes a text as [`write_atomically`] does.
///
/// # Errors
/// As [`write_atomically`].
pub fn write_text(path: &Path, text: &str) -> Result<()> {
    write_atomically(path, |file| file.write_all(text.as_bytes()))
}

fn put_in_place(temporary: NamedTempFile, path: &Path) -> Result<()> {
    temporary.as_file().sync_all().map_err(|source| Error::io(path, "flush to disk", source))?;
    temporary.persist(path).map_err(|failed| Error::io(path, "rename into place", failed.error))?;
    // The rename itself is durable once the folder is. Not every file system lets a folder be
    // synced; the file is complete either way.
    if let Ok(folder) = File::open(folder_of(path)) {
        let _ = folder.sync_all();
    }
    Ok(())
}

/// A file under a temporary name beside its final one; dropped before [`AtomicFile::commit`], it
/// leaves nothing.
pub(super) struct AtomicFile {
    path: PathBuf,
    temporary: NamedTempFile,
}

impl AtomicFile {
    pub fn create(path: &Path) -> Result<Self> {
        Ok(Self { path: path.to_path_buf(), temporary: temporary_beside(path)? })
    }

    /// To disk, then under the final name, whose old content is replaced.
    pub fn commit(self) -> Result<()> {
        put_in_place(self.temporary, &self.path)
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.temporary.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.temporary.flush()
    }
}

/// A folder under a temporary name beside its final one; dropped before [`AtomicFolder::commit`], it leaves nothing.
pub(super) struct AtomicFolder {
    path: PathBuf,
    temporary: TempDir,
}

impl AtomicFolder {
    /// Of an OME-Zarr; an older one may be there.
    pub fn create(path: &Path) -> Result<Self> {
        let kind = match path.is_dir() {
            _ if address(path).is_some() => Some(io::ErrorKind::ReadOnlyFilesystem),
            _ if !path.exists() => None,
            true if holds_zarr(path) => None,
            true => Some(io::ErrorKind::IsADirectory),
            false => Some(io::ErrorKind::AlreadyExists),
        };
        if let Some(kind) = kind {
            return Err(Error::io(path, "create", kind.into()));
        }
        Ok(Self { path: path.to_path_buf(), temporary: temporary_folder(path, ".part")? })
    }

    /// Where its files are until then.
    pub fn path(&self) -> &Path {
        self.temporary.path()
    }

    /// Under the final name, in the place of an older folder.
    pub fn commit(self) -> Result<()> {
        let failed = |source| Error::io(&self.path, "rename into place", source);
        // A folder cannot be renamed over another one: the old one goes first.
        let old = self.path.exists().then(|| temporary_folder(&self.path, ".old.part"));
        let old = old.transpose()?;
        if let Some(old) = &old {
            fs::rename(&self.path, old.path().join("old")).map_err(failed)?;
        }
        fs::rename(self.temporary.keep(), &self.path).map_err(failed)?;
        if let Ok(folder) = File::open(folder_of(&self.path)) {
            let _ = folder.sync_all();
        }
        Ok(())
    }
}

fn temporary_folder(path: &Path, suffix: &str) -> Result<TempDir> {
    let failed = |source| Error::io(path, "create", source);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let folder = Builder::new()
        .prefix(&format!(".{name}."))
        .suffix(suffix)
        .tempdir_in(folder_of(path))
        .map_err(failed)?;
    // Temporary folders are private by default, results are as others that are made here.
    #[cfg(unix)]
    {
        let plain = folder.path().join("plain");
        fs::create_dir(&plain).map_err(failed)?;
        let permissions = fs::metadata(&plain).map_err(failed)?.permissions();
        fs::remove_dir(&plain).map_err(failed)?;
        fs::set_permissions(folder.path(), permissions).map_err(failed)?;
    }
    Ok(folder)
}

/// Demands that a file can be created beside `path`: to be called before the work, not after.
///
/// # Errors
/// [`Error::Io`] when the folder is missing or may not be written to, or `path` is a folder.
pub fn check_writable(path: &Path) -> Result<()> {
    match is_zarr_name(path) {
        true => AtomicFolder::create(path).map(drop),
        false => temporary_beside(path).map(drop),
    }
}

/// Demands that writing `output` would not overwrite one of `inputs`, also not through a symbolic
/// or hard link.
///
/// # Errors
/// [`Error::Invalid`] naming the input.
pub fn check_not_an_input(output: &Path, inputs: &[&Path]) -> Result<()> {
    match inputs.iter().find(|input| same_file(output, input)) {
        None => Ok(()),
        Some(input) => Err(Error::invalid(
            "an output must not overwrite an input",
            format_args!("{} for input {}", output.display(), input.display()),
            "choose another output name",
        )),
    }
}

fn temporary_beside(path: &Path) -> Result<NamedTempFile> {
    if path.is_dir() {
        return Err(Error::io(path, "create", io::ErrorKind::IsADirectory.into()));
    }
    let Some(name) = path.file_name() else {
        return Err(Error::invalid("an output must name a file", path, "give a file name"));
    };
    let prefix = format!(".{}.", name.to_string_lossy());
    let mut builder = Builder::new();
    builder.prefix(&prefix).suffix(".part");
    // Temporary files are private by default, results follow the user's umask.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder_of(path)).map_err(|source| Error::io(path, "create", source))
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

#[cfg(unix)]
fn same_file(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    // Of an image in an OME-Zarr, the folder.
    match (fs::metadata(dataset_folder(a)), fs::metadata(dataset_folder(b))) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false, // a file that does not exist cannot be overwritten
    }
}

#[cfg(not(unix))]
fn same_file(a: &Path, b: &Path) -> bool {
    match (fs::canonicalize(dataset_folder(a)), fs::canonicalize(dataset_folder(b))) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("result.bin");
        write_atomically(&path, |w| w.write_all(b"old")).unwrap();
        let failure = write_atomically(&path, |w| {
            w.write_all(&[7; 5_000_000])?;
            Err(io::Error::other("disk on fire"))
        });
        let message = failure.unwrap_err().to_string();
        assert!(message.contains("result.bin") && message.contains("disk on fire"), "{message}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        write_atomically(&path, |w| w.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn results_are_not_private() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (ours, plain) = (folder.path().join("ours"), folder.path().join("plain"));
        write_atomically(&ours, |w| w.write_all(b"x")).unwrap();
        fs::write(&plain, b"x").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&ours), mode(&plain));
    }

    #[test]
    fn unwritable_places_are_found_at_the_start() {
        let folder = tempfile::tempdir().unwrap();
        assert!(check_writable(&folder.path().join("a.nii")).is_ok());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let missing = check_writable(&folder.path().join("missing/a.nii"));
        assert!(missing.unwrap_err().to_string().contains("missing/a.nii"));
        assert!(check_writable(folder.path()).is_err());
    }

    #[test]
    fn outputs_may_not_be_inputs_under_any_name() {
        let folder = tempfile::tempdir().unwrap();
        let input = folder.path().join("fixed.nii");
        let other = folder.path().join("other.nii");
        fs::write(&input, b"x").unwrap();
        assert!(check_not_an_input(&other, &[&input]).is_ok());
        fs::write(&other, b"x").unwrap();
        assert!(check_not_an_input(&other, &[&input]).is_ok());
        let detour = folder.path().join(".").join("fixed.nii");
        let message = check_not_an_input(&detour, &[&other, &input]).unwrap_err().to_string();
        assert!(message.contains("must not overwrite an input"), "{message}");
        #[cfg(unix)]
        {
            let (soft, hard) = (folder.path().join("soft.nii"), folder.path().join("hard.nii"));
            std::os::unix::fs::symlink(&input, &soft).unwrap();
            fs::hard_link(&input, &hard).unwrap();
            assert!(check_not_an_input(&soft, &[&input]).is_err());
            assert!(check_not_an_input(&hard, &[&input]).is_err());
        }
    }
}
