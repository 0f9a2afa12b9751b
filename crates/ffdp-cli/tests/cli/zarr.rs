//! Images in OME-Zarr, through the binary.

use ffdp_image::io::images::{header, read_displacement, read_labels, read_volume};

use crate::register;
use crate::support::{Folder, ffdp, write_pair};

/// What `write_pair` has written, as OME-Zarr.
fn convert(folder: &Folder, names: &[&str]) {
    for name in names {
        let [from, to] = ["nii.gz", "zarr"].map(|end| folder.path(&format!("{name}.{end}")));
        ffdp(&["convert", &from, &to]).succeeded();
    }
}

#[test]
fn a_pair_from_ome_zarr_is_registered_as_from_nifti_to_the_bit() {
    let folder = Folder::new();
    write_pair(&folder, 48, 3);
    convert(&folder, &["fixed", "moving", "fixed_labels", "moving_labels"]);
    let labels = |end: &str| {
        ["fixed_labels", "moving_labels"].map(|name| folder.path(&format!("{name}.{end}")))
    };
    for slabs in [&[][..], &["--slabs"]] {
        let out = |end: &str| format!("{end}{}", slabs.len());
        for (end, format) in [("nii.gz", "nifti"), ("zarr", "ome-zarr")] {
            let [fixed, moving] = labels(end);
            let files = ["--fixed-labels", &fixed, "--moving-labels", &moving];
            let few = ["--shrink", "2,1", "--iterations", "8,4", "--format", format];
            let more = [&files, slabs, &few].concat();
            let [fixed, moving] = ["fixed", "moving"].map(|name| format!("{name}.{end}"));
            register(&folder, &fixed, &moving, &out(end), &more).succeeded();
        }
        let [nifti, zarr] = ["nii.gz", "zarr"].map(|end| {
            let path = |name: &str| folder.path(&format!("{}/{name}.{end}", out(end)));
            let warped = read_volume(path("warped")).expect("an image");
            let labels = read_labels(path("warped_labels")).expect("labels");
            let warp = read_displacement(path("warp")).expect("a displacement").0;
            (warped, labels, warp)
        });
        assert!(nifti.0.data == zarr.0.data && nifti.1.data == zarr.1.data, "{slabs:?}");
        assert!(zarr.0.geometry.same_grid(&nifti.0.geometry, 1e-4), "{slabs:?}");
        // Vectors pass through mm and f32: along the axes, or in LPS.
        let difference = |(a, b): (&f32, &f32)| (a - b).abs();
        let worst = nifti.2.iter().zip(&zarr.2).map(difference).fold(0.0, f32::max);
        assert!(worst < 1e-4, "{slabs:?}: {worst} voxels");
        let [warp, affine, moving, moved] =
            ["warp.zarr", "affine.txt", "../moving.zarr", "moved.zarr"]
                .map(|name| folder.path(&format!("{}/{name}", out("zarr"))));
        ffdp(&["apply", "-i", &moving, "-t", &warp, "-t", &affine, "-o", &moved]).succeeded();
        let moved = read_volume(&moved).expect("written");
        let worst =
            moved.data.iter().zip(&zarr.0.data).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        let [low, high] = zarr.0.min_max().map(|(low, high)| [low, high]).expect("finite");
        assert!(worst < 1e-3 * (high - low), "{slabs:?}: {worst}");
    }
}

#[test]
fn info_and_convert_report_levels_channels_and_formats() {
    let folder = Folder::new();
    let pair = write_pair(&folder, 72, 5);
    convert(&folder, &["fixed", "fixed_labels"]);
    let run = ffdp(&["info", &folder.path("fixed.zarr#1")]);
    run.succeeded();
    for words in ["OME-Zarr 0.5", "36 x 36 x 36", "placed by     metadata"] {
        assert!(run.stdout.contains(words), "{words}: {}", run.stdout);
    }
    let (from, to) = (folder.path("fixed_labels.zarr"), folder.path("back.nii.gz"));
    ffdp(&["convert", &from, &to]).succeeded();
    assert_eq!(read_labels(&to).expect("written").data, pair.fixed.labels.data);
    assert_eq!(header(&to).expect("written").intent_code, 1002);
    let onto_itself = ffdp(&["convert", &folder.path("fixed.zarr#1"), &folder.path("fixed.zarr")]);
    assert_eq!(onto_itself.code, 1);
    assert!(onto_itself.stderr.contains("must not overwrite an input"), "{}", onto_itself.stderr);
}
