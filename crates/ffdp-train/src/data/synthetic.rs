//! The default data: seeded synthetic brains with labels.

use std::sync::Arc;

use ffdp_image::Result;
use ffdp_image::synth::{PhantomSettings, subject};

use super::{Dataset, Pair, Preparation, Sample, Subject, Training};
use crate::settings::Settings;

/// Voxels along each axis by default; a step of the tiny network then takes about half a second
/// on two cores.
const DEFAULT_SIZE: usize = 64;
/// Pairs in an epoch by default.
const DEFAULT_PAIRS: usize = 16;
const VALIDATION_PAIRS: usize = 2;
const HELD_OUT_PAIRS: usize = 4;
/// Seeds of one run's subjects; every run seed has its own block of this length.
const SEEDS_PER_RUN: u64 = 1_000_000;

pub fn generate(settings: &Settings) -> Result<Dataset> {
    let size = settings.image_size()?.unwrap_or([DEFAULT_SIZE; 3]);
    let phantom = PhantomSettings::with_size(size);
    let first = settings.seed.wrapping_mul(SEEDS_PER_RUN);
    let sample = |index: usize| -> Result<Subject> {
        let subject = subject(&phantom, first.wrapping_add(index as u64))?;
        let name = format!("subject-{index}");
        let sample = Sample::new(name, subject.image, Some(subject.labels));
        Ok(Subject::Ready(Arc::new(sample)))
    };
    // Held-out subjects come first, so that they are the same however many are trained on.
    let pair = |index: usize| -> Result<Pair> {
        Ok(Pair { moving: sample(2 * index)?, fixed: sample(2 * index + 1)? })
    };
    let held_out: Vec<Pair> = (0..HELD_OUT_PAIRS).map(pair).collect::<Result<_>>()?;
    let validation: Vec<Pair> =
        (HELD_OUT_PAIRS..HELD_OUT_PAIRS + VALIDATION_PAIRS).map(pair).collect::<Result<_>>()?;
    let used = 2 * (HELD_OUT_PAIRS + VALIDATION_PAIRS);
    let pairs = settings.pairs.unwrap_or(DEFAULT_PAIRS);
    let subjects = (used..used + 2 * pairs).map(sample).collect::<Result<_>>()?;
    Ok(Dataset {
        training: Training::Subjects { subjects, pairs },
        validation,
        held_out,
        is_held_out: true,
        evaluated_labels: None,
        preparation: Arc::new(Preparation::new(settings)?),
        size,
        axes: "RAS".into(),
        origin: "synthetic brains".into(),
    })
}
