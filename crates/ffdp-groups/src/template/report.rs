//! What is reported of a template, and who follows its making.

use std::ops::ControlFlow;

use ffdp_image::image::{Affine, Physical, Volume};
use ffdp_register::verdict::Assessment;
use serde::{Deserialize, Serialize};

use super::settings::RoundKind;
use crate::registrations::ImageReport;

/// An image that takes no part, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Excluded {
    /// Its number in the list.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// How a round went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundReport {
    /// Its number; 0 is the start.
    pub round: usize,
    /// What was done in it.
    pub kind: RoundKind,
    /// Root mean square of the change of the template, as a part of that of the template; none of the start.
    pub change: Option<f64>,
    /// Root mean square of the mean map that was taken out, in the template's foreground, mm.
    pub mean_map_mm: f64,
    /// Sharpness of the mean of the images, and of the template that was sharpened after it; see
    /// [`sharpness`](super::sharpness()).
    pub sharpness: [f64; 2],
    /// Root of the mean variance of intensities within the template's foreground, as a part of the template's mean there.
    pub spread: f64,
    /// In the order of the list.
    pub images: Vec<ImageReport>,
    /// Time that it took.
    pub seconds: f64,
}

/// Where an image lies at the end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemberReport {
    /// Its number in the list.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Whether it is part of the template; else its map is the last one that was known.
    pub is_used: bool,
    /// The affine part of the map from the template to the image, RAS mm.
    pub affine: Affine<Physical, Physical>,
    /// Whether there is a displacement before it.
    pub deforms: bool,
    /// Mean Dice of its labels with those of the vote.
    pub dice: Option<f64>,
}

/// Follows the making of a template. `Break` ends the run with an error; with a folder, it can be gone on with.
pub trait TemplateObserver: Send {
    /// All images were read once: so many take part, and these do not. Nothing is written before.
    fn surveyed(&mut self, _used: usize, _excluded: &[Excluded]) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// A round begins, of so many at most.
    fn round_started(
        &mut self,
        _round: usize,
        _rounds: usize,
        _kind: RoundKind,
    ) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// An image was registered, and its result is kept. Of an assessment nothing but its reasons is in the report.
    fn registered(
        &mut self,
        _report: &ImageReport,
        _assessment: Option<&Assessment>,
    ) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// A round ended with this template; also of rounds that were complete when the run was gone on with.
    fn round_finished(&mut self, _report: &RoundReport, _template: &Volume) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// The observer that does nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl TemplateObserver for Unobserved {}
