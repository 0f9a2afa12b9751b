//! `manifest.json`: which files of an output folder belong to the run in it, so that no folder holds
//! results of two runs.
//!
//! Read [`Claim`] first. A run claims its folder before it reads its images, and is refused where the folder
//! holds results of another run. When its first file is to be written it removes what the earlier run has left,
//! lists the files that it may write (`unfinished`), and in the end those that it has written (`complete`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use ffdp_image::Error;
use ffdp_image::io::{check_not_an_input, is_zarr_name, write_text};
use serde::{Deserialize, Serialize};

use crate::disk::ResultFolder;
use crate::failure::{Failure, Result};
use crate::file_version::FileVersion;
use crate::json::to_json;
use crate::leftovers::remove_leftovers;
use crate::printer::Printer;
use crate::time::{unix_seconds, utc};

/// The name of the file.
pub const MANIFEST: &str = "manifest.json";

/// What a run left unfinished goes on from, relative to the folder.
const CHECKPOINT: &str = "checkpoint/state";

/// Files about a run that are no result of it: a folder that holds nothing else may be used again.
const RECORDS: [&str; 2] = ["settings.toml", "log.jsonl"];

/// What `register` and `predict` have always written, for folders without a list.
const KNOWN: [&str; 13] = [
    "warped.nii.gz",
    "affine.txt",
    "affine.mat",
    "warp.nii.gz",
    "inverse_warp.nii.gz",
    "bspline.tfm",
    "warped_labels.nii.gz",
    "report.html",
    "metrics.json",
    "statistics.json",
    CHECKPOINT,
    RECORDS[0],
    RECORDS[1],
];

/// What decides the results of a run, by name. Two runs with the same are one run, repeated.
pub type Identity = BTreeMap<&'static str, String>;

/// A path as a [`Identity`] has it: the same file has the same, whatever the current folder.
pub fn place(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()).display().to_string()
}

/// Files by their [`place`], as they were when they were to be read; without those behind an address.
pub type Inputs = BTreeMap<String, FileVersion>;

/// The files as they are now.
pub fn inputs<'a>(files: impl IntoIterator<Item = &'a Path>) -> Inputs {
    let files = files.into_iter();
    files.filter_map(|file| Some((place(file), FileVersion::of(file)?))).collect()
}

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is under way, has failed or was killed: the list has what it may have written.
    Unfinished,
    /// The list has what it has written.
    Complete,
}

/// The content of the file.
#[derive(Clone, Debug, Serialize)]
pub struct Manifest {
    program: &'static str,
    command: &'static str,
    /// When the run began, UTC.
    time: String,
    state: State,
    request: Identity,
    /// What is read, as it was when the run claimed its folder.
    inputs: Inputs,
    /// Relative to the folder.
    files: Vec<String>,
}

/// What of a manifest is read again. Those of older versions have fewer entries.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Earlier {
    program: String,
    command: String,
    time: String,
    state: Option<State>,
    request: BTreeMap<String, String>,
    inputs: Inputs,
    files: Vec<String>,
}

/// What is done about results of another run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// The folder is refused.
    Refuse,
    /// They are removed.
    Overwrite,
    /// Their checkpoint is gone on from, if it is of the same run; without one the folder is refused.
    Resume,
}

/// A run that claims a folder.
#[derive(Clone, Debug)]
pub struct ClaimingRun<'a> {
    /// The name of its command.
    pub command: &'static str,
    /// What decides its results.
    pub identity: Identity,
    /// The files that it may write, which lie in the folder.
    pub files: &'a [&'a Path],
    /// The files that it reads.
    pub inputs: &'a [&'a Path],
}

/// A run's right to a folder.
#[derive(Clone, Debug)]
pub struct Claim {
    folder: PathBuf,
    manifest: Manifest,
    /// What an earlier run has left, relative to the folder.
    earlier: BTreeSet<String>,
}

impl Claim {
    /// The claim of a run to the folder.
    ///
    /// # Errors
    /// When the folder holds results of another run and `existing` does not allow for it, when an input of the run
    /// would have to be removed, or when a `manifest.json` is not ours.
    pub fn new(folder: &Path, run: ClaimingRun, existing: Existing) -> Result<Self> {
        let ClaimingRun { command, identity, files, inputs } = run;
        let manifest = Manifest {
            program: concat!("ffdp ", env!("CARGO_PKG_VERSION")),
            command,
            time: utc(unix_seconds()),
            state: State::Unfinished,
            request: identity,
            inputs: self::inputs(inputs.iter().copied()),
            files: files.iter().map(|file| relative(folder, file)).collect(),
        };
        let there = Earlier::read(folder)?;
        let known = known(folder);
        let listed = there.as_ref().map(|there| there.files.clone()).unwrap_or_default();
        let listed: BTreeSet<String> =
            listed.into_iter().filter(|file| folder.join(file).exists()).collect();
        let unlisted = known.iter().any(|file| !listed.contains(file) && is_result(file));
        let earlier: BTreeSet<String> = listed.into_iter().chain(known).collect();
        // A run that ended early has left nothing that is worth keeping, unless it can be gone on with.
        let abandoned = there.as_ref().is_some_and(|there| {
            there.state == Some(State::Unfinished) && there.command == command
        });
        let abandoned = abandoned && !unlisted && !earlier.contains(CHECKPOINT);
        let repeated = !unlisted && there.as_ref().is_some_and(|there| there.is_of(&manifest));
        let resumed = existing == Existing::Resume && earlier.contains(CHECKPOINT);
        let allowed = repeated || abandoned || resumed || existing == Existing::Overwrite;
        if !allowed && earlier.iter().any(|file| is_result(file)) {
            return Err(refused(folder, there.as_ref(), &manifest, &earlier));
        }
        for file in &earlier {
            check_not_an_input(&folder.join(file), inputs)?;
        }
        Ok(Self { folder: folder.to_path_buf(), manifest, earlier })
    }

    /// Whether [`Claim::begin`] would remove no result of an earlier run, except those in `kept`.
    pub fn removes_nothing(&self, kept: &[&Path]) -> bool {
        let kept: Vec<String> = kept.iter().map(|file| relative(&self.folder, file)).collect();
        self.earlier.iter().all(|file| kept.contains(file) || !is_result(file))
    }

    /// Removes what the earlier run has left, but the files in `kept`, and says that this one is under way.
    pub fn begin(&self, kept: &[&Path]) -> Result<()> {
        let kept: Vec<String> = kept.iter().map(|file| relative(&self.folder, file)).collect();
        remove_leftovers(&self.folder.join(MANIFEST));
        for file in self.earlier.iter().filter(|file| !kept.contains(file)) {
            let path = self.folder.join(file);
            remove_leftovers(&path);
            match remove_result(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(Error::io(&path, "remove the earlier run's", error).into());
                }
                _ => {}
            }
            // A folder that is not empty stays.
            for parent in path.ancestors().skip(1).take_while(|parent| *parent != self.folder) {
                if fs::remove_dir(parent).is_err() {
                    break;
                }
            }
        }
        self.write(&self.manifest)
    }

    /// Whether the results of the very run that has this claim are there, complete, of its inputs as they are now. Where
    /// an input was changed since, that is reported: the run is to be done again.
    pub fn is_done(&self, printer: Printer) -> Result<bool> {
        let there = Earlier::read(&self.folder)?.filter(|there| {
            there.state == Some(State::Complete)
                && there.is_of(&self.manifest)
                && there.files.iter().all(|file| self.folder.join(file).exists())
        });
        let Some(there) = there else { return Ok(false) };
        let changed = self.changed_inputs(&there);
        if !changed.is_empty() {
            let (folder, changed) = (self.folder.display(), changed.join(", "));
            printer.warning(&format!(
                "{folder}: changed since its results were made: {changed}; it is done again"
            ));
        }
        Ok(changed.is_empty())
    }

    /// The inputs that are not as an earlier run has read them. One that this run did not list is of an older version: it
    /// is compared with the time of the list.
    fn changed_inputs(&self, there: &Earlier) -> Vec<String> {
        let listed = FileVersion::of(&self.folder.join(MANIFEST));
        let is_newer =
            |now: &FileVersion| listed.is_some_and(|list| now.modified_ns > list.modified_ns);
        let is_changed = |(file, now): &(&String, &FileVersion)| match there.inputs.get(*file) {
            Some(then) => then != *now,
            None => is_newer(now),
        };
        let changed = self.manifest.inputs.iter().filter(is_changed);
        changed.map(|(file, _)| file.clone()).collect()
    }

    /// The folder, where what the earlier run has left is removed.
    pub fn result_folder(&self, ignores_disk: bool) -> ResultFolder<'_> {
        let bytes =
            |file: &String| fs::metadata(self.folder.join(file)).map_or(0, |data| data.len());
        let freed_bytes = self.earlier.iter().map(bytes).sum();
        ResultFolder { path: &self.folder, freed_bytes, ignores_disk }
    }

    /// Says that the run is complete, and which files it has written.
    pub fn complete(self) -> Result<()> {
        self.write(&self.completed())
    }

    /// The list of a complete run.
    pub fn completed(&self) -> Manifest {
        let mut manifest = self.manifest.clone();
        manifest.state = State::Complete;
        manifest.files.retain(|file| self.folder.join(file).exists());
        manifest
    }

    fn write(&self, manifest: &Manifest) -> Result<()> {
        Ok(write_text(&self.folder.join(MANIFEST), &to_json(manifest)?)?)
    }
}

impl Earlier {
    /// `None` where there is none.
    fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(MANIFEST);
        let text = match fs::read(&path) {
            Ok(text) => text,
            // What is no folder is refused when the run makes it.
            Err(error)
                if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(Error::io(&path, "read", error).into()),
        };
        let ours = serde_json::from_slice::<Self>(&text).ok();
        let Some(there) = ours.filter(|there| there.program.starts_with("ffdp ")) else {
            return Err(Failure::user(
                format!(
                    "{}: this list was not written by ffdp, and would be replaced",
                    path.display()
                ),
                "choose another output folder, or rename the file",
            ));
        };
        let leads_out = |file: &&String| {
            let inside = |part| matches!(part, Component::Normal(_));
            file.is_empty() || !Path::new(file).components().all(inside)
        };
        match there.files.iter().find(leads_out) {
            None => Ok(Some(there)),
            Some(file) => Err(Failure::user(
                format!("{}: it names {file:?}, which is no file of this folder", path.display()),
                "choose another output folder, or remove the file",
            )),
        }
    }

    /// Whether it is of the same run.
    fn is_of(&self, new: &Manifest) -> bool {
        self.command == new.command && self.differences(&new.request).is_empty()
    }

    fn differences(&self, request: &Identity) -> Vec<String> {
        let names: BTreeSet<&str> =
            self.request.keys().map(String::as_str).chain(request.keys().copied()).collect();
        let other = |name: &&str| self.request.get(*name) != request.get(*name);
        names.into_iter().filter(other).map(str::to_string).collect()
    }
}

fn refused(
    folder: &Path,
    there: Option<&Earlier>,
    new: &Manifest,
    files: &BTreeSet<String>,
) -> Failure {
    let resume = match files.contains(CHECKPOINT) {
        true => ", or go on with that run: its own arguments and --resume",
        false => "",
    };
    let folder = folder.display();
    let help = format!(
        "add --overwrite to run it again in their place, or choose another output folder{resume}"
    );
    match there.filter(|there| !there.files.is_empty()) {
        Some(Earlier { command, time, .. }) if command == new.command => {
            let differences =
                there.map(|there| there.differences(&new.request)).unwrap_or_default();
            let other = match &differences[..] {
                [] => "with other files".to_string(),
                all => format!("with other {}", all.join(", ")),
            };
            Failure::outdated(
                format!("{folder}: the results here are of an earlier run ({time}) {other}"),
                help,
            )
        }
        Some(Earlier { command, time, .. }) => Failure::user(
            format!(
                "{folder}: this folder holds the results of another run (ffdp {command}, {time})"
            ),
            help,
        ),
        None => {
            let some: Vec<&str> =
                files.iter().filter(|file| is_result(file)).take(3).map(String::as_str).collect();
            let some = some.join(", ");
            Failure::user(
                format!(
                    "{folder}: this folder holds results of another run ({some}), without a list of its files"
                ),
                help,
            )
        }
    }
}

/// Removes a file, or the folder that an OME-Zarr is.
fn remove_result(path: &Path) -> std::io::Result<()> {
    match is_zarr_name(path) && path.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    }
}

/// Whether it would be mistaken for a result of another run.
fn is_result(file: &str) -> bool {
    !RECORDS.contains(&file)
}

/// With slashes, whatever the system's separator; a file that lies elsewhere by its name.
fn relative(folder: &Path, file: &Path) -> String {
    let parts = file.strip_prefix(folder).unwrap_or(file).components();
    let parts: Vec<_> = parts.map(|part| part.as_os_str().to_string_lossy()).collect();
    parts.join("/")
}

/// Files in a folder that any command may have written, by their names.
fn known(folder: &Path) -> BTreeSet<String> {
    let mut files: BTreeSet<String> =
        KNOWN.into_iter().filter(|name| folder.join(name).is_file()).map(String::from).collect();
    for name in names(folder) {
        let resolution = name.strip_suffix("mm").is_some_and(|mm| mm.parse::<f64>().is_ok());
        if !resolution && name != "warps" {
            continue;
        }
        let made = |file: &String| {
            file == "pairs.csv" || file.starts_with("subject-") && file.contains(".nii")
        };
        let inside = names(&folder.join(&name)).into_iter().filter(made);
        files.extend(inside.map(|file| format!("{name}/{file}")));
    }
    files
}

/// Of what a folder holds; names that are no text are none of ours.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    /// A claim of a run that is known by `settings`.
    fn claim(folder: &Path, settings: &str, existing: Existing) -> Result<Claim> {
        let identity = Identity::from([("settings", settings.to_string())]);
        let files = ["warp.nii.gz", "warped.nii.gz", "settings.toml"].map(|name| folder.join(name));
        let files = files.each_ref().map(PathBuf::as_path);
        let run = ClaimingRun { command: "register", identity, files: &files, inputs: &[] };
        Claim::new(folder, run, existing)
    }

    /// A run that writes the warped image alone.
    fn run(folder: &Path, settings: &str, existing: Existing) -> Result<()> {
        let claim = claim(folder, settings, existing)?;
        claim.begin(&[])?;
        for name in ["warped.nii.gz", "settings.toml"] {
            fs::write(folder.join(name), settings).expect("writable");
        }
        claim.complete()
    }

    #[test]
    fn a_repeated_run_replaces_its_results_and_another_one_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        run(folder, "a", Existing::Refuse).expect("empty");
        run(folder, "a", Existing::Refuse).expect("the same");
        for existing in [Existing::Refuse, Existing::Resume] {
            let refused = run(folder, "b", existing).expect_err("another run");
            assert!(refused.to_string().contains("with other settings"), "{refused}");
            assert!(refused.help_text().is_some_and(|help| help.contains("--overwrite")));
        }
        let content = fs::read_to_string(folder.join("warped.nii.gz")).expect("still there");
        assert_eq!(content, "a");
        run(folder, "b", Existing::Overwrite).expect("it was asked for");
        // A result that nobody has listed would be taken for one of this run.
        fs::write(folder.join("warp.nii.gz"), "of others").expect("writable");
        let refused = run(folder, "b", Existing::Refuse).expect_err("one too many");
        assert!(refused.to_string().contains("with other files"), "{refused}");
        run(folder, "b", Existing::Overwrite).expect("it was asked for");
        assert!(!folder.join("warp.nii.gz").exists());
    }

    #[test]
    fn a_run_that_has_written_no_result_leaves_a_free_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        claim(folder, "a", Existing::Refuse).and_then(|claim| claim.begin(&[])).expect("empty");
        fs::write(folder.join("settings.toml"), "a").expect("writable");
        claim(folder, "b", Existing::Refuse).expect("nothing is lost");
        fs::create_dir(folder.join("checkpoint")).expect("writable");
        fs::write(folder.join(CHECKPOINT), "").expect("writable");
        let refused = claim(folder, "b", Existing::Refuse).expect_err("a checkpoint would be lost");
        assert!(refused.help_text().is_some_and(|help| help.contains("--resume")));
        // Whether it is of the same run, the checkpoint knows.
        claim(folder, "b", Existing::Resume).expect("it is asked");
        run(folder, "b", Existing::Overwrite).expect("it was asked for");
        assert!(!folder.join("checkpoint").exists());
    }

    #[test]
    fn lists_of_others_and_files_of_others_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        for foreign in [r#"{"name": "a page"}"#, "[]", "no JSON"] {
            fs::write(folder.join(MANIFEST), foreign).expect("writable");
            let refused = claim(folder, "a", Existing::Overwrite).expect_err(foreign);
            assert!(refused.to_string().contains("not written by ffdp"), "{refused}");
        }
        for file in ["../a", "/a", ""] {
            let text = format!(r#"{{"program": "ffdp 0.1.0", "files": ["{file}"]}}"#);
            fs::write(folder.join(MANIFEST), text).expect("writable");
            let refused = claim(folder, "a", Existing::Overwrite).expect_err(file);
            assert!(refused.to_string().contains("no file of this folder"), "{refused}");
        }
        fs::remove_file(folder.join(MANIFEST)).expect("ours");
        fs::write(folder.join("notes.txt"), "mine").expect("writable");
        fs::create_dir(folder.join("warps")).expect("writable");
        fs::write(folder.join("warps/mine.nii"), "").expect("writable");
        fs::write(folder.join("warps/subject-000_warp.nii.gz"), "").expect("writable");
        claim(folder, "a", Existing::Refuse).expect_err("a data set is there");
        run(folder, "a", Existing::Overwrite).expect("it was asked for");
        assert!(folder.join("notes.txt").exists() && folder.join("warps/mine.nii").exists());
        assert!(!folder.join("warps/subject-000_warp.nii.gz").exists());
    }

    #[test]
    fn a_list_that_was_half_written_when_its_run_was_killed_goes() {
        let folder = tempfile::tempdir().expect("a folder");
        let left = folder.path().join(format!(".{MANIFEST}.a1b2c3.part"));
        fs::write(&left, "{").expect("writable");
        let claim = claim(folder.path(), "a", Existing::Refuse).expect("no result is there");
        assert!(left.exists(), "a claim removes nothing");
        claim.begin(&[]).expect("writable");
        assert!(!left.exists());
    }

    #[test]
    fn results_of_an_input_that_was_rewritten_in_place_are_not_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let (out, input) = (folder.path().join("out"), folder.path().join("fixed.nii"));
        fs::create_dir(&out).expect("writable");
        fs::write(&input, "before").expect("writable");
        let claim = || {
            let identity = Identity::from([("fixed", place(&input))]);
            let warped = out.join("warped.nii.gz");
            let (files, inputs) = ([warped.as_path()], [input.as_path()]);
            let run = ClaimingRun { command: "register", identity, files: &files, inputs: &inputs };
            Claim::new(&out, run, Existing::Refuse).expect("its own folder")
        };
        let is_done = || claim().is_done(Printer::new(true, false)).expect("a list");
        let done = || {
            let claim = claim();
            claim.begin(&[]).expect("writable");
            fs::write(out.join("warped.nii.gz"), "a result").expect("writable");
            claim.complete().expect("writable");
        };
        assert!(!is_done(), "nothing was done");
        done();
        assert!(is_done());
        fs::write(&input, "after it").expect("writable");
        assert!(!is_done(), "another size");
        done();
        assert!(is_done());
        let (now, minute) = (SystemTime::now(), Duration::from_secs(60));
        let change_at = |time| {
            let file = fs::File::options().write(true).open(&input).expect("writable");
            file.set_modified(time).expect("a time of the file system");
        };
        change_at(now + minute);
        assert!(!is_done(), "the same size at another time");
        done();
        // The list of an older version has no inputs: one that is newer than the list is another one.
        let text = fs::read_to_string(out.join(MANIFEST)).expect("written");
        let mut list: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        list.as_object_mut().expect("an object").remove("inputs");
        fs::write(out.join(MANIFEST), list.to_string()).expect("writable");
        assert!(!is_done(), "newer than the list");
        change_at(now - minute);
        assert!(is_done(), "older than the list");
    }

    #[test]
    fn an_input_is_never_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        run(folder, "a", Existing::Refuse).expect("empty");
        let input = folder.join("warped.nii.gz");
        let (identity, inputs) = (Identity::new(), [input.as_path()]);
        let run = ClaimingRun { command: "predict", identity, files: &[], inputs: &inputs };
        let claim = Claim::new(folder, run, Existing::Overwrite);
        let refused = claim.expect_err("it is read").to_string();
        assert!(refused.contains("overwrite an input"), "{refused}");
    }
}
