//! Tables of measurements.

use std::fs;

use serde::Deserialize;

use super::{entries, root};

/// A file of `benchmarks/`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Measurement {
    /// What was measured, with its units.
    what: String,
    /// Year-month-day.
    date: String,
    /// The commit that recorded the figures.
    recorded_in: Option<String>,
    device: String,
    /// Other programs, with their versions.
    peer: Option<String>,
    /// What makes the figures again.
    command: Vec<String>,
    /// What else a reader of the figures should know.
    #[serde(default)]
    notes: Vec<String>,
    /// Columns that name a row.
    #[serde(default = "one")]
    key: usize,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

fn one() -> usize {
    1
}

impl Measurement {
    fn read(name: &str) -> Result<Self, String> {
        let path = root().join(format!("benchmarks/{name}.json"));
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let found: Self = serde_json::from_str(&text).map_err(|e| format!("{name}.json: {e}"))?;
        let [year, month, day] = [0..4, 5..7, 8..10].map(|range| found.date.get(range));
        let is_date = [year, month, day]
            .iter()
            .all(|part| part.is_some_and(|digits| digits.parse::<u32>().is_ok()));
        let complete = ![&found.what, &found.device].iter().any(|text| text.is_empty())
            && is_date
            && !found.command.is_empty()
            && found.rows.iter().all(|row| row.len() == found.columns.len());
        if complete {
            return Ok(found);
        }
        Err(format!("{name}.json: what, date, device and command are needed, and full rows"))
    }

    fn name_of(&self, row: &[String]) -> String {
        row[..self.key]
            .iter()
            .filter(|cell| !cell.is_empty())
            .cloned()
            .collect::<Vec<_>>()
            .join(", ")
    }

    fn column(&self, name: &str) -> Result<usize, String> {
        let at = self.columns.iter().position(|column| column == name);
        at.ok_or_else(|| format!("no column {name:?}; there are {:?}", self.columns))
    }

    fn row(&self, name: &str) -> Result<&Vec<String>, String> {
        let found = self.rows.iter().find(|row| self.name_of(row) == name);
        let names = || self.rows.iter().map(|row| self.name_of(row)).collect::<Vec<_>>();
        found.ok_or_else(|| format!("no row {name:?}; there are {:?}", names()))
    }
}

/// One measurement, with its device, its date and its commands: `NAME | columns: a; b | rows: c; d`.
pub fn table(mark: &str, to_root: &str) -> Result<String, String> {
    let mut parts = mark.split(" | ");
    let name = parts.next().unwrap_or_default();
    let found = Measurement::read(name)?;
    let mut columns: Vec<usize> = (0..found.columns.len()).collect();
    let mut rows: Vec<&Vec<String>> = found.rows.iter().collect();
    for part in parts {
        match part.split_once(": ") {
            Some(("columns", names)) => {
                columns =
                    names.split("; ").map(|name| found.column(name)).collect::<Result<_, _>>()?;
            }
            Some(("rows", names)) => {
                rows = names.split("; ").map(|name| found.row(name)).collect::<Result<_, _>>()?;
            }
            _ => return Err(format!("{part:?} is neither `columns: ..` nor `rows: ..`")),
        }
    }
    let line = |cells: &[String]| {
        let chosen: Vec<&str> = columns.iter().map(|&column| cells[column].as_str()).collect();
        format!("| {} |\n", chosen.join(" | "))
    };
    let mut table = line(&found.columns);
    table += &format!("|{}\n", "---|".repeat(columns.len()));
    rows.iter().for_each(|row| table += &line(row));
    let peer = found.peer.map(|peer| format!("; peer: {peer}")).unwrap_or_default();
    let commands: Vec<String> =
        found.command.iter().map(|command| format!("`{command}`")).collect();
    table += &format!(
        "\n*{}. On {}, {}{peer}.* [{name}.json]({to_root}benchmarks/{name}.json): {}\n\n",
        found.what,
        found.device,
        found.date,
        commands.join("; ")
    );
    found.notes.iter().for_each(|note| table += &format!("- {note}\n"));
    Ok(table)
}

/// Figures of several measurements: the columns and rows of a file, in whose cells `{NAME; ROW; COLUMN}` stands for a
/// figure. The last column names the files.
pub fn headline(name: &str, to_root: &str) -> Result<String, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Headline {
        columns: Vec<String>,
        rows: Vec<Vec<String>>,
    }
    let path = root().join(format!("benchmarks/{name}.json"));
    let text = fs::read_to_string(&path).map_err(|error| format!("{name}.json: {error}"))?;
    let found: Headline = serde_json::from_str(&text).map_err(|e| format!("{name}.json: {e}"))?;
    let mut table = format!("| {} | command |\n", found.columns.join(" | "));
    table += &format!("|{}\n", "---|".repeat(found.columns.len() + 1));
    for row in &found.rows {
        let mut files: Vec<String> = Vec::new();
        let cells: Vec<String> =
            row.iter().map(|cell| replaced(cell, &mut files)).collect::<Result<_, _>>()?;
        files.dedup();
        let link = |file: &String| format!("[{file}]({to_root}benchmarks/{file}.json)");
        let links: Vec<String> = files.iter().map(link).collect();
        table += &format!("| {} | {} |\n", cells.join(" | "), links.join(", "));
    }
    Ok(table)
}

/// A cell with its figures, whose files are noted.
fn replaced(cell: &str, files: &mut Vec<String>) -> Result<String, String> {
    let Some((before, rest)) = cell.split_once('{') else { return Ok(cell.to_string()) };
    let (figure, after) = rest.split_once('}').ok_or_else(|| format!("no }} in {cell:?}"))?;
    let parts: Vec<&str> = figure.split("; ").collect();
    let &[name, row, column] = &parts[..] else {
        return Err(format!("{figure:?} is not `NAME; ROW; COLUMN`"));
    };
    let found = Measurement::read(name)?;
    let value = &found.row(row)?[found.column(column)?];
    if value.is_empty() {
        return Err(format!("{figure:?} is empty"));
    }
    files.push(name.to_string());
    Ok(format!("{before}{value}{}", replaced(after, files)?))
}

/// Every measurement, with its date and device.
pub fn list() -> Result<String, String> {
    let mut table =
        String::from("| file | what | device | date | recorded in |\n|---|---|---|---|---|\n");
    for path in entries("benchmarks".as_ref()) {
        let Some(name) = path.file_name().and_then(|n| n.to_str()?.strip_suffix(".json")) else {
            continue;
        };
        if name == "headline" {
            continue;
        }
        let found = Measurement::read(name)?;
        let commit = found.recorded_in.as_deref().unwrap_or("");
        table += &format!(
            "| [{name}]({name}.json) | {} | {} | {} | {commit} |\n",
            found.what, found.device, found.date
        );
    }
    Ok(table)
}
