//! The commands of the guide run as they stand on its pages.
//!
//! Every block of `sh` in README.md and docs/ is given to a shell, those of a page one after the other in a folder that
//! holds a pair of images, `fixed.nii.gz` and `moving.nii.gz`, with `.._labels.nii.gz`. A line before a block changes
//! that: `<!-- not run: REASON -->`, or `<!-- run with: FLAGS -->`, which every `ffdp` of the block gets to be quick.

// Other binaries of tests use more of it.
#[allow(dead_code)]
mod support;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{Folder, write_pair};

/// The size of the pair: levels have at least 16 voxels along an axis.
const SIZE: usize = 24;

/// A block of commands.
struct Block {
    line: usize,
    text: String,
    flags: String,
    /// Why it is not run.
    skipped: Option<String>,
}

/// The blocks of a page in order.
fn blocks(page: &str) -> Vec<Block> {
    let mark = |line: Option<&str>, kind: &str| {
        let rest = line?.strip_prefix("<!-- ")?.strip_prefix(kind)?;
        rest.strip_suffix(" -->").map(str::to_string)
    };
    let lines: Vec<&str> = page.lines().collect();
    let mut found = Vec::new();
    for (at, _) in lines.iter().enumerate().filter(|(_, line)| **line == "```sh") {
        let before = at.checked_sub(1).map(|before| lines[before]);
        let inside: Vec<&str> =
            lines[at + 1..].iter().copied().take_while(|l| *l != "```").collect();
        found.push(Block {
            line: at + 1,
            text: inside.join("\n"),
            flags: mark(before, "run with: ").unwrap_or_default(),
            skipped: mark(before, "not run: "),
        });
    }
    found
}

/// README.md and the pages of the guide.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = fs::read_dir(root.join("docs")).expect("the guide is there");
    let files = docs.map(|entry| entry.expect("a folder can be listed").path());
    let mut pages: Vec<_> = files.filter(|f| f.extension().is_some_and(|e| e == "md")).collect();
    pages.sort();
    pages.push(root.join("README.md"));
    pages
}

/// Runs the blocks of a page; what went wrong.
#[cfg_attr(not(unix), allow(dead_code))]
fn run(page: &Path) -> Result<usize, String> {
    let text = fs::read_to_string(page).map_err(|error| error.to_string())?;
    let blocks: Vec<Block> = blocks(&text).into_iter().filter(|b| b.skipped.is_none()).collect();
    if blocks.is_empty() {
        return Ok(0);
    }
    let folder = Folder::new();
    write_pair(&folder, SIZE, 3);
    let program = Path::new(env!("CARGO_BIN_EXE_ffdp")).parent().expect("it lies in a folder");
    let path = format!("{}:{}", program.display(), env::var("PATH").unwrap_or_default());
    for Block { line, text, flags, .. } in &blocks {
        let with_flags = |line: &str| match line.strip_prefix("ffdp ") {
            Some(rest) if !flags.is_empty() => {
                let (command, rest) = rest.split_once(' ').unwrap_or((rest, ""));
                format!("ffdp {command} {flags} {rest}")
            }
            _ => line.to_string(),
        };
        let script: Vec<String> = text.lines().map(with_flags).collect();
        let mut shell = Command::new("sh");
        shell.args(["-e", "-c", &script.join("\n")]).current_dir(folder.path(""));
        let output =
            shell.env("PATH", &path).env("FFDP_DEVICE", "cpu").output().expect("a shell starts");
        if !output.status.success() {
            let [out, err] = [output.stdout, output.stderr]
                .map(|text| String::from_utf8_lossy(&text).into_owned());
            return Err(format!(
                "{} line {line}: {}\n{text}\n{out}{err}",
                page.display(),
                output.status
            ));
        }
    }
    Ok(blocks.len())
}

#[cfg(unix)]
#[test]
fn the_commands_of_the_guide_run() {
    let mut run_in_all = 0;
    for page in pages() {
        run_in_all += run(&page).unwrap_or_else(|error| panic!("{error}"));
    }
    // The guide shows more than a few.
    assert!(run_in_all >= 10, "{run_in_all} blocks were run");
}

#[test]
fn a_command_that_is_not_run_says_why() {
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page can be read");
        for Block { line, skipped, .. } in blocks(&text) {
            let said = skipped.is_none_or(|reason| reason.split_whitespace().count() >= 2);
            assert!(said, "{} line {line}: say why it is not run", page.display());
        }
    }
}

#[test]
fn marks_before_blocks_are_understood() {
    let page = "<!-- not run: needs a GPU -->\n```sh\nffdp a\n```\n\n```sh\nffdp b \\\n  c\n```\n<!-- run with: -q -->\n```sh\nx\n```";
    let found = blocks(page);
    let said: Vec<_> = found.iter().map(|b| (b.line, b.text.as_str(), b.flags.as_str())).collect();
    assert_eq!(said, [(2, "ffdp a", ""), (6, "ffdp b \\\n  c", ""), (11, "x", "-q")]);
    assert_eq!(found[0].skipped.as_deref(), Some("needs a GPU"));
    assert!(found[1].skipped.is_none() && found[2].skipped.is_none());
}
