//! `report.html` of a run: one page with figures, curves and pictures, nothing loaded from elsewhere.

use std::fs;
use std::path::{Path, PathBuf};

use ffdp_image::io::write_text;
use ffdp_image::{Error, Result};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::evaluate::{Evaluation, PairScores};
use crate::pictures::data_url;
use crate::run::TrainingRun;
use crate::settings::file::to_toml;
use crate::train::Trained;

const STYLE: &str = include_str!("style.css");

/// Pictures of this many epochs at most are shown, evenly spread and with the last.
const SHOWN_EPOCHS: usize = 3;

/// Pictures of this many evaluated pairs at most are shown.
const SHOWN_PAIRS: usize = 6;

/// Writes the page into the folder of the run, from what lies there and from the figures.
///
/// # Errors
/// A picture that cannot be read, a page that cannot be written.
pub fn write(run: &TrainingRun, trained: &Trained, evaluation: &Evaluation) -> Result<()> {
    write_text(&run.folder.report(), &page(run, trained, evaluation)?)
}

/// A page that loads nothing from elsewhere, as HTML: its title, how it looks (CSS), and what it shows.
pub fn document(title: &str, style: &str, content: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(style)) }
            }
            body { main { (content) } }
        }
    };
    page.into_string()
}

/// A figure in large digits, with its name above and a note below.
pub fn tile(name: &str, value: &str, note: &str) -> Markup {
    html! { div.tile { p.name { (name) } p.value { (value) } p.note { (note) } } }
}

fn page(run: &TrainingRun, trained: &Trained, evaluation: &Evaluation) -> Result<String> {
    let pictures = run.folder.pictures();
    let title = match &run.settings.data {
        Some(data) => data.display().to_string(),
        None => "Synthetic brains".to_string(),
    };
    let curves = figure(
        &pictures.join("learning-curves.png"),
        "Loss by step and epoch; Dice of the validation pairs",
    )?;
    let epochs: Vec<Markup> = shown(&epochs(&pictures)?)
        .iter()
        .map(|path| figure(path, &caption(path)))
        .collect::<Result<_>>()?;
    let pairs: Vec<Markup> = (evaluation.pairs.iter().enumerate().take(SHOWN_PAIRS))
        .map(|(index, pair)| figure(&pictures.join(format!("pair-{}.png", index + 1)), &pair.name))
        .collect::<Result<_>>()?;
    let content = html! {
        p.kicker { "Training of a registration network" }
        h1 { (title) }
        (headlines(trained, evaluation))
        h2 { "Learning curves" }
        (curves)
        h2 { @if evaluation.held_out { "Held-out pairs" } @else { "Training pairs (nothing was held out)" } }
        (scores(evaluation))
        @for pair in &pairs { (pair) }
        @if !epochs.is_empty() {
            h2 { "A validation pair while the network learns" }
            @for epoch in &epochs { (epoch) }
        }
        h2 { "The run" }
        pre { (trained.table()) }
        h3 { "settings.toml" }
        p.note { "ffdp train --settings with this file repeats the run." }
        pre { (to_toml(&run.settings)) }
    };
    Ok(document(&format!("Training on {title}"), STYLE, &content))
}

fn headlines(trained: &Trained, evaluation: &Evaluation) -> Markup {
    let figures = evaluation.means();
    html! {
        div.headlines {
            @if let Some([before, after]) = figures.dice {
                (tile("Mean Dice", &format!("{after:.3}"), &format!("{before:.3} before")))
            }
            @if let Some([before, after]) = figures.lncc {
                (tile("Local correlation", &format!("{after:.3}"), &format!("{before:.3} before")))
            }
            @if let Some(folds) = figures.folds_percent {
                (tile("Folds", &format!("{folds:.3} %"), "of the voxels"))
            }
            (tile("Step", &format!("{:.3} s", trained.seconds_per_step), &format!("{} steps", trained.steps)))
        }
    }
}

fn scores(evaluation: &Evaluation) -> Markup {
    let two = |values: Option<[f64; 2]>| match values {
        Some([before, after]) => format!("{before:.3} → {after:.3}"),
        None => "no labels".to_string(),
    };
    let row = |pair: &PairScores| {
        html! { tr {
            td { (pair.name) }
            td { (two(pair.dice)) }
            td { (two(Some(pair.lncc))) }
            td { (format!("{:.3}", pair.folds_percent)) }
            td { (format!("{:.3}", pair.sd_log_jacobian)) }
            td { (format!("{:.2}", pair.seconds)) }
        } }
    };
    html! {
        table {
            thead { tr {
                th { "pair" } th { "Dice" } th { "LNCC" } th { "folds, %" } th { "SD log J" } th { "s" }
            } }
            tbody { @for pair in &evaluation.pairs { (row(pair)) } }
        }
    }
}

/// The pictures of the epochs, in order.
fn epochs(pictures: &Path) -> Result<Vec<PathBuf>> {
    let failed = |error| Error::io(pictures, "list", error);
    let mut found = Vec::new();
    for entry in fs::read_dir(pictures).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("epoch-")) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Some of the paths, evenly spread; the first and the last are among them.
fn shown(paths: &[PathBuf]) -> Vec<&PathBuf> {
    let count = paths.len().min(SHOWN_EPOCHS);
    let at = |k: usize| if count < 2 { 0 } else { k * (paths.len() - 1) / (count - 1) };
    (0..count).map(|k| &paths[at(k)]).collect()
}

/// `epoch-007.png` as "Epoch 7".
fn caption(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let number = stem.rsplit('-').next().unwrap_or_default().trim_start_matches('0');
    format!("Epoch {number}")
}

fn figure(path: &Path, caption: &str) -> Result<Markup> {
    let bytes = fs::read(path).map_err(|error| Error::io(path, "read", error))?;
    Ok(html! { figure { img src=(data_url(&bytes)) alt=(caption); figcaption { (caption) } } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_the_middle_and_the_last_epoch_are_shown() {
        let paths = |count: usize| -> Vec<PathBuf> {
            (1..=count).map(|epoch| format!("epoch-{epoch:03}.png").into()).collect()
        };
        let captions =
            |count| shown(&paths(count)).iter().map(|path| caption(path)).collect::<Vec<_>>();
        assert_eq!(captions(0), [""; 0]);
        assert_eq!(captions(1), ["Epoch 1"]);
        assert_eq!(captions(2), ["Epoch 1", "Epoch 2"]);
        assert_eq!(captions(120), ["Epoch 1", "Epoch 60", "Epoch 120"]);
    }
}
