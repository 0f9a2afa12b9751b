//! A linear map before the deformation, in closed form. The energy of the deformation does not pay for it.
//!
//! ```text
//! points that correspond   least sum of squares: Horn 1987, Umeyama 1991
//! other shapes             y = c_target + V_target S V_source^T (x - c_source)
//! ```
//! `c` the centre and `V` the principal axes of the area, the length or the points; `S` their signs and, where they are
//! asked for, scales.

use ffdp_image::image::{Affine, Matrix3, Physical, symmetric_eigen};
use ffdp_image::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::shape::{Position, Shape, add, cross, dot, norm, scaled, sub, surface_distance};

/// What is done to a shape before it is deformed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinearStart {
    /// Nothing.
    #[default]
    None,
    /// It is turned and moved.
    Rigid,
    /// It is turned, moved and scaled alike in all directions.
    Similarity,
    /// It is turned, moved, scaled and sheared.
    Affine,
}

/// A map of physical space, RAS mm.
type Map = Affine<Physical, Physical>;

/// Axes whose spread is a smaller part of the largest one are not there. Files hold coordinates in f32, to 1e-7 of the
/// distance from the origin: of a thousandth of a shape's size some digits are left, even ten sizes away from there.
const FLAT: f64 = 1e-3;
/// Distances that differ by less are the same, relative to the size of the target.
const SAME: f64 = 1e-9;

impl LinearStart {
    /// The map with the least sum of squared distances between points that correspond. It never mirrors, but for affine
    /// maps of mirrored points.
    ///
    /// # Errors
    /// [`Error::Shape`] for lists of different lengths; [`Error::Invalid`] for no points, for points on a line, and for
    /// affine maps in a plane: where the spread (standard deviation) along the second or third principal axis is at
    /// most a thousandth of that along the first. [`Error::Singular`] for an affine map without an inverse.
    pub fn of_pairs(self, source: &[Position], target: &[Position]) -> Result<Map> {
        if source.len() != target.len() {
            let (expected, got) = (vec![target.len(), 3], vec![source.len(), 3]);
            return Err(Error::Shape { what: "points that correspond".into(), expected, got });
        }
        if self == Self::None {
            return Ok(Map::identity());
        }
        if source.is_empty() {
            let fix = "give at least three pairs, four for an affine start, or no start";
            return Err(Error::invalid("a linear start needs points", 0, fix));
        }
        let centres = [source, target].map(|points| {
            scaled(points.iter().copied().fold([0.0; 3], add), 1.0 / points.len() as f64)
        });
        let about = |points: &[Position], centre| -> Vec<Position> {
            points.iter().map(|&p| sub(p, centre)).collect()
        };
        let [x, y] = [about(source, centres[0]), about(target, centres[1])];
        let mean = |sum: Matrix3| sum.map(|row| scaled(row, 1.0 / source.len() as f64));
        let joint = mean(outer_sum(&y, &x));
        let axes = [&x, &y].map(|points| Axes::of(&mean(outer_sum(points, points))));
        check_extent(&axes, if self == Self::Affine { 3 } else { 2 })?;
        let linear = match self {
            Self::None | Self::Rigid => rotation(&joint)?,
            Self::Similarity => {
                let turn = rotation(&joint)?;
                let gain: f64 = (0..3).map(|i| dot(turn[i], joint[i])).sum();
                turn.map(|row| scaled(row, gain / norm(axes[0].spreads).powi(2)))
            }
            Self::Affine => {
                // The second moments of the source, inverted along its axes.
                let Axes { spreads, directions } = &axes[0];
                let inverse = matrix(transposed(directions))
                    .then(&diagonal(spreads.map(|s| (s * s).recip())))
                    .then(&matrix(*directions));
                inverse.then(&matrix(joint)).linear()
            }
        };
        let map = between(linear, centres);
        map.inverse()?;
        Ok(map)
    }

    /// The map of centres and principal axes: of the area of surfaces, the length of curves, the points of clouds. Of
    /// the signs of the axes those are taken that leave the least distance, or no rotation where that leaves less. A
    /// similarity equals the spread of both shapes, an affine map that along every axis.
    ///
    /// # Errors
    /// [`Error::Invalid`] for shapes without extent, and for affine maps of flat ones: with a spread (standard
    /// deviation) along the least principal axis of at most a thousandth of that along the first.
    pub fn of_moments(self, source: &Shape, target: &Shape) -> Result<Map> {
        if self == Self::None {
            return Ok(Map::identity());
        }
        let moments = [Moments::of(source)?, Moments::of(target)?];
        let axes = moments.each_ref().map(|m| Axes::of(&m.covariance));
        match self {
            Self::Affine => check_extent(&axes, 3)?,
            Self::Similarity => check_extent(&axes, 1)?,
            _ => {}
        }
        let [shrink, stretch] = axes.each_ref().map(|axes| match self {
            Self::Affine => axes.spreads,
            Self::Similarity => [norm(axes.spreads); 3],
            _ => [1.0; 3],
        });
        let shrink = shrink.map(f64::recip);
        let [v, w] = axes.map(|axes| axes.directions);
        let proper = (matrix(v).determinant() * matrix(w).determinant()).signum();
        let signs = [[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]];
        let turns = signs.map(|[a, b]| diagonal([a, b, a * b * proper]));
        let unturned = matrix(v).then(&matrix(transposed(&w)));
        let maps = std::iter::once(unturned).chain(turns).map(|turn| {
            let into_axes = matrix(transposed(&v)).then(&diagonal(shrink));
            let linear = into_axes.then(&turn).then(&diagonal(stretch)).then(&matrix(w)).linear();
            between(linear, moments.each_ref().map(|m| m.centre))
        });
        // What differs by rounding alone is the same: the first is kept.
        let same = (SAME * target.diameter()).max(f64::MIN_POSITIVE);
        let far = |map: Map| {
            let mean = surface_distance(&source.transformed(&map), target).mean;
            ((mean / same).round(), map)
        };
        let best = maps.map(far).min_by(|a, b| a.0.total_cmp(&b.0));
        Ok(best.expect("five candidates").1)
    }
}

fn matrix(rows: Matrix3) -> Map {
    Map::from_parts(rows, [0.0; 3])
}

fn diagonal(values: [f64; 3]) -> Map {
    matrix([0, 1, 2].map(|i| [0, 1, 2].map(|j| if i == j { values[i] } else { 0.0 })))
}

/// `y = linear (x - from) + to`.
fn between(linear: Matrix3, [from, to]: [Position; 2]) -> Map {
    Map::from_parts(linear, sub(to, matrix(linear).apply(from)))
}

fn transposed(m: &Matrix3) -> Matrix3 {
    std::array::from_fn(|i| std::array::from_fn(|j| m[j][i]))
}

/// `sum_k a_k b_k^T`.
fn outer_sum(a: &[Position], b: &[Position]) -> Matrix3 {
    let mut sum = [[0.0; 3]; 3];
    for (a, b) in a.iter().zip(b) {
        (0..3).for_each(|i| sum[i] = add(sum[i], scaled(*b, a[i])));
    }
    sum
}

/// The rotation `R` with the largest `trace(R^T joint)`: the two largest singular directions onto each other, the third
/// as a right hand has it.
fn rotation(joint: &Matrix3) -> Result<Matrix3> {
    let (_, v) = symmetric_eigen(&outer_sum(joint, joint));
    let [v0, v1, _] = transposed(&v);
    let [u0, u1] = [v0, v1].map(|v| matrix(*joint).apply_vector(v));
    let (first, second) = (norm(u0), norm(u1));
    // Products of spreads of both.
    if second <= FLAT * FLAT * first {
        let what = "a rotation needs pairs that vary together along two directions, \
                    by a millionth of the larger covariance";
        let fix = "look for pairs that do not belong together, or use no start";
        return Err(Error::invalid(what, format_args!("{first:.3e} and {second:.3e} mm^2"), fix));
    }
    let u0 = scaled(u0, 1.0 / first);
    let u1 = sub(u1, scaled(u0, dot(u0, u1)));
    let u1 = scaled(u1, 1.0 / norm(u1));
    Ok(outer_sum(&[u0, u1, cross(u0, u1)], &[v0, v1, cross(v0, v1)]))
}

/// Principal axes.
struct Axes {
    /// Standard deviations along them in mm, the largest first.
    spreads: [f64; 3],
    /// Their directions as columns.
    directions: Matrix3,
}

impl Axes {
    fn of(covariance: &Matrix3) -> Self {
        let (values, directions) = symmetric_eigen(covariance);
        Self { spreads: values.map(|value| value.max(0.0).sqrt()), directions }
    }
}

/// Refuses a source or a target that extends along fewer axes.
fn check_extent(axes: &[Axes; 2], count: usize) -> Result<()> {
    let extent = match count {
        1 => "a size: points that are not all at one place",
        2 => "points that are on no line: a second spread",
        _ => "an extent along every axis, points that are in no plane: a third spread",
    };
    for (name, Axes { spreads, .. }) in ["source", "target"].iter().zip(axes) {
        if spreads[count - 1] <= FLAT * spreads[0] {
            let above =
                if count > 1 { format!(" above {FLAT} of the first") } else { String::new() };
            let what = format!("this linear start needs of the {name} {extent}{above}");
            let value = format!("spreads of {} mm", spreads.map(|s| format!("{s:.3e}")).join(", "));
            let fix = "use a start with fewer parameters, or none";
            return Err(Error::invalid(what, format_args!("{value}"), fix));
        }
    }
    Ok(())
}

/// Centre and second moments about it.
struct Moments {
    centre: Position,
    covariance: Matrix3,
}

impl Moments {
    /// Exact for triangles and edges: over a simplex of `n` corners the mean of `x x^T` is
    /// `(sum v v^T + (sum v) (sum v)^T) / (n (n + 1))`.
    fn of(shape: &Shape) -> Result<Self> {
        let (cells, corners) = shape.cells.indices();
        let points: Vec<u32> = (0..shape.points.len() as u32).collect();
        let cells = if cells.is_empty() { points.as_slice() } else { cells };
        let measures = match shape.cells.is_empty() {
            true => vec![1.0; points.len()],
            false => shape.cell_measures(),
        };
        let total: f64 = measures.iter().sum();
        if total <= 0.0 {
            let what = "a shape with moments has an area, a length or points";
            return Err(Error::invalid(what, total, "repair it, or use no linear start"));
        }
        let corners = if shape.cells.is_empty() { 1 } else { corners };
        let middle = |cell: &[u32]| {
            let sum = cell.iter().fold([0.0; 3], |sum, &i| add(sum, shape.points[i as usize]));
            scaled(sum, 1.0 / corners as f64)
        };
        let weighed = cells.chunks_exact(corners).zip(&measures);
        let sum =
            weighed.clone().fold([0.0; 3], |sum, (cell, &m)| add(sum, scaled(middle(cell), m)));
        let centre = scaled(sum, 1.0 / total);
        let mut covariance = [[0.0; 3]; 3];
        let part = 1.0 / (total * (corners * (corners + 1)) as f64);
        for (cell, measure) in weighed {
            let mut v: Vec<Position> =
                cell.iter().map(|&i| sub(shape.points[i as usize], centre)).collect();
            v.push(v.iter().copied().fold([0.0; 3], add));
            let moment = outer_sum(&v, &v);
            (0..3).for_each(|i| {
                covariance[i] = add(covariance[i], scaled(moment[i], part * measure));
            });
        }
        Ok(Self { centre, covariance })
    }
}

#[cfg(test)]
mod tests {
    use ffdp_kit::testing::normal;

    use super::*;

    /// Rounding of f64 in sums of some hundred products of coordinates of 50 mm, in mm: about 1e-12.
    const EXACT: f64 = 1e-9;

    /// Turned by one radian about x, then by two about z, stretched, sheared and moved.
    fn map(scale: f64, shear: f64) -> Map {
        let (s, c) = 1f64.sin_cos();
        let about_x = Map::from_parts([[1.0, 0.0, 0.0], [0.0, c, -s], [0.0, s, c]], [0.0; 3]);
        let (s, c) = 2f64.sin_cos();
        let about_z = Map::from_parts([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]], [0.0; 3]);
        let rows = [[scale, shear, 0.0], [0.0, scale, -0.5 * shear], [0.0, 0.0, scale]];
        Map::from_parts(rows, [0.0; 3]).then(&about_x).then(&about_z).then(&Map::from_parts(
            [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
            [30.0, -50.0, 8.0],
        ))
    }

    fn apart(a: &Map, b: &Map) -> f64 {
        let pairs = a.rows().iter().flatten().zip(b.rows().iter().flatten());
        pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
    }

    fn cloud(seed: u64) -> Vec<Position> {
        normal(36, seed)
            .chunks_exact(3)
            .map(|p| [20.0 * p[0] + 5.0, 12.0 * p[1], 8.0 * p[2]])
            .collect()
    }

    /// A surface without symmetry, of three different extents.
    fn pear() -> Shape {
        let sphere = Shape::sphere(1.0, 2);
        let bend =
            |[x, y, z]: Position| [20.0 * x + 3.0 * x * x, 12.0 * y + 2.0 * y * y, 7.0 * z + z * z];
        let points = sphere.points.iter().map(|&p| bend(p)).collect();
        sphere.with_points(points).expect("as many")
    }

    const KINDS: [(LinearStart, f64, f64); 3] = [
        (LinearStart::Rigid, 1.0, 0.0),
        (LinearStart::Similarity, 1.3, 0.0),
        (LinearStart::Affine, 0.9, 0.4),
    ];

    #[test]
    fn points_that_were_moved_are_found_exactly() {
        for (kind, scale, shear) in KINDS {
            let (source, map) = (cloud(1), map(scale, shear));
            let target: Vec<Position> = source.iter().map(|&p| map.apply(p)).collect();
            let found = kind.of_pairs(&source, &target).expect("points in space");
            assert!(apart(&found, &map) < EXACT, "{kind:?}: {found:?} is not {map:?}");
            // In a plane a rotation is known all the same.
            let flat = |p: &Position| [p[0], p[1], 0.5 * p[0] - p[1]];
            let source: Vec<Position> = source.iter().map(flat).collect();
            let target: Vec<Position> = source.iter().map(|&p| map.apply(p)).collect();
            match kind.of_pairs(&source, &target) {
                Ok(found) => assert!(apart(&found, &map) < EXACT, "{kind:?} in a plane: {found:?}"),
                Err(error) => {
                    assert_eq!(kind, LinearStart::Affine);
                    assert!(error.to_string().contains("in no plane"), "{error}");
                }
            }
        }
    }

    /// The corners of a box have half of its sides as spreads: both ways to a map accept the same ones.
    #[test]
    fn thin_shapes_are_scaled_to_a_thousandth_and_thinner_ones_refused_with_their_spreads() {
        // Rounding, times the ratio of the second moments that are inverted.
        let tolerance = 1e-12 * (20.0f64 / 0.04).powi(2);
        for thin in [0.04, 0.01] {
            let signs = |k: u32| [0, 1, 2].map(|i| if k >> i & 1 == 0 { -1.0 } else { 1.0 });
            let corner = |[x, y, z]: Position| [20.0 * x, 10.0 * y, thin * z];
            let source: Vec<Position> = (0..8).map(|k| corner(signs(k))).collect();
            let map = map(0.9, 0.4);
            let target: Vec<Position> = source.iter().map(|&p| map.apply(p)).collect();
            let pairs = LinearStart::Affine.of_pairs(&source, &target);
            let shape = Shape::cloud(source).expect("points");
            let moments = LinearStart::Affine.of_moments(&shape, &shape);
            if thin > FLAT * 20.0 {
                let found = pairs.expect("a thin box");
                assert!(apart(&found, &map) < tolerance, "{found:?} is not {map:?}");
                let found = moments.expect("a thin box");
                assert!(apart(&found, &Map::identity()) < tolerance, "{found:?}");
            } else {
                for refused in [pairs, moments] {
                    let text = refused.expect_err("too thin").to_string();
                    let spreads = "source an extent along every axis";
                    assert!(text.contains(spreads) && text.contains("above 0.001"), "{text}");
                    assert!(text.contains("2.000e1, 1.000e1, 1.000e-2 mm"), "{text}");
                }
            }
        }
    }

    #[test]
    fn a_rotation_of_other_points_is_the_nearest_one_and_does_not_mirror() {
        for mirror in [1.0, -1.0] {
            let (source, target) = (cloud(1), cloud(2));
            let target: Vec<Position> =
                target.iter().map(|p| [mirror * p[0], p[1], p[2]]).collect();
            let found = LinearStart::Rigid.of_pairs(&source, &target).expect("points in space");
            assert!((found.determinant() - 1.0).abs() < EXACT, "{found:?}");
            let cost = |map: &Map| -> f64 {
                let pairs = source.iter().zip(&target);
                pairs.map(|(&x, &y)| norm(sub(map.apply(x), y)).powi(2)).sum()
            };
            let least = cost(&found);
            for axis in 0..3 {
                for angle in [-0.01f64, 0.01] {
                    let (s, c) = angle.sin_cos();
                    let (i, j) = ((axis + 1) % 3, (axis + 2) % 3);
                    let mut turn = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
                    (turn[i][i], turn[i][j], turn[j][i], turn[j][j]) = (c, -s, s, c);
                    let turned = found.then(&Map::from_parts(turn, [0.0; 3]));
                    // The best shift for it: the centres meet.
                    let centre = |points: &[Position]| {
                        scaled(points.iter().copied().fold([0.0; 3], add), 1.0 / 12.0)
                    };
                    let centres = [centre(&source), centre(&target)];
                    assert!(cost(&between(turned.linear(), centres)) > least, "{axis} {angle}");
                }
            }
        }
    }

    #[test]
    fn surfaces_that_were_moved_are_found_exactly() {
        for (kind, scale, shear) in &KINDS[..2] {
            let (source, map) = (pear(), map(*scale, *shear));
            let found = kind.of_moments(&source, &source.transformed(&map)).expect("a body");
            assert!(apart(&found, &map) < EXACT, "{kind:?}: {found:?} is not {map:?}");
        }
        // Where it lies already it stays, whatever its axes.
        let ball = Shape::sphere(5.0, 2);
        let found = LinearStart::Rigid.of_moments(&ball, &ball).expect("a body");
        assert!(apart(&found, &Map::identity()) < EXACT, "{found:?}");
    }

    #[test]
    fn an_affine_start_has_the_second_moments_of_the_target() {
        let [source, target] = [1, 2].map(|seed| Shape::cloud(cloud(seed)).expect("points"));
        let found = LinearStart::Affine.of_moments(&source, &target).expect("clouds in space");
        let moved = source.transformed(&found);
        let [a, b] = [&moved, &target].map(|shape| Moments::of(shape).expect("points"));
        assert!(norm(sub(a.centre, b.centre)) < EXACT, "{:?} {:?}", a.centre, b.centre);
        for (a, b) in a.covariance.iter().zip(&b.covariance) {
            assert!(norm(sub(*a, *b)) < EXACT, "{a:?} {b:?}");
        }
    }

    #[test]
    fn moments_of_surfaces_and_curves_are_those_of_all_their_places() {
        // A rectangle of 6 by 2 mm in two triangles, a segment of 6 mm.
        let corners = vec![[0.0; 3], [6.0, 0.0, 0.0], [6.0, 2.0, 0.0], [0.0, 2.0, 0.0]];
        let plate = Shape::mesh(corners, vec![[0, 1, 2], [0, 2, 3]]).expect("a plate");
        let rod = Shape::curve(vec![[0.0; 3], [6.0, 0.0, 0.0]], false).expect("a rod");
        for (shape, width) in [(plate, 2.0), (rod, 0.0)] {
            let Moments { centre, covariance } = Moments::of(&shape).expect("an extent");
            // The variance of a uniform distribution over a length is a twelfth of its square.
            let expected = [[3.0, 0.0, 0.0], [0.0, width * width / 12.0, 0.0], [0.0; 3]];
            assert!(norm(sub(centre, [3.0, width / 2.0, 0.0])) < EXACT, "{centre:?}");
            for (found, expected) in covariance.iter().zip(expected) {
                assert!(norm(sub(*found, expected)) < EXACT, "{covariance:?}");
            }
        }
    }

    #[test]
    fn what_does_not_determine_a_map_is_refused() {
        let line: Vec<Position> = (0..5).map(|k| [f64::from(k), 2.0, -f64::from(k)]).collect();
        let refused = |kind: LinearStart| {
            let of_pairs = kind.of_pairs(&line, &line).expect_err("a line").to_string();
            let shape = Shape::cloud(line.clone()).expect("points");
            (of_pairs, kind.of_moments(&shape, &shape).map(|_| ()).map_err(|e| e.to_string()))
        };
        let (pairs, moments) = refused(LinearStart::Rigid);
        assert!(pairs.contains("on no line") && moments.is_ok(), "{pairs} {moments:?}");
        let (pairs, moments) = refused(LinearStart::Affine);
        let moments = moments.expect_err("no extent along two axes");
        assert!(
            pairs.contains("in no plane") && moments.contains("every axis"),
            "{pairs} {moments}"
        );
        for kind in [LinearStart::Rigid, LinearStart::Similarity, LinearStart::Affine] {
            let none = kind.of_pairs(&[], &[]).expect_err("no points").to_string();
            assert!(none.contains("needs points, got 0"), "{none}");
        }
        // Spread along two axes each, but together along one only.
        let square = [[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]];
        let source = square.map(|[x, y]| [x, y, 0.0]);
        let target = square.map(|[x, y]| [x, x * y, 0.0]);
        let pairs = LinearStart::Rigid.of_pairs(&source, &target).expect_err("one direction");
        assert!(pairs.to_string().contains("got 1.000e0 and 0.000e0 mm^2"), "{pairs}");
        let shorter = LinearStart::Rigid.of_pairs(&line[1..], &line).expect_err("one is missing");
        assert!(shorter.to_string().contains("correspond"), "{shorter}");
    }
}
