//! Images that lie on the device already.
//!
//! Copies of 7 million voxels take a GPU's host as long as a small network's step; an image that the
//! host keeps between epochs need not be copied again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use burn::tensor::{Device, Int, Tensor};

use super::prepare::changed;
use super::{Change, Prepared, Sample};

/// A sample on a device, `[1, 1, D, H, W]`.
#[derive(Clone, Debug)]
pub struct Tensors {
    /// Intensities.
    pub image: Tensor<5>,
    /// Labels.
    pub labels: Option<Tensor<5, Int>>,
}

/// Samples on one device; those that the host has dropped are dropped here.
#[derive(Debug)]
pub struct OnDevice {
    device: Device,
    labels: bool,
    room_bytes: usize,
    kept: Mutex<HashMap<usize, Kept>>,
}

#[derive(Debug)]
struct Kept {
    sample: Weak<Sample>,
    tensors: Tensors,
    bytes: usize,
}

impl OnDevice {
    /// Copies to `device`, with labels if they are asked for, and keeps up to so many bytes there.
    pub fn new(device: &Device, labels: bool, room_bytes: usize) -> Self {
        Self { device: device.clone(), labels, room_bytes, kept: Mutex::default() }
    }

    /// Where they are.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The same for another device.
    pub fn on(&self, device: &Device) -> Self {
        Self::new(device, self.labels, self.room_bytes)
    }

    /// The tensors of the moving and of the fixed image, on one grid.
    pub fn pair(&self, pair: &Prepared) -> [Tensors; 2] {
        let Some(changes) = &pair.changes else {
            return [&pair.moving, &pair.fixed].map(|sample| self.tensors(sample));
        };
        let change = |sample: &Arc<Sample>, change: &Change| {
            changed(self.tensors(sample), &sample.image.geometry, change, &changes.grid)
        };
        [change(&pair.moving, &changes.moving), change(&pair.fixed, &changes.fixed)]
    }

    /// The tensors of a sample.
    pub fn tensors(&self, sample: &Arc<Sample>) -> Tensors {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let address = Arc::as_ptr(sample) as usize;
        // While the weak reference lives, nothing else can have its address.
        kept.retain(|_, kept| kept.sample.strong_count() > 0);
        if let Some(kept) = kept.get(&address) {
            return kept.tensors.clone();
        }
        let labels = sample.labels.as_ref().filter(|_| self.labels);
        let tensors = Tensors {
            image: sample.image.to_tensor(&self.device),
            labels: labels.map(|labels| labels.to_tensor(&self.device)),
        };
        let voxel_bytes = if tensors.labels.is_some() { 8 } else { 4 };
        let bytes = voxel_bytes * sample.image.data.len();
        let used: usize = kept.values().map(|kept| kept.bytes).sum();
        if used + bytes <= self.room_bytes {
            let sample = Arc::downgrade(sample);
            kept.insert(address, Kept { sample, tensors: tensors.clone(), bytes });
        }
        tensors
    }
}

#[cfg(test)]
mod tests {
    use ffdp_image::image::{Geometry, LabelMap, Volume};

    use super::*;

    fn sample(value: f32) -> Arc<Sample> {
        let geometry = Geometry::new([4, 3, 2], [1.0; 3]).expect("a grid");
        let image = Volume::new(vec![value; 24], geometry.clone()).expect("as many values");
        let labels = LabelMap::new(vec![7; 24], geometry).expect("as many labels");
        Arc::new(Sample::new("sample".into(), image, Some(labels)))
    }

    fn first(tensors: &Tensors) -> f32 {
        tensors.image.clone().try_into_vec_as::<f32>().expect("on the host")[0]
    }

    #[test]
    fn samples_are_kept_while_the_host_has_them_and_there_is_room() {
        // Two samples of 24 voxels, 8 bytes each.
        let store = OnDevice::new(&Device::flex(), true, 400);
        let held = || store.kept.lock().expect("no panic").len();
        let (a, b, c) = (sample(1.0), sample(2.0), sample(3.0));
        for (sample, value) in [(&a, 1.0), (&b, 2.0), (&c, 3.0), (&a, 1.0)] {
            assert_eq!(first(&store.tensors(sample)), value);
        }
        assert_eq!(held(), 2, "the third found no room");
        drop(a);
        assert_eq!(first(&store.tensors(&c)), 3.0);
        assert_eq!(held(), 2, "the first made room");
        assert_eq!(c.ids, [7]);
        assert!(store.tensors(&b).labels.is_some());
        let images = OnDevice::new(&Device::flex(), false, 0);
        assert!(images.tensors(&b).labels.is_none(), "nobody asked for labels");
    }
}
