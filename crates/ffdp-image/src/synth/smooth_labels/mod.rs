//! A label map as a function of position: geometry-preserving upsampling to any grid.
//!
//! Sampled with the nearest voxel, a fine grid shows the blocks of the coarse one. Here each label
//! l has a smooth field, and a point belongs to the label whose field is largest there:
//! ```text
//! L(p) = argmax_l sum_v B(p - v) w_l(v),    w_l = smooth([L = l]) + lift_l
//! ```
//! B: tensor cubic B-spline; v: voxels; `smooth`: a low-pass without second moment, under which
//! curved surfaces keep their place (`kernel.rs`); `lift`: not negative, the least that lets every
//! voxel's centre keep its label (`hold.rs`), so that thin sheets, tips and single voxels survive.
//! An interface therefore lies between the centres of the voxels it separates: the constraint of
//! Frisken's surface nets (2022), whose smoothing this replaces without a mesh. Fields exist once,
//! on the coarse grid; fine grids are evaluated point by point, in slabs of any size, through a
//! warp or not. Read [`SmoothLabels`] first, then `reader.rs`.

mod field;
mod hold;
mod kernel;
mod reader;

use std::collections::BTreeSet;

use rayon::prelude::*;

use super::label_field::LabelField;
use crate::image::{Geometry, LabelMap};
use crate::{Error, Result};
use field::{Field, bounds};
use reader::Reader;

/// Width of the smoothing, voxels. Terraces of digital planes are two to four voxels long, which
/// asks for a wide filter; gyri are three voxels thick, which asks for a narrow one. Between 1
/// and 1.6 volumes of a real brain's labels change least at 1.3.
const SIGMA_VOXELS: f64 = 1.3;

/// A label map that can be asked at any position; see the module's documentation.
#[derive(Clone, Debug)]
pub struct SmoothLabels {
    geometry: Geometry,
    /// All labels that occur, background included, ascending; a slot is an index into it.
    ids: Vec<i32>,
    /// Each voxel's label.
    slots: Vec<u16>,
    /// Whether a voxel has a neighbour (of 26) with another label: only there fields are asked.
    mixed: Vec<bool>,
    /// One per slot.
    fields: Vec<Field>,
}

impl SmoothLabels {
    /// The function through a label map; border labels continue beyond the outermost centres.
    ///
    /// # Errors
    /// [`Error::Invalid`] for more than 65536 different labels.
    pub fn new(labels: &LabelMap) -> Result<Self> {
        let size = labels.geometry.size;
        let ids = distinct(&labels.data);
        if ids.len() > usize::from(u16::MAX) + 1 {
            let what = "a label map to smooth may hold at most 65536 different labels";
            return Err(Error::invalid(what, ids.len(), "is it an intensity image?"));
        }
        let slot = |id: &i32| ids.binary_search(id).expect("ids holds every label") as u16;
        let slots: Vec<u16> = labels.data.par_iter().map(slot).collect();
        let gaussian = kernel::gaussian(SIGMA_VOXELS);
        let boxes = bounds(&slots, size, ids.len());
        let field = |(slot, label_box): (usize, &[[usize; 3]; 2])| {
            Field::of(slot as u16, *label_box, &slots, size, &gaussian)
        };
        let fields = boxes.iter().enumerate().map(field).collect();
        let mixed = mixed(&slots, size);
        let mut smooth = Self { geometry: labels.geometry.clone(), ids, slots, mixed, fields };
        hold::hold_centres(&mut smooth);
        Ok(smooth)
    }

    /// Memory that [`SmoothLabels::new`] takes at its peak, bytes: seven a voxel, four for every
    /// voxel of every label's box, and the widest box twice more while it is filtered.
    pub fn memory_bytes(labels: &LabelMap) -> u64 {
        let ids = distinct(&labels.data);
        let slot = |id: &i32| ids.binary_search(id).expect("ids holds every label") as u16;
        let slots: Vec<u16> = labels.data.par_iter().map(slot).collect();
        let volume = |[low, high]: &[[usize; 3]; 2]| -> u64 {
            (0..3).map(|a| (high[a] - low[a] + 1 + 2 * field::MARGIN) as u64).product()
        };
        let boxes = bounds(&slots, labels.geometry.size, ids.len());
        let fields: u64 = boxes.iter().map(volume).sum();
        let widest = boxes.iter().map(volume).max().unwrap_or(0);
        7 * labels.data.len() as u64 + 4 * fields + 12 * widest
    }

    /// The grid of the label map.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }
}

impl LabelField for SmoothLabels {
    fn ids(&self) -> Vec<i32> {
        self.ids.clone()
    }

    fn label_line(&self, points_mm: &[[f64; 3]], labels: &mut [i32]) {
        let to_voxel = self.geometry.mm_to_voxel();
        let mut reader = Reader::new(self);
        for (label, &point) in labels.iter_mut().zip(points_mm) {
            *label = reader.at(to_voxel.apply(point)).map_or(0, |slot| self.ids[slot as usize]);
        }
    }
}

fn distinct(labels: &[i32]) -> Vec<i32> {
    let in_part = |part: &[i32]| -> BTreeSet<i32> {
        // Labels come in runs: one insertion per run.
        part.chunk_by(|a, b| a == b).map(|run| run[0]).collect()
    };
    let parts: Vec<BTreeSet<i32>> = labels.par_chunks(1 << 16).map(in_part).collect();
    parts.into_iter().flatten().collect::<BTreeSet<i32>>().into_iter().collect()
}

fn mixed(slots: &[u16], [nx, ny, nz]: [usize; 3]) -> Vec<bool> {
    let around = |i: usize, count: usize| i.saturating_sub(1)..(i + 2).min(count);
    let mut mixed = vec![false; slots.len()];
    mixed.par_chunks_mut(nx).enumerate().for_each(|(row, line)| {
        let rows: Vec<&[u16]> = around(row / ny, nz)
            .flat_map(|z| around(row % ny, ny).map(move |y| &slots[(z * ny + y) * nx..][..nx]))
            .collect();
        for (x, mixed) in line.iter_mut().enumerate() {
            let own = slots[row * nx + x];
            let range = around(x, nx);
            *mixed = rows.iter().any(|row| row[range.clone()].iter().any(|&slot| slot != own));
        }
    });
    mixed
}
