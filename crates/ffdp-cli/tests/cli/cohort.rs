//! Many pairs by one process: what each would be alone, whatever becomes of the others.

use std::fs;
use std::process::{Command, Stdio};

use ffdp_image::image::Volume;
use ffdp_image::io::images::{read_displacement, read_volume, write_volume, write_volumes};
use serde_json::Value;

use crate::support::{Folder, ProcessOutput, ffdp, write_pair};

const LEVELS: [&str; 5] = ["--aligned", "--shrink", "2,1", "--iterations", "12,6"];
const PAIRS: [&str; 3] = ["a", "b", "c"];

/// Three pairs in folders of their own, with a list of them; the second is of another size.
fn write_pairs(folder: &Folder) -> String {
    let mut list = "fixed,moving,fixed_labels,moving_labels,name\n".to_string();
    for (k, name) in PAIRS.iter().enumerate() {
        fs::create_dir(folder.path(name)).expect("writable");
        write_pair(folder, 20 + 4 * (k % 2), k as u64);
        for file in ["fixed", "moving", "fixed_labels", "moving_labels"] {
            let file = format!("{file}.nii.gz");
            fs::rename(folder.path(&file), folder.path(&format!("{name}/{file}")))
                .expect("written");
            list += &format!("{name}/{file},");
        }
        list += &format!("{name}\n");
    }
    let path = folder.path("pairs.csv");
    fs::write(&path, list).expect("writable");
    path
}

fn register(list: &str, out: &str, more: &[&str]) -> ProcessOutput {
    ffdp(&[&["register", "--pairs", list, "-o", out], &LEVELS[..], more].concat())
}

/// The pair alone.
fn alone(folder: &Folder, name: &str, out: &str, more: &[&str]) {
    let file = |file: &str| folder.path(&format!("{name}/{file}.nii.gz"));
    let (fixed, moving) = (file("fixed"), file("moving"));
    let labels = [file("fixed_labels"), file("moving_labels")];
    let labels = ["--fixed-labels", &labels[0], "--moving-labels", &labels[1]];
    let images = ["register", "-f", &fixed, "-m", &moving, "-o", out];
    ffdp(&[&images, &labels[..], &LEVELS, more].concat()).succeeded();
}

/// Every bit of the results of a pair.
fn results(out: &str) -> (Vec<u32>, Vec<u32>, Vec<u8>, Vec<u8>, Value) {
    let words = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect();
    let path = |name: &str| format!("{out}/{name}");
    let (field, _) = read_displacement(path("warp.nii.gz")).expect("ITK");
    let warped = read_volume(path("warped.nii.gz")).expect("written");
    let bytes = |name: &str| fs::read(path(name)).expect("written");
    let metrics: Value = serde_json::from_slice(&bytes("metrics.json")).expect("JSON");
    let measured = ["similarity", "folds", "dice", "inverse", "loss", "settings"];
    let measured = measured.map(|name| metrics[name].clone());
    let [affine, labels] = [bytes("affine.txt"), bytes("warped_labels.nii.gz")];
    (words(field), words(warped.data), affine, labels, Value::from(measured.to_vec()))
}

#[test]
fn a_cohort_gives_the_bits_of_separate_runs() {
    let folder = Folder::new();
    let list = write_pairs(&folder);
    let (out, two) = (folder.path("out"), folder.path("two"));
    let run = register(&list, &out, &[]);
    run.succeeded();
    // Two pairs at a time.
    register(&list, &two, &["--devices", "cpu,cpu", "-q"]).succeeded();
    for name in PAIRS {
        let single = folder.path(&format!("single-{name}"));
        alone(&folder, name, &single, &[]);
        let expected = results(&single);
        assert!(results(&format!("{out}/{name}")) == expected, "{name}");
        assert!(results(&format!("{two}/{name}")) == expected, "{name}, two at a time");
        assert!(run.stdout.contains(name) && run.stderr.contains("[3/3]"), "{}", run.stderr);
    }
    assert!(run.stdout.contains("mean"), "{}", run.stdout);
    let csv = fs::read_to_string(format!("{out}/summary.csv")).expect("written");
    assert_eq!(csv.lines().count(), 4, "{csv}");
    assert!(csv.lines().skip(1).all(|line| line.contains(",done,aligned,0.")), "{csv}");
    let page = fs::read_to_string(format!("{out}/index.html")).expect("written");
    assert!(PAIRS.iter().all(|name| page.contains(&format!("href=\"{name}/report.html\""))));
    // A picture of each pair, in its folder; columns that sort by a script in the page.
    assert!(page.contains("table class=\"numbers sortable\"") && page.contains("aria-sort"));
    let body = page.split("</tbody>").next().expect("a table");
    assert!(!body.contains("mean") && page.contains("<tfoot><tr><td>mean"), "{page}");
    for name in PAIRS {
        assert!(page.contains(&format!("src=\"{name}/thumbnail.png\"")), "{name}: {page}");
        let picture = fs::read(format!("{out}/{name}/thumbnail.png")).expect("written");
        assert!(picture.starts_with(b"\x89PNG"), "{name}");
    }
    assert!(!folder.has("single-a/thumbnail.png"), "the report of one pair has all");
}

/// Writes channels of both images of a pair: one in files that end with `_one`, two in those with `_two`.
fn write_channels(folder: &Folder, name: &str) {
    for side in ["fixed", "moving"] {
        let file = |what: &str| folder.path(&format!("{name}/{side}{what}.nii.gz"));
        let Volume { data, geometry } = read_volume(file("")).expect("an image");
        let of = |value: fn(f32) -> f32| {
            let data = data.iter().copied().map(value).collect();
            Volume::new(data, geometry.clone()).expect("same size")
        };
        let [square, cube] = [of(|value| value * value), of(|value| value.powi(3))];
        write_volume(file("_one"), &cube).expect("writable");
        write_volumes(file("_two"), &[square, cube], 0.0).expect("writable");
    }
}

#[test]
fn channels_of_a_list_give_the_bits_of_separate_runs_with_the_flag() {
    let folder = Folder::new();
    let list = write_pairs(&folder);
    let channels = ["a", "b"].map(|name| {
        write_channels(&folder, name);
        let sides = ["fixed", "moving"];
        let [one, two] =
            ["one", "two"].map(|of| sides.map(|side| format!("{name}/{side}_{of}.nii.gz")));
        (one, two)
    });
    let [(a_one, a_two), (b_one, b_two)] = &channels;
    let fields = |[fixed, moving]: &[String; 2]| format!(",{fixed},{moving}\n");
    let text = fs::read_to_string(&list).expect("written");
    let lines: Vec<&str> = text.lines().collect();
    // Two files in a field, one file of two volumes, and none.
    let several = [0, 1].map(|side| format!("{}; {}", a_one[side], a_two[side]));
    let list_with = |of_b: &[String; 2]| {
        let rows = [&several, of_b].map(fields);
        let [head, a, b, c] = lines[..] else { panic!("three pairs: {text}") };
        let columns = ",fixed_channels,moving_channels\n";
        fs::write(&list, format!("{head}{columns}{a}{}{b}{}{c},,\n", rows[0], rows[1]))
            .expect("writable");
    };
    list_with(b_two);
    let out = folder.path("out");
    register(&list, &out, &["-q"]).succeeded();
    let flag = |[fixed, moving]: &[String; 2]| {
        ["--channels".to_string(), folder.path(fixed), folder.path(moving)]
    };
    let flags = [[flag(a_one), flag(a_two)].concat(), flag(b_two).to_vec(), Vec::new()];
    for (name, flags) in PAIRS.into_iter().zip(&flags) {
        let single = folder.path(&format!("single-{name}"));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        alone(&folder, name, &single, &flags);
        assert!(results(&format!("{out}/{name}")) == results(&single), "{name}");
    }
    let without = folder.path("without");
    alone(&folder, "b", &without, &[]);
    assert!(results(&without).0 != results(&format!("{out}/b")).0, "channels count");

    // What is complete stays; other files of channels are other inputs.
    let status = |more: &[&str]| {
        let run = register(&list, &out, &[&["--json"], more].concat());
        let rows: Value = serde_json::from_str(&run.stdout).expect("JSON only");
        let status = [0, 1, 2].map(|k| rows[k]["status"].as_str().unwrap_or("none").to_string());
        (status, run.stderr)
    };
    assert_eq!(status(&["--resume"]).0, ["kept", "kept", "kept"]);
    list_with(b_one);
    let (of_other, said) = status(&[]);
    assert_eq!(of_other, ["kept", "outdated", "kept"], "{said}");
    assert!(said.contains("with other channels"), "{said}");
}

#[test]
fn a_bad_pair_is_reported_and_the_others_are_registered() {
    let folder = Folder::new();
    let list = write_pairs(&folder);
    let out = folder.path("out");
    // One that the header shows, and one that only reading does.
    fs::remove_file(folder.path("a/moving.nii.gz")).expect("there");
    let broken = folder.path("b/fixed.nii.gz");
    let bytes = fs::read(&broken).expect("there");
    fs::write(&broken, &bytes[..bytes.len() / 2]).expect("writable");
    let run = register(&list, &out, &["--json"]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    for words in ["a: ", "a/moving.nii.gz", "b: ", "b/fixed.nii.gz", "2 of 3 pairs failed: a, b"] {
        assert!(run.stderr.contains(words), "no {words:?} in {}", run.stderr);
    }
    let rows: Value = serde_json::from_str(&run.stdout).expect("JSON only");
    let status: Vec<&str> = (0..3).filter_map(|k| rows[k]["status"].as_str()).collect();
    assert_eq!(status, ["failed", "failed", "done"]);
    assert!(rows[0]["error"].as_str().is_some_and(|reason| reason.contains("a/moving.nii.gz")));
    assert!(folder.has("out/c/report.html") && !folder.has("out/a/report.html"));
    // Mended, the same command does those that are missing.
    fs::write(&broken, bytes).expect("writable");
    let run = register(&list, &out, &["--json"]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    let rows: Value = serde_json::from_str(&run.stdout).expect("JSON only");
    assert_eq!((&rows[1]["status"], &rows[2]["status"]), (&"done".into(), &"kept".into()));
    assert!(rows[2]["dice"].as_f64().is_some_and(|dice| dice > 0.0), "{rows}");
}

#[test]
fn a_cohort_that_was_killed_does_what_is_missing() {
    let folder = Folder::new();
    let list = write_pairs(&folder);
    let out = folder.path("out");
    let mut child = Command::new(env!("CARGO_BIN_EXE_ffdp"))
        .args(["register", "--pairs", &list, "-o", &out, "--device", "cpu"])
        .args(LEVELS)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts");
    let complete = |name: &str| {
        let manifest = fs::read_to_string(folder.path(&format!("out/{name}/manifest.json")));
        manifest.is_ok_and(|manifest| manifest.contains("\"complete\""))
    };
    while !PAIRS.iter().any(|name| complete(name)) && child.try_wait().expect("ours").is_none() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    child.kill().expect("ours");
    child.wait().expect("ours");
    let done: Vec<&str> = PAIRS.into_iter().filter(|name| complete(name)).collect();
    assert!(!done.is_empty() && done.len() < 3, "{done:?}");
    let written = |name: &str| {
        fs::metadata(folder.path(&format!("out/{name}/warp.nii.gz")))
            .and_then(|data| data.modified())
    };
    let before: Vec<_> = done.iter().map(|name| written(name).expect("complete")).collect();
    register(&list, &out, &["--resume", "-q"]).succeeded();
    let after: Vec<_> = done.iter().map(|name| written(name).expect("complete")).collect();
    assert_eq!(before, after, "what was complete is left as it was");
    for name in PAIRS {
        let single = folder.path(&format!("single-{name}"));
        alone(&folder, name, &single, &[]);
        assert!(results(&format!("{out}/{name}")) == results(&single), "{name}");
    }
    // Other settings are another run.
    let run = register(&list, &out, &["--lr", "0.1"]);
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("with other settings"), "{}", run.stderr);
}

#[test]
fn memory_does_not_grow_with_the_pairs() {
    const PAIRS: usize = 60;
    let folder = Folder::new();
    write_pair(&folder, 32, 1);
    let (list, out) = (folder.path("pairs.csv"), folder.path("out"));
    let rows = (0..PAIRS).map(|k| format!("fixed.nii.gz,moving.nii.gz,{k}\n"));
    fs::write(&list, format!("fixed,moving,name\n{}", rows.collect::<String>())).expect("writable");
    let levels = ["--aligned", "--shrink", "2", "--iterations", "3", "--no-inverse"];
    ffdp(&[&["register", "--pairs", &list, "-o", &out, "-q"], &levels[..]].concat()).succeeded();
    // Of the process until the pair was written.
    let peak = |pair: usize| {
        let text = fs::read_to_string(format!("{out}/{pair}/metrics.json")).expect("written");
        let metrics: Value = serde_json::from_str(&text).expect("JSON");
        metrics["peak_memory_bytes"].as_u64()
    };
    let (Some(few), Some(many)) = (peak(20), peak(PAIRS - 1)) else {
        println!("skipped: this system does not say how much memory a process has had");
        return;
    };
    println!("{few} and {many} bytes");
    // 147 MB both, where what is freed is given back after each pair. One pair holds some 3 MB when its results are made, so
    // 39 more that were kept would be 117 MB; glibc may keep half of that under load.
    assert!(many < few + 60_000_000, "{few} -> {many} bytes");
}

#[test]
fn lists_are_applied_and_measured_as_each_line_would_be() {
    let folder = Folder::new();
    let list = write_pairs(&folder);
    let out = folder.path("out");
    register(&list, &out, &["-q"]).succeeded();
    let [mut images, mut warps] = ["image,transform,output\n", "name,warp\n"].map(String::from);
    for name in PAIRS {
        let result = format!("out/{name}");
        images +=
            &format!("{name}/moving.nii.gz,{result}/warp.nii.gz; {result}/affine.txt,{name}.nii\n");
        warps += &format!("{name},{result}/warp.nii.gz\n");
    }
    let (images_csv, warps_csv) = (folder.path("images.csv"), folder.path("warps.csv"));
    fs::write(&images_csv, &images).expect("writable");
    fs::write(&warps_csv, warps).expect("writable");
    let run = ffdp(&["apply", "--pairs", &images_csv]);
    run.succeeded();
    for name in PAIRS {
        let [image, single] = [format!("{name}/moving.nii.gz"), format!("{name}-alone.nii")];
        let result = |file: &str| folder.path(&format!("out/{name}/{file}"));
        let (image, single) = (folder.path(&image), folder.path(&single));
        let (warp, affine) = (result("warp.nii.gz"), result("affine.txt"));
        ffdp(&["apply", "-i", &image, "-t", &warp, "-t", &affine, "-o", &single]).succeeded();
        let bytes = |path: &str| fs::read(path).expect("written");
        assert!(bytes(&single) == bytes(&folder.path(&format!("{name}.nii"))), "{name}");
    }
    let run = ffdp(&["measure", "--pairs", &list, "--json"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let rows: Value = serde_json::from_str(&run.stdout).expect("JSON only");
    let file = |name: &str| folder.path(&format!("b/{name}.nii.gz"));
    let (fixed, moving) = (file("fixed_labels"), file("moving_labels"));
    let alone = ffdp(&["measure", "--fixed-labels", &fixed, "--moving-labels", &moving, "--json"]);
    let alone: Value = serde_json::from_str(&alone.stdout).expect("JSON only");
    assert!(rows[1]["dice"].is_f64() && rows[1]["ncc"].is_f64(), "{rows}");
    assert_eq!(rows[1]["dice"], alone["labels"]["mean"]["dice"]);
    let run = ffdp(&["measure", "--pairs", &warps_csv]);
    run.succeeded();
    assert!(run.stdout.contains("folds") && run.stdout.contains("mean"), "{}", run.stdout);
    // A line that names half a pair is a bad pair.
    fs::write(&warps_csv, "name,fixed,warp\nx,a/fixed.nii.gz,\n").expect("writable");
    let run = ffdp(&["measure", "--pairs", &warps_csv]);
    assert!(run.code == 1 && run.stderr.contains("1 of 1 pairs failed: x"), "{}", run.stderr);
}

#[test]
fn a_pair_whose_files_have_changed_is_outdated_and_one_that_failed_is_done_again() {
    let folder = Folder::new();
    let list = write_pairs(&folder);
    let out = folder.path("out");
    let text = fs::read_to_string(&list).expect("written");
    // The second pair names a file that is not there, the third has no labels yet.
    let without = "c/fixed_labels.nii.gz,c/moving_labels.nii.gz";
    let wrong = text.replace("b/moving.nii.gz", "b/movin.nii.gz").replace(without, ",");
    fs::write(&list, wrong).expect("writable");
    let run = register(&list, &out, &["-q"]);
    assert!(run.code == 1 && run.stderr.contains("1 of 3 pairs failed: b"), "{}", run.stderr);

    fs::write(&list, &text).expect("writable");
    let run = register(&list, &out, &["-q"]);
    assert_eq!(run.code, 1);
    for words in ["with other fixed_labels, moving_labels", "--overwrite"] {
        assert!(run.stderr.contains(words), "{words}: {}", run.stderr);
    }
    assert!(!run.stderr.contains("failed: "), "{}", run.stderr);
    let status = || {
        let csv = fs::read_to_string(format!("{out}/summary.csv")).expect("written");
        let second = |line: &str| line.split(',').nth(1).map(str::to_string);
        csv.lines().skip(1).filter_map(second).collect::<Vec<_>>()
    };
    assert_eq!(status(), ["kept", "done", "outdated"]);
    register(&list, &out, &["-q", "--overwrite"]).succeeded();
    assert_eq!(status(), ["kept", "kept", "done"]);
}

#[test]
fn a_pair_whose_input_was_rewritten_in_place_is_done_again() {
    let folder = Folder::new();
    let list = write_pairs(&folder);
    let out = folder.path("out");
    register(&list, &out, &["-q"]).succeeded();
    let warped = |name: &str| fs::read(format!("{out}/{name}/warped.nii.gz")).expect("written");
    let before = PAIRS.map(warped);
    // The second pair gets another moving image of the same name, the third other labels.
    let other = read_volume(folder.path("b/fixed.nii.gz")).expect("an image");
    write_volume(folder.path("b/moving.nii.gz"), &other).expect("writable");
    fs::copy(folder.path("c/fixed_labels.nii.gz"), folder.path("c/moving_labels.nii.gz"))
        .expect("both are there");
    let run = register(&list, &out, &["--json"]);
    run.succeeded();
    let rows: Value = serde_json::from_str(&run.stdout).expect("JSON only");
    let status: Vec<&str> = (0..3).filter_map(|k| rows[k]["status"].as_str()).collect();
    assert_eq!(status, ["kept", "done", "done"], "{}", run.stderr);
    for word in ["b/moving.nii.gz", "c/moving_labels.nii.gz", "it is done again"] {
        assert!(run.stderr.contains(word), "no {word:?} in {}", run.stderr);
    }
    let after = PAIRS.map(warped);
    assert!(before[0] == after[0] && before[1] != after[1], "of the new image");
    let run = register(&list, &out, &["--json", "--resume"]);
    run.succeeded();
    let rows: Value = serde_json::from_str(&run.stdout).expect("JSON only");
    assert!((0..3).all(|k| rows[k]["status"] == "kept"), "{rows}");
}

#[test]
fn flags_and_columns_of_a_list_without_an_effect_are_refused_or_said() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    let (list, out) = (folder.path("pairs.csv"), folder.path("out"));
    let names = folder.path("names.csv");
    fs::write(&names, "id,name\n1,Cortex\n").expect("writable");
    let images = "fixed.nii.gz,moving.nii.gz";
    let one = |more: &str| format!("fixed,moving{more}\n{images}");
    let cases: &[(String, &[&str], &[&str])] = &[
        (one(""), &["--label-names", &names], &["--label-names", "no line", "fixed_labels"]),
        (one(""), &["--label-terms", "1,2"], &["--label-terms", "fixed_labels"]),
        (one(""), &["--landmark-sigma", "1"], &["--landmark-sigma 1", "fixed_landmarks"]),
        (
            one(",fixed_labels") + ",fixed_labels.nii.gz",
            &[],
            &["fixed_labels has no effect without moving_labels"],
        ),
        (
            one(",fixed_landmarks") + ",points.csv",
            &[],
            &["fixed_landmarks has no effect without moving_landmarks"],
        ),
        // One line has labels, the other one would not be driven by any.
        (
            one(",name,fixed_labels,moving_labels")
                + &format!(",a,fixed_labels.nii.gz,moving_labels.nii.gz\n{images},b,,"),
            &["--label-terms", "1,2"],
            &["1 of 2 pairs failed: b", "there are no label maps"],
        ),
    ];
    for (text, more, words) in cases {
        fs::write(&list, format!("{text}\n")).expect("writable");
        let run = register(&list, &out, more);
        assert_eq!(run.code, 1, "{text}: {}", run.stderr);
        for word in *words {
            assert!(run.stderr.contains(word), "{text}: no {word:?} in {}", run.stderr);
        }
    }
    // A column of other commands is no typing error, and said to be ignored.
    fs::write(&list, format!("fixed,moving,mask,part\n{images},fixed.nii.gz,train\n")).expect("it");
    let run = register(&list, &folder.path("masked"), &[]);
    run.succeeded();
    let note = "columns that this command does not read are ignored: mask";
    let said: String = run.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains(note) && !said.contains("part,"), "{}", run.stderr);
}

#[test]
fn lines_whose_channels_do_not_pair_or_are_not_those_of_a_term_are_refused_by_name() {
    let folder = Folder::new();
    let pair = write_pair(&folder, 32, 3);
    let (list, terms) = (folder.path("pairs.csv"), folder.path("terms.toml"));
    let two = [pair.moving.image.clone(), pair.moving.image];
    write_volumes(folder.path("two.nii.gz"), &two, 0.0).expect("writable");
    let term = "weight = 1.0\nchannels = [1]\nsimilarity = \"mse\"\n";
    let levels = "levels = [{ shrink = 2, iterations = 2 }]";
    let stage = format!("[[stages]]\ntransform = \"greedy\"\n{levels}\n");
    fs::write(&terms, format!("{stage}[[stages.similarity.sum]]\n{term}")).expect("writable");
    let named: &[&str] = &["--settings", &terms];
    let (f, m) = ("fixed.nii.gz", "moving.nii.gz");
    let both = format!("{f};{f}");
    let cases: &[(&str, &str, &[&str], &[&str])] = &[
        (
            f,
            "",
            &[],
            &["line 3: fixed_channels has no effect without moving_channels", "fill in both"],
        ),
        (
            "",
            m,
            &[],
            &["line 3: moving_channels has no effect without fixed_channels", "fill in both"],
        ),
        (
            &both,
            m,
            &[],
            &["line 3", "fixed_channels (2)", "moving_channels (1)", "belong together"],
        ),
        (f, "two.nii.gz", &[], &["two.nii.gz has 2:", "as many volumes"]),
        (f, "absent.nii.gz", &[], &["absent.nii.gz"]),
        ("", "", named, &["greedy names channel 1", "1 of each image", "fixed_channels"]),
    ];
    for (k, (fixed, moving, more, words)) in cases.iter().enumerate() {
        let lines = format!("{f},{m},good,{f},{m}\n{f},{m},bad,{fixed},{moving}\n");
        let head = "fixed,moving,name,fixed_channels,moving_channels\n";
        fs::write(&list, format!("{head}{lines}")).expect("writable");
        let out = folder.path(&format!("out{k}"));
        let levels: &[&str] = if more.is_empty() {
            &["--aligned", "--iterations", "1", "--shrink", "2"]
        } else {
            more
        };
        let run = ffdp(&[&["register", "--pairs", &list, "-o", &out], levels].concat());
        assert_eq!(run.code, 1, "{words:?}: {}", run.stderr);
        for word in words.iter().chain(&["1 of 2 pairs failed: bad"]) {
            assert!(run.stderr.contains(word), "no {word:?} in {}", run.stderr);
        }
        assert!(folder.has(&format!("out{k}/good/metrics.json")), "{words:?}");
    }
    let run = ffdp(&["register", "--pairs", &list, "-o", "out", "--channels", f, m]);
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("cannot be used with '--channels"), "{}", run.stderr);
}

#[test]
fn a_list_with_a_mistyped_column_is_refused_before_anything_is_read() {
    let folder = Folder::new();
    let list = folder.path("pairs.csv");
    fs::write(&list, "fixed,moving,fixed_lables\na.nii,b.nii,c.nii\n").expect("writable");
    for command in
        [&["register", "-o", "out", "--pairs", &list][..], &["measure", "--pairs", &list]]
    {
        let run = ffdp(command);
        assert_eq!(run.code, 1, "{command:?}");
        assert!(run.stderr.contains("did you mean fixed_labels?"), "{}", run.stderr);
    }
}
