//! Inputs that are refused, through the binary: one line each, with the message a user sees.
//!
//! What a header or a stream can have wrong in detail is tested next to the reader
//! (`io/images/tests/reject.rs` and `io/gzip.rs` of `ffdp-image`).

use std::fs::{self, File};
use std::process::Command;

use ffdp_image::image::Volume;
use ffdp_image::io::images::{read_displacement, write_volume};

use crate::register;
use crate::support::{Folder, ffdp, write_bad_files, write_pair};

/// A copy of the plain file `3d.nii` (NIfTI-1, f32, 16^3 voxels) with some bytes changed.
fn patched(folder: &Folder, name: &str, changes: &[(usize, &[u8])]) {
    let mut bytes = fs::read(folder.path("3d.nii")).expect("written");
    for (position, new) in changes {
        bytes[*position..position + new.len()].copy_from_slice(new);
    }
    fs::write(folder.path(name), bytes).expect("writable");
}

/// Byte positions of NIfTI-1 (nifti1.h).
const DIM: usize = 40;
const INTENT_CODE: usize = 68;
const DATATYPE: usize = 70;
const PIXDIM: usize = 76;
const FORM_CODES: usize = 252;
const SROW: usize = 280;

#[test]
fn files_that_cannot_be_registered_are_refused_one_by_one() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    write_bad_files(&folder);
    let i16 = |value: i16| value.to_le_bytes();
    let f32 = |value: f32| value.to_le_bytes();
    // Without a qform or sform, which would place the image.
    let no_form: (usize, &[u8]) = (FORM_CODES, &[0; 4]);
    patched(&folder, "zero_spacing.nii", &[(PIXDIM + 4, &f32(0.0)), no_form]);
    patched(&folder, "nan_spacing.nii", &[(PIXDIM + 8, &f32(f32::NAN)), no_form]);
    patched(&folder, "absurd_spacing.nii", &[(PIXDIM + 12, &f32(1e7)), no_form]);
    let row: Vec<u8> = [12.0, 12.0, 0.0, 5.0].into_iter().flat_map(f32).collect();
    patched(&folder, "singular.nii", &[(SROW, &row), (SROW + 16, &row)]);
    patched(&folder, "negative.nii", &[(DIM + 2, &i16(-16))]);
    patched(&folder, "rgb.nii", &[(DATATYPE, &i16(128))]);
    patched(&folder, "complex.nii", &[(DATATYPE, &i16(32))]);
    patched(&folder, "labels.nii", &[(INTENT_CODE, &i16(1002))]);
    let whole = fs::read(folder.path("whole.nii.gz")).expect("written");
    let mut crc = whole.clone();
    let end = crc.len();
    crc[end - 8] ^= 1;
    fs::write(folder.path("crc.nii.gz"), crc).expect("writable");
    fs::write(
        folder.path("garbage.nii.gz"),
        [&whole[..], b"a text that somebody appended"].concat(),
    )
    .expect("writable");
    for (file, words) in [
        ("zero_spacing.nii", &["spacing", "got", "0.0", "1e-9..1e6"][..]),
        ("nan_spacing.nii", &["spacing", "NaN"]),
        ("absurd_spacing.nii", &["spacing", "10000000"]),
        ("singular.nii", &["singular", "condition number"]),
        ("negative.nii", &["positive size", "-16"]),
        ("rgb.nii", &["RGB24", "one channel"]),
        ("complex.nii", &["complex64"]),
        ("labels.nii", &["label map", "intent 1002", "--labels-as-images"]),
        ("crc.nii.gz", &["gzip", "checksum"]),
        ("garbage.nii.gz", &["gzip", "nothing after it"]),
    ] {
        let run = register(&folder, "fixed.nii.gz", file, "out", &[]);
        assert_eq!(run.code, 1, "{file}: {}", run.stderr);
        for word in words.iter().chain(&[file, "error:", "help:"]) {
            assert!(run.stderr.contains(word), "{file}: no {word:?} in {}", run.stderr);
        }
        assert!(!folder.has("out"), "{file}: refused before anything was made");
    }
    let few = ["--labels-as-images", "--shrink", "1", "--iterations", "1"];
    register(&folder, "fixed.nii.gz", "labels.nii", "out", &few).succeeded();
}

#[test]
fn what_headers_and_small_files_show_is_refused_by_a_plan_and_before_an_image_is_read() {
    let folder = Folder::new();
    write_bad_files(&folder);
    // Good headers, and half of the voxels: who reads them says so.
    let half = "truncated.nii.gz";
    let points = |count: usize| {
        let file = folder.path(&format!("{count}.csv"));
        let lines: String = (0..count).map(|k| format!("{k},{k},0\n")).collect();
        fs::write(&file, format!("x,y,z\n{lines}")).expect("writable");
        file
    };
    let [many, few] = [71, 69].map(points);
    let [same, other, absent, flow, names] =
        ["whole.nii.gz", "small.nii.gz", "absent.nii.gz", "absent.json", "text.nii"]
            .map(|name| folder.path(name));
    let labels = ["--moving-labels", &same];
    let named = [&labels[..], &["--fixed-labels", &same, "--label-names", &names]].concat();
    let fixed_labels = [&labels[..], &["--fixed-labels", &other]].concat();
    let flirt = format!("flirt:{absent},{same},{same}");
    type Case<'a> = (&'a [&'a str], &'a [&'a str]);
    let cases: &[Case] = &[
        (&["--landmarks", &many, &few], &["71.csv holds 71 landmarks", "69.csv 69"]),
        (&["--landmarks", &many, &absent], &["absent.nii.gz"]),
        (&["--moving-labels", &other], &["small.nii.gz (labels of", "another grid"]),
        (&fixed_labels, &["small.nii.gz (labels of", "another grid"]),
        (&["--fixed-mask", &other], &["small.nii.gz (mask of", "another grid"]),
        (&["--moving-mask", &absent], &["absent.nii.gz"]),
        (&["--channels", &same, &other], &["small.nii.gz (channel of", "another grid"]),
        (&["--initial", &absent], &["absent.nii.gz"]),
        (&["--initial", &flow], &["absent.json"]),
        (&["--initial", &flirt], &["absent.nii.gz"]),
        (&named, &["text.nii", "id and name"]),
    ];
    let plans = [&[][..], &["--plan"], &["--plan", "--slabs"]];
    for ((more, words), plan) in cases.iter().flat_map(|case| plans.map(|plan| (case, plan))) {
        let more = [*more, plan].concat();
        let run = register(&folder, half, half, "out", &more);
        assert_eq!(run.code, 1, "{more:?}: {}", run.stderr);
        for word in words.iter() {
            assert!(run.stderr.contains(word), "{more:?}: no {word:?} in {}", run.stderr);
        }
    }
    register(&folder, half, half, "out", &["--landmarks", &few, &few, "--plan"]).succeeded();
    let run = register(&folder, half, half, "out", &["--landmarks", &few, &few]);
    assert!(run.code == 1 && run.stderr.contains(half), "{}", run.stderr);
}

#[test]
fn masks_that_cannot_be_used_are_refused() {
    let folder = Folder::new();
    let pair = write_pair(&folder, 32, 3);
    write_bad_files(&folder);
    let save = |name: &str, value: f32| {
        let image = &pair.fixed.image;
        let mask = Volume { data: vec![value; image.data.len()], ..image.clone() };
        write_volume(folder.path(name), &mask).expect("writable");
    };
    save("empty.nii.gz", 0.0);
    save("bytes.nii.gz", 255.0);
    for (mask, words) in [
        ("empty.nii.gz", &["must not be empty", "help:"][..]),
        ("bytes.nii.gz", &["weights in 0..1", "255"]),
        ("small.nii.gz", &["another grid"]),
        ("absent.nii.gz", &["absent.nii.gz"]),
    ] {
        let path = folder.path(mask);
        for flag in ["--fixed-mask", "--moving-mask"] {
            let run = register(&folder, "fixed.nii.gz", "moving.nii.gz", "out", &[flag, &path]);
            assert_eq!(run.code, 1, "{flag} {mask}: {}", run.stderr);
            for word in words {
                assert!(run.stderr.contains(word), "{flag} {mask}: no {word:?} in {}", run.stderr);
            }
        }
    }
}

#[test]
fn an_image_that_is_constant_inside_its_mask_is_refused() {
    let folder = Folder::new();
    let pair = write_pair(&folder, 32, 3);
    let image = &pair.fixed.image;
    let inside = |offset: usize| image.geometry.index_of(offset)[2] < 16;
    let save = |name: &str, value: &dyn Fn(usize, f32) -> f32| {
        let data = image.data.iter().enumerate().map(|(i, &v)| value(i, v)).collect();
        let volume = Volume { data, ..image.clone() };
        write_volume(folder.path(name), &volume).expect("writable");
    };
    save("mask.nii.gz", &|i, _| if inside(i) { 1.0 } else { 0.0 });
    save("flat.nii.gz", &|i, v| if inside(i) { 7.0 } else { v });
    let mask = folder.path("mask.nii.gz");
    for (names, flag, side) in [
        (["flat.nii.gz", "moving.nii.gz"], "--fixed-mask", "fixed"),
        (["fixed.nii.gz", "flat.nii.gz"], "--moving-mask", "moving"),
    ] {
        for metric in ["lncc", "mi", "nmi", "mse"] {
            let more = [flag, &mask, "--metric", metric];
            let run = register(&folder, names[0], names[1], "out", &more);
            assert_eq!(run.code, 1, "{flag} {metric}: {}", run.stderr);
            let what = format!("the {side} image must not be constant inside its mask");
            for word in [&what[..], "got 7", "belong together"] {
                assert!(run.stderr.contains(word), "{flag}: no {word:?} in {}", run.stderr);
            }
            assert!(!folder.has("out/warped.nii.gz"), "{flag} {metric}: results were written");
        }
    }
}

#[test]
fn what_a_mask_leaves_out_does_not_matter() {
    let folder = Folder::new();
    let pair = write_pair(&folder, 32, 3);
    // Half of the head is worth nothing; NaN there is as good as a mask that says so.
    let image = &pair.fixed.image;
    let out_of_it = |offset: usize| image.geometry.index_of(offset)[0] < 12;
    let with = |value: &dyn Fn(usize, f32) -> f32| {
        let data = image.data.iter().enumerate().map(|(i, &v)| value(i, v)).collect();
        Volume { data, ..image.clone() }
    };
    let save = |name: &str, volume: &Volume| {
        write_volume(folder.path(name), volume).expect("writable");
    };
    save("mask.nii.gz", &with(&|i, _| if out_of_it(i) { 0.0 } else { 1.0 }));
    save("zero.nii.gz", &with(&|i, v| if out_of_it(i) { 0.0 } else { v }));
    save("nan.nii.gz", &with(&|i, v| if out_of_it(i) { f32::NAN } else { v }));
    let few = ["--shrink", "2", "--iterations", "8", "-q", "--overwrite"];
    let field = |fixed: &str, more: &[&str]| {
        register(&folder, fixed, "moving.nii.gz", "out", &[&few, more].concat()).succeeded();
        read_displacement(folder.path("out/warp.nii.gz")).expect("ITK").0
    };
    let mask = folder.path("mask.nii.gz");
    let masked = field("zero.nii.gz", &["--fixed-mask", &mask]);
    assert_eq!(masked, field("nan.nii.gz", &["--nan-policy", "mask"]));
    assert_ne!(masked, field("zero.nii.gz", &[]), "a mask changes something");
}

#[test]
fn what_does_not_fit_into_memory_is_refused_before_allocating() {
    let folder = Folder::new();
    write_bad_files(&folder);
    // 30000 x 30000 x 4000 bytes: 3.6 TB on paper, none on disk.
    let size = [30_000u16, 30_000, 4_000];
    let dims: Vec<u8> = size.into_iter().flat_map(u16::to_le_bytes).collect();
    let byte_voxels = [2i16.to_le_bytes(), 8i16.to_le_bytes()].concat();
    patched(&folder, "huge.nii", &[(DIM + 2, &dims), (DATATYPE, &byte_voxels)]);
    let length = 352 + size.into_iter().map(u64::from).product::<u64>();
    let file = File::options().write(true).open(folder.path("huge.nii")).expect("written");
    if file.set_len(length).is_err() {
        println!("skipped: this file system has no sparse files of {length} bytes");
        return;
    }
    let run = register(&folder, "huge.nii", "huge.nii", "out", &[]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    for word in ["huge.nii", "bytes", "available", "downsample"] {
        assert!(run.stderr.contains(word), "no {word:?} in {}", run.stderr);
    }
    let huge = folder.path("huge.nii");
    let run = ffdp(&["plan", "-f", &huge, "-m", &huge]);
    run.succeeded();
    assert!(run.stdout.contains("does not fit"), "{}", run.stdout);
}

#[test]
fn a_device_of_the_environment_that_is_not_there_is_refused() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ffdp"));
    let output = command.args(["info", "a.nii"]).env("FFDP_DEVICE", "abacus").output();
    let output = output.expect("the binary starts");
    let talk = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{talk}");
    for word in ["FFDP_DEVICE", "abacus", "cpu"] {
        assert!(talk.contains(word), "no {word:?} in {talk}");
    }
}
