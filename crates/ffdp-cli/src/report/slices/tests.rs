//! What is drawn of small images.

use super::*;

/// A ramp along RAS x on a grid that runs the other way, with a step of 3 mm.
fn flipped_ramp() -> Volume {
    let direction = [[-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
    let geometry = Geometry::new([8, 9, 10], [3.0, 2.0, 1.0])
        .and_then(|g| g.with_direction(direction))
        .expect("valid");
    let value = |offset: usize| 1.0 + (7 - geometry.index_of(offset)[0]) as f32;
    let data = (0..geometry.len()).map(value).collect();
    Volume::new(data, geometry).expect("sizes match")
}

/// A report's panels of a fixed and an unregistered moving image.
fn panels([fixed, before]: [&Volume; 2], displacement: &[f32], determinant: f32) -> Panels {
    let mut panels = Panels::through_mass(fixed).expect("finite");
    for (quantity, image) in
        [(Quantity::Fixed, fixed), (Quantity::Before, before), (Quantity::Warped, fixed)]
    {
        panels.add(quantity, 0, &image.data);
    }
    let components = displacement.chunks(fixed.data.len());
    for (component, values) in components.enumerate() {
        panels.add(Quantity::Displacement(component), 0, values);
    }
    panels.add_determinants(0..fixed.geometry.size[2], |_, _| determinant);
    panels
}

fn drawn(fixed: &Volume, displacement: &[f32], determinant: f32) -> Pictures {
    panels([fixed, fixed], displacement, determinant).draw()
}

fn zero_displacement(image: &Volume) -> Vec<f32> {
    vec![0.0; 3 * image.data.len()]
}

#[test]
fn right_is_right_whatever_the_voxel_order() {
    let image = flipped_ramp();
    let pictures = drawn(&image, &zero_displacement(&image), 1.0);
    let axial = pictures.get(0, View::Fixed);
    let height = (16.0f64 / 21.0 * (PANEL - 1) as f64).round() as usize + 1;
    assert_eq!((axial.width, axial.height), (PANEL, height));
    let middle = axial.height / 2 * axial.width;
    let line: Vec<u8> = (0..axial.width).map(|x| axial.pixels[middle + x][0]).collect();
    assert!(line.is_sorted(), "brighter to the patient's right: {line:?}");
    assert!(line[0] < 10 && line[axial.width - 1] > 245);
}

#[test]
fn equal_images_have_no_difference_and_a_seamless_checkerboard() {
    let image = flipped_ramp();
    let pictures = drawn(&image, &zero_displacement(&image), 1.0);
    for plane in 0..3 {
        let black = &pictures.get(plane, View::DifferenceAfter).pixels;
        assert!(black.iter().all(|pixel| *pixel == [0, 0, 0]));
        let checks = &pictures.get(plane, View::ChecksBefore).pixels;
        assert!(*checks == pictures.get(plane, View::Fixed).pixels);
        let volume = &pictures.get(plane, View::LogJacobian).pixels;
        assert!(volume.iter().all(|pixel| *pixel == diverging(0.0)));
    }
}

#[test]
fn a_checkerboard_has_both_images() {
    let image = flipped_ramp();
    let mut other = image.clone();
    other.data.reverse();
    let pictures = panels([&image, &other], &zero_displacement(&image), 1.0).draw();
    let [fixed, moving, checks] =
        [View::Fixed, View::Moving, View::ChecksBefore].map(|view| &pictures.get(0, view).pixels);
    let same = |image: &[Rgb]| image.iter().zip(checks).filter(|(a, b)| a == b).count();
    let count = checks.len();
    for part in [same(fixed), same(moving)] {
        // Half, but for the middle where the ramps cross and tiles that the border cuts.
        assert!(part > count * 2 / 5 && part < count * 3 / 5, "{part} of {count}");
    }
}

#[test]
fn folds_are_marked_and_expansion_is_red() {
    let image = flipped_ramp();
    let displacement = zero_displacement(&image);
    let pictures = drawn(&image, &displacement, 2.0);
    assert_eq!(pictures.log_jacobian_range, 0.7);
    let [r, _, b] = pictures.get(1, View::LogJacobian).pixels[0];
    assert!(r > b);
    let pictures = drawn(&image, &displacement, -0.1);
    assert!(pictures.get(1, View::LogJacobian).pixels.iter().all(|pixel| *pixel == FOLD));
}

#[test]
fn planes_that_come_one_by_one_give_the_pictures_of_the_whole() {
    let image = flipped_ramp();
    let count = image.data.len();
    let displacement: Vec<f32> = (0..3 * count).map(|i| (i % 7) as f32 * 0.25 - 1.0).collect();
    let mut other = image.clone();
    other.data.reverse();
    let mut whole = panels([&image, &other], &[], 1.0);
    let all = FieldPlanes { displacement: &displacement, first: 0, own: 0..10 };
    whole.add_displacement(&all).expect("of the grid");
    let whole = whole.draw();
    let mut panels = Panels::through_mass(&image).expect("finite");
    // Two planes, then one, and so on, of one quantity after the other.
    let plane = 8 * 9;
    for first in [0, 2, 3, 5, 6, 8, 9] {
        let end = [2, 3, 5, 6, 8, 9, 10].into_iter().find(|end| *end > first).expect("it");
        let part = |data: &[f32]| data[first * plane..end * plane].to_vec();
        panels.add(Quantity::Fixed, first, &part(&image.data));
        panels.add(Quantity::Before, first, &part(&other.data));
        panels.add(Quantity::Warped, first, &part(&image.data));
        let held = first.saturating_sub(1)..(end + 1).min(10);
        let component =
            |c: usize| &displacement[c * count + held.start * plane..c * count + held.end * plane];
        let displacement = &[component(0), component(1), component(2)].concat();
        let planes = FieldPlanes { displacement, first: held.start, own: first..end };
        panels.add_displacement(&planes).expect("of the grid");
    }
    let parts = panels.draw();
    assert_eq!(parts.log_jacobian_range, whole.log_jacobian_range);
    for (a, b) in parts.planes.iter().flatten().zip(whole.planes.iter().flatten()) {
        assert!(a.pixels == b.pixels);
    }
}

#[test]
fn panels_show_the_planes_through_their_centre() {
    let geometry = Geometry::new([9, 9, 9], [2.0; 3]).expect("valid");
    // Bright on the middle planes alone, each of another brightness.
    for axis in 0..3 {
        let value = |offset: usize| f32::from(u8::from(geometry.index_of(offset)[axis] == 4));
        let data: Vec<f32> = (0..geometry.len()).map(value).collect();
        let mut panels = Panels::new(&geometry, geometry.center_mm(), "middle");
        for (z, plane) in data.chunks(81).enumerate() {
            panels.add(Quantity::Fixed, z, plane);
        }
        panels.add_determinants(0..9, |_, _| 1.0);
        let pictures = panels.draw();
        for plane in 0..3 {
            // Axial is across z, coronal across y, sagittal across x.
            let all = pictures.get(plane, View::Fixed).pixels.iter().all(|p| *p == [255; 3]);
            assert_eq!(all, plane == 2 - axis, "axis {axis}, plane {plane}");
        }
    }
}

#[test]
fn no_motion_is_a_regular_grid() {
    let image = flipped_ramp();
    let zero = zero_displacement(&image);
    // The line of pixels that runs between two horizontal lines of the grid.
    let lines = |displacement: &[f32]| -> Vec<usize> {
        let pictures = drawn(&image, displacement, 1.0);
        let panel = pictures.get(0, View::Grid);
        let columns =
            |row: &[Rgb]| -> Vec<usize> { (0..panel.width).filter(|&x| row[x] == GRID).collect() };
        let rows = panel.pixels.chunks(panel.width);
        rows.map(columns).min_by_key(Vec::len).expect("the panel has rows")
    };
    let regular = lines(&zero);
    let width = PANEL as f64 / MESHES;
    let steps = regular.windows(2).map(|pair| (pair[1] - pair[0]) as f64);
    assert!(regular.len() >= 20 && steps.clone().all(|s| (s - width).abs() <= 1.0));
    // Everything is carried by half a mesh to the right: lines come half a mesh earlier.
    let mut moved = zero.clone();
    moved[..image.data.len()].fill((-21.0 / MESHES / 2.0 / 3.0) as f32);
    let shifted = lines(&moved);
    let offset = (regular[3] as f64 - shifted[3] as f64).rem_euclid(width);
    assert!((offset - width / 2.0).abs() <= 1.5, "{regular:?} {shifted:?}");
}

#[test]
fn control_points_lie_on_the_fixed_image_and_are_carried_along() {
    let image = flipped_ramp();
    let zero = zero_displacement(&image);
    // Control points 7 mm apart, along the same axes as the voxels.
    let spacing = [7.0; 3];
    let grid = Geometry::new([6, 6, 6], spacing)
        .and_then(|g| g.with_direction(image.geometry.direction))
        .and_then(|g| g.with_origin([7.0, -7.0, -7.0]))
        .expect("valid");
    let columns = |displacement: &[f32]| -> Vec<usize> {
        let mut panels = panels([&image, &image], displacement, 1.0);
        panels.controls = Some(grid.clone());
        let pictures = panels.draw();
        assert!(pictures.has_controls);
        let panel = pictures.get(0, View::Controls);
        let rows = panel.pixels.chunks(panel.width);
        let lines = |row: &[Rgb]| (0..panel.width).filter(|&x| row[x] == GRID).collect::<Vec<_>>();
        rows.map(lines).filter(|row| !row.is_empty()).min_by_key(Vec::len).expect("there are lines")
    };
    let regular = columns(&zero);
    let steps: Vec<usize> = regular.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // 21 mm are 299 pixels; lines that are thicker than a pixel have steps of one.
    let apart = 7.0 / 21.0 * (PANEL - 1) as f64;
    let far: Vec<_> = steps.iter().filter(|s| **s > 2).collect();
    assert!(!far.is_empty() && far.iter().all(|s| (**s as f64 - apart).abs() <= 2.0), "{steps:?}");
    let mut moved = zero.clone();
    // 2 mm, in voxels of 3 mm along an axis that is turned round.
    moved[..image.data.len()].fill(-2.0 / 3.0);
    let shifted = columns(&moved);
    let offset = shifted[0] as f64 - regular[0] as f64;
    assert!((offset - 2.0 / 21.0 * (PANEL - 1) as f64).abs() <= 2.0, "{regular:?} {shifted:?}");
}
