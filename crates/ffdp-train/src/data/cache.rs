//! Images that were read once, kept while there is room.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ffdp_image::io::images::{read_labels, read_volume};
use ffdp_image::{Error, Result};

use super::{Sample, Subject};

/// Percentiles that become 0 and 1.
pub const INTENSITY_PERCENTILES: [f64; 2] = [0.0, 99.9];

/// Samples by the path of their image. The first that fit stay: in an epoch every image is read
/// once, so that to replace one by another gains nothing.
#[derive(Debug)]
pub struct Cache {
    kept: Mutex<Kept>,
    room_bytes: usize,
}

#[derive(Debug, Default)]
struct Kept {
    samples: HashMap<PathBuf, Arc<Sample>>,
    bytes: usize,
}

impl Cache {
    pub fn new(room_bytes: usize) -> Self {
        Self { kept: Mutex::default(), room_bytes }
    }

    /// The image of a subject with its labels, on its own grid.
    ///
    /// # Errors
    /// Files that cannot be read, and labels on another grid.
    pub fn sample(&self, subject: &Subject) -> Result<Arc<Sample>> {
        let (image, labels) = match subject {
            Subject::Ready(sample) => return Ok(sample.clone()),
            Subject::Files { image, labels } => (image, labels.as_deref()),
        };
        let lock = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sample) = lock().samples.get(image) {
            return Ok(sample.clone());
        }
        // Not under the lock: others read other files meanwhile.
        let sample = Arc::new(read(image, labels)?);
        let voxel_bytes = if sample.labels.is_some() { 8 } else { 4 };
        let bytes = voxel_bytes * sample.image.data.len();
        let mut kept = lock();
        if kept.bytes + bytes <= self.room_bytes && !kept.samples.contains_key(image) {
            kept.bytes += bytes;
            kept.samples.insert(image.clone(), sample.clone());
        }
        Ok(sample)
    }
}

/// An image scaled to 0..1, and its labels.
fn read(path: &Path, labels: Option<&Path>) -> Result<Sample> {
    let [low, high] = INTENSITY_PERCENTILES;
    let image = read_volume(path)?.normalized(low, high).map_err(Error::in_file(path))?;
    let labels = labels.map(|path| {
        let labels = read_labels(path)?;
        let same = image.geometry.check_same_grid(&labels.geometry, "the label map");
        same.map_err(Error::in_file(path))?;
        Ok::<_, Error>(labels)
    });
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_string();
    Ok(Sample::new(name, image, labels.transpose()?))
}
