//! What is said on the way.

use std::io::Write;

/// Writes a line to stderr, in one piece. A reader that has closed its end (`2>&1 | head`) is no reason to end a
/// training.
pub fn say(line: &str) {
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}
