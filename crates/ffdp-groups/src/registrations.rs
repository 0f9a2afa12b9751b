//! The registrations of a run: each image that the store does not have yet is registered, on any placement, and what is
//! found of it is kept. One that fails is kept with the reason, and the others go on.

use std::ops::ControlFlow;
use std::time::Instant;

use ffdp_image::error::{Error, Result};
use ffdp_register::Placement;
use ffdp_register::verdict::{Assessment, Verdict};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::images::{Images, Subject, each_ahead_by};
use crate::store::Store;

/// How the registration of an image went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ImageReport {
    /// Its number in the list.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Whether it is among those that are averaged or joined. In a template, one that is not is tried again in the next
    /// round.
    pub is_used: bool,
    /// What speaks against its registration, or why it cannot be used.
    pub reasons: Vec<String>,
    /// The loss before and after.
    pub loss: Option<[f64; 2]>,
    /// Time that the registration took.
    pub seconds: f64,
}

/// What the store has of an image, before its values.
#[derive(Serialize, Deserialize)]
pub(crate) struct Kept<H> {
    pub header: H,
    pub report: ImageReport,
}

/// An image that was registered.
pub(crate) struct Registered<H> {
    pub header: H,
    /// What follows the header.
    pub values: Vec<Vec<f32>>,
    pub loss: [f64; 2],
    pub assessment: Assessment,
}

/// A run that registers images.
pub(crate) trait Registering: Sync {
    /// What is kept of an image besides its report and its values.
    type Header: Serialize + DeserializeOwned;

    /// Where it is kept.
    fn file(&self, index: usize) -> String;

    /// Registers an image.
    fn register(
        &self,
        index: usize,
        subject: Subject,
        placement: &Placement,
    ) -> Result<Registered<Self::Header>>;

    /// The header of an image that cannot be registered.
    fn unregistered(&self, index: usize) -> Self::Header;

    /// Shows a report to who follows the run.
    fn watch(&self, report: &ImageReport, assessment: Option<&Assessment>) -> Result<()>;
}

/// Whether a registration is good enough to be used.
pub(crate) fn is_used(assessment: &Assessment) -> bool {
    assessment.verdict != Verdict::Failed
}

/// Registers those of the images that the store does not have, in the order of the list.
///
/// # Errors
/// Those of devices, of the store, and of who follows the run.
pub(crate) fn register_missing<R: Registering>(
    run: &R,
    images: &dyn Images,
    members: impl Iterator<Item = usize>,
    placements: &[Placement],
    store: &Store,
) -> Result<()> {
    let mut missing = Vec::new();
    for index in members {
        if store.read::<Kept<R::Header>>(&run.file(index))?.is_none() {
            missing.push(index);
        }
    }
    missing.sort_unstable();
    each_ahead_by(placements, images, &missing, |placement, index, subject| {
        let clock = Instant::now();
        let found = subject.and_then(|subject| run.register(index, subject, placement));
        let mut report = ImageReport {
            index,
            name: images.name(index),
            is_used: false,
            reasons: Vec::new(),
            loss: None,
            seconds: clock.elapsed().as_secs_f64(),
        };
        let (header, values, assessment) = match found {
            Err(error @ (Error::Device { .. } | Error::LostRank { .. })) => return Err(error),
            Err(error) => {
                report.reasons.push(error.to_string());
                (run.unregistered(index), Vec::new(), None)
            }
            Ok(Registered { header, values, loss, assessment }) => {
                report.is_used = is_used(&assessment);
                report.reasons.clone_from(&assessment.reasons);
                report.loss = Some(loss);
                (header, values, Some(assessment))
            }
        };
        let kept = Kept { header, report };
        let values: Vec<&[f32]> = values.iter().map(Vec::as_slice).collect();
        store.write(&run.file(index), &kept, &values)?;
        run.watch(&kept.report, assessment.as_ref())
    })
}

/// An error where who follows a run has ended it.
pub(crate) fn unless_ended(flow: ControlFlow<()>, run: &str, image: &str) -> Result<()> {
    match flow {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Error::invalid(
            format!("the {run} must be followed to its end"),
            "an observer that ended it",
            format!(
                "run it again: with a folder it goes on from the last {image} that was registered"
            ),
        )),
    }
}
