//! The measures as a few lines for people.

use std::fmt::Write;

use ffdp_image::metrics::Surfaces;
use ffdp_register::verdict::{Assessment, Verdict};

use super::measures::{Measures, Seconds};

/// A verdict as it is printed.
pub fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Aligned => "aligned",
        Verdict::Doubtful => "doubtful",
        Verdict::Failed => "failed",
    }
}

/// The verdict, and a line for each thing that speaks against the result.
pub fn verdict(assessment: &Assessment) -> String {
    let name = verdict_word(assessment.verdict);
    let reasons = assessment.reasons.iter().map(|reason| format!("  - {reason}\n"));
    format!("{:<22}{name}\n", "verdict") + &reasons.collect::<String>()
}

/// The text that `register` prints to stdout.
pub fn summary(measures: &Measures) -> String {
    let mut text = verdict(&measures.result.assessment);
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<22}{value}");
    };
    let (similarity, loss) = (&measures.result.similarity, measures.result.loss);
    line("loss", format!("{:.5} -> {:.5}", loss.before, loss.after));
    let (before, after) = (&similarity.before, &similarity.after);
    line("correlation", format!("{:.4} -> {:.4}", before.ncc, after.ncc));
    let (local, after) = (before.local_ncc_foreground, after.local_ncc_foreground);
    line("local correlation^2", format!("{local:.4} -> {after:.4} (7^3 windows, foreground)"));
    if let Some(dice) = &measures.result.dice {
        let present = dice.labels.iter().filter(|label| label.after.is_some()).count();
        let (before, after) = (dice.mean.before, dice.mean.after);
        line("mean Dice", format!("{before:.4} -> {after:.4} ({present} labels)"));
        let weighted = &dice.inverse_volume_mean;
        let (before, after) = (weighted.before, weighted.after);
        line("  by inverse volume", format!("{before:.4} -> {after:.4}"));
        if let Some(Surfaces { hd95_mm, hd90_cumulative_mm }) = &dice.surfaces {
            for (name, mm) in [("HD95", hd95_mm), ("HD90, cumulative", hd90_cumulative_mm)] {
                line(name, format!("{:.2} -> {:.2} mm", mm.before, mm.after));
            }
        }
    }
    if let Some(tre) = &measures.result.landmarks_mm {
        let (before, after, count) = (tre.before.mean, tre.after.mean, tre.errors_mm.len());
        line("landmarks", format!("mean {before:.2} -> {after:.2} mm ({count} pairs)"));
    }
    let (whole, part) = (&measures.result.motion_mm, &measures.result.displacement_mm);
    line(
        "motion",
        format!(
            "mean {:.2} mm, largest {:.2} mm; of it the deformation {:.2} and {:.2} mm",
            whole.mean, whole.max, part.mean, part.max
        ),
    );
    let folds = &measures.result.folds;
    let det = &folds.jacobian_central;
    line("det J", format!("{:.3} .. {:.3}, median {:.3}", det.min, det.max, det.median));
    line("folds", format!("{} voxels ({:.4} %)", folds.voxels, folds.percent));
    if let Some(inverse) = &measures.result.inverse {
        let (mm, p95, max) = (inverse.p95_mm, inverse.p95_voxels, inverse.max_voxels);
        line(
            "error of the inverse",
            format!("95 % below {p95:.3} voxels ({mm:.3} mm), largest {max:.2} voxels"),
        );
    }
    let Seconds { read, start, register, iterations, results, total } = measures.seconds;
    line(
        "time",
        format!(
            "{total:.2} s: files read {read:.2}, device start-up in parallel {start:.2}; registration {register:.2}, \
             of which iterations {iterations:.2}; results {results:.2}"
        ),
    );
    text
}
