//! Seeded, brain-like images with labels and known warps: the embedded default data.
//!
//! In the spirit of the FFDP paper's Algorithm 6 (section K.1): label map, per-label intensity
//! statistics, smoothing. In place of a data set's label maps stands an anatomy that is a
//! continuous function of position ([`Anatomy`]), so a subject is the same at every size and
//! spacing, and its warps are exact. Read [`subject`] first, then [`pair`]. Given label maps become such
//! functions too ([`SmoothLabels`]), get intensities from an [`IntensityTable`] and are streamed in [`Slabs`].
//!
//! ```
//! use ffdp_image::synth::{PhantomSettings, pair};
//! let pair = pair(&PhantomSettings::with_size([24, 24, 24]), 7)?;
//! assert_eq!(pair.displacement.len(), 3 * 24 * 24 * 24);
//! assert!(pair.fixed.image.data.iter().all(|v| (0.0..=1.0).contains(v)));
//! # Ok::<(), ffdp_image::Error>(())
//! ```

mod anatomy;
mod aseg;
mod coarsen;
mod head;
mod intensities;
mod intensity_table;
mod label_field;
mod modality;
mod pair;
mod phantom;
mod random;
mod slabs;
mod smooth_labels;
mod spline;
mod structure;
mod subject;
#[cfg(test)]
mod tests;
mod texture;
mod warp;

pub use anatomy::Anatomy;
pub use coarsen::{coarsen_image, coarsen_labels};
pub use intensities::sample_intensities;
pub use intensity_table::{IntensityTable, LabelStatistics};
pub use label_field::{LabelField, label_slices};
pub use modality::Modality;
pub use pair::{Pair, pair};
pub use phantom::PhantomSettings;
pub use slabs::{Slab, Slabs, SubjectSource};
pub use smooth_labels::SmoothLabels;
pub use structure::Structure;
pub use subject::{Subject, subject};
pub use warp::{Diffeomorphism, WarpScale, WarpSettings};
