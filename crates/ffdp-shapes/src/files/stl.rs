//! STL: triangles without shared corners, which `stl_io` merges where they are equal.

use std::io::Cursor;

use super::{Content, Damage};
use crate::shape::{Cells, Shape, cross, norm, scaled, sub};

pub fn read(bytes: &[u8]) -> Result<Content, Damage> {
    check_count(bytes)?;
    let mesh = stl_io::read_stl(&mut Cursor::new(bytes))
        .map_err(|error| Damage::new("an STL file must hold whole triangles", error))?;
    let points = mesh.vertices.iter().map(|v| v.0.map(f64::from)).collect();
    let triangles = mesh.faces.iter().map(|face| face.vertices.map(|i| i as u32)).collect();
    Ok((points, Cells::Triangles(triangles)))
}

/// Bytes of a binary file before its triangles, and of each.
const HEADER: usize = 84;
const TRIANGLE: usize = 50;

/// A binary file says how many triangles follow; they must be there before memory is asked for.
fn check_count(bytes: &[u8]) -> Result<(), Damage> {
    if bytes.starts_with(b"solid") && bytes.windows(5).any(|w| w == b"facet") {
        return Ok(()); // text
    }
    let Some(count) = bytes.get(80..HEADER) else {
        return Err(Damage::new("an STL file has 84 bytes or more", bytes.len()));
    };
    let count = u32::from_le_bytes(count.try_into().expect("four bytes")) as usize;
    let there = (bytes.len() - HEADER) / TRIANGLE;
    if there < count {
        return Err(Damage::new(format!("{count} triangles are announced"), there));
    }
    Ok(())
}

pub fn bytes(shape: &Shape) -> Vec<u8> {
    let narrow = |p: [f64; 3]| stl_io::Vector(p.map(|v| v as f32));
    let triangle = |cell: &[u32; 3]| {
        let corners @ [a, b, c] = shape.corners(cell);
        let normal = cross(sub(b, a), sub(c, a));
        let unit = scaled(normal, 1.0 / norm(normal).max(f64::MIN_POSITIVE));
        stl_io::Triangle { normal: narrow(unit), vertices: corners.map(narrow) }
    };
    let triangles: Vec<_> = shape.triangles().iter().map(triangle).collect();
    let mut bytes = Vec::new();
    stl_io::write_stl(&mut bytes, triangles.iter()).expect("memory can be written to");
    bytes
}
