//! Volumes that are not periodic, in a box that is.
//!
//! ```text
//! box(p) = volume(p - first) inside         (1 - s) volume(last voxel) + s volume(first voxel) in the gap between its end
//!                                           and its next beginning, s = 3 t^2 - 2 t^3, t from 0 to 1 across the gap
//! ```
//! along each axis: the values at the borders blend into each other. A shard keeps its planes, and the first and the
//! last have those of the gap as well.

use burn::Tensor;
use burn::tensor::{DType, TensorData};

use super::PeriodicGrid;
use crate::cuts::Cuts;
use crate::device_mesh::DeviceMesh;
use crate::hosts::Holders;
use crate::layout::Layout;
use crate::sharded::{Sharded, join, narrow};
use ffdp_burn::ops::{PeriodicInterpolation, smooth_size};
use ffdp_image::error::Result;

/// A volume's place in a periodic box.
#[derive(Clone, Debug)]
pub struct PaddedGrid {
    /// Where the volumes are cut.
    layout: Layout,
    /// Who else has a part of them.
    holders: Holders,
    grid: PeriodicGrid,
    /// Voxels of the box before the volume's first, along (z, y, x).
    first: [usize; 3],
}

/// What is in the gap between a volume and its next period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// The borders blend into each other, see the head of this file.
    Blended,
    /// Zeros.
    Empty,
}

/// Lengths of boxes with a gap are multiples of this many voxels: volumes of many sizes then share few lengths, of each of
/// which the transforms on a GPU have kernels of their own, and their rows are aligned. A box has 5 % more voxels for it.
const FEW_LENGTHS: usize = 8;

/// The length of a periodic axis with room for `voxels` and a gap of at least `gap`: it, and half of it rounded up,
/// are products of 2, 3, 5 and 7; with a gap it is a multiple of 8 as well. An axis of one voxel stays as it is.
pub fn periodic_size(voxels: usize, gap: usize) -> usize {
    if voxels == 1 {
        return 1;
    }
    let step = if gap == 0 { 1 } else { FEW_LENGTHS };
    let is_smooth = |n: &usize| {
        n.is_multiple_of(step)
            && smooth_size(*n) == *n
            && smooth_size(n.div_ceil(2)) == n.div_ceil(2)
    };
    (voxels + gap..).find(is_smooth).expect("a power of two is not far")
}

impl PaddedGrid {
    /// Of volumes cut by `layout`, of which each of `holders` has its planes, with shards on `mesh`. `voxel` is the size
    /// of a voxel (x, y, z), `gap` the voxels between a volume and its next period at least.
    ///
    /// # Errors
    /// As [`PeriodicGrid::new`].
    pub fn new(
        layout: &Layout,
        mesh: &DeviceMesh,
        holders: &Holders,
        voxel: [f64; 3],
        gap: usize,
    ) -> Result<Self> {
        let size = layout.size();
        let whole = size.map(|n| periodic_size(n, gap));
        let first = [0, 1, 2].map(|a| (whole[a] - size[a]) / 2);
        let along = layout.axis().dim() - 2;
        let (extent, before) = (size[along], first[along]);
        // Where a cut of the volume lies in the box.
        let moved = |cut: usize| match cut {
            0 => 0,
            cut if cut == extent => whole[along],
            cut => cut + before,
        };
        let cuts = std::iter::once(layout.held().start).chain(layout.all_planes().map(|p| p.end));
        let cuts = cuts.map(moved).collect();
        let periodic = Layout::balanced(whole, layout.axis(), 1)?.with_cuts(cuts);
        let of_box = match holders.team() {
            None => Holders::ALONE,
            Some((ranks, cuts)) => {
                let ends = (0..cuts.places()).map(|rank| moved(cuts.planes(rank).end));
                let ends = std::iter::once(0).chain(ends).collect();
                Holders::new(ranks.clone(), Cuts::from_ends(ends))
            }
        };
        let grid = PeriodicGrid::new(periodic, mesh.clone(), voxel, of_box)?;
        Ok(Self { layout: layout.clone(), holders: holders.clone(), grid, first })
    }

    /// The same, with [`PeriodicGrid::with_interpolation`].
    pub fn with_interpolation(self, between: PeriodicInterpolation) -> Self {
        Self { grid: self.grid.with_interpolation(between), ..self }
    }

    /// The box.
    pub fn grid(&self) -> &PeriodicGrid {
        &self.grid
    }

    /// The voxel (x, y, z) of the box that is the volume's first.
    pub fn first(&self) -> [usize; 3] {
        let [z, y, x] = self.first;
        [x, y, z]
    }

    /// Whether the box is the volume.
    pub fn is_bare(&self) -> bool {
        self.grid.size() == self.layout.size()
    }

    /// A volume in the box, with this in the gap.
    ///
    /// # Errors
    /// Those of [`Holders::fetch`].
    ///
    /// # Panics
    /// If it is cut differently.
    pub fn padded(&self, volume: &Sharded, what: Gap) -> Result<Sharded> {
        assert!(*volume.layout() == self.layout, "padded: a volume with other cuts");
        if self.is_bare() {
            return Ok(volume.clone());
        }
        let (axis, size) = (self.layout.axis().dim(), self.grid.size());
        let across = |x: Tensor<5>| {
            let uncut = [4, 3, 2].into_iter().filter(|&dim| dim != axis);
            uncut.fold(x, |x, dim| lengthened(x, dim, size[dim - 2], what))
        };
        let extent = self.layout.extent();
        let gap = size[axis - 2] - extent;
        let volume: Vec<Tensor<5>> = volume.shards().iter().cloned().map(across).collect();
        let ends = self.ends(&volume)?;
        let shard = |k: usize| {
            let planes = self.layout.planes(k);
            let (x, device) = (volume[k].clone(), self.grid.mesh().device(k));
            let here = [planes.start == 0, planes.end == extent];
            if gap == 0 || here == [false; 2] {
                return x;
            }
            let ends = ends.each_ref().map(|end| end.clone().to_device(device));
            extended(x, axis, gap, what, ends, here)
        };
        let shards = (0..self.layout.count()).map(shard).collect();
        Ok(Sharded::new(shards, self.grid.layout().clone()))
    }

    /// The part of a volume of the box that lies within.
    ///
    /// # Panics
    /// If it is not cut as the box is.
    pub fn cropped(&self, volume: &Sharded) -> Sharded {
        assert!(volume.layout() == self.grid.layout(), "cropped: a volume with other cuts");
        if self.is_bare() {
            return volume.clone();
        }
        let (axis, size) = (self.layout.axis().dim(), self.layout.size());
        let shard = |k: usize| {
            let mut x = volume.shards()[k].clone();
            for dim in [2, 3, 4] {
                let (first, count) = match dim == axis {
                    true => {
                        let own = self.layout.planes(k);
                        let first = if own.start == 0 { self.first[dim - 2] } else { 0 };
                        (first, own.len())
                    }
                    false => (self.first[dim - 2], size[dim - 2]),
                };
                x = narrow(x, dim, first..first + count);
            }
            x
        };
        Sharded::new((0..self.layout.count()).map(shard).collect(), self.layout.clone())
    }

    /// The first and the last plane of a volume whose other axes are padded, where this process has its first or last
    /// shard.
    fn ends(&self, shards: &[Tensor<5>]) -> Result<[Tensor<5>; 2]> {
        let (axis, extent) = (self.layout.axis(), self.layout.extent());
        let mut size = self.grid.size();
        size[axis.dim() - 2] = extent;
        let cuts = std::iter::once(self.layout.held().start);
        let cuts = cuts.chain(self.layout.all_planes().map(|planes| planes.end)).collect();
        let layout = Layout::balanced(size, axis, 1)?.with_cuts(cuts);
        let volume = Sharded::new(shards.to_vec(), layout);
        let end = |plane: usize| {
            // All ranks, for the sake of the two that need it.
            let wanted = vec![plane..plane + 1; self.holders.count()];
            let found = self.holders.fetch(&volume, &wanted)?.expect("it is wanted");
            Ok(found.window(plane..plane + 1, self.grid.mesh().device(0)))
        };
        Ok([end(0)?, end(extent - 1)?])
    }
}

/// How far plane `t` of a gap, counted from the last plane of the volume, has gone over to the first plane.
fn blend(t: usize, gap: usize) -> f64 {
    let t = (t + 1) as f64 / (gap + 1) as f64;
    t * t * (3.0 - 2.0 * t)
}

/// A tensor with its whole gap along `dim`, `size` planes in all. Planes are read by their numbers: of pieces that are
/// joined a GPU would compile kernels for the lengths of each, which depend on the volume. Values are finite: those of
/// an empty gap are a border's times zero.
fn lengthened(x: Tensor<5>, dim: usize, size: usize, what: Gap) -> Tensor<5> {
    let n = x.dims()[dim];
    let gap = size - n;
    if gap == 0 {
        return x;
    }
    let (low, device) = (gap / 2, x.device());
    // Of the volume, or of its gap, as many planes after the last one of the volume.
    let place = |k: usize| match (k + size - low) % size {
        k if k < n => (k, None),
        k => (k, Some(k - n)),
    };
    let planes = |of_gap: usize| {
        let number = |k| match place(k) {
            (plane, None) => plane as i32,
            (_, Some(_)) => of_gap as i32,
        };
        let numbers = TensorData::new((0..size).map(number).collect::<Vec<_>>(), [size]);
        x.clone().select(dim, Tensor::from_data(numbers, (&device, DType::I32)))
    };
    let along = |value: &dyn Fn(Option<usize>) -> f64| {
        let mut shape = [1; 5];
        shape[dim] = size;
        let values: Vec<f64> = (0..size).map(|k| value(place(k).1)).collect();
        let data = TensorData::new(values, shape).convert_dtype(x.dtype());
        Tensor::<5>::from_data(data, (&device, x.dtype()))
    };
    let last = planes(n - 1);
    match what {
        Gap::Empty => last * along(&|t| if t.is_some() { 0.0 } else { 1.0 }),
        Gap::Blended => {
            let part = along(&|t| t.map_or(0.0, |t| blend(t, gap)));
            last.clone() + (planes(0) - last) * part
        }
    }
}

/// A tensor with the part of the gap that belongs before its first plane along `dim`, and that after its last, where
/// they are wanted; `ends` are the first and the last plane of the volume.
fn extended(
    x: Tensor<5>,
    dim: usize,
    gap: usize,
    what: Gap,
    [first, last]: [Tensor<5>; 2],
    [before, after]: [bool; 2],
) -> Tensor<5> {
    if gap == 0 {
        return x;
    }
    let low = gap / 2;
    // Plane `t` of the gap, counted from the last plane of the volume.
    let planes = |range: std::ops::Range<usize>| {
        if range.is_empty() {
            return None;
        }
        if what == Gap::Empty {
            let mut dims = x.dims();
            dims[dim] = range.len();
            return Some(Tensor::zeros(dims, (&x.device(), x.dtype())));
        }
        let mut shape = [1; 5];
        shape[dim] = range.len();
        let like = (x.device(), x.dtype());
        let data = TensorData::new(range.map(|t| blend(t, gap)).collect::<Vec<_>>(), shape);
        let part = Tensor::<5>::from_data(data.convert_dtype(like.1), (&like.0, like.1));
        Some(last.clone() + (first.clone() - last.clone()) * part)
    };
    let pieces = [
        if before { planes(gap - low..gap) } else { None },
        Some(x.clone()),
        if after { planes(0..gap - low) } else { None },
    ];
    join(pieces.into_iter().flatten().collect(), dim)
}
