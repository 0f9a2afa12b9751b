//! What is measured.

mod case;
mod features;
mod fields;
mod iterations;
mod losses;
mod periodic;
mod sampling;
mod splines;

pub use case::{Case, Pass, Variant};

/// All operations. Floors count every operand once in f32: images 4 bytes a voxel, fields 12.
pub fn cases() -> Vec<Case> {
    let mut cases = sampling::sampling();
    cases.extend(fields::fields());
    cases.extend(splines::control_points());
    cases.extend(splines::votes());
    cases.extend(losses::local_correlations());
    cases.extend(losses::of_intensities());
    cases.extend(losses::halves());
    cases.push(losses::labels());
    cases.extend(features::features());
    cases.extend(fields::regularisers());
    cases.extend(periodic::periodic());
    cases.extend(iterations::iterations());
    cases
}
