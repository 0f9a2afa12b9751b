//! What `apply` keeps: voxel types, labels of any size; and what it puts where an image ends.

use std::fs;

use ffdp_image::image::{Geometry, LabelMap, Volume};
use ffdp_image::io::images::{
    DataType, IntegerForm, header, read_labels, read_labels_at, read_stored_at, read_volume,
    write_integers, write_labels, write_volume,
};
use serde_json::Value;

use crate::register;
use crate::support::{Folder, ProcessOutput, ffdp, write_pair};

const SIZE: [usize; 3] = [6, 5, 4];

fn grid() -> Geometry {
    Geometry::new(SIZE, [2.0; 3]).expect("valid")
}

/// A shift by two voxels along x: of the result, the last two planes lie outside the image.
fn write_shift(folder: &Folder) -> String {
    let path = folder.path("shift.txt");
    fs::write(&path, "1 0 0 4\n0 1 0 0\n0 0 1 0\n0 0 0 1\n").expect("writable");
    path
}

/// What a shifted image has, `outside` where it ends.
fn shifted<T: Copy>(values: &[T], outside: T) -> Vec<T> {
    let geometry = grid();
    let value = |offset: usize| {
        let [x, ..] = geometry.index_of(offset);
        if x + 2 < SIZE[0] { values[offset + 2] } else { outside }
    };
    (0..geometry.len()).map(value).collect()
}

fn apply(folder: &Folder, image: &str, output: &str, more: &[&str]) -> ProcessOutput {
    let [image, output] = [image, output].map(|name| folder.path(name));
    let shift = write_shift(folder);
    ffdp(&[&["apply", "-i", &image, "-r", &image, "-t", &shift, "-o", &output], more].concat())
}

#[test]
fn nearest_keeps_the_voxel_type_and_what_values_mean() {
    let folder = Folder::new();
    let values: Vec<i32> = (0..grid().len() as i32).map(|i| i - 40).collect();
    let map = LabelMap::new(values, grid()).expect("sizes match");
    let nearest = ["--interpolation", "nearest"];
    for data_type in [DataType::I8, DataType::I16, DataType::I32, DataType::I64] {
        for (intent_code, intercept) in [(0, 0), (1002, 0), (0, -24)] {
            let form = IntegerForm {
                data_type,
                intercept,
                scale: None,
                intent_code,
                time_step_seconds: 1.5,
            };
            let case = format!("{form:?}");
            let one = std::slice::from_ref(&map);
            write_integers(folder.path("one.nii.gz"), one, form).expect("writable");
            apply(&folder, "one.nii.gz", "moved.nii.gz", &nearest).succeeded();
            let moved = header(folder.path("moved.nii.gz")).expect("written");
            assert_eq!((moved.data_type, moved.intent_code), (data_type, intent_code), "{case}");
            assert_eq!((moved.slope, moved.intercept), (1.0, f64::from(intercept)), "{case}");
            let moved = read_labels(folder.path("moved.nii.gz")).expect("integers");
            assert_eq!(moved.data, shifted(&map.data, 0), "{case}");

            let two = [map.clone(), LabelMap { data: vec![7; map.data.len()], ..map.clone() }];
            write_integers(folder.path("two.nii.gz"), &two, form).expect("writable");
            apply(&folder, "two.nii.gz", "moved.nii.gz", &nearest).succeeded();
            assert_eq!(
                IntegerForm::of(&header(folder.path("moved.nii.gz")).expect("it")),
                Some(form)
            );
            for (k, volume) in two.iter().enumerate() {
                let moved = read_labels_at(folder.path("moved.nii.gz"), k).expect("integers");
                assert_eq!(moved.data, shifted(&volume.data, 0), "{case} volume {k}");
            }
        }
    }
    // The label vote keeps the type, too; means of voxels are floats.
    let form = IntegerForm {
        data_type: DataType::I16,
        intercept: 0,
        scale: None,
        intent_code: 0,
        time_step_seconds: 0.0,
    };
    write_integers(folder.path("one.nii.gz"), &[map], form).expect("writable");
    for (how, data_type) in [("label", DataType::I16), ("linear", DataType::F32)] {
        apply(&folder, "one.nii.gz", "moved.nii.gz", &["--interpolation", how]).succeeded();
        assert_eq!(header(folder.path("moved.nii.gz")).expect("it").data_type, data_type, "{how}");
    }
}

#[test]
fn nearest_keeps_scaled_integers_as_they_are_stored() {
    let folder = Folder::new();
    let values: Vec<i32> = (0..grid().len() as i32).map(|i| i - 40).collect();
    let map = LabelMap::new(values, grid()).expect("sizes match");
    let nearest = ["--interpolation", "nearest"];
    for (data_type, scale, outside) in [
        (DataType::I16, [0.25, 0.0], 0),
        // CT: what lies outside is 0 by its meaning, not as it is stored.
        (DataType::I32, [0.5, -24.0], 48),
    ] {
        let (intent_code, time_step_seconds, intercept) = (0, 0.0, 0);
        let scale = Some(scale);
        let form = IntegerForm { data_type, intercept, scale, intent_code, time_step_seconds };
        write_integers(folder.path("one.nii.gz"), std::slice::from_ref(&map), form).expect("it");
        apply(&folder, "one.nii.gz", "moved.nii.gz", &nearest).succeeded();
        let moved = header(folder.path("moved.nii.gz")).expect("written");
        assert_eq!(IntegerForm::of_stored(&moved), Some(form));
        let stored = read_stored_at(folder.path("moved.nii.gz"), 0).expect("integers");
        assert_eq!(stored.data, shifted(&map.data, outside), "{form:?}");
        // Half a step is no stored number: floats then.
        let more = [&nearest[..], &["--background", "0.1"]].concat();
        apply(&folder, "one.nii.gz", "moved.nii.gz", &more).succeeded();
        let moved = header(folder.path("moved.nii.gz")).expect("written");
        assert_eq!(moved.data_type, DataType::F32);
    }
}

#[test]
fn nearest_refuses_labels_of_64_bits_that_are_no_integers() {
    let folder = Folder::new();
    let nearest = ["--interpolation", "nearest"];
    // What the header says, the labels, and the last one, which is none.
    for (intent_code, label, odd) in
        [(1002, 7, 0.5), (1002, 7, f64::NAN), (0, 16_777_217, 0.5), (0, 16_777_217, f64::NAN)]
    {
        let form = IntegerForm {
            data_type: DataType::F64,
            intercept: 0,
            scale: None,
            intent_code,
            time_step_seconds: 0.0,
        };
        let map = LabelMap::new(vec![label; grid().len()], grid()).expect("sizes match");
        let path = folder.path("labels.nii");
        write_integers(&path, &[map], form).expect("writable");
        apply(&folder, "labels.nii", "moved.nii.gz", &nearest).succeeded();
        let mut bytes = fs::read(&path).expect("written");
        let last = bytes.len() - 8;
        bytes[last..].copy_from_slice(&f64::to_le_bytes(odd));
        fs::write(&path, bytes).expect("writable");
        let run = apply(&folder, "labels.nii", "moved.nii.gz", &nearest);
        let expected = format!(
            "1 voxels are no integer labels in the range of i32, the first at voxel (x, y, z) = [5, 4, 3] with value {odd}"
        );
        let said: String = run.stderr.split_whitespace().collect();
        let expected: String = expected.split_whitespace().collect();
        assert!(run.code == 1 && said.contains(&expected), "{}", run.stderr);
    }
}

#[test]
fn labels_beyond_2_to_24_are_moved_exactly() {
    let folder = Folder::new();
    // As in the atlases of the Allen Institute; f32 would round the first to the second.
    let large = [0, 614_454_277, 614_454_272, 16_777_217, -612_345_677];
    let data: Vec<i32> = (0..grid().len()).map(|i| large[i % 5]).collect();
    let map = LabelMap::new(data, grid()).expect("sizes match");
    write_labels(folder.path("atlas.nii.gz"), &map).expect("writable");
    for how in ["nearest", "label"] {
        apply(&folder, "atlas.nii.gz", "moved.nii.gz", &["--interpolation", how]).succeeded();
        let moved = read_labels(folder.path("moved.nii.gz")).expect("integers");
        assert_eq!(moved.data, shifted(&map.data, 0), "{how}");
    }
    let run = ffdp(&["info", &folder.path("atlas.nii.gz")]);
    run.succeeded();
    assert!(run.stdout.contains("614454277: 24"), "{}", run.stdout);

    // And register carries them along.
    let pair = write_pair(&folder, 32, 3);
    for (name, side) in [("fixed", &pair.fixed), ("moving", &pair.moving)] {
        let large = |&id: &i32| if id == 0 { 0 } else { 600_000_000 + id };
        let data = side.labels.data.iter().map(large).collect();
        let labels = LabelMap { data, ..side.labels.clone() };
        write_labels(folder.path(&format!("{name}_large.nii.gz")), &labels).expect("writable");
    }
    let dice = |labels: &str, out: &str, more: &[&str]| {
        let [fixed, moving] =
            ["fixed", "moving"].map(|side| folder.path(&format!("{side}_{labels}.nii.gz")));
        let labels = ["--fixed-labels", &fixed, "--moving-labels", &moving, "--json"];
        let few = ["--shrink", "2", "--iterations", "4", "-q"];
        let more = [&labels[..], &few, more].concat();
        let run = register(&folder, "fixed.nii.gz", "moving.nii.gz", out, &more);
        run.succeeded();
        serde_json::from_str::<Value>(&run.stdout).expect("JSON")["dice"].clone()
    };
    let (small, large) = (dice("labels", "small", &[]), dice("large", "large", &[]));
    assert_eq!(small["mean"], large["mean"]);
    let ids = |dice: &Value| -> Vec<i64> {
        let labels = dice["labels"].as_array().expect("a list").iter();
        labels.map(|label| label["id"].as_i64().expect("a number")).collect()
    };
    assert!(ids(&large).iter().zip(ids(&small)).all(|(a, b)| *a == 600_000_000 + b));

    // Of the labels that are asked for.
    let all = ids(&small);
    let asked = format!("{},{}", all[1], all[2]);
    for (out, more) in [("asked", &[][..]), ("slabs", &["--slabs"])] {
        let some = dice("labels", out, &[&["--labels", &asked], more].concat());
        assert_eq!(ids(&some), all[1..3], "{out}");
        assert_ne!(some["mean"], small["mean"], "{out}");
        let files = ["fixed", "moving"].map(|side| folder.path(&format!("{side}_labels.nii.gz")));
        let labels = ["--fixed-labels", &files[0], "--moving-labels", &files[1]];
        let more = [&labels[..], more, &["--labels", "4321", "--overwrite"]].concat();
        let run = register(&folder, "fixed.nii.gz", "moving.nii.gz", out, &more);
        assert_eq!(run.code, 1, "{out}");
        assert!(run.stderr.contains("neither label map holds the label 4321"), "{}", run.stderr);
    }
}

#[test]
fn a_background_fills_what_the_image_does_not_reach() {
    let folder = Folder::new();
    let values: Vec<f32> = (0..grid().len()).map(|i| (i as f32).sin() + 500.0).collect();
    let image = Volume::new(values, grid()).expect("sizes match");
    write_volume(folder.path("image.nii"), &image).expect("writable");
    for (how, background) in
        [("linear", "-1024"), ("linear", "0.5"), ("linear", "nan"), ("nearest", "-1024")]
    {
        let more = ["--interpolation", how, "--background", background];
        apply(&folder, "image.nii", "moved.nii", &more).succeeded();
        let moved = read_volume(folder.path("moved.nii")).expect("written");
        let outside: f32 = background.parse().expect("a number");
        for (a, b) in moved.data.iter().zip(shifted(&image.data, outside)) {
            let same = (a.is_nan() && b.is_nan()) || (a - b).abs() < 1e-3;
            assert!(same, "{how} {background}: {a} {b}");
        }
    }
    let map = LabelMap::new(vec![3; grid().len()], grid()).expect("sizes match");
    write_labels(folder.path("labels.nii"), &map).expect("writable");
    for how in ["nearest", "label"] {
        let more = ["--interpolation", how, "--background", "9"];
        apply(&folder, "labels.nii", "moved.nii", &more).succeeded();
        let moved = read_labels(folder.path("moved.nii")).expect("integers");
        assert_eq!(moved.data, shifted(&map.data, 9), "{how}");
        assert_eq!(header(folder.path("moved.nii")).expect("it").data_type, DataType::U8);
    }
    // A byte does not hold it: floats do.
    let more = ["--interpolation", "nearest", "--background", "-1024"];
    apply(&folder, "labels.nii", "moved.nii", &more).succeeded();
    let moved = read_volume(folder.path("moved.nii")).expect("written");
    assert_eq!(moved.data, shifted(&vec![3.0; grid().len()], -1024.0));
    let more = ["--interpolation", "label", "--background", "0.5"];
    let run = apply(&folder, "labels.nii", "moved.nii", &more);
    assert!(run.code == 1 && run.stderr.contains("must be a label, got 0.5"), "{}", run.stderr);
}

#[test]
fn cubic_and_sinc_interpolation_keep_samples_and_put_the_background_beyond() {
    let folder = Folder::new();
    let noise = |i: usize| ((i as f32 * 12.9).sin() * 437.5).fract();
    let values: Vec<f32> = (0..grid().len()).map(noise).collect();
    let image = Volume::new(values.clone(), grid()).expect("sizes match");
    write_volume(folder.path("image.nii"), &image).expect("writable");
    for interpolation in ["cubic", "sinc"] {
        let more = ["--interpolation", interpolation, "--background", "-7.5"];
        apply(&folder, "image.nii", "moved.nii", &more).succeeded();
        let moved = read_volume(folder.path("moved.nii")).expect("written");
        let expected = shifted(&values, -7.5);
        let off = moved.data.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        // Positions are rounded in f32, values below 1 change by as much again.
        assert!(off < 1e-5, "{interpolation}: {off}");
    }
    let refused = apply(&folder, "image.nii", "moved.nii", &["--interpolation", "quintic"]);
    assert!(refused.code == 1 && refused.stderr.contains("cubic"), "{}", refused.stderr);
}

#[test]
fn an_image_without_a_transform_is_resampled() {
    let folder = Folder::new();
    let values: Vec<f32> = (0..grid().len()).map(|i| i as f32).collect();
    let image = Volume::new(values.clone(), grid()).expect("sizes match");
    write_volume(folder.path("image.nii.gz"), &image).expect("writable");
    // One voxel further along x, and fewer of them.
    let other =
        Geometry::new([4, 5, 4], [2.0; 3]).and_then(|grid| grid.with_origin([2.0, 0.0, 0.0]));
    let other = other.expect("valid");
    let blank = Volume::new(vec![0.0; other.len()], other.clone()).expect("sizes match");
    write_volume(folder.path("grid.nii.gz"), &blank).expect("writable");
    let [image, grid, out] = ["image.nii.gz", "grid.nii.gz", "out.nii.gz"].map(|n| folder.path(n));
    ffdp(&["apply", "-i", &image, "-r", &grid, "-o", &out]).succeeded();
    let resampled = read_volume(&out).expect("written");
    let expected: Vec<f32> = (0..other.len())
        .map(|offset| {
            let [x, y, z] = other.index_of(offset);
            values[x + 1 + SIZE[0] * (y + SIZE[1] * z)]
        })
        .collect();
    assert_eq!(resampled.data, expected);
    // Without a grid there is nothing to do.
    let run = ffdp(&["apply", "-i", &image, "-o", &out]);
    assert!(run.code == 1 && run.stderr.contains("--reference"), "{}", run.stderr);
}

#[test]
fn landmarks_keep_their_columns_and_their_space() {
    let folder = Folder::new();
    let (shift, points, out) = (write_shift(&folder), folder.path("p.csv"), folder.path("o.csv"));
    let map = |text: &str, more: &[&str]| {
        fs::write(&points, text).expect("writable");
        ffdp(&[&["apply", "--landmarks", &points, "-t", &shift, "-o", &out], more].concat())
            .succeeded();
        fs::read_to_string(&out).expect("written")
    };
    // The shift is by 4 mm along x in RAS: -4 in LPS, in which ANTs has its points.
    assert_eq!(map("x,y,z,t,label\n1,2,3,0,7\n", &[]), "x,y,z,t,label\n-3,2,3,0,7\n");
    assert_eq!(
        map("x,y,z,t,label\n1,2,3,0,7\n", &["--landmark-space", "RAS"]),
        "x,y,z,t,label\n5,2,3,0,7\n"
    );
    let text = "name,X,Y,Z,note\n\"left, upper\",1,2,3,a\n";
    assert_eq!(map(text, &[]), "X,Y,Z,name,note\n5,2,3,\"left, upper\",a\n");
}
