//! Subjects slab by slab.

use super::determinism::on_threads;
use super::*;
use crate::image::Geometry;

/// Labels and image of a whole subject, from slabs of a thickness.
fn whole(thickness: usize, smoothing_voxels: f64) -> (Vec<i32>, Vec<f32>) {
    let labels = subject(&PhantomSettings::with_size([20, 24, 22]), 4).expect("valid").labels;
    let smooth = SmoothLabels::new(&labels).expect("few labels");
    let table = IntensityTable::of_phantom(Modality::T1);
    let warp = Diffeomorphism::random(&WarpSettings::default(), 8).expect("valid");
    let geometry = labels.geometry.resized([31, 40, 37]).expect("valid");
    let source = SubjectSource {
        field: &smooth,
        warp: Some(&warp),
        table: &table,
        geometry,
        smoothing_voxels,
        seed: 12,
    };
    let (mut ids, mut image, mut next) = (Vec::new(), Vec::new(), 0);
    for slab in Slabs::new(source, thickness).expect("valid") {
        assert_eq!(slab.z.start, next);
        next = slab.z.end;
        ids.extend(slab.labels);
        image.extend(slab.image);
    }
    assert_eq!((next, ids.len(), image.len()), (37, 31 * 40 * 37, 31 * 40 * 37));
    (ids, image)
}

fn bits(image: &[f32]) -> Vec<u32> {
    image.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn thickness_and_threads_change_no_bit() {
    for smoothing in [0.75, 0.0, 2.0] {
        let (labels, image) = on_threads(1, || whole(37, smoothing));
        for thickness in [1, 2, 7, 36, 100] {
            let (other_labels, other) = on_threads(3, || whole(thickness, smoothing));
            assert_eq!(labels, other_labels, "{thickness} slices");
            assert_eq!(bits(&image), bits(&other), "{thickness} slices, {smoothing} voxels");
        }
    }
}

#[test]
fn smoothing_takes_noise_and_keeps_the_mean() {
    // One label everywhere: an ellipsoid of white matter inside which nothing else lies.
    let geometry = Geometry::new([40; 3], [1.0; 3]).expect("valid");
    let labels = crate::image::LabelMap::new(vec![2; 64_000], geometry.clone()).expect("fits");
    let smooth = SmoothLabels::new(&labels).expect("one label");
    let table = IntensityTable::of_aseg(Modality::T1);
    let source = SubjectSource {
        field: &smooth,
        warp: None,
        table: &table,
        geometry: geometry.clone(),
        smoothing_voxels: 0.75,
        seed: 1,
    };
    let image: Vec<f32> =
        Slabs::new(source, 8).expect("valid").flat_map(|slab| slab.image).collect();
    let inner = (0..image.len())
        .filter(|&v| geometry.index_of(v).iter().all(|&i| (4..36).contains(&i)))
        .map(|v| f64::from(image[v]));
    let inner: Vec<f64> = inner.collect();
    let average = mean(inner.iter().copied());
    let deviation = mean(inner.iter().map(|v| (v - average).powi(2))).sqrt();
    let expected = table.labels[&2];
    // Neighbours are correlated: about 32^3 / 12 independent values.
    assert!((average - expected.mean).abs() < 5.0 * expected.sd / 32f64.powf(1.5), "{average}");
    // A Gaussian g keeps sum g^2 of the variance of white noise, per axis 1 / (2 sqrt(pi) sigma).
    let kept = (1.0 / (2.0 * std::f64::consts::PI.sqrt() * 0.75)).powf(1.5);
    assert!((deviation / (expected.sd * kept) - 1.0).abs() < 0.05, "{deviation}");
}

#[test]
fn requests_without_meaning_are_refused() {
    let table = IntensityTable::of_phantom(Modality::Ct);
    let anatomy = Anatomy::default();
    let make = |table, smoothing_voxels| SubjectSource {
        field: &anatomy,
        warp: None,
        table,
        geometry: Geometry::new([8; 3], [20.0; 3]).expect("valid"),
        smoothing_voxels,
        seed: 0,
    };
    assert!(Slabs::new(make(&table, 0.75), 4).is_ok());
    assert!(Slabs::new(make(&table, 0.75), 0).is_err());
    assert!(Slabs::new(make(&table, f64::NAN), 4).is_err());
    let empty = IntensityTable::default();
    let text = Slabs::new(make(&empty, 0.75), 4).err().expect("no statistics").to_string();
    assert!(text.contains("[1, 2, 3"), "{text}");
}

#[test]
fn coarse_voxels_are_means_and_majorities() {
    let image: Vec<f32> = (0..4 * 2 * 2).map(|v| v as f32).collect();
    // Blocks at x 0..2 and 2..4 of offsets 0, 1, 4, 5, 8, 9, 12, 13 and two more.
    assert_eq!(coarsen_image(&image, [4, 2], 2), [6.5, 8.5]);
    let labels = [5, 5, 1, 2, 5, 7, 1, 2, 7, 7, 2, 1, 5, 0, 2, 1];
    assert_eq!(coarsen_labels(&labels, [4, 2], 2), [5, 1], "of equals the lowest");
    assert_eq!(coarsen_labels(&labels, [4, 2], 1), labels);
}
