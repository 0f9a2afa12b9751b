//! Lifts: every voxel's centre keeps its label.
//!
//! Smoothing takes the label from voxels at tips and in thin sheets. There the coefficient of the
//! voxel's own label is raised until its field leads by [`LEAD`] at the centre. Raising one voxel
//! lowers the lead of its neighbours, so this repeats on them until none lacks it.

use rayon::prelude::*;

use super::SmoothLabels;
use super::kernel::SPLINE_AT_KNOTS;
use super::reader::candidates;

/// Lead of the own label at a voxel's centre over the next one (indicators are 0 and 1). Larger
/// leads keep the volume of what is thin, smaller ones let surfaces be smoother: at 0.2 a sheet of
/// one voxel loses 4 % of its volume, at 0.3 balls become noticeably rougher.
const LEAD: f32 = 0.25;
/// A lead that lacks less than this is sufficient.
const TOLERANCE: f32 = 1e-3;
/// What a lift of 1 of every voxel in a sheet of one voxel adds to the field at their centres. In
/// a sheet the first round is exact; more than that would thicken it for good, as nothing is ever
/// lowered. Lines and single voxels take more rounds.
const SHEET_WEIGHT: f32 = 2.0 / 3.0;
/// Real label maps take about 20 rounds; a single voxel, at (2/3)^3 of a lift of its own, as many.
const ROUNDS: usize = 100;

/// Raises coefficients until centres hold.
pub fn hold_centres(labels: &mut SmoothLabels) {
    let mut open: Vec<usize> = (0..labels.slots.len()).filter(|&v| labels.mixed[v]).collect();
    for _ in 0..ROUNDS {
        let lift = |&offset: &usize| lift(labels, offset).map(|by| (offset, by));
        let lifts: Vec<(usize, f32)> = open.par_iter().filter_map(lift).collect();
        if lifts.is_empty() {
            return;
        }
        for &(offset, by) in &lifts {
            let voxel = labels.geometry.index_of(offset).map(|v| v as isize);
            labels.fields[usize::from(labels.slots[offset])].lift(voxel, by);
        }
        open = around(labels, &lifts);
    }
}

/// What the own coefficient of a voxel lacks, if anything.
fn lift(labels: &SmoothLabels, offset: usize) -> Option<f32> {
    let voxel = labels.geometry.index_of(offset);
    let own = labels.slots[offset];
    let (mut own_value, mut rival) = (0.0, f32::NEG_INFINITY);
    for &slot in candidates(labels, voxel).as_slice() {
        let value = at_centre(labels, slot, voxel);
        if slot == own {
            own_value = value;
        } else {
            rival = rival.max(value);
        }
    }
    let lack = LEAD - (own_value - rival);
    (lack > TOLERANCE).then_some(lack / SHEET_WEIGHT)
}

/// The field of a label at a voxel's centre.
fn at_centre(labels: &SmoothLabels, slot: u16, voxel: [usize; 3]) -> f32 {
    let [x, y, z] = voxel.map(|v| v as isize);
    let mut sum = 0.0;
    for (k, wz) in (-1..).zip(SPLINE_AT_KNOTS) {
        for (j, wy) in (-1..).zip(SPLINE_AT_KNOTS) {
            let line = labels.fields[usize::from(slot)].line::<3>([x - 1, y + j, z + k]);
            let along: f32 = line.iter().zip(SPLINE_AT_KNOTS).map(|(c, wx)| c * wx).sum();
            sum += wz * wy * along;
        }
    }
    sum
}

/// The voxels whose centres a lift may change, ascending.
fn around(labels: &SmoothLabels, lifts: &[(usize, f32)]) -> Vec<usize> {
    let [nx, ny, nz] = labels.geometry.size;
    let range = |i: usize, count: usize| i.saturating_sub(1)..(i + 2).min(count);
    let mut touched = Vec::with_capacity(27 * lifts.len());
    for &(offset, _) in lifts {
        let [x, y, z] = labels.geometry.index_of(offset);
        for k in range(z, nz) {
            for j in range(y, ny) {
                touched.extend(range(x, nx).map(|i| (k * ny + j) * nx + i));
            }
        }
    }
    touched.par_sort_unstable();
    touched.dedup();
    touched.retain(|&voxel| labels.mixed[voxel]);
    touched
}
