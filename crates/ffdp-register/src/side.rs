//! An image as a registration compares it: scaled to [0, 1], on any level. Where one device holds everything it goes
//! there once; else it is read slab by slab for every level.

use std::ops::Range;

use burn::tensor::{Device, Tensor};

use super::checks::channel_name;
use super::coverage::{Coverage, Unknown};
use super::histogram::{Landmarks, landmarks};
use super::intensities::{Scale, beyond_mask, continued, intensity_range};
use super::labels::DrivingLabels;
use super::places::ImagePlaces;
use super::problem::{Content, Source};
use super::pyramid::{level_smoothing, on_level};
use super::shared::SharedImage;
use ffdp_burn::ops::{GridSampleOptions, Padding, gaussian, grid_sample};
use ffdp_burn::transform::affine_tensor;
use ffdp_image::error::Result;
use ffdp_image::image::{
    Affine, Counted, Geometry, Planes, Voxel, check_finite, index_affine, upload_each,
};
use ffdp_parallel::{
    Axis, DeviceMesh, Sharded,
    memory::{park, put_away},
    parts::{join, narrow},
    ring::HeldPlanes,
};

/// Voxels of the image at full size that are brought to a device at a time, where smoothing asks for no
/// more: 16 MB.
const PIECE: usize = 1 << 22;

/// The same where nothing is computed.
const READ: usize = 1 << 26;

/// The channels of an image, its mask, and what their intensities become.
pub(super) struct Side<'a> {
    /// Its name, and that of its mask, in messages.
    names: [&'static str; 2],
    channels: Vec<Source<'a>>,
    mask: Option<Source<'a>>,
    /// Those that drive the registration, as channels after its own.
    pub labels: Option<DrivingLabels<'a>>,
    /// Of each channel, where it has one: voxels of this value count for nothing, as outside the mask.
    padding: Vec<Option<f32>>,
    /// Of each channel, once they are known.
    pub scales: Vec<Scale>,
    /// What of it counts, once that is known.
    weighing: Weighing,
    /// All of it at full size, where one device holds everything: the channels and their mask.
    whole: Option<(Tensor<5>, Option<Tensor<5>>)>,
    /// Planes that were read for a level.
    held: HeldPlanes,
}

/// What voxels of an image count by, besides its own mask.
#[derive(Clone, Copy, Debug)]
struct Weighing {
    coverage: Option<(Coverage, usize)>,
    /// Whether it has weights in any case. (With weights, windows hold only what there is: a plane, no zeros around it.)
    always: bool,
}

impl<'a> Side<'a> {
    /// An image whose channels lie on one grid, its mask too.
    pub fn new(
        names: [&'static str; 2],
        channels: Vec<Source<'a>>,
        mask: Option<Source<'a>>,
    ) -> Self {
        Self {
            names,
            channels,
            mask,
            labels: None,
            padding: Vec::new(),
            scales: Vec::new(),
            weighing: Weighing { coverage: None, always: false },
            whole: None,
            held: HeldPlanes::default(),
        }
    }

    /// What other registrations share with this one: the image, where it is all there is.
    fn shared(&self) -> Option<&'a SharedImage<'a>> {
        match &self.channels[..] {
            [Source::Shared(image)] if !self.is_masked() && self.labels.is_none() => Some(image),
            _ => None,
        }
    }

    /// What of each channel is unknown.
    ///
    /// # Errors
    /// Those of reading.
    pub fn unknown(&mut self) -> Result<Vec<Unknown>> {
        if let Some(image) = self.shared() {
            return Ok(vec![image.unknown()?]);
        }
        self.channels.iter_mut().map(|channel| Unknown::of(channel)).collect()
    }

    /// What of it counts: no `padding` of a channel; as image `side` (0 fixed, 1 moving), and whether it has weights in any
    /// case.
    pub fn weigh(
        &mut self,
        padding: Vec<Option<f32>>,
        coverage: Coverage,
        side: usize,
        always: bool,
    ) {
        self.padding = padding;
        self.weighing = Weighing { coverage: Some((coverage, side)), always };
    }

    /// Finds the intensities of all channels that become 0 and 1. Reads each twice, one with a mask three times and that
    /// as often; labels once.
    ///
    /// # Errors
    /// [`Error::NonFinite`](ffdp_image::Error::NonFinite) for voxels that are no numbers,
    /// [`Error::Invalid`](ffdp_image::Error::Invalid) for a constant image or a mask that is none, and those of reading.
    pub fn measure(&mut self, percentiles: [f64; 2]) -> Result<()> {
        let [name, mask_name] = self.names;
        if let Some(mask) = &mut self.mask {
            mask.check_is_mask(mask_name)?;
        }
        self.scales.clear();
        for index in 0..self.channels.len() {
            let name = channel_name(name, index);
            if self.is_masked() {
                // Also where it does not count.
                check_finite(&name, &mut self.channels[index])?;
            }
            let range = match self.shared() {
                Some(image) => image.range(&name, percentiles)?,
                None => intensity_range(&name, &mut self.counted(index), percentiles)?,
            };
            self.scales.push(Scale { range, matching: None, mean: 0.0 });
        }
        if let Some(labels) = &mut self.labels {
            labels.check()?;
            let as_it_is = Scale { range: [0.0, 1.0], matching: None, mean: 0.0 };
            self.scales.extend(vec![as_it_is; labels.count()]);
        }
        Ok(())
    }

    /// The landmarks of each channel's distribution.
    ///
    /// # Errors
    /// Those of reading.
    pub fn landmarks(&mut self) -> Result<Vec<Landmarks>> {
        let scales = self.scales.iter().take(self.channels.len());
        let ranges: Vec<_> = scales.map(|scale| scale.range).collect();
        let channels = ranges.into_iter().enumerate();
        channels.map(|(index, range)| landmarks(&mut self.counted(index), range)).collect()
    }

    /// Finds the means of what becomes of the intensities inside the mask, where there is one.
    ///
    /// # Errors
    /// Those of reading.
    pub fn average(&mut self) -> Result<()> {
        if !self.is_masked() {
            return Ok(());
        }
        for index in 0..self.channels.len() {
            let value = self.scales[index].value();
            let (mut sum, mut count) = (0.0, 0usize);
            self.counted(index).sweep(|values| {
                sum += values.iter().map(|v| f64::from(value(*v))).sum::<f64>();
                count += values.len();
            })?;
            self.scales[index].mean = (sum / count as f64) as f32;
        }
        Ok(())
    }

    /// The voxels of a channel that count.
    fn counted(&mut self, index: usize) -> Counted<'_> {
        let mask = self.mask.as_mut().map(|mask| mask as &mut dyn Planes);
        let above = self.padding.get(index).copied().flatten();
        Counted { image: &mut self.channels[index], mask, above }
    }

    pub fn geometry(&self) -> &Geometry {
        self.channels[0].geometry()
    }

    /// Channels, with those of labels, without the mask.
    pub fn channels(&self) -> usize {
        self.channels.len() + self.labels.as_ref().map_or(0, DrivingLabels::count)
    }

    /// Whether some of its voxels do not count: it was given a mask, or has padding.
    fn is_masked(&self) -> bool {
        self.mask.is_some() || self.padding.iter().any(Option::is_some)
    }

    /// Whether its levels have weights as last channel.
    pub fn is_weighted(&self) -> bool {
        let Weighing { coverage, always } = self.weighing;
        self.is_masked() || always || coverage.is_some_and(|(coverage, i)| coverage.masks()[i])
    }

    /// Brings all of it to a device, where it stays.
    ///
    /// # Errors
    /// Those of reading.
    pub fn hold(&mut self, device: &Device) -> Result<()> {
        let (channels, planes) = (self.channels(), 0..self.geometry().size[2]);
        let all = match self.shared() {
            None => self.tensor(planes, false, device)?,
            Some(image) => {
                let (scale, grid) = (self.scales[0].clone(), self.geometry().clone());
                image.on_grid(&scale, device, &grid, || self.tensor(planes, false, device))?
            }
        };
        self.whole = Some(match self.is_masked() {
            false => (all, None),
            true => (all.clone().narrow(1, 0, channels), Some(all.narrow(1, channels, 1))),
        });
        Ok(())
    }

    /// The image on the grid of a level in one piece on a device, its weights as last channel.
    ///
    /// # Errors
    /// Those of reading.
    pub fn whole_level(&mut self, level: &Geometry, device: &Device) -> Result<Tensor<5>> {
        let Some((image, mask)) = &self.whole else {
            let one = ImagePlaces::whole(level.dims(), &DeviceMesh::one(device))?;
            return Ok(self.level(level, &one)?.into_shards().remove(0));
        };
        let at = |image: &Tensor<5>| on_level(image, self.geometry(), level);
        let image = match self.shared() {
            None => at(image),
            Some(shared) => shared.on_grid(&self.scales[0], device, level, || Ok(at(image)))?,
        };
        let all = match mask {
            None => image,
            Some(mask) => Tensor::cat(vec![image, at(mask)], 1),
        };
        Ok(self.weighted(all, level, 0..level.size[2]))
    }

    /// Planes `[1, C, n, H, W]` of the image at full size, on a device; with a mask, that comes last. Held are those that the
    /// next planes `look_back` at.
    fn tensor(&mut self, z: Range<usize>, look_back: bool, device: &Device) -> Result<Tensor<5>> {
        let [x, y, planes] = self.geometry().size;
        let is_masked = self.is_masked();
        let radius = if is_masked { beyond_mask().radius(Axis::Z.component()) } else { 0 };
        let wider = z.start.saturating_sub(radius)..(z.end + radius).min(planes);
        let Self { channels, mask, labels, padding, scales, held, .. } = self;
        let mut read = |z: Range<usize>| {
            let dims = [1, 1, z.len(), y, x];
            let upload = |values: &[f32], of: &(dyn Fn(f32) -> f32 + Sync)| {
                upload_each(values, of, dims, device)
            };
            let mut all = Vec::with_capacity(channels.len() + 1);
            let mut weights = Vec::with_capacity(channels.len() + 1);
            for (k, channel) in channels.iter_mut().enumerate() {
                let values = channel.read(z.clone())?;
                all.push(upload(values, &scales[k].value()));
                if let Some(padding) = padding.get(k).copied().flatten() {
                    weights.push(upload(values, &|v| f32::from(u8::from(v != padding))));
                }
            }
            if let Some(labels) = labels {
                let stands = labels.values();
                let values = labels.map.read(z.clone())?;
                let one = |label: &f32| upload(values, &|v| f32::from(u8::from(v == *label)));
                all.extend(stands.iter().map(one));
            }
            if let Some(mask) = mask {
                weights.push(upload(mask.read(z)?, &|weight| weight));
            }
            all.extend(weights.into_iter().reduce(|product, weights| product * weights));
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

    /// The image on the grid of a level, its mask as another channel, cut as `places` say.
    ///
    /// # Errors
    /// Those of reading.
    pub fn level(&mut self, level: &Geometry, places: &ImagePlaces) -> Result<Sharded> {
        let ImagePlaces { layout, work, rest } = places;
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
        let channels = self.channels();
        if !self.is_weighted() {
            return piece;
        }
        let mut mask = match self.is_masked() {
            true => piece.clone().narrow(1, channels, 1),
            false => piece.clone().narrow(1, 0, 1).ones_like(),
        };
        if let Some((coverage, side)) = self.weighing.coverage {
            mask = coverage.limit(side, mask, level, planes);
        }
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

/// What levels have.
pub(super) fn content_of(sides: &[Side; 2], labels: usize) -> Content {
    let masked = sides.each_ref().map(Side::is_weighted);
    Content { channels: sides[0].channels(), labels, masked }
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
