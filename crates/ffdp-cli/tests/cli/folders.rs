//! An output folder holds the results of one run.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use ffdp_image::image::Volume;
use ffdp_image::io::images::write_volume;
use serde_json::Value;

use crate::register;
use crate::support::{Folder, ffdp, write_bad_files, write_pair};

const FEW: [&str; 5] = ["--shrink", "2", "--iterations", "3", "-q"];

/// Every file below a folder, relative to it.
fn files(folder: &str) -> BTreeSet<String> {
    fn below(folder: &Path, start: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                below(&path, start, found);
            } else {
                let name = path.strip_prefix(start).expect("below it");
                found.insert(name.to_string_lossy().into_owned());
            }
        }
    }
    let mut found = BTreeSet::new();
    below(Path::new(folder), Path::new(folder), &mut found);
    found
}

/// What the manifest lists, and the manifest.
fn listed(folder: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(format!("{folder}/manifest.json")).expect("written");
    let manifest: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(manifest["state"], "complete");
    let names = manifest["files"].as_array().expect("a list").iter();
    let names = names.map(|name| name.as_str().expect("a name").to_string());
    names.chain(["manifest.json".to_string()]).collect()
}

#[test]
fn a_folder_never_mixes_the_results_of_two_runs() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    let [out, labels] = ["out", "moving_labels.nii.gz"].map(|name| folder.path(name));
    let run = |more: &[&str]| {
        register(&folder, "fixed.nii.gz", "moving.nii.gz", "out", &[&FEW, more].concat())
    };
    run(&["--moving-labels", &labels]).succeeded();
    let names = files(&out);
    assert_eq!(names, listed(&out));
    assert!(names.contains("inverse_warp.nii.gz") && names.contains("warped_labels.nii.gz"));
    fs::write(folder.path("out/notes.txt"), "of the user").expect("writable");

    // Without labels, without an inverse, with other settings, of another image.
    let refused = |run: crate::ProcessOutput, word: &str| {
        assert_eq!(run.code, 1, "{word}: {}", run.stderr);
        for word in [word, "an earlier run", "--overwrite"] {
            assert!(run.stderr.contains(word), "no {word:?} in {}", run.stderr);
        }
        assert_eq!(files(&out).len(), names.len() + 1, "{word}: nothing is touched");
    };
    refused(run(&[]), "moving_labels");
    refused(run(&["--resume"]), "moving_labels");
    refused(run(&["--moving-labels", &labels, "--no-inverse"]), "no_inverse");
    refused(run(&["--moving-labels", &labels, "--metric", "mse"]), "settings");
    refused(run(&["--slabs", "--moving-labels", &labels]), "slabs");
    refused(register(&folder, "fixed.nii.gz", "fixed.nii.gz", "out", &FEW), "moving");
    // The same again is no other run, wherever it is computed.
    run(&["--moving-labels", &labels, "--shards", "2"]).succeeded();

    run(&["--no-inverse", "--overwrite"]).succeeded();
    let mut names = files(&out);
    assert!(names.remove("notes.txt"), "files of others stay");
    assert_eq!(names, listed(&out));
    for old in ["inverse_warp.nii.gz", "warped_labels.nii.gz"] {
        assert!(!names.contains(old), "{old} is of the earlier run");
    }
    run(&["--slabs", "--overwrite"]).succeeded();
    assert!(!folder.has("out/inverse_warp.nii.gz"), "of the earlier run");

    // A folder of an earlier version has no list.
    fs::remove_file(folder.path("out/manifest.json")).expect("written");
    let unlisted = run(&["--slabs"]);
    assert_eq!(unlisted.code, 1, "{}", unlisted.stderr);
    assert!(unlisted.stderr.contains("without a list"), "{}", unlisted.stderr);
    run(&["--overwrite"]).succeeded();
}

#[test]
fn a_rigid_run_leaves_no_warp_of_an_earlier_one() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    let [fixed, moving, out] = ["fixed.nii.gz", "moving.nii.gz", "out"].map(|n| folder.path(n));
    register(&folder, "fixed.nii.gz", "moving.nii.gz", "out", &FEW).succeeded();
    assert!(folder.has("out/warp.nii.gz"));
    let rigid = ["register", "-f", &fixed, "-m", &moving, "-o", &out, "--transform", "rigid"];
    let rigid = [&rigid[..], &FEW].concat();
    assert_eq!(ffdp(&rigid).code, 1);
    ffdp(&[&rigid[..], &["--overwrite"]].concat()).succeeded();
    assert!(!folder.has("out/warp.nii.gz") && !folder.has("out/inverse_warp.nii.gz"));
    assert!(folder.has("out/affine.txt"));
}

#[test]
fn predict_does_not_write_next_to_the_results_of_register() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    let [fixed, moving, out] = ["fixed.nii.gz", "moving.nii.gz", "out"].map(|n| folder.path(n));
    register(&folder, "fixed.nii.gz", "moving.nii.gz", "out", &FEW).succeeded();
    let predict = ["predict", "--model", "/nowhere", "-f", &fixed, "-m", &moving, "-o", &out];
    let run = ffdp(&predict);
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("another run (ffdp register"), "{}", run.stderr);
    // Nothing is removed by a request that fails.
    let run = ffdp(&[&predict[..], &["--overwrite"]].concat());
    assert!(run.code == 1 && run.stderr.contains("--model"), "{}", run.stderr);
    assert!(folder.has("out/affine.txt"));
}

#[test]
fn a_folder_with_a_list_of_another_program_is_refused() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    fs::create_dir(folder.path("out")).expect("writable");
    fs::write(folder.path("out/manifest.json"), r#"{"name": "a page"}"#).expect("writable");
    let more = [&FEW[..], &["--overwrite"]].concat();
    let run = register(&folder, "fixed.nii.gz", "moving.nii.gz", "out", &more);
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("not written by ffdp"), "{}", run.stderr);
}

/// Every file of a folder with its content.
fn content(folder: &str) -> Vec<(String, Vec<u8>)> {
    let read = |name: String| {
        let bytes = fs::read(format!("{folder}/{name}")).expect("listed");
        (name, bytes)
    };
    files(folder).into_iter().map(read).collect()
}

#[test]
fn a_run_that_is_refused_leaves_earlier_results_as_they_were() {
    let folder = Folder::new();
    let pair = write_pair(&folder, 32, 3);
    write_bad_files(&folder);
    let far = pair.moving.image.geometry.clone().with_origin([1000.0; 3]).expect("valid");
    let far = Volume { geometry: far, ..pair.moving.image.clone() };
    write_volume(folder.path("far.nii.gz"), &far).expect("writable");
    let constant = Volume { data: vec![2.0; far.data.len()], ..pair.moving.image.clone() };
    write_volume(folder.path("constant.nii.gz"), &constant).expect("writable");
    // They meet nowhere: only the deformation asks for it, after all linear stages.
    let masks = [0, 1].map(|side: usize| {
        let geometry = pair.fixed.image.geometry.clone();
        let counts = |x: usize| if side == 0 { x < 10 } else { x > 20 };
        let half = |i: usize| f32::from(u8::from(counts(geometry.index_of(i)[0])));
        let weights = (0..geometry.len()).map(half).collect();
        let file = folder.path(&format!("half_{side}.nii.gz"));
        let mask = Volume::new(weights, geometry.clone()).expect("one for each voxel");
        write_volume(&file, &mask).expect("writable");
        file
    });
    let masks = ["--fixed-mask", &masks[0], "--moving-mask", &masks[1]];
    register(&folder, "fixed.nii.gz", "moving.nii.gz", "out", &FEW).succeeded();
    let out = folder.path("out");
    let before = content(&out);
    let run = |moving: &str, more: &[&str]| {
        let more = [&FEW, more, &["--overwrite", "--checkpoint-every", "1000"]].concat();
        register(&folder, "fixed.nii.gz", moving, "out", &more)
    };
    for slabs in [&[][..], &["--slabs"]] {
        for (moving, more, word) in [
            ("far.nii.gz", &[][..], "overlap"),
            ("constant.nii.gz", &[], "constant"),
            ("truncated.nii.gz", &[], "truncated.nii.gz"),
            ("nan.nii.gz", &[], "NaN"),
            ("moving.nii.gz", &masks, "meet"),
        ] {
            let run = run(moving, &[slabs, more].concat());
            assert_eq!(run.code, 1, "{moving} {slabs:?}: {}", run.stderr);
            assert!(run.stderr.contains(word), "no {word:?} in {}", run.stderr);
            assert!(content(&out) == before, "{moving} {slabs:?}: {:?}", files(&out));
        }
    }
    // The same file, damaged since: the run repeats itself, and is refused.
    let whole = fs::read(folder.path("moving.nii.gz")).expect("written");
    for slabs in [&[][..], &["--slabs"]] {
        fs::write(folder.path("moving.nii.gz"), &whole).expect("writable");
        let more = [&FEW, slabs, &["--overwrite"]].concat();
        register(&folder, "fixed.nii.gz", "moving.nii.gz", "out", &more).succeeded();
        let before = content(&out);
        fs::write(folder.path("moving.nii.gz"), &whole[..whole.len() / 2]).expect("writable");
        let more = [&FEW, slabs].concat();
        let run = register(&folder, "fixed.nii.gz", "moving.nii.gz", "out", &more);
        assert_eq!(run.code, 1, "{}", run.stderr);
        assert!(content(&out) == before, "{slabs:?}: {:?}", files(&out));
    }
    fs::write(folder.path("moving.nii.gz"), &whole).expect("writable");
    run("moving.nii.gz", &["--metric", "mse"]).succeeded();
    assert_eq!(files(&out), listed(&out));
    assert!(content(&out) != before);
    let log = fs::read_to_string(folder.path("out/log.jsonl")).expect("written");
    assert!(log.lines().next().is_some_and(|line| line.contains("\"start\"")), "{log}");
    assert!(log.contains("level_end"), "what happened before the file was there: {log}");
}

#[test]
fn the_disk_space_that_a_plan_expects_is_taken() {
    let folder = Folder::new();
    write_pair(&folder, 64, 3);
    let few = ["--shrink", "4,2", "--iterations", "20,10"];
    let [fixed, moving] = ["fixed.nii.gz", "moving.nii.gz"].map(|name| folder.path(name));
    let plan = ffdp(&[&["plan", "-f", &fixed, "-m", &moving, "--json"][..], &few].concat());
    plan.succeeded();
    let plan: Value = serde_json::from_str(&plan.stdout).expect("JSON");
    let expected = plan["disk_bytes"].as_u64().expect("bytes");
    register(&folder, "fixed.nii.gz", "moving.nii.gz", "out", &few).succeeded();
    let taken: usize = content(&folder.path("out")).iter().map(|(_, bytes)| bytes.len()).sum();
    println!("{taken} bytes, {expected} were expected");
    assert!(expected.abs_diff(taken as u64) * 5 < taken as u64, "{taken} {expected}");
    assert!(taken as u64 <= plan["disk_bytes_at_most"].as_u64().expect("bytes"));
}

#[test]
fn a_plan_refuses_the_folder_of_another_run_as_the_run_does() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    fs::create_dir(folder.path("out")).expect("writable");
    fs::write(folder.path("out/warped.nii.gz"), "of another run").expect("writable");
    fs::write(folder.path("list.csv"), "image,labels\nmoving.nii.gz,moving_labels.nii.gz\n")
        .expect("writable");
    let [fixed, moving, list, out] =
        ["fixed.nii.gz", "moving.nii.gz", "list.csv", "out"].map(|name| folder.path(name));
    for command in [
        &["register", "-f", &fixed, "-m", &moving][..],
        &["template", &fixed, &moving],
        &["fuse", "-f", &fixed, "-i", &list],
    ] {
        for more in [&[][..], &["--plan"]] {
            let run = ffdp(&[command, &["-o", &out], more].concat());
            assert_eq!(run.code, 1, "{command:?} {more:?}: {}", run.stderr);
            assert!(run.stderr.contains("--overwrite"), "{command:?} {more:?}: {}", run.stderr);
        }
        ffdp(&[command, &["-o", &out, "--plan", "--overwrite"]].concat()).succeeded();
    }
    assert_eq!(files(&out), BTreeSet::from(["warped.nii.gz".to_string()]), "nothing was done");
}
