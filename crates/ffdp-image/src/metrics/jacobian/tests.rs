//! Volume change and folds of fields that are known by hand.

use super::*;

const SIZE: [usize; 3] = [7, 6, 5];
const ALL: [Difference; 3] = [Difference::Forward, Difference::Backward, Difference::Central];
/// Rounding of f32 displacements of a few voxels.
const F32_ROUNDING: f64 = 2e-5;

/// u = (A - I) p + t as a field.
fn affine(matrix: [[f64; 3]; 3], size: [usize; 3]) -> Vec<f32> {
    let count = size.iter().product::<usize>();
    let mut data = vec![0f32; 3 * count];
    for offset in 0..count {
        let p = [offset % size[0], offset / size[0] % size[1], offset / size[0] / size[1]]
            .map(|v| v as f64);
        for (c, row) in matrix.iter().enumerate() {
            let mapped: f64 = row.iter().zip(p).map(|(a, v)| a * v).sum();
            data[c * count + offset] = (mapped - p[c] + 0.3) as f32;
        }
    }
    data
}

#[test]
fn affine_fields_have_the_determinant_of_their_matrix() {
    for (matrix, expected) in [
        ([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], 1.0),
        ([[1.2, 0.1, 0.0], [-0.2, 0.9, 0.3], [0.05, 0.0, 1.1]], 1.2115),
        // A reflection folds everywhere.
        ([[-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], -1.0),
    ] {
        let field = affine(matrix, SIZE);
        for difference in ALL {
            let dets = jacobian_determinants(&field, SIZE, difference).expect("sizes match");
            let worst = dets.iter().map(|&d| (f64::from(d) - expected).abs()).fold(0.0, f64::max);
            assert!(worst < F32_ROUNDING, "{difference:?} {matrix:?}: off by {worst}");
        }
        let report = jacobian(&field, SIZE).expect("sizes match");
        let Regularity { true_folds, true_fold_fraction, sd_log } =
            regularity(&field, SIZE).expect("sizes match");
        assert_eq!((true_folds, sd_log), (report.true_folds, report.sd_log));
        assert_eq!(true_fold_fraction, report.true_fold_fraction);
        let all = if expected > 0.0 { 0 } else { 210 };
        assert_eq!((report.true_folds, report.central.folds), (all, all), "{matrix:?}");
        assert!(report.sd_log < F32_ROUNDING && report.sd_log_learn2reg < F32_ROUNDING);
    }
}

#[test]
fn size_one_axes_do_not_deform() {
    let size = [5, 1, 4];
    let field = affine([[1.5, 0.0, 0.0], [0.0, 3.0, 0.0], [0.0, 0.0, 2.0]], size);
    let report = jacobian(&field, size).expect("sizes match");
    assert!((report.central.p50 - 3.0).abs() < F32_ROUNDING, "{report:?}");
}

#[test]
fn one_voxel_fold_is_seen_though_central_differences_are_blind() {
    // A checkerboard of amplitude 0.6 along x swaps neighbours.
    let [nx, ny, nz] = SIZE;
    let mut field = vec![0f32; 3 * nx * ny * nz];
    for (offset, u) in field[..nx * ny * nz].iter_mut().enumerate() {
        *u = if offset % nx % 2 == 0 { 0.6 } else { -0.6 };
    }
    let report = jacobian(&field, SIZE).expect("sizes match");
    // One-sided at x = 0 even the central difference sees it; at the last x, which is even,
    // the only neighbour is farther away, not swapped.
    let face = (ny * nz) as u64;
    assert_eq!(report.central.folds, face, "{:?}", report.central);
    assert_eq!(report.true_folds, (nx * ny * nz) as u64 - face);
    assert!(report.forward.min < -0.19 && report.forward.max > 2.19, "{:?}", report.forward);
}

#[test]
fn nan_counts_as_a_fold_and_wrong_size_is_an_error() {
    let mut field = affine([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], SIZE);
    field[100] = f32::NAN;
    assert!(jacobian(&field, SIZE).expect("sizes match").true_folds > 0);
    assert!(jacobian(&field[1..], SIZE).is_err());
    assert!(jacobian(&[], [0, 4, 4]).is_err());
}

#[test]
fn single_voxels_have_the_determinants_of_the_whole() {
    let size = [5, 4, 3];
    let field: Vec<f32> = (0..3 * 60).map(|i| ((i * i) % 17) as f32 * 0.07 - 0.5).collect();
    let whole = jacobian_determinants(&field, size, Difference::Central).expect("of that size");
    let single = determinant_of(&field, size).expect("of that size");
    assert!((0..60).all(|voxel| single(voxel).to_bits() == whole[voxel].to_bits()));
    assert!(determinant_of(&field[1..], size).is_err());
}

/// The definition at one voxel: differences forward and backward by axis, each a vector of the components.
fn sides(field: &[f32], size: [usize; 3], voxel: usize) -> [[[f64; 3]; 2]; 3] {
    let count = size.iter().product::<usize>();
    let place = [voxel % size[0], voxel / size[0] % size[1], voxel / size[0] / size[1]];
    std::array::from_fn(|axis| {
        let step = size[..axis].iter().product::<usize>();
        let to_next = |from: usize| {
            [0, 1, 2].map(|c| {
                let u = |voxel: usize| f64::from(field[c * count + voxel]);
                (if c == axis { 1.0 } else { 0.0 }) + (u(from + step) - u(from))
            })
        };
        let still = [0, 1, 2].map(|c| if c == axis { 1.0 } else { 0.0 });
        let (first, last) = (place[axis] == 0, place[axis] + 1 == size[axis]);
        match (first, last) {
            (true, true) => [still; 2],
            (true, false) => [to_next(voxel); 2],
            (false, true) => [to_next(voxel - step); 2],
            (false, false) => [to_next(voxel), to_next(voxel - step)],
        }
    })
}

fn determinant([a, b, c]: [[f64; 3]; 3]) -> f32 {
    let minor = |i: usize, j: usize| b[i] * c[j] - b[j] * c[i];
    (a[0] * minor(1, 2) - a[1] * minor(0, 2) + a[2] * minor(0, 1)) as f32
}

#[test]
fn every_voxel_has_what_the_definition_gives() {
    for size in [[5, 4, 3], [1, 2, 3], [2, 1, 1], [1, 1, 1], [17, 3, 2]] {
        let count = size.iter().product::<usize>();
        let field: Vec<f32> =
            (0..3 * count).map(|i| ((i * i * 31 + 7 * i) % 101) as f32 * 0.013 - 0.6).collect();
        let mut folds = 0;
        let mut expected = [const { Vec::new() }; 3];
        for voxel in 0..count {
            let [x, y, z] = sides(&field, size, voxel);
            let middle = |[f, b]: [[f64; 3]; 2]| [0, 1, 2].map(|c| 0.5 * (f[c] + b[c]));
            let central = determinant([x, y, z].map(middle));
            let corners = (0..8).map(|k| determinant([x[k & 1], y[k >> 1 & 1], z[k >> 2]]));
            folds += u64::from(corners.chain([central]).any(|det| det <= 0.0));
            let all = [determinant([x[0], y[0], z[0]]), determinant([x[1], y[1], z[1]]), central];
            expected.iter_mut().zip(all).for_each(|(values, det)| values.push(det.to_bits()));
        }
        for (difference, expected) in ALL.into_iter().zip(expected) {
            let got = jacobian_determinants(&field, size, difference).expect("sizes match");
            let got: Vec<u32> = got.into_iter().map(f32::to_bits).collect();
            assert_eq!(got, expected, "{difference:?} {size:?}");
        }
        assert_eq!(regularity(&field, size).expect("sizes match").true_folds, folds, "{size:?}");
        assert!(count < 24 || (folds > 0 && folds < count as u64), "{folds} of {size:?}");
    }
}

#[test]
fn runs_of_planes_have_the_report_of_the_whole() {
    let size = [9, 8, 11];
    let u: Vec<f32> = (0..3 * 792).map(|i| (i as f32 * 0.37).sin() * 0.9).collect();
    let whole = jacobian(&u, size).expect("one size");
    assert!(whole.true_folds > 0, "there is something to count");
    for planes in [1, 2, 5] {
        let runs = JacobianReport::of_runs(size, |add| {
            for start in (0..size[2]).step_by(planes) {
                let own = start..(start + planes).min(size[2]);
                let held = start.saturating_sub(1)..(own.end + 1).min(size[2]);
                let part = |c: usize| &u[c * 792 + held.start * 72..c * 792 + held.end * 72];
                let displacement = &[part(0), part(1), part(2)].concat();
                add(&FieldPlanes { displacement, first: held.start, own })?;
            }
            Ok(())
        });
        assert_eq!(runs.expect("one size"), whole, "{planes} at a time");
    }
}
