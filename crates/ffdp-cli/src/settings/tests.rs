use super::*;

#[test]
fn settings_survive_their_file_bit_by_bit() {
    let intensity_percentiles = [0.1 + 0.2, 99.0 + 1e-13];
    let settings = Settings { intensity_percentiles, ..Settings::default() };
    let text = to_toml(&settings).expect("settings are written");
    let again: Settings = toml::from_str(&text).expect("and read");
    assert_eq!(again, settings, "{text}");
}

#[test]
fn similarities_have_the_names_that_files_have() {
    for (similarity, _) in Similarity::built_in() {
        let value = as_value(&similarity).expect("it is written");
        assert_eq!(name_of(&value), similarity.name());
    }
}

#[test]
fn flags_change_what_stages_have() {
    let arguments = SettingsArguments {
        metric: Some("mi".to_string()),
        lr: Some(0.125),
        iterations: Some(Numbers(vec![3, 2, 1])),
        match_histograms: true,
        ..SettingsArguments::default()
    };
    let text = to_toml(&arguments.resolve().expect("valid")).expect("written");
    for line in [
        "bins = 32",
        "learning_rate_voxels = 0.125",
        "iterations = 3",
        "shrink = 4.0",
        "match_histograms = true",
    ] {
        assert!(text.contains(line), "no {line} in {text}");
    }
    assert!(!text.contains("lncc"), "{text}");
}

#[test]
fn the_histogram_of_a_metric_is_that_of_flags_or_of_the_file() {
    let of = |metric: Option<&str>, transform: &str, bins, parzen| SettingsArguments {
        metric: metric.map(str::to_string),
        transform: Some(transform.to_string()),
        bins,
        parzen,
        ..SettingsArguments::default()
    };
    let of_last = |arguments: SettingsArguments| {
        let settings = arguments.resolve().expect("valid");
        let last = Table::try_from(settings.stages.last().expect("a stage")).expect("a table");
        toml::to_string(&last["similarity"]).expect("written")
    };
    let text = of_last(of(Some("nmi"), "greedy", Some(64), Some(ParzenChoice::Linear)));
    assert!(text.contains("[nmi]\nbins = 64\nkernel = \"linear\""), "{text}");
    let text = of_last(of(Some("mi"), "svf", None, Some(ParzenChoice::Gaussian)));
    assert!(text.contains("bins = 32") && text.contains("sigma_bins = 0.5"), "{text}");
    // Linear stages compare by nmi where nothing deforms.
    let text = of_last(of(None, "affine", Some(48), Some(ParzenChoice::BSpline3)));
    assert!(text.contains("bins = 48\nkernel = \"bspline3\""), "{text}");
    for (arguments, words) in [
        (of(None, "greedy", Some(64), None), ["--bins 64", "the metric lncc has no bins"]),
        (
            of(Some("mse"), "greedy", None, Some(ParzenChoice::Linear)),
            ["--parzen linear", "mse has no kernel"],
        ),
        (of(Some("mi"), "greedy", Some(4), None), ["8..256", "4"]),
    ] {
        let failure = arguments.resolve().expect_err("it has no meaning").to_string();
        assert!(words.iter().all(|word| failure.contains(word)), "{words:?}: {failure}");
    }
}

#[test]
fn levels_of_another_number_are_refused_with_the_number_that_is_meant() {
    let refused = |multimodal, shrink: &[f64], iterations: &[usize]| {
        let list = |given: bool| given.then_some(());
        let arguments = SettingsArguments {
            multimodal,
            shrink: list(!shrink.is_empty()).map(|()| Numbers(shrink.to_vec())),
            iterations: list(!iterations.is_empty()).map(|()| Numbers(iterations.to_vec())),
            ..SettingsArguments::default()
        };
        let failure = arguments.resolve().expect_err("lists of other lengths");
        format!("{failure}; {}", failure.help_text().unwrap_or_default())
    };
    for (text, words) in [
        (
            refused(true, &[], &[2, 2, 2]),
            ["--iterations 2,2,2 is for 3 levels", "has 4", "8,4,2,1", "4 numbers"],
        ),
        (
            refused(false, &[4.0, 2.0, 1.0], &[40, 30]),
            [
                "--shrink 4,2,1 is for 3",
                "--iterations 40,30 is for 2",
                "one number per level",
                "both",
            ],
        ),
    ] {
        for word in words {
            assert!(text.contains(word), "no {word:?} in {text}");
        }
    }
}

#[test]
fn every_method_of_the_engine_can_be_asked_for() {
    for (stage, _) in Stage::built_in() {
        if matches!(stage, Stage::Moments(_)) {
            continue;
        }
        let transform = Some(stage.name().to_string());
        let arguments = SettingsArguments { transform, ..SettingsArguments::default() };
        let settings = arguments.resolve().unwrap_or_else(|e| panic!("{stage:?}: {e}"));
        assert_eq!(settings.stages.last().map(Stage::name), Some(stage.name()));
        assert_eq!(deforms(&settings), !stage.is_linear(), "{}", stage.name());
    }
}

#[test]
fn the_last_transform_can_be_chosen() {
    let names = |arguments: SettingsArguments| -> Vec<&'static str> {
        let settings = arguments.resolve().expect("valid");
        settings.stages.iter().map(Stage::name).collect()
    };
    let default = SettingsArguments::default;
    let until = |name: &str| SettingsArguments { transform: Some(name.into()), ..default() };
    assert_eq!(names(default()), ["moments", "rigid", "affine", "greedy"]);
    assert_eq!(names(until("rigid")), ["moments", "rigid"]);
    assert_eq!(names(until("similarity")), ["moments", "rigid", "similarity"]);
    assert_eq!(names(until("syn")), ["moments", "rigid", "affine", "syn"]);
    let aligned = |name: &str| SettingsArguments { aligned: true, ..until(name) };
    assert_eq!(names(aligned("svf")), ["svf"]);
    assert!(aligned("rigid").resolve().is_err());
    let preset = Some(PresetChoice::Multimodal);
    let multimodal = SettingsArguments { preset, ..until("syn") };
    let settings = multimodal.resolve().expect("valid");
    assert_eq!(similarity_of(&settings.stages[3]).as_deref(), Some("mi"));
    // Stiff, as the preset has it, whatever deforms.
    let Stage::Syn(syn) = &settings.stages[3] else { panic!("no syn in {settings:?}") };
    assert!(syn.regularization.bending > 0.0 && syn.levels.len() == 4, "{syn:?}");
    let flag = SettingsArguments { multimodal: true, ..until("syn") };
    assert_eq!(flag.resolve().expect("valid"), settings);
}

#[test]
fn landmarks_have_one_sigma_or_that_of_the_first_and_the_last_level() {
    let of = |numbers: &[f64]| {
        let landmark_sigma = Some(Numbers(numbers.to_vec()));
        SettingsArguments { landmark_sigma, ..SettingsArguments::default() }.resolve()
    };
    let sigmas = |numbers: &[f64]| {
        let settings = of(numbers).expect("valid");
        (settings.landmark_sigma_first_mm, settings.landmark_sigma_mm)
    };
    assert_eq!(sigmas(&[2.0]), (None, Some(2.0)));
    assert_eq!(sigmas(&[8.0, 2.0]), (Some(8.0), Some(2.0)));
    for (numbers, word) in [(&[8.0, 4.0, 2.0][..], "got 3"), (&[-1.0, 2.0], "first_mm")] {
        let message = of(numbers).expect_err("it has no meaning").to_string();
        assert!(message.contains(word), "{message}");
    }
    let first = Settings { landmark_sigma_first_mm: Some(8.0), ..Settings::default() };
    let message = first.validate().expect_err("there is no last one").to_string();
    assert!(message.contains("landmark_sigma_mm"), "{message}");
}

#[test]
fn a_discrete_search_compares_the_features_that_are_named() {
    let features_of = |features: &str| {
        let arguments = SettingsArguments {
            preset: Some(PresetChoice::Hard),
            features: Some(features.to_string()),
            ..SettingsArguments::default()
        };
        let settings = arguments.resolve().expect("valid");
        let mut searches = settings.stages.iter().filter_map(|stage| match stage {
            Stage::Discrete(search) => Some(search.features.name()),
            _ => None,
        });
        let descent = settings.stages.last().and_then(similarity_of);
        (searches.next(), descent)
    };
    for name in ["mse", "mind", "ngf"] {
        // What descends afterwards is the preset's.
        assert_eq!(features_of(name), (Some(name), Some("mind".to_string())));
    }
}

#[test]
fn every_stage_that_has_the_choice_is_made_deterministic() {
    let written = |deterministic| {
        let transform = Some("svf".into());
        let arguments =
            SettingsArguments { transform, deterministic, ..SettingsArguments::default() };
        to_toml(&arguments.resolve().expect("valid")).expect("written")
    };
    assert!(written(false).contains("deterministic = false"));
    assert!(written(true).contains("deterministic = true"));
}

#[test]
fn the_weight_of_the_diffusion_is_that_of_stages_with_penalties() {
    let of = |transform: &str, diffusion| SettingsArguments {
        transform: Some(transform.to_string()),
        diffusion: Some(diffusion),
        ..SettingsArguments::default()
    };
    for transform in ["greedy", "syn", "svf", "ffd"] {
        let text = to_toml(&of(transform, 0.375).resolve().expect("valid")).expect("written");
        assert!(text.contains("diffusion = 0.375"), "{transform}: {text}");
    }
    for (transform, diffusion, word) in
        [("gnk", 0.375, "--diffusion 0.375"), ("greedy", -1.0, "weight of the diffusion")]
    {
        let failure = of(transform, diffusion).resolve().expect_err("it has no meaning");
        assert!(failure.to_string().contains(word), "{transform}: {failure}");
    }
}

#[test]
fn labels_that_drive_are_those_of_flags_or_of_the_file() {
    let of = |labels: Option<Vec<i32>>, weight| SettingsArguments {
        label_terms: labels,
        label_weight: weight,
        ..SettingsArguments::default()
    };
    let term = |arguments: SettingsArguments| arguments.resolve().expect("valid").label_term;
    assert_eq!(term(of(None, None)), None);
    assert_eq!(term(of(Some(vec![3, 1]), None)), Some(LabelTerm::of([3, 1])));
    let weighed = LabelTerm { weight: 0.5, ..LabelTerm::of([2]) };
    assert_eq!(term(of(Some(vec![2]), Some(0.5))), Some(weighed.clone()));
    let settings = Settings { label_term: Some(weighed.clone()), ..Settings::default() };
    let again: Settings = toml::from_str(&to_toml(&settings).expect("written")).expect("read");
    assert_eq!(again.label_term, Some(weighed));
    for (arguments, word) in [
        (of(None, Some(1.0)), "--label-weight"),
        (of(Some(vec![0]), None), "background"),
        (of(Some(vec![2, 1, 2]), None), "2 twice"),
        (of(Some(vec![1]), Some(-1.0)), "weight of label_term"),
    ] {
        let failure = arguments.resolve().expect_err("it has no meaning").to_string();
        assert!(failure.contains(word), "{word}: {failure}");
    }
}
