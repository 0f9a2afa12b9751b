//! Where labels and their statistics come from.

use std::path::{Path, PathBuf};

use ffdp_image::Error;
use ffdp_image::image::{Geometry, LabelMap};
use ffdp_image::io::check_memory;
use ffdp_image::io::images::{header, read_labels, read_volume};
use ffdp_image::synth::{
    Anatomy, IntensityTable, LabelField, Modality, PhantomSettings, SmoothLabels,
};

use super::SynthArguments;
use crate::failure::{Failure, Result};

/// Field of view of the procedural brain: voxels of 1 mm, divisible by 16; the head fits in.
const PHANTOM_SIZE: [usize; 3] = [160, 208, 176];

/// The label maps of a run, or the procedural brain, and the statistics of all labels.
pub struct Sources {
    maps: Vec<PathBuf>,
    /// Fields of view.
    pub geometries: Vec<Geometry>,
    pub table: IntensityTable,
    /// What the statistics are, for the manifest.
    pub origin: String,
}

/// A source ready to be sampled.
pub struct Source {
    pub field: Box<dyn LabelField>,
    /// Where labels other than background are, RAS mm.
    pub box_mm: [[f64; 3]; 2],
}

impl Sources {
    /// Reads the headers and finds the statistics.
    pub fn resolve(request: &SynthArguments) -> Result<Self> {
        let maps = request.labels.clone();
        let geometries = if maps.is_empty() {
            vec![phantom_geometry()?]
        } else {
            let geometry = |map| header(map).map(|header| header.geometry);
            maps.iter().map(geometry).collect::<Result<_, _>>()?
        };
        let (table, origin) = table(request)?;
        Ok(Self { maps, geometries, table, origin })
    }

    pub fn count(&self) -> usize {
        self.geometries.len()
    }

    /// The file of a source; `None` for the procedural brain.
    pub fn name(&self, index: usize) -> Option<String> {
        self.maps.get(index).map(|map| map.display().to_string())
    }

    /// Makes a source ready.
    pub fn load(&self, index: usize) -> Result<Source> {
        let Some(path) = self.maps.get(index) else {
            return Ok(Source { field: Box::new(Anatomy::default()), box_mm: Anatomy::BOX_MM });
        };
        let (labels, box_mm) = self.read(path)?;
        let smooth =
            SmoothLabels::new(&labels).map_err(|error| Failure::from(error).about(path))?;
        Ok(Source { field: Box::new(smooth), box_mm })
    }

    /// Demands that a source can be used, before anything is made of another one.
    pub fn check(&self, index: usize) -> Result<()> {
        self.maps.get(index).map_or(Ok(()), |path| self.read(path).map(drop))
    }

    /// A label map, and the box around what it labels.
    fn read(&self, path: &Path) -> Result<(LabelMap, [[f64; 3]; 2])> {
        let labels = read_labels(path)?;
        let in_file = |error| Failure::from(error).about(path);
        self.table.check_covers(&labels.ids()).map_err(in_file)?;
        let box_mm = labelled_box_mm(&labels).ok_or_else(|| {
            let message = "the label map holds no label but background (0)".to_string();
            Failure::user(message, "check that it is the file you meant").about(path)
        })?;
        check_memory("the smooth label map", SmoothLabels::memory_bytes(&labels))?;
        Ok((labels, box_mm))
    }
}

/// The statistics, and what they are.
fn table(request: &SynthArguments) -> Result<(IntensityTable, String)> {
    if let Some(path) = &request.statistics {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, "read", e))?;
        let table = serde_json::from_str(&text).map_err(|reason| {
            let example = r#"{"labels": {"2": {"mean": 0.8, "sd": 0.05}}}"#;
            Failure::user(reason.to_string(), format!("write it as {example}")).about(path)
        })?;
        return Ok((table, path.display().to_string()));
    }
    if !request.image.is_empty() {
        if request.image.len() != request.labels.len() {
            let (images, maps) = (request.image.len(), request.labels.len());
            return Err(Failure::user(
                format!("--image names {images} files and --labels {maps}"),
                "give one image for each label map, in the same order",
            ));
        }
        let pairs = request.image.iter().zip(&request.labels);
        let read = pairs.map(|(image, labels)| Ok((read_volume(image)?, read_labels(labels)?)));
        let read: Vec<_> = read.collect::<Result<_, Error>>()?;
        let table = IntensityTable::estimate(read.iter().map(|(image, labels)| (image, labels)))?;
        return Ok((table, "estimated from the images".to_string()));
    }
    let choice = request.modality.unwrap_or(super::ModalityChoice::T1);
    let modality = Modality::from(choice);
    let name = format!("table of {choice:?}").to_lowercase();
    Ok(if request.labels.is_empty() {
        (IntensityTable::of_phantom(modality), format!("{name}, procedural brain"))
    } else {
        (IntensityTable::of_aseg(modality), format!("{name}, FreeSurfer aseg"))
    })
}

/// The grid of the procedural brain.
fn phantom_geometry() -> Result<Geometry, Error> {
    let spacing_mm = Some([1.0; 3]);
    PhantomSettings { size: PHANTOM_SIZE, spacing_mm, ..PhantomSettings::default() }.geometry()
}

/// The upright box around all labelled voxels, RAS mm.
fn labelled_box_mm(labels: &LabelMap) -> Option<[[f64; 3]; 2]> {
    let mut bounds = [[usize::MAX; 3], [0; 3]];
    let labelled = labels.data.iter().enumerate().filter(|(_, label)| **label != 0);
    for (offset, _) in labelled {
        let index = labels.geometry.index_of(offset);
        for axis in 0..3 {
            bounds[0][axis] = bounds[0][axis].min(index[axis]);
            bounds[1][axis] = bounds[1][axis].max(index[axis]);
        }
    }
    let [low, high] = bounds;
    let size = [0, 1, 2].map(|axis| (high[axis] + 1).saturating_sub(low[axis]));
    labels.geometry.cropped(low, size).ok().map(|part| part.bounding_box_mm())
}
