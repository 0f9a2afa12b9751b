//! What must hold before a registration starts, and the images as it compares them.

use burn::tensor::{Device, Tensor};

use super::coverage::{AIR, ends_inside};
use super::histogram::matched;
use super::problem::Problem;
use super::pyramid::{MINIMUM_AXIS_VOXELS, plane_axis};
use ffdp_burn::ops::{GaussianOptions, gaussian, sum_of_channels};
use ffdp_image::error::{Error, Result};
use ffdp_image::image::{
    Affine, Counted, Geometry, Physical, Planes, Statistics, Volume, statistics,
};

/// Least part of the smaller of the two images, in percent, that must lie inside the other.
///
/// With less, the deformation would be invented rather than found.
pub const MINIMUM_OVERLAP_PERCENT: f64 = 10.0;

/// Fewest voxels along an axis of an image that is moved as a whole: a slab of two slices.
const MINIMUM_LINEAR_AXIS_VOXELS: usize = 2;

/// Standard deviation in voxels with which an image goes on beyond its mask: as far as the coarsest
/// usual level and the interpolation look.
const BEYOND_MASK_VOXELS: f64 = 2.0;
/// Part of the smoothed mask below which the mean of the image takes over.
const FAINT: f64 = 1e-3;

/// One side of the problem as it is compared.
pub(super) struct Side {
    /// Scaled to [0, 1], `[1, C, D, H, W]`.
    pub image: Tensor<5>,
    /// Weights in 0..1, `[1, 1, D, H, W]`.
    pub mask: Option<Tensor<5>>,
    /// As [`ends_inside`] says, of any of its channels.
    pub ends_inside: bool,
}

/// How intensities are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Intensities {
    /// Those that become 0 and 1.
    pub percentiles: [f64; 2],
    /// Whether the moving image's are first distributed as the fixed one's.
    pub match_histograms: bool,
}

/// The fixed and the moving side, after everything that would give a wrong result was refused. Where the images are
/// `placed` they must meet as the problem says.
pub(super) fn prepare(
    problem: &Problem,
    placed: bool,
    (Intensities { percentiles, match_histograms }, deforms): (Intensities, bool),
    device: &Device,
) -> Result<[Side; 2]> {
    let &Problem { fixed, moving, fixed_mask, moving_mask, more_channels, .. } = problem;
    let channels = |side: usize| more_channels.iter().map(move |pair| pair[side]);
    let fixed = [fixed].into_iter().chain(channels(0)).collect::<Vec<_>>();
    let moving = [moving].into_iter().chain(channels(1)).collect::<Vec<_>>();
    for (name, volumes, mask) in
        [("the fixed image", &fixed, fixed_mask), ("the moving image", &moving, moving_mask)]
    {
        check_images(name, volumes, mask.is_some())?;
    }
    check_sizes(&[&problem.fixed.geometry, &problem.moving.geometry], deforms)?;
    for (name, volume, mask) in
        [("the fixed mask", fixed[0], fixed_mask), ("the moving mask", moving[0], moving_mask)]
    {
        mask.map_or(Ok(()), |mask| check_mask(name, mask, &volume.geometry))?;
    }
    if placed {
        check_overlap(&fixed[0].geometry, &moving[0].geometry, &problem.initial)?;
    }
    let ranges = |name: &str, channels: &[&Volume], mask| -> Result<Vec<[f32; 2]>> {
        let of = |(index, volume): (usize, &&Volume)| {
            let name = channel_name(name, index);
            range_of(&name, volume, mask, percentiles)
        };
        channels.iter().enumerate().map(of).collect()
    };
    let (in_fixed, in_moving) = rayon::join(
        || ranges("the fixed image", &fixed, fixed_mask),
        || ranges("the moving image", &moving, moving_mask),
    );
    let (in_fixed, in_moving) = (in_fixed?, in_moving?);
    let scaled = |volume: &Volume, range| volume.to_rescaled_tensor(range, device);
    let of_fixed = fixed.iter().zip(&in_fixed).map(|(volume, range)| scaled(volume, *range));
    let of_moving = (0..moving.len()).map(|i| {
        if !match_histograms {
            return Ok(scaled(moving[i], in_moving[i]));
        }
        let [from, to] = in_moving[i];
        let moving = moving[i].rescaled(from, to);
        let [from, to] = in_fixed[i];
        let fixed = fixed[i].rescaled(from, to);
        Ok(matched((&moving, moving_mask), (&fixed, fixed_mask))?.into_tensor(device))
    });
    Ok([
        side((of_fixed.collect(), any_ends_inside(&fixed)?), fixed_mask, device),
        side((of_moving.collect::<Result<_>>()?, any_ends_inside(&moving)?), moving_mask, device),
    ])
}

/// That all channels lie on one grid, and are finite where a mask would hide what is not: their percentiles see the rest.
fn check_images(name: &str, channels: &[&Volume], is_masked: bool) -> Result<()> {
    for (index, volume) in channels.iter().enumerate() {
        let name = channel_name(name, index);
        check_count(&name, volume)?;
        if is_masked {
            volume.check_finite(&name)?;
        }
        channels[0].geometry.check_same_grid(&volume.geometry, &name)?;
    }
    Ok(())
}

/// The first channel is the image.
pub(super) fn channel_name(name: &str, index: usize) -> String {
    if index == 0 { name.to_string() } else { format!("channel {} of {name}", index + 1) }
}

/// Fields are public: what the constructor promised may have been broken since.
fn check_count(name: &str, volume: &Volume) -> Result<()> {
    let (expected, got) = (volume.geometry.len(), volume.data.len());
    if expected == got {
        return Ok(());
    }
    let what = format!("number of voxels of {name}");
    Err(Error::Shape { what, expected: vec![expected], got: vec![got] })
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

/// That a mask is weights in 0..1 on the grid of its image, one of them above 0.
fn check_mask(name: &str, mask: &Volume, grid: &Geometry) -> Result<()> {
    check_count(name, mask)?;
    mask.check_finite(name)?;
    grid.check_same_grid(&mask.geometry, name)?;
    let (low, high) = mask.min_max().unwrap_or_default();
    check_weights(name, [low, high])
}

/// That the extremes of a mask are those of weights in 0..1, one of them above 0.
pub(super) fn check_weights(name: &str, [low, high]: [f32; 2]) -> Result<()> {
    if low < 0.0 || high > 1.0 {
        return Err(Error::invalid(
            format!("{name} must hold weights in 0..1"),
            [low, high],
            "divide it by its largest value, or set what counts to 1 and the rest to 0",
        ));
    }
    if high == 0.0 {
        return Err(Error::invalid(
            format!("{name} must not be empty"),
            format_args!("0 in every voxel"),
            "check that it is the file you meant, or leave it out",
        ));
    }
    Ok(())
}

/// Whether one of the channels [`ends_inside`].
fn any_ends_inside(channels: &[&Volume]) -> Result<bool> {
    channels.iter().try_fold(false, |found, channel| Ok(found || ends_inside(&mut &**channel)?))
}

/// One side, ready to be compared.
fn side(
    (mut channels, ends_inside): (Vec<Tensor<5>>, bool),
    mask: Option<&Volume>,
    device: &Device,
) -> Side {
    let image = match channels.len() {
        1 => channels.remove(0),
        _ => Tensor::cat(channels, 1),
    };
    let mask = mask.map(|mask| mask.to_tensor(device));
    let image = match &mask {
        None => image,
        Some(mask) => {
            let mean = mean_inside(&image, mask);
            continued(image, mask, mean)
        }
    };
    Side { image, mask, ends_inside }
}

/// The intensities of a volume that become 0 and 1.
fn range_of(
    name: &str,
    mut volume: &Volume,
    mut mask: Option<&Volume>,
    percentiles: [f64; 2],
) -> Result<[f32; 2]> {
    let mask = mask.as_mut().map(|mask| mask as &mut dyn Planes);
    intensity_range(name, &mut Counted { image: &mut volume, mask, above: None }, percentiles)
}

/// The intensities that become 0 and 1: percentiles of those that count. An image whose percentiles coincide though it is
/// not constant (a small object on a wide flat background) is scaled by its extremes instead. Takes two sweeps.
///
/// # Errors
/// [`Error::NonFinite`], [`Error::Invalid`] for a constant image, and those of reading.
pub(super) fn intensity_range(
    name: &str,
    counted: &mut Counted,
    percentiles: [f64; 2],
) -> Result<[f32; 2]> {
    let is_masked = counted.mask.is_some();
    let whole = statistics(name, counted, percentiles)?;
    let Statistics { extremes: [min, max], percentiles: [from, to] } =
        without_padding(name, counted, percentiles, whole)?;
    if min == max {
        let (place, fix) = match is_masked {
            false => ("", "it holds nothing to align: check that it is the file you meant"),
            true => (
                " inside its mask",
                "there is nothing to align: check that image and mask belong together",
            ),
        };
        return Err(Error::invalid(
            format!("{name} must not be constant{place}"),
            format_args!("{min} in every voxel{place}"),
            fix,
        ));
    }
    Ok(if from < to { [from, to] } else { [min, max] })
}

/// Part of the voxels of which padding is at least.
const PADDED: f64 = 0.005;

/// The statistics without the padding of a CT: one value below that of air, in many voxels, which scanners write outside
/// their field of view. It then counts as the least value of what they saw, so that its edge is none. Takes three more
/// sweeps of such an image, and none of others.
fn without_padding(
    name: &str,
    counted: &mut Counted,
    percentiles: [f64; 2],
    whole: Statistics<2>,
) -> Result<Statistics<2>> {
    let padding = whole.extremes[0];
    if padding >= AIR {
        return Ok(whole);
    }
    let (mut equal, mut all) = (0, 0);
    counted.sweep(|values| {
        all += values.len();
        equal += values.iter().filter(|value| **value == padding).count();
    })?;
    if equal == all || (equal as f64) < PADDED * all as f64 {
        return Ok(whole);
    }
    counted.above = Some(padding);
    let found = statistics(name, counted, percentiles);
    counted.above = None;
    found
}

fn inside(mask: &Tensor<5>) -> Tensor<5> {
    mask.clone().greater_elem(0.0).float()
}

/// The mean of every channel inside the mask, `[1, C, 1, 1, 1]`.
fn mean_inside(image: &Tensor<5>, mask: &Tensor<5>) -> Tensor<5> {
    let inside = inside(mask);
    sum_of_channels(image.clone() * inside.clone()) / sum_of_channels(inside)
}

/// How an image goes on beyond its mask.
pub(super) fn beyond_mask() -> GaussianOptions {
    GaussianOptions::isotropic(BEYOND_MASK_VOXELS)
}

/// The image, beyond its mask replaced by what lies inside, smoothed: so that neither a level nor a
/// sample between voxels sees what must not be looked at, nor an edge that is none. `mean` is that inside.
pub(super) fn continued(image: Tensor<5>, mask: &Tensor<5>, mean: Tensor<5>) -> Tensor<5> {
    let inside = inside(mask);
    let seen = image * inside.clone();
    let smooth = beyond_mask();
    let near = gaussian(seen.clone(), &smooth) + mean.mul_scalar(FAINT);
    let outside = near / gaussian(inside.clone(), &smooth).add_scalar(FAINT);
    seen + outside * inside.neg().add_scalar(1.0)
}

/// Demands that the images meet where `affine` (fixed to moving, RAS mm) places them.
pub(super) fn check_overlap(
    fixed: &Geometry,
    moving: &Geometry,
    affine: &Affine<Physical, Physical>,
) -> Result<()> {
    fixed.check_overlap(&moving.placed_by(affine)?, MINIMUM_OVERLAP_PERCENT)
}
