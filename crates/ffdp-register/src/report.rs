//! What is reported of levels and stages.

use serde::{Deserialize, Serialize};

/// What an observer learns when a level begins.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelStart {
    /// Name of the stage, as settings have it.
    pub stage: &'static str,
    /// Number of the level, from 0.
    pub index: usize,
    /// Number of levels.
    pub count: usize,
    /// Its shrink factor.
    pub shrink: f64,
    /// Size (x, y, z) of the fixed image on this level, in voxels.
    pub size: [usize; 3],
    /// Iterations at most.
    pub iterations: usize,
}

/// What an observer learns whenever losses were read from the device.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Number of the level, from 0.
    pub level: usize,
    /// Iterations done on this level.
    pub iteration: usize,
    /// Iterations at most on this level.
    pub iterations: usize,
    /// The latest loss known.
    pub loss: f64,
}

/// How a level went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LevelReport {
    /// Its shrink factor.
    pub shrink: f64,
    /// Size (x, y, z) of the fixed image on it, in voxels.
    pub size: [usize; 3],
    /// The loss before each of its iterations.
    pub losses: Vec<f64>,
    /// Why it ended.
    pub stop: Stop,
    /// Time spent on it.
    pub seconds: f64,
    /// Its steps, of a method that solves a system for each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub newton: Vec<NewtonStep>,
}

/// A step of Gauss and Newton's, and the system that it solved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewtonStep {
    /// The weight of the regularisation.
    pub beta: f64,
    /// The loss before it, regularisation and all, per value that counts.
    pub loss: f64,
    /// The norm of the gradient before it, as a part of that at rest.
    pub gradient: f64,
    /// What was left of its system before each iteration of conjugate gradients, and after the last, as a part of the
    /// gradient.
    pub residuals: Vec<f64>,
    /// Iterations of systems within the preconditioner.
    pub inner_iterations: usize,
    /// The part of the step that was gone; `None` where none lowered the loss.
    pub step: Option<f64>,
}

impl NewtonStep {
    /// Iterations of its system.
    pub fn krylov_iterations(&self) -> usize {
        self.residuals.len() - 1
    }
}

/// Why a level ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The loss no longer fell.
    Converged,
    /// All iterations were done.
    IterationsSpent,
    /// The observer asked for it.
    Cancelled,
}

/// Why the result of a stage is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Undone {
    /// It makes the images less alike, on the finest level of the stage.
    LessAlike,
    /// It stretches space as far as it may: the measure does not hold the object.
    AtBound,
    /// The images share hardly more information than in wrong placements.
    Uninformative,
}

impl Undone {
    /// For people, after the name of the stage.
    pub fn reason(self) -> &'static str {
        match self {
            Self::LessAlike => "made the images less alike",
            Self::Uninformative => {
                "found hardly more in common than in wrong placements: the images share no information to align them by"
            }
            Self::AtBound => "stretched space to its bound, which means that it lost the object",
        }
    }
}

/// How a stage went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageReport {
    /// Its kind, as settings name it. Whoever reads a report sets it from the settings of its run.
    #[serde(skip_deserializing)]
    pub transform: &'static str,
    /// One report per level.
    pub levels: Vec<LevelReport>,
    /// The loss of its finest level at its end.
    pub loss_after: f64,
    /// Why its result was left out, if it was: the next stage then starts where this one did.
    pub undone: Option<Undone>,
    /// Of a search of orientations: what the best one gains over the next, as a part of what it gains over a middling one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub margin: Option<f64>,
    /// Time spent on it.
    pub seconds: f64,
}

/// What a registration is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The similarity is better than before.
    Improved,
    /// They are not: the result should not be used.
    NotImproved,
    /// The observer ended the run early; the result is what was reached.
    Cancelled,
}

impl Outcome {
    /// Of stages between two losses.
    pub(super) fn of(stages: &[StageReport], [before, after]: [f64; 2]) -> Self {
        let mut levels = stages.iter().flat_map(|stage| &stage.levels);
        match after < before {
            _ if levels.any(|level| level.stop == Stop::Cancelled) => Self::Cancelled,
            true => Self::Improved,
            false => Self::NotImproved,
        }
    }

    /// What a user can do about it; `None` when all is well.
    pub fn advice(self) -> Option<&'static str> {
        match self {
            Self::Improved => None,
            Self::NotImproved => Some(
                "the images are not aligned: check that they show the same anatomy, that \
                 linear stages come before the deformation (or that an initial transform places \
                 it), and that the metric suits them (mse needs equal intensities)",
            ),
            Self::Cancelled => Some("the run was ended early; run it again to the end"),
        }
    }
}
