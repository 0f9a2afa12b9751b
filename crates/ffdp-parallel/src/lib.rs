//! Problems larger than one device: images and fields cut into shards, with the same results as the
//! serial operations (FFDP paper, sections 4, D and I).
//!
//! One thread drives the devices of a mesh: operations on a GPU are enqueued, and `Tensor::to_device` moves
//! what one shard needs of another. Devices with work of their own have a thread each (`on_each_device`). There is no
//! second set of classes for a "distributed" run: the functions in [`ops`] have the names of the serial ones, call those on
//! every shard and add what crosses the seams. A mesh of one *is* the serial program, to the bit; shards of one device
//! are virtual.
//!
//! # Map of the crate
//! ```text
//! layout    where a volume is cut            device_mesh which device holds which shard
//! sharded   a tensor for every shard         window      planes, wherever they lie, and back
//! halo      shards with their surroundings   overlap     sums that count no voxel twice
//! ring/     sampling of a sharded image      collective  small tensors over all shards
//! transfer  tensors between devices          travel      the same on the tape
//! exchange  the same without a wait          joined      devices that can do that
//! rest      to host memory and back          ahead       what goes back before it is its turn
//! driver    CUDA's memory, past CubeCL      host        what tensors hold in host memory
//! watch     what ends a wait without end
//! on_each_device  a thread for each          lending     of parts, planes to others and back
//! cuts      planes of every place            replicas    weights on every device
//! lines     all parameters in one piece      numbers     values that the host waits for
//!
//! smoothing, loss, label_dice, reductions, adam, resample    sharded operations made of these
//! periodic/  operators of periodic volumes: differences, Fourier transforms, cubic splines
//! deform/   iterations of deformable methods: greedy, SyN, velocities
//! alignment  an affine map's loss and gradient         chain  images of any size through transforms
//! planner   how many shards a run needs       hosts/     several processes
//! ```
//! Read `sharded.rs` and `halo.rs`, then `ring/mod.rs`. `docs/how-it-works.md` counts what travels.

mod adam;
mod ahead;
pub mod alignment;
pub mod chain;
pub mod collective;
mod cuts;
pub mod deform;
mod device_mesh;
mod driver;
mod exchange;
pub mod halo;
#[cfg(feature = "cube")]
mod host;
pub mod hosts;
mod joined;
mod label_dice;
mod layout;
mod lending;
mod lines;
mod loss;
mod numbers;
mod on_each_device;
mod overlap;
pub mod periodic;
pub mod planner;
mod reductions;
pub mod replicas;
mod resample;
mod rest;
pub mod ring;
mod sharded;
mod smoothing;
#[cfg(test)]
mod tests;
mod transfer;
mod travel;
mod watch;
mod window;

pub use cuts::Cuts;
pub use device_mesh::{DeviceMesh, ShardPlaces};
pub use layout::{Axis, Layout};
pub use on_each_device::on_each_device;
pub use ring::DisplacementBounds;
pub use sharded::Sharded;

/// Sharded operations, with the names of the serial ones: sampling, losses, smoothing, sums, steps of Adam.
pub mod ops {
    pub use super::adam::{ShardedMoments, ShardedStep, adam};
    pub use super::label_dice::label_dice_loss;
    pub use super::loss::loss;
    pub use super::reductions::{joint_histogram_votes, max_norm, min_max};
    pub use super::resample::{level, resample, resample_displacement};
    pub use super::ring::{compose, exp, warp};
    pub use super::smoothing::{
        bending_energy, diffusion, gaussian, jacobian, jacobian_penalty, total_variation,
    };
}

/// Tensors that rest in host memory, and the memory of devices.
pub mod memory {
    pub use super::driver::order_allocations;
    pub use super::rest::{ExactMemory, park, put_away};
}

/// Parts of shards, as the layers of networks take and join them: `activations` of `ffdp-nets`.
#[doc(hidden)]
pub mod parts {
    pub use super::lending::{Loan, lent};
    pub use super::sharded::{JOIN_STEPS, join, narrow};
    pub use super::travel::deepened;
}
