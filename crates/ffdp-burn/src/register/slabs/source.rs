//! An image as a registration compares it, read slab by slab: scaled to [0, 1], on any level.

use std::ops::Range;

use burn::tensor::{Device, Tensor};

use crate::error::Result;
use crate::image::{Affine, Geometry, Planes, Voxel, index_affine, rescaled, statistics, upload};
use crate::ops::{GridSampleOptions, Padding, gaussian, grid_sample};
use crate::parallel::{Axis, Layout, Mesh, Sharded, join, park, put_away};
use crate::register::prepare::intensity_range;
use crate::register::pyramid::{LevelImage, level_geometry, level_smoothing};
use crate::transform::affine_tensor;

/// Voxels of the image at full size that are brought to a device at a time, where smoothing asks for no
/// more: 16 MB.
const PIECE: usize = 1 << 22;

/// The same where nothing is computed.
const READ: usize = 1 << 26;

/// An image and the intensities of it that become 0 and 1.
pub(in crate::register) struct Scaled<'a> {
    planes: &'a mut dyn Planes,
    range: [f32; 2],
}

impl<'a> Scaled<'a> {
    /// With the range of its intensities; `name` is that of the image in messages.
    ///
    /// # Errors
    /// As [`Scaled::range`].
    #[cfg(test)]
    pub fn new(name: &str, planes: &'a mut dyn Planes, percentiles: [f64; 2]) -> Result<Self> {
        let range = Self::range(name, planes, percentiles)?;
        Ok(Self { planes, range })
    }

    /// With a range that is known.
    pub fn with_range(planes: &'a mut dyn Planes, range: [f32; 2]) -> Self {
        Self { planes, range }
    }

    /// Reads the image twice, for its percentiles.
    ///
    /// # Errors
    /// [`Error::NonFinite`](crate::Error::NonFinite) for voxels that are no numbers,
    /// [`Error::Invalid`](crate::Error::Invalid) for a constant image, and those of reading.
    pub fn range(name: &str, planes: &mut dyn Planes, percentiles: [f64; 2]) -> Result<[f32; 2]> {
        let found = statistics(name, planes, percentiles)?;
        intensity_range(name, found.extremes, None, || Ok(found.percentiles))
    }

    pub fn geometry(&self) -> &Geometry {
        self.planes.geometry()
    }

    /// Planes `[1, 1, n, H, W]` at full size, on a device.
    fn tensor(&mut self, z: Range<usize>, device: &Device) -> Result<Tensor<5>> {
        let [x, y, _] = self.planes.geometry().size;
        let [from, to] = self.range;
        let values = rescaled(self.planes.read(z.clone())?, from, to);
        Ok(upload(values, [1, 1, z.len(), y, x], device))
    }

    /// Both as [`level_image`](crate::register::level_image) of the whole makes it, on one device.
    ///
    /// # Errors
    /// Those of reading.
    pub fn level_image(
        &mut self,
        spacing_mm: f64,
        minimum_axis: usize,
        device: &Device,
    ) -> Result<LevelImage> {
        let geometry = level_geometry(self.geometry(), spacing_mm, minimum_axis)?;
        let layout = Layout::balanced(geometry.dims(), Axis::Z, 1)?;
        let one = Mesh::one(device);
        let level = self.level(&geometry, &layout, [&one, &one])?;
        Ok(LevelImage { tensor: level.into_shards().remove(0), geometry })
    }

    /// The image on the grid of a level, cut into shards that are computed on the first mesh and rest on
    /// the second.
    ///
    /// # Errors
    /// Those of reading.
    pub fn level(
        &mut self,
        level: &Geometry,
        layout: &Layout,
        [work, rest]: [&Mesh; 2],
    ) -> Result<Sharded> {
        let mut shards = Vec::with_capacity(layout.count());
        for (k, planes) in layout.all_planes().enumerate() {
            let mut pieces = Vec::new();
            // At full size there is nothing to compute: no way round by the device.
            let is_full = *level == *self.planes.geometry();
            let device = if is_full { rest.device(k) } else { work.device(k) };
            for piece in self.pieces(level, planes) {
                let piece = self.piece(level, piece, device)?;
                pieces.push(put_away(piece, rest.device(k)));
            }
            shards.push(park(join(pieces, Axis::Z.dim()), work.device(k)));
        }
        Ok(Sharded::new(shards, layout.clone()))
    }

    /// Runs of a level's planes, each with the planes of the image that it reaches small enough for a device.
    fn pieces(&self, level: &Geometry, planes: Range<usize>) -> Vec<Range<usize>> {
        let full = self.planes.geometry();
        let [x, y, _] = full.size;
        // No less than what smoothing looks at on either side, or most would be smoothed twice.
        let around = 2 * level_smoothing(full, level).radius(Axis::Z.component());
        let shrink = full.size[2] as f64 / level.size[2] as f64;
        let piece = if level == full { READ } else { PIECE };
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
        let full = self.planes.geometry().clone();
        if *level == full {
            return self.tensor(planes, device);
        }
        let smoothing = level_smoothing(&full, level);
        let radius = smoothing.radius(Axis::Z.component());
        let map = index_affine(level, &full, &Affine::identity());
        let (window, map) = window_of(&map, &planes, full.size[2]);
        // What smoothing looks at on either side.
        let wider = window.start.saturating_sub(radius)..(window.end + radius).min(full.size[2]);
        let more = (window.start - wider.start) as f64;
        let image = gaussian(self.tensor(wider, device)?, &smoothing);
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
