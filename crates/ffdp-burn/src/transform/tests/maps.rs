//! Maps of other crates as steps.

use std::sync::Arc;

use burn::tensor::{Device, Tensor};

use super::{grid, grids, ramp, rotated, wide};
use crate::transform::{Composite, Step, write_transform};
use ffdp_image::image::{Affine, Physical, PointMap};
use ffdp_kit::testing::assert_close;

/// Intensities of some tens in f32, at points computed in f32.
const ROUNDING: f64 = 1e-5;

/// `(x + by sin(y / 5), y, z)`.
#[derive(Debug)]
struct Shear {
    by: f64,
}

impl Shear {
    fn of(&self, [x, y, z]: [f64; 3]) -> [f64; 3] {
        [x + self.by * (y / 5.0).sin(), y, z]
    }
}

impl PointMap for Shear {
    fn map(&self, points: Tensor<2>) -> Tensor<2> {
        let x = points.clone().narrow(1, 0, 1);
        let moved = x + points.clone().narrow(1, 1, 1).div_scalar(5.0).sin() * self.by;
        Tensor::cat(vec![moved, points.narrow(1, 1, 2)], 1)
    }

    fn inverse(&self) -> Arc<dyn PointMap> {
        Arc::new(Self { by: -self.by })
    }
}

fn turn() -> Affine<Physical, Physical> {
    Affine::from_parts(rotated(25.0), [1.0, -2.0, 0.5])
}

#[test]
fn a_map_in_a_chain_is_evaluated_at_the_points_that_reach_it() {
    let (turn, shear) = (turn(), Shear { by: 3.0 });
    let expected = |p: [f64; 3]| turn.apply(shear.of(turn.apply(p)));
    let step = || Step::Affine(turn);
    let chain = Composite::new(vec![step(), Step::Map(Arc::new(Shear { by: 3.0 })), step()]);
    let points = [[1.0, 2.0, 3.0], [-40.0, 25.0, 7.0], [0.0; 3]];
    let mapped = chain.map_points(&points).expect("readable");
    assert_close("points", mapped.as_flattened(), points.map(expected).as_flattened(), 1e-12);
    let back = chain.inverse().expect("invertible").map_points(&mapped).expect("readable");
    assert_close("and back", back.as_flattened(), points.as_flattened(), 1e-12);

    let (_, inner) = grids();
    let around = grid([40, 40, 40], [3.0, 3.5, 3.0], [-70.0, -60.0, -60.0], rotated(20.0));
    let warped = chain.warp(&ramp(&around), &inner, &Device::flex()).expect("readable");
    let to_mm = inner.voxel_to_mm();
    let value = |offset: usize| {
        let [x, y, z] = expected(to_mm.apply(inner.index_of(offset).map(|i| i as f64)));
        5.0 + 0.7 * x - 0.4 * y + 0.9 * z
    };
    let values: Vec<f64> = (0..inner.len()).map(value).collect();
    assert_close("image", &wide(&warped.data), &values, ROUNDING);
}

#[test]
fn a_file_takes_a_map_as_a_displacement_only() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let chain = Composite::new(vec![Step::Map(Arc::new(Shear { by: 1.0 }))]);
    for name in ["map.h5", "map.txt"] {
        let refused = write_transform(folder.path().join(name), &chain);
        let message = refused.expect_err(name).to_string();
        assert!(message.contains("displacement"), "{message}");
    }
}
