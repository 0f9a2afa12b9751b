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

/// The title of most [`notes`].
pub(super) const TO_LOOK_AT: &str = "To look at";

/// The page of a registration.
///
/// # Errors
/// Settings that cannot be written: a defect.
pub fn html(measures: &Measures, pictures: &Pictures) -> Result<String> {
    let title = format!("{} to {}", name(&measures.moving.path), name(&measures.fixed.path));
    let reasons = measures.result.assessment.reasons.iter();
    let all: Vec<&String> = reasons.chain(&measures.warnings).collect();
    let content = markup! {
        (heading("Image registration", &title, Some(measures.result.assessment.verdict), &measures.run))
        (sections::headlines(measures))
        (notes(TO_LOOK_AT, &all))
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
pub(super) fn heading(
    kicker: &str,
    title: &str,
    verdict: Option<Verdict>,
    run: &Provenance,
) -> Markup {
    let verdict = verdict.map(|verdict| match verdict {
        Verdict::Aligned => ("good", "Aligned"),
        Verdict::Doubtful => ("doubtful", "Doubtful"),
        Verdict::Failed => ("bad", "Failed"),
    });
    markup! {
        header {
            p.kicker { (kicker) }
            h1 { (title) }
            p.meta {
                @if let Some((class, verdict)) = verdict {
                    span class={ "verdict " (class) } { (verdict) }
                    " · "
                }
                (run.time.replace('T', " ").replace('Z', " UTC"))
                " · ffdp " (run.ffdp_version) " on " (run.device)
            }
        }
    }
}

/// What is to be looked at, if there is anything.
pub fn notes(title: &str, texts: &[impl AsRef<str>]) -> Markup {
    markup! {
        @if !texts.is_empty() {
            section.notes {
                h2 { (title) }
                ul { @for text in texts { li { (text.as_ref()) } } }
            }
        }
    }
}

fn name(path: &std::path::Path) -> String {
    path.file_name()
        .map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned())
}
