//! Transforms come back from the files they were written to.

use burn::tensor::Device;

use super::grids;
use crate::transform::{Composite, Displacement, Step, read_transform, write_transform};
use ffdp_image::image::Affine;
use ffdp_kit::testing::normal;

#[test]
fn affine_maps_and_displacements_come_back() {
    let folder = tempfile::tempdir().expect("temporary");
    let device = Device::flex();
    let (outer, inner) = grids();
    let values = normal(3 * inner.len(), 4).into_iter().map(|v| v as f32).collect();
    let step = Displacement::from_vec(values, inner.clone(), &device).expect("fits");
    let affine = Affine::from_rows([
        [0.9, -0.3, 0.05, 4.0],
        [0.28, 1.1, 0.1, -3.0],
        [0.0, -0.12, 0.95, 2.0],
    ]);
    let affine = Composite::new(vec![Step::Affine(affine)]);
    let warp = Composite::new(vec![Step::Displacement(step)]);
    let points: Vec<[f64; 3]> =
        (0..50).map(|k| outer.voxel_to_mm().apply([k as f64 * 0.5, 9.0, 7.0])).collect();
    // Vectors are stored in f32 mm; matrices to the last bit but for sums with the centre.
    for (name, composite, tolerance_mm) in [
        ("affine.txt", &affine, 1e-12),
        ("affine.mat", &affine, 1e-12),
        ("affine.tfm", &affine, 1e-12),
        ("warp.nii.gz", &warp, 1e-5),
    ] {
        let path = folder.path().join(name);
        write_transform(&path, composite).expect(name);
        let back = read_transform(&path, &device).expect(name);
        let [a, b] = [composite, &back].map(|c| c.map_points(&points).expect("readable"));
        for (a, b) in a.iter().flatten().zip(b.iter().flatten()) {
            assert!((a - b).abs() < tolerance_mm, "{name}: {a} {b}");
        }
    }
    let chain = affine.clone().then(warp.clone());
    let path = folder.path().join("chain.nii.gz");
    let message = write_transform(&path, &chain).expect_err("two steps").to_string();
    assert!(message.contains("2 steps") && message.contains("one displacement"), "{message}");
    assert!(!path.exists());
    assert!(write_transform(folder.path().join("affine.nii"), &affine).is_err());
}
