//! `report.html`: one page, everything in it, nothing loaded from elsewhere.

use maud::{DOCTYPE, Markup, PreEscaped, html as markup};

use super::measures::Measures;
use super::pictures;
use super::sections;
use super::slices::Pictures;
use crate::failure::Outcome;
use ffdp_register::Outcome as Worth;

const STYLE: &str = include_str!("style.css");

/// The page.
///
/// # Errors
/// A picture that cannot be compressed: a defect.
pub fn html(measures: &Measures, pictures: &Pictures) -> Outcome<String> {
    let title = format!("{} to {}", name(&measures.moving.path), name(&measures.fixed.path));
    let page = markup! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Registration of " (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    (heading(measures, &title))
                    (sections::headlines(measures))
                    (warnings(measures))
                    (pictures::figures(pictures)?)
                    (sections::measures(measures))
                    (sections::overlap(measures))
                    (sections::convergence(measures))
                    (sections::inputs(measures))
                    (sections::run(measures)?)
                }
            }
        }
    };
    Ok(page.into_string())
}

fn heading(measures: &Measures, title: &str) -> Markup {
    let (class, verdict) = match measures.outcome {
        Worth::Improved => ("good", "The images became more alike"),
        Worth::NotImproved => ("bad", "The images did not become more alike"),
        Worth::Cancelled => ("bad", "Ended early"),
    };
    markup! {
        header {
            p.kicker { "Image registration" }
            h1 { (title) }
            p.meta {
                span class={ "verdict " (class) } { (verdict) }
                " · " (measures.run.time.replace('T', " ").replace('Z', " UTC"))
                " · ffdp " (measures.run.ffdp_version) " on " (measures.run.device)
            }
        }
    }
}

fn warnings(measures: &Measures) -> Markup {
    let advice = measures.advice.map(str::to_string);
    let all: Vec<String> = advice.into_iter().chain(measures.warnings.iter().cloned()).collect();
    markup! {
        @if !all.is_empty() {
            section.notes {
                h2 { "To look at" }
                ul { @for text in &all { li { (text) } } }
            }
        }
    }
}

fn name(path: &std::path::Path) -> String {
    path.file_name()
        .map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned())
}
