//! A pair in parts: its images cut for the devices, the terms of the objective of all parts.

use std::time::Instant;

use burn::data::dataset::DatasetError;
use burn::optim::GradientsParams;
use burn::tensor::Device;
use ffdp_burn::Result;
use ffdp_burn::nets::Network;
use ffdp_burn::parallel::{Axis, Mesh, Replicas, Sharded};

use crate::data::Item;
use crate::metrics::{Measured, Scores};
use crate::model::{Registration, values};
use crate::objective::{Parts, Terms};

/// Gradients and terms of a pair whose loss counts `share`.
pub fn step(
    replicas: &Replicas<Registration>,
    devices: &[Device],
    item: &Item,
    share: f64,
) -> std::result::Result<(GradientsParams, Terms), DatasetError> {
    let models: Vec<&Registration> = (0..devices.len()).map(|k| replicas.at(k)).collect();
    let Computed { terms, .. } = compute(&models, devices, item).map_err(DatasetError::new)?;
    let gradients = terms.share(share).backward();
    Ok((replicas.gradients(gradients), terms))
}

/// What a validation tells of a pair; models and devices do not track gradients.
pub fn validate(
    models: &[Registration],
    devices: &[Device],
    item: Item,
) -> std::result::Result<Measured, DatasetError> {
    let started = Instant::now();
    let each: Vec<&Registration> = models.iter().collect();
    let computed = compute(&each, devices, &item).map_err(DatasetError::new)?;
    let Computed { terms, displacement, moved } = computed;
    let scores = Scores::of_terms(started, terms.read(), item.waited, &devices[0]);
    let gathered = |volume: Sharded| values(volume.gather(&Device::flex()));
    let moved = item.picture.is_some().then(|| gathered(moved));
    Ok(models[0].validated(item, scores, gathered(displacement), moved))
}

/// A pair in parts.
struct Computed {
    terms: Terms,
    displacement: Sharded,
    moved: Sharded,
}

/// A pair by the models of all devices, of which as many have a part as there are planes for.
fn compute(models: &[&Registration], devices: &[Device], item: &Item) -> Result<Computed> {
    let [d, h, w] = item.pair.fixed.image.geometry.dims();
    let mesh = Mesh::new(devices, devices.len())?;
    let layout = mesh.layout([d, h, w], across([d, h, w]))?;
    let mesh = mesh.first(layout.count());
    // They lie on the first device already.
    let images = [&item.moving.image, &item.fixed.image]
        .map(|image| Sharded::from_tensor(image.clone(), &layout, &mesh));
    let networks: Vec<&Network> =
        models[..layout.count()].iter().map(|model| &model.network).collect();
    let [moving, fixed] = &images;
    let [displacement, deformation] = Network::forward_sharded(&networks, moving, fixed)?;
    let parts = Parts { images, displacement, deformation };
    let (terms, moved) = models[0].objective().terms_of_parts(item, &parts)?;
    Ok(Computed { terms, displacement: parts.displacement, moved })
}

/// The axis to cut: planes of z lie in one piece in memory, rows of x in pieces of a few values. Another axis has
/// to have more than twice the planes, which makes the cuts half as large.
fn across([d, h, w]: [usize; 3]) -> Axis {
    let longest = d.max(h).max(w);
    let axes = [(d, Axis::Z), (h, Axis::Y), (w, Axis::X)];
    let first = axes.into_iter().find(|(planes, _)| 2 * planes >= longest);
    first.expect("the longest is one of them").1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_of_z_are_shared_unless_they_are_few() {
        for (size, axis) in [
            ([320, 384, 448], Axis::Z),
            ([100, 160, 200], Axis::Z),
            ([99, 160, 200], Axis::Y),
            ([20, 30, 61], Axis::X),
        ] {
            assert_eq!(across(size), axis, "{size:?}");
        }
    }
}
