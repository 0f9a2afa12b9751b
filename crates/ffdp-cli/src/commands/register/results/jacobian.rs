//! `--jacobian`: the map of volume change.

use ffdp_image::Result;
use ffdp_image::metrics::{Difference, FieldPlanes, jacobian_determinants};
use rayon::prelude::*;

/// What folds has no logarithm: determinants below this are written as it.
const LEAST_DETERMINANT: f64 = 1e-3;

/// ln det J of `A (p + u(p))` at the own planes of a displacement on a grid of `size` (x, y, z), by central differences;
/// `determinant` is that of `A`.
///
/// # Errors
/// [`Error::Shape`](ffdp_image::Error::Shape) for planes of another size.
pub fn log_jacobian(planes: &FieldPlanes, size: [usize; 3], determinant: f64) -> Result<Vec<f32>> {
    let [x, y, _] = size;
    let held = planes.displacement.len() / (3 * x * y);
    let all = jacobian_determinants(planes.displacement, [x, y, held], Difference::Central)?;
    let own = (planes.own.start - planes.first) * x * y..(planes.own.end - planes.first) * x * y;
    let log = |&det: &f32| (determinant * f64::from(det)).max(LEAST_DETERMINANT).ln() as f32;
    Ok(all[own].par_iter().map(log).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_in_runs_have_the_volume_change_of_the_whole() {
        let size = [5, 4, 6];
        let count = 5 * 4 * 6;
        let displacement: Vec<f32> =
            (0..3 * count).map(|i| ((i * 37) % 11) as f32 * 0.02).collect();
        let whole = FieldPlanes { displacement: &displacement, first: 0, own: 0..6 };
        let whole = log_jacobian(&whole, size, 1.5).expect("the size fits");
        // Planes 2 and 3 with a neighbour on either side.
        let part: Vec<f32> =
            displacement.chunks(count).flat_map(|component| &component[20..100]).copied().collect();
        let part = FieldPlanes { displacement: &part, first: 1, own: 2..4 };
        assert_eq!(log_jacobian(&part, size, 1.5).expect("the size fits"), whole[40..80]);
        // A displacement of 0 changes no volume, a mirror image is cut off.
        let zero = vec![0.0; 3 * count];
        let zero = FieldPlanes { displacement: &zero, first: 0, own: 0..6 };
        let log = log_jacobian(&zero, size, 2.0).expect("the size fits");
        assert!(log.iter().all(|&v| (v - 2f32.ln()).abs() < 1e-6));
        let log = log_jacobian(&zero, size, -2.0).expect("the size fits");
        assert!(log.iter().all(|&v| v == LEAST_DETERMINANT.ln() as f32));
    }
}
