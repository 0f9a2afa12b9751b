//! Legacy VTK polydata: a few lines of text, then numbers as text or as big-endian binary.
//!
//! Read by hand: `vtkio` is large, and only points and cells are wanted. Sections: `POINTS`, `POLYGONS`,
//! `TRIANGLE_STRIPS`, `LINES`, `VERTICES`; cells as counts followed by indices, or (since version 5.1) as `OFFSETS` and
//! `CONNECTIVITY`. Words are known in any case. Of `FIELD` data an array `SPACE` of Slicer's counts; data of points and
//! cells at the end are skipped.

use std::fmt::Write;

use super::{Content, Damage, Scalars, cells_of, fan, pieces, strip, to_ras};
use crate::shape::{Cells, Position, Shape};

pub fn read(bytes: &[u8]) -> Result<Content, Damage> {
    let mut file = Cursor { bytes, at: 0, binary: false };
    let magic = file.line().unwrap_or_default();
    if !magic.starts_with("# vtk DataFile") {
        return Err(Damage::new("the first line must be \"# vtk DataFile Version ..\"", magic));
    }
    let mut says = file.line().unwrap_or_default();
    let format = file.line().unwrap_or_else(|| "none".into());
    file.binary = match format.to_uppercase().as_str() {
        "ASCII" => false,
        "BINARY" => true,
        _ => return Err(Damage::new("the third line must be ASCII or BINARY", format)),
    };
    let (mut points, mut triangles, mut edges) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(line) = file.line() {
        let upper = line.to_uppercase();
        let words: Vec<&str> = upper.split_whitespace().collect();
        match words[..] {
            [] => {}
            ["DATASET", "POLYDATA"] => {}
            ["DATASET", ..] => return Err(Damage::new("the data set must be POLYDATA", line)),
            ["POINTS", count, kind] => points = file.points(count, kind)?,
            ["POLYGONS", first, second] => {
                let cells = file.cells("POLYGONS", first, second)?;
                triangles.extend(cells.iter().flat_map(|cell| fan(cell)));
            }
            ["TRIANGLE_STRIPS", first, second] => {
                let cells = file.cells("TRIANGLE_STRIPS", first, second)?;
                triangles.extend(cells.iter().flat_map(|cell| strip(cell)));
            }
            ["LINES", first, second] => {
                let cells = file.cells("LINES", first, second)?;
                edges.extend(cells.iter().flat_map(|cell| pieces(cell)));
            }
            ["VERTICES", first, second] => drop(file.cells("VERTICES", first, second)?),
            ["FIELD", _, count] => says += &file.field(count)?,
            ["METADATA"] => file.skip_paragraph(),
            ["POINT_DATA" | "CELL_DATA", ..] => break,
            _ => {
                let known =
                    "a section must be POINTS, POLYGONS, TRIANGLE_STRIPS, LINES, VERTICES or data";
                return Err(Damage::new(known, line.chars().take(80).collect::<String>()));
            }
        }
    }
    to_ras(&mut points, &says);
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
        let heading = self.line().unwrap_or_default();
        let lists = match after_word(&heading, "OFFSETS") {
            Some(kind) => {
                let offsets = self.numbers(first, kind, "offsets")?;
                self.skip_empty_lines();
                let connectivity = self.line().unwrap_or_default();
                let kind = after_word(&connectivity, "CONNECTIVITY").ok_or_else(|| {
                    Damage::new(format!("{what}: CONNECTIVITY must follow OFFSETS"), &connectivity)
                })?;
                let indices = self.numbers(second, kind, "connectivity")?;
                let cell = |pair: &[f64]| indices.get(pair[0] as usize..pair[1] as usize);
                offsets.windows(2).map(|p| cell(p).map(<[f64]>::to_vec)).collect::<Option<Vec<_>>>()
            }
            None => {
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
        let Some((size, decode)) = decoder(kind) else {
            return Err(Damage::new(format!("the type of {what} must be a number of VTK"), kind));
        };
        if left / size < count {
            return Err(short(left / size));
        }
        let data = &self.bytes[self.at..self.at + size * count];
        self.at += size * count;
        Ok(data.chunks_exact(size).map(decode).collect())
    }

    /// Arrays of field data; what an array SPACE of words says, as a title would.
    fn field(&mut self, count: &str) -> Result<String, Damage> {
        let count: usize = parsed(count, "the number of arrays")?;
        let (mut says, mut done) = (String::new(), 0);
        while done < count {
            self.skip_empty_lines();
            let heading = self.line().unwrap_or_default();
            if heading.eq_ignore_ascii_case("METADATA") {
                self.skip_paragraph();
                continue;
            }
            done += 1;
            let words: Vec<&str> = heading.split_whitespace().collect();
            let [name, components, tuples, kind] = words[..] else {
                let rule = "an array of a FIELD has a name, two numbers and a type";
                return Err(Damage::new(rule, heading));
            };
            let sizes: [usize; 2] = [
                parsed(components, "the number of components")?,
                parsed(tuples, "the number of tuples")?,
            ];
            let numbers = sizes[0].saturating_mul(sizes[1]);
            if kind.eq_ignore_ascii_case("string") {
                for _ in 0..numbers {
                    let text = self.string().ok_or_else(|| {
                        Damage::new(format!("{name}: {numbers} words are announced"), "fewer")
                    })?;
                    if name == "SPACE" {
                        says += &format!(" SPACE={text}");
                    }
                }
            } else {
                self.numbers(numbers, kind, name)?;
            }
        }
        Ok(says)
    }

    /// A line of text; in a binary file bytes after their number, which has 1, 2, 4 or 8 bytes by its two highest bits.
    fn string(&mut self) -> Option<String> {
        if !self.binary {
            return self.line();
        }
        let rest = self.bytes.get(self.at..)?;
        let size = 8 >> (rest.first()? >> 6);
        let number = rest.get(..size)?.iter().fold(0, |sum, &b| sum << 8 | u64::from(b));
        let length = usize::try_from(number & (u64::MAX >> (66 - 8 * size))).ok()?;
        let text = rest.get(size..)?.get(..length)?;
        self.at += size + length;
        Some(String::from_utf8_lossy(text).into_owned())
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

/// What follows the first word of a line, if it is this one, in any case.
fn after_word<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    let (first, rest) = line.split_at_checked(word.len())?;
    first.eq_ignore_ascii_case(word).then(|| rest.trim())
}

/// A number from its bytes, the highest first.
type Decode = fn(&[u8]) -> f64;

/// Bytes of a type, and how they are read.
fn decoder(kind: &str) -> Option<(usize, Decode)> {
    macro_rules! number {
        ($type:ty) => {
            (size_of::<$type>(), |b| <$type>::from_be_bytes(b.try_into().expect("as many")) as f64)
        };
    }
    Some(match kind.to_lowercase().as_str() {
        "float" => number!(f32),
        "double" => number!(f64),
        "char" | "signed_char" | "vtktypeint8" => number!(i8),
        "unsigned_char" | "vtktypeuint8" => number!(u8),
        "short" | "vtktypeint16" => number!(i16),
        "unsigned_short" | "vtktypeuint16" => number!(u16),
        // VTK writes its type of indices as int.
        "int" | "vtktypeint32" | "vtkidtype" => number!(i32),
        "unsigned_int" | "vtktypeuint32" => number!(u32),
        "long" | "vtktypeint64" => number!(i64),
        "unsigned_long" | "vtktypeuint64" => number!(u64),
        _ => return None,
    })
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
