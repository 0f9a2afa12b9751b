//! The measures and the page of a template: pictures of its rounds, how it converged, and its images.

use ffdp_burn::transform::RoundTrip;
use ffdp_groups::template::{Excluded, MemberReport, RoundKind, RoundReport, TemplateSettings};
use ffdp_image::image::Geometry;
use ffdp_train::report::{document, tile};
use maud::{Markup, PreEscaped, html};
use serde::Serialize;
use serde_json::{Value, json};

use super::charts;
use super::html::{STYLE, TO_LOOK_AT, heading};
use super::measures::{Provenance, RunMeasures};
use super::slices::{Pictures, View};
use crate::failure::{Failure, Result};

/// Everything that is known about a finished template, as `metrics.json` holds it.
#[derive(Debug, Serialize)]
pub struct TemplateMetrics {
    #[serde(flatten)]
    pub run: Provenance,
    /// Images that were named.
    pub images: usize,
    pub grid: Geometry,
    /// The start first.
    pub rounds: Vec<RoundReport>,
    pub members: Vec<MemberFiles>,
    /// Images that take no part.
    pub excluded: Vec<Excluded>,
    pub settings: TemplateSettings,
    pub seconds: f64,
    /// The most memory the process had resident; null where the system does not say.
    pub peak_memory_bytes: Option<u64>,
}

/// An image of the template.
#[derive(Debug, Serialize)]
pub struct MemberFiles {
    #[serde(flatten)]
    pub report: MemberReport,
    /// How well the inverse displacement undoes the displacement, where one is written.
    pub inverse: Option<RoundTrip>,
}

impl TemplateMetrics {
    /// Images that are part of the template.
    pub fn used(&self) -> usize {
        self.members.iter().filter(|member| member.report.is_used).count()
    }

    /// Mean Dice of the labels of images with those of the vote.
    pub fn mean_dice(&self) -> Option<f64> {
        let dice: Vec<f64> = self.members.iter().filter_map(|member| member.report.dice).collect();
        (!dice.is_empty()).then(|| dice.iter().sum::<f64>() / dice.len() as f64)
    }

    fn last(&self) -> &RoundReport {
        self.rounds.last().expect("there is a start")
    }
}

/// For people: `start`, `linear 1`, `deformable 3`.
pub fn name_of_round(report: &RoundReport) -> String {
    match report.kind {
        RoundKind::Start => "start".to_string(),
        RoundKind::Linear => format!("linear {}", report.round),
        RoundKind::Deformable => format!("deformable {}", report.round),
    }
}

impl RunMeasures for TemplateMetrics {
    fn end(&self) -> Value {
        json!({"run_seconds": self.seconds, "used": self.used()})
    }

    fn json(&self) -> Result<String> {
        let json = serde_json::to_value(self).and_then(|mut json| {
            if let Some(fields) = json.as_object_mut() {
                fields.insert("used".into(), self.used().into());
                fields.insert("mean_dice".into(), self.mean_dice().into());
            }
            serde_json::to_string_pretty(&json)
        });
        Ok(json.map_err(|reason| Failure::defect(reason.to_string()))? + "\n")
    }

    fn summary(&self) -> String {
        let mut text = format!("{:<16}{} of {}\n", "images", self.used(), self.images);
        text += &format!(
            "{:<16}{:>8}{:>12}{:>12}{:>9}\n",
            "round", "change", "mean map", "sharpness", "spread"
        );
        for round in &self.rounds {
            let change = round.change.map_or("-".to_string(), |change| format!("{change:.4}"));
            let (map, [_, sharpness]) = (round.mean_map_mm, round.sharpness);
            let (name, spread) = (name_of_round(round), round.spread);
            text += &format!("{name:<16}{change:>8}{map:>9.2} mm{sharpness:>12.5}{spread:>9.3}\n");
        }
        if let Some(dice) = self.mean_dice() {
            text += &format!("{:<16}{dice:.4} (mean Dice with the labels of most)\n", "labels");
        }
        for Excluded { name, reason, .. } in &self.excluded {
            text += &format!("left out: {name}: {reason}\n");
        }
        text + &format!("{:<16}{:.1} s\n", "time", self.seconds)
    }
}

/// The page; of each round its name and its pictures.
pub fn page(metrics: &TemplateMetrics, rounds: &[(String, Pictures)]) -> Result<String> {
    let last = metrics.last();
    let toml = toml::to_string_pretty(&metrics.settings)
        .map_err(|reason| Failure::defect(format!("settings could not be written: {reason}")))?;
    let changes: Vec<f64> = metrics.rounds.iter().filter_map(|round| round.change).collect();
    let (used, images) = (metrics.used(), metrics.images);
    let content = html! {
        (heading("Template", &format!("Template of {used} images"), None, &metrics.run))
        div.headlines {
            (tile("images", &format!("{used}"), &format!("of {images} in the list")))
            (tile("sharpness", &format!("{:.4}", last.sharpness[1]),
                &format!("of the mean {:.4}, at the start {:.4}", last.sharpness[0], metrics.rounds[0].sharpness[0])))
            (tile("spread", &format!("{:.3}", last.spread), &format!("at the start {:.3}", metrics.rounds[0].spread)))
            @if let Some(dice) = metrics.mean_dice() {
                (tile("overlap of labels", &format!("{dice:.3}"), "mean Dice with the labels of most"))
            }
        }
        (notes(metrics))
        (pictures(rounds))
        section {
            h2 { "Convergence" }
            (table(&metrics.rounds))
            @if let Some(curve) = charts::logarithmic(&changes, "log10 change") { (PreEscaped(curve)) }
            p.note {
                "Change: root mean square of the difference to the template before, as a part of that of the template. "
                "Mean map: what the maps had in common and was taken out. Sharpness: variance of the Laplacian, "
                "intensities from 0 to 1. Spread: standard deviation of the images in the foreground, as a part of the mean."
            }
        }
        (members(metrics))
        details { summary { "Settings" } pre { (toml) } }
        details { summary { "Command" } pre { (metrics.run.command.join(" ")) } }
    };
    Ok(document("Template", STYLE, &content))
}

/// What to look at: images that are left out, and registrations that something speaks against.
fn notes(metrics: &TemplateMetrics) -> Markup {
    let excluded = metrics.excluded.iter();
    let excluded =
        excluded.map(|Excluded { name, reason, .. }| format!("{name} is left out: {reason}"));
    let doubts = metrics.last().images.iter().filter(|image| !image.reasons.is_empty());
    let doubts = doubts.map(|image| format!("{}: {}", image.name, image.reasons.join("; ")));
    let all: Vec<String> = excluded.chain(doubts).collect();
    super::html::notes(TO_LOOK_AT, &all)
}

/// A row for each plane, a column for each round.
fn pictures(rounds: &[(String, Pictures)]) -> Markup {
    const PLANES: [&str; 3] = ["axial", "coronal", "sagittal"];
    html! {
        section {
            h2 { "Rounds" }
            figure {
                table.slices {
                    thead { tr { th {} @for (name, _) in rounds { th scope="col" { (name) } } } }
                    tbody { @for (plane, name) in PLANES.iter().enumerate() { tr {
                        th scope="row" { (name) }
                        @for (round, pictures) in rounds {
                            @let canvas = pictures.get(plane, View::Fixed);
                            td { div.slice {
                                img src=(canvas.data_url()) alt={ (round) ", " (name) " plane" }
                                    width=(canvas.width) height=(canvas.height);
                            } }
                        }
                    } } }
                }
                figcaption { "Planes through the middle of the template's grid, after each round." }
            }
        }
    }
}

fn table(rounds: &[RoundReport]) -> Markup {
    html! {
        table.numbers {
            thead { tr {
                @for name in ["round", "change", "mean map, mm", "sharpness of the mean", "sharpened", "spread", "images", "s"] {
                    th scope="col" { (name) }
                }
            } }
            tbody { @for round in rounds { tr {
                th scope="row" { (name_of_round(round)) }
                td { (round.change.map_or("-".to_string(), |change| format!("{change:.4}"))) }
                td { (format!("{:.2}", round.mean_map_mm)) }
                td { (format!("{:.5}", round.sharpness[0])) }
                td { (format!("{:.5}", round.sharpness[1])) }
                td { (format!("{:.3}", round.spread)) }
                td { (round.images.iter().filter(|image| image.is_used).count()) }
                td { (format!("{:.1}", round.seconds)) }
            } } }
        }
    }
}

fn members(metrics: &TemplateMetrics) -> Markup {
    let reports = &metrics.last().images;
    let loss = |index: usize| {
        reports.iter().find(|image| image.index == index).and_then(|image| image.loss)
    };
    html! {
        section {
            h2 { "Images" }
            table.numbers {
                thead { tr {
                    @for name in ["image", "loss before", "after", "stretch of the affine map", "inverse, 95 %, voxels", "Dice"] {
                        th scope="col" { (name) }
                    }
                } }
                tbody { @for MemberFiles { report, inverse } in &metrics.members {
                    @let loss = loss(report.index);
                    @let [most, _, least] = report.affine.singular_values();
                    tr {
                        th scope="row" { (report.name) @if !report.is_used { " (left out)" } }
                        @for i in 0..2 { td { (loss.map_or("-".to_string(), |loss| format!("{:.4}", loss[i]))) } }
                        td { (format!("{least:.2} to {most:.2}")) }
                        td { (inverse.map_or("-".to_string(), |error| format!("{:.3}", error.p95_voxels))) }
                        td { (report.dice.map_or("-".to_string(), |dice| format!("{dice:.3}"))) }
                    }
                } }
            }
        }
    }
}
