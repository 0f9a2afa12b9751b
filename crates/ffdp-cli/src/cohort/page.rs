//! What a cohort leaves in the output folder: `summary.csv`, and `index.html` with links to the reports of the pairs.

use std::path::Path;

use ffdp_image::io::write_text;
use ffdp_train::report::document;
use maud::html;

use super::ledger::Ledger;
use crate::failure::Result;
use crate::report::STYLE;

impl Ledger {
    /// Writes the table and the page into a folder, in which the results of a pair may have a `report` in a folder of
    /// its name.
    pub fn write(&self, folder: &Path, report: Option<&str>) -> Result<()> {
        write_text(&folder.join("summary.csv"), &self.csv())?;
        Ok(write_text(&folder.join("index.html"), &page(self, folder, report))?)
    }
}

/// The page of a cohort whose pairs have folders with their names; a link where there is a `report` in one.
fn page(ledger: &Ledger, folder: &Path, report: Option<&str>) -> String {
    let (heading, rows) = ledger.rows();
    let link = |name: &str| {
        let there = report.filter(|report| folder.join(name).join(report).exists())?;
        // What a name may hold and an address may not.
        let address: String = name
            .bytes()
            .map(|byte| match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                    char::from(byte).to_string()
                }
                other => format!("%{other:02X}"),
            })
            .collect();
        Some(format!("{address}/{there}"))
    };
    let failed = ledger.entries.iter().filter(|entry| entry.reason.is_some()).count();
    let content = html! {
        header {
            h1 { (ledger.title) }
            p.meta { (ledger.entries.len()) " pairs, " (failed) " failed" }
        }
        table.numbers {
            thead { tr { @for name in &heading { th scope="col" { (name) } } } }
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
                    }
                }
            }
        }
        @if failed > 0 {
            section.notes {
                h2 { "Failed" }
                ul {
                    @for entry in &ledger.entries {
                        @if let Some(reason) = &entry.reason { li { (entry.name) ": " (reason) } }
                    }
                }
            }
        }
    };
    document(ledger.title, STYLE, &content)
}
