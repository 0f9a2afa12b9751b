//! Surfaces of the structures of a label map: surface nets of many labels.
//!
//! Gibson 1998; of several labels as by Frisken 2022. Between eight neighbouring voxel centres lies a cell; a cell that
//! sees several labels gets one vertex. Two voxels of different labels are parted by a quadrilateral of the four
//! cells around them, so that neighbouring structures share their border exactly. Vertices are then drawn towards
//! the mean of their neighbours and back (Taubin 1995), never out of their cell: staircases become lower, volumes stay, and no
//! border moves by more than half a voxel. `net.rs` finds vertices and quadrilaterals; this file makes shapes of them.

mod net;
#[cfg(test)]
mod tests;

use ffdp_image::image::LabelMap;
use ffdp_image::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::shape::{Position, Shape, norm, sub};
use net::Net;

/// How surfaces are made of labels.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SurfaceSettings {
    /// How often vertices are drawn towards the mean of their neighbours and back; 0 keeps the staircases.
    pub smoothing: usize,
    /// How far each time: 0 not at all, 1 onto the mean.
    pub strength: f64,
}

impl Default for SurfaceSettings {
    /// Staircases are lower after twelve rounds; ridges and tips of single voxels stay, as no vertex leaves its cell.
    fn default() -> Self {
        Self { smoothing: 12, strength: 0.5 }
    }
}

/// The surfaces of labels, in RAS mm, closed, triangles facing outwards: one shape for every id.
///
/// # Errors
/// [`Error::Invalid`] for background, and for an id that no voxel has.
pub fn label_surfaces(
    labels: &LabelMap,
    ids: &[i32],
    settings: &SurfaceSettings,
) -> Result<Vec<Shape>> {
    if let Some(id) = ids.iter().find(|&&id| id == 0 || !labels.data.contains(&id)) {
        let what = format!("a surface needs a label of the map, one of {:?}", labels.ids());
        return Err(Error::invalid(what, id, "choose another label"));
    }
    let Some(mut net) = Net::new(labels, ids) else { return Ok(Vec::new()) };
    net.smooth(settings);
    let to_mm = labels.geometry.voxel_to_mm();
    let points: Vec<Position> = net.vertices.iter().map(|&p| to_mm.apply(p)).collect();
    let mirrored = to_mm.determinant() < 0.0;
    ids.iter().map(|&id| of_label(&net, &points, id, mirrored)).collect()
}

/// The quadrilaterals around one label, as triangles of only the points that they need.
fn of_label(net: &Net, points: &[Position], id: i32, mirrored: bool) -> Result<Shape> {
    let mut number = vec![u32::MAX; points.len()];
    let (mut kept, mut triangles) = (Vec::new(), Vec::new());
    for quad in &net.quads {
        let outwards = match quad.labels {
            [inside, _] if inside == id => !mirrored,
            [_, inside] if inside == id => mirrored,
            _ => continue,
        };
        let corners = quad.corners.map(|i| points[i as usize]);
        let [a, b, c, d] = quad.corners.map(|i| {
            let slot = &mut number[i as usize];
            if *slot == u32::MAX {
                *slot = kept.len() as u32;
                kept.push(points[i as usize]);
            }
            *slot
        });
        // Along the shorter diagonal; both labels of a border see the same triangles.
        let diagonal = |i: usize, j: usize| norm(sub(corners[i], corners[j]));
        let pair = match diagonal(0, 2) <= diagonal(1, 3) {
            true => [[a, b, c], [a, c, d]],
            false => [[a, b, d], [b, c, d]],
        };
        let facing = |[a, b, c]: [u32; 3]| if outwards { [a, b, c] } else { [a, c, b] };
        triangles.extend(pair.map(facing));
    }
    Shape::mesh(kept, triangles)
}
