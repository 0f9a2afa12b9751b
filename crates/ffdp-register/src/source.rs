//! An image as a registration compares it, read slab by slab: scaled to [0, 1], on any level.

use std::ops::Range;

use burn::tensor::{Device, Tensor};

use super::coverage::Coverage;
use super::prepare::{beyond_mask, channel_name, check_weights, continued, intensity_range};
use super::pyramid::level_smoothing;
use ffdp_burn::ops::{GridSampleOptions, Padding, gaussian, grid_sample};
use ffdp_burn::transform::affine_tensor;
use ffdp_image::error::Result;
use ffdp_image::image::{
    Affine, Counted, Geometry, Planes, Voxel, check_finite, index_affine, rescaled, rescaling,
    upload_each,
};
use ffdp_parallel::{Axis, DeviceMesh, HeldPlanes, Layout, Sharded, join, narrow, park, put_away};

/// Voxels of the image at full size that are brought to a device at a time, where smoothing asks for no
/// more: 16 MB.
const PIECE: usize = 1 << 22;

/// The same where nothing is computed.
const READ: usize = 1 << 26;

/// The channels of an image, its mask, and what their intensities become.
pub(super) struct Scaled<'a> {
    channels: Vec<&'a mut dyn Planes>,
    mask: Option<&'a mut dyn Planes>,
    /// Of each channel, once they are known.
    pub scales: Vec<Scale>,
    /// What of it counts, and whether it is the fixed image (0) or the moving one (1).
    pub coverage: Option<(Coverage, usize)>,
    /// Planes that were read for a level.
    held: HeldPlanes,
}

/// What must be known of all of an image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    /// The intensities that become 0 and 1.
    pub range: [f32; 2],
    /// The mean of what becomes of those inside the mask; 0 without one.
    pub mean: f32,
}

impl Scale {
    /// Reads the image twice, for its percentiles; with a mask four times, and that as often. The names are those of the
    /// image and of its mask in messages.
    ///
    /// # Errors
    /// [`Error::NonFinite`](ffdp_image::Error::NonFinite) for voxels that are no numbers,
    /// [`Error::Invalid`](ffdp_image::Error::Invalid) for a constant image or a mask that is none, and those of reading.
    fn of(
        [name, mask_name]: [&str; 2],
        counted: &mut Counted,
        percentiles: [f64; 2],
    ) -> Result<Self> {
        if let Some(mask) = &mut counted.mask {
            counted.image.geometry().check_same_grid(mask.geometry(), mask_name)?;
            check_weights(mask_name, check_finite(mask_name, *mask)?)?;
            // Also where it does not count.
            check_finite(name, counted.image)?;
        }
        let is_masked = counted.mask.is_some();
        let range = intensity_range(name, counted, percentiles)?;
        let mut scale = Self { range, mean: 0.0 };
        if is_masked {
            let (mut sum, mut count) = (0.0, 0);
            counted.sweep(|values| {
                let [from, to] = scale.range;
                sum += rescaled(values, from, to).into_iter().map(f64::from).sum::<f64>();
                count += values.len();
            })?;
            scale.mean = (sum / count as f64) as f32;
        }
        Ok(scale)
    }
}

impl<'a> Scaled<'a> {
    pub fn new(channels: Vec<&'a mut dyn Planes>, mask: Option<&'a mut dyn Planes>) -> Self {
        Self { channels, mask, scales: Vec::new(), coverage: None, held: HeldPlanes::default() }
    }

    /// Reads all channels for their [`Scale`]s. The names are those of the image and of its mask in messages.
    ///
    /// # Errors
    /// As [`Scale::of`]; [`Error::Shape`](ffdp_image::Error::Shape) and others for channels on different grids.
    pub fn measure(&mut self, [name, mask_name]: [&str; 2], percentiles: [f64; 2]) -> Result<()> {
        let geometry = self.geometry().clone();
        self.scales.clear();
        for (index, channel) in self.channels.iter_mut().enumerate() {
            let name = channel_name(name, index);
            geometry.check_same_grid(channel.geometry(), &name)?;
            let mask = self.mask.as_mut().map(|mask| &mut **mask as &mut dyn Planes);
            let mut counted = Counted { image: &mut **channel, mask, above: None };
            self.scales.push(Scale::of([&name, mask_name], &mut counted, percentiles)?);
        }
        Ok(())
    }

    pub fn geometry(&self) -> &Geometry {
        self.channels[0].geometry()
    }

    pub fn is_masked(&self) -> bool {
        self.mask.is_some()
    }

    /// Planes `[1, C, n, H, W]` of the image at full size, on a device; with a mask, that comes last. Held are those that the
    /// next planes `look_back` at.
    fn tensor(&mut self, z: Range<usize>, look_back: bool, device: &Device) -> Result<Tensor<5>> {
        let [x, y, planes] = self.geometry().size;
        let is_masked = self.is_masked();
        let radius = if is_masked { beyond_mask().radius(Axis::Z.component()) } else { 0 };
        let wider = z.start.saturating_sub(radius)..(z.end + radius).min(planes);
        let Self { channels, mask, scales, held, .. } = self;
        let mut read = |z: Range<usize>| {
            let dims = [1, 1, z.len(), y, x];
            let mut all = Vec::with_capacity(channels.len() + 1);
            for (channel, scale) in channels.iter_mut().zip(&*scales) {
                let values = channel.read(z.clone())?;
                all.push(upload_each(values, rescaling(scale.range), dims, device));
            }
            if let Some(mask) = mask {
                all.push(upload_each(mask.read(z)?, |weight| weight, dims, device));
            }
            Ok(match all.len() {
                1 => all.remove(0),
                _ => Tensor::cat(all, 1),
            })
        };
        let (there, image) = match look_back {
            true => held.hold(wider.clone(), device, read)?,
            false => (wider.clone(), read(wider.clone())?),
        };
        let dim = Axis::Z.dim();
        let image = narrow(image, dim, wider.start - there.start..wider.end - there.start);
        if !is_masked {
            return Ok(image);
        }
        let count = scales.len();
        let mask = image.clone().narrow(1, count, 1);
        let mut channels: Vec<Tensor<5>> = Vec::with_capacity(count + 1);
        for (k, scale) in scales.iter().enumerate() {
            let mean = Tensor::full([1; 5], scale.mean, device);
            channels.push(continued(image.clone().narrow(1, k, 1), &mask, mean));
        }
        channels.push(mask);
        Ok(Tensor::cat(channels, 1).narrow(dim, z.start - wider.start, z.len()))
    }

    /// The image on the grid of a level, its mask as another channel, cut into shards that are computed on the first
    /// mesh and rest on the second.
    ///
    /// # Errors
    /// Those of reading.
    pub fn level(
        &mut self,
        level: &Geometry,
        layout: &Layout,
        [work, rest]: [&DeviceMesh; 2],
    ) -> Result<Sharded> {
        let mut shards = Vec::with_capacity(layout.count());
        for (k, planes) in layout.all_planes().enumerate() {
            let mut pieces = Vec::new();
            // At full size there is nothing to compute: no way round by the device.
            let is_read = *level == *self.geometry() && !self.is_masked();
            let device = if is_read { rest.device(k) } else { work.device(k) };
            for planes in self.pieces(level, planes) {
                let piece = self.piece(level, planes.clone(), device)?;
                let piece = self.weighted(piece, level, planes);
                pieces.push(put_away(piece, rest.device(k)));
            }
            shards.push(park(join(pieces, Axis::Z.dim()), work.device(k)));
        }
        self.held.clear();
        Ok(Sharded::new(shards, layout.clone()))
    }

    /// Planes of a level with their weights as last channel, where there are any.
    fn weighted(&self, piece: Tensor<5>, level: &Geometry, planes: Range<usize>) -> Tensor<5> {
        let Some((coverage, side)) = self.coverage else { return piece };
        let channels = self.scales.len();
        let mask = match (self.is_masked(), coverage.masks()[side]) {
            (true, _) => piece.clone().narrow(1, channels, 1),
            (false, true) => piece.clone().narrow(1, 0, 1).ones_like(),
            (false, false) => return piece,
        };
        let mask = coverage.limit(side, mask, level, planes);
        Tensor::cat(vec![piece.narrow(1, 0, channels), mask], 1)
    }

    /// Runs of a level's planes, each with the planes of the image that it reaches small enough for a device.
    fn pieces(&self, level: &Geometry, planes: Range<usize>) -> Vec<Range<usize>> {
        let full = self.geometry();
        let [x, y, _] = full.size;
        // No less than what smoothing looks at on either side, or most would be smoothed twice.
        let beyond = if self.is_masked() { beyond_mask().radius(Axis::Z.component()) } else { 0 };
        let around = 2 * (level_smoothing(full, level).radius(Axis::Z.component()) + beyond);
        let shrink = full.size[2] as f64 / level.size[2] as f64;
        let is_read = level == full && !self.is_masked();
        let piece = if is_read { READ } else { PIECE };
        let step = ((piece / (x * y)).max(around) as f64 / shrink) as usize;
        let step = step.max(1);
        let starts = planes.clone().step_by(step);
        starts.map(|first| first..(first + step).min(planes.end)).collect()
    }

    /// Planes of a level: as many of the image as they look at, smoothed and read at the level's voxel
    /// centres. Next to the ends of what was brought the smooth image is wrong, and not looked at.
    fn piece(
        &mut self,
        level: &Geometry,
        planes: Range<usize>,
        device: &Device,
    ) -> Result<Tensor<5>> {
        let full = self.geometry().clone();
        if *level == full {
            return self.tensor(planes, self.is_masked(), device);
        }
        let smoothing = level_smoothing(&full, level);
        let radius = smoothing.radius(Axis::Z.component());
        let map = index_affine(level, &full, &Affine::identity());
        let (window, map) = window_of(&map, &planes, full.size[2]);
        // What smoothing looks at on either side.
        let wider = window.start.saturating_sub(radius)..(window.end + radius).min(full.size[2]);
        let more = (window.start - wider.start) as f64;
        let image = gaussian(self.tensor(wider, true, device)?, &smoothing);
        let mut rows = *map.rows();
        rows[2][3] += more;
        let map = affine_tensor(&Affine::from_rows(rows), device, image.dtype());
        let [_, h, w] = level.dims();
        let options = GridSampleOptions {
            padding: Padding::Border,
            size: Some([planes.len(), h, w]),
            ..GridSampleOptions::default()
        };
        Ok(grid_sample(image, Some(map), None, &options))
    }
}

/// The planes, of so many, that `planes` of another grid over the same field of view are read from, and the
/// map from voxels of the ones to those of the others, both counted from their first plane.
pub(super) fn window_of(
    map: &Affine<Voxel, Voxel>,
    planes: &Range<usize>,
    count: usize,
) -> (Range<usize>, Affine<Voxel, Voxel>) {
    let mut rows = *map.rows();
    let at = |plane: usize| rows[2][2] * plane as f64 + rows[2][3];
    // Of a position that rounding moves past a voxel, the next one.
    let first = (at(planes.start).floor() - 1.0).max(0.0) as usize;
    let end = (at(planes.end - 1).floor() + 3.0) as usize;
    let first = first.min(count - 1);
    let window = first..end.clamp(first + 1, count);
    for row in &mut rows {
        row[3] += row[2] * planes.start as f64;
    }
    rows[2][3] -= window.start as f64;
    (window, Affine::from_rows(rows))
}
