//! Similarities compared with scipy 1.13.1 and scikit-image 0.24.0.

use super::inputs::images;
use super::*;

/// f64 sums of thousands of terms, with the cancellation of variances.
const F64: f64 = 1e-10;

#[test]
fn similarities_agree_with_scipy_and_scikit_image() {
    let golden = &golden()["similarity"];
    let size = [17, 15, 13];
    let [fixed, moved] = images(size);
    let shared = information(&fixed, &moved, 32).expect("valid");
    for (measure, ours) in [
        ("ncc", ncc(&fixed, &moved)),
        ("local_ncc", local_ncc(&fixed, &moved, size, 7, None)),
        ("mse", mean_squared_error(&fixed, &moved)),
        ("psnr", psnr(&fixed, &moved, 1.0)),
        ("ssim", ssim(&fixed, &moved, size, 1.0, None)),
        ("mi", Ok(shared.mutual())),
        ("nmi", Ok(shared.normalized())),
    ] {
        let golden = number(golden, &format!("/{measure}"));
        assert_agrees(measure, ours.expect("valid"), golden, F64);
    }
}
