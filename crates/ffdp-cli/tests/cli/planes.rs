//! Images of one plane, through the binary.

use std::fs;

use ffdp_image::image::{Geometry, Volume};
use ffdp_image::io::images::{read_displacement, read_volume, write_volume};
use serde_json::Value;

use crate::register_with;
use crate::support::{Folder, ffdp, relative_difference, write_pair};

/// The middle planes of a pair of heads, as images of their own.
fn write_planes(folder: &Folder) -> [Volume; 2] {
    let pair = write_pair(folder, 64, 4);
    let planes = [&pair.fixed.image, &pair.moving.image].map(|head| {
        let [x, y, z] = head.geometry.spacing_mm;
        let geometry = Geometry::new([64, 64, 1], [x, y, z])
            .and_then(|g| g.with_origin([-70.0, 10.0, 33.0]))
            .expect("valid");
        let count = geometry.len();
        Volume::new(head.data[32 * count..33 * count].to_vec(), geometry).expect("fits")
    });
    for (name, plane) in ["fixed_plane.nii.gz", "moving_plane.nii.gz"].iter().zip(&planes) {
        write_volume(folder.path(name), plane).expect("writable");
    }
    planes
}

#[test]
fn planes_are_registered_within_themselves_and_the_files_apply() {
    let folder = Folder::new();
    let [fixed, _] = write_planes(&folder);
    let (names, levels) = (
        ["fixed_plane.nii.gz", "moving_plane.nii.gz"],
        ["--shrink", "2,1", "--iterations", "40,30"],
    );
    // All stages, and the deformation alone.
    for (out, more) in [("all", &[][..]), ("aligned", &["--aligned"])] {
        let more = [&levels[..], more, &["--json", "-q"]].concat();
        let run = register_with(&folder, names[0], names[1], out, &more);
        run.succeeded();
        let metrics: Value = serde_json::from_str(&run.stdout).expect("JSON");
        let similarity = |when: &str| {
            let value = &metrics["similarity"][when]["local_ncc_foreground"];
            value.as_f64().expect("a number")
        };
        let (before, after) = (similarity("before"), similarity("after"));
        assert!(after > before + 0.1, "{out}: {before} -> {after}");
        assert_eq!(metrics["folds"]["voxels"], 0, "{out}");
        let p95 = metrics["inverse"]["p95_voxels"].as_f64().expect("a number");
        assert!(p95 < 0.5, "{out}: the inverse is off by {p95} voxels");
        let (field, grid) =
            read_displacement(folder.path(&format!("{out}/warp.nii.gz"))).expect("ITK");
        assert!(grid.same_grid(&fixed.geometry, 1e-3), "{out}");
        let count = grid.len();
        assert!(field[2 * count..].iter().all(|z| *z == 0.0), "{out} left the plane");

        let path = |name: &str| folder.path(&format!("{out}/{name}"));
        let (affine, warp, again) = (path("affine.txt"), path("warp.nii.gz"), path("again.nii"));
        let moving = folder.path(names[1]);
        let apply = ["apply", "-i", &moving, "-t", &warp, "-t", &affine, "-o", &again];
        ffdp(&apply).succeeded();
        let [expected, applied] =
            [path("warped.nii.gz"), again].map(|p| read_volume(p).expect("written"));
        let difference = relative_difference(&applied.data, &expected.data);
        // Displacements go through mm and f32 in the file.
        assert!(difference < 1e-4, "{out}: {difference}");
        let page = fs::read_to_string(path("report.html")).expect("written");
        assert!(page.contains("data:image/png"), "{out}");
    }
}
