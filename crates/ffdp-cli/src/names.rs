//! Names of files and arguments as text: the system's need not be UTF-8, JSON and pages are.

use std::path::Path;

use serde::Serializer;

/// The arguments of this process; bytes that are no text are shown as U+FFFD.
pub fn arguments() -> Vec<String> {
    std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect()
}

/// A path in JSON, in the same way. For `#[serde(serialize_with)]`.
pub fn as_text<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}
