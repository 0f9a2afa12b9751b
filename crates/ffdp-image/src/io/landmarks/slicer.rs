//! Points of 3D Slicer: `.fcsv` up to version 4.11, `.mrk.json` since.

use std::path::Path;

use serde_json::{Value, json};

use super::table::{Kind, LandmarkTable, others};
use super::{LandmarkSpace, in_space, reject};
use crate::error::{Error, Result};
use crate::io::csv_line;
use crate::io::table::separated;

/// The first words of an `.fcsv`.
pub const FCSV: &str = "# Markups fiducial file";

/// The columns of an `.fcsv`, in their order.
const COLUMNS: [&str; 14] = [
    "id",
    "x",
    "y",
    "z",
    "ow",
    "ox",
    "oy",
    "oz",
    "vis",
    "sel",
    "lock",
    "label",
    "desc",
    "associatedNodeID",
];
const AT: [usize; 3] = [1, 2, 3];

const SCHEMA: &str = "https://raw.githubusercontent.com/slicer/slicer/master/Modules/Loadable/Markups/Resources/\
                      Schema/markups-schema-v1.0.3.json#";

/// RAS or LPS, by name or by the number of older files (0 and 1); without either, RAS in an `.fcsv`, LPS in a
/// `.mrk.json`.
fn space_of(path: &Path, said: Option<&str>, usual: LandmarkSpace) -> Result<LandmarkSpace> {
    match said {
        None => Ok(usual),
        Some("0" | "RAS") => Ok(LandmarkSpace::Ras),
        Some("1" | "LPS") => Ok(LandmarkSpace::Lps),
        Some(other) => {
            let what = "CoordinateSystem must be RAS (0) or LPS (1)";
            Err(reject(path, what, other, "save the points in RAS or LPS"))
        }
    }
}

pub fn read_fcsv(path: &Path, text: &str) -> Result<LandmarkTable> {
    let says = |name: &str| {
        text.lines().find_map(|line| {
            let (key, value) = line.strip_prefix('#')?.split_once('=')?;
            (key.trim() == name).then(|| value.trim().to_string())
        })
    };
    let space = space_of(path, says("CoordinateSystem").as_deref(), LandmarkSpace::Ras)?;
    let mut columns: Vec<String> = match says("columns") {
        Some(names) => names.split(',').map(|name| name.trim().to_string()).collect(),
        None => COLUMNS.map(String::from).to_vec(),
    };
    let mut table = LandmarkTable::of_points(Vec::new());
    for (line, record) in separated(text.as_bytes(), b',').map_err(Error::in_file(path))? {
        let number = |at: usize| record.get(at)?.parse().ok().filter(|v: &f64| v.is_finite());
        let [Some(x), Some(y), Some(z)] = AT.map(number) else {
            let what = format!("line {line}: the coordinates must be finite numbers");
            let line = record.iter().collect::<Vec<_>>().join(",");
            return Err(reject(path, what, &line, "save the points again from Slicer"));
        };
        let fields: Vec<String> = record.iter().map(str::to_string).collect();
        // Names beyond those of the file's head.
        for column in columns.len()..fields.len() {
            columns.push(COLUMNS.get(column).map_or(format!("column{column}"), |c| c.to_string()));
        }
        table.points.push(space.to_ras([x, y, z]));
        table.rows.push(others(&fields, AT));
    }
    columns.resize(columns.len().max(AT.len() + 1), String::new());
    let columns = others(&columns, AT);
    table.rows.iter_mut().for_each(|row| row.resize(columns.len(), String::new()));
    Ok(LandmarkTable { space, columns, kind: Kind::Fiducials, ..table })
}

pub fn read_markups(path: &Path, bytes: &[u8]) -> Result<LandmarkTable> {
    const FIX: &str = "save the points again from Slicer, as .mrk.json or .fcsv";
    let file: Value = serde_json::from_slice(bytes)
        .map_err(|error| reject(path, "a .mrk.json must be whole JSON", &error.to_string(), FIX))?;
    let lists = file["markups"].as_array().map(Vec::as_slice).unwrap_or_default();
    let [list] = lists else {
        let what = "a .mrk.json must have one entry in `markups`";
        return Err(reject(path, what, &lists.len().to_string(), FIX));
    };
    let system = list.get("coordinateSystem").map(said);
    let space = space_of(path, system.as_deref(), LandmarkSpace::Lps)?;
    let mut table = LandmarkTable::of_points(Vec::new());
    for point in list["controlPoints"].as_array().into_iter().flatten() {
        let numbers = point["position"].as_array().into_iter().flatten().map(Value::as_f64);
        let position: Option<Vec<f64>> = numbers.collect();
        let position = position.and_then(|numbers| <[f64; 3]>::try_from(numbers).ok());
        let defined =
            ["defined", ""].contains(&point["positionStatus"].as_str().unwrap_or_default());
        let Some(position) = position.filter(|_| defined) else {
            let what = "every control point must have a position";
            let value = format!("{} without", point.get("label").map(said).unwrap_or_default());
            return Err(reject(path, what, &value, "place the point, or remove it"));
        };
        table.points.push(space.to_ras(position));
        let field = |name: &str| point.get(name).map(said).unwrap_or_default();
        table.rows.push(TEXTS.map(field).to_vec());
    }
    Ok(LandmarkTable {
        space,
        columns: TEXTS.map(String::from).to_vec(),
        kind: Kind::Markups(file),
        ..table
    })
}

/// What a control point says of itself in words.
const TEXTS: [&str; 3] = ["id", "label", "description"];

fn said(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

/// The name of the space that is written, RAS for voxels, and the points in it.
fn written(table: &LandmarkTable, space: &LandmarkSpace) -> Result<(&'static str, Vec<[f64; 3]>)> {
    match space {
        LandmarkSpace::Lps => Ok(("LPS", in_space(&table.points, &LandmarkSpace::Lps)?)),
        _ => Ok(("RAS", table.points.clone())),
    }
}

/// The text of an `.fcsv`.
pub fn fcsv(table: &LandmarkTable, space: &LandmarkSpace) -> Result<String> {
    let (space, points) = written(table, space)?;
    let mut text = format!(
        "{FCSV} version = 4.11\n# CoordinateSystem = {space}\n# columns = {}\n",
        COLUMNS.join(",")
    );
    for (number, (point, row)) in (1..).zip(points.iter().zip(&table.rows)) {
        let own = |names: &[&str], usual: String| {
            let field = table.column(names).and_then(|at| row.get(at));
            field.filter(|field| !field.is_empty()).cloned().unwrap_or(usual)
        };
        text += &csv_line(COLUMNS.iter().enumerate().map(|(at, name)| match *name {
            "x" | "y" | "z" => point[at - AT[0]].to_string(),
            "id" => own(&["id"], number.to_string()),
            "label" => own(&["label", "name"], format!("F-{number}")),
            "desc" => own(&["desc", "description", "comment"], String::new()),
            "associatedNodeID" => own(&["associatedNodeID"], String::new()),
            "oz" | "vis" | "sel" => own(&[name], "1".into()),
            other => own(&[other], "0".into()),
        }));
    }
    Ok(text)
}

/// The text of a `.mrk.json`: that of the file that was read with other positions, else a new one.
pub fn markups(table: &LandmarkTable, space: &LandmarkSpace) -> Result<String> {
    let (space, points) = written(table, space)?;
    let mut file = match &table.kind {
        Kind::Markups(file) => file.clone(),
        _ => new_markups(table),
    };
    let list = &mut file["markups"][0];
    list["coordinateSystem"] = json!(space);
    let places = list["controlPoints"].as_array_mut().into_iter().flatten();
    places.zip(&points).for_each(|(place, point)| place["position"] = json!(point));
    Ok(format!("{file:#}\n"))
}

fn new_markups(table: &LandmarkTable) -> Value {
    let point = |(number, row): (usize, &Vec<String>)| {
        let own =
            |names: &[&str], usual: String| table.column(names).map_or(usual, |at| row[at].clone());
        json!({
            "id": own(&["id"], number.to_string()),
            "label": own(&["label", "name"], format!("F-{number}")),
            "description": own(&["description", "desc", "comment"], String::new()),
        })
    };
    let points: Vec<Value> = (1..).zip(&table.rows).map(point).collect();
    json!({
        "@schema": SCHEMA,
        "markups": [{ "type": "Fiducial", "coordinateUnits": "mm", "controlPoints": points }],
    })
}
