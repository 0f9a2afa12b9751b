//! PLY, text or binary, read by `ply-rs-bw`; written as little-endian binary.

use std::fmt::Write;
use std::io::Cursor;

use ply_rs_bw::parser::Parser;
use ply_rs_bw::ply::{DefaultElement, Ply, Property};

use super::{Content, Damage, Scalars, cells_of, fan, strip, to_ras};
use crate::shape::{Cells, Shape};

pub fn read(bytes: &[u8]) -> Result<Content, Damage> {
    let ply = Parser::<DefaultElement>::new()
        .read_ply(&mut Cursor::new(bytes))
        .map_err(|error| Damage::new("a PLY file must hold what its header announces", error))?;
    let vertices = elements(&ply, "vertex");
    let mut points = Vec::with_capacity(vertices.len());
    for (i, vertex) in vertices.iter().enumerate() {
        let coordinates = ["x", "y", "z"].map(|name| vertex.get(name).and_then(number));
        let [Some(x), Some(y), Some(z)] = coordinates else {
            return Err(Damage::new(format!("vertex {i} must have numbers x, y, z"), "others"));
        };
        points.push([x, y, z]);
    }
    let mut triangles = Vec::new();
    for (i, face) in elements(&ply, "face").iter().enumerate() {
        let corners = corners(face).and_then(indices).ok_or_else(|| {
            Damage::new(format!("face {i} must list indices of vertices"), "none, or negative ones")
        })?;
        triangles.extend(fan(&corners));
    }
    for (i, strips) in elements(&ply, "tristrips").iter().enumerate() {
        let list = corners(strips).and_then(integers).ok_or_else(|| {
            Damage::new(format!("tristrips {i} must list indices of vertices"), "none")
        })?;
        // Any negative number begins another strip.
        for one in list.split(|index| *index < 0) {
            let one: Option<Vec<u32>> = one.iter().map(|&i| i.try_into().ok()).collect();
            let one = one.ok_or_else(|| {
                Damage::new(format!("tristrips {i}: indices have 32 bits"), "larger ones")
            })?;
            triangles.extend(strip(&one));
        }
    }
    let mut edges = Vec::new();
    for (i, edge) in elements(&ply, "edge").iter().enumerate() {
        let ends = ["vertex1", "vertex2"].map(|name| edge.get(name).and_then(index));
        let [Some(a), Some(b)] = ends else {
            return Err(Damage::new(format!("edge {i} must have vertex1 and vertex2"), "others"));
        };
        edges.push([a, b]);
    }
    to_ras(&mut points, &ply.header.comments.join("\n"));
    Ok((points, cells_of(triangles, edges)))
}

fn elements<'a>(ply: &'a Ply<DefaultElement>, name: &str) -> &'a [DefaultElement] {
    ply.payload.get(name).map_or(&[], Vec::as_slice)
}

fn number(property: &Property) -> Option<f64> {
    Some(match property {
        Property::Char(v) => (*v).into(),
        Property::UChar(v) => (*v).into(),
        Property::Short(v) => (*v).into(),
        Property::UShort(v) => (*v).into(),
        Property::Int(v) => (*v).into(),
        Property::UInt(v) => (*v).into(),
        Property::Float(v) => (*v).into(),
        Property::Double(v) => *v,
        _ => return None,
    })
}

fn index(property: &Property) -> Option<u32> {
    let value = number(property)?;
    (value >= 0.0 && value.fract() == 0.0 && value <= u32::MAX.into()).then_some(value as u32)
}

/// The list of vertices of a face, or of strips of faces.
fn corners(element: &DefaultElement) -> Option<&Property> {
    ["vertex_indices", "vertex_index"].iter().find_map(|name| element.get(*name))
}

fn integers(property: &Property) -> Option<Vec<i64>> {
    fn all<T: Copy + Into<i64>>(list: &[T]) -> Option<Vec<i64>> {
        Some(list.iter().map(|&v| v.into()).collect())
    }
    match property {
        Property::ListChar(list) => all(list),
        Property::ListUChar(list) => all(list),
        Property::ListShort(list) => all(list),
        Property::ListUShort(list) => all(list),
        Property::ListInt(list) => all(list),
        Property::ListUInt(list) => all(list),
        _ => None,
    }
}

fn indices(property: &Property) -> Option<Vec<u32>> {
    integers(property)?.into_iter().map(|v| v.try_into().ok()).collect()
}

pub fn bytes(shape: &Shape, scalars: &[Scalars]) -> Vec<u8> {
    let mut header = String::from("ply\nformat binary_little_endian 1.0\ncomment SPACE=RAS\n");
    let mut put = |line: std::fmt::Arguments| writeln!(header, "{line}").expect("memory");
    put(format_args!("element vertex {}", shape.points.len()));
    ["x", "y", "z"].iter().for_each(|axis| put(format_args!("property float {axis}")));
    scalars.iter().for_each(|(name, _)| put(format_args!("property float {name}")));
    match &shape.cells {
        Cells::None => {}
        Cells::Edges(cells) => {
            put(format_args!("element edge {}", cells.len()));
            put(format_args!("property int vertex1\nproperty int vertex2"));
        }
        Cells::Triangles(cells) => {
            put(format_args!("element face {}", cells.len()));
            put(format_args!("property list uchar int vertex_indices"));
        }
    }
    put(format_args!("end_header"));
    let mut bytes = header.into_bytes();
    for (i, point) in shape.points.iter().enumerate() {
        let numbers = point.iter().copied().chain(scalars.iter().map(|(_, values)| values[i]));
        numbers.for_each(|v| bytes.extend((v as f32).to_le_bytes()));
    }
    let (indices, corners) = shape.cells.indices();
    for cell in indices.chunks_exact(corners) {
        if corners == 3 {
            bytes.push(3);
        }
        cell.iter().for_each(|i| bytes.extend((*i as i32).to_le_bytes()));
    }
    bytes
}
