//! Quality of a registration: what is printed, compared and believed. Plain CPU code on slices.
//!
//! Fields are `[3, D, H, W]`, components (x, y, z), in voxels of the grid; `size` is (x, y, z)
//! everywhere. Label metrics follow the Learn2Reg definitions. Read [`dice`] and [`jacobian`]
//! first.

mod dice;
mod jacobian;
mod label_warp;
mod similarity;

pub use dice::{DiceScores, LabelDice, dice, dice_of};
pub use jacobian::{
    Difference, JacobianDistribution, JacobianReport, jacobian, jacobian_determinants,
};
pub use label_warp::warp_labels;
pub use similarity::{local_ncc, ncc};
