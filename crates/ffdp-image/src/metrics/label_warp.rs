//! Warping label maps for evaluation.

use rayon::prelude::*;

use super::warp::check_field;
use crate::Result;
use crate::image::LabelMap;

/// `warped(p) = labels(round(p + u(p)))`, background outside: the nearest label.
///
/// `displacement` is `[3, D, H, W]`, components (x, y, z), in voxels; the labels, the
/// displacement and the result share one grid. Halves round up along each axis.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) when the displacement is not of the labels' size.
pub fn warp_labels(labels: &LabelMap, displacement: &[f32]) -> Result<LabelMap> {
    nearest_labels(labels, displacement, |p, size| p >= -0.5 && p < size as f64 - 0.5)
}

/// The nearest label at `p + u(p)`, background where a coordinate is not `inside(p, size)`.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) when the displacement is not of the labels' size.
///
/// # Panics
/// If `inside` holds for a coordinate whose nearest voxel there is not.
pub(super) fn nearest_labels(
    labels: &LabelMap,
    displacement: &[f32],
    inside: impl Fn(f64, usize) -> bool + Sync,
) -> Result<LabelMap> {
    let size = labels.geometry.size;
    let count = labels.geometry.len();
    check_field(displacement, size)?;
    let source = |offset: usize| {
        let index = labels.geometry.index_of(offset);
        let mut from = [0usize; 3];
        for axis in 0..3 {
            let p = index[axis] as f64 + f64::from(displacement[axis * count + offset]);
            // NaN is nowhere inside.
            if !inside(p, size[axis]) {
                return 0;
            }
            from[axis] = (p + 0.5).floor() as usize;
        }
        labels.data[(from[2] * size[1] + from[1]) * size[0] + from[0]]
    };
    let data = (0..count).into_par_iter().map(source).collect();
    LabelMap::new(data, labels.geometry.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Geometry;

    fn map() -> LabelMap {
        let geometry = Geometry::new([3, 2, 2], [1.0; 3]).expect("valid");
        LabelMap::new((1..=12).collect(), geometry).expect("valid")
    }

    #[test]
    fn integer_shift_moves_labels_and_fills_with_background() {
        let mut u = vec![0f32; 36];
        u[..12].fill(1.0);
        let moved = warp_labels(&map(), &u).expect("sizes match");
        assert_eq!(moved.data, [2, 3, 0, 5, 6, 0, 8, 9, 0, 11, 12, 0]);
        u[24..].fill(-1.0);
        let moved = warp_labels(&map(), &u).expect("sizes match");
        assert_eq!(moved.data, [0, 0, 0, 0, 0, 0, 2, 3, 0, 5, 6, 0]);
    }

    #[test]
    fn fractions_take_the_nearest_label_and_nan_the_background() {
        let mut u = vec![0f32; 36];
        u[0] = 0.49;
        u[1] = 0.5;
        u[2] = f32::NAN;
        u[3] = -0.5;
        u[4] = -0.51;
        let moved = warp_labels(&map(), &u).expect("sizes match");
        assert_eq!(moved.data[..6], [1, 3, 0, 4, 4, 6]);
        assert!(warp_labels(&map(), &u[1..]).is_err());
    }
}
