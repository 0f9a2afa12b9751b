use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use std::f64::consts::PI;

fn random_points(count: usize, seed: u64) -> Vec<Position> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..count).map(|_| std::array::from_fn(|_| rng.random_range(-1.0..1.0))).collect()
}

#[test]
fn spheres_have_their_area_and_volume_and_are_closed() {
    for (subdivisions, tolerance) in [(3, 3e-2), (5, 2e-3)] {
        // An inscribed polyhedron falls short by the square of its edges.
        let sphere = Shape::sphere(10.0, subdivisions);
        let (area, volume) = (sphere.measure(), sphere.volume());
        assert!((area / (400.0 * PI) - 1.0).abs() < tolerance, "{area}");
        assert!((volume / (4000.0 / 3.0 * PI) - 1.0).abs() < tolerance, "{volume}");
        assert_eq!(sphere.open_edges(), 0);
        assert_eq!(self_intersections(&sphere), 0);
    }
    let mut open = Shape::sphere(1.0, 1);
    if let Cells::Triangles(t) = &mut open.cells {
        t.pop();
    }
    assert_eq!(open.open_edges(), 3);
}

#[test]
fn volume_does_not_depend_on_where_the_shape_lies_and_mirrors_keep_its_sign() {
    let sphere = Shape::sphere(1.0, 3);
    let far =
        Affine::from_parts([[-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], [1e5, 0.0, 7.0]);
    let moved = sphere.transformed(&far);
    // 1e5 away coordinates keep eleven digits behind the point.
    assert!((moved.volume() - sphere.volume()).abs() < 1e-9);
}

#[test]
fn the_tree_finds_what_a_search_through_all_finds() {
    let sphere = Shape::sphere(1.0, 2);
    let cloud = Shape::cloud(random_points(300, 1)).unwrap();
    let curve = Shape::curve(random_points(40, 2), true).unwrap();
    for shape in [&sphere, &cloud, &curve] {
        let tree = ShapeTree::new(shape);
        for p in random_points(100, 3) {
            let NearestPoint { point, distance_mm: distance, cell } = tree.nearest(p);
            assert!((norm(sub(point, p)) - distance).abs() < 1e-15);
            let count =
                shape.cells.len().max(if shape.cells.is_empty() { shape.points.len() } else { 0 });
            let alone = |cell: usize| {
                let one = match &shape.cells {
                    Cells::None => Shape::cloud(vec![shape.points[cell]]),
                    Cells::Edges(c) => {
                        Shape::new(shape.points.clone(), Cells::Edges(vec![c[cell]]))
                    }
                    Cells::Triangles(c) => Shape::mesh(shape.points.clone(), vec![c[cell]]),
                };
                ShapeTree::new(&one.unwrap()).nearest(p).distance_mm
            };
            let least = (0..count).map(alone).fold(f64::INFINITY, f64::min);
            assert_eq!(distance, least);
            assert_eq!(alone(cell), distance);
        }
    }
}

#[test]
fn the_nearest_point_of_a_triangle_is_nearer_than_any_other() {
    for (seed, p) in random_points(50, 5).into_iter().enumerate() {
        let corners = random_points(3, 100 + seed as u64);
        let triangle = Shape::mesh(corners.clone(), vec![[0, 1, 2]]).unwrap();
        let distance = ShapeTree::new(&triangle).nearest(p).distance_mm;
        let mut least = f64::INFINITY;
        for i in 0..=200 {
            for j in 0..=200 - i {
                let [u, v] = [i, j].map(|k| f64::from(k) / 200.0);
                let parts =
                    [scaled(corners[0], u), scaled(corners[1], v), scaled(corners[2], 1.0 - u - v)];
                least = least.min(norm(sub(add(add(parts[0], parts[1]), parts[2]), p)));
            }
        }
        // The lattice may miss the foot point by one step of 1/200 of sides up to 3.5 long.
        assert!(distance <= least + 1e-12 && least <= distance + 0.02, "{distance} {least}");
    }
}

#[test]
fn concentric_spheres_lie_apart_by_the_difference_of_their_radii() {
    let found = surface_distance(&Shape::sphere(10.0, 4), &Shape::sphere(12.0, 4));
    // Faces of an inscribed polyhedron lie up to 0.07 below the sphere.
    for value in [found.mean, found.rms, found.p95, found.max] {
        assert!((value - 2.0).abs() < 0.08, "{found:?}");
    }
    let same = surface_distance(&Shape::sphere(1.0, 3), &Shape::sphere(1.0, 3));
    assert!(same.max < 1e-12, "{same:?}");
}

#[test]
fn triangles_that_pass_through_each_other_are_counted() {
    let sphere = Shape::sphere(1.0, 3);
    let shift = |x: f64| {
        let id = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        sphere.transformed(&Affine::from_parts(id, [x, 0.013, 0.021]))
    };
    let apart = Shape::joined(&[&sphere, &shift(2.5)]).unwrap();
    assert_eq!(self_intersections(&apart), 0);
    let through = Shape::joined(&[&sphere, &shift(1.0)]).unwrap();
    assert!(self_intersections(&through) > 20);
    // A corner pushed through the opposite side.
    let mut pushed = sphere.clone();
    pushed.points[0] = [-1.5, 0.01, 0.02];
    assert!(self_intersections(&pushed) > 0);
}

#[test]
fn parts_are_found_by_what_joins_them() {
    let small = Shape::sphere(1.0, 1);
    let large = Shape::sphere(3.0, 2);
    let both = Shape::joined(&[&small, &large]).unwrap();
    assert_eq!(both.largest_component(), large);
}

#[test]
fn spacing_is_the_distance_of_neighbours_and_widths_are_advised() {
    let line: Vec<Position> = (0..10).map(|i| [2.0 * f64::from(i), 0.0, 0.0]).collect();
    assert_eq!(spacing(&line), Spacing { median: 2.0, max: 2.0 });
    assert_eq!(spacing(&[[1.0; 3], [1.0; 3]]).median, 0.0);
    let shape = Shape::curve(line, false).unwrap();
    let small = width_advice("deformation", 1.0, &shape).expect("below twice the spacing");
    assert!(small.text.contains("deformation") && small.width_mm == 4.0, "{small:?}");
    assert!(width_advice("deformation", 6.0, &shape).is_none());
    assert!(width_advice("deformation", 100.0, &shape).is_some());
}

#[test]
fn thickness_is_the_diameter_of_a_sphere_and_of_nothing_open() {
    let sphere = Shape::sphere(7.0, 5);
    // Triangles of 64 by 64 edges lie within 0.1 % of the sphere.
    assert!((sphere.thickness().unwrap() / 14.0 - 1.0).abs() < 1e-3, "{:?}", sphere.thickness());
    let stretch = [[4.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
    let long = sphere.transformed(&Affine::from_parts(stretch, [0.0; 3]));
    // A long body is thicker than across by half at most (a cylinder's 6 V / A is 1.5 of its diameter).
    assert!((14.0..21.0).contains(&long.thickness().unwrap()), "{:?}", long.thickness());
    let open = Shape::mesh(sphere.points.clone(), sphere.triangles()[1..].to_vec()).unwrap();
    assert_eq!(open.thickness(), None);
    assert_eq!(Shape::cloud(vec![[0.0; 3]]).unwrap().thickness(), None);
}

#[test]
fn shapes_that_mean_nothing_are_refused() {
    let refused = |shape: Result<Shape>| shape.unwrap_err().to_string();
    assert!(refused(Shape::cloud(vec![])).contains("must have points"));
    assert!(refused(Shape::cloud(vec![[0.0; 3], [0.0, f64::NAN, 1.0]])).contains("point 1"));
    let beyond = refused(Shape::mesh(vec![[0.0; 3]; 3], vec![[0, 1, 2], [0, 1, 3]]));
    assert!(beyond.contains("cell 1") && beyond.contains("got 3"), "{beyond}");
}

#[test]
fn coarsened_surfaces_stay_closed_and_where_they_are() {
    let sphere = Shape::sphere(10.0, 5);
    let side = sphere.side_for(600);
    let coarse = sphere.coarsened(side);
    assert!((300..1200).contains(&coarse.cells.len()), "{}", coarse.cells.len());
    assert_eq!(coarse.open_edges(), 0);
    assert!((coarse.volume() / sphere.volume() - 1.0).abs() < 0.05);
    // Chords of 2 mm lie 0.05 mm below the sphere, means of points in a cube as much again.
    assert!(surface_distance(&sphere, &coarse).mean < 0.15);
    assert_eq!(sphere.coarsened(0.0), sphere);
    assert_eq!(sphere.side_for(1 << 20), 0.0);
}
