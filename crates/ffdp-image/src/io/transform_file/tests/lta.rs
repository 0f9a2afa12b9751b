//! Linear transforms of FreeSurfer.

use super::*;

const HEAD: &str = "# transform file x.lta\n# created by someone\n\n";

fn volume(title: &str, size: [usize; 3], voxel: [f64; 3], centre: [f64; 3]) -> String {
    let [x, y, z] = size;
    let [a, b, c] = voxel;
    let [r, p, s] = centre;
    format!(
        "{title}\nvalid = 1  # volume info valid\nfilename = image.mgz\nvolume = {x} {y} {z}\nvoxelsize = {a} {b} {c}\n\
         xras   = -1 0 0\nyras   = 0 0 -1\nzras   = 0 1 0\ncras   = {r} {p} {s}\n"
    )
}

fn lta(kind: u32, rows: &str) -> String {
    format!(
        "{HEAD}type      = {kind} # a kind\nnxforms   = 1\nmean      = 0.0 0.0 0.0\nsigma     = 1.0\n1 4 4\n{rows}\n\
         {}{}subject s\nfscale 0.15\n",
        volume("src volume info", [10, 20, 30], [2.0, 1.0, 1.0], [5.0, 0.0, 0.0]),
        volume("dst volume info", [20, 20, 30], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0]),
    )
}

#[test]
fn matrices_from_moving_to_fixed_are_turned_round() {
    let folder = Folder::new();
    let path = folder.file("a.lta", lta(1, "1 0 0 2\n0 2 0 3\n0 0 1 4\n0 0 0 1"));
    let expected = [[1.0, 0.0, 0.0, -2.0], [0.0, 0.5, 0.0, -1.5], [0.0, 0.0, 1.0, -4.0]];
    assert_maps("ras", &affine(&path), expected);
    // Without the grids, and under any name.
    let text = "type = 1\nnxforms = 1\nmean = 0 0 0\nsigma = 1\n1 4 4\n1 0 0 2\n0 2 0 3\n0 0 1 4\n0 0 0 1\n";
    assert_maps("short", &affine(&folder.file("a.txt", text)), expected);
}

#[test]
fn matrices_between_voxels_take_the_grids_of_both_images() {
    let folder = Folder::new();
    // Voxel (i, j, k) of moving is (2 i + 1, j, k) of fixed.
    let path = folder.file("a.lta", lta(0, "2 0 0 1\n0 1 0 0\n0 0 1 0\n0 0 0 1"));
    // Fixed: x = 10 - i. Moving: x = 15 - 2 i. So a fixed x is the voxel (9 - x) / 2 of moving, at x + 6.
    let expected = [[1.0, 0.0, 0.0, 6.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]];
    assert_maps("voxels", &affine(&path), expected);
}

#[test]
fn what_cannot_be_read_of_them_is_named() {
    let folder = Folder::new();
    let unit = "1 0 0 0\n0 1 0 0\n0 0 1 0\n0 0 0 1";
    for (text, expected) in [
        (lta(14, unit), "the type must be 1 (RAS to RAS)"),
        (lta(1, unit).replace("nxforms   = 1", "nxforms   = 2"), "nxforms must be 1"),
        (lta(1, "1 0 0 0\n0 1 0 0\n0 0 1\n0 0 0 1"), "four numbers"),
        (lta(1, "1 0 0 0\n0 1 0 0\n0 0 1 0\n0 0 1 1"), "the last row must be 0 0 0 1"),
        (lta(1, "1 0 0 0\n0 1 0 0\n0 0 0 0\n0 0 0 1"), "singular"),
        (lta(1, "nan 0 0 0\n0 1 0 0\n0 0 1 0\n0 0 0 1"), "four numbers"),
        (lta(0, unit).replace("valid = 1", "valid = 0"), "needs a valid src volume info"),
        (lta(0, unit).replace("cras   = 5 0 0", "cras   = 5 0"), "cras of the src volume info"),
        (lta(0, unit).replace("volume = 10 20 30", "volume = 0 20 30"), "three sizes"),
        (lta(0, unit).replace("dst volume info", "other"), "the file must have valid"),
        ("type = 1\nnxforms = 1\n".to_string(), "no line"),
    ] {
        let message = read_transform_file(folder.file("a.lta", &text)).expect_err(expected);
        assert!(message.to_string().contains(expected), "{message}");
    }
}
