//! What serialises, as Python's own values.

use pyo3::prelude::*;
use serde::Serialize;

use crate::errors::Result;

/// Dictionaries, lists, numbers and text of what `metrics.json` and `settings.toml` have; NaN is `None`.
pub fn to_python<'py>(py: Python<'py>, value: &impl Serialize) -> Result<Bound<'py, PyAny>> {
    let text = serde_json::to_string(value).expect("measures and settings are plain values");
    Ok(py.import("json")?.call_method1("loads", (text,))?)
}

/// The TOML of a dictionary; entries that are `None` are left out.
pub fn to_toml(value: &Bound<PyAny>) -> Result<String> {
    let text: String = value.py().import("json")?.call_method1("dumps", (value,))?.extract()?;
    let mut table: serde_json::Value = serde_json::from_str(&text).map_err(|reason| {
        let what = "settings must be a dictionary of numbers, text and lists";
        ffdp_image::Error::invalid(what, format_args!("{reason}"), "leave out NaN and infinity")
    })?;
    without_nulls(&mut table);
    Ok(toml::to_string(&table).map_err(|reason| {
        let what = "settings must be a dictionary as Registration.settings has it";
        ffdp_image::Error::invalid(what, format_args!("{reason}"), "begin with that of a result")
    })?)
}

fn without_nulls(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(entries) => {
            entries.retain(|_, entry| !entry.is_null());
            entries.values_mut().for_each(without_nulls);
        }
        serde_json::Value::Array(entries) => entries.iter_mut().for_each(without_nulls),
        _ => {}
    }
}
