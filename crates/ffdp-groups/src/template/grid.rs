//! The grid of a template.

use ffdp_image::error::Result;
use ffdp_image::image::{Geometry, SAME_GRID_TOLERANCE_VOXELS};

use super::survey::Member;

/// Part of the longest side of the object that is left free around it.
const MARGIN: f64 = 0.1;

/// The grid of images that share one. Else one along the axes of space (RAS) around the centre of all, in the median of
/// their finest spacings, that holds the foreground of each image when the centres of mass lie on each other. `spacing_mm`
/// in place of either spacing.
pub(super) fn template_grid(members: &[Member], spacing_mm: Option<f64>) -> Result<Geometry> {
    let first = &members[0].grid;
    if members.iter().all(|member| first.same_grid(&member.grid, SAME_GRID_TOLERANCE_VOXELS)) {
        return match spacing_mm {
            None => Ok(first.clone()),
            Some(spacing) => first.resized(std::array::from_fn(|i| {
                ((first.size[i] as f64 * first.spacing_mm[i] / spacing).round() as usize).max(1)
            })),
        };
    }
    let spacing = spacing_mm.unwrap_or_else(|| median_spacing(members));
    let centre = mean_centre(members);
    // How far foregrounds reach from their centres, below and above.
    let reach = |i: usize| {
        members.iter().fold([0.0f64; 2], |[below, above], member| {
            let [low, high] = member.box_mm.map(|corner| corner[i]);
            [below.max(member.centre_mm[i] - low), above.max(high - member.centre_mm[i])]
        })
    };
    let reaches = [reach(0), reach(1), reach(2)];
    let longest = reaches.iter().map(|[below, above]| below + above).fold(0.0, f64::max);
    let size = reaches.map(|[below, above]| {
        ((below + above + 2.0 * MARGIN * longest) / spacing).ceil().max(1.0) as usize
    });
    let origin = std::array::from_fn(|i| {
        let [below, above] = reaches[i];
        let middle = centre[i] + (above - below) / 2.0;
        middle - (size[i] as f64 - 1.0) / 2.0 * spacing
    });
    Geometry::new(size, [spacing; 3])?.with_origin(origin)
}

/// The mean of the centres of mass, RAS mm.
pub(super) fn mean_centre(members: &[Member]) -> [f64; 3] {
    std::array::from_fn(|i| {
        members.iter().map(|member| member.centre_mm[i]).sum::<f64>() / members.len() as f64
    })
}

fn median_spacing(members: &[Member]) -> f64 {
    let finest = |member: &Member| member.grid.spacing_mm.into_iter().fold(f64::INFINITY, f64::min);
    let mut all: Vec<f64> = members.iter().map(finest).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}
