//! Wavefront OBJ: lines of text. Read by hand: vertices keep their order, whatever groups and normals a file has.

use std::borrow::Cow;
use std::fmt::Write;

use super::{Content, Damage, cells_of, fan, pieces, to_ras};
use crate::shape::{Cells, Position, Shape};

pub fn read(bytes: &[u8]) -> Result<Content, Damage> {
    let text = String::from_utf8_lossy(bytes);
    let (mut points, mut triangles, mut edges) = (Vec::new(), Vec::new(), Vec::new());
    let mut comments = String::new();
    for (number, line) in logical_lines(&text) {
        let mut words = line.split_whitespace();
        let wrong = |rule: &str| {
            Damage::new(format!("line {number}: {rule}"), format!("{:?}", line.trim()))
        };
        match words.next() {
            Some("v") => {
                let point = position(words).ok_or_else(|| wrong("a vertex has three numbers"))?;
                points.push(point);
            }
            Some("f") => {
                let corners = indices(words, points.len(), 3);
                let corners =
                    corners.ok_or_else(|| wrong("a face joins three or more vertices"))?;
                triangles.extend(fan(&corners));
            }
            Some("l") => {
                let ends = indices(words, points.len(), 2);
                edges.extend(pieces(&ends.ok_or_else(|| wrong("a line joins vertices"))?));
            }
            Some(word) if word.starts_with('#') => comments += &line,
            _ => {} // normals, textures, groups, materials
        }
    }
    to_ras(&mut points, &comments);
    Ok((points, cells_of(triangles, edges)))
}

/// Lines with the number of their first one; a backslash at the end continues a line.
fn logical_lines(text: &str) -> Vec<(usize, Cow<'_, str>)> {
    let mut lines: Vec<(usize, Cow<str>)> = Vec::new();
    let mut continues = false;
    for (number, line) in (1..).zip(text.lines()) {
        let cut = line.trim_end().strip_suffix('\\');
        let part = cut.unwrap_or(line);
        match lines.last_mut().filter(|_| continues) {
            Some((_, before)) => before.to_mut().extend([" ", part]),
            None => lines.push((number, part.into())),
        }
        continues = cut.is_some();
    }
    lines
}

fn position<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Position> {
    let mut number = || words.next()?.parse().ok();
    Some([number()?, number()?, number()?])
}

/// `7`, `7/1`, `7//2` or, counted backwards from the last vertex so far, `-1`.
fn indices<'a>(
    words: impl Iterator<Item = &'a str>,
    count: usize,
    least: usize,
) -> Option<Vec<u32>> {
    let index = |word: &str| {
        let number: i64 = word.split('/').next()?.parse().ok()?;
        let from_zero = if number < 0 { count as i64 + number } else { number - 1 };
        u32::try_from(from_zero).ok()
    };
    let indices: Option<Vec<u32>> = words.take_while(|w| !w.starts_with('#')).map(index).collect();
    indices.filter(|found| found.len() >= least)
}

pub fn bytes(shape: &Shape) -> Vec<u8> {
    let mut text = String::from("# ffdp SPACE=RAS\n");
    let mut put = |line: std::fmt::Arguments| writeln!(text, "{line}").expect("memory");
    shape.points.iter().for_each(|[x, y, z]| put(format_args!("v {x} {y} {z}")));
    let (indices, corners) = shape.cells.indices();
    let kind = if matches!(shape.cells, Cells::Edges(_)) { 'l' } else { 'f' };
    for cell in indices.chunks_exact(corners) {
        let numbers: Vec<String> = cell.iter().map(|i| (i + 1).to_string()).collect();
        put(format_args!("{kind} {}", numbers.join(" ")));
    }
    text.into_bytes()
}
