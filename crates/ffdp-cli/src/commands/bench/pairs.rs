//! The pairs of a comparison, at every resolution.

use std::path::PathBuf;

use ffdp_image::io::FileList;
use ffdp_image::io::images::header;

use crate::failure::{Failure, Result};
use crate::pairs::stem;

/// Two images with labels.
#[derive(Clone, Debug)]
pub struct Pair {
    /// `moving to fixed`, by the names of the image files: the same at every resolution.
    pub name: String,
    /// The finest spacing of the fixed image.
    pub spacing_mm: f64,
    pub fixed: PathBuf,
    pub moving: PathBuf,
    pub fixed_labels: PathBuf,
    pub moving_labels: PathBuf,
}

const COLUMNS: [&str; 4] = ["fixed", "moving", "fixed_labels", "moving_labels"];

/// The pairs of all lists, coarse to fine.
pub fn read(lists: &[PathBuf]) -> Result<Vec<Pair>> {
    let mut pairs = Vec::new();
    for list in lists {
        for row in FileList::read(list, &COLUMNS)?.rows {
            let files = COLUMNS.map(|column| row.file(column).expect("each of them was demanded"));
            let [fixed, moving, fixed_labels, moving_labels] = files;
            let spacing_mm = header(&fixed)?.geometry.spacing_mm;
            let spacing_mm = spacing_mm.into_iter().fold(f64::INFINITY, f64::min);
            // Headers hold f32: 0.2 is 0.2.
            let spacing_mm = (spacing_mm * 1e6).round() / 1e6;
            let name = format!("{} to {}", stem(&moving), stem(&fixed));
            pairs.push(Pair { name, spacing_mm, fixed, moving, fixed_labels, moving_labels });
        }
    }
    pairs.sort_by(|a, b| b.spacing_mm.total_cmp(&a.spacing_mm));
    for (index, pair) in pairs.iter().enumerate() {
        let same = |other: &&Pair| other.name == pair.name && other.spacing_mm == pair.spacing_mm;
        if let Some(other) = pairs[..index].iter().find(same) {
            let [one, two] = [&other.fixed, &pair.fixed].map(|path| path.display().to_string());
            return Err(Failure::user(
                format!(
                    "two pairs at {} mm are both {}: {one} and {two}",
                    pair.spacing_mm, pair.name
                ),
                "rows are identified by the names of the image files: name them differently",
            ));
        }
    }
    Ok(pairs)
}
