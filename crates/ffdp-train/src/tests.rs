//! Whole runs on tiny images: repeatable, resumable, and refusing what they must.

mod curves;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::tensor::Device;
use clap::Parser;
use ffdp_burn::losses::similarities::{LnccSettings, Similarity};
use ffdp_image::Result;
use ffdp_image::io::images::{write_labels, write_volume};
use ffdp_image::synth::{PhantomSettings, subject};

use crate::arguments::TrainArguments;
use crate::journal::{self, Record};
use crate::predict::{CheckpointChoice, Predictor};
use crate::team::{Share, Team};
use crate::{Finished, RunFolder};

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    arguments: TrainArguments,
}

fn run(arguments: &TrainArguments) -> Result<Finished> {
    crate::run(arguments, &Team::one(&Device::flex()))
}

/// A short run of few, small pairs, with random draws within the network.
const SHORT: [&str; 7] = ["--size", "32", "--pairs", "2", "--drop-path", "0.2", "--plain"];

/// Dropped branches are drawn from Burn's generator, of which a process has one: runs concurrent with each
/// other would take each other's numbers.
fn one_run_at_a_time() -> MutexGuard<'static, ()> {
    static RUNNING: Mutex<()> = Mutex::new(());
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn parse(flags: &[&str]) -> TrainArguments {
    let flags = Flags::try_parse_from([&["train"], flags].concat());
    flags.unwrap_or_else(|error| panic!("{error}")).arguments
}

fn short(out: &Path, more: &[&str]) -> TrainArguments {
    let out = out.to_str().expect("a temporary folder has a plain name");
    parse(&[&["--output", out][..], &SHORT[..], more].concat())
}

/// The journal without the numbers that no seed decides.
fn journal_of(out: &Path) -> Vec<Record> {
    let mut records = journal::read(&out.join("metrics.jsonl")).expect("the run wrote its journal");
    for record in &mut records {
        record.remove("seconds");
        record.remove("waiting");
        record.remove("peak_memory");
    }
    records
}

#[test]
fn a_resumed_run_repeats_an_uninterrupted_one() {
    let _alone = one_run_at_a_time();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [whole, parted] = ["whole", "parted"].map(|name| folder.path().join(name));
    run(&short(&whole, &["--epochs", "3"])).expect("a new run");
    // Interrupted in the third epoch: two are saved, the journal already holds steps of a third.
    run(&short(&parted, &["--epochs", "3"])).expect("a new run");
    for part in crate::checkpoint::PARTS {
        let last = parted.join("checkpoint").join(format!("{part}-3.bpk"));
        std::fs::remove_file(last).expect("the third checkpoint was saved");
    }
    run(&short(&parted, &["--epochs", "3", "--resume"])).expect("a resumed run");
    let (whole, parted) = (journal_of(&whole), journal_of(&parted));
    assert_eq!(whole.len(), 3 * (4 + 1 + 2 + 1), "4 steps, 2 validations and 2 means an epoch");
    for (a, b) in whole.iter().zip(&parted) {
        assert_eq!(a, b, "the same numbers, to the last bit");
    }
    assert_eq!(whole.len(), parted.len());
}

/// Two devices that are one CPU.
fn two(share: Share) -> Team {
    Team::new(vec![Device::flex(); 2], share).expect("two devices")
}

/// Of all pairs that were trained or validated, where they have it.
fn numbers_of(out: &Path, name: &str) -> Vec<f64> {
    let steps = journal_of(out).into_iter().filter(|record| record["kind"] == "step");
    let numbers = steps.map(|record| journal::number(&record, name));
    numbers.filter(|number| number.is_finite()).collect()
}

#[test]
fn two_devices_train_as_one() {
    let _alone = one_run_at_a_time();
    // As between fused and composed operations below: f32 sums in another order, grown by Adam's steps.
    const TOLERANCE: f64 = 2e-4;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [one, pairs, volume] = ["one", "pairs", "volume"].map(|name| folder.path().join(name));
    // Three pairs in both directions: the last step of an epoch is half as large.
    let flags = ["--epochs", "2", "--batch", "4", "--pairs", "3", "--learning-rate", "1e-4"];
    let more = ["--size", "32x24x36", "--drop-path", "0", "--dice-weight", "0.5", "--affine"];
    let rough = ["--regularizer", "total-variation", "--jacobian-weight", "0.5"];
    let flags = [&flags[..], &more, &rough].concat();
    let short = |out: &Path| {
        let out = out.to_str().expect("a temporary folder has a plain name");
        parse(&[&["--output", out, "--plain"], &flags[..]].concat())
    };
    let closing = |out: &Path, team: &Team| {
        let finished = crate::run(&short(out), team).expect("a run");
        let figures = finished.evaluation.pairs.into_iter();
        figures.map(|pair| (pair.sd_log_jacobian, pair.lncc[1])).collect::<Vec<_>>()
    };
    let evaluated = closing(&one, &Team::one(&Device::flex()));
    assert!(evaluated.iter().all(|(sd, _)| *sd > 1e-3), "something moves: {evaluated:?}");
    for (out, share) in [(&pairs, Share::Pairs), (&volume, Share::Volume)] {
        let found = closing(out, &two(share));
        for (a, b) in found.iter().zip(&evaluated) {
            let apart = (a.0 - b.0).abs().max((a.1 - b.1).abs());
            assert!(apart < TOLERANCE, "{share:?}: {found:?} {evaluated:?}");
        }
    }
    for (name, count) in [("loss", 6 + 2), ("soft_dice_loss", 6 + 2), ("dice", 2), ("sd_log_j", 2)]
    {
        let expected = numbers_of(&one, name);
        assert_eq!(expected.len(), 2 * count, "{name}: of 6 pairs and 2 validations an epoch");
        // Steps so small move no label of a voxel.
        assert!(name == "dice" || expected[0] != expected[count], "{name}: it learns");
        for out in [&pairs, &volume] {
            let numbers = numbers_of(out, name);
            println!("{name}: {numbers:?} {expected:?}");
            assert_eq!(numbers.len(), expected.len(), "{name}");
            for (a, b) in numbers.iter().zip(&expected) {
                assert!((a - b).abs() < TOLERANCE, "{name}: {numbers:?} {expected:?}");
            }
        }
    }
}

#[test]
fn a_run_on_two_devices_is_resumed_exactly() {
    let _alone = one_run_at_a_time();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [whole, parted] = ["whole", "parted"].map(|name| folder.path().join(name));
    let flags = ["--epochs", "2", "--batch", "2"];
    let team = two(Share::Pairs);
    crate::run(&short(&whole, &flags), &team).expect("a run");
    crate::run(&short(&parted, &flags), &team).expect("a run");
    for part in crate::checkpoint::PARTS {
        let last = parted.join("checkpoint").join(format!("{part}-2.bpk"));
        std::fs::remove_file(last).expect("the second checkpoint was saved");
    }
    crate::run(&short(&parted, &["--epochs", "2", "--resume"]), &team).expect("a resumed run");
    assert_eq!(journal_of(&whole), journal_of(&parted), "the same numbers, to the last bit");
}

#[test]
fn what_devices_cannot_share_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().join("run");
    for (share, flags, expected) in [
        (Share::Pairs, &[][..], "--batch must give each of the 2 devices a pair"),
        (Share::Volume, &["--baseline"], "--baseline cannot be computed in parts"),
        (Share::Volume, &["--inverse-weight", "1"], "--inverse-weight cannot be computed"),
        (Share::Volume, &["--head", "bspline"], "--head bspline cannot be predicted in parts"),
    ] {
        let error = crate::run(&short(&out, flags), &two(share)).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
        assert!(!out.exists(), "nothing is written before");
    }
}

#[test]
fn baseline_and_fused_operations_train_alike() {
    let _alone = one_run_at_a_time();
    // Rounding of f32 means over 32 x 32 x 16 voxels, grown by Adam's first steps, which have the size of
    // the learning rate whatever the gradient's: a small one keeps them comparable. Measured: 4e-5.
    const TOLERANCE: f64 = 2e-4;
    for loss in Similarity::built_in().map(|(similarity, _)| similarity.name()) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let losses = [false, true].map(|baseline| {
            let out = folder.path().join(format!("baseline-{baseline}"));
            let name = out.to_str().expect("a temporary folder has a plain name");
            let mut flags = vec!["--output", name, "--plain", "--size", "32x32x16", "--pairs", "1"];
            flags.extend([
                "--drop-path",
                "0.2",
                "--epochs",
                "1",
                "--integrate",
                "--dice-weight",
                "1",
            ]);
            flags.extend(["--jacobian-weight", "1", "--inverse-weight", "0.1"]);
            flags.extend(["--learning-rate", "1e-4", "--loss", loss]);
            if baseline {
                flags.push("--baseline");
            }
            run(&parse(&flags)).expect("a run");
            let steps = journal_of(&out).into_iter();
            let steps =
                steps.filter(|record| record["kind"] == "step" && record["split"] == "train");
            steps.map(|record| journal::number(&record, "loss")).collect::<Vec<f64>>()
        });
        for (fused, baseline) in losses[0].iter().zip(&losses[1]) {
            assert!((fused - baseline).abs() < TOLERANCE, "{loss}: {losses:?}");
        }
        println!("{loss}: {losses:?}");
    }
}

#[test]
fn a_run_is_not_overwritten_nor_resumed_with_other_settings() {
    let _alone = one_run_at_a_time();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().join("run");
    let missing = run(&short(&out, &["--resume"])).expect_err("nothing to resume").to_string();
    assert!(missing.contains("settings.toml"), "{missing}");
    run(&short(&out, &["--epochs", "1"])).expect("a new run");
    for (more, expected) in [
        (&["--epochs", "1"][..], "--output must name a folder without a run"),
        (&["--epochs", "1", "--resume"], "--epochs must exceed the 1 epochs"),
        (&["--epochs", "2", "--resume", "--seed", "5"], "started with --seed 0, got"),
    ] {
        let error = run(&short(&out, more)).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_run_of_an_earlier_version_predicts_and_is_continued() {
    let _alone = one_run_at_a_time();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().join("run");
    run(&short(&out, &["--epochs", "1", "--window", "7"])).expect("a new run");
    let path = out.join("settings.toml");
    let text = std::fs::read_to_string(&path).expect("the run saved its settings");
    let mut settings: toml::Table = text.parse().expect("TOML");
    let loss = settings.insert("loss".into(), "lncc".into()).expect("it is there");
    assert_eq!(loss["lncc"]["window"].as_integer(), Some(7), "{text}");
    settings.insert("window".into(), 7.into());
    std::fs::write(&path, settings.to_string()).expect("writable");
    let (run_folder, device) = (RunFolder::new(&out), Device::flex());
    let predictor = Predictor::load(&run_folder, CheckpointChoice::Best, &device);
    let loss = predictor.expect("a network").settings.loss;
    assert_eq!(loss, Similarity::Lncc(LnccSettings { window: 7, ..LnccSettings::transmorph() }));
    run(&short(&out, &["--epochs", "2", "--resume", "--window", "7"])).expect("it goes on");
    let other = run(&short(&out, &["--epochs", "3", "--resume", "--loss", "nmi"]));
    let error = other.expect_err("another loss").to_string();
    assert!(error.contains("started with --loss { lncc"), "{error}");
}

#[test]
fn impossible_settings_are_refused_with_a_way_out() {
    let _alone = one_run_at_a_time();
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (more, expected) in [
        (&["--window", "8"][..], "--window must be odd"),
        (&["--epochs", "0"], "--epochs must be at least 1"),
        (&["--learning-rate", "0"], "--learning-rate must lie"),
        (&["--smoothness=-1"], "--smoothness must be finite"),
        (&["--inverse-weight=-1"], "--inverse-weight must be finite"),
        (&["--augment-noise", "2"], "--augment-noise must lie in 0..1"),
        (&["--data", "/nowhere-at-all"], "/nowhere-at-all"),
    ] {
        let out = folder.path().join(more[0]);
        let out = out.to_str().expect("plain");
        let arguments = parse(&[&["--output", out][..], more].concat());
        let error = run(&arguments).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
    let odd = parse(&["--size", "40x4", "--output", folder.path().to_str().expect("plain")]);
    assert!(run(&odd).expect_err("two extents").to_string().contains("XxYxZ"));
}

#[test]
fn lists_of_images_are_trained_in_random_pairs() {
    let _alone = one_run_at_a_time();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("data");
    std::fs::create_dir_all(data.join("images")).expect("writable");
    std::fs::create_dir(data.join("labels")).expect("writable");
    for k in 0..5 {
        // Sizes differ from file to file; --size brings them together.
        let phantom = PhantomSettings::with_size([30 + k, 32, 36 - k]);
        let subject = subject(&phantom, k as u64).expect("valid settings");
        let name = format!("subject-{k}.nii.gz");
        write_volume(data.join("images").join(&name), &subject.image).expect("writable");
        write_labels(data.join("labels").join(&name), &subject.labels).expect("writable");
    }
    let data = data.to_str().expect("plain");
    let train = |out: &str, more: &[&str]| {
        let out = folder.path().join(out);
        let flags = ["--data", data, "--size", "32x32x16", "--epochs", "2", "--plain"];
        let names = ["--output", out.to_str().expect("plain"), "--hold-out", "2", "--seed", "4"];
        run(&parse(&[&flags[..], &names, more].concat())).expect("a run");
        journal_of(&out)
    };
    let plain = train("plain", &["--dice-weight", "1", "--regularizer", "bending"]);
    // Three images, three random pairs in both directions; two for validation, one pair.
    assert_eq!(plain.len(), 2 * (6 + 1 + 1 + 1));
    assert!(plain.iter().all(|record| journal::number(record, "loss").is_finite()));
    let validation = plain.iter().filter(|record| record["split"] == "valid");
    assert!(validation.clone().count() > 0);
    for record in validation {
        assert!((0.0..1.0).contains(&journal::number(record, "dice")), "{record:?}");
        assert!(journal::number(record, "sd_log_j").is_finite(), "{record:?}");
    }
    // Threads and cache change nothing; augmentation does.
    let changes = ["--augment-flips", "--augment-scaling", "0.05", "--augment-brightness", "0.1"];
    let augmented = train("augmented", &changes);
    let few = train("few", &[&changes[..], &["--workers", "1", "--cache-mib", "0"]].concat());
    assert_eq!(augmented, few);
    let first = |records: &[Record]| journal::number(&records[0], "similarity");
    assert_ne!(first(&plain), first(&augmented));
}

#[test]
fn a_run_is_resumed_by_the_same_command_with_a_relative_folder_of_images() {
    let _alone = one_run_at_a_time();
    let folder = tempfile::tempdir().expect("a temporary folder");
    for k in 0..2 {
        let subject = subject(&PhantomSettings::with_size([32; 3]), k).expect("valid settings");
        write_volume(folder.path().join(format!("{k}.nii.gz")), &subject.image).expect("writable");
    }
    let here = std::env::current_dir().expect("there is one");
    let up: PathBuf = here.components().skip(1).map(|_| "..").collect();
    let relative = up.join(folder.path().strip_prefix("/").expect("a whole path"));
    let out = folder.path().join("run");
    let [data, out] = [&relative, &out].map(|path| path.to_str().expect("plain"));
    let train = |epochs: &str, more: &[&str]| {
        let flags = ["--data", data, "--out", out, "--epochs", epochs, "--pairs", "1", "--plain"];
        run(&parse(&[&flags[..], more].concat()))
    };
    train("1", &[]).expect("a run");
    train("2", &["--resume"]).expect("a resumed run");
}

#[test]
fn voxelmorph_after_an_affine_network_is_trained_reported_and_loaded_again() {
    let _alone = one_run_at_a_time();
    // As above; the fused composition and the composed one round differently too.
    const TOLERANCE: f64 = 2e-4;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [fused, baseline] = ["fused", "baseline"].map(|name| folder.path().join(name));
    let flags = ["--network", "voxelmorph", "--affine", "--integrate", "--loss", "mse"];
    let flags = [&flags[..], &["--epochs", "2", "--learning-rate", "1e-4"]].concat();
    // VoxelMorph has no branches to be dropped.
    let small = ["--size", "32x32x16", "--pairs", "2", "--plain", "--output"];
    let short = |out: &Path, more: &[&str]| {
        parse(&[&small[..], &[out.to_str().expect("a plain name")], more].concat())
    };
    let finished = run(&short(&fused, &flags)).expect("a run");
    run(&short(&baseline, &[&flags[..], &["--baseline"]].concat())).expect("a run");
    let losses = [&fused, &baseline].map(|out| {
        let steps = journal_of(out).into_iter();
        let steps = steps.filter(|record| record["kind"] == "step" && record["split"] == "train");
        steps.map(|record| journal::number(&record, "loss")).collect::<Vec<f64>>()
    });
    assert_eq!(losses[0].len(), 8);
    for (fused, baseline) in losses[0].iter().zip(&losses[1]) {
        assert!((fused - baseline).abs() < TOLERANCE, "{losses:?}");
    }

    let page = std::fs::read_to_string(fused.join("report.html")).expect("a report");
    let [before, after] = finished.evaluation.mean_dice().expect("phantoms have labels");
    assert!(page.contains(&format!("{after:.3}")) && page.contains(&format!("{before:.3} before")));
    assert!(page.contains("network = &quot;voxelmorph&quot;"), "the settings are shown");
    // Learning curves, four held-out pairs, two epochs.
    assert_eq!(page.matches("data:image/png;base64,").count(), 1 + 4 + 2);

    let device = Device::flex();
    let run = RunFolder::new(&fused);
    let predictor = Predictor::load(&run, CheckpointChoice::Best, &device).expect("a network");
    let phantom = PhantomSettings::with_size([32; 3]);
    let [fixed, moving] = [1, 2].map(|seed| subject(&phantom, seed).expect("valid").image);
    let map = predictor.predict(&fixed, &moving).expect("a prediction");
    assert_eq!(map.steps().len(), 2, "the displacement, then the placement");
}

#[test]
fn a_network_of_control_points_is_trained_and_loaded_again() {
    let _alone = one_run_at_a_time();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().join("run");
    let flags = ["--head", "bspline", "--control-spacing", "8", "--epochs", "3", "--loss", "mse"];
    run(&short(&out, &flags)).expect("a run");
    let validations = journal_of(&out)
        .into_iter()
        .filter(|record| record["split"] == "valid" && record["kind"] == "epoch");
    let losses: Vec<f64> = validations.map(|record| journal::number(&record, "loss")).collect();
    assert!(losses.len() >= 3 && losses.iter().all(|loss| loss.is_finite()), "{losses:?}");
    assert!(losses[0] != losses[losses.len() - 1], "the weights change: {losses:?}");
    let device = Device::flex();
    let run = RunFolder::new(&out);
    let predictor = Predictor::load(&run, CheckpointChoice::Last, &device).expect("a network");
    let phantom = PhantomSettings::with_size([32; 3]);
    let [fixed, moving] = [1, 2].map(|seed| subject(&phantom, seed).expect("valid").image);
    let map = predictor.predict(&fixed, &moving).expect("a prediction");
    assert!(!map.steps().is_empty());
}
