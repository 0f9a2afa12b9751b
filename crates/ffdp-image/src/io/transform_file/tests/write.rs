//! What is written comes back, bit by bit.

use super::*;

fn map() -> Affine<Physical, Physical> {
    Affine::from_rows([
        [0.9, -0.3, 0.05, 4.0],
        [0.28, 1.1, 0.1, -3.0 / 7.0],
        [0.0, -0.12, 1.0 / 3.0, 2e-7],
    ])
}

#[test]
fn matrices_come_back_bit_by_bit() {
    let folder = Folder::new();
    for name in ["affine.txt", "affine.tfm", "affine.mat", "AFFINE.TXT"] {
        let path = folder.path(name);
        write_affine(&path, &map()).expect(name);
        assert_eq!(affine(&path), map(), "{name}");
    }
    // Known by content, not by name.
    let moved = folder.file("renamed.bin", fs::read(folder.path("affine.mat")).expect("written"));
    assert_eq!(affine(&moved), map());
}

#[test]
fn text_is_what_itk_writes() {
    let folder = Folder::new();
    let path = folder.path("affine.txt");
    write_affine(&path, &map()).expect("writable");
    let expected = "#Insight Transform File V1.0\n#Transform 0\n\
        Transform: AffineTransform_double_3_3\n\
        Parameters: 0.9 -0.3 -0.05 0.28 1.1 -0.1 0 0.12 0.3333333333333333 -4 0.42857142857142855 \
        0.0000002\nFixedParameters: 0 0 0\n";
    let text = fs::read_to_string(&path).expect("written").replace("-0 ", "0 ");
    assert_eq!(text, expected);
}

#[test]
fn what_readers_would_refuse_is_not_written() {
    let folder = Folder::new();
    let singular = Affine::from_rows([[1.0, 0.0, 0.0, 0.0], [2.0, 0.0, 0.0, 0.0], [0.0; 4]]);
    let path = folder.path("affine.txt");
    assert!(write_affine(&path, &singular).expect_err("singular").to_string().contains("singular"));
    assert!(!path.exists());
    let message = write_affine(folder.path("affine.xml"), &map()).expect_err("name").to_string();
    assert!(message.contains(".mat") && message.contains("xml"), "{message}");
}

/// A field on an oblique anisotropic grid.
fn field() -> TransformPart {
    let voxel_to_mm =
        Affine::from_rows([[-1.8, 0.3, 0.0, 40.0], [0.2, 0.0, 2.9, -31.0], [0.1, 2.2, 0.0, 7.5]]);
    let geometry = Geometry::from_affine([40, 30, 20], voxel_to_mm).expect("regular");
    let values = (0..3 * geometry.len()).map(|i| (i as f32 * 0.37).sin() * 5.0).collect();
    TransformPart::Displacement { values, geometry }
}

#[test]
fn chains_come_back_in_their_order() {
    let folder = Folder::new();
    let path = folder.path("chain.h5");
    let parts = [field(), TransformPart::Affine(map()), field()];
    write_composite(&path, &parts).expect("writable");
    let again = read_transform_file(&path).expect("readable");
    let [TransformPart::Displacement { values, geometry }, middle, last] = &again[..] else {
        panic!("{} parts", again.len());
    };
    let TransformPart::Displacement { values: expected, geometry: grid } = field() else {
        unreachable!("it is a displacement");
    };
    assert_eq!((middle, last), (&parts[1], &again[0]));
    // To mm in f32 and back: a few roundings of 5 voxels.
    let largest = values.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(largest < 4e-6, "{largest}");
    grid.check_same_grid(geometry, "what was read").expect("the same grid");
}

#[test]
fn composites_that_say_nothing_are_not_written() {
    let folder = Folder::new();
    let singular = Affine::from_rows([[1.0, 0.0, 0.0, 0.0], [2.0, 0.0, 0.0, 0.0], [0.0; 4]]);
    let TransformPart::Displacement { geometry, .. } = field() else {
        unreachable!("it is a displacement");
    };
    for (name, parts, word) in [
        ("chain.h5", vec![], "none"),
        ("chain.nii", vec![field()], ".h5"),
        ("chain.h5", vec![TransformPart::Affine(singular)], "singular"),
        ("chain.h5", vec![TransformPart::Displacement { values: vec![0.0; 5], geometry }], "72000"),
    ] {
        let path = folder.path(name);
        let message = write_composite(&path, &parts).expect_err(word).to_string();
        assert!(message.contains(word) && !path.exists(), "{message}");
    }
}
