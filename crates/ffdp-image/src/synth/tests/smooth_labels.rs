//! Upsampled label maps against the shapes they were voxelised from.

use super::*;
use crate::image::{Geometry, LabelMap};

/// Labels of a grid by position in voxels of a grid of 1 mm, of the same field of view.
fn voxelised(size: [usize; 3], factor: usize, label: impl Fn([f64; 3]) -> i32) -> LabelMap {
    let coarse = Geometry::new(size, [1.0; 3]).expect("valid");
    let geometry = coarse.resized(size.map(|n| n * factor)).expect("valid");
    let to_mm = geometry.voxel_to_mm();
    let at = |offset| label(to_mm.apply(geometry.index_of(offset).map(|i| i as f64)));
    LabelMap::new((0..geometry.len()).map(at).collect(), geometry).expect("sizes match")
}

/// The smooth function of a label map, on a grid `factor` times as fine.
fn upsampled(labels: &LabelMap, factor: usize) -> LabelMap {
    let geometry = labels.geometry.resized(labels.geometry.size.map(|n| n * factor));
    let geometry = geometry.expect("valid");
    let smooth = SmoothLabels::new(labels).expect("few labels");
    let data = label_slices(&smooth, None, &geometry, 0..geometry.size[2]);
    LabelMap::new(data, geometry).expect("sizes match")
}

fn nearest(labels: &LabelMap, factor: usize) -> LabelMap {
    let geometry = labels.geometry.resized(labels.geometry.size.map(|n| n * factor));
    let geometry = geometry.expect("valid");
    let [nx, ny, _] = labels.geometry.size;
    let at = |offset| {
        let [x, y, z] = geometry.index_of(offset).map(|i| i / factor);
        labels.data[(z * ny + y) * nx + x]
    };
    LabelMap::new((0..geometry.len()).map(at).collect(), geometry.clone()).expect("sizes match")
}

fn distance([x, y, z]: [f64; 3], centre: [f64; 3]) -> f64 {
    (x - centre[0]).hypot(y - centre[1]).hypot(z - centre[2])
}

fn count(labels: &LabelMap, id: i32) -> usize {
    labels.data.iter().filter(|&&label| label == id).count()
}

/// The neighbour of a voxel along an axis, if there is one.
fn next(geometry: &Geometry, offset: usize, axis: usize) -> Option<usize> {
    let [nx, ny, _] = geometry.size;
    let inside = geometry.index_of(offset)[axis] + 1 < geometry.size[axis];
    inside.then(|| offset + [1, nx, nx * ny][axis])
}

/// Root mean square of a function over the faces between different labels.
fn rms_on_boundary(labels: &LabelMap, value: impl Fn([f64; 3]) -> f64) -> f64 {
    let to_mm = labels.geometry.voxel_to_mm();
    let mut squares = Vec::new();
    for offset in 0..labels.data.len() {
        for axis in 0..3 {
            let Some(other) = next(&labels.geometry, offset, axis) else { continue };
            if labels.data[offset] != labels.data[other] {
                let mut middle = labels.geometry.index_of(offset).map(|i| i as f64);
                middle[axis] += 0.5;
                squares.push(value(to_mm.apply(middle)).powi(2));
            }
        }
    }
    mean(squares).sqrt()
}

/// Area of the label's surface, mm^2: the integral of |grad f|, f the label's indicator under a
/// box of 5^3 voxels, which no longer shows the voxels of the grid itself.
fn area(labels: &LabelMap, id: i32) -> f64 {
    let size = labels.geometry.size;
    let mut f: Vec<f64> = labels.data.iter().map(|&l| f64::from(u8::from(l == id))).collect();
    let strides = [1, size[0], size[0] * size[1]];
    for axis in 0..3 {
        let from = f.clone();
        for (offset, value) in f.iter_mut().enumerate() {
            let index = labels.geometry.index_of(offset)[axis];
            let taps = (0..5).filter_map(|t| {
                let at = (index + t).checked_sub(2).filter(|&at| at < size[axis])?;
                Some(from[offset - index * strides[axis] + at * strides[axis]])
            });
            *value = taps.sum::<f64>() / 5.0;
        }
    }
    let slope = |offset: usize, axis: usize| {
        let index = labels.geometry.index_of(offset)[axis];
        let inside = index > 0 && index + 1 < size[axis];
        if inside { 0.5 * (f[offset + strides[axis]] - f[offset - strides[axis]]) } else { 0.0 }
    };
    let steep = |offset| slope(offset, 0).hypot(slope(offset, 1)).hypot(slope(offset, 2));
    let spacing = labels.geometry.spacing_mm[0];
    (0..f.len()).map(steep).sum::<f64>() * spacing * spacing
}

#[test]
fn a_ball_keeps_volume_surface_and_place() {
    // Off the voxel lattice, so that no symmetry helps.
    let centre = [15.8, 16.3, 16.1];
    for (radius, volume_bound) in [(3.0, 0.1), (6.0, 0.05), (11.0, 0.015)] {
        let ball = |p| i32::from(distance(p, centre) < radius);
        let (coarse, truth) = (voxelised([32; 3], 1, ball), voxelised([32; 3], 4, ball));
        let (fine, blocks) = (upsampled(&coarse, 4), nearest(&coarse, 4));
        let volume = |map: &LabelMap| count(map, 1) as f64 / count(&truth, 1) as f64 - 1.0;
        let surface = |map: &LabelMap| area(map, 1) / area(&truth, 1) - 1.0;
        let rms = |map: &LabelMap| rms_on_boundary(map, |p| distance(p, centre) - radius);
        println!(
            "radius {radius}: volume {:+.3}, area {:+.3} (nearest {:+.3}), distance rms {:.3} mm \
             (nearest {:.3}, voxelised {:.3})",
            volume(&fine),
            surface(&fine),
            surface(&blocks),
            rms(&fine),
            rms(&blocks),
            rms(&truth)
        );
        assert!(volume(&fine).abs() < volume_bound, "radius {radius}");
        // Area goes as volume to 2/3; the rest is roughness, of which blocks add 7 to 8 %.
        let smooth = (1.0 + volume(&fine)).powf(2.0 / 3.0) - 1.0;
        assert!((surface(&fine) - smooth).abs() < 0.015, "radius {radius}");
        // The nearest voxel is off by 0.29 mm rms, a quarter millimetre's own voxels by 0.05.
        assert!(rms(&fine) < 0.6 * rms(&blocks), "radius {radius}");
    }
}

#[test]
fn an_ellipsoid_is_smoother_than_its_blocks() {
    let (centre, radii) = ([15.8, 16.3, 16.1], [12.0, 7.0, 4.0]);
    let inside = |p: [f64; 3]| {
        let scaled: [f64; 3] = std::array::from_fn(|i| (p[i] - centre[i]) / radii[i]);
        i32::from(distance(scaled, [0.0; 3]) < 1.0)
    };
    let (coarse, truth) = (voxelised([32; 3], 1, inside), voxelised([32; 3], 4, inside));
    let fine = upsampled(&coarse, 4);
    let ratio = area(&fine, 1) / area(&truth, 1);
    assert!((ratio - 1.0).abs() < 0.03, "{ratio}");
    let both = dice(&fine.data, &truth.data).expect("one grid").mean();
    let blocks = dice(&nearest(&coarse, 4).data, &truth.data).expect("one grid").mean();
    // Most of what is left is what voxels of 1 mm cannot say.
    assert!(1.0 - both < 0.6 * (1.0 - blocks), "{both}, nearest {blocks}");
}

/// Number of 6-connected pieces of a label.
fn pieces(labels: &LabelMap, id: i32) -> usize {
    let mut open: Vec<bool> = labels.data.iter().map(|&label| label == id).collect();
    let strides = [1, labels.geometry.size[0], labels.geometry.size[0] * labels.geometry.size[1]];
    let mut pieces = 0;
    for start in 0..open.len() {
        if !std::mem::take(&mut open[start]) {
            continue;
        }
        pieces += 1;
        let mut stack = vec![start];
        while let Some(offset) = stack.pop() {
            let index = labels.geometry.index_of(offset);
            for axis in 0..3 {
                let before = (index[axis] > 0).then(|| offset - strides[axis]);
                for neighbour in before.into_iter().chain(next(&labels.geometry, offset, axis)) {
                    if std::mem::take(&mut open[neighbour]) {
                        stack.push(neighbour);
                    }
                }
            }
        }
    }
    pieces
}

#[test]
fn thin_sheets_survive_in_one_piece() {
    let centre = [15.8, 16.3, 16.1];
    for (name, normal, thickness) in [
        ("along the axes, two voxels", [1.0, 0.0, 0.0], 2.0),
        ("hardly tilted", [1.0, 0.08, 0.05], 2.0),
        ("tilted", [1.0, 0.4, 0.2], 2.0),
        ("one voxel", [1.0, 0.0, 0.0], 1.0),
        ("tilted, as thin as stays connected", [0.5, 0.4, 0.2], 1.3),
    ] {
        let length = distance(normal, [0.0; 3]);
        let sheet = |p: [f64; 3]| {
            let height: f64 = (0..3).map(|i| (p[i] - centre[i]) * normal[i] / length).sum();
            i32::from(height.abs() < thickness / 2.0 && distance(p, centre) < 13.0)
        };
        let coarse = voxelised([32; 3], 1, sheet);
        let fine = upsampled(&coarse, 4);
        assert_eq!((pieces(&coarse, 1), pieces(&fine, 1)), (1, 1), "{name}");
        let volume = count(&fine, 1) as f64 / (64 * count(&coarse, 1)) as f64;
        assert!((0.9..1.1).contains(&volume), "{name}: volume {volume}");
    }
}

/// Labels without any order: the hardest map there is.
fn disorder(size: [usize; 3], labels: u64) -> LabelMap {
    let geometry = Geometry::new(size, [1.0, 1.5, 2.0]).expect("valid");
    let label = |i: usize| {
        let bits = (i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((bits ^ (bits >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 40) % labels
    };
    let data = (0..geometry.len()).map(|i| 3 * label(i) as i32 - 3).collect();
    LabelMap::new(data, geometry).expect("sizes match")
}

#[test]
fn every_voxel_centre_keeps_its_label() {
    let phantom = subject(&PhantomSettings::with_size([48; 3]), 3).expect("valid").labels;
    for labels in
        [phantom, disorder([12, 9, 11], 4), disorder([12, 9, 11], 2), disorder([5, 1, 7], 3)]
    {
        // Every third voxel of the grid three times as fine is a centre.
        let [nx, ny, _] = labels.geometry.size;
        let fine = upsampled(&labels, 3);
        for (offset, &label) in labels.data.iter().enumerate() {
            let [x, y, z] = labels.geometry.index_of(offset).map(|i| 3 * i + 1);
            let there = fine.data[(z * 3 * ny + y) * 3 * nx + x];
            assert_eq!(there, label, "{:?} of {:?}", [x, y, z], labels.geometry.size);
        }
    }
}

#[test]
fn borders_are_as_good_as_the_inside() {
    // A label that fills the image, and one that ends at a plane: exact, to the last voxel.
    let one = voxelised([6, 5, 4], 1, |_| 7);
    assert!(upsampled(&one, 4).data.iter().all(|&label| label == 7));
    let halves = voxelised([8, 5, 4], 1, |[x, ..]| if x < 2.5 { 4 } else { 9 });
    assert_eq!(upsampled(&halves, 4).data, nearest(&halves, 4).data);
    // Beyond the outermost faces is background, whatever the border's label.
    let smooth = SmoothLabels::new(&halves).expect("few labels");
    let mut labels = [1; 5];
    let points =
        [[-0.6, 0.0, 0.0], [-0.4, 0.0, 0.0], [7.4, 4.4, 3.4], [7.4, 4.6, 3.4], [f64::NAN; 3]];
    smooth.label_line(&points, &mut labels);
    assert_eq!(labels, [0, 4, 9, 0, 0]);
}

#[test]
fn labels_stay_where_they_are_in_space_on_any_finer_grid() {
    // Oblique axes, anisotropic voxels, and a spacing that divides none of them.
    let settings = PhantomSettings::with_size([40; 3]);
    let mut labels = subject(&settings, 9).expect("valid").labels;
    let (s, c) = (0.3f64.sin(), 0.3f64.cos());
    labels.geometry = Geometry::new([40; 3], [4.0, 5.0, 4.4])
        .and_then(|g| g.with_direction([[c, 0.0, -s], [0.0, -1.0, 0.0], [s, 0.0, c]]))
        .and_then(|g| g.with_origin([11.0, -7.0, 3.0]))
        .expect("valid");
    let smooth = SmoothLabels::new(&labels).expect("few labels");
    let fine = labels.geometry.resized([93, 97, 101]).expect("valid");
    let data = label_slices(&smooth, None, &fine, 0..101);
    let fine = LabelMap::new(data, fine).expect("sizes match");
    let centroid = |map: &LabelMap, id: i32| {
        let to_mm = map.geometry.voxel_to_mm();
        let mut sum = [0.0; 3];
        for (offset, _) in map.data.iter().enumerate().filter(|(_, label)| **label == id) {
            let p = to_mm.apply(map.geometry.index_of(offset).map(|i| i as f64));
            (0..3).for_each(|i| sum[i] += p[i]);
        }
        sum.map(|v| v / count(map, id) as f64)
    };
    for structure in Structure::ALL.map(Structure::id) {
        let moved = distance(centroid(&labels, structure), centroid(&fine, structure));
        // A grid misplaced by half a fine voxel moves all labels by 1.7 mm. Those of some hundred voxels
        // change their shape, and with it their centroid: 0.87 mm at most here, 0.68 for the fluid, a shell, and 0.32 for others.
        let voxels = count(&labels, structure);
        let bound = if voxels > 1000 { 0.8 } else { 1.2 };
        println!("label {structure}, {voxels} voxels: centroid moved by {moved:.3} mm");
        assert!(moved < bound, "label {structure}: {moved} mm");
    }
}

#[test]
fn a_brain_keeps_its_volumes_and_comes_back() {
    let labels = subject(&PhantomSettings::with_size([96; 3]), 5).expect("valid").labels;
    let fine = upsampled(&labels, 2);
    for id in labels.ids() {
        let volume = count(&fine, id) as f64 / (8 * count(&labels, id)) as f64;
        // Structures of a few hundred voxels are all surface and lose up to 4.2 %; the cortex here is
        // two voxels thick and loses 2.8 % at its folds, which the fluid around it gains (3.2 %).
        let voxels = count(&labels, id);
        let bound = if voxels > 2000 { 0.04 } else { 0.06 };
        println!("label {id}, {voxels} voxels: volume {volume:.4}");
        assert!((volume - 1.0).abs() < bound, "label {id}: {volume}");
    }
    let back = coarsen_labels(&fine.data, [192; 2], 2);
    let scores = dice(&labels.data, &back).expect("one grid");
    assert!(scores.mean() > 0.97, "{}", scores.mean());
}

#[test]
fn an_image_is_no_label_map() {
    let geometry = Geometry::new([256, 257, 1], [1.0; 3]).expect("valid");
    let labels = LabelMap::new((0..256 * 257).collect(), geometry).expect("sizes match");
    let text = SmoothLabels::new(&labels).expect_err("too many").to_string();
    assert!(text.contains("65792"), "{text}");
}
