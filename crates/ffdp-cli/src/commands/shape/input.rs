//! Shapes on the command line: a file, or labels of a label map.

use std::convert::Infallible;
use std::path::PathBuf;
use std::str::FromStr;

use ffdp_image::io::images::read_labels;
use ffdp_shapes::files::read_shape;
use ffdp_shapes::{Shape, SurfaceSettings, label_surfaces};

use crate::failure::{Failure, Result};

/// How a shape is given, for the help of the commands.
pub const SHAPE_HELP: &str = "\
A shape is a file (.ply, .vtk, .obj, .stl, .gii; .csv, .fcsv, .txt: landmarks), or labels of a label map: \
seg.nii.gz:17 is the surface of label 17, seg.nii.gz:17,53 those of both as one shape. Positions are RAS mm.";

/// A shape that is to be read.
#[derive(Clone, Debug)]
pub struct ShapeInput {
    /// The file.
    pub path: PathBuf,
    /// Labels, if it is a label map.
    labels: Option<String>,
}

impl FromStr for ShapeInput {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text.rsplit_once(':') {
            Some((path, labels)) if path.ends_with(".nii") || path.ends_with(".nii.gz") => {
                Self { path: path.into(), labels: Some(labels.to_string()) }
            }
            _ => Self { path: text.into(), labels: None },
        })
    }
}

impl ShapeInput {
    /// Reads it.
    ///
    /// # Errors
    /// A file that is damaged, a label that is not there, a label map without a label.
    pub fn read(&self) -> Result<Shape> {
        let name = self.path.to_string_lossy();
        let Some(labels) = &self.labels else {
            if name.ends_with(".nii") || name.ends_with(".nii.gz") {
                let message = format!("{name} is an image: which label's surface is wanted?");
                return Err(Failure::user(message, format!("give {name}:LABEL")));
            }
            return Ok(read_shape(&self.path)?);
        };
        let ids: Result<Vec<i32>, _> = labels.split(',').map(str::parse).collect();
        let ids = ids.map_err(|_| {
            Failure::user(format!("labels are integers, got {labels:?}"), "give seg.nii.gz:17,53")
        })?;
        let map = read_labels(&self.path)?;
        let surfaces = label_surfaces(&map, &ids, &SurfaceSettings::default())
            .map_err(|error| Failure::from(error).about(&self.path))?;
        Ok(Shape::joined(&surfaces.iter().collect::<Vec<_>>())?)
    }

    /// As it is shown.
    pub fn name(&self) -> String {
        let file = self.path.file_name().map(|n| n.to_string_lossy().into_owned());
        let file = file.unwrap_or_else(|| self.path.display().to_string());
        match &self.labels {
            Some(labels) => format!("{file}:{labels}"),
            None => file,
        }
    }
}
