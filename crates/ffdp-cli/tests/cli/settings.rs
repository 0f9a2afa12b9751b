//! settings.toml: given, refused, saved, given back.

use std::fs;

use ffdp_image::io::images::read_displacement;

use crate::support::{Folder, write_pair};
use crate::{register, register_with};

const TWO_STAGES: &str = r#"
loss_interval = 5

[[stages]]
transform = "greedy"
similarity = "mse"
levels = [{ shrink = 4, iterations = 6 }]

[[stages]]
transform = "greedy"
learning_rate_voxels = 0.2
[stages.similarity.lncc]
window = 5
[[stages.levels]]
shrink = 2
iterations = 5
"#;

#[test]
fn the_saved_settings_repeat_the_run_and_flags_override_them() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    let [fixed, moving] = ["fixed.nii.gz", "moving.nii.gz"];
    fs::write(folder.path("two.toml"), TWO_STAGES).expect("writable");
    let two = folder.path("two.toml");
    register_with(&folder, fixed, moving, "first", &["--settings", &two, "-q"]).succeeded();
    let saved = folder.path("first/settings.toml");
    register_with(&folder, fixed, moving, "again", &["--settings", &saved, "-q"]).succeeded();
    let field = |out: &str| read_displacement(folder.path(&format!("{out}/warp.nii.gz")));
    assert_eq!(field("first").expect("ITK").0, field("again").expect("ITK").0);
    let text = |out: &str| fs::read_to_string(folder.path(&format!("{out}/settings.toml")));
    let first = text("first").expect("written");
    assert_eq!(first, text("again").expect("written"));
    // What the file did not say is there too.
    for line in ["window = 5", "learning_rate_voxels = 0.2", "gradient_floor = 0.1", "\"mse\""] {
        assert!(first.contains(line), "no {line} in {first}");
    }

    let more = ["--settings", &saved, "--metric", "mi", "--iterations", "2", "--lr", "0.5", "-q"];
    register_with(&folder, fixed, moving, "changed", &more).succeeded();
    let changed = text("changed").expect("written");
    assert_eq!(changed.matches("bins = 32").count(), 2, "every stage: {changed}");
    assert_eq!(changed.matches("learning_rate_voxels = 0.5").count(), 2, "{changed}");
    for line in ["iterations = 6", "iterations = 2"] {
        assert!(changed.contains(line), "the last stage only, no {line} in {changed}");
    }
}

#[test]
fn a_kind_of_transform_can_be_named() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    let few = ["--aligned", "--shrink", "2", "--iterations", "4", "-q"];
    for kind in ["greedy", "syn", "svf"] {
        let more = [&few[..], &["--transform", kind]].concat();
        register_with(&folder, "fixed.nii.gz", "moving.nii.gz", kind, &more).succeeded();
        let text = fs::read_to_string(folder.path(&format!("{kind}/settings.toml")));
        assert!(text.expect("written").contains(&format!("transform = \"{kind}\"")));
        let field = |name: &str| read_displacement(folder.path(&format!("{kind}/{name}")));
        let (there, grid) = field("warp.nii.gz").expect("ITK");
        let (back, same) = field("inverse_warp.nii.gz").expect("ITK");
        assert!(grid.same_grid(&same, 1e-6));
        // Opposite where they are small and smooth: far more alike than either is to zero.
        let norm = |values: &mut dyn Iterator<Item = f32>| values.map(|v| v * v).sum::<f32>();
        let apart = norm(&mut there.iter().zip(&back).map(|(a, b)| a + b));
        let size = norm(&mut there.iter().copied());
        assert!(apart < 0.2 * size, "{kind}: {apart} of {size}");
    }
    let more = [&few[..], &["--no-inverse"]].concat();
    register_with(&folder, "fixed.nii.gz", "moving.nii.gz", "one-way", &more).succeeded();
    assert!(folder.has("one-way/warp.nii.gz") && !folder.has("one-way/inverse_warp.nii.gz"));
    let more = [&few[..], &["--transform", "wavelet"]].concat();
    let run = register_with(&folder, "fixed.nii.gz", "moving.nii.gz", "out", &more);
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("wavelet") && run.stderr.contains("greedy"), "{}", run.stderr);
}

#[test]
fn settings_that_cannot_work_are_refused_with_their_line() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    let changed = |from: &str, to: &str| TWO_STAGES.replacen(from, to, 1);
    for (name, text, words) in [
        ("top.toml", changed("loss_interval", "los_interval"), ["line 2", "los_interval"]),
        (
            "stage.toml",
            changed("learning_rate_voxels", "learning_rate"),
            ["line 11", "learning_rate"],
        ),
        ("deep.toml", changed("window", "widow"), ["line 13", "widow"]),
        ("kind.toml", changed("\"greedy\"", "\"greddy\""), ["greddy", "greedy"]),
        ("type.toml", changed("= 5", "= \"5\""), ["line 2", "string"]),
        ("syntax.toml", changed("[[stages]]", "[[stages]"), ["line 4", "unclosed"]),
        ("value.toml", changed("window = 5", "window = 6"), ["odd", "got 6"]),
    ] {
        fs::write(folder.path(name), text).expect("writable");
        let path = folder.path(name);
        let more = ["--settings", &path];
        let run = register_with(&folder, "fixed.nii.gz", "moving.nii.gz", "out", &more);
        assert_eq!(run.code, 1, "{name}: {}", run.stderr);
        assert!(run.stderr.contains(name), "{name}: {}", run.stderr);
        for word in words {
            assert!(run.stderr.contains(word), "{name}: no {word:?} in {}", run.stderr);
        }
    }
    let run =
        register(&folder, "fixed.nii.gz", "moving.nii.gz", "out", &["--settings", "none.toml"]);
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("none.toml") && run.stderr.contains("No such file"));
}

#[test]
fn words_of_ants_and_of_other_case_are_understood() {
    let folder = Folder::new();
    write_pair(&folder, 16, 1);
    let flags = ["--transform", "SyN", "--metric", "CC", "--shrink", "2x1", "--iterations", "3x2"];
    register(&folder, "fixed.nii.gz", "moving.nii.gz", "out", &flags).succeeded();
    let text = fs::read_to_string(folder.path("out/settings.toml")).expect("written");
    for entry in ["transform = \"syn\"", "lncc", "iterations = 3", "shrink = 2.0"] {
        assert!(text.contains(entry), "{entry}: {text}");
    }
    let words = [
        (["--metric", "NCC"], "\'lncc\'"),
        (["--transform", "demons"], "\'greedy\'"),
        (["--transform", "BSplineSyN[0.1,26,0,3]"], "\'syn\'"),
        (["--iterations", "[100x50,1e-6,10]"], "100,50"),
    ];
    for (flags, word) in words {
        let run = register(&folder, "fixed.nii.gz", "moving.nii.gz", "o", &flags);
        assert!(run.code == 1 && run.stderr.contains(word), "{flags:?}: {}", run.stderr);
    }
    // In a file as on the command line.
    let settings = folder.path("bad.toml");
    for (old, new, meant) in [("\"syn\"", "\"BSpline\"", "ffd"), ("\"syn\"", "\"SyN\"", "syn")] {
        fs::write(&settings, text.replace(old, new)).expect("writable");
        let flags = ["--settings", &settings];
        let run = register_with(&folder, "fixed.nii.gz", "moving.nii.gz", "o", &flags);
        let tip = format!("did you mean `{meant}`?");
        assert!(run.code == 1 && run.stderr.contains(&tip), "{new}: {}", run.stderr);
    }
}
