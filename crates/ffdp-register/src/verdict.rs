//! What a finished registration is worth, by everything that was measured of it.
//!
//! The loss of the last level is what was optimised: that it fell says little. A verdict weighs what was not optimised:
//! labels and landmarks, the overlap, what the affine map does to space, folds, the error of the inverse, and the
//! similarity over the voxels that both images cover. What is not known is left out.

use serde::Serialize;

pub use super::checks::MINIMUM_OVERLAP_PERCENT;
use super::report::{StageReport, Stop};
use ffdp_image::image::{Affine, Physical};

/// What a result is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing speaks against it.
    Aligned,
    /// Something speaks against it: look at it.
    Doubtful,
    /// It is worse than before by a measure that the user gave, or the map is none that anatomy allows.
    Failed,
}

/// A verdict, and what speaks against the result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Assessment {
    /// What the result is worth.
    pub verdict: Verdict,
    /// What speaks against it, the worst first.
    pub reasons: Vec<String>,
}

/// What was measured. Pairs are `[before, after]`.
#[derive(Clone, Debug, Default)]
pub struct Evidence<'a> {
    /// How the stages went.
    pub stages: &'a [StageReport],
    /// The loss on the last level.
    pub loss: Option<[f64; 2]>,
    /// How alike the images are over what both cover, by a measure that grows and suits their contrasts.
    pub similarity: Option<[f64; 2]>,
    /// Pearson's correlation over the foreground that both cover, where intensities are compared as they are.
    pub contrast: Option<f64>,
    /// Part of the smaller image that lies inside the other, in percent.
    pub overlap_percent: Option<[f64; 2]>,
    /// The affine map, relative to that at the start.
    pub affine: Option<Affine<Physical, Physical>>,
    /// Whether mirror images were asked for.
    pub may_mirror: bool,
    /// Folded voxels, in percent.
    pub folds_percent: Option<f64>,
    /// 95th percentile of the inverse's error, in voxels.
    pub inverse_p95_voxels: Option<f64>,
    /// Mean Dice of the labels.
    pub dice: Option<[f64; 2]>,
    /// Mean 95th percentile of the distances of the labels' surfaces, in mm.
    pub hd95_mm: Option<[f64; 2]>,
    /// Mean distance of corresponding landmarks, in mm.
    pub landmarks_mm: Option<[f64; 2]>,
    /// The finest spacing of the fixed image, in mm: smaller differences of lengths are none.
    pub voxel_mm: f64,
}

/// Mean Dice is rounded by voxels at the border of small labels.
const DICE: f64 = 0.005;
/// Part of a similarity that may be lost: the voxels that both cover are others than before.
const SIMILARITY: f64 = 0.02;
/// Stretches beyond this or its inverse are those of a collapse; a stage alone is bounded by 2.
const COLLAPSED: f64 = 2.5;
/// Stretches of another animal, or of a wrong header.
const STRETCHED: f64 = 1.5;
/// Part of the overlap that must be left.
const OVERLAP: f64 = 0.5;
/// Folds that a map may have, in percent of the voxels.
const FOLDS_PERCENT: f64 = 0.1;
/// The gate of an inverse: the 95th percentile of its error, in voxels.
pub const MOST_INVERSE_ERROR_VOXELS: f64 = 0.5;
/// Least margin of an orientation over the next one, as a part of what it gains over a middling one. Heads that were found
/// in random orientations had 0.15 to 0.97.
const MARGIN: f64 = 0.1;
/// Images of one contrast correlate by more than this where they are aligned.
const SAME_CONTRAST: f64 = 0.1;
/// A similarity with which there is nothing to gain.
const ALIKE: f64 = 0.9;

impl Evidence<'_> {
    /// The verdict.
    pub fn assess(&self) -> Assessment {
        let failed = [self.labels(), self.landmarks(), self.space(), self.overlap()];
        let failed: Vec<String> = failed.into_iter().flatten().collect();
        let doubts = [
            self.early(),
            self.surfaces(),
            self.stretched(),
            self.likeness(),
            self.gain(),
            self.contrasts(),
            self.folds(),
            self.inverse(),
            self.orientation(),
        ];
        let doubts: Vec<String> = doubts.into_iter().flatten().chain(self.undone()).collect();
        let verdict = match (failed.is_empty(), doubts.is_empty()) {
            (false, _) => Verdict::Failed,
            (true, false) => Verdict::Doubtful,
            (true, true) => Verdict::Aligned,
        };
        Assessment { verdict, reasons: failed.into_iter().chain(doubts).collect() }
    }

    fn labels(&self) -> Option<String> {
        let [before, after] = self.dice?;
        // Also where no label is left.
        let worse = after.is_nan() || after < before - DICE;
        worse.then(|| {
            format!("the labels overlap less than before: mean Dice {before:.3} -> {after:.3}")
        })
    }

    fn landmarks(&self) -> Option<String> {
        let [before, after] = self.landmarks_mm?;
        let worse = after > before + 0.1 * self.voxel_mm;
        worse.then(|| {
            format!("the landmarks lie farther apart than before: {before:.2} -> {after:.2} mm")
        })
    }

    fn space(&self) -> Option<String> {
        let affine = self.affine?;
        let determinant = affine.determinant();
        if determinant < 0.0 && !self.may_mirror {
            return Some(format!("the affine map mirrors: its determinant is {determinant:.3}"));
        }
        let [most, _, least] = affine.singular_values();
        let collapsed = most > COLLAPSED || least < 1.0 / COLLAPSED;
        collapsed.then(|| {
            format!("the affine map collapses space: it stretches by {least:.2} to {most:.2}")
        })
    }

    fn overlap(&self) -> Option<String> {
        let [before, after] = self.overlap_percent?;
        let lost = after < MINIMUM_OVERLAP_PERCENT || after < OVERLAP * before;
        lost.then(|| format!("the images lost their overlap: {before:.0} % -> {after:.0} %"))
    }

    fn early(&self) -> Option<String> {
        let mut levels = self.stages.iter().flat_map(|stage| &stage.levels);
        let early = levels.any(|level| level.stop == Stop::Cancelled);
        early.then(|| "the run was ended early".to_string())
    }

    fn surfaces(&self) -> Option<String> {
        let [before, after] = self.hd95_mm?;
        let worse = after > before + self.voxel_mm;
        worse.then(|| {
            format!(
                "the surfaces of the labels lie farther apart: HD95 {before:.2} -> {after:.2} mm"
            )
        })
    }

    fn stretched(&self) -> Option<String> {
        let [most, _, least] = self.affine?.singular_values();
        let stretched = most > STRETCHED || least < 1.0 / STRETCHED;
        (stretched && self.space().is_none()).then(|| {
            format!("the affine map stretches space by {least:.2} to {most:.2}: is that anatomy?")
        })
    }

    fn likeness(&self) -> Option<String> {
        let [before, after] = self.similarity?;
        let worse = after.is_nan() || after < (1.0 - SIMILARITY) * before;
        worse.then(|| {
            format!(
                "the images are less alike than before where both are: {before:.3} -> {after:.3}"
            )
        })
    }

    fn gain(&self) -> Option<String> {
        let [before, after] = self.loss?;
        let alike = self.similarity.is_some_and(|[_, after]| after > ALIKE);
        (after >= before && !alike).then(|| {
            "the similarity of the images did not improve: check that they show the same anatomy, that an \
             initial transform or linear stages place them, and that the metric suits them"
                .to_string()
        })
    }

    fn contrasts(&self) -> Option<String> {
        let correlation = self.contrast?;
        (correlation < SAME_CONTRAST).then(|| {
            format!(
                "the intensities do not go together (correlation {correlation:.2}): for two contrasts use \
                 --multimodal"
            )
        })
    }

    fn folds(&self) -> Option<String> {
        let percent = self.folds_percent?;
        (percent > FOLDS_PERCENT).then(|| format!("the map folds at {percent:.2} % of the voxels"))
    }

    fn inverse(&self) -> Option<String> {
        let p95 = self.inverse_p95_voxels?;
        (p95 > MOST_INVERSE_ERROR_VOXELS)
            .then(|| format!("the inverse is off by {p95:.2} voxels at 95 %: do not rely on it"))
    }

    fn orientation(&self) -> Option<String> {
        let margin = self.stages.iter().find_map(|stage| stage.margin)?;
        (margin < MARGIN).then(|| {
            format!(
                "another orientation of the moving image is about as alike (margin {margin:.2}): look at it, or give one \
                 by --initial"
            )
        })
    }

    fn undone(&self) -> impl Iterator<Item = String> {
        let undone = self.stages.iter().filter_map(|stage| Some((stage.transform, stage.undone?)));
        undone.map(|(stage, why)| format!("the stage {stage} {}, and was left out", why.reason()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{LevelReport, Undone};

    fn stretch(by: [f64; 3]) -> Option<Affine<Physical, Physical>> {
        let linear =
            std::array::from_fn(|i| std::array::from_fn(|j| if i == j { by[i] } else { 0.0 }));
        Some(Affine::from_parts(linear, [5.0, 0.0, 0.0]))
    }

    fn stage(undone: Option<Undone>, stop: Stop) -> Vec<StageReport> {
        let level = LevelReport {
            shrink: 1.0,
            size: [8; 3],
            losses: vec![0.5],
            stop,
            seconds: 0.0,
            newton: Vec::new(),
        };
        let levels = vec![level];
        vec![StageReport {
            transform: "affine",
            levels,
            loss_after: 0.5,
            undone,
            margin: None,
            seconds: 0.0,
        }]
    }

    /// A good result.
    fn good() -> Evidence<'static> {
        Evidence {
            loss: Some([0.5, 0.3]),
            similarity: Some([0.4, 0.7]),
            contrast: Some(0.9),
            overlap_percent: Some([90.0, 88.0]),
            affine: stretch([1.1, 0.95, 1.0]),
            folds_percent: Some(0.001),
            inverse_p95_voxels: Some(0.1),
            dice: Some([0.5, 0.8]),
            hd95_mm: Some([4.0, 2.0]),
            landmarks_mm: Some([8.0, 2.0]),
            voxel_mm: 1.0,
            ..Evidence::default()
        }
    }

    #[test]
    fn a_good_result_is_aligned_and_so_is_one_of_which_little_is_known() {
        let nothing = Assessment { verdict: Verdict::Aligned, reasons: Vec::new() };
        assert_eq!(good().assess(), nothing);
        assert_eq!(Evidence::default().assess(), nothing);
        // Two equal images: nothing to gain.
        let equal = Evidence { loss: Some([0.0, 0.0]), similarity: Some([1.0, 1.0]), ..good() };
        assert_eq!(equal.assess(), nothing);
    }

    #[test]
    fn what_speaks_against_a_result_decides_its_verdict_and_is_named() {
        use Verdict::{Doubtful, Failed};
        let [cancelled, uninformative] =
            [stage(None, Stop::Cancelled), stage(Some(Undone::Uninformative), Stop::Converged)];
        for (evidence, verdict, word) in [
            (Evidence { dice: Some([0.196, 0.043]), ..good() }, Failed, "0.196 -> 0.043"),
            (Evidence { dice: Some([0.5, f64::NAN]), ..good() }, Failed, "NaN"),
            (Evidence { landmarks_mm: Some([10.7, 20.1]), ..good() }, Failed, "10.70 -> 20.10"),
            (Evidence { affine: stretch([-1.0, 1.0, 1.0]), ..good() }, Failed, "mirrors"),
            (Evidence { affine: stretch([1.0, 0.9, 0.05]), ..good() }, Failed, "collapses"),
            (Evidence { affine: stretch([1.6, 1.0, 1.0]), ..good() }, Doubtful, "1.60"),
            (Evidence { overlap_percent: Some([90.0, 30.0]), ..good() }, Failed, "overlap"),
            (Evidence { overlap_percent: Some([0.0, 4.0]), ..good() }, Failed, "overlap"),
            (Evidence { hd95_mm: Some([3.65, 11.4]), ..good() }, Doubtful, "HD95"),
            (Evidence { similarity: Some([0.29, 0.235]), ..good() }, Doubtful, "less alike"),
            (Evidence { loss: Some([0.5, 0.5]), ..good() }, Doubtful, "did not improve"),
            (Evidence { contrast: Some(-0.4), ..good() }, Doubtful, "--multimodal"),
            (Evidence { folds_percent: Some(10.8), ..good() }, Doubtful, "10.80 %"),
            (Evidence { inverse_p95_voxels: Some(0.8), ..good() }, Doubtful, "0.80 voxels"),
            (Evidence { stages: &cancelled, ..good() }, Doubtful, "early"),
            (Evidence { stages: &uninformative, ..good() }, Doubtful, "no information"),
        ] {
            let found = evidence.assess();
            assert_eq!(found.verdict, verdict, "{evidence:?}");
            assert!(
                found.reasons.len() == 1 && found.reasons[0].contains(word),
                "{word}: {found:?}"
            );
        }
        let mirrored = Evidence { affine: stretch([-1.0, 1.0, 1.0]), may_mirror: true, ..good() };
        assert_eq!(mirrored.assess().verdict, Verdict::Aligned);
    }
}
