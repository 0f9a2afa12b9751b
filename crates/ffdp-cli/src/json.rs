//! JSON for files and for stdout.

use serde::Serialize;

use crate::failure::{Failure, Result};

/// A value on lines of its own, the last of which ends.
///
/// # Errors
/// A defect where a map has keys that are no text.
pub fn to_json(value: &impl Serialize) -> Result<String> {
    let json = serde_json::to_string_pretty(value);
    Ok(json.map_err(|reason| Failure::defect(reason.to_string()))? + "\n")
}
