//! What a cohort leaves in the output folder: `summary.csv`, and `index.html` with links to the reports of the pairs.

use std::path::Path;

use ffdp_image::io::write_text;
use ffdp_train::report::document;
use maud::{PreEscaped, html};

use super::ledger::Ledger;
use crate::failure::Result;
use crate::report::{STYLE, notes};

/// The picture of a pair in its folder.
pub const THUMBNAIL: &str = "thumbnail.png";

/// Runs where the page is shown.
const SORT: &str = include_str!("../report/sort.js");

impl Ledger {
    /// Writes the table and the page into a folder, in which the results of a pair may have a `report` in a folder of
    /// its name.
    pub fn write(&self, folder: &Path, report: Option<&str>) -> Result<()> {
        write_text(&folder.join("summary.csv"), &self.csv())?;
        Ok(write_text(&folder.join("index.html"), &page(self, folder, report))?)
    }
}

/// Where a page in a folder finds a file of a pair, if it is there.
fn address(folder: &Path, name: &str, file: &str) -> Option<String> {
    folder.join(name).join(file).exists().then_some(())?;
    // What a name may hold and an address may not.
    let escaped = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    };
    let name: String = name.bytes().map(escaped).collect();
    Some(format!("{name}/{file}"))
}

/// The page of a cohort whose pairs have folders with their names; a link where there is a `report` in one.
fn page(ledger: &Ledger, folder: &Path, report: Option<&str>) -> String {
    let (heading, mut rows) = ledger.rows();
    let means = rows.pop().unwrap_or_default();
    let address = |name: &str, file: &str| address(folder, name, file);
    let link = |name: &str| address(name, report?);
    let has_thumbnails = rows.iter().any(|row| address(&row[0], THUMBNAIL).is_some());
    let failed = ledger.entries.iter().filter_map(|entry| {
        entry.reason.as_ref().map(|reason| format!("{}: {reason}", entry.name))
    });
    let failed: Vec<String> = failed.collect();
    let content = html! {
        header {
            h1 { (ledger.title) }
            p.meta { (ledger.entries.len()) " pairs, " (failed.len()) " failed" }
        }
        p.note { "A click on the head of a column sorts by it." }
        table.numbers.sortable {
            thead { tr {
                @for name in &heading { th scope="col" { (name) } }
                @if has_thumbnails { th scope="col" { "fixed and registered" } }
            } }
            tbody {
                @for row in &rows {
                    tr {
                        th scope="row" {
                            @match link(&row[0]) {
                                Some(address) => a href=(address) { (row[0]) },
                                None => (row[0]),
                            }
                        }
                        @for cell in &row[1..] { td { (cell) } }
                        @if has_thumbnails { td {
                            @if let Some(picture) = address(&row[0], THUMBNAIL) {
                                img.thumbnail src=(picture) alt={ "checkerboard of " (row[0]) } loading="lazy";
                            }
                        } }
                    }
                }
            }
            tfoot { tr {
                @for cell in &means { td { (cell) } }
                @if has_thumbnails { td {} }
            } }
        }
        (notes("Failed", &failed))
    };
    document(ledger.title, STYLE, &html! { (content) script { (PreEscaped(SORT)) } })
}
