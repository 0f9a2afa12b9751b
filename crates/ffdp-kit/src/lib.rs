//! What it takes to write a fused operation for Burn.

#[cfg(feature = "testing")]
pub mod testing;
