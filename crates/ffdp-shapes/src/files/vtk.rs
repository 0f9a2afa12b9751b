//! Legacy VTK polydata: a few lines of text, then numbers as text or as big-endian binary.
//!
//! Read by hand: `vtkio` is large, and only points and cells are wanted. Sections: `POINTS`, `POLYGONS`, `LINES`,
//! `VERTICES`; cells as counts followed by indices, or (since version 5.1) as `OFFSETS` and `CONNECTIVITY`. Data of
//! points and cells after them are skipped.

use std::fmt::Write;

use super::{Content, Damage, Scalars, cells_of, fan, pieces, to_ras};
use crate::shape::{Cells, Position, Shape};

pub fn read(bytes: &[u8]) -> Result<Content, Damage> {
    let mut file = Cursor { bytes, at: 0, binary: false };
    let magic = file.line().unwrap_or_default();
    if !magic.starts_with("# vtk DataFile") {
        return Err(Damage::new("the first line must be \"# vtk DataFile Version ..\"", magic));
    }
    let title = file.line().unwrap_or_default();
    file.binary = match file.line().as_deref().map(str::trim) {
        Some("ASCII") => false,
        Some("BINARY") => true,
        other => {
            return Err(Damage::new(
                "the third line must be ASCII or BINARY",
                other.unwrap_or("none"),
            ));
        }
    };
    let (mut points, mut triangles, mut edges) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(line) = file.line() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [] => {}
            ["DATASET", "POLYDATA"] => {}
            ["DATASET", other] => {
                return Err(Damage::new("the data set must be POLYDATA", other));
            }
            ["POINTS", count, kind] => points = file.points(count, kind)?,
            ["POLYGONS", first, second] => {
                for polygon in file.cells("POLYGONS", first, second)? {
                    triangles.extend(fan(&polygon));
                }
            }
            ["LINES", first, second] => {
                for line in file.cells("LINES", first, second)? {
                    edges.extend(pieces(&line));
                }
            }
            ["VERTICES", first, second] => drop(file.cells("VERTICES", first, second)?),
            ["METADATA"] => file.skip_paragraph(),
            ["POINT_DATA" | "CELL_DATA" | "FIELD", ..] => break,
            _ => {
                let known = "a section must be POINTS, POLYGONS, LINES, VERTICES or data";
                return Err(Damage::new(known, line.chars().take(80).collect::<String>()));
            }
        }
    }
    to_ras(&mut points, &title);
    Ok((points, cells_of(triangles, edges)))
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    binary: bool,
}

impl Cursor<'_> {
    fn line(&mut self) -> Option<String> {
        let rest = self.bytes.get(self.at..).filter(|rest| !rest.is_empty())?;
        let length = rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
        self.at += length + 1;
        Some(String::from_utf8_lossy(&rest[..length]).trim().to_string())
    }

    fn skip_empty_lines(&mut self) {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        self.at += rest.iter().take_while(|b| b.is_ascii_whitespace()).count();
    }

    /// Until an empty line.
    fn skip_paragraph(&mut self) {
        while self.line().is_some_and(|line| !line.is_empty()) {}
    }

    fn points(&mut self, count: &str, kind: &str) -> Result<Vec<Position>, Damage> {
        let count: usize = parsed(count, "the number of points")?;
        let numbers = self.numbers(3 * count.min(usize::MAX / 4), kind, "coordinates")?;
        Ok(numbers.as_chunks::<3>().0.to_vec())
    }

    /// The indices of every cell. `n size`, then `k i_1 .. i_k` each; or `n + 1` offsets, then `size` indices.
    fn cells(&mut self, what: &str, first: &str, second: &str) -> Result<Vec<Vec<u32>>, Damage> {
        let [first, second]: [usize; 2] = [
            parsed(first, &format!("{what}: a number"))?,
            parsed(second, &format!("{what}: a number"))?,
        ];
        let start = self.at;
        let lists = match self
            .line()
            .as_deref()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
        {
            Some(words) if words.first() == Some(&"OFFSETS") => {
                let kind = words.get(1).copied().unwrap_or("vtktypeint64");
                let offsets = self.numbers(first, kind, "offsets")?;
                self.skip_empty_lines();
                let connectivity = self.line().unwrap_or_default();
                let kind = connectivity.strip_prefix("CONNECTIVITY").ok_or_else(|| {
                    Damage::new(format!("{what}: CONNECTIVITY must follow OFFSETS"), &connectivity)
                })?;
                let indices = self.numbers(second, kind.trim(), "connectivity")?;
                let cell = |pair: &[f64]| indices.get(pair[0] as usize..pair[1] as usize);
                offsets.windows(2).map(|p| cell(p).map(<[f64]>::to_vec)).collect::<Option<Vec<_>>>()
            }
            _ => {
                self.at = start;
                let numbers = self.numbers(second, "int", "cells")?;
                let mut rest = &numbers[..];
                let mut cell = || {
                    let (&count, after) = rest.split_first()?;
                    let cell = after.get(..count.max(0.0) as usize)?;
                    rest = &after[cell.len()..];
                    Some(cell.to_vec())
                };
                let cells: Option<Vec<_>> = (0..first.min(second)).map(|_| cell()).collect();
                cells.filter(|cells| cells.len() == first && rest.is_empty())
            }
        };
        let damaged = || Damage::new(format!("{what}: {first} cells are announced"), "others");
        let index = |v: f64| (0.0..=u32::MAX.into()).contains(&v).then_some(v as u32);
        let narrow = |cell: Vec<f64>| cell.into_iter().map(index).collect::<Option<Vec<u32>>>();
        lists.ok_or_else(damaged)?.into_iter().map(narrow).collect::<Option<_>>().ok_or_else(|| {
            Damage::new(format!("{what}: indices must not be negative"), "a negative one")
        })
    }

    /// So many numbers. They are counted against what is left of the file before memory is asked for.
    fn numbers(&mut self, count: usize, kind: &str, what: &str) -> Result<Vec<f64>, Damage> {
        let left = self.bytes.len().saturating_sub(self.at);
        let short = |there: usize| Damage::new(format!("{count} {what} are announced"), there);
        if !self.binary {
            if left / 2 + 1 < count {
                return Err(short(left / 2 + 1));
            }
            let mut numbers = Vec::with_capacity(count);
            while numbers.len() < count {
                let word = self.word().ok_or_else(|| short(numbers.len()))?;
                numbers.push(parsed(&word, &format!("one of the {what}"))?);
            }
            return Ok(numbers);
        }
        type Decode = fn(&[u8]) -> f64;
        let (size, decode): (usize, Decode) = match kind.to_lowercase().as_str() {
            "float" => (4, |b| f32::from_be_bytes(b.try_into().expect("four")).into()),
            "double" => (8, |b| f64::from_be_bytes(b.try_into().expect("eight"))),
            "int" | "vtktypeint32" => {
                (4, |b| i32::from_be_bytes(b.try_into().expect("four")).into())
            }
            "vtktypeint64" | "long" | "vtkidtype" => {
                (8, |b| i64::from_be_bytes(b.try_into().expect("eight")) as f64)
            }
            other => {
                let rule = format!("the type of {what} must be float, double, int or vtktypeint64");
                return Err(Damage::new(rule, other));
            }
        };
        if left / size < count {
            return Err(short(left / size));
        }
        let data = &self.bytes[self.at..self.at + size * count];
        self.at += size * count;
        Ok(data.chunks_exact(size).map(decode).collect())
    }

    fn word(&mut self) -> Option<String> {
        let rest = self.bytes.get(self.at..)?;
        let start = rest.iter().position(|b| !b.is_ascii_whitespace())?;
        let length = rest[start..].iter().position(u8::is_ascii_whitespace);
        let end = length.map_or(rest.len(), |length| start + length);
        self.at += end;
        Some(String::from_utf8_lossy(&rest[start..end]).into_owned())
    }
}

fn parsed<T: std::str::FromStr>(word: &str, what: &str) -> Result<T, Damage> {
    word.parse().map_err(|_| Damage::new(format!("{what} must be a number"), format!("{word:?}")))
}

pub fn bytes(shape: &Shape, scalars: &[Scalars]) -> Vec<u8> {
    let head = "# vtk DataFile Version 3.0\nffdp SPACE=RAS\nBINARY\nDATASET POLYDATA\n";
    let mut bytes = head.as_bytes().to_vec();
    let mut line = String::new();
    let mut put = |bytes: &mut Vec<u8>, text: std::fmt::Arguments| {
        line.clear();
        writeln!(line, "{text}").expect("memory");
        bytes.extend(line.as_bytes());
    };
    let floats = |bytes: &mut Vec<u8>, values: &[f64]| {
        values.iter().for_each(|v| bytes.extend((*v as f32).to_be_bytes()));
        bytes.push(b'\n');
    };
    put(&mut bytes, format_args!("POINTS {} float", shape.points.len()));
    floats(&mut bytes, shape.points.as_flattened());
    let (indices, corners) = shape.cells.indices();
    // Without vertices a cloud would not be shown.
    let single: Vec<u32> = (0..shape.points.len() as u32).collect();
    let (name, indices) = match &shape.cells {
        Cells::None => ("VERTICES", &single[..]),
        Cells::Edges(_) => ("LINES", indices),
        Cells::Triangles(_) => ("POLYGONS", indices),
    };
    let count = indices.len() / corners;
    put(&mut bytes, format_args!("{name} {count} {}", count * (corners + 1)));
    for cell in indices.chunks_exact(corners) {
        bytes.extend((corners as i32).to_be_bytes());
        cell.iter().for_each(|i| bytes.extend((*i as i32).to_be_bytes()));
    }
    bytes.push(b'\n');
    if !scalars.is_empty() {
        put(&mut bytes, format_args!("POINT_DATA {}", shape.points.len()));
    }
    for (name, values) in scalars {
        put(&mut bytes, format_args!("SCALARS {name} float 1\nLOOKUP_TABLE default"));
        floats(&mut bytes, values);
    }
    bytes
}
