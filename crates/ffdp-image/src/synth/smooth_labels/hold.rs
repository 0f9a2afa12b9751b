//! Lifts: every voxel's centre keeps its label.
//!
//! Smoothing takes the label from voxels at tips and in thin sheets. There the coefficient of the
//! voxel's own label is raised until its field leads by [`LEAD`] or more at the centre. Raising one voxel
//! lowers the lead of its neighbours, so this repeats on them until none lacks it.

use rayon::prelude::*;

use super::SmoothLabels;
use super::kernel::SPLINE_AT_KNOTS;
use super::reader::candidates;

/// Lead of the own label at a voxel's centre over the next one (indicators are 0 and 1) where the
/// label may be a half-space: small, so that slanted surfaces may pass close by centres. Larger
/// ones make them wavy.
const LEAD: f32 = 0.1;
/// Lead where the label is thin. It sets the volume that is left: a sheet of one voxel loses 4 %
/// of it at 0.2 and gains 4 % at 0.3.
const THIN_LEAD: f32 = 0.25;
/// Of 27 voxels around a centre, a half-space that holds the centre holds at least these: of
/// every two opposite neighbours one.
const HALF_SPACE: usize = 14;
/// A flat sheet of one voxel holds these.
const SHEET: usize = 9;
/// A lead that lacks less than this is sufficient.
const TOLERANCE: f32 = 1e-3;
/// What a lift of 1 of every voxel in a sheet of one voxel adds to the field at their centres. In
/// a sheet the first round is exact; more than that would thicken it for good, as nothing is ever
/// lowered. Lines and single voxels take more rounds.
const SHEET_WEIGHT: f32 = 2.0 / 3.0;
/// A voxel alone, at (2/3)^3 of its own lift, takes about 12 rounds; neighbours that rival more.
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
    let lack = lead(labels, voxel, own) - (own_value - rival);
    (lack > TOLERANCE).then_some(lack / SHEET_WEIGHT)
}

/// The lead that a voxel's centre shall have: the more, the fewer neighbours share its label.
fn lead(labels: &SmoothLabels, [x, y, z]: [usize; 3], own: u16) -> f32 {
    let size = labels.geometry.size;
    // Beyond the image its border continues.
    let near = |i: usize, axis: usize| [i.saturating_sub(1), i, (i + 1).min(size[axis] - 1)];
    let mut shared = 0;
    for k in near(z, 2) {
        for j in near(y, 1) {
            let line = &labels.slots[(k * size[1] + j) * size[0]..][..size[0]];
            shared += near(x, 0).into_iter().filter(|&i| line[i] == own).count();
        }
    }
    let thin = HALF_SPACE.saturating_sub(shared.max(SHEET)) as f32 / (HALF_SPACE - SHEET) as f32;
    LEAD + thin * (THIN_LEAD - LEAD)
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
