//! Which plane of their ring holds the gamma fields of a plane.

use cubecl::prelude::*;

use super::plan::Slab;

/// That of plane `z`, from `-radius` on.
#[cube]
pub(super) fn ring_slot(z: i32, slab: &Slab, #[comptime] radius: u32) -> u32 {
    (z + comptime!(radius as i32)) as u32 % slab.ring
}

/// [`ring_slot`] of a plane further up, by as many as the ring has at most.
#[cube]
pub(super) fn further(slot: u32, planes: u32, slab: &Slab) -> u32 {
    let slot = slot + planes;
    select(slot >= slab.ring, slot - slab.ring, slot)
}
