//! Intensities: modality, noise, range.

use super::*;
use crate::image::Volume;

fn in_modality(modality: Modality) -> Subject {
    subject(&PhantomSettings { modality, ..default_size() }, 6).expect("valid")
}

fn mean_of(image: &Volume, subject: &Subject, structure: Structure) -> f64 {
    let voxels = image.data.iter().zip(&subject.labels.data);
    mean(voxels.filter(|(_, id)| **id == structure.id()).map(|(v, _)| f64::from(*v)))
}

#[test]
fn another_modality_changes_the_contrast_and_not_the_labels() {
    let (t1, t2) = (in_modality(Modality::T1), in_modality(Modality::T2));
    assert_eq!(t1.labels, t2.labels);
    let contrast = |s: &Subject| {
        mean_of(&s.image, s, Structure::LeftWhiteMatter)
            - mean_of(&s.image, s, Structure::LeftLateralVentricle)
    };
    // The tables say 0.67 and -0.63; smoothing takes its part of a ventricle 4 voxels wide.
    let (bright, dark) = (contrast(&t1), contrast(&t2));
    assert!(bright > 0.3 && dark < -0.2, "{bright}, {dark}");
    let inside: Vec<bool> = t1.labels.data.iter().map(|&id| id != 0).collect();
    let local = local_ncc(&t1.image.data, &t2.image.data, [64; 3], 7, Some(&inside));
    assert!(local.expect("one grid") > 0.3, "locally the same structure");
    let multimodal = PhantomSettings { fixed_modality: Some(Modality::T2), ..default_size() };
    let pair = pair(&multimodal, 6).expect("valid");
    assert_eq!(pair.moving.image, t1.image);
    assert!(contrast(&pair.fixed) < -0.2);
}

#[test]
fn large_structures_have_the_mean_of_their_table() {
    // Without bias; the smoothing mixes borders, so only what has an interior is compared.
    for modality in [Modality::T1, Modality::T2, Modality::Ct] {
        let settings =
            PhantomSettings { modality, bias: 0.0, ..PhantomSettings::with_size([96; 3]) };
        let subject = subject(&settings, 6).expect("valid");
        for structure in [Structure::Brainstem, Structure::LeftThalamus] {
            let got = mean_of(&subject.image, &subject, structure);
            let (expected, _) = modality.statistics(structure);
            assert!((got - expected).abs() < 0.06, "{modality:?} {structure:?}: {got}");
        }
    }
}

#[test]
fn intensities_lie_in_zero_to_one_and_far_background_is_zero() {
    let subject = in_modality(Modality::T1);
    assert!(subject.image.data.iter().all(|v| (0.0..=1.0).contains(v)));
    assert!(subject.image.data[..64 * 64].iter().all(|&v| v == 0.0));
    let clean = PhantomSettings {
        texture: 0.0,
        noise: 0.0,
        bias: 0.0,
        smoothing_voxels: 0.0,
        ..default_size()
    };
    let image = sample_intensities(&subject.labels, &clean, 0).expect("valid");
    for (value, &id) in image.data.iter().zip(&subject.labels.data) {
        let expected = Structure::from_id(id).map_or(0.0, |s| Modality::T1.statistics(s).0);
        assert!((f64::from(*value) - expected).abs() < 1e-6, "label {id}: {value}");
    }
}

#[test]
fn noise_is_independent_between_the_images_of_a_pair() {
    let still = PhantomSettings {
        warp: WarpSettings::none(),
        texture: 0.0,
        bias: 0.0,
        noise: 0.02,
        ..default_size()
    };
    let pair = pair(&still, 2).expect("valid");
    assert_eq!(pair.fixed.labels, pair.moving.labels);
    let clean = PhantomSettings { noise: 0.0, ..still };
    let clean = sample_intensities(&pair.moving.labels, &clean, 0).expect("valid");
    let brain = clean.data.iter().zip(&pair.moving.labels.data);
    let keep: Vec<bool> = brain.map(|(v, &id)| id != 0 && (0.2..0.9).contains(v)).collect();
    let residual = |image: &Volume| -> Vec<f32> {
        let voxels = image.data.iter().zip(&clean.data).zip(&keep);
        voxels.filter(|(_, k)| **k).map(|((v, c), _)| v - c).collect()
    };
    let (a, b) = (residual(&pair.fixed.image), residual(&pair.moving.image));
    let deviation = mean(a.iter().map(|v| f64::from(v * v))).sqrt();
    assert!((deviation - 0.02).abs() < 0.001, "{deviation}");
    // 4 / sqrt(number of voxels), about 40 000.
    let correlation = ncc(&a, &b).expect("one length");
    assert!(correlation.abs() < 0.02, "{correlation}");
}

#[test]
fn settings_read_from_a_file_default_and_reject_unknown_fields() {
    let settings: PhantomSettings =
        serde_json::from_str(r#"{"size": [32, 48, 40], "modality": "t2"}"#).expect("valid");
    assert_eq!(settings.size, [32, 48, 40]);
    assert_eq!(settings.modality, Modality::T2);
    assert_eq!(settings.noise, PhantomSettings::default().noise);
    assert!(serde_json::from_str::<PhantomSettings>(r#"{"sise": [1, 1, 1]}"#).is_err());
}
