//! The tables and curves of the page.

use maud::{Markup, PreEscaped, html};

use super::charts;
use super::measures::{Input, Measures, Provenance};
use crate::affine_parts::AffineParts;
use crate::failure::Result;
use crate::settings::{similarity_of, to_toml};
use ffdp_image::metrics::{BeforeAfter, ErrorStatistics, LabelOverlap};
use ffdp_register::Settings;
use ffdp_register::report::{NewtonStep, StageReport, Stop};
use ffdp_train::report::tile;

/// The few numbers one looks at first.
pub fn headlines(measures: &Measures) -> Markup {
    let similarity = &measures.result.similarity;
    let (before, after) = (&similarity.before, &similarity.after);
    let local = [before.local_ncc_foreground, after.local_ncc_foreground];
    html! {
        section.headlines {
            (tile("Local correlation²", &format!("{:.3}", local[1]), &format!("from {:.3}", local[0])))
            @if let Some(dice) = &measures.result.dice {
                (tile("Mean Dice", &format!("{:.3}", dice.mean.after),
                      &format!("from {:.3}", dice.mean.before)))
            } @else {
                (tile("Correlation", &format!("{:.3}", after.ncc), &format!("from {:.3}", before.ncc)))
            }
            (tile("Folded voxels", &measures.result.folds.voxels.to_string(),
                  &format!("{:.4} % of the grid", measures.result.folds.percent)))
            @if let Some(tre) = &measures.result.landmarks_mm {
                (tile("Landmarks", &format!("{:.2} mm", tre.after.mean),
                      &format!("apart, from {:.2} mm", tre.before.mean)))
            }
            (tile("Motion", &format!("{:.2} mm", measures.result.motion_mm.mean),
                  &format!("largest {:.1} mm; deformation {:.2} mm", measures.result.motion_mm.max,
                           measures.result.displacement_mm.mean)))
            (tile("Time", &format!("{:.1} s", measures.seconds.total),
                  &format!("{:.1} s of it registration", measures.seconds.register)))
        }
    }
}

/// Similarity before and after, and the Jacobian.
pub fn measures(measures: &Measures) -> Markup {
    let (before, after) = (&measures.result.similarity.before, &measures.result.similarity.after);
    let folds = &measures.result.folds;
    let stencils = [
        ("central", &folds.jacobian_central),
        ("forward", &folds.jacobian_forward),
        ("backward", &folds.jacobian_backward),
    ];
    html! {
        section {
            h2 { "Measures" }
            table.numbers {
                caption { "Similarity" }
                thead { tr { th {} th scope="col" { "before" } th scope="col" { "after" } } }
                tbody {
                    (row("Correlation of the voxels that both images cover", before.ncc, after.ncc))
                    (row("Mean squared local correlation, windows of 7³ voxels, foreground",
                         before.local_ncc_foreground, after.local_ncc_foreground))
                    (row("Normalised mutual information, 0 to 1", before.nmi, after.nmi))
                    (row("Overlap of the images, part of the smaller one",
                         measures.result.overlap_percent.before / 100.0,
                         measures.result.overlap_percent.after / 100.0))
                    (row("Loss that was minimised, last level", measures.result.loss.before,
                         measures.result.loss.after))
                }
            }
            table.numbers {
                caption { "Change of volume by the whole map: determinant of the Jacobian, by kind of difference" }
                thead { tr {
                    th {}
                    @for name in ["min", "1 %", "median", "99 %", "max", "≤ 0"] {
                        th scope="col" { (name) }
                    }
                } }
                tbody {
                    @for (name, det) in stencils {
                        tr {
                            th scope="row" { (name) }
                            @for value in [det.min, det.p1, det.median, det.p99, det.max] {
                                td { (format!("{value:.3}")) }
                            }
                            td { (format!("{:.4} %", det.folded_percent)) }
                        }
                    }
                }
            }
            p.note {
                "Folded in any of the nine stencils: " (folds.voxels) " voxels ("
                (format!("{:.4}", folds.percent)) " %). Standard deviation of ln det J: "
                (format!("{:.4}", folds.sd_log_jacobian)) "."
            }
            (landmarks(measures))
            (affine(measures))
        }
    }
}

/// The distances of corresponding landmarks.
fn landmarks(measures: &Measures) -> Markup {
    let Some(tre) = &measures.result.landmarks_mm else { return html! {} };
    let cells = |of: &ErrorStatistics| [of.mean, of.median, of.p95, of.max];
    html! {
        table.numbers {
            caption { "Distances of " (tre.errors_mm.len()) " corresponding landmarks, mm" }
            thead { tr {
                th {}
                @for name in ["mean", "median", "95 %", "max"] { th scope="col" { (name) } }
            } }
            tbody {
                @for (name, of) in [("before", &tre.before), ("after", &tre.after)] {
                    tr {
                        th scope="row" { (name) }
                        @for value in cells(of) { td { (format!("{value:.3}")) } }
                    }
                }
            }
        }
    }
}

/// The affine map, with its space.
fn affine(measures: &Measures) -> Markup {
    let [most, _, least] = measures.result.affine_singular_values;
    let AffineParts { turns_degrees, scales, shears, shift_mm } = &measures.result.affine_parts;
    let parts = [
        ("Turned about these axes, degrees", turns_degrees, 3),
        ("Scaled along them", scales, 4),
        ("Sheared: x by y, x by z, y by z", shears, 4),
        ("Centre of the fixed image moved, mm", shift_mm, 2),
    ];
    html! {
        table.numbers {
            caption { "Affine map from the fixed to the moving image, taken apart" }
            thead { tr {
                th {}
                @for axis in ["x, left to right", "y, back to front", "z, feet to head"] {
                    th scope="col" { (axis) }
                }
            } }
            tbody {
                @for (name, values, digits) in parts {
                    tr {
                        th scope="row" { (name) }
                        @for value in values { td { (format!("{value:.digits$}")) } }
                    }
                }
            }
        }
        table.numbers {
            caption { "Affine map from points of the fixed to points of the moving image, RAS mm" }
            tbody {
                @for row in &measures.result.affine {
                    tr { @for value in row { td { (format!("{value:.5}")) } } }
                }
            }
        }
        p.note {
            "It changes volumes by " (format!("{:.4}", measures.result.affine_determinant))
            " and stretches by " (format!("{least:.3}")) " to " (format!("{most:.3}")) "."
        }
    }
}

fn row(name: &str, before: f64, after: f64) -> Markup {
    html! {
        tr {
            th scope="row" { (name) }
            td { (format!("{before:.5}")) }
            td { (format!("{after:.5}")) }
        }
    }
}

/// Dice of every label, the worst first.
pub fn overlap(measures: &Measures) -> Markup {
    let Some(dice) = &measures.result.dice else { return html! {} };
    let mut labels: Vec<_> = dice.labels.iter().collect();
    labels.sort_by(|a, b| {
        let key = |label: &&LabelOverlap| label.after.unwrap_or(f64::INFINITY);
        key(a).total_cmp(&key(b)).then(a.id.cmp(&b.id))
    });
    let shown = |value: Option<f64>| value.map_or("absent".to_string(), |v| format!("{v:.4}"));
    html! {
        section {
            h2 { "Overlap of labels" }
            p.note {
                "Dice coefficient, the least first. Mean "
                (format!("{:.4} → {:.4}", dice.mean.before, dice.mean.after))
                "; weighted by the inverse volume of each label "
                (format!("{:.4} → {:.4}", dice.inverse_volume_mean.before,
                         dice.inverse_volume_mean.after))
                "."
                @if let Some(surfaces) = &dice.surfaces {
                    " Distances of the surfaces, means over the labels: HD95 "
                    (millimetres(&surfaces.hd95_mm)) ", cumulative HD90 "
                    (millimetres(&surfaces.hd90_cumulative_mm)) "."
                }
                @if let Some(term) = &measures.settings.label_term {
                    " Of these, " (format!("{:?}", term.labels))
                    " drove the registration: their overlap is no independent test of it."
                }
            }
            table.numbers.dice {
                thead { tr {
                    th scope="col" { "label" } th scope="col" { "voxels" }
                    th scope="col" { "before" } th scope="col" { "after" }
                    th scope="col" { "HD95 after, mm" }
                    th scope="col" { "○ before  ● after" }
                } }
                tbody {
                    @for label in labels {
                        tr {
                            th scope="row" {
                                (dice.names.shown(label.id))
                                @if dice.names.get(label.id).is_some() { span.id { " " (label.id) } }
                            }
                            td { (label.fixed_voxels) }
                            td { (shown(label.before)) }
                            td { (shown(label.after)) }
                            td { (label.hd95_after_mm.map_or("–".into(), |mm| format!("{mm:.2}"))) }
                            td.bar { (dumbbell(label.before, label.after)) }
                        }
                    }
                }
            }
        }
    }
}

fn millimetres(distance: &BeforeAfter<f64>) -> String {
    format!("{:.2} → {:.2} mm", distance.before, distance.after)
}

/// Two points on a line from 0 to 1.
fn dumbbell(before: Option<f64>, after: Option<f64>) -> Markup {
    let (Some(before), Some(after)) = (before, after) else { return html! {} };
    let [a, b] = [before, after].map(|v| 6.0 + 188.0 * v);
    let (class, from, to) = match after >= before {
        true => ("up", a, b),
        false => ("down", b, a),
    };
    let svg = format!(
        "<svg class=\"dumbbell {class}\" viewBox=\"0 0 200 12\" role=\"img\" aria-label=\"{before:.2} \
         to {after:.2}\" xmlns=\"http://www.w3.org/2000/svg\"><line class=\"rule\" x1=\"6\" \
         x2=\"194\" y1=\"6\" y2=\"6\"/><line class=\"step\" x1=\"{from:.1}\" x2=\"{to:.1}\" \
         y1=\"6\" y2=\"6\"/><circle class=\"before\" cx=\"{a:.1}\" cy=\"6\" r=\"3.4\"/>\
         <circle class=\"after\" cx=\"{b:.1}\" cy=\"6\" r=\"4\"/></svg>"
    );
    html! { (PreEscaped(svg)) }
}

/// A curve and a table per stage.
pub fn convergence(measures: &Measures) -> Markup {
    let several = measures.result.stages.len() > 1;
    html! {
        section {
            h2 { "Convergence" }
            @for (index, stage) in measures.result.stages.iter().enumerate() {
                @let unit = measures.settings.stages.get(index).map_or("loss", unit);
                div.stage {
                    @if several { h3 { (index + 1) ". " (stage.transform) } }
                    @else { h3 { (stage.transform) } }
                    @if let Some(svg) = charts::convergence(stage, unit) { (PreEscaped(svg)) }
                    table.numbers {
                        thead { tr {
                            th scope="col" { "shrink" } th scope="col" { "size" }
                            th scope="col" { "iterations" } th scope="col" { "loss" }
                            th scope="col" { "time" } th scope="col" { "it/s" }
                            th scope="col" { "ended" }
                        } }
                        tbody { @for level in &stage.levels { (level_row(level)) } }
                        tfoot { tr {
                            th scope="row" colspan="3" { "after the stage" }
                            td {
                                (format!("{:.5}", stage.loss_after))
                                @if let Some(why) = stage.undone { " (left out: it " (why.reason()) ")" }
                                @if let Some(margin) = stage.margin {
                                    (format!(" (margin over the next orientation: {margin:.2})"))
                                }
                            }
                            td { (format!("{:.2} s", stage.seconds)) }
                            td {} td {}
                        } }
                    }
                    @if stage.levels.iter().any(|level| !level.newton.is_empty()) { (newton(stage)) }
                }
            }
        }
    }
}

/// The steps of Gauss and Newton, and the systems that they solved.
fn newton(stage: &StageReport) -> Markup {
    let residuals = |step: &NewtonStep| {
        let each: Vec<String> =
            step.residuals[1..].iter().map(|left| format!("{left:.3}")).collect();
        each.join(" ")
    };
    html! {
        table.numbers {
            thead { tr {
                th scope="col" { "shrink" } th scope="col" { "β" } th scope="col" { "loss" }
                th scope="col" { "gradient" } th scope="col" { "step" }
                th scope="col" { "within preconditioner" } th scope="col" { "residual after each iteration" }
            } }
            tbody {
                @for level in &stage.levels {
                    @for step in &level.newton {
                        tr {
                            td { (level.shrink) }
                            td { (format!("{:.1e}", step.beta)) }
                            td { (format!("{:.5}", step.loss)) }
                            td { (format!("{:.3}", step.gradient)) }
                            td { (step.step.map_or("none".to_string(), |step| format!("{step:.2}"))) }
                            td { (step.inner_iterations) }
                            td { (residuals(step)) }
                        }
                    }
                }
            }
        }
    }
}

fn level_row(level: &ffdp_register::report::LevelReport) -> Markup {
    let [x, y, z] = level.size;
    let losses = match (level.losses.first(), level.losses.last()) {
        (Some(first), Some(last)) => format!("{first:.5} → {last:.5}"),
        _ => "none".to_string(),
    };
    let ended = match level.stop {
        Stop::Converged => "converged",
        Stop::IterationsSpent => "all iterations done",
        Stop::Cancelled => "ended early",
    };
    let count = level.losses.len();
    html! {
        tr {
            td { (level.shrink) }
            td { (format!("{x} × {y} × {z}")) }
            td { (count) }
            td { (losses) }
            td { (format!("{:.2} s", level.seconds)) }
            td { (format!("{:.1}", count as f64 / level.seconds.max(1e-9))) }
            td { (ended) }
        }
    }
}

/// What the loss of a stage is, for an axis.
fn unit(stage: &ffdp_register::Stage) -> &'static str {
    match similarity_of(stage).as_deref() {
        Some("lncc") => "1 \u{2212} local correlation²",
        Some("mse") => "mean squared difference",
        Some("mi") => "\u{2212} mutual information (nats)",
        Some("nmi") => "1 \u{2212} normalised mutual information",
        _ => "loss",
    }
}

/// What a row of the table of inputs says of an image.
type Row<'a> = (&'a str, &'a dyn Fn(&Input) -> String);

/// The two files.
pub fn inputs(measures: &Measures) -> Markup {
    let both = [("fixed", &measures.fixed), ("moving", &measures.moving)];
    let triple = |values: [f64; 3]| values.map(|v| format!("{v:.2}")).join(" · ");
    let rows: [Row; 6] = [
        ("file", &|input| input.path.display().to_string()),
        ("size", &|input| input.size.map(|n| n.to_string()).join(" × ") + " voxels"),
        ("spacing", &|input| input.spacing_mm.map(|v| format!("{v:.4}")).join(" × ") + " mm"),
        ("axes grow to", &|input| input.axes.clone()),
        ("first voxel", &|input| triple(input.origin_mm) + " mm"),
        ("spans", &|input| {
            let [low, high] = input.bounding_box_mm;
            format!("{} to {} mm", triple(low), triple(high))
        }),
    ];
    html! {
        section {
            h2 { "Inputs" }
            table.text {
                thead { tr { th {} @for (name, _) in both { th scope="col" { (name) } } } }
                tbody {
                    @for (name, value) in rows {
                        tr {
                            th scope="row" { (name) }
                            @for (_, input) in both { td { (value(input)) } }
                        }
                    }
                    tr {
                        th scope="row" { "SHA-256" }
                        @for (_, input) in both { td { code.hash { (input.sha256) } } }
                    }
                }
            }
            p.note { "Positions in RAS millimetres." }
        }
    }
}

/// How it was run, and all settings.
pub fn run(measures: &Measures) -> Result<Markup> {
    let Measures { run, seconds, .. } = measures;
    let affine =
        measures.result.affine.map(|row| row.map(|v| format!("{v:>10.5}")).join(" ")).join("\n");
    let affine = html! { tr { th scope="row" { "affine map" } td { pre { (affine) } } } };
    let time = format!(
        "{:.2} s: read {:.2} (in parallel, device start-up {:.2}), register \
         {:.2} (of which iterations {:.2}), measure and write {:.2}",
        seconds.total,
        seconds.read,
        seconds.start,
        seconds.register,
        seconds.iterations,
        seconds.results
    );
    let rows = [Markup::default(), affine];
    run_section(run, rows, &time, measures.peak_memory_bytes, &measures.settings)
}

/// How a run was done, with rows before and after that, and all settings.
pub(super) fn run_section(
    run: &Provenance,
    [before, after]: [Markup; 2],
    time: &str,
    peak_memory_bytes: Option<u64>,
    settings: &Settings,
) -> Result<Markup> {
    let memory = match peak_memory_bytes {
        Some(bytes) => format!("{:.2} GB", bytes as f64 / 1e9),
        None => "not known".to_string(),
    };
    Ok(html! {
        section {
            h2 { "Run" }
            table.text { tbody {
                (before)
                tr { th scope="row" { "command" } td { code { (command(&run.command)) } } }
                tr { th scope="row" { "version" } td { "ffdp " (run.ffdp_version) ", " (run.system) } }
                tr { th scope="row" { "device" } td {
                    (run.device) ", " (run.threads) " CPU threads"
                } }
                tr { th scope="row" { "time" } td { (time) } }
                tr { th scope="row" { "memory at the peak" } td { (memory) } }
                (after)
            } }
            details {
                summary { "All settings (settings.toml)" }
                pre { (to_toml(settings)?) }
            }
        }
    })
}

/// As it can be given to a shell.
fn command(arguments: &[String]) -> String {
    let quoted = |argument: &String| {
        let plain = |c: char| c.is_alphanumeric() || "-_./:=,@+".contains(c);
        match argument.chars().all(plain) && !argument.is_empty() {
            true => argument.clone(),
            false => format!("'{}'", argument.replace('\'', r"'\''")),
        }
    };
    arguments.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_given_to_a_shell_again() {
        let arguments = ["ffdp", "-f", "a b.nii", "-o", "it's", ""].map(String::from);
        assert_eq!(command(&arguments), r"ffdp -f 'a b.nii' -o 'it'\''s' ''");
    }
}
