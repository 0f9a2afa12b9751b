//! What the registration of a series has found.

use ffdp_image::error::Result;
use ffdp_image::image::{Affine, Geometry, Physical, Volume};
use ffdp_register::{Settings, report::StageReport, verdict::Verdict};
use serde::Serialize;

use super::motion::RigidMotion;
use super::pass::VolumeOutcome;

/// What the volumes were brought onto.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Onto {
    /// Another image.
    Fixed,
    /// The mean of the series.
    Mean,
    /// The volume with this number, from 0.
    Volume(usize),
}

/// The maps from an image to all volumes of a series.
#[derive(Clone, Debug)]
pub struct SeriesRegistration {
    /// What the volumes were brought onto.
    pub onto: Onto,
    /// That image.
    pub reference: Volume,
    /// About which rotations turn: the middle of the reference's grid, RAS mm.
    pub centre_mm: [f64; 3],
    /// One for each volume.
    pub volumes: Vec<VolumeResult>,
    /// What was done for each volume, with its levels.
    pub settings: Settings,
    /// From the first volume that was read to the last transform.
    pub seconds: f64,
}

/// The map from the reference to one volume: a displacement, where the settings deform, and then a linear map.
#[derive(Clone, Debug, Serialize)]
pub struct VolumeResult {
    /// From points of the reference to points of the volume, RAS mm.
    pub affine: Affine<Physical, Physical>,
    /// The same in six numbers.
    pub motion: RigidMotion,
    /// Since the volume before; 0 of the first one.
    pub framewise_displacement_mm: f64,
    /// The volume whose transform this is; the volume itself, unless it could not be registered.
    pub transform_of: usize,
    /// How unlike the volume and the reference are on the last level; `None` where the volume could not be registered.
    pub loss: Option<f64>,
    /// What the transform is worth.
    pub verdict: Verdict,
    /// What speaks against it, or why the volume could not be registered.
    pub reasons: Vec<String>,
    /// How its stages went.
    #[serde(skip)]
    pub stages: Vec<StageReport>,
}

impl VolumeResult {
    /// Whether it is that of the volume itself.
    pub fn is_registered(&self) -> bool {
        self.loss.is_some()
    }
}

/// The verdicts of all volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SeriesVerdict {
    /// That of the worst volume.
    pub verdict: Verdict,
    /// Numbers of volumes that something speaks against.
    pub doubtful: Vec<usize>,
    /// Numbers of volumes whose registration failed.
    pub failed: Vec<usize>,
    /// Numbers of volumes that could not be registered.
    pub not_registered: Vec<usize>,
}

/// Standard deviations from the median beyond which a volume is less like the reference than the others.
const OUTLIER: f64 = 6.0;
/// And as a part of the median: volumes of hardly any noise differ by nothing that matters.
const OUTLIER_PART: f64 = 1.2;
/// Median absolute deviations of a normal distribution in its standard deviation.
const DEVIATIONS: f64 = 1.4826;

impl SeriesRegistration {
    pub(super) fn of(
        onto: Onto,
        reference: Volume,
        outcomes: Vec<VolumeOutcome>,
        settings: Settings,
        seconds: f64,
    ) -> Result<Self> {
        let centre_mm = reference.geometry.center_mm();
        let limit = outlier_limit(&outcomes);
        let mut volumes: Vec<VolumeResult> = Vec::with_capacity(outcomes.len());
        for (k, outcome) in outcomes.iter().enumerate() {
            let transform_of = nearest_found(&outcomes, k);
            let found = outcomes[transform_of].as_ref().expect("the nearest that was found");
            let motion = RigidMotion::of(&found.affine, centre_mm)?;
            let before = volumes.last().map_or(motion, |volume| volume.motion);
            let mut volume = VolumeResult {
                affine: found.affine,
                motion,
                framewise_displacement_mm: motion.framewise_displacement_mm(&before),
                transform_of,
                loss: None,
                verdict: Verdict::Failed,
                reasons: Vec::new(),
                stages: Vec::new(),
            };
            match outcome {
                Ok(found) => {
                    volume.loss = Some(found.loss);
                    volume.reasons.clone_from(&found.assessment.reasons);
                    volume.stages.clone_from(&found.stages);
                    volume.verdict = found.assessment.verdict;
                    if found.loss > limit {
                        volume.reasons.push(format!(
                            "it is less like the reference than the other volumes: loss {:.5}, of which {limit:.5} is usual",
                            found.loss
                        ));
                    }
                    if !volume.reasons.is_empty() {
                        volume.verdict = volume.verdict.max(Verdict::Doubtful);
                    }
                }
                Err(reason) => volume.reasons.push(format!(
                    "it could not be registered, and has the transform of volume {transform_of}: {reason}"
                )),
            }
            volumes.push(volume);
        }
        Ok(Self { onto, reference, centre_mm, volumes, settings, seconds })
    }

    /// The grid of the reference.
    pub fn grid(&self) -> &Geometry {
        &self.reference.geometry
    }

    /// Whether volumes have a displacement before their linear map.
    pub fn deforms(&self) -> bool {
        self.settings.stages.iter().any(|stage| !stage.is_linear())
    }

    /// What all of it is worth.
    pub fn verdict(&self) -> SeriesVerdict {
        let numbers = |holds: &dyn Fn(&VolumeResult) -> bool| {
            let volumes = self.volumes.iter().enumerate();
            volumes.filter(|(_, volume)| holds(volume)).map(|(k, _)| k).collect::<Vec<usize>>()
        };
        let worst = self.volumes.iter().map(|volume| volume.verdict).max();
        SeriesVerdict {
            verdict: worst.unwrap_or(Verdict::Aligned),
            doubtful: numbers(&|volume| volume.verdict == Verdict::Doubtful),
            failed: numbers(&|v| v.verdict == Verdict::Failed && v.is_registered()),
            not_registered: numbers(&|volume| !volume.is_registered()),
        }
    }

    /// Framewise displacement: its mean and its largest value without the first volume, which has none, in mm.
    pub fn mean_and_largest_displacement_mm(&self) -> [f64; 2] {
        let all = self.volumes.iter().skip(1).map(|volume| volume.framewise_displacement_mm);
        let (mut sum, mut largest, mut count) = (0.0, 0.0f64, 0);
        for mm in all {
            (sum, largest, count) = (sum + mm, largest.max(mm), count + 1);
        }
        [sum / f64::from(count.max(1)), largest]
    }
}

/// The volume that was found next to volume `k`, the earlier one of two.
fn nearest_found(outcomes: &[VolumeOutcome], k: usize) -> usize {
    let found = (0..outcomes.len()).filter(|i| outcomes[*i].is_ok());
    found.min_by_key(|i| i.abs_diff(k)).expect("some volume was found")
}

/// The loss beyond which a volume is unlike the others.
fn outlier_limit(outcomes: &[VolumeOutcome]) -> f64 {
    let losses: Vec<f64> = outcomes.iter().flatten().map(|found| found.loss).collect();
    let median = median(losses.clone());
    let deviation = DEVIATIONS * self::median(losses.iter().map(|v| (v - median).abs()).collect());
    // Some similarities are negative: the better, the lower.
    let part = median + (OUTLIER_PART - 1.0) * median.abs();
    f64::max(median + OUTLIER * deviation, part)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        0 => 0.5 * (values[middle - 1] + values[middle]),
        _ => values[middle],
    }
}
