//! `#Insight Transform File V1.0`: ITK's transforms as text.
//!
//! ```text
//! #Insight Transform File V1.0
//! #Transform 0
//! Transform: AffineTransform_double_3_3
//! Parameters: 1 0 0 0 1 0 0 0 1 3 -4 5
//! FixedParameters: 0 0 0
//! ```

use std::io::Write;
use std::path::Path;

use super::parts::ItkTransform;
use crate::error::{Error, Result};
use crate::io::write_atomically;

pub(super) const MAGIC: &str = "#Insight Transform File";

/// With what a file may begin: the first line is missing in those of some programs.
pub(super) const STARTS: [&str; 3] = [MAGIC, "#Transform", "Transform:"];

const DAMAGED: &str = "it is damaged or was edited: write it again";

/// The transforms in the order of the file.
pub(super) fn read(path: &Path, text: &str) -> Result<Vec<ItkTransform>> {
    let mut transforms: Vec<ItkTransform> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |what: &str| {
            let what = format!("line {number}: {what}");
            Error::file(path, &what, format!("{:?}", shortened(line)), DAMAGED)
        };
        let Some((key, value)) = line.split_once(':') else {
            return Err(wrong("a line must read `Key: values`"));
        };
        if key == "Transform" {
            transforms.push(ItkTransform { name: value.trim().to_string(), ..Default::default() });
            continue;
        }
        let Some(last) = transforms.last_mut() else {
            return Err(wrong("`Transform:` must come first"));
        };
        let numbers = match key {
            "Parameters" => &mut last.parameters,
            "FixedParameters" => &mut last.fixed_parameters,
            _ => return Err(wrong("the key must be Transform, Parameters or FixedParameters")),
        };
        *numbers = parse(value).ok_or_else(|| wrong("values must be numbers"))?;
    }
    Ok(transforms)
}

fn parse(values: &str) -> Option<Vec<f64>> {
    values.split_whitespace().map(|value| value.parse().ok()).collect()
}

fn shortened(line: &str) -> String {
    line.chars().take(80).collect()
}

/// Writes one transform; numbers come back bit by bit.
pub(super) fn write(path: &Path, transform: &ItkTransform) -> Result<()> {
    let list = |numbers: &[f64]| numbers.iter().map(f64::to_string).collect::<Vec<_>>().join(" ");
    write_atomically(path, |file| {
        writeln!(file, "{MAGIC} V1.0")?;
        writeln!(file, "#Transform 0")?;
        writeln!(file, "Transform: {}", transform.name)?;
        writeln!(file, "Parameters: {}", list(&transform.parameters))?;
        writeln!(file, "FixedParameters: {}", list(&transform.fixed_parameters))
    })
}
