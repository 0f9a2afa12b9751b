//! `--data`: from a path to a data set whose files fit together.

use std::path::Path;
use std::sync::Arc;

use ffdp_image::image::{Affine, Geometry};
use ffdp_image::io::images::header;
use ffdp_image::io::{FileList, csv_records};
use ffdp_image::{Error, Result};

use super::prepare::placement;
use super::{Dataset, Pair, Part, Preparation, Subject, Training, images, pairs};
use crate::settings::Settings;

/// Least part of the fixed grid that the moving grid must cover.
const REQUIRED_OVERLAP_PERCENT: f64 = 25.0;

/// The data set at `path`: a list of images, or a folder with `pairs.csv`, with `images.csv`, or of
/// images alone. Headers are read, so that what does not fit is said before the training.
///
/// # Errors
/// Files that cannot be read or do not fit together.
pub fn open(settings: &Settings, path: &Path) -> Result<Dataset> {
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new("")) };
    let pair_list = folder.join("pairs.csv");
    let image_list = if path.is_dir() { folder.join("images.csv") } else { path.to_path_buf() };
    let is_listed = pair_list.exists() && path.is_dir() || image_list.exists();
    if settings.hold_out > 0 && is_listed {
        let given = format!("--hold-out {}", settings.hold_out);
        let fix = "write validation in the column part of some lines";
        return Err(Error::without_effect(given, "a list says what is held out", fix));
    }
    let parts = if path.is_dir() && pair_list.exists() {
        if let Some(pairs) = settings.pairs {
            let because = "pairs.csv lists the pairs of an epoch";
            let fix = "list images of which pairs are drawn (images.csv)";
            return Err(Error::without_effect(format!("--pairs {pairs}"), because, fix));
        }
        let list = FileList::read(&pair_list, &pairs::REQUIRED)?;
        pairs::of_list(&list).and_then(Parts::of_pairs).map_err(Error::in_file(&pair_list))
    } else if image_list.exists() {
        let list = FileList::read(&image_list, &images::REQUIRED)?;
        let subjects = images::of_list(&list);
        subjects
            .and_then(|subjects| Parts::of_images(subjects, settings))
            .map_err(Error::in_file(&image_list))
    } else {
        let subjects = images::in_folder(folder, settings.hold_out)?;
        Parts::of_images(subjects, settings).map_err(Error::in_file(folder))
    }?;
    let preparation = Preparation::new(settings)?;
    parts.check(&preparation)?;
    let (fixed, _) = geometries(&parts.first())?;
    let grid = preparation.grid(&fixed)?;
    let Parts { training, validation, held_out, is_held_out } = parts;
    Ok(Dataset {
        training,
        validation,
        held_out,
        is_held_out,
        evaluated_labels: read_labels(folder)?,
        preparation: Arc::new(preparation),
        size: grid.size,
        axes: grid.axis_codes(),
        origin: path.display().to_string(),
    })
}

/// What is trained on and what is looked at.
struct Parts {
    training: Training,
    validation: Vec<Pair>,
    held_out: Vec<Pair>,
    is_held_out: bool,
}

impl Parts {
    fn of_pairs(rows: Vec<(Pair, Part)>) -> Result<Self> {
        let of = |part| -> Vec<Pair> {
            let rows = rows.iter().filter(|(_, of)| *of == part);
            rows.map(|(pair, _)| pair.clone()).collect()
        };
        let training = of(Part::Train);
        if training.is_empty() {
            let fix = "write train in the column part of some lines";
            return Err(Error::invalid("at least one pair must be trained on", 0, fix));
        }
        let validation = of(Part::Validation);
        Ok(Self::with_defaults(
            Training::Pairs(training.clone()),
            training,
            validation,
            of(Part::Test),
        ))
    }

    fn of_images(rows: Vec<(Subject, Part)>, settings: &Settings) -> Result<Self> {
        let of = |part| -> Vec<Subject> {
            let rows = rows.iter().filter(|(_, of)| *of == part);
            rows.map(|(subject, _)| subject.clone()).collect()
        };
        let subjects = of(Part::Train);
        if subjects.len() < 2 {
            let what = "at least two images must be trained on";
            return Err(Error::invalid(what, subjects.len(), "list more images"));
        }
        let look_at = |part, name: &str| match of(part)[..] {
            [_] => {
                let what = format!("two or more images for {name}, or none");
                Err(Error::invalid(what, 1, "any two of them form a pair"))
            }
            ref subjects => Ok(images::ring(subjects)),
        };
        let (validation, test) =
            (look_at(Part::Validation, "validation")?, look_at(Part::Test, "test")?);
        let trained = images::ring(&subjects[..subjects.len().min(2)]);
        let pairs = settings.pairs.unwrap_or(subjects.len());
        let training = Training::Subjects { subjects, pairs };
        Ok(Self::with_defaults(training, trained, validation, test))
    }

    /// With few images one set serves for both, and with a single pair it is a demonstration.
    fn with_defaults(
        training: Training,
        trained: Vec<Pair>,
        mut validation: Vec<Pair>,
        mut held_out: Vec<Pair>,
    ) -> Self {
        let is_held_out = !(held_out.is_empty() && validation.is_empty());
        if held_out.is_empty() {
            held_out = if validation.is_empty() { trained.clone() } else { validation.clone() };
        }
        if validation.is_empty() {
            validation = trained[..1].to_vec();
        }
        Self { training, validation, held_out, is_held_out }
    }

    fn first(&self) -> Pair {
        match &self.training {
            Training::Pairs(pairs) => pairs[0].clone(),
            Training::Subjects { subjects, .. } => images::ring(&subjects[..2])[0].clone(),
        }
    }

    /// Every image must overlap those it is registered with; of random pairs, the first one.
    fn check(&self, preparation: &Preparation) -> Result<()> {
        let trained = match &self.training {
            Training::Pairs(pairs) => pairs.clone(),
            Training::Subjects { subjects, .. } => {
                let with_first =
                    |moving: &Subject| Pair { moving: moving.clone(), fixed: subjects[0].clone() };
                subjects[1..].iter().map(with_first).collect()
            }
        };
        for pair in trained.iter().chain(&self.validation).chain(&self.held_out) {
            let (fixed, moving) = geometries(pair)?;
            let Subject::Files { image, .. } = &pair.moving else { continue };
            let placed = placement(preparation.align, &fixed, &moving).inverse()?;
            let placed = moving.voxel_to_mm().then(&placed);
            Geometry::from_affine(moving.size, Affine::from_rows(*placed.rows()))
                .and_then(|moving| fixed.check_overlap(&moving, REQUIRED_OVERLAP_PERCENT))
                .map_err(Error::in_file(image))?;
        }
        Ok(())
    }
}

/// The grids of both images; their labels must lie on them.
fn geometries(pair: &Pair) -> Result<(Geometry, Geometry)> {
    let geometry = |subject: &Subject| match subject {
        Subject::Ready(sample) => Ok(sample.image.geometry.clone()),
        Subject::Files { image, labels } => {
            let geometry = header(image)?.geometry;
            if let Some(labels) = labels {
                let same = geometry.check_same_grid(&header(labels)?.geometry, "the label map");
                same.map_err(Error::in_file(labels))?;
            }
            Ok::<_, Error>(geometry)
        }
    };
    Ok((geometry(&pair.fixed)?, geometry(&pair.moving)?))
}

/// The label ids of `folder/labels.csv` (one a line, a heading allowed), if the file is there.
fn read_labels(folder: &Path) -> Result<Option<Vec<i32>>> {
    let path = folder.join("labels.csv");
    if !path.exists() {
        return Ok(None);
    }
    let text = std::fs::read(&path).map_err(|error| Error::io(&path, "read", error))?;
    let mut ids = Vec::new();
    for (number, (line, fields)) in
        csv_records(&text).map_err(Error::in_file(&path))?.iter().enumerate()
    {
        match fields[0].parse::<i32>() {
            Ok(id) => ids.push(id),
            Err(_) if number == 0 => {}
            Err(_) => {
                let what = format!("line {line}: a label id must be an integer");
                let error = Error::invalid(what, &fields[0], "write one id a line");
                return Err(Error::in_file(&path)(error));
            }
        }
    }
    Ok(Some(ids))
}
