//! The networks on a mesh; read `sharded.rs` of the crate first.

use ffdp_image::Result;
use ffdp_parallel::{
    DisplacementBounds, Sharded,
    ops::{compose, warp},
};

use super::{Deformation, Network};
use crate::sharded::each;
use crate::transmorph::TransMorph;
use crate::voxelmorph::VoxelMorph;

impl Network {
    /// [`Network::forward`] of images in parts: the displacement, cut like them, and of it the deformation, which
    /// is all of it where nothing aligns first. `networks` are the copies of every shard, on its device
    /// ([`Replicas`](ffdp_parallel::replicas::Replicas)). Differentiable.
    ///
    /// # Errors
    /// [`Error::Device`](ffdp_image::Error::Device) when bounds of a displacement or of a velocity cannot be read.
    ///
    /// # Panics
    /// If the images are cut differently, have more than one channel, or have other shards than `networks`.
    pub fn forward_sharded(
        networks: &[&Self],
        moving: &Sharded,
        fixed: &Sharded,
    ) -> Result<[Sharded; 2]> {
        let deformations = each(networks, |network| &network.deformation);
        let Some(alignment) = &networks[0].alignment else {
            let u = Deformation::forward_sharded(&deformations, moving, fixed)?;
            return Ok([u.clone(), u]);
        };
        let affine = alignment.forward_sharded(moving, fixed);
        let moved = warp(moving, &affine, &DisplacementBounds::read(&affine)?);
        let u = Deformation::forward_sharded(&deformations, &moved, fixed)?;
        let bounds = DisplacementBounds::read(&u)?;
        Ok([compose(&affine, &u, &bounds), u])
    }
}

impl Deformation {
    /// [`Deformation::forward`] of images in parts.
    fn forward_sharded(networks: &[&Self], moving: &Sharded, fixed: &Sharded) -> Result<Sharded> {
        let (got, expected) = (networks.len(), moving.layout().count());
        assert!(got == expected, "network: {got} copies for {expected} shards");
        if let ([network], [moving_whole], [fixed_whole]) =
            (networks, moving.shards(), fixed.shards())
        {
            let u = network.forward(moving_whole.clone(), fixed_whole.clone());
            return Ok(Sharded::new(vec![u], moving.layout().clone()));
        }
        match networks[0] {
            Self::TransMorph(_) => {
                let each = each(networks, |network| match network {
                    Self::TransMorph(network) => network,
                    Self::VoxelMorph(_) => unreachable!("copies of one network"),
                });
                TransMorph::forward_sharded(&each, moving, fixed)
            }
            Self::VoxelMorph(_) => {
                let each = each(networks, |network| match network {
                    Self::VoxelMorph(network) => network,
                    Self::TransMorph(_) => unreachable!("copies of one network"),
                });
                VoxelMorph::forward_sharded(&each, moving, fixed)
            }
        }
    }
}
