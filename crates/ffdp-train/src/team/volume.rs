//! A pair in parts: its images cut for the devices, the terms of the objective of all parts.

use burn::data::dataset::DatasetError;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use ffdp_burn::Result;
use ffdp_burn::image::{Volume, upload};
use ffdp_burn::nets::Network;
use ffdp_burn::ops::GridSampleOptions;
use ffdp_burn::parallel::{Axis, Layout, Mesh, Replicas, RingInputs, Sharded, ring_sample};

use crate::data::Item;
use crate::model::Registration;
use crate::objective::Terms;

/// Gradients and terms of a pair whose loss counts `share`.
pub fn step(
    replicas: &Replicas<Registration>,
    devices: &[Device],
    item: &Item,
    share: f64,
) -> std::result::Result<(GradientsParams, Terms), DatasetError> {
    let [d, h, w] = item.pair.fixed.image.geometry.dims();
    let parts = || -> Result<Terms> {
        let mesh = Mesh::new(devices, devices.len())?;
        let layout = mesh.layout([d, h, w], longest([d, h, w]))?;
        let mesh = mesh.first(layout.count());
        let [moving, fixed] = [&item.pair.moving.image, &item.pair.fixed.image]
            .map(|image| cut(image, &layout, &mesh));
        let (moving, fixed) = (moving?, fixed?);
        let networks: Vec<&Network> =
            (0..layout.count()).map(|k| &replicas.at(k).network).collect();
        let u = Network::forward_sharded(&networks, &moving, &fixed)?;
        let inputs = RingInputs { moving: &moving, affine: None, displacement: Some(&u) };
        let moved = ring_sample(&inputs, (&layout, &mesh), &GridSampleOptions::default())?;
        Ok(replicas.at(0).objective().terms_of_parts(&moved, &fixed, &u))
    };
    let terms = parts().map_err(DatasetError::new)?;
    let gradients = terms.share(share).backward();
    Ok((replicas.gradients(gradients), terms))
}

/// The axis with the most planes: the cuts are smallest across it.
fn longest(size: [usize; 3]) -> Axis {
    let axes = [(size[0], Axis::Z), (size[1], Axis::Y), (size[2], Axis::X)];
    let (_, axis) = axes.into_iter().max_by_key(|(planes, _)| *planes).expect("three axes");
    axis
}

/// An image of the host in parts: no device holds more than its own.
fn cut(image: &Volume, layout: &Layout, mesh: &Mesh) -> Result<Sharded> {
    let whole: Tensor<5> = image.to_tensor(&Device::flex());
    Sharded::build(layout, mesh, |planes, device| {
        let part = whole.clone().narrow(layout.axis().dim(), planes.start, planes.len());
        let dims = part.dims();
        let values = part.into_data().try_to_vec::<f32>().expect("an image of the host is f32");
        Ok(upload(values, dims, device))
    })
}
