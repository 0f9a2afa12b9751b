//! What was made: `manifest.json`, and `pairs.csv` for training.

use std::path::Path;

use ffdp_image::io::{csv_line, write_text};
use ffdp_image::synth::WarpSettings;
use serde::Serialize;

use super::SynthArguments;
use super::plan::SubjectFiles;
use crate::failure::Result;
use crate::manifest::Manifest as RunManifest;

/// One in this many pairs is for validation and one for the test, at least one each.
const HELD_OUT: usize = 10;

/// Everything about a run; paths are relative to the output folder.
#[derive(Serialize)]
pub struct Manifest {
    /// What every command lists.
    #[serde(flatten)]
    run: RunManifest,
    seed: u64,
    /// Where the intensity statistics come from.
    statistics: String,
    smoothing_voxels: f64,
    variation: f64,
    subjects: Vec<SubjectEntry>,
}

/// One subject.
#[derive(Clone, Serialize)]
pub struct SubjectEntry {
    name: String,
    seed: u64,
    /// The label map it is made from; null for the procedural brain.
    label_map: Option<String>,
    /// The warp's settings; null without warp.
    warp_settings: Option<WarpSettings>,
    warp: Option<String>,
    inverse_warp: Option<String>,
    images: Vec<ImageEntry>,
}

/// One resolution of a subject.
#[derive(Clone, Serialize)]
struct ImageEntry {
    spacing_mm: f64,
    image: String,
    labels: String,
}

impl SubjectEntry {
    pub fn new(
        request: &SynthArguments,
        files: &SubjectFiles,
        seed: u64,
        label_map: Option<String>,
        warp_settings: Option<WarpSettings>,
    ) -> Self {
        let relative =
            |path: &Path| path.strip_prefix(&request.output).unwrap_or(path).display().to_string();
        let image = |(index, &spacing_mm): (usize, &f64)| ImageEntry {
            spacing_mm,
            image: relative(&files.images[index]),
            labels: relative(&files.labels[index]),
        };
        Self {
            name: files.name.clone(),
            seed,
            label_map,
            warp: warp_settings.is_some().then(|| relative(&files.warp)),
            inverse_warp: warp_settings.is_some().then(|| relative(&files.inverse_warp)),
            warp_settings,
            images: request.spacing.iter().enumerate().map(image).collect(),
        }
    }
}

impl Manifest {
    pub fn new(
        request: &SynthArguments,
        run: RunManifest,
        subjects: Vec<SubjectEntry>,
        statistics: &str,
    ) -> Self {
        Self {
            run,
            seed: request.seed,
            statistics: statistics.to_string(),
            smoothing_voxels: request.smoothing,
            variation: request.variation,
            subjects,
        }
    }
}

/// Writes the list of pairs of every resolution: subjects 0 and 1, 2 and 3, and so on, so that
/// none is in two parts. One subject alone makes no pair, and no list.
pub fn write_pairs(subjects: &[SubjectEntry], output: &Path) -> Result<()> {
    let Some(first) = subjects.first().filter(|_| subjects.len() > 1) else {
        return Ok(());
    };
    for index in 0..first.images.len() {
        let mut text = "fixed,moving,fixed_labels,moving_labels,part\n".to_string();
        let pairs: Vec<&[SubjectEntry]> = subjects.chunks_exact(2).collect();
        for (number, pair) in pairs.iter().enumerate() {
            let part = part(number, pairs.len());
            let file = |path: &str| path.rsplit(['/', '\\']).next().unwrap_or(path).to_string();
            let [moving, fixed] = [&pair[0].images[index], &pair[1].images[index]];
            let line = [&fixed.image, &moving.image, &fixed.labels, &moving.labels];
            text += &csv_line(line.map(|path| file(path)).into_iter().chain([part.to_string()]));
        }
        let folder = Path::new(&first.images[index].image).parent().unwrap_or(Path::new(""));
        write_text(&output.join(folder).join("pairs.csv"), &text)?;
    }
    Ok(())
}

/// What a pair is for: with fewer than three pairs all are trained on.
fn part(number: usize, pairs: usize) -> &'static str {
    let held_out = if pairs < 3 { 0 } else { (pairs / HELD_OUT).max(1) };
    match pairs - number {
        left if left <= held_out => "test",
        left if left <= 2 * held_out => "validation",
        _ => "train",
    }
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn pairs_are_held_out_once_there_are_three() {
        let parts = |pairs: usize| (0..pairs).map(|n| part(n, pairs)).collect::<Vec<_>>();
        assert_eq!(parts(2), ["train", "train"]);
        assert_eq!(parts(3), ["train", "validation", "test"]);
        let count = |name| parts(40).into_iter().filter(|part| *part == name).count();
        assert_eq!([count("train"), count("validation"), count("test")], [32, 4, 4]);
    }
}
