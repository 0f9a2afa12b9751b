//! What cannot be registered is refused, with the value and the way out.

use burn::tensor::Device;

use super::{blob, only, register, short};
use crate::{
    LevelSettings, Problem, Settings, Silent, Similarity, Stage,
    methods::{GreedySettings, SvfSettings, SynSettings},
    settings::{
        AdamSettings, ConvergenceSettings, GaussNewtonSettings, LnccSettings, MiSettings,
        OptimizerSettings, Regularization,
    },
};
use ffdp_image::image::{Geometry, Volume};

fn good() -> Volume {
    let geometry = Geometry::new([12, 12, 12], [1.0; 3]).expect("valid");
    blob(&geometry, [5.0, 6.0, 5.5], 2.0)
}

fn message(fixed: &Volume, moving: &Volume, settings: &Settings) -> String {
    register(&Problem::new(fixed, moving), settings, &Device::flex(), &mut Silent)
        .expect_err("must be refused")
        .to_string()
}

#[test]
fn images_that_cannot_be_registered_are_refused() {
    let good = good();
    let with = |change: &dyn Fn(&mut Volume)| {
        let mut volume = good.clone();
        change(&mut volume);
        volume
    };
    let nan = with(&|v| v.data[13] = f32::NAN);
    let infinite = with(&|v| v.data[144] = f32::INFINITY);
    let constant = with(&|v| v.data.fill(3.5));
    let short_data = with(&|v| v.data.truncate(7));
    let away = with(&|v| {
        v.geometry = v.geometry.clone().with_origin([500.0, 0.0, 0.0]).expect("valid");
    });
    let corner = with(&|v| {
        v.geometry = v.geometry.clone().with_origin([9.0; 3]).expect("valid");
    });
    let thin = {
        let geometry = Geometry::new([12, 12, 5], [1.0, 1.0, 2.4]).expect("valid");
        blob(&geometry, [5.0; 3], 2.0)
    };
    for (case, volume, words) in [
        ("NaN", &nan, &["1 NaN", "[1, 1, 0]"][..]),
        ("infinite", &infinite, &["1 infinite", "[0, 0, 1]"]),
        ("constant", &constant, &["constant", "3.5"]),
        ("data", &short_data, &["1728", "7"]),
        ("thin", &thin, &["at least 8 voxels", "[12, 12, 5]"]),
    ] {
        for (role, text) in [
            ("fixed", message(volume, &good, &only(short()))),
            ("moving", message(&good, volume, &only(short()))),
        ] {
            assert!(text.contains(role), "{case}: {text} does not name the {role} image");
            assert!(words.iter().all(|word| text.contains(word)), "{case}: {text}");
        }
    }
    let text = message(&good, &away, &only(short()));
    assert!(text.contains("0.00 %") && text.contains("500.0") && text.contains("11.0"), "{text}");
    let text = message(&good, &corner, &only(short()));
    assert!(text.contains("at least 10 %") && text.contains("overlap by 1."), "{text}");
}

#[test]
fn settings_without_meaning_are_refused() {
    let level = |shrink, iterations| LevelSettings { shrink, iterations };
    let default = GreedySettings::default;
    let greedy = only;
    let lncc = |window, epsilon| {
        Similarity::Lncc(LnccSettings { window, epsilon, ..LnccSettings::default() })
    };
    let convergence = |window, tolerance| ConvergenceSettings { window, tolerance };
    let newton = |damping| OptimizerSettings::GaussNewton(GaussNewtonSettings { damping });
    let adam = |gradient_floor| {
        OptimizerSettings::Adam(AdamSettings { gradient_floor, ..AdamSettings::default() })
    };
    let diffusion =
        |weight| Regularization { diffusion: Some(weight), ..Regularization::default() };
    let svf = SvfSettings::default;
    let of = |stages| Settings { stages, ..Settings::default() };
    let good = good();
    for (settings, words) in [
        (greedy(GreedySettings { levels: vec![], ..default() }), ["at least one level", "[]"]),
        (greedy(GreedySettings { levels: vec![level(0.5, 9)], ..default() }), ["shrink", "0.5"]),
        (
            greedy(GreedySettings { levels: vec![level(f64::NAN, 9)], ..default() }),
            ["shrink", "NaN"],
        ),
        (
            greedy(GreedySettings { levels: vec![level(1.0, 9), level(2.0, 9)], ..default() }),
            ["coarse", "2.0"],
        ),
        (greedy(GreedySettings { levels: vec![level(1.0, 0)], ..default() }), ["iterations", "0"]),
        (greedy(GreedySettings { similarity: lncc(6, 1e-5), ..default() }), ["odd", "6"]),
        (greedy(GreedySettings { similarity: lncc(23, 1e-5), ..default() }), ["21", "23"]),
        (greedy(GreedySettings { similarity: lncc(7, 0.0), ..default() }), ["epsilon", "0.0"]),
        (
            greedy(GreedySettings {
                similarity: Similarity::Mi(MiSettings { bins: 4, ..MiSettings::default() }),
                ..default()
            }),
            ["bins", "4"],
        ),
        (
            greedy(GreedySettings { learning_rate_voxels: 0.0, ..default() }),
            ["learning rate", "0.0"],
        ),
        (
            greedy(GreedySettings { learning_rate_voxels: f64::NAN, ..default() }),
            ["learning rate", "NaN"],
        ),
        (
            greedy(GreedySettings { sigma_gradient_voxels: -1.0, ..default() }),
            ["sigma_gradient", "-1.0"],
        ),
        (greedy(GreedySettings { sigma_warp_voxels: 1e3, ..default() }), ["sigma_warp", "1000"]),
        (
            Settings { intensity_percentiles: [99.0, 1.0], ..Settings::default() },
            ["ascending", "99.0"],
        ),
        (greedy(GreedySettings { convergence: convergence(1, 0.0), ..default() }), ["window", "1"]),
        (greedy(GreedySettings { optimizer: newton(0.0), ..default() }), ["damping", "0.0"]),
        (greedy(GreedySettings { optimizer: adam(-1.0), ..default() }), ["gradient_floor", "-1.0"]),
        (
            greedy(GreedySettings { regularization: diffusion(-1.0), ..default() }),
            ["diffusion", "-1"],
        ),
        (of(vec![Stage::Svf(SvfSettings { squarings: 0, ..svf() })]), ["squarings", "0"]),
        (of(vec![Stage::Svf(SvfSettings { optimizer: newton(1.0), ..svf() })]), ["Newton", "1.0"]),
        (
            of(vec![Stage::Svf(SvfSettings { sigma_velocity_voxels: -1.0, ..svf() })]),
            ["sigma_velocity_voxels", "-1.0"],
        ),
        (Settings { stages: vec![], ..Settings::default() }, ["at least one stage", "[]"]),
        (Settings { loss_interval: 0, ..Settings::default() }, ["loss_interval", "0"]),
    ] {
        let text = message(&good, &good, &settings);
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }
    Settings::default().validate().expect("the defaults are valid");
}

#[test]
fn settings_from_a_file_take_defaults_and_refuse_unknown_entries() {
    let parse = |text| serde_json::from_str::<Settings>(text);
    assert_eq!(parse("{}").expect("all defaults"), Settings::default());
    let changed = parse(
        r#"{"stages": [{"transform": "greedy", "similarity": {"lncc": {"window": 9}}}],
            "loss_interval": 5}"#,
    );
    let changed = changed.expect("valid");
    assert_eq!(changed.loss_interval, 5);
    let expected = LnccSettings { window: 9, ..LnccSettings::default() };
    let similarity = Similarity::Lncc(expected);
    let expected = only(GreedySettings { similarity, ..GreedySettings::default() });
    assert_eq!(changed.stages, expected.stages);
    for text in [
        r#"{"learning_rate": 1}"#,
        r#"{"stages": [{"transform": "greedy", "learning_rate": 1}]}"#,
        r#"{"stages": [{"transform": "greedy", "similarity": {"lncc": {"widow": 9}}}]}"#,
        r#"{"stages": [{"transform": "syn", "freeform": true}]}"#,
        r#"{"stages": [{"transform": "svf", "optimizer": {"adam": {"beta": 0.9}}}]}"#,
    ] {
        let message = parse(text).expect_err("unknown entry").to_string();
        assert!(message.contains("unknown field"), "{message}");
    }
    let all = r#"{"stages": [
        {"transform": "greedy", "freeform": true, "optimizer": "sgd"},
        {"transform": "syn", "optimizer": {"gauss_newton": {"damping": 2.0}}},
        {"transform": "svf", "regularization": {"bending": 0.5}, "deterministic": true}]}"#;
    let damping = GaussNewtonSettings { damping: 2.0 };
    let optimizer = OptimizerSettings::GaussNewton(damping);
    let regularization = Regularization { bending: 0.5, ..Regularization::default() };
    assert_eq!(
        parse(all).expect("valid").stages,
        [
            Stage::Greedy(GreedySettings {
                freeform: true,
                optimizer: OptimizerSettings::Sgd,
                ..GreedySettings::default()
            }),
            Stage::Syn(SynSettings { optimizer, ..SynSettings::default() }),
            Stage::Svf(SvfSettings {
                regularization,
                deterministic: true,
                ..SvfSettings::default()
            }),
        ]
    );
    let round_trip = serde_json::to_string(&Settings::default()).expect("serialisable");
    assert_eq!(parse(&round_trip).expect("valid"), Settings::default());
}
