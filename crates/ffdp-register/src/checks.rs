//! What must hold of the images of a registration.

use super::problem::Problem;
use super::pyramid::{MINIMUM_AXIS_VOXELS, plane_axis};
use ffdp_image::error::{Error, Result};
use ffdp_image::image::{Affine, Geometry, Physical, Planes};

/// Least part of the smaller of the two images, in percent, that must lie inside the other.
///
/// With less, the deformation would be invented rather than found.
pub const MINIMUM_OVERLAP_PERCENT: f64 = 10.0;

/// Fewest voxels along an axis of an image that is moved as a whole: a slab of two slices.
const MINIMUM_LINEAR_AXIS_VOXELS: usize = 2;

/// That all channels, the mask and the labels of an image lie on its grid, with a voxel for each place.
pub(super) fn check_sources(problem: &Problem) -> Result<()> {
    let Problem { fixed, moving, more_channels, fixed_mask, moving_mask, labels, .. } = problem;
    let sides = [
        (["the fixed image", "the fixed mask", "the fixed labels"], fixed, fixed_mask),
        (["the moving image", "the moving mask", "the moving labels"], moving, moving_mask),
    ];
    for (side, ([name, mask_name, labels_name], image, mask)) in sides.into_iter().enumerate() {
        let channels = more_channels.iter().map(|pair| &pair[side]);
        for (index, channel) in std::iter::once(image).chain(channels).enumerate() {
            let name = channel_name(name, index);
            channel.check_count(&name)?;
            image.geometry().check_same_grid(channel.geometry(), &name)?;
        }
        let labels = labels.as_ref().map(|labels| &labels[side]);
        for (name, map) in [(mask_name, mask.as_ref()), (labels_name, labels)] {
            let Some(map) = map else { continue };
            map.check_count(name)?;
            image.geometry().check_same_grid(map.geometry(), name)?;
        }
    }
    Ok(())
}

/// The first channel is the image.
pub(super) fn channel_name(name: &str, index: usize) -> String {
    if index == 0 { name.to_string() } else { format!("channel {} of {name}", index + 1) }
}

/// Volumes of a least size, or two planes of it, across the same axis. A deformation needs more voxels than a stage that
/// moves the image as a whole.
pub(super) fn check_sizes(
    grids: &[impl std::borrow::Borrow<Geometry>; 2],
    deforms: bool,
) -> Result<()> {
    let grids = grids.each_ref().map(|grid| grid.borrow());
    let sizes = grids.map(|grid| grid.size);
    let planes = grids.map(plane_axis);
    if planes[0] != planes[1] {
        return Err(Error::invalid(
            "the fixed and the moving image must both be volumes, or both one plane across the same axis",
            sizes,
            "take the plane of the volume that corresponds to the other image",
        ));
    }
    let least = if deforms { MINIMUM_AXIS_VOXELS } else { MINIMUM_LINEAR_AXIS_VOXELS };
    for (name, size) in [("the fixed image", sizes[0]), ("the moving image", sizes[1])] {
        let wide = (0..3).filter(|&i| size[i] >= MINIMUM_AXIS_VOXELS).count();
        let enough = (0..3).all(|i| size[i] >= least || planes[0] == Some(i));
        if enough && wide >= 2 {
            continue;
        }
        let (what, fix) = match deforms {
            true => (
                "",
                "use linear stages alone (--transform rigid), or pad or resample a thin slab first",
            ),
            false => (" along two axes", "use an image with more voxels"),
        };
        return Err(Error::invalid(
            format!(
                "{name} must have at least {MINIMUM_AXIS_VOXELS} voxels along x, y and z{what}, or along two of them \
                 and one along the third"
            ),
            size,
            fix,
        ));
    }
    Ok(())
}

/// Demands that the images meet where `affine` (fixed to moving, RAS mm) places them.
pub(super) fn check_overlap(
    fixed: &Geometry,
    moving: &Geometry,
    affine: &Affine<Physical, Physical>,
) -> Result<()> {
    fixed.check_overlap(&moving.placed_by(affine)?, MINIMUM_OVERLAP_PERCENT)
}
