//! The tables of the documentation, made from what they are about: measurements (`benchmarks/*.json`), settings (the
//! source and its defaults), and what works with what (the methods).
//!
//! `cargo run --example tables` writes them into the pages, between a mark such as `<!-- table: ops-h200 -->` and
//! `<!-- end -->`. `tests/guide.rs` says when a page is out of date. A mark may choose columns and rows:
//! `<!-- table: ops-h200 | columns: operation; 512^3 | rows: mse; compose -->`.

mod measurement;
mod settings;

use std::fs;
use std::path::{Path, PathBuf};

const END: &str = "<!-- end -->";

/// The folder of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every page with text for readers, relative to the repository.
pub fn pages() -> Vec<PathBuf> {
    let mut pages = vec![PathBuf::from("README.md"), PathBuf::from("benchmarks/README.md")];
    let mut folders = vec![PathBuf::from("docs")];
    folders.extend(entries(Path::new("examples")));
    for folder in folders {
        let files = entries(&folder);
        pages.extend(files.into_iter().filter(|f| f.extension().is_some_and(|e| e == "md")));
    }
    pages
}

/// What a folder of the repository holds, in order; nothing of a file.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(found) = fs::read_dir(root().join(folder)) else { return Vec::new() };
    let names = found.map(|entry| entry.expect("a folder can be listed").file_name());
    let mut paths: Vec<_> = names.map(|name| folder.join(name)).collect();
    paths.sort();
    paths
}

/// The text of a page.
pub fn read(page: &Path) -> String {
    let path = root().join(page);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The page with its tables made anew.
///
/// # Errors
/// A mark that is not understood or has no end, with the page.
pub fn filled(page: &Path, text: &str) -> Result<String, String> {
    let mut output = String::with_capacity(text.len());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        output.push_str(line);
        output.push('\n');
        let Some(mark) = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"))
        else {
            continue;
        };
        let at = |error: String| format!("{}: <!-- {mark} -->: {error}", page.display());
        let Some(table) = table(page, mark).transpose().map_err(at)? else { continue };
        if !lines.by_ref().any(|line| line == END) {
            return Err(at(format!("no {END} follows")));
        }
        output.push_str(&table);
        output.push_str(END);
        output.push('\n');
    }
    Ok(output)
}

/// The table that a mark asks for; `None` of other comments.
fn table(page: &Path, mark: &str) -> Option<Result<String, String>> {
    let to_root = &"../".repeat(page.components().count() - 1);
    let (kind, rest) = mark.split_once(": ").unwrap_or((mark, ""));
    match kind {
        "table" => Some(measurement::table(rest, to_root)),
        "headline" => Some(measurement::headline(rest, to_root)),
        "list of measurements" => Some(measurement::list()),
        "settings of a registration" => Some(Ok(settings::of_a_registration())),
        "settings of a training" => Some(Ok(settings::of_a_training())),
        "what works with what" => Some(Ok(ffdp::register::matrix())),
        _ => None,
    }
}

#[allow(dead_code)] // A test includes this file.
fn main() -> Result<(), String> {
    for page in pages() {
        let text = read(&page);
        let new = filled(&page, &text)?;
        if new != text {
            fs::write(root().join(&page), new).map_err(|error| error.to_string())?;
            println!("wrote {}", page.display());
        }
    }
    Ok(())
}
