//! `report.html`: one page, everything in it, nothing loaded from elsewhere.

use ffdp_train::report::document;
use maud::{Markup, html as markup};

use super::measures::{Measures, Provenance};
use super::pictures;
use super::sections;
use super::slices::Pictures;
use crate::failure::Result;
use ffdp_register::verdict::Verdict;

/// How all pages look.
pub const STYLE: &str = include_str!("style.css");

/// The page of a registration.
///
/// # Errors
/// Settings that cannot be written: a defect.
pub fn html(measures: &Measures, pictures: &Pictures) -> Result<String> {
    let title = format!("{} to {}", name(&measures.moving.path), name(&measures.fixed.path));
    let content = markup! {
        (heading("Image registration", &title, measures.result.assessment.verdict, &measures.run))
        (sections::headlines(measures))
        (warnings(measures))
        (pictures::figures(pictures))
        (sections::measures(measures))
        (sections::overlap(measures))
        (sections::convergence(measures))
        (sections::inputs(measures))
        (sections::run(measures)?)
    };
    Ok(document(&format!("Registration of {title}"), STYLE, &content))
}

/// What was done, what the page is called, and the verdict.
pub(super) fn heading(kicker: &str, title: &str, verdict: Verdict, run: &Provenance) -> Markup {
    let (class, verdict) = match verdict {
        Verdict::Aligned => ("good", "Aligned"),
        Verdict::Doubtful => ("doubtful", "Doubtful"),
        Verdict::Failed => ("bad", "Failed"),
    };
    markup! {
        header {
            p.kicker { (kicker) }
            h1 { (title) }
            p.meta {
                span class={ "verdict " (class) } { (verdict) }
                " · " (run.time.replace('T', " ").replace('Z', " UTC"))
                " · ffdp " (run.ffdp_version) " on " (run.device)
            }
        }
    }
}

fn warnings(measures: &Measures) -> Markup {
    let all: Vec<&String> =
        measures.result.assessment.reasons.iter().chain(&measures.warnings).collect();
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
