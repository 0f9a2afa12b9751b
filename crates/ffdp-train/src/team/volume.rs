//! A pair in parts: its images cut for the devices, the terms of the objective of all parts.

use std::time::Instant;

use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use ffdp_image::{Error, Result};
use ffdp_nets::Network;
use ffdp_parallel::{Axis, DeviceMesh, DisplacementBounds, Sharded, ops::warp, replicas::Replicas};

use crate::data::Item;
use crate::metrics::{Measured, Scores};
use crate::model::{Prediction, Registration};
use crate::objective::{Parts, Terms};

/// Gradients and terms of a pair whose loss counts `share`.
pub fn step(
    replicas: &Replicas<Registration>,
    devices: &[Device],
    item: &Item,
    share: f64,
) -> Result<(GradientsParams, Terms)> {
    let models: Vec<&Registration> = (0..devices.len()).map(|k| replicas.at(k)).collect();
    let parts = predicted(&models, devices, images(item))?;
    let (terms, _) = replicas.at(0).objective().terms_of_parts(item, &parts)?;
    let gradients = terms.share(share).backward();
    Ok((replicas.gradients(gradients), terms))
}

/// What a validation finds of a pair; models and devices do not track gradients.
pub fn validate(models: &[Registration], devices: &[Device], item: Item) -> Result<Measured> {
    let started = Instant::now();
    let parts = predicted(&models.iter().collect::<Vec<_>>(), devices, images(&item))?;
    let (terms, moved) = models[0].objective().terms_of_parts(&item, &parts)?;
    let scores = Scores::of_terms(started, terms.read(), item.waited, &devices[0]);
    let moved = item.picture.is_some().then(|| gathered(&moved)).transpose()?;
    Ok(models[0].validated(item, scores, gathered(&parts.displacement)?, moved))
}

/// [`crate::model::predict`] in parts, likewise.
pub fn predict(
    models: &[Registration],
    devices: &[Device],
    images: [Tensor<5>; 2],
) -> Result<Prediction> {
    let started = Instant::now();
    let parts = predicted(&models.iter().collect::<Vec<_>>(), devices, images)?;
    let bounds = DisplacementBounds::read(&parts.displacement)?;
    let moved = gathered(&warp(&parts.images[0], &parts.displacement, &bounds))?;
    let displacement = gathered(&parts.displacement)?;
    Ok(Prediction { displacement, moved, seconds: started.elapsed().as_secs_f64() })
}

/// Moving and fixed.
fn images(item: &Item) -> [Tensor<5>; 2] {
    [&item.moving, &item.fixed].map(|sample| sample.image.clone())
}

/// What the models of all devices predict, of which as many have a part as there are planes for; moving and fixed
/// lie on the first.
fn predicted(
    models: &[&Registration],
    devices: &[Device],
    images: [Tensor<5>; 2],
) -> Result<Parts> {
    let [_, _, d, h, w] = images[0].dims();
    let mesh = DeviceMesh::new(devices, devices.len())?;
    let layout = mesh.layout([d, h, w], across([d, h, w]))?;
    let mesh = mesh.first(layout.count());
    let images = images.map(|image| Sharded::from_tensor(image, &layout, &mesh));
    let networks: Vec<&Network> =
        models[..layout.count()].iter().map(|model| &model.network).collect();
    let [moving, fixed] = &images;
    let [displacement, deformation] = Network::forward_sharded(&networks, moving, fixed)?;
    Ok(Parts { images, displacement, deformation })
}

/// All values of f32, on the host.
fn gathered(volume: &Sharded) -> Result<Vec<f32>> {
    let values = volume.gather(&Device::flex()).try_into_vec_as::<f32>();
    values.map_err(|reason| Error::device("reading back a volume in parts", reason))
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
