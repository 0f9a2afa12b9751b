//! Text files.

use std::io::Write;
use std::path::Path;

use ffdp_burn::io::write_atomically;

use crate::failure::Result;

/// A text, whole or not at all.
pub fn write_text(path: &Path, text: &str) -> Result<()> {
    Ok(write_atomically(path, |file| file.write_all(text.as_bytes()))?)
}
