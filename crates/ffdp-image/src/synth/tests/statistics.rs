//! Intensity statistics: recovered, robust, stored.

use rand_distr::{Distribution, StandardNormal};

use super::super::random::{Stream, generator};
use super::*;
use crate::image::{Geometry, LabelMap, Volume};

/// `count` voxels of each label, normal with the given mean and deviation.
fn drawn(count: usize, labels: &[(i32, f64, f64)]) -> (Volume, LabelMap) {
    let geometry = Geometry::new([count, labels.len(), 1], [1.0; 3]).expect("valid");
    let mut random = generator(1, Stream::Texture, 0);
    let (mut values, mut ids) = (Vec::new(), Vec::new());
    for &(id, mean, sd) in labels {
        for _ in 0..count {
            let normal: f64 = StandardNormal.sample(&mut random);
            values.push((mean + sd * normal) as f32);
            ids.push(id);
        }
    }
    let image = Volume::new(values, geometry.clone()).expect("sizes match");
    (image, LabelMap::new(ids, geometry).expect("sizes match"))
}

#[test]
fn means_and_deviations_are_recovered() {
    let truth = [(0, 5.0, 1.0), (2, 0.8, 0.05), (17, -1000.0, 30.0), (300, 40.0, 0.0)];
    let (image, labels) = drawn(20_000, &truth);
    let table = IntensityTable::estimate([(&image, &labels)]).expect("labelled");
    assert_eq!(table.labels.keys().copied().collect::<Vec<_>>(), [2, 17, 300], "no background");
    for (id, mean, sd) in &truth[1..] {
        let got = table.labels[id];
        // Four standard errors of 20 000 draws: 4 / sqrt(20 000) = 0.028 deviations.
        assert!((got.mean - mean).abs() <= 0.03 * sd + 1e-9, "label {id}: {got:?}");
        assert!((got.sd - sd).abs() <= 0.03 * sd + 1e-9, "label {id}: {got:?}");
    }
}

#[test]
fn outliers_hardly_count_and_nan_does_not() {
    let (mut image, labels) = drawn(20_000, &[(1, 10.0, 1.0)]);
    // 3 % of another tissue, a hot voxel, and some that are missing.
    image.data[..600].fill(30.0);
    image.data[700] = 1e30;
    image.data[800..900].fill(f32::NAN);
    let got = IntensityTable::estimate([(&image, &labels)]).expect("labelled").labels[&1];
    assert!((got.mean - 10.0).abs() < 0.05 && (got.sd - 1.0).abs() < 0.05, "{got:?}");
}

#[test]
fn images_are_pooled_by_voxels() {
    let (a, labels) = drawn(1000, &[(1, 10.0, 1.0)]);
    let (b, _) = drawn(1000, &[(1, 12.0, 1.0)]);
    let table = IntensityTable::estimate([(&a, &labels), (&b, &labels)]).expect("labelled");
    let got = table.labels[&1];
    // Variance within and between: 1 + 1.
    assert!((got.mean - 11.0).abs() < 0.1 && (got.sd - 2f64.sqrt()).abs() < 0.1, "{got:?}");
}

#[test]
fn a_synthetic_brain_gives_its_table_back() {
    let labels = subject(&PhantomSettings::with_size([96; 3]), 2).expect("valid").labels;
    let table = IntensityTable::of_phantom(Modality::T2);
    let image = raw_intensities(&labels, &table);
    let got = IntensityTable::estimate([(&image, &labels)]).expect("labelled");
    for (id, truth) in &table.labels {
        let voxels = labels.data.iter().filter(|label| *label == id).count() as f64;
        let standard_error = truth.sd / voxels.sqrt();
        let off = got.labels[id].mean - truth.mean;
        assert!(off.abs() < 5.0 * standard_error, "label {id}: {off}");
    }
}

/// The texture alone.
fn raw_intensities(labels: &LabelMap, table: &IntensityTable) -> Volume {
    let [nx, ny, _] = labels.geometry.size;
    let data = super::super::texture::texture(&labels.data, nx * ny, 0, table, 3);
    Volume::new(data, labels.geometry.clone()).expect("sizes match")
}

#[test]
fn tables_are_stored_and_checked() {
    let table = IntensityTable::of_aseg(Modality::T1);
    let json = serde_json::to_string(&table).expect("serialises");
    assert!(json.starts_with(r#"{"labels":{"2":{"mean":"#), "{json}");
    assert_eq!(serde_json::from_str::<IntensityTable>(&json).expect("parses"), table);
    assert!(table.check_covers(&[0, 2, 3, 251]).is_ok());
    let text = table.check_covers(&[0, 2, 1001, 1002]).expect_err("not in aseg").to_string();
    assert!(text.contains("[1001, 1002]"), "{text}");
    let bad = r#"{"labels": {"4": {"mean": 1, "sd": -1}}}"#;
    let bad: IntensityTable = serde_json::from_str(bad).expect("parses");
    assert!(bad.check_covers(&[4]).expect_err("negative").to_string().contains("label 4"));
    assert!(serde_json::from_str::<IntensityTable>(r#"{"labels": {"x": 1}}"#).is_err());
}

#[test]
fn estimates_need_one_grid_and_a_label() {
    let (image, labels) = drawn(10, &[(1, 1.0, 0.1)]);
    let (other, empty) = drawn(11, &[(0, 1.0, 0.1)]);
    assert!(IntensityTable::estimate([(&other, &labels)]).is_err());
    let text = IntensityTable::estimate([(&other, &empty)]).expect_err("no label").to_string();
    assert!(text.contains("besides background"), "{text}");
    assert!(IntensityTable::estimate([(&image, &labels)]).is_ok());
}

#[test]
fn variation_moves_means_by_the_seed_and_by_its_part_of_the_deviations() {
    let table = IntensityTable::of_aseg(Modality::T1);
    assert_eq!(table.varied(0.0, 4), table);
    assert_eq!(table.varied(0.5, 4), table.varied(0.5, 4));
    let varied = table.varied(0.5, 4);
    assert_ne!(varied, table.varied(0.5, 5));
    let moves: Vec<f64> =
        table.labels.iter().map(|(id, s)| (varied.labels[id].mean - s.mean) / s.sd).collect();
    let rms = mean(moves.iter().map(|m| m * m)).sqrt();
    // 50 draws of deviation 0.5.
    assert!((0.3..0.75).contains(&rms), "{rms}");
}
