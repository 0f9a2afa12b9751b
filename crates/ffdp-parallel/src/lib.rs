//! Problems larger than one device: images and fields cut into shards, with the same results as the
//! serial operations (FFDP paper, sections 4, D and I).
//!
//! One thread drives the devices of a mesh: operations on a GPU are enqueued, and `Tensor::to_device` moves
//! what one shard needs of another. Devices with work of their own have a thread each (`on_each_device`). There is no
//! second set of classes for a "distributed" run: the functions here have the names of the serial ones, call those on
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
//! lines     all parameters in one piece
//!
//! smoothing, loss, label_dice, reductions, adam, resample    sharded operations made of these
//! periodic/ operators of periodic volumes: differences, Fourier transforms, cubic splines
//! deform/   iterations of deformable methods: greedy, SyN, velocities
//! alignment an affine map's loss and gradient          chain  images of any size through transforms
//! planner   how many shards a run needs       hosts/     several processes
//! ```
//! Read `sharded.rs` and `halo.rs`, then `ring/mod.rs`. `docs/how-it-works.md` counts what travels.

mod adam;
mod ahead;
mod alignment;
mod chain;
mod collective;
mod cuts;
mod deform;
mod device_mesh;
mod driver;
mod exchange;
mod halo;
#[cfg(feature = "cube")]
mod host;
mod hosts;
mod joined;
mod label_dice;
mod layout;
mod lending;
mod lines;
mod loss;
mod numbers;
mod on_each_device;
mod overlap;
mod periodic;
mod planner;
mod reductions;
mod replicas;
mod resample;
mod rest;
mod ring;
mod sharded;
mod smoothing;
#[cfg(test)]
mod tests;
mod transfer;
mod travel;
mod watch;
mod window;

pub use adam::{ShardedMoments, ShardedStep, adam};
pub use alignment::{Aligned, Outside, ShardedAlignment};
pub use chain::{PlaneChain, SeenImage};
pub use collective::{all_reduce, broadcast, reduce};
pub use cuts::Cuts;
pub use deform::{
    BOUNDS_INTERVAL, Coefficients, Compared, Cost, DifferentiatedModel, DirectPair, FieldModel,
    FieldPlaces, FieldVector, KEPT_BOUNDS_INTERVAL, Landmarks, ShardedComparison, ShardedDeform,
    ShardedImages, ShardedObjective, ShardedState, SmoothSteps, SplineModel, SplinePenalties,
    deform,
};
pub use deform::{Team, flow_of_velocity, map_of_halves, velocity, without_mask};
pub use driver::order_allocations;
pub use exchange::Reduction;
pub use halo::{Beyond, Haloed};
pub use hosts::Holders;
pub use hosts::{Ranks, Threads, agree};
pub use label_dice::label_dice_loss;
pub use layout::{Axis, Layout};
pub use on_each_device::on_each_device;
// Activations of networks travel as fields do: `activations` of `ffdp-nets`.
pub use device_mesh::DeviceMesh;
#[doc(hidden)]
pub use lending::{Loan, lent};
pub use lines::{gradients_of_line, line_of_gradients};
pub use loss::loss;
pub use periodic::{Gap, PaddedGrid, PeriodicGrid, periodic_size};
pub use planner::{
    DeformProblem, DeviceMemory, OffloadPlan, Plan, page_bytes, plan, plan_offloaded,
};
pub use reductions::{joint_histogram_votes, max_norm, min_max};
pub use replicas::Replicas;
pub use resample::{level, resample, resample_displacement};
pub use rest::park;
pub use rest::{ExactMemory, put_away};
pub use ring::{
    DisplacementBounds, IndexMap, RingGradients, RingInputs, RingSampler, Wanted, compose, exp,
    ring_sample, warp,
};
pub use ring::{HeldPlanes, ReadSampler, reachable};
pub use sharded::Sharded;
#[doc(hidden)]
pub use sharded::{JOIN_STEPS, join, narrow};
pub use smoothing::{
    bending_energy, diffusion, gaussian, jacobian, jacobian_penalty, total_variation,
};
#[doc(hidden)]
pub use travel::deepened;
pub use watch::Silence;
