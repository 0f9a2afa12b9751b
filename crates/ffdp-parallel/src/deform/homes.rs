//! Where the shards of a run are computed, and where what they are made of rests.

use burn::Tensor;
use burn::tensor::Device;

use crate::ahead::{UnderWay, bring_ahead};
use crate::device_mesh::DeviceMesh;
use crate::rest::{put_away, settle};
use crate::transfer::to_device;

/// For every shard the device that computes it, and that on which it rests: the same, or host memory.
#[derive(Clone, Debug)]
pub(super) struct Homes {
    pub mesh: DeviceMesh,
    rest: DeviceMesh,
    /// Whether some rest elsewhere: memory is then short.
    pub away: bool,
}

impl Homes {
    pub fn new(mesh: &DeviceMesh, rest: DeviceMesh) -> Self {
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

    /// Every shard in turn, with what `bring` brings to where it is computed. Where shards come and go, that of the next
    /// is on its way meanwhile.
    pub fn in_turn<T, F: FnMut(usize) -> T>(&self, bring: F) -> InTurn<'_, T, F> {
        InTurn { homes: self, bring, next: 0, ahead: None }
    }

    /// Where shards come and go, waits until those before have gone: otherwise they would be sent faster
    /// than they are computed.
    pub fn settle(&self, k: usize) {
        if self.away {
            settle(self.mesh.device(k));
        }
    }
}

/// See [`Homes::in_turn`].
pub(super) struct InTurn<'a, T, F> {
    homes: &'a Homes,
    bring: F,
    /// The shard that is given next.
    next: usize,
    /// What it brings, once that is under way.
    ahead: Option<(T, Option<UnderWay>)>,
}

impl<T, F: FnMut(usize) -> T> InTurn<'_, T, F> {
    /// Sends what the next shard brings, if there is one and that was not done.
    fn send(&mut self) {
        let k = self.next;
        if self.ahead.is_some() || k == self.homes.mesh.count() {
            return;
        }
        self.ahead = Some(match self.homes.away {
            true => {
                let (brought, sent) = bring_ahead(self.homes.device(k), || (self.bring)(k));
                (brought, Some(sent))
            }
            false => ((self.bring)(k), None),
        });
    }

    /// What the shard brings that is given next, if there is one.
    pub fn peek(&mut self) -> Option<&T> {
        self.send();
        let (brought, sent) = self.ahead.as_mut()?;
        if let Some(sent) = sent.take() {
            sent.wait();
        }
        Some(brought)
    }
}

impl<T, F: FnMut(usize) -> T> Iterator for InTurn<'_, T, F> {
    type Item = (usize, T);

    fn next(&mut self) -> Option<Self::Item> {
        let k = self.next;
        self.peek()?;
        let (brought, _) = self.ahead.take()?;
        self.next += 1;
        if self.homes.away {
            // What the shard before has left makes room.
            self.homes.settle(k);
            self.send();
        }
        Some((k, brought))
    }
}

#[cfg(all(test, feature = "cube"))]
mod tests {
    use super::*;
    use ffdp_kit::testing::gpu_devices;

    /// Where shards come and go, the next is asked for before one is worked on; where they stay, when it is its turn.
    #[test]
    fn the_next_shard_is_sent_for_before_one_is_worked_on() {
        for (name, device) in gpu_devices() {
            let mesh = DeviceMesh::new(std::slice::from_ref(&device), 3).unwrap();
            for (rest, wanted) in
                [(Device::flex(), "b0 b1 w0 b2 w1 w2"), (device, "b0 w0 b1 w1 b2 w2")]
            {
                let homes = Homes::new(&mesh, DeviceMesh::new(&[rest], 3).unwrap());
                let calls = std::cell::RefCell::new(Vec::new());
                let record = |what: &str, k: usize| calls.borrow_mut().push(format!("{what}{k}"));
                for (k, ()) in homes.in_turn(|k| record("b", k)) {
                    record("w", k);
                }
                assert_eq!(calls.borrow().join(" "), wanted, "{name}");
            }
        }
    }
}
