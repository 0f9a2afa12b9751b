use ffdp_image::image::{Affine, Geometry, LabelMap};

use super::*;
use crate::shape::self_intersections;

/// Voxels within `radius_mm` of the middle of a grid get label 1, those of one half 2.
fn ball(geometry: Geometry, radius_mm: f64) -> LabelMap {
    let to_mm = geometry.voxel_to_mm();
    let middle = to_mm.apply(geometry.size.map(|n| (n as f64 - 1.0) / 2.0));
    let label = |offset: usize| {
        let p = sub(to_mm.apply(geometry.index_of(offset).map(|v| v as f64)), middle);
        if norm(p) > radius_mm { 0 } else { 1 + i32::from(p[0] > 0.0) }
    };
    LabelMap::new((0..geometry.len()).map(label).collect(), geometry).unwrap()
}

/// A grid that mirrors, turns and stretches.
fn grid() -> Geometry {
    let rows = [[-0.8, 0.3, 0.0, 5.0], [0.3, 1.1, 0.1, -70.0], [0.0, 0.1, 1.3, 12.0]];
    Geometry::from_affine([33, 27, 25], Affine::from_rows(rows)).unwrap()
}

#[test]
fn a_ball_of_voxels_has_the_surface_of_a_ball() {
    let mut labels = ball(grid(), 10.0);
    labels.data.iter_mut().for_each(|label| *label = (*label).min(1));
    let surface = &label_surfaces(&labels, &[1], &SurfaceSettings::default()).unwrap()[0];
    assert_eq!(surface.open_edges(), 0);
    assert_eq!(self_intersections(surface), 0);
    let [ideal_area, ideal_volume] =
        [4.0 * 100.0, 4.0 / 3.0 * 1000.0].map(|v| v * std::f64::consts::PI);
    let (area, volume) = (surface.measure(), surface.volume());
    // Staircases would have an area of one and a half times the ball's; half a voxel is 5 % of the radius.
    assert!((area / ideal_area - 1.0).abs() < 0.05, "area {area}, {ideal_area}");
    assert!((volume / ideal_volume - 1.0).abs() < 0.05, "volume {volume}, {ideal_volume}");
    let stairs = SurfaceSettings { smoothing: 0, ..SurfaceSettings::default() };
    let stairs = &label_surfaces(&labels, &[1], &stairs).unwrap()[0];
    // How far normals turn from the radius, on the mean.
    let turned = |surface: &Shape| {
        let middle = grid().voxel_to_mm().apply([16.0, 13.0, 12.0]);
        let cells = surface.cell_centres().into_iter().zip(surface.cell_directions());
        let angle = |(c, n): (Position, Position)| {
            let r = sub(c, middle);
            (crate::shape::dot(r, n) / (norm(r) * norm(n))).clamp(-1.0, 1.0).acos()
        };
        cells.map(angle).sum::<f64>() / surface.cells.len() as f64
    };
    let [rough, smooth] = [stairs, surface].map(turned);
    assert!(smooth < 0.7 * rough, "{smooth} {rough}");
}

#[test]
fn neighbouring_structures_share_their_border() {
    let labels = ball(grid(), 9.0);
    let halves = label_surfaces(&labels, &[1, 2], &SurfaceSettings::default()).unwrap();
    assert!(halves.iter().all(|half| half.open_edges() == 0 && half.volume() > 0.0));
    let mut whole = labels.clone();
    whole.data.iter_mut().for_each(|label| *label = (*label).min(1));
    let whole = label_surfaces(&whole, &[1], &SurfaceSettings::default()).unwrap();
    let parts: f64 = halves.iter().map(Shape::volume).sum();
    // Corners where three labels meet are smoothed differently.
    assert!((parts / whole[0].volume() - 1.0).abs() < 0.02, "{parts} {}", whole[0].volume());
    let shared = halves[0].points.iter().filter(|p| halves[1].points.contains(p)).count();
    assert!(shared > 100, "{shared}");
}

#[test]
fn voxels_at_the_border_of_the_map_get_a_closed_surface() {
    let geometry = Geometry::new([1, 2, 1], [1.0; 3]).unwrap();
    let labels = LabelMap::new(vec![5, 5], geometry).unwrap();
    let stairs = SurfaceSettings { smoothing: 0, ..SurfaceSettings::default() };
    let surface = &label_surfaces(&labels, &[5], &stairs).unwrap()[0];
    assert_eq!((surface.open_edges(), surface.points.len()), (0, 12));
    assert!(surface.volume() > 0.0);
    for ids in [[7].as_slice(), &[0]] {
        let refused = label_surfaces(&labels, ids, &stairs).unwrap_err().to_string();
        assert!(refused.contains("one of [5]"), "{refused}");
    }
}
