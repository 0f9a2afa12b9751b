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
