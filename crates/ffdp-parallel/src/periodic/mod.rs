//! Operators on periodic volumes that are cut over shards, devices and ranks, with the results of
//! [`ops`](ffdp_burn::ops)'s: what Gauss-Newton-Krylov registration is made of.
//!
//! ```text
//! mod          grid: size, voxels, cuts and ranks, on which the operators are methods
//! differences  gradient, divergence                   }  around    shards with planes from around the period
//! cubic        between voxels: coefficients, sampling }
//! spectral     symbols, other sizes                      turned    cut along another axis: all-to-all
//! inner        numbers
//! points       single voxels
//! ```
//! A grid of one shard calls the operation itself, on the same tensors. Otherwise operators with several shards are
//! not differentiable.
//! Source: Brunn et al., Multi-node multi-GPU diffeomorphic image registration, 2020.

use burn::Tensor;

use super::cuts::Cuts;
use super::device_mesh::DeviceMesh;
use super::hosts::Holders;
use super::layout::{Axis, Layout};
use super::sharded::Sharded;
use ffdp_burn::ops::PeriodicInterpolation;
use ffdp_image::error::{Error, Result};

mod around;
mod cubic;
mod differences;
mod inner;
mod padding;
mod points;
mod spectral;
mod turned;

pub use padding::{Gap, PaddedGrid, periodic_size};

/// A periodic box of voxels, and where its parts are.
///
/// All volumes that a method takes have the grid's cuts; all that it gives have them too. Ranks call the methods
/// together, in the same order.
#[derive(Clone, Debug)]
pub struct PeriodicGrid {
    layout: Layout,
    mesh: DeviceMesh,
    voxel: [f64; 3],
    holders: Holders,
    between: PeriodicInterpolation,
}

impl PeriodicGrid {
    /// The grid of volumes cut by `layout`, that of a rank's part where there are ranks, with shards on the places of
    /// `mesh`. `voxel` is the size of a voxel (x, y, z), in the unit of all derivatives.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a size is not positive, the mesh has another number of places, the layout is not what
    /// `holders` say that this rank has, or a rank has no plane.
    pub fn new(
        layout: Layout,
        mesh: DeviceMesh,
        voxel: [f64; 3],
        holders: Holders,
    ) -> Result<Self> {
        if !voxel.iter().all(|h| *h > 0.0 && h.is_finite()) || layout.voxels() == 0 {
            return Err(Error::invalid(
                "a periodic grid needs voxels of positive sizes (x, y, z)",
                (layout.size(), voxel),
                "check the spacing",
            ));
        }
        if mesh.count() != layout.count() {
            return Err(Error::invalid(
                format!("a periodic grid of {} shards needs as many places", layout.count()),
                mesh.count(),
                "make layout and mesh together",
            ));
        }
        let expected = holders.planes().unwrap_or(0..layout.extent());
        if layout.held() != expected || holders.has_idle_ranks() {
            return Err(Error::invalid(
                format!("this process holds the planes {expected:?}, and each rank some"),
                layout.held(),
                "use fewer ranks, and the part of the layout that is this rank's",
            ));
        }
        Ok(Self { layout, mesh, voxel, holders, between: PeriodicInterpolation::default() })
    }

    /// The same, with volumes that are this between their voxels; of a new grid the cubic B-spline.
    pub fn with_interpolation(self, between: PeriodicInterpolation) -> Self {
        Self { between, ..self }
    }

    /// A grid of `size` (D, H, W) on the device of `mesh`'s places, one shard for each, in one process.
    ///
    /// # Errors
    /// As [`PeriodicGrid::new`], and [`Error::Invalid`] for more places than planes.
    pub fn on(mesh: DeviceMesh, size: [usize; 3], voxel: [f64; 3]) -> Result<Self> {
        let layout = Layout::balanced(size, Axis::Z, mesh.count())?;
        Self::new(layout, mesh, voxel, Holders::ALONE)
    }

    /// The same box in `size` (D, H, W) other voxels, cut at nearly the same places: a shard that has no plane of
    /// these is left out.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a rank has no plane.
    pub fn resized(&self, size: [usize; 3]) -> Result<Self> {
        let [old, new] = [self.layout.size(), size].map(|[d, h, w]| [w, h, d]);
        let voxel = [0, 1, 2].map(|a| self.voxel[a] * old[a] as f64 / new[a] as f64);
        let axis = self.layout.axis();
        let extents = [old, new].map(|size| size[axis.component()]);
        let to = |end: usize| (2 * end * extents[1] + extents[0]) / (2 * extents[0]);
        let held = to(self.layout.held().start);
        let mut devices = Vec::new();
        let mut cuts = vec![held];
        for (k, planes) in self.layout.all_planes().enumerate() {
            if to(planes.end) > to(planes.start) {
                cuts.push(to(planes.end));
                devices.push(self.mesh.device(k).clone());
            }
        }
        if devices.is_empty() {
            return Err(Error::invalid(
                format!("each rank needs a plane of the {} of a coarser grid", extents[1]),
                self.layout.held(),
                "use fewer ranks",
            ));
        }
        let layout = Layout::balanced(size, axis, 1)?.with_cuts(cuts);
        let grid = Self::new(layout, DeviceMesh::of(devices), voxel, self.holders.moved(to))?;
        Ok(grid.with_interpolation(self.between))
    }

    /// Where this process's part is cut.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The devices of its shards.
    pub fn mesh(&self) -> &DeviceMesh {
        &self.mesh
    }

    /// The size of a voxel (x, y, z).
    pub fn voxel(&self) -> [f64; 3] {
        self.voxel
    }

    /// Voxels (D, H, W) of the whole box.
    pub fn size(&self) -> [usize; 3] {
        self.layout.size()
    }

    /// The processes that share it.
    pub fn holders(&self) -> &Holders {
        &self.holders
    }

    /// Whether all of it is one tensor.
    pub fn is_whole(&self) -> bool {
        self.layout.count() == 1 && !self.holders.are_several()
    }

    /// The number of channels, where the volume is cut as the grid is.
    fn check(&self, op: &str, volume: &Sharded, channels: Option<usize>) -> Result<()> {
        let (cuts, got) = (volume.layout(), volume.dims());
        if *cuts != self.layout || channels.is_some_and(|channels| channels != got[1]) {
            let channels = channels.map_or("C".to_string(), |channels| channels.to_string());
            return Err(Error::invalid(
                format!("{op}: a volume [N, {channels}, D, H, W] cut as {:?}", self.layout),
                (got, cuts),
                "make volumes and grid of the same layout",
            ));
        }
        Ok(())
    }

    /// A volume that is one tensor, through an operation on the whole.
    fn by_whole(volume: &Sharded, operation: impl FnOnce(Tensor<5>) -> Tensor<5>) -> Sharded {
        let whole = operation(volume.shards()[0].clone());
        let [_, _, d, h, w] = whole.dims();
        let layout = Layout::balanced([d, h, w], volume.layout().axis(), 1);
        Sharded::new(vec![whole], layout.expect("one shard is always possible"))
    }
}

impl Holders {
    /// The planes of this rank; none where there is one process.
    fn planes(&self) -> Option<std::ops::Range<usize>> {
        self.team().map(|(ranks, cuts)| cuts.planes(ranks.rank()))
    }

    fn has_idle_ranks(&self) -> bool {
        let idle = |cuts: &Cuts| (0..cuts.places()).any(|rank| cuts.planes(rank).is_empty());
        self.team().is_some_and(|(_, cuts)| idle(cuts))
    }

    /// The same ranks, with other ends of their planes.
    fn moved(&self, to: impl Fn(usize) -> usize) -> Self {
        let Some((ranks, cuts)) = self.team() else { return Self::ALONE };
        let ends = (0..cuts.places()).map(|rank| to(cuts.planes(rank).end));
        Self::new(ranks.clone(), Cuts::from_ends(std::iter::once(0).chain(ends).collect()))
    }
}
