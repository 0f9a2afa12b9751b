//! Other processes of a program that compile its kernels, while it begins with its work.
//!
//! A process compiles one kernel at a time. Where kernels are kept on disk (`keep_kernels`), processes that run at the
//! same time find each other's there: a program that is started again for a part of the work, with the same
//! arguments, compiles the kernels of that part. What the part computes means nothing.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::available_parallelism;

#[cfg(feature = "persistence")]
use crate::kernels::are_kept;

/// Names the part to the process that helps.
const PART: &str = "FFDP_REHEARSAL";

/// The part that this process was started for, if it was started to help.
pub fn part() -> Option<String> {
    std::env::var(PART).ok()
}

/// The processor cores of this process; 1 where that is not known.
pub fn cores() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// A process that does a part. It is ended with this, unless it has ended by then; how is ignored.
#[derive(Debug)]
pub struct Helper(Child);

impl Helper {
    /// Starts this program again, with its arguments, for a part ([`part`]); it reads and prints nothing. `None` where
    /// that cannot be done.
    pub fn start(part: &str) -> Option<Self> {
        let mut command = Command::new(std::env::current_exe().ok()?);
        command.args(std::env::args_os().skip(1)).env(PART, part);
        Self::run(command)
    }

    fn run(mut command: Command) -> Option<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().ok().map(Self)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // Its memory on the device is needed now.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A file that says that the kernels of a run are kept: of this build of the program. What depends on sizes is compiled
/// when it is met.
#[derive(Debug)]
pub struct Note {
    path: PathBuf,
    run: String,
}

impl Note {
    /// That of what `run` describes, its device included; to be asked once the device is open. `None` where nothing is kept.
    pub fn of(run: &str) -> Option<Self> {
        if !are_kept() {
            return None;
        }
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
        let program = std::env::current_exe().and_then(fs::metadata).ok()?;
        let build = (program.len(), program.modified().ok()?);
        Some(Self::within(cache?.join("ffdp/rehearsed"), format!("{build:?} {run}")))
    }

    fn within(folder: PathBuf, run: String) -> Self {
        let mut hasher = DefaultHasher::new();
        run.hash(&mut hasher);
        Self { path: folder.join(format!("{:016x}", hasher.finish())), run }
    }

    /// Whether it was written.
    pub fn exists(&self) -> bool {
        fs::read_to_string(&self.path).is_ok_and(|run| run == self.run)
    }

    /// Writes it. Where that fails, the next run rehearses again.
    pub fn write(&self) {
        let _ = self.path.parent().map(fs::create_dir_all);
        let _ = fs::write(&self.path, &self.run);
    }
}

#[cfg(not(feature = "persistence"))]
fn are_kept() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_note_is_of_one_run() {
        let name = format!("ffdp-notes-{}", std::process::id());
        let folder = std::env::temp_dir().join(name).join("rehearsed");
        let note = |run: &str| Note::within(folder.clone(), run.to_string());
        assert!(!note("greedy").exists());
        note("greedy").write();
        assert!(note("greedy").exists() && !note("syn").exists());
        // Another run whose name is that of a file by chance.
        fs::write(note("greedy").path, "svf").expect("the folder is there");
        assert!(!note("greedy").exists());
        fs::remove_dir_all(folder.parent().expect("it has one")).expect("it was made above");
        assert_eq!(Note::of("greedy").is_some(), are_kept());
    }

    #[cfg(unix)]
    #[test]
    fn helpers_that_cannot_start_fail_or_hang_are_done_with() {
        assert!(Helper::run(Command::new("/no/such/program")).is_none());
        drop(Helper::run(Command::new("false")).expect("every system has it"));
        let mut hanging = Command::new("sleep");
        hanging.arg("600");
        let begun = Instant::now();
        drop(Helper::run(hanging).expect("every system has it"));
        assert!(begun.elapsed() < Duration::from_secs(300), "it was waited for");
    }
}
