//! Every kind of matrix that ITK writes, by its text.

use super::*;

/// A text file of one transform.
pub(super) fn itk_text(name: &str, parameters: &str, fixed: &str) -> String {
    format!(
        "#Insight Transform File V1.0\n#Transform 0\nTransform: {name}\nParameters: \
         {parameters}\nFixedParameters: {fixed}\n"
    )
}

/// Kind, parameters, fixed parameters, rows in RAS mm: computed with SimpleITK 2.5.7 by
/// `scripts/golden/transforms.py`, from the images of four points.
pub(super) type Case = (&'static str, &'static str, &'static str, [[f64; 4]; 3]);

use super::kinds_expected::KINDS;

#[test]
fn matrices_of_every_kind_are_those_of_itk() {
    let folder = Folder::new();
    for (name, parameters, fixed, expected) in KINDS {
        let path = folder.file("transform.txt", itk_text(name, parameters, fixed));
        assert_maps(name, &affine(&path), *expected);
    }
}

#[test]
fn lists_are_applied_from_their_end() {
    let folder = Folder::new();
    let text = "#Insight Transform File V1.0\n\n#Transform 0\nTransform: \
        CompositeTransform_double_3_3\n#Transform 1\nTransform: TranslationTransform_double_3_3\n\
        Parameters: 1 2 3\nFixedParameters:\n#Transform 2\nTransform: \
        ScaleTransform_float_3_3\nParameters: 2 2 2\nFixedParameters: 0 0 0\n";
    let path = folder.file("composite.tfm", text);
    let parts = read_transform_file(&path).expect("readable");
    let [TransformPart::Affine(first), TransformPart::Affine(second)] = parts.as_slice() else {
        panic!("{parts:?}")
    };
    assert_eq!(first.linear()[0][0], 2.0);
    assert_eq!(second.translation(), [-1.0, -2.0, 3.0]);
}

#[test]
fn plain_matrices_are_ras_from_fixed_to_moving() {
    let folder = Folder::new();
    let rows = [[1.0, 0.5, 0.0, 3.0], [0.0, 2.0, 0.0, -4.0], [0.0, 0.0, 1.5, 5e-1]];
    for text in [
        "1 0.5 0 3\n0 2 0 -4\n0 0 1.5 5e-1\n0 0 0 1\n",
        "# a matrix\n1,0.5,0,3\n0,2,0,-4\n0,0,1.5,0.5",
        "1\t0.5\t0\t3\r\n0\t2\t0\t-4\r\n0\t0\t1.5\t0.5\r\n0\t0\t0\t1\r\n\r\n",
    ] {
        assert_eq!(*affine(&folder.file("matrix.txt", text)).rows(), rows, "{text:?}");
    }
    let message =
        read_transform_file(folder.file("matrix.mat", "1 0 0 0\n0 1 0 0\n0 0 1 0\n0 0 0 1"));
    let message = message.expect_err("FLIRT's").to_string();
    assert!(message.contains("flirt:MATRIX,MOVING,FIXED"), "{message}");
}

#[test]
fn texts_of_itk_need_no_title_no_centre_and_no_plain_start() {
    let folder = Folder::new();
    let whole = itk_text("AffineTransform_double_3_3", "1 0 0 0 1 0 0 0 1 5 6 7", "0 0 0");
    let untitled = whole.split_once('\n').expect("lines").1.to_string();
    for text in [
        whole.replace("FixedParameters: 0 0 0", "FixedParameters:"),
        whole.replace("FixedParameters: 0 0 0\n", ""),
        format!("\u{feff}{whole}"),
        untitled.clone(),
        untitled.replace("#Transform 0\n", ""),
        whole.replace('\n', "\r\n").replace("5 6 7", "5e0 6.0E+00 +7"),
    ] {
        let map = affine(&folder.file("transform.tfm", &text));
        assert_eq!(map.translation(), [-5.0, -6.0, 7.0], "{text:?}");
    }
}

#[test]
fn matrices_rounded_by_fsl_are_read_and_projections_refused() {
    let folder = Folder::new();
    let of = |last: &str| folder.file("matrix.txt", format!("1 0 0 3\n0 1 0 4\n0 0 1 5\n{last}\n"));
    for last in ["0 0 0 1.00000012", "1e-7 0 -0 0.99999988", "0 0 0 1"] {
        assert_eq!(affine(&of(last)).translation(), [3.0, 4.0, 5.0], "{last}");
    }
    for last in ["0 0 0 1.001", "0.01 0 0 1"] {
        let message = read_transform_file(of(last)).expect_err(last).to_string();
        assert!(message.contains("the last is 0 0 0 1"), "{message}");
    }
}

#[test]
fn flirt_matrices_need_their_two_images() {
    // Moving: right-handed, so that FSL reverses its x axis. Fixed: left-handed.
    let moving = Geometry::new([10, 8, 6], [2.0, 1.0, 1.0]).expect("valid");
    let mut direction = [[0.0; 3]; 3];
    (0..3).for_each(|i| direction[i][i] = if i == 0 { -1.0 } else { 1.0 });
    let fixed = Geometry::new([20, 8, 6], [1.0, 1.0, 1.0])
        .and_then(|grid| grid.with_direction(direction))
        .and_then(|grid| grid.with_origin([18.0, 0.0, 0.0]))
        .expect("valid");
    let folder = Folder::new();
    let path = folder.file("unit.mat", "1 0 0 0  \n0 1 0 0  \n0 0 1 0  \n0 0 0 1  \n");
    let map = read_flirt(&path, &moving, &fixed).expect("readable");
    // Scaled voxel x of fixed, 18 - x mm, is 18 - x of moving, whose voxel is 9 - (18 - x) / 2,
    // at x - 0 mm.
    assert_maps("unit", &map, [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]]);
    let path = folder.file("shift.mat", "1 0 0 3\n0 1 0 4\n0 0 1 5\n0 0 0 1\n");
    let map = read_flirt(&path, &moving, &fixed).expect("readable");
    // The matrix goes from moving to fixed: ours goes back; scaled x runs against mm.
    assert_maps(
        "shift",
        &map,
        [[1.0, 0.0, 0.0, 3.0], [0.0, 1.0, 0.0, -4.0], [0.0, 0.0, 1.0, -5.0]],
    );
}
