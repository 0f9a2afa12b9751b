//! What is known of every image before the work: which can be used, where its object lies, how bright it is.

use std::collections::BTreeMap;

use ffdp_image::error::{Error, Result};
use ffdp_image::image::{Geometry, Volume};
use ffdp_register::coverage::{background, ends_inside};
use sha2::{Digest, Sha256};

use super::report::Excluded;
use super::settings::Intensities;
use crate::images::{Images, Subject, each_ahead};

/// Percentiles of the intensities that are taken for the darkest and the brightest of an image.
const RANGE: [f64; 2] = [1.0, 99.9];
/// Part of that range below which a voxel is background.
const FOREGROUND: f64 = 0.1;

/// An image that can be used.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// Its number in the list.
    pub index: usize,
    pub name: String,
    /// Of its voxels and its grid: what its results are kept under, and what decides the order of sums.
    pub hash: String,
    pub grid: Geometry,
    pub scale: Scale,
    /// The centre of mass of the foreground, and its box, RAS mm.
    pub centre_mm: [f64; 3],
    pub box_mm: [[f64; 3]; 2],
    pub has_labels: bool,
    /// The scaled intensity beyond its grid, where the border says it; `None` of one that ends within what it shows.
    pub beyond: Option<f32>,
}

/// Intensities as they are averaged: `(v - low) / unit`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    pub low: f64,
    pub unit: f64,
}

impl Scale {
    fn value(self, v: f32) -> f32 {
        ((f64::from(v) - self.low) / self.unit) as f32
    }

    /// An image in such intensities.
    pub fn applied(self, image: &mut Volume) {
        image.data.iter_mut().for_each(|v| *v = self.value(*v));
    }

    /// What brings a template back to the mean scale of its images.
    pub fn mean(members: &[Member]) -> Self {
        let mean = |of: fn(&Self) -> f64| {
            members.iter().map(|member| of(&member.scale)).sum::<f64>() / members.len() as f64
        };
        Self { low: mean(|scale| scale.low), unit: mean(|scale| scale.unit) }
    }
}

/// The images that can be used, in an order that does not depend on the list, and the others with the reason.
///
/// # Errors
/// [`Error::Invalid`] where fewer than two can be used.
pub(super) fn survey(
    images: &dyn Images,
    intensities: Intensities,
) -> Result<(Vec<Member>, Vec<Excluded>)> {
    let order: Vec<usize> = (0..images.count()).collect();
    let (mut members, mut excluded) = (BTreeMap::<String, Member>::new(), Vec::new());
    each_ahead(images, &order, |index, subject| {
        let name = images.name(index);
        match subject.and_then(|subject| member(index, &name, &subject, intensities)) {
            Err(error) => excluded.push(Excluded { index, name, reason: error.to_string() }),
            Ok(member) => match members.get(&member.hash) {
                Some(first) => {
                    let reason = format!("it is the same image as {}", first.name);
                    excluded.push(Excluded { index, name, reason });
                }
                None => _ = members.insert(member.hash.clone(), member),
            },
        }
        Ok(())
    })?;
    if members.len() < 2 {
        let reasons: Vec<String> = excluded
            .iter()
            .map(|Excluded { name, reason, .. }| format!("{name}: {reason}"))
            .collect();
        return Err(Error::invalid(
            format!("a template needs two images that can be used, of {}", images.count()),
            members.len(),
            match reasons.is_empty() {
                true => "name more images".to_string(),
                false => reasons.join("; "),
            },
        ));
    }
    Ok((members.into_values().collect(), excluded))
}

fn member(
    index: usize,
    name: &str,
    Subject { image, labels }: &Subject,
    intensities: Intensities,
) -> Result<Member> {
    image.check_finite("the image")?;
    if let Some(labels) = labels {
        image.geometry.check_same_grid(&labels.geometry, "the label map")?;
    }
    let [mut low, mut high] = image.percentiles(RANGE)?.map(f64::from);
    if low >= high {
        let extremes = image.min_max().expect("it is finite");
        (low, high) = (f64::from(extremes.0), f64::from(extremes.1));
    }
    if low >= high {
        let fix = "check that it is the file you meant";
        return Err(Error::invalid("an image must not be constant", low, fix));
    }
    let foreground = Foreground::of(image, [low, high]);
    let scale = match intensities {
        Intensities::Foreground => Scale { low, unit: foreground.mean },
        Intensities::Range => Scale { low, unit: high - low },
        Intensities::Keep => Scale { low: 0.0, unit: 1.0 },
    };
    let beyond = match ends_inside(&mut &*image)? {
        true => None,
        false => Some(scale.value(background(&mut &*image)?)),
    };
    Ok(Member {
        index,
        name: name.to_string(),
        hash: hash(image),
        grid: image.geometry.clone(),
        scale,
        centre_mm: foreground.centre_mm,
        box_mm: foreground.box_mm,
        has_labels: labels.is_some(),
        beyond,
    })
}

/// Voxels above the background.
struct Foreground {
    /// Of the intensities above the darkest.
    mean: f64,
    centre_mm: [f64; 3],
    box_mm: [[f64; 3]; 2],
}

impl Foreground {
    fn of(image: &Volume, [low, high]: [f64; 2]) -> Self {
        let least = low + FOREGROUND * (high - low);
        let grid = &image.geometry;
        let (mut mass, mut moment, mut count) = (0.0, [0.0; 3], 0usize);
        let (mut first, mut last) = ([usize::MAX; 3], [0; 3]);
        for (offset, &value) in image.data.iter().enumerate() {
            if f64::from(value) <= least {
                continue;
            }
            let (voxel, m) = (grid.index_of(offset), f64::from(value) - low);
            (mass, count) = (mass + m, count + 1);
            for i in 0..3 {
                moment[i] += m * voxel[i] as f64;
                (first[i], last[i]) = (first[i].min(voxel[i]), last[i].max(voxel[i]));
            }
        }
        let to_mm = grid.voxel_to_mm();
        let corners = (0..8).map(|k| {
            to_mm.apply(std::array::from_fn(|i| {
                [first[i] as f64 - 0.5, last[i] as f64 + 0.5][k >> i & 1]
            }))
        });
        let box_mm = corners.fold([[f64::INFINITY; 3], [f64::NEG_INFINITY; 3]], |[a, b], p| {
            [
                std::array::from_fn(|i| f64::min(a[i], p[i])),
                std::array::from_fn(|i| f64::max(b[i], p[i])),
            ]
        });
        let centre_mm = to_mm.apply(moment.map(|m| m / mass));
        Self { mean: mass / count as f64, centre_mm, box_mm }
    }
}

/// SHA-256 of the grid and the voxels.
fn hash(image: &Volume) -> String {
    let Geometry { size, spacing_mm, origin_mm, direction } = &image.geometry;
    let mut hash = Sha256::new();
    size.iter().for_each(|&n| hash.update((n as u64).to_le_bytes()));
    let numbers = spacing_mm.iter().chain(origin_mm).chain(direction.iter().flatten());
    numbers.for_each(|v| hash.update(v.to_le_bytes()));
    hash.update(bytemuck::cast_slice::<f32, u8>(&image.data));
    hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
