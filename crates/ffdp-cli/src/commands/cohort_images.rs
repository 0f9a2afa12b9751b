//! Images of a group by a list or by their names: what `ffdp template` and `ffdp fuse` take.

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};

use ffdp_groups::{Images, Subject};
use ffdp_image::image::Geometry;
use ffdp_image::io::FileList;
use ffdp_image::io::images::header;

use super::input::{Reading, image_and_warnings, labels_on};
use crate::failure::{Failure, Result};
use crate::file_version::FileVersion;
use crate::manifest::place;
use crate::pairs::{name_of, stem};
use crate::printer::Printer;

/// The images of a group, read when they are needed.
pub struct ImageFiles {
    entries: Vec<Entry>,
    reading: Reading,
}

/// An image and its labels.
struct Entry {
    name: String,
    image: PathBuf,
    labels: Option<PathBuf>,
}

impl ImageFiles {
    /// Of a list, in each of whose lines the `required` columns name something, or of files. A line that is there twice
    /// counts once, and is reported.
    ///
    /// # Errors
    /// Those of the list; names that are the same or cannot be those of folders.
    pub fn new(
        list: Option<&Path>,
        files: &[PathBuf],
        required: &[&str],
        reading: Reading,
        printer: Printer,
    ) -> Result<Self> {
        let entries = match list {
            Some(list) => listed(list, required, printer)?,
            None => {
                let entry = |file: &PathBuf| {
                    (0, Entry { name: stem(file), image: file.clone(), labels: None })
                };
                files.iter().map(entry).collect()
            }
        };
        let about = |failure: Failure| match list {
            Some(list) => failure.about(list),
            None => failure,
        };
        Ok(Self { entries: distinct(entries, printer).map_err(about)?, reading })
    }

    /// All files.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.entries.iter().flat_map(|Entry { image, labels, .. }| {
            [Some(image), labels.as_ref()].into_iter().flatten().map(PathBuf::as_path)
        })
    }

    /// The names, which can be those of folders.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name.as_str())
    }

    /// The file of an image.
    pub fn image(&self, index: usize) -> &Path {
        &self.entries[index].image
    }

    /// Demands an image of several volumes, one of these or `target`, where a volume is chosen.
    ///
    /// # Errors
    /// As [`Reading::check_volume`].
    pub fn check_volume(&self, target: Option<&Path>) -> Result<()> {
        let images = self.entries.iter().map(|entry| &*entry.image);
        self.reading.check_volume(images.chain(target))
    }

    /// Whether there are labels.
    pub fn has_labels(&self) -> bool {
        self.entries.iter().any(|entry| entry.labels.is_some())
    }

    /// The grids of the images whose headers can be read.
    pub fn grids(&self) -> Vec<Geometry> {
        let grid = |entry: &Entry| header(&entry.image).ok().map(|header| header.geometry);
        self.entries.iter().filter_map(grid).collect()
    }
}

impl Images for ImageFiles {
    fn count(&self) -> usize {
        self.entries.len()
    }

    fn name(&self, index: usize) -> String {
        self.entries[index].name.clone()
    }

    fn version(&self, index: usize) -> String {
        let Entry { name, image, labels } = &self.entries[index];
        let versions = [Some(image), labels.as_ref()].into_iter().flatten();
        let versions: Vec<_> = versions.map(|file| FileVersion::of(file)).collect();
        format!("{name} {versions:?}")
    }

    fn read(&self, index: usize) -> ffdp_image::Result<Subject> {
        let Entry { image: file, labels, .. } = &self.entries[index];
        let refused = |failure: Failure| {
            let help = failure.help_text().map(|help| format!("; {help}")).unwrap_or_default();
            ffdp_image::Error::io(file, "use", io::Error::other(format!("{failure}{help}")))
        };
        let (image, _) = image_and_warnings(file, self.reading).map_err(refused)?;
        let labels = labels.as_ref().map(|labels| labels_on(labels, &image.geometry, file));
        Ok(Subject { image, labels: labels.transpose().map_err(refused)? })
    }
}

/// The lines of a list, with their numbers.
fn listed(list: &Path, required: &[&str], printer: Printer) -> Result<Vec<(u64, Entry)>> {
    let FileList { rows, ignored } = FileList::read(list, required)?;
    if !ignored.is_empty() {
        let (list, ignored) = (list.display(), ignored.join(", "));
        printer.note(&format!("{list}: columns that are not known are ignored: {ignored}"));
    }
    let entry = |row: &ffdp_image::io::FileRow| {
        let image = row.file("image").expect("it is required");
        (row.line, Entry { name: name_of(row), image, labels: row.file("labels") })
    };
    Ok(rows.iter().map(entry).collect())
}

/// Those with names of their own.
fn distinct(entries: Vec<(u64, Entry)>, printer: Printer) -> Result<Vec<Entry>> {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    let mut kept: Vec<Entry> = Vec::new();
    for (line, entry) in entries {
        let at = if line > 0 { format!("line {line}: ") } else { String::new() };
        let mut parts = Path::new(&entry.name).components();
        if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
            let what = format!("{at}{:?} cannot be the name of a folder", entry.name);
            return Err(Failure::user(what, "name the image by a column `name`"));
        }
        let file = place(&entry.image);
        if let Some(first) = files.get(&file) {
            printer.warning(&format!(
                "{at}{} is there already, as {first}: left out",
                entry.image.display()
            ));
            continue;
        }
        if let Some(same) = kept.iter().find(|kept| kept.name == entry.name) {
            let (a, b) = (same.image.display(), entry.image.display());
            let what = format!("{at}two images are both {}: {a} and {b}", entry.name);
            return Err(Failure::user(what, "distinguish images by a column `name` of a list"));
        }
        files.insert(file, entry.name.clone());
        kept.push(entry);
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nan_policy::NanPolicy;

    fn read(text: &str) -> Result<ImageFiles> {
        let folder = tempfile::tempdir().expect("a folder");
        let list = folder.path().join("images.csv");
        std::fs::write(&list, text).expect("writable");
        let reading = Reading { volume: None, nan_policy: NanPolicy::Error };
        ImageFiles::new(Some(&list), &[], &["image"], reading, Printer::new(true, false))
    }

    #[test]
    fn a_line_that_is_there_twice_counts_once_and_names_differ() {
        let files = read("image,labels,name\na.nii.gz,s.nii,\nb.nii,,second\na.nii.gz,,again\n");
        let files = files.expect("well formed");
        assert_eq!(files.names().collect::<Vec<_>>(), ["a", "second"]);
        assert!(files.has_labels() && files.files().count() == 3);
        for (text, words) in [
            ("image\nx/a.nii\ny/a.nii\n", ["both a", "line 3"]),
            ("image,name\na.nii,../a\n", ["name of a folder", "line 2"]),
        ] {
            let failure = read(text).err().expect(text).to_string();
            assert!(words.iter().all(|word| failure.contains(word)), "{failure}");
        }
    }
}
