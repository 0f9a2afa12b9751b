//! Where the shards of a run are computed, and where what they are made of rests.

use burn::Tensor;
use burn::tensor::Device;

use crate::parallel::mesh::Mesh;
use crate::parallel::rest::{put_away, settle};
use crate::parallel::transfer::to_device;

/// For every shard the device that computes it, and that on which it rests: the same, or host memory.
#[derive(Clone, Debug)]
pub(super) struct Homes {
    pub mesh: Mesh,
    rest: Mesh,
    /// Whether some rest elsewhere: memory is then short.
    away: bool,
}

impl Homes {
    pub fn new(mesh: &Mesh, rest: Mesh) -> Self {
        let away = (0..mesh.count()).any(|k| mesh.device(k) != rest.device(k));
        Self { mesh: mesh.clone(), rest, away }
    }

    /// Where shard `k` is computed.
    pub fn device(&self, k: usize) -> &Device {
        self.mesh.device(k)
    }

    /// A part of shard `k` to where it is computed.
    pub fn bring(&self, k: usize, tensor: Tensor<5>) -> Tensor<5> {
        to_device(tensor, self.mesh.device(k))
    }

    /// What shard `k` has become to where it rests.
    pub fn put_away(&self, k: usize, tensor: Tensor<5>) -> Tensor<5> {
        put_away(tensor, self.rest.device(k))
    }

    /// Where shards come and go, waits until those before have gone: otherwise they would be sent faster
    /// than they are computed.
    pub fn settle(&self, k: usize) {
        if self.away {
            settle(self.mesh.device(k));
        }
    }
}
