//! Beyond one process: a volume whose shards are with several processes, on one host or many.
//!
//! Every process (*rank*) runs the same program on its own consecutive shards: a [`Sharded`](super::Sharded)
//! whose layout is a [`part`](super::Layout::part) of the volume's. What it needs of others comes in two ways:
//! ```text
//! planes      Holders::fetch      each rank asks for one run of planes of a volume; who holds what is known to
//!                                 all, so that each also knows what the others ask of it
//! numbers     Holders::combine    sums, extremes and histograms, in the order of the ranks: the same bits on all
//! ```
//! Planes that were fetched are shards next to a rank's own, after which halos, seams and samplers are those of
//! one process. With one process nothing is fetched or combined.
//!
//! [`Ranks`] is the transport: [`Threads`] of one process, by which it is tested, or the processes of MPI
//! (the crate `ffdp-mpi`). Nothing is enqueued across hosts: a device is waited for where its planes leave it.

mod holders;
mod ranks;
mod threads;

pub use holders::Holders;
pub(crate) use holders::{from_bytes, to_bytes};
pub use ranks::{Ranks, agree};
pub use threads::Threads;

pub use super::watch::Silence;
