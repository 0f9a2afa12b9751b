//! What is known of a registration slab by slab: no measure of it takes a whole image.

use ffdp_train::report::tile;
use maud::{Markup, html};
use serde::Serialize;

use super::measures::{BeforeAfter, Overlap, Record, Seconds};
use super::sections::{affine, landmarks, row};
use super::summary::verdict;

/// `metrics.json`.
#[derive(Debug, Serialize)]
pub struct SlabMeasures {
    #[serde(flatten)]
    pub record: Record,
    /// Voxels at which det J, by central differences, is not positive; null without a deformation.
    pub folds: Option<u64>,
    pub smallest_determinant: Option<f64>,
    pub longest_displacement_mm: Option<f64>,
    /// All of them, by rank, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<Process>,
}

/// One of several processes.
#[derive(Debug, Serialize)]
pub struct Process {
    pub host: String,
    /// First plane, and the one after the last, of the displacement that it held on the last level; null without a
    /// deformation.
    pub planes: Option<[usize; 2]>,
    /// Null where the system does not say.
    pub peak_memory_bytes: Option<u64>,
}

/// The few numbers one looks at first.
pub fn headlines(measures: &SlabMeasures) -> Markup {
    let Record { loss, dice, seconds, .. } = &measures.record;
    let from = |before: f64| format!("from {before:.4}");
    html! {
        section.headlines {
            (tile("Loss", &format!("{:.4}", loss.after), &from(loss.before)))
            @if let Some(dice) = dice {
                (tile("Mean Dice", &format!("{:.3}", dice.mean.after), &from(dice.mean.before)))
            }
            @if let Some(tre) = &measures.record.landmarks_mm {
                (tile("Landmarks", &format!("{:.2} mm", tre.after.mean),
                      &format!("apart, from {:.2} mm", tre.before.mean)))
            }
            @if let Some(folds) = measures.folds {
                (tile("Folded voxels", &folds.to_string(), "central differences"))
            }
            @if let Some(mm) = measures.longest_displacement_mm {
                (tile("Displacement", &format!("{mm:.1} mm"), "the largest"))
            }
            (tile("Time", &format!("{:.1} s", seconds.total),
                  &format!("{:.1} s of it registration", seconds.register)))
        }
    }
}

/// What was optimised, and the Jacobian.
pub fn measures(measures: &SlabMeasures) -> Markup {
    let loss = measures.record.loss;
    html! {
        section {
            h2 { "Measures" }
            table.numbers {
                caption { "Similarity" }
                thead { tr { th {} th scope="col" { "before" } th scope="col" { "after" } } }
                tbody { (row("Loss that was minimised, last level", loss.before, loss.after)) }
            }
            @if let (Some(folds), Some(least)) = (measures.folds, measures.smallest_determinant) {
                p.note {
                    "Folded by central differences: " (folds) " voxels. The smallest determinant of the Jacobian: "
                    (format!("{least:.4}")) "."
                }
            }
            (landmarks(&measures.record))
            (affine(&measures.record))
            p.note { "Slab by slab: measures that take whole images are not among them." }
        }
    }
}

/// The text that `register` prints to stdout.
pub fn summary(measures: &SlabMeasures) -> String {
    let Record { loss: BeforeAfter { before, after }, dice, seconds, .. } = &measures.record;
    let mut text = verdict(&measures.record.assessment);
    text += &format!("loss                  {before:.5} -> {after:.5}\n");
    if let Some(Overlap { mean: BeforeAfter { before, after }, .. }) = dice {
        text += &format!("mean Dice             {before:.4} -> {after:.4}\n");
    }
    if let Some(tre) = &measures.record.landmarks_mm {
        let (before, after, count) = (tre.before.mean, tre.after.mean, tre.errors_mm.len());
        text +=
            &format!("landmarks             mean {before:.2} -> {after:.2} mm ({count} pairs)\n");
    }
    if let (Some(folds), Some(det), Some(mm)) =
        (measures.folds, measures.smallest_determinant, measures.longest_displacement_mm)
    {
        text += &format!("displacement          largest {mm:.2} mm\n");
        text += &format!("folds                 {folds} voxels, smallest det J {det:.3}\n");
    }
    let Seconds { total, register, .. } = seconds;
    text + &format!("time                  {total:.1} s, of which {register:.1} s registration\n")
}
