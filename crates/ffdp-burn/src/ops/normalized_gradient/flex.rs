//! The normalised gradient on the CPU, in f64.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::{Edges, NormalizedGradientOps};
use ffdp_kit::real::{Real, by_dtype, elements, readable, tensor};

/// One image, and where its neighbours are.
struct Volume<'a, T> {
    data: &'a [T],
    /// Extents along x, y, z, and elements from a voxel to the next.
    size: [usize; 3],
    stride: [usize; 3],
    edges: Edges,
}

impl<'a, T: Real> Volume<'a, T> {
    /// The images of a batch.
    fn batch(image: &'a FlexTensor, edges: Edges) -> Vec<Self> {
        let shape = image.layout().shape();
        let size = [shape[4], shape[3], shape[2]];
        let stride = [1, size[0], size[0] * size[1]];
        let images = elements::<T>(image).chunks(size.iter().product());
        images.map(|data| Self { data, size, stride, edges }).collect()
    }

    fn position(&self, voxel: usize) -> [usize; 3] {
        std::array::from_fn(|axis| voxel / self.stride[axis] % self.size[axis])
    }

    /// The voxels before and after along an axis, and one over their distance.
    fn ends(&self, voxel: usize, position: usize, axis: usize) -> (usize, usize, f64) {
        let (down, up) = ((position > 0) as usize, (position + 1 < self.size[axis]) as usize);
        let distance = (down + up).max(1) as f64 * self.edges.voxel[axis];
        let stride = self.stride[axis];
        (voxel - down * stride, voxel + up * stride, 1.0 / distance)
    }

    /// `G`, and one over `rho`.
    fn slope(&self, voxel: usize) -> ([f64; 3], f64) {
        let position = self.position(voxel);
        let slope: [f64; 3] = std::array::from_fn(|axis| {
            let (before, after, per) = self.ends(voxel, position[axis], axis);
            (self.data[after].wide() - self.data[before].wide()) * per
        });
        let squared = slope.iter().map(|s| s * s).sum::<f64>() + self.edges.eta.powi(2);
        (slope, 1.0 / squared.sqrt())
    }

    /// `dL/dG`.
    fn pull_back(&self, voxel: usize, grad: &[T]) -> [f64; 3] {
        let len = self.data.len();
        let g: [f64; 3] = std::array::from_fn(|axis| grad[axis * len + voxel].wide());
        let (slope, per) = self.slope(voxel);
        let along: f64 = slope.iter().zip(&g).map(|(s, g)| s * g).sum();
        std::array::from_fn(|axis| per * (g[axis] - slope[axis] * along * per * per))
    }

    /// `dL/dI`: what the voxels around pass on.
    fn to_image(&self, voxel: usize, pulled: &[[f64; 3]]) -> f64 {
        let position = self.position(voxel);
        let mut sum = 0.0;
        for axis in 0..3 {
            let (before, after, _) = self.ends(voxel, position[axis], axis);
            let mut sources = vec![before, voxel, after];
            sources.dedup();
            for source in sources {
                let (before, after, per) = self.ends(source, self.position(source)[axis], axis);
                let sign = (after == voxel) as i8 - (before == voxel) as i8;
                sum += f64::from(sign) * per * pulled[source][axis];
            }
        }
        sum
    }
}

fn forward<T: Real>(image: &FlexTensor, edges: Edges) -> FlexTensor {
    let mut shape = image.layout().shape().clone();
    shape[1] = 3;
    let mut data = Vec::with_capacity(shape.num_elements());
    for volume in Volume::<T>::batch(image, edges) {
        let voxels = (0..volume.data.len()).into_par_iter();
        let normal = voxels.map(|voxel| {
            let (slope, per) = volume.slope(voxel);
            slope.map(|slope| T::of(slope * per))
        });
        let normal: Vec<[T; 3]> = normal.collect();
        (0..3).for_each(|axis| data.extend(normal.iter().map(|n| n[axis])));
    }
    tensor(data, shape)
}

fn backward<T: Real>(image: &FlexTensor, grad: &FlexTensor, edges: Edges) -> FlexTensor {
    let volumes = Volume::<T>::batch(image, edges);
    let len = volumes[0].data.len();
    let mut data = Vec::with_capacity(volumes.len() * len);
    for (volume, grad) in volumes.iter().zip(elements::<T>(grad).chunks(3 * len)) {
        let pulled = (0..len).into_par_iter().map(|voxel| volume.pull_back(voxel, grad));
        let pulled: Vec<[f64; 3]> = pulled.collect();
        let of = |voxel| T::of(volume.to_image(voxel, &pulled));
        data.par_extend((0..len).into_par_iter().map(of));
    }
    tensor(data, image.layout().shape().clone())
}

impl NormalizedGradientOps for Flex {
    fn normalized_gradient_3d(image: FloatTensor<Self>, edges: Edges) -> FloatTensor<Self> {
        let image = readable(image);
        by_dtype!("normalized_gradient", image.dtype(), forward(&image, edges))
    }

    fn normalized_gradient_3d_backward(
        image: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        edges: Edges,
    ) -> FloatTensor<Self> {
        let (image, grad) = (readable(image), grad.to_contiguous());
        by_dtype!("normalized_gradient", image.dtype(), backward(&image, &grad, edges))
    }
}
