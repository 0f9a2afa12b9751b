//! A volume in parts: one tensor for every shard, and the layout that says which planes it holds.

use std::ops::Range;

use burn::Tensor;
use burn::tensor::{Device, Gradients};

use super::device_mesh::DeviceMesh;
use super::layout::{Axis, Layout};
use super::rest::put_away;
use super::transfer::{in_line, to_device};
use ffdp_image::error::Result;

/// An image `[N, C, D, H, W]` or a field `[N, 3, D, H, W]`, cut along one axis.
///
/// Nothing of full size exists unless [`Sharded::gather`] is called. With one shard every operation
/// of this crate is the serial one on that tensor.
#[derive(Clone, Debug)]
pub struct Sharded {
    shards: Vec<Tensor<5>>,
    layout: Layout,
}

impl Sharded {
    /// Shards that lie where they are.
    ///
    /// # Panics
    /// If their number or a size is not the layout's, or batches or channels differ.
    pub fn new(shards: Vec<Tensor<5>>, layout: Layout) -> Self {
        let (got, expected) = (shards.len(), layout.count());
        assert!(got == expected, "sharded: {got} tensors for a layout of {expected} shards");
        let [batch, channels, ..] = shards[0].dims();
        for (k, shard) in shards.iter().enumerate() {
            let ([d, h, w], got) = (layout.shard_size(k), shard.dims());
            let expected = [batch, channels, d, h, w];
            assert!(got == expected, "sharded: shard {k} must be {expected:?}, got {got:?}");
        }
        Self { shards, layout }
    }

    /// A tensor `[N, C, D, H, W]` in one piece.
    pub fn whole(tensor: Tensor<5>) -> Self {
        let [_, _, d, h, w] = tensor.dims();
        let layout = Layout::balanced([d, h, w], Axis::Z, 1).expect("one shard is always possible");
        Self { shards: vec![tensor], layout }
    }

    /// The parts of a whole tensor `[N, C, D, H, W]`, each sent to its device. Differentiable.
    ///
    /// # Panics
    /// If the tensor is not of the layout's size, or the mesh has another number of shards.
    pub fn from_tensor(whole: Tensor<5>, layout: &Layout, mesh: &DeviceMesh) -> Self {
        check_mesh(layout, mesh);
        let dims = whole.dims();
        assert!(dims[2..] == layout.size(), "sharded: {dims:?} is not of {:?}", layout.size());
        let shards = layout.all_planes().zip(mesh.devices()).map(|(planes, device)| {
            to_device(narrow(whole.clone(), layout.axis().dim(), planes), device)
        });
        Self { shards: shards.collect(), layout: layout.clone() }
    }

    /// A volume made slab by slab: `slab(planes, device)` gives the tensor of the planes of one
    /// shard on its device, read from a file for example.
    ///
    /// # Errors
    /// Those of `slab`.
    ///
    /// # Panics
    /// As [`Sharded::new`], or if the mesh has another number of shards.
    pub fn build(
        layout: &Layout,
        mesh: &DeviceMesh,
        mut slab: impl FnMut(Range<usize>, &Device) -> Result<Tensor<5>>,
    ) -> Result<Self> {
        check_mesh(layout, mesh);
        let places = layout.all_planes().zip(mesh.devices());
        let shards = places.map(|(planes, device)| slab(planes, device));
        Ok(Self::new(shards.collect::<Result<_>>()?, layout.clone()))
    }

    /// The whole tensor on one device; of a part of a volume, that. Differentiable.
    pub fn gather(&self, device: &Device) -> Tensor<5> {
        self.window(self.layout.held(), device)
    }

    /// The same shards on other devices, or at rest in host memory (`Device::flex()`), from where they come
    /// back without a copy.
    ///
    /// # Panics
    /// If the mesh has another number of places.
    pub fn moved_to(self, mesh: &DeviceMesh) -> Self {
        check_mesh(&self.layout, mesh);
        let places = self.shards.into_iter().zip(mesh.devices());
        let shards = places.map(|(shard, device)| put_away(shard, device));
        Self { shards: shards.collect(), layout: self.layout }
    }

    /// The shards in order.
    pub fn shards(&self) -> &[Tensor<5>] {
        &self.shards
    }

    /// The shards, to keep.
    pub fn into_shards(self) -> Vec<Tensor<5>> {
        self.shards
    }

    /// Where the cuts are.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Shape of the whole, `[N, C, D, H, W]`.
    pub fn dims(&self) -> [usize; 5] {
        let [batch, channels, ..] = self.shards[0].dims();
        let [d, h, w] = self.layout.size();
        [batch, channels, d, h, w]
    }

    /// Every shard through a function that works voxel by voxel.
    ///
    /// # Panics
    /// If the function changes an extent.
    pub fn map(self, each: impl FnMut(Tensor<5>) -> Tensor<5>) -> Self {
        Self::new(self.shards.into_iter().map(each).collect(), self.layout)
    }

    /// Pairs of shards through a function that works voxel by voxel.
    ///
    /// # Panics
    /// If the layouts differ or the function changes an extent.
    pub fn zip_map(
        self,
        other: &Self,
        mut each: impl FnMut(Tensor<5>, Tensor<5>) -> Tensor<5>,
    ) -> Self {
        self.check_layout(other);
        let pairs = self.shards.into_iter().zip(other.shards.iter().cloned());
        Self::new(pairs.map(|(a, b)| each(a, b)).collect(), self.layout)
    }

    /// The gradients of shards that were tracked; `None` if one has none.
    pub fn gradients(&self, gradients: &Gradients) -> Option<Self> {
        let shards = self.shards.iter().map(|shard| shard.grad(gradients));
        Some(Self::new(shards.collect::<Option<_>>()?, self.layout.clone()))
    }

    /// The devices of the shards.
    pub fn mesh(&self) -> DeviceMesh {
        DeviceMesh::of(self.shards.iter().map(Tensor::device).collect())
    }

    pub(super) fn check_layout(&self, other: &Self) {
        let (a, b) = (&self.layout, &other.layout);
        assert!(a == b, "sharded: operands are cut differently, {a:?} and {b:?}");
    }
}

fn check_mesh(layout: &Layout, mesh: &DeviceMesh) {
    let (shards, places) = (layout.count(), mesh.count());
    assert!(shards == places, "sharded: {shards} shards for a mesh of {places}");
}

/// `planes` of a tensor along `dim`; the tensor itself where that is all of it.
pub fn narrow(tensor: Tensor<5>, dim: usize, planes: Range<usize>) -> Tensor<5> {
    let mut dims = tensor.dims();
    if planes.len() == dims[dim] {
        return tensor;
    }
    let Some(plane) = plane_in_line(&dims, dim) else {
        return tensor.narrow(dim, planes.start, planes.len());
    };
    dims[dim] = planes.len();
    in_line(tensor).narrow(0, planes.start * plane, planes.len() * plane).reshape(dims)
}

/// Steps of the tape that [`join`] takes for several tensors.
pub const JOIN_STEPS: usize = 3;

/// Tensors joined along `dim`; a single one is itself.
pub fn join(mut pieces: Vec<Tensor<5>>, dim: usize) -> Tensor<5> {
    if pieces.len() == 1 {
        return pieces.remove(0);
    }
    let mut dims = pieces[0].dims();
    dims[dim] = pieces.iter().map(|piece| piece.dims()[dim]).sum();
    if plane_in_line(&dims, dim).is_some() {
        return Tensor::cat(pieces.into_iter().map(in_line).collect(), 0).reshape(dims);
    }
    // Long rows, which need the least padding.
    let before: usize = dims[..dim].iter().product();
    let rows = |piece: Tensor<5>| {
        let values = piece.shape().num_elements();
        piece.reshape([before, values / before])
    };
    Tensor::cat(pieces.into_iter().map(rows).collect(), 1).reshape(dims)
}

/// Values of a plane where planes lie one after the other in memory.
///
/// Burn may pad the rows of a new tensor of several axes (CUDA), which our operations would have to copy;
/// one of one axis is dense.
fn plane_in_line(dims: &[usize; 5], dim: usize) -> Option<usize> {
    let before: usize = dims[..dim].iter().product();
    (before == 1).then(|| dims[dim + 1..].iter().product())
}
