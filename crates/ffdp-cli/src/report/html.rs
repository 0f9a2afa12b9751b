//! `report.html`: one page, everything in it, nothing loaded from elsewhere.

use ffdp_train::report::document;
use maud::{Markup, html as markup};

use super::measures::{Measures, Record};
use super::pictures;
use super::sections;
use super::slabs::{self, SlabMeasures};
use super::slices::Pictures;
use crate::failure::Outcome;
use ffdp_register::Verdict;

/// How all pages look.
pub const STYLE: &str = include_str!("style.css");

/// The page of a registration of whole images.
///
/// # Errors
/// Settings that cannot be written: a defect.
pub fn html(measures: &Measures, pictures: &Pictures) -> Outcome<String> {
    let (headlines, tables) = (sections::headlines(measures), sections::measures(measures));
    page(&measures.record, (headlines, tables), pictures)
}

/// The page of a registration slab by slab.
///
/// # Errors
/// As [`html`].
pub fn html_of_slabs(measures: &SlabMeasures, pictures: &Pictures) -> Outcome<String> {
    page(&measures.record, (slabs::headlines(measures), slabs::measures(measures)), pictures)
}

fn page(
    record: &Record,
    (headlines, tables): (Markup, Markup),
    pictures: &Pictures,
) -> Outcome<String> {
    let title = format!("{} to {}", name(&record.moving.path), name(&record.fixed.path));
    let content = markup! {
        (heading(record, &title))
        (headlines)
        (warnings(record))
        (pictures::figures(pictures))
        (tables)
        (sections::overlap(record))
        (sections::convergence(record))
        (sections::inputs(record))
        (sections::run(record)?)
    };
    Ok(document(&format!("Registration of {title}"), STYLE, &content))
}

fn heading(record: &Record, title: &str) -> Markup {
    let (class, verdict) = match record.assessment.verdict {
        Verdict::Aligned => ("good", "Aligned"),
        Verdict::Doubtful => ("doubtful", "Doubtful"),
        Verdict::Failed => ("bad", "Failed"),
    };
    markup! {
        header {
            p.kicker { "Image registration" }
            h1 { (title) }
            p.meta {
                span class={ "verdict " (class) } { (verdict) }
                " · " (record.run.time.replace('T', " ").replace('Z', " UTC"))
                " · ffdp " (record.run.ffdp_version) " on " (record.run.device)
            }
        }
    }
}

fn warnings(record: &Record) -> Markup {
    let all: Vec<&String> = record.assessment.reasons.iter().chain(&record.warnings).collect();
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
