//! The closing evaluation: Dice, local correlation and folds, before and after.

use std::path::Path;

use ffdp_image::Result;
use ffdp_image::io::write_text;
use ffdp_image::metrics::{local_ncc, regularity};
use serde::Serialize;

use crate::data::{Dataset, Prepared};
use crate::run::TrainingRun;
use crate::settings::Settings;
use crate::team::Inference;

/// Figures of one pair.
#[derive(Clone, Debug, Serialize)]
pub struct PairScores {
    /// Moving to fixed.
    pub name: String,
    /// Mean Dice over the evaluated labels; `None` without labels.
    pub dice: Option<[f64; 2]>,
    /// Mean squared local correlation (window as trained) over the fixed image's foreground.
    pub lncc: [f64; 2],
    /// Voxels that fold, percent.
    pub folds_percent: f64,
    /// Standard deviation of the logarithm of the Jacobian determinant.
    pub sd_log_jacobian: f64,
    /// Seconds to register.
    pub seconds: f64,
}

/// Figures of all pairs; arrays are before and after.
#[derive(Clone, Debug, Serialize)]
pub struct Evaluation {
    /// Whether the pairs were kept out of the training.
    pub held_out: bool,
    /// One by one.
    pub pairs: Vec<PairScores>,
}

/// Means over pairs; arrays are before and after. `None` where a pair has no such figure, or where
/// there are no pairs.
#[derive(Clone, Debug)]
pub struct Means {
    /// Mean Dice.
    pub dice: Option<[f64; 2]>,
    /// Mean squared local correlation.
    pub lncc: Option<[f64; 2]>,
    /// Voxels that fold, percent.
    pub folds_percent: Option<f64>,
}

/// Registers the held-out pairs, saves the figures as `evaluation.json` and draws each pair.
///
/// # Errors
/// Files that cannot be written and failures of the device.
pub fn evaluate(run: &TrainingRun, dataset: &Dataset, inference: &Inference) -> Result<Evaluation> {
    let score = |(index, pair)| {
        let path = run.folder.pictures().join(format!("pair-{}.png", index + 1));
        let pair = dataset.preparation.prepare(pair, None)?;
        score(&run.settings, &pair, inference, &path)
    };
    let pairs = dataset.held_out.iter().enumerate().map(score).collect::<Result<_>>()?;
    let evaluation = Evaluation { held_out: dataset.is_held_out, pairs };
    let text = serde_json::to_string_pretty(&evaluation).expect("figures are plain values");
    write_text(&run.folder.evaluation(), &text)?;
    Ok(evaluation)
}

#[cfg_attr(not(feature = "report"), allow(unused_variables, reason = "no picture is drawn"))]
fn score(
    settings: &Settings,
    pair: &Prepared,
    inference: &Inference,
    picture: &Path,
) -> Result<PairScores> {
    let (moving, fixed) = (&pair.moving.image, &pair.fixed.image);
    let size = fixed.geometry.size;
    let [on_device, target] = [moving, fixed].map(|image| image.to_tensor(inference.device()));
    let prediction = inference.predict(on_device, target)?;
    let mean = |field: &[f32]| -> Result<Option<f64>> {
        Ok(inference.model().objective().dice(pair, field)?.map(|dice| dice.mean()))
    };
    let before = mean(&vec![0.0; prediction.displacement.len()])?;
    let after = mean(&prediction.displacement)?;
    let foreground: Vec<bool> = fixed.data.iter().map(|&value| value > 0.0).collect();
    let window = settings.reported_window();
    let lncc = |moved: &[f32]| local_ncc(&fixed.data, moved, size, window, Some(&foreground));
    let report = regularity(&prediction.displacement, size)?;
    #[cfg(feature = "report")]
    crate::pictures::slices::draw(picture, pair, &prediction.moved, &prediction.displacement)?;
    Ok(PairScores {
        name: format!("{} to {}", pair.moving.name, pair.fixed.name),
        dice: before.zip(after).map(|(before, after)| [before, after]),
        lncc: [lncc(&moving.data)?, lncc(&prediction.moved)?],
        folds_percent: 100.0 * report.true_fold_fraction,
        sd_log_jacobian: report.sd_log,
        seconds: prediction.seconds,
    })
}

impl Evaluation {
    /// Means over the pairs of a figure before and after; `None` if a pair lacks it.
    fn mean(&self, figure: impl Fn(&PairScores) -> Option<[f64; 2]>) -> Option<[f64; 2]> {
        let all: Option<Vec<[f64; 2]>> = self.pairs.iter().map(figure).collect();
        let all = all.filter(|all| !all.is_empty())?;
        let mean = |i: usize| all.iter().map(|two| two[i]).sum::<f64>() / all.len() as f64;
        Some([mean(0), mean(1)])
    }

    /// Mean Dice before and after, if there are labels.
    pub fn mean_dice(&self) -> Option<[f64; 2]> {
        self.mean(|pair| pair.dice)
    }

    /// The means over the pairs.
    pub fn means(&self) -> Means {
        let folds = self.mean(|pair| Some([pair.folds_percent; 2]));
        Means {
            dice: self.mean_dice(),
            lncc: self.mean(|pair| Some(pair.lncc)),
            folds_percent: folds.map(|[folds, _]| folds),
        }
    }

    /// The figures as text, a line per pair and one for the mean.
    pub fn table(&self) -> String {
        let title = match self.held_out {
            true => "held-out pair",
            false => "training pair (nothing was held out)",
        };
        let width = self.pairs.iter().map(|pair| pair.name.len()).fold(title.len(), usize::max);
        let mut lines = vec![format!(
            "{title:width$}  {:>15}  {:>15}  {:>7}  {:>9}",
            "Dice", "LNCC", "folds", "SD log J"
        )];
        let two = |values: Option<[f64; 2]>| match values {
            Some([before, after]) => format!("{before:.3} -> {after:.3}"),
            None => "no labels".into(),
        };
        let mut line = |name: &str, dice, lncc, folds: f64, sd: f64| {
            let (dice, lncc) = (two(dice), two(lncc));
            lines.push(format!("{name:width$}  {dice:>15}  {lncc:>15}  {folds:6.3}%  {sd:9.3}"));
        };
        for pair in &self.pairs {
            line(&pair.name, pair.dice, Some(pair.lncc), pair.folds_percent, pair.sd_log_jacobian);
        }
        if self.pairs.len() > 1 {
            let rest = self.mean(|pair| Some([pair.folds_percent, pair.sd_log_jacobian]));
            let [folds, sd] = rest.expect("there are pairs");
            line("mean", self.mean_dice(), self.mean(|pair| Some(pair.lncc)), folds, sd);
        }
        lines.join("\n")
    }
}
