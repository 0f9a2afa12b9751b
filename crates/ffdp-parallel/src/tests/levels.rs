//! Images and displacements carried to other grids.

use super::*;
use ffdp_burn::ops::{Interpolation, Padding};
use ffdp_burn::transform::{self, Displacement};
use ffdp_image::image::Geometry;

fn geometry(layout: &Layout) -> Geometry {
    let [d, h, w] = layout.size();
    let grid = Geometry::new([w, h, d], [0.9, 1.1, 1.0]).unwrap();
    grid.with_origin([3.0, -20.0, 11.0]).unwrap()
}

fn image(layout: &Layout, channels: usize) -> Tensor<5> {
    random(channels, layout.size(), [0.0, 1.0], DType::F32, 5).narrow(0, 0, 1)
}

#[test]
fn displacements_go_to_other_grids_as_whole_ones() {
    for layout in layouts(17) {
        let (field, from) = (image(&layout, 3), geometry(&layout));
        let to = from.resized(from.size.map(|n| 2 * n - 3)).unwrap();
        let expected = Displacement::new(field.clone(), from.clone()).unwrap().resampled(&to);
        let sharded = split(&field, &layout);
        let found = resample_displacement(&sharded, [&from, &to], &mesh(&layout)).unwrap();
        let [found, expected] = [whole(&found), expected.field().clone()].map(to_f64);
        assert_close(&format!("{layout:?}"), &found, &expected, F32_ROUNDING);
    }
}

#[test]
fn images_on_turned_grids_are_fetched_from_where_they_lie() {
    // The axes of the other grid are those of the image in another order: every shard needs all.
    let turned = [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]];
    for layout in layouts(18) {
        let (image, from) = (image(&layout, 2), geometry(&layout));
        let to = Geometry::new([12, 10, 11], [0.8, 1.2, 1.0]).unwrap();
        let to = to.with_origin([4.0, -19.0, 12.0]).unwrap().with_direction(turned).unwrap();
        let (linear, border) = (Interpolation::Linear, Padding::Border);
        let expected = transform::resample(image.clone(), &from, &to, linear, border);
        let sharded = split(&image, &layout);
        let found = resample(&sharded, [&from, &to], &mesh(&layout), linear, border).unwrap();
        let [found, expected] = [whole(&found), expected].map(to_f64);
        assert_close(&format!("{layout:?}"), &found, &expected, F32_ROUNDING);
    }
}
