//! STL, text or binary: triangles without shared corners, which are merged where they are equal.

use std::collections::HashMap;

use super::{Content, Damage, to_ras};
use crate::shape::{Cells, Position, Shape, cross, norm, scaled, sub};

/// Bytes of a binary file before its triangles, of its title, and of each triangle.
const HEADER: usize = 84;
const TITLE: usize = 80;
const TRIANGLE: usize = 50;

pub fn read(bytes: &[u8]) -> Result<Content, Damage> {
    let (corners, title) = match is_text(bytes) {
        true => read_text(bytes)?,
        false => read_binary(bytes)?,
    };
    let (mut points, triangles) = merged(&corners);
    to_ras(&mut points, &title);
    Ok((points, Cells::Triangles(triangles)))
}

/// Titles of binary files may begin with "solid", too; a text has no zero bytes.
fn is_text(bytes: &[u8]) -> bool {
    let start = bytes.trim_ascii_start();
    let solid = start.get(..5).is_some_and(|word| word.eq_ignore_ascii_case(b"solid"));
    solid && !bytes.contains(&0)
}

/// Three corners a triangle, and the title.
type Facets = (Vec<Position>, String);

/// The number of triangles is compared with what is there before memory is asked for.
fn read_binary(bytes: &[u8]) -> Result<Facets, Damage> {
    let Some((header, triangles)) = bytes.split_at_checked(HEADER) else {
        return Err(Damage::new("an STL file has 84 bytes or more", bytes.len()));
    };
    let (title, count) = header.split_at(TITLE);
    let count = u32::from_le_bytes(count.try_into().expect("four bytes")) as usize;
    let there = triangles.len() / TRIANGLE;
    if there < count {
        return Err(Damage::new(format!("{count} triangles are announced"), there));
    }
    let float = |b: &[u8; 4]| f64::from(f32::from_le_bytes(*b));
    let triangle = |bytes: &[u8; TRIANGLE]| {
        // The normal comes first.
        let numbers = bytes[12..48].as_chunks::<4>().0;
        [0, 3, 6].map(|i| [float(&numbers[i]), float(&numbers[i + 1]), float(&numbers[i + 2])])
    };
    let triangles = &triangles.as_chunks::<TRIANGLE>().0[..count];
    Ok((triangles.iter().flat_map(triangle).collect(), String::from_utf8_lossy(title).into_owned()))
}

/// All solids of a text; its words in any case.
fn read_text(bytes: &[u8]) -> Result<Facets, Damage> {
    let text = String::from_utf8_lossy(bytes);
    let (mut corners, mut title, mut open) = (Vec::new(), String::new(), 0);
    for (number, line) in (1..).zip(text.lines()) {
        let wrong = |rule: &str| {
            Damage::new(format!("line {number}: {rule}"), format!("{:?}", line.trim()))
        };
        let mut words = line.split_whitespace();
        match words.next().unwrap_or_default().to_ascii_lowercase().as_str() {
            "solid" => {
                title += line;
                open += 1;
            }
            "endsolid" => open -= 1,
            "vertex" => {
                let mut number = || words.next()?.parse().ok();
                let corner = || Some([number()?, number()?, number()?]);
                corners.push({ corner }().ok_or_else(|| wrong("a vertex has three numbers"))?);
            }
            "endfacet" if corners.len() % 3 != 0 => {
                return Err(wrong("a facet has three vertices"));
            }
            "facet" if corners.len() % 3 != 0 => return Err(wrong("the facet before it is cut")),
            "" | "facet" | "endfacet" | "outer" | "endloop" => {}
            _ => return Err(wrong("a line must begin with a word of STL: facet, vertex, ..")),
        }
    }
    if open != 0 || corners.len() % 3 != 0 {
        return Err(Damage::new("every solid must end in endsolid", "the end of the file"));
    }
    Ok((corners, title))
}

/// The points that differ, in the order in which they come, and the triangles that join them.
fn merged(corners: &[Position]) -> (Vec<Position>, Vec<[u32; 3]>) {
    let mut points = Vec::new();
    let mut known = HashMap::new();
    let mut index = |corner: &Position| {
        // The sum makes -0 and 0 one number.
        *known.entry(corner.map(|v| (v + 0.0).to_bits())).or_insert_with(|| {
            points.push(*corner);
            points.len() as u32 - 1
        })
    };
    let triangles =
        corners.as_chunks::<3>().0.iter().map(|triangle| triangle.each_ref().map(&mut index));
    let triangles = triangles.collect();
    (points, triangles)
}

pub fn bytes(shape: &Shape) -> Vec<u8> {
    let mut bytes = b"ffdp SPACE=RAS".to_vec();
    bytes.resize(TITLE, b' ');
    bytes.extend((shape.triangles().len() as u32).to_le_bytes());
    for cell in shape.triangles() {
        let corners @ [a, b, c] = shape.corners(cell);
        let normal = cross(sub(b, a), sub(c, a));
        let unit = scaled(normal, 1.0 / norm(normal).max(f64::MIN_POSITIVE));
        let numbers = [unit].into_iter().chain(corners).flatten();
        numbers.for_each(|v| bytes.extend((v as f32).to_le_bytes()));
        bytes.extend([0; 2]);
    }
    bytes
}
