//! The extent of the procedural head.

/// Low and high corner of the box that the whole head fits in, RAS mm, warped or not.
pub(crate) const HEAD_MM: [[f64; 3]; 2] = [[-78.0, -116.0, -80.0], [78.0, 84.0, 88.0]];
