//! `--label-terms`, `--channels` and terms that name channels: what drives a registration besides one image.

use std::fs;

use ffdp_image::image::Volume;
use ffdp_image::io::images::{read_displacement, read_volumes, write_volume, write_volumes};
use serde_json::Value;

use crate::register;
use crate::support::{Folder, ffdp, write_pair};

const FEW: [&str; 4] = ["--shrink", "2,1", "--iterations", "12,8"];

/// White matter and cortex of either side.
const LABELS: [&str; 2] = ["--label-terms", "1,2,3,4"];

#[test]
fn labels_raise_their_overlap_whole_and_slab_by_slab() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    let maps = ["fixed_labels.nii.gz", "moving_labels.nii.gz"].map(|name| folder.path(name));
    let given = ["--fixed-labels", &maps[0], "--moving-labels", &maps[1], "--labels", "1,2,3,4"];
    let dice = |out: &str, more: &[&str]| {
        let more = [&FEW[..], &given, more, &["--json", "-q"]].concat();
        let run = register(&folder, "fixed.nii.gz", "moving.nii.gz", out, &more);
        run.succeeded();
        let metrics: Value = serde_json::from_str(&run.stdout).expect("JSON");
        metrics["dice"]["mean"]["after"].as_f64().expect("a number")
    };
    let without = dice("without", &[]);
    let with = [&LABELS[..], &["--label-weight", "3"]].concat();
    let whole = dice("with", &with);
    let slabs = dice("slabs", &[&with[..], &["--slabs"]].concat());
    println!("Dice {without:.3} without, {whole:.3} with labels, {slabs:.3} slab by slab");
    assert!(whole > without + 0.005, "{without} -> {whole}");
    // Sums in another order, and nearest labels.
    assert!((whole - slabs).abs() < 0.01, "{whole} {slabs}");
    let settings = fs::read_to_string(folder.path("with/settings.toml")).expect("written");
    assert!(settings.contains("[label_term]") && settings.contains("weight = 3.0"), "{settings}");
}

#[test]
fn labels_and_channels_take_what_the_plan_says() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    let [fixed, moving] = ["fixed.nii.gz", "moving.nii.gz"].map(|name| folder.path(name));
    let maps = ["fixed_labels.nii.gz", "moving_labels.nii.gz"].map(|name| folder.path(name));
    let out = folder.path("out");
    let bytes = |more: &[&str]| {
        let images = ["register", "-f", &fixed, "-m", &moving, "-o", &out, "--plan", "--json"];
        let plan = ffdp(&[&images[..], more].concat());
        plan.succeeded();
        let plan: Value = serde_json::from_str(&plan.stdout).expect("JSON");
        let levels = plan["levels"].as_array().expect("levels");
        levels.iter().filter_map(|level| level["host_bytes"].as_u64()).max().expect("bytes")
    };
    let given = ["--fixed-labels", &maps[0], "--moving-labels", &maps[1]];
    let (alone, measured) = (bytes(&[]), bytes(&given));
    assert_eq!(alone, measured, "labels that are measured are no channels");
    let channel = bytes(&["--channels", &fixed, &moving]) - alone;
    let labels = bytes(&[&given[..], &LABELS].concat()) - alone;
    assert!(channel > 0 && labels == 4 * channel, "{channel} {labels}");
    let planned = |more: &[&str]| {
        let plan = ffdp(&[&["plan", "-f", &fixed, "-m", &moving, "--json"][..], more].concat());
        plan.succeeded();
        let plan: Value = serde_json::from_str(&plan.stdout).expect("JSON");
        plan["levels"][0]["host_bytes"].as_u64().expect("bytes")
    };
    let more = planned(&["--channels", "1"]) - planned(&[]);
    assert!(more > 0 && planned(&LABELS) - planned(&[]) == 4 * more, "{more}");
}

#[test]
fn channels_of_files_are_those_that_terms_name() {
    let folder = Folder::new();
    let pair = write_pair(&folder, 32, 3);
    let [fixed, moving] = ["fixed.nii.gz", "moving.nii.gz"].map(|name| folder.path(name));
    // Features that say nothing, and the image itself, in one file of two volumes.
    let features = ["fixed", "moving"].map(|name| folder.path(&format!("{name}_features.nii.gz")));
    for (file, side) in features.iter().zip([&pair.fixed, &pair.moving]) {
        let geometry = side.image.geometry.clone();
        // Dark at the border, as the image: what lies beyond would not count otherwise.
        let inside = |i: usize| f32::from(u8::from(side.labels.data[i] != 0));
        let value = |i: usize| inside(i) * geometry.index_of(i)[0] as f32;
        let data = (0..geometry.len()).map(value).collect();
        let ramp = Volume::new(data, geometry.clone()).expect("same size");
        write_volumes(file, &[ramp, side.image.clone()], 0.0).expect("writable");
    }
    let stage = |similarity: &str| {
        format!(
            "[[stages]]\ntransform = \"greedy\"\nlevels = [{{ shrink = 1, iterations = 6 }}]\n{similarity}"
        )
    };
    let term = "[[stages.similarity.sum]]\nweight = 1.0\nchannels = [0, 2]\nsimilarity = \"mse\"\n";
    for (name, text) in [("one", stage("similarity = \"mse\"\n")), ("named", stage(term))] {
        fs::write(folder.path(&format!("{name}.toml")), text).expect("writable");
    }
    let run = |out: &str, more: &[&str]| {
        let to = folder.path(out);
        ffdp(&[&["register", "-f", &fixed, "-m", &moving, "-o", &to, "-q"], more].concat())
    };
    let field =
        |out: &str| read_displacement(folder.path(&format!("{out}/warp.nii.gz"))).expect("ITK").0;
    let named = ["--settings", &folder.path("named.toml")];
    let channels = ["--channels", &features[0], &features[1]];
    run("one", &["--settings", &folder.path("one.toml")]).succeeded();
    run("named", &[&named[..], &channels].concat()).succeeded();
    run("slabs", &[&named[..], &channels, &["--slabs"]].concat()).succeeded();
    let one = field("one");
    for out in ["named", "slabs"] {
        let off = one.iter().zip(&field(out)).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
        // Rounding, passed on by six steps; voxels of 6 mm.
        assert!(off < 0.06, "{out}: {off} mm");
    }
    for plan in [&[][..], &["--plan"]] {
        let missing = run("none", &[&named[..], plan].concat());
        assert_eq!(missing.code, 1, "{plan:?}");
        for word in ["names channel 2", "--channels"] {
            assert!(missing.stderr.contains(word), "{plan:?}: no {word} in {}", missing.stderr);
        }
    }
    let uneven = run("none", &["--channels", &features[0], &moving]);
    assert_eq!(uneven.code, 1);
    assert!(uneven.stderr.contains("2 volumes"), "{}", uneven.stderr);
}

#[test]
fn descriptors_are_written_as_channels_that_drive_a_search() {
    let folder = Folder::new();
    let pair = write_pair(&folder, 32, 3);
    let image = |name: &str| folder.path(&format!("{name}.nii.gz"));
    let Volume { data, geometry } = pair.fixed.image;
    let data = data.iter().map(|value| -value).collect();
    let inverted = Volume { data, geometry: geometry.clone() };
    write_volume(image("inverted"), &inverted).expect("writable");
    let describe = |name: &str| {
        let to = image(&format!("{name}_mind"));
        ffdp(&["convert", &image(name), &to, "--features", "mind"]).succeeded();
        read_volumes(&to).expect("channels")
    };
    let [fixed, moving, inverted] = ["fixed", "moving", "inverted"].map(describe);
    assert_eq!((fixed.len(), moving.len()), (12, 12));
    assert!(fixed.iter().all(|channel| channel.geometry.same_grid(&geometry, 1e-3)));
    // The two neighbours that are most alike have 1 by definition; no channel is that of another.
    let values = |voxel: usize| fixed.iter().map(move |channel| channel.data[voxel]);
    for voxel in 0..geometry.len() {
        assert_eq!(values(voxel).fold(0.0, f32::max), 1.0, "{voxel}");
        assert!(values(voxel).all(|value| (0.0..=1.0).contains(&value)), "{voxel}");
    }
    assert!((1..12).all(|k| fixed[..k].iter().all(|other| other.data != fixed[k].data)));
    // Differences of the inverted image are those of the image but for their sign, exactly.
    assert!(fixed.iter().zip(&inverted).all(|(a, b)| a.data == b.data));
    let (from, to) = (image("fixed"), image("moving"));
    let described = ["fixed_mind", "moving_mind"].map(image);
    let search = ["--aligned", "--transform", "discrete", "--features", "mse"];
    let files = ["-f", &from, "-m", &to, "-o", &folder.path("out"), "-q"];
    let channels = ["--channels", &described[0], &described[1]];
    ffdp(&[&["register"], &files[..], &search, &channels].concat()).succeeded();
}

#[test]
fn labels_that_cannot_drive_are_refused() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    let maps = ["fixed_labels.nii.gz", "moving_labels.nii.gz"].map(|name| folder.path(name));
    let given = ["--fixed-labels", &maps[0], "--moving-labels", &maps[1]];
    for (more, words) in [
        (LABELS.to_vec(), ["--label-terms", "--fixed-labels"]),
        ([&given[..], &["--label-weight", "2"]].concat(), ["--label-weight 2", "--label-terms"]),
        ([&given[..], &["--label-terms", "1,99"]].concat(), ["label 99", "--label-terms"]),
        ([&given[..], &["--label-terms", "0"]].concat(), ["background", "label_term"]),
    ] {
        let run = register(&folder, "fixed.nii.gz", "moving.nii.gz", "out", &more);
        assert_eq!(run.code, 1, "{more:?}: {}", run.stderr);
        for word in words {
            assert!(run.stderr.contains(word), "{more:?}: no {word:?} in {}", run.stderr);
        }
    }
}
