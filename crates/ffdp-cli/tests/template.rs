//! `ffdp template`: its results, broken images, runs that were killed.

// Other binaries of tests use more of it.
#[allow(dead_code)]
mod support;

use std::fs;

use ffdp_image::image::Volume;
use ffdp_image::io::images::{read_labels, read_volume, write_labels, write_volume};
use ffdp_image::synth::{PhantomSettings, pair, subject};
use serde_json::Value;
use support::{Folder, ffdp};

/// Levels have at least 16 voxels along an axis.
const SIZE: usize = 24;
/// Quick registrations.
const QUICK: [&str; 10] = [
    "--preset",
    "fast",
    "--shrink",
    "2,1",
    "--iterations",
    "8,4",
    "--rounds",
    "1",
    "--linear-rounds",
    "1",
];

/// Four brains with labels, and their list; the paths of the images.
fn write_cohort(folder: &Folder) -> Vec<String> {
    let mut files = Vec::new();
    let mut list = "image,labels,name\n".to_string();
    for seed in [3, 5] {
        let pair = pair(&PhantomSettings::with_size([SIZE; 3]), seed).expect("valid settings");
        for (side, subject) in [("a", &pair.fixed), ("b", &pair.moving)] {
            let (image, labels) =
                (format!("i{seed}{side}.nii.gz"), format!("l{seed}{side}.nii.gz"));
            write_volume(folder.path(&image), &subject.image).expect("writable");
            write_labels(folder.path(&labels), &subject.labels).expect("writable");
            list += &format!("{image},{labels},brain{seed}{side}\n");
            files.push(folder.path(&image));
        }
    }
    fs::write(folder.path("images.csv"), list).expect("writable");
    files
}

fn metrics(folder: &Folder, output: &str) -> Value {
    let text = fs::read(folder.path(&format!("{output}/metrics.json"))).expect("written");
    serde_json::from_slice(&text).expect("JSON")
}

fn bits(volume: &Volume) -> Vec<u32> {
    volume.data.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn a_list_becomes_a_template_with_maps_both_ways() {
    let folder = Folder::new();
    let images = write_cohort(&folder);
    let (list, out) = (folder.path("images.csv"), folder.path("out"));
    let run = |more: &[&str]| {
        let arguments = ["template", "-i", &list, "-o", &out];
        ffdp(&[&arguments[..], &QUICK, more].concat())
    };
    let plan = run(&["--plan"]);
    plan.succeeded();
    assert!(plan.stdout.contains("host memory at the peak"), "{}", plan.stdout);
    let done = run(&[]);
    done.succeeded();
    assert!(done.stdout.contains("4 of 4") && done.stdout.contains("labels"), "{}", done.stdout);
    for file in [
        "template.nii.gz",
        "mean.nii.gz",
        "variance.nii.gz",
        "labels.nii.gz",
        "report.html",
        "settings.toml",
        "log.jsonl",
        "manifest.json",
    ] {
        assert!(folder.has(&format!("out/{file}")), "{file}");
    }
    assert!(!folder.has("out/checkpoint"), "the state is removed");
    let found = metrics(&folder, "out");
    assert_eq!(found["used"], 4);
    assert_eq!(found["rounds"].as_array().map(Vec::len), Some(3));
    assert!(found["mean_dice"].as_f64().expect("labels") > 0.5, "{}", found["mean_dice"]);
    let template = read_volume(folder.path("out/template.nii.gz")).expect("written");
    let labels = read_labels(folder.path("out/labels.nii.gz")).expect("written");
    assert_eq!(template.geometry.size, [SIZE; 3]);
    assert!(labels.ids().len() > 5);
    // Its folders are those of registrations.
    let (folder_of_one, seen) = (folder.path("out/brain3a"), folder.path("seen.nii.gz"));
    let reference = folder.path("out/template.nii.gz");
    ffdp(&["apply", "-i", &images[0], "-t", &folder_of_one, "-r", &reference, "-o", &seen])
        .succeeded();
    let seen = read_volume(&seen).expect("written");
    let (a, b) = (seen.data.iter(), template.data.iter());
    let off = a.zip(b).map(|(a, b)| f64::from((a - b).abs())).sum::<f64>() / seen.data.len() as f64;
    let (_, high) = template.min_max().expect("finite");
    assert!(off < 0.15 * f64::from(high), "{off} of {high}");
    // The same command does it again, others are refused.
    run(&[]).succeeded();
    let refused = run(&["--sharpen", "0"]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("other settings"), "{}", refused.stderr);
    // Files in another order give the same bits, and so do devices that share them.
    let other = folder.path("other");
    let reversed: Vec<&str> = images.iter().rev().map(String::as_str).collect();
    let two = ["--devices", "cpu,cpu"];
    ffdp(&[&["template", "-o", &other], &reversed[..], &QUICK, &two].concat()).succeeded();
    let other = read_volume(folder.path("other/template.nii.gz")).expect("written");
    assert!(bits(&other) == bits(&template));
}

/// Of values on a template's scale: a point on the grid is a voxel of an image up to the rounding of its coordinates.
const ROUNDED: f32 = 1e-4;

#[test]
fn the_median_of_images_that_lie_still_is_that_of_their_voxels() {
    let folder = Folder::new();
    let images = write_cohort(&folder);
    let out = folder.path("out");
    let still = [
        "--aligned",
        "--rounds",
        "0",
        "--intensities",
        "keep",
        "--sharpen",
        "0",
        "--device",
        "cpu",
    ];
    let average = ["--average", "median"];
    let command = ["template", &images[0], &images[1], &images[2], "-o", &out];
    ffdp(&[&command[..], &still, &average].concat()).succeeded();
    let template = read_volume(folder.path("out/template.nii.gz")).expect("written");
    let all = images[..3].iter().map(|file| read_volume(file).expect("written"));
    let all: Vec<Volume> = all.collect();
    assert_eq!(template.geometry.size, [SIZE; 3]);
    let (_, high) = template.min_max().expect("finite");
    let mut away_from_mean = 0.0f32;
    for (voxel, found) in template.data.iter().enumerate() {
        let mut here = [0, 1, 2].map(|k| all[k].data[voxel]);
        here.sort_by(f32::total_cmp);
        assert!((found - here[1]).abs() <= ROUNDED * high, "voxel {voxel}: {found} of {here:?}");
        away_from_mean = away_from_mean.max((here[1] - here.iter().sum::<f32>() / 3.0).abs());
    }
    assert!(away_from_mean > 100.0 * ROUNDED * high, "a mean would pass as well");
}

#[test]
fn one_broken_image_among_twelve_does_not_stop_the_others() {
    let folder = Folder::new();
    let mut list = "image,name\n".to_string();
    for seed in 0..12 {
        let file = folder.path(&format!("i{seed}.nii.gz"));
        let brain = subject(&PhantomSettings::with_size([SIZE; 3]), seed).expect("valid settings");
        write_volume(&file, &brain.image).expect("writable");
        if seed == 6 {
            let bytes = fs::read(&file).expect("written");
            fs::write(&file, &bytes[..bytes.len() / 2]).expect("writable");
        }
        list += &format!("i{seed}.nii.gz,brain{seed}\n");
    }
    fs::write(folder.path("images.csv"), list).expect("writable");
    let (list, out) = (folder.path("images.csv"), folder.path("out"));
    let done = ffdp(&[&["template", "-i", &list, "-o", &out][..], &QUICK].concat());
    done.succeeded();
    assert!(done.stderr.contains("brain6 is left out"), "{}", done.stderr);
    assert!(done.stdout.contains("11 of 12"), "{}", done.stdout);
    let found = metrics(&folder, "out");
    assert_eq!((&found["used"], &found["excluded"][0]["name"]), (&11.into(), &"brain6".into()));
    for round in found["rounds"].as_array().expect("rounds") {
        assert_eq!(round["images"].as_array().map(Vec::len), Some(11), "{round}");
    }
}

#[test]
fn broken_images_are_named_and_a_killed_run_goes_on() {
    let folder = Folder::new();
    let images = write_cohort(&folder);
    let out = folder.path("out");
    let mut list = fs::read_to_string(folder.path("images.csv")).expect("written");
    let bytes = fs::read(&images[0]).expect("written");
    fs::write(folder.path("torn.nii.gz"), &bytes[..bytes.len() / 2]).expect("writable");
    list += "torn.nii.gz,,torn\nabsent.nii.gz,,absent\ni3a.nii.gz,,again\n";
    fs::write(folder.path("broken.csv"), list).expect("writable");
    let broken = folder.path("broken.csv");
    let run = |more: &[&str]| {
        let arguments = ["template", &broken, "-o", &out];
        ffdp(&[&arguments[..], &QUICK, more].concat())
    };
    let done = run(&["--strict"]);
    assert_eq!(done.code, 3, "{}", done.stderr);
    for word in
        ["torn is left out", "absent is left out", "i3a.nii.gz is there already, as brain3a"]
    {
        assert!(done.stderr.contains(word), "no {word:?} in {}", done.stderr);
    }
    assert_eq!(metrics(&folder, "out")["used"], 4);
    let template = read_volume(folder.path("out/template.nii.gz")).expect("written");
    // A state as a killed run leaves it: the same run is gone on with, another is refused.
    let (list, killed) = (folder.path("images.csv"), folder.path("killed"));
    let resume = |more: &[&str]| {
        let arguments = ["template", &list, "-o", &killed, "--resume"];
        ffdp(&[&arguments[..], &QUICK, more].concat())
    };
    let begun = resume(&[]);
    begun.succeeded();
    assert!(begun.stderr.contains("starting anew"), "{}", begun.stderr);
    let again = read_volume(folder.path("killed/template.nii.gz")).expect("written");
    assert!(bits(&again) == bits(&template), "images that are left out change nothing");
    let alone = ffdp(&["template", &images[0], "-o", &folder.path("alone")]);
    assert_eq!(alone.code, 1);
    assert!(alone.stderr.contains("two images"), "{}", alone.stderr);
    let search = resume(&["--search"]);
    assert!(search.code == 1 && search.stderr.contains("--search"), "{}", search.stderr);
}

#[test]
fn flags_of_groups_without_an_effect_are_refused() {
    let folder = Folder::new();
    let images = write_cohort(&folder);
    let (list, out) = (folder.path("images.csv"), folder.path("out"));
    let template = ["template", &images[0], &images[1], "-o", &out];
    let fuse = ["fuse", "-f", &images[0], "-i", &list, "-o", &out];
    let majority = ["--method", "majority"];
    type Case<'a> = (&'a [&'a str], &'a [&'a str], &'a [&'a str]);
    let cases: &[Case] = &[
        (&template, &["--trim", "0.2"], &["--trim 0.2", "--average trimmed"]),
        (&template, &["--average", "median", "--trim", "0.2"], &["--trim 0.2"]),
        (&template, &["--rounds", "0", "--tolerance", "0.1"], &["--tolerance 0.1", "--rounds 0"]),
        (&template, &["--transform", "rigid", "--rounds", "3"], &["--rounds 3", "no deformable"]),
        (&template, &["--aligned", "--linear-rounds", "3"], &["--linear-rounds 3", "no linear"]),
        (&template, &["--label-terms", "1,2"], &["label_term", "leave it out"]),
        (&template, &["--nan-policy", "mask"], &["--nan-policy mask", "ffdp template"]),
        (&template, &["--volume", "2"], &["--volume 2", "more than one volume"]),
        (&fuse, &["--landmark-sigma", "1"], &["landmark_sigma_mm", "leave it out"]),
        (&fuse, &["--label-terms", "1,2"], &["label_term", "leave it out"]),
        (&fuse, &["--nan-policy", "mask"], &["--nan-policy mask", "ffdp fuse"]),
        (&fuse, &["--volume", "2"], &["--volume 2", "more than one volume"]),
        (&fuse, &[&majority[..], &["--alpha", "0.2"]].concat(), &["--alpha 0.2", "--method joint"]),
        (&fuse, &[&majority[..], &["--exponent", "3"]].concat(), &["--exponent 3"]),
        (&fuse, &[&majority[..], &["--patch-radius", "1"]].concat(), &["--patch-radius 1"]),
        (&fuse, &[&majority[..], &["--search-radius", "1"]].concat(), &["--search-radius 1"]),
    ];
    for (command, more, words) in cases {
        let run = ffdp(&[*command, more].concat());
        assert_eq!(run.code, 1, "{command:?} {more:?}: {}", run.stderr);
        for word in *words {
            assert!(run.stderr.contains(word), "{more:?}: no {word:?} in {}", run.stderr);
        }
        assert!(!folder.has("out"), "{more:?}: something was written");
    }
    let trimmed = ["--average", "trimmed", "--trim", "0.2", "--plan"];
    ffdp(&[&template[..], &trimmed].concat()).succeeded();
    ffdp(&[&fuse[..], &majority, &["--plan"]].concat()).succeeded();
}

#[test]
fn atlases_label_an_image() {
    let folder = Folder::new();
    let images = write_cohort(&folder);
    let mut list = "image,labels\n".to_string();
    for name in ["3b", "5a", "5b"] {
        list += &format!("i{name}.nii.gz,l{name}.nii.gz\n");
    }
    list += "i5a.nii.gz,l5a.nii.gz\nabsent.nii.gz,l5a.nii.gz\n";
    fs::write(folder.path("atlases.csv"), list).expect("writable");
    let (list, out) = (folder.path("atlases.csv"), folder.path("out"));
    let run = |more: &[&str]| {
        let arguments = ["fuse", "-f", &images[0], "-i", &list, "-o", &out];
        let quick = ["--preset", "fast", "--shrink", "2,1", "--iterations", "8,4"];
        ffdp(&[&arguments[..], &quick, more].concat())
    };
    let small = ["--patch-radius", "1", "--search-radius", "1"];
    let done = run(&small);
    done.succeeded();
    assert!(done.stdout.contains("3 of 4"), "{}", done.stdout);
    for word in ["absent is left out", "is there already, as i5a"] {
        assert!(done.stderr.contains(word), "no {word:?} in {}", done.stderr);
    }
    let labels = read_labels(folder.path("out/labels.nii.gz")).expect("written");
    let truth = read_labels(folder.path("l3a.nii.gz")).expect("written");
    let score = ffdp_image::metrics::dice(&truth.data, &labels.data).expect("one grid").mean();
    assert!(score > 0.5, "{score}");
    assert!(!folder.has("out/checkpoint"), "the state is removed");
    let refused = run(&["--method", "majority"]);
    assert!(refused.code == 1 && refused.stderr.contains("other settings"), "{}", refused.stderr);
    run(&["--method", "majority", "--overwrite"]).succeeded();
    let found = metrics(&folder, "out");
    assert_eq!(
        (&found["weighed_voxels"], &found["settings"]["method"]),
        (&0.into(), &"majority".into())
    );
}
