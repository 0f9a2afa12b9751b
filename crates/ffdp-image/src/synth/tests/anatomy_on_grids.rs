//! One anatomy on every grid.

use super::*;

#[test]
fn grids_that_share_voxel_centres_share_labels_exactly() {
    let coarse = PhantomSettings::with_size([32, 33, 31]);
    let spacing = coarse.geometry().expect("valid").spacing_mm;
    let fine = PhantomSettings {
        size: [63, 65, 61],
        spacing_mm: Some(spacing.map(|s| s / 2.0)),
        ..coarse.clone()
    };
    let (a, b) = (subject(&coarse, 5).expect("valid"), subject(&fine, 5).expect("valid"));
    let same = (0..a.labels.data.len()).filter(|&offset| {
        let [x, y, z] = a.labels.geometry.index_of(offset).map(|i| 2 * i);
        a.labels.data[offset] == b.labels.data[(z * 65 + y) * 63 + x]
    });
    // Rounding may tip a voxel that lies on a boundary.
    let differing = a.labels.data.len() - same.count();
    assert!(differing <= 3, "{differing} voxels differ");
}

#[test]
fn anisotropic_spacing_keeps_every_volume() {
    let volumes = |settings: &PhantomSettings| {
        let labels = subject(settings, 8).expect("valid").labels;
        let voxel: f64 = labels.geometry.spacing_mm.iter().product();
        let mut volumes = BTreeMap::<i32, f64>::new();
        labels.data.iter().for_each(|&id| *volumes.entry(id).or_default() += voxel);
        volumes
    };
    let isotropic = volumes(&PhantomSettings::with_size([100; 3]));
    let anisotropic = PhantomSettings {
        size: [100, 140, 60],
        spacing_mm: Some([1.7, 1.5, 3.0]),
        ..default_size()
    };
    let anisotropic = volumes(&anisotropic);
    for structure in Structure::ALL {
        let (a, b) = (isotropic[&structure.id()], anisotropic[&structure.id()]);
        // Counting voxels of 8 and 7.6 mm^3 measures structures of 2 cm^3 to a few percent.
        assert!((a / b - 1.0).abs() < 0.08, "{}: {a} and {b} mm^3", structure.name());
    }
}

#[test]
fn the_head_lies_inside_the_default_grid() {
    for seed in 0..6 {
        let labels = subject(&default_size(), seed).expect("valid").labels;
        let edge = labels.data.iter().enumerate().filter(|(offset, id)| {
            let index = labels.geometry.index_of(*offset);
            **id != 0 && index.iter().any(|&i| i == 0 || i == 63)
        });
        assert_eq!(edge.count(), 0, "seed {seed}");
    }
}

#[test]
fn the_axes_are_right_anterior_superior() {
    let anatomy = Anatomy::default();
    let at = |p| anatomy.structure(p);
    assert_eq!(at([-12.0, -18.0, 6.0]), Some(Structure::LeftThalamus));
    assert_eq!(at([12.0, -18.0, 6.0]), Some(Structure::RightThalamus));
    assert_eq!(at([0.0, -26.0, -30.0]), Some(Structure::Brainstem));
    assert_eq!(at([0.0, 26.0, 10.0]).map(|s| s.name()), Some("right white matter"));
    assert_eq!(at([0.0, 200.0, 0.0]), None);
    assert_eq!(at([f64::NAN; 3]), None);
}
