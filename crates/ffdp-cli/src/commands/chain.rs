//! `-t`: the transforms that a user lists, and the one map that they make.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use burn::tensor::Device;
use clap::builder::{OsStringValueParser, TryMapValueParser, TypedValueParser, ValueParserFactory};
use ffdp_burn::transform::{Composite, Step, read_transform};
use ffdp_groups::series::{SeriesTransforms, is_series_transform};
use ffdp_image::image::Geometry;
use ffdp_image::io::images::{files, header, open_file};
use ffdp_image::io::{FileRow, is_deforming, read_flirt, transform_files};
use ffdp_parallel::chain::PlaneChain;
use ffdp_shapes::lddmm::{Direction, Flow};

use crate::failure::{Failure, Result};
use crate::manifest::place;

/// What the help of every command with `-t` says.
pub const ORDER_HELP: &str = "\
Order of -t: list the warp, then the affine, as for antsApplyTransforms (-t warp.nii.gz -t affine.txt). A point of \
the reference goes through them in this order. The output folder of ffdp register stands for both (-t out/).

Files are recognised by their content: ITK text (.txt, .tfm) and .mat, displacement fields (NIfTI), \
composites (.h5), and a plain 4x4 matrix in RAS mm; flows of ffdp shape by their name (.json). All map points of the fixed to the moving image. \
-t [affine.txt,1] takes the inverse of that file; displacements are inverted, too. A matrix of FSL \
FLIRT needs its two images: -t flirt:MATRIX,MOVING,FIXED. The output folder of a registered series (or its \
transforms.csv) has a transform for each volume of the image.";

/// One `-t`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransformChoice {
    source: Source,
    inverted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    File(PathBuf),
    Flirt { matrix: PathBuf, moving: PathBuf, fixed: PathBuf },
}

impl TransformChoice {
    /// The files that are read.
    pub fn paths(&self) -> Vec<&Path> {
        match &self.source {
            Source::File(path) => vec![path],
            Source::Flirt { matrix, moving, fixed } => vec![matrix, moving, fixed],
        }
    }

    /// Whether it is more than a matrix; a displacement field is not read for that.
    pub fn is_deforming(&self) -> Result<bool> {
        Ok(match &self.source {
            Source::File(path) => is_flow_name(path) || is_deforming(path)?,
            Source::Flirt { .. } => false,
        })
    }

    /// What it is besides its files: that of an inverse.
    pub fn inverted(&self) -> Option<String> {
        self.inverted.then(|| "inverted".to_string())
    }

    /// What distinguishes it: where its files are, and whether its inverse is taken.
    pub fn identity(&self) -> String {
        let files = self.paths().into_iter().map(place);
        files.chain(self.inverted()).collect::<Vec<_>>().join(", ")
    }

    /// Demands that its files are there, which may be large: they are opened, not read.
    ///
    /// # Errors
    /// Those of opening a file.
    pub fn check_is_there(&self) -> Result<()> {
        let named = self.paths().into_iter().map(transform_files);
        for file in named.collect::<Result<Vec<_>, _>>()?.iter().flatten() {
            files(file)?.iter().try_for_each(|part| open_file(part).map(drop))?;
        }
        Ok(())
    }

    /// The map.
    pub fn read(&self, device: &Device) -> Result<Composite> {
        let map = match &self.source {
            Source::File(path) if is_flow_name(path) => {
                Composite::new(vec![Step::Map(read_flow(path)?.as_map(Direction::Back))])
            }
            Source::File(path) => read_transform(path, device)?,
            Source::Flirt { matrix, moving, fixed } => {
                let [moving, fixed] = [header(moving)?.geometry, header(fixed)?.geometry];
                Composite::new(vec![Step::Affine(read_flirt(matrix, &moving, &fixed)?)])
            }
        };
        Ok(if self.inverted { map.inverse()? } else { map })
    }
}

impl From<PathBuf> for TransformChoice {
    fn from(path: PathBuf) -> Self {
        Self { source: Source::File(path), inverted: false }
    }
}

/// File names need not be UTF-8.
impl ValueParserFactory for TransformChoice {
    type Parser = TryMapValueParser<OsStringValueParser, fn(OsString) -> Result<Self, String>>;

    fn value_parser() -> Self::Parser {
        OsStringValueParser::new().try_map(Self::of)
    }
}

impl TransformChoice {
    /// Those of a line of a list: column `transform`, several with semicolons between, in the order of `-t`.
    ///
    /// # Errors
    /// For brackets with something else than 0 or 1.
    pub fn of_row(row: &FileRow) -> Result<Vec<Self>> {
        let choice = |file: PathBuf| {
            Self::of(file.into_os_string()).map_err(|reason| {
                Failure::user(reason, "name files with semicolons between, as -t takes them")
            })
        };
        row.several("transform").map(choice).collect()
    }

    /// What `-t` is given.
    pub fn of(name: OsString) -> Result<Self, String> {
        match name.to_str() {
            Some(text) => text.parse(),
            None => Ok(bracketed(&name).unwrap_or_else(|| Self {
                source: Source::File(PathBuf::from(&name)),
                inverted: false,
            })),
        }
    }
}

/// `[FILE,1]` with a name that is no text.
#[cfg(unix)]
fn bracketed(name: &OsStr) -> Option<TransformChoice> {
    use std::os::unix::ffi::OsStrExt;
    let inside = name.as_bytes().strip_prefix(b"[")?;
    let (file, inverted) = match inside.strip_suffix(b",1]") {
        Some(file) => (file, true),
        None => (inside.strip_suffix(b",0]")?, false),
    };
    Some(TransformChoice { source: Source::File(OsStr::from_bytes(file).into()), inverted })
}

#[cfg(not(unix))]
fn bracketed(_name: &OsStr) -> Option<TransformChoice> {
    None
}

impl FromStr for TransformChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let inside = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        let (name, inverted) = match inside.map(|inside| inside.rsplit_once(',')) {
            None => (text, false),
            Some(Some((name, "0"))) => (name, false),
            Some(Some((name, "1"))) => (name, true),
            Some(_) => return Err("in brackets a file and 0 or 1: [affine.txt,1]".to_string()),
        };
        let source = match name.strip_prefix("flirt:") {
            None => Source::File(name.into()),
            Some(names) => match names.split(',').collect::<Vec<_>>()[..] {
                [matrix, moving, fixed] => Source::Flirt {
                    matrix: matrix.into(),
                    moving: moving.into(),
                    fixed: fixed.into(),
                },
                _ => return Err("three files: flirt:MATRIX,MOVING,FIXED".to_string()),
            },
        };
        Ok(Self { source, inverted })
    }
}

/// Whether the name is that of a deformation of `ffdp shape register`.
fn is_flow_name(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"))
}

/// A deformation as `ffdp shape register` writes it: from the source to the target.
fn read_flow(path: &Path) -> Result<Flow> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ffdp_image::Error::io(path, "read", source))?;
    let saved = serde_json::from_str(&text).map_err(|error| {
        Failure::user(
            format!("{}: no deformation of a shape: {error}", path.display()),
            "give the flow.json of `ffdp shape register`",
        )
    })?;
    Ok(Flow::from_saved(saved)?)
}

/// The map of all that were given: a point goes through the first one first.
pub fn chain(choices: &[TransformChoice], device: &Device) -> Result<Composite> {
    let first = Composite::default();
    choices.iter().try_fold(first, |map, choice| Ok(map.then(choice.read(device)?)))
}

/// The same for images of any size: displacement fields that are large stay in their files, unless the inverse is wanted.
pub fn plane_chain(
    choices: &[TransformChoice],
    inverse: bool,
    device: &Device,
) -> Result<PlaneChain> {
    if inverse {
        return Ok(PlaneChain::default().then(chain(choices, device)?.inverse()?));
    }
    choices.iter().try_fold(PlaneChain::default(), |map, choice| match &choice.source {
        Source::File(path) if !choice.inverted && !is_flow_name(path) => {
            Ok(map.then_file(path, device)?)
        }
        _ => Ok(map.then(choice.read(device)?)),
    })
}

/// Transforms of which one at least is a list, with a transform for each volume of a series.
pub struct SeriesChain<'a> {
    choices: Vec<(&'a TransformChoice, Option<SeriesTransforms>)>,
    /// Volumes of the lists.
    count: usize,
}

impl<'a> SeriesChain<'a> {
    /// Reads the lists; `None` where there are none.
    ///
    /// # Errors
    /// Those of reading, and lists for different numbers of volumes.
    pub fn read(choices: &'a [TransformChoice]) -> Result<Option<Self>> {
        let list = |choice: &'a TransformChoice| match &choice.source {
            Source::File(path) if is_series_transform(path) => {
                Ok((choice, Some(SeriesTransforms::read(path)?)))
            }
            _ => Ok((choice, None)),
        };
        let choices = choices.iter().map(list).collect::<Result<Vec<_>>>()?;
        let counts: Vec<usize> =
            choices.iter().filter_map(|(_, list)| Some(list.as_ref()?.count())).collect();
        let Some(&count) = counts.first() else { return Ok(None) };
        match counts.iter().all(|other| *other == count) {
            true => Ok(Some(Self { choices, count })),
            false => Err(Failure::user(
                format!("the lists of transforms are for different numbers of volumes: {counts:?}"),
                "give lists of one series",
            )),
        }
    }

    /// Demands a list for as many volumes as an image has.
    ///
    /// # Errors
    /// Where they differ, or the one volume that is asked for is not on the list.
    pub fn check(&self, image: &Path, volume: Option<usize>) -> Result<()> {
        let (volumes, count) = (header(image)?.volumes(), self.count);
        if volume.is_some_and(|k| k < count) || (volume.is_none() && volumes == count) {
            return Ok(());
        }
        let asked = volume.map_or(format!("has {volumes}"), |k| format!("volume {k} is asked for"));
        Err(Failure::user(
            format!("the transforms are for {count} volumes; {}: {asked}", image.display()),
            "give the image that was registered, or the transform of one volume: \
             -t FOLDER/transforms/0000_affine.txt",
        ))
    }

    /// The map to one volume; with `inverse`, from it.
    ///
    /// # Errors
    /// Those of reading.
    pub fn map(&self, volume: usize, inverse: bool, device: &Device) -> Result<PlaneChain> {
        let mut all = Vec::new();
        for (choice, list) in &self.choices {
            let Some(list) = list else {
                all.push((*choice).clone());
                continue;
            };
            let inverted = choice.inverted;
            let file =
                |path: &PathBuf| TransformChoice { source: Source::File(path.clone()), inverted };
            let files = list.of(volume)?.iter().map(file);
            // The inverse of several goes through them from the last one on.
            match inverted {
                true => all.extend(files.rev()),
                false => all.extend(files),
            }
        }
        plane_chain(&all, inverse, device)
    }

    /// The image that the volumes were registered to, where one lies next to a list.
    pub fn reference(&self) -> Option<PathBuf> {
        self.choices.iter().filter_map(|(_, list)| list.as_ref()?.reference()).next()
    }
}

/// The grid of `reference`, else that of the first transform, if it is a displacement.
pub fn grid(reference: Option<&Path>, first: Option<&Geometry>) -> Result<Geometry> {
    match (reference, first) {
        (Some(path), _) => Ok(header(path)?.geometry),
        (None, Some(first)) => Ok(first.clone()),
        (None, _) => Err(Failure::user(
            "the grid of the result is not known: no displacement comes first",
            "name an image on that grid with --reference",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_or_refused_with_the_form() {
        let file =
            |name: &str, inverted| TransformChoice { source: Source::File(name.into()), inverted };
        assert_eq!("a,b.txt".parse(), Ok(file("a,b.txt", false)));
        assert_eq!("[a,b.txt,1]".parse(), Ok(file("a,b.txt", true)));
        assert_eq!("[a.txt,0]".parse(), Ok(file("a.txt", false)));
        let flirt =
            "[flirt:m.mat,in.nii,ref.nii,1]".parse::<TransformChoice>().expect("four parts");
        assert_eq!(flirt.paths(), ["m.mat", "in.nii", "ref.nii"].map(Path::new));
        assert!(flirt.inverted);
        for (text, word) in
            [("[a.txt]", "0 or 1"), ("[a.txt,2]", "0 or 1"), ("flirt:m.mat", "three")]
        {
            let message = text.parse::<TransformChoice>().expect_err(text);
            assert!(message.contains(word), "{text}: {message}");
        }
    }

    #[test]
    fn a_flow_deforms_and_the_matrix_of_two_images_does_not() {
        for (name, deforms) in
            [("flow.json", true), ("[flow.json,1]", true), ("flirt:m.mat,in.nii,ref.nii", false)]
        {
            let choice = name.parse::<TransformChoice>().expect("it is understood");
            assert_eq!(choice.is_deforming().expect("nothing is read"), deforms, "{name}");
            assert_eq!(choice.identity().ends_with(", inverted"), name.starts_with('['), "{name}");
        }
    }
}
