//! Damaged and unsuitable files are refused with the value at fault.

use super::kinds::itk_text;
use super::*;

const AFFINE: &str = "AffineTransform_double_3_3";
const UNIT: &str = "1 0 0 0 1 0 0 0 1 0 0 0";

fn message(path: &Path) -> String {
    let message = read_transform_file(path).expect_err("must be refused").to_string();
    assert!(message.contains(&*path.file_name().expect("named").to_string_lossy()), "{message}");
    message
}

#[test]
fn texts_that_cannot_be_meant_are_refused() {
    let folder = Folder::new();
    let many = format!("{}{}", itk_text(AFFINE, UNIT, "0 0 0"), itk_text(AFFINE, UNIT, "0 0 0"));
    for (text, words) in [
        (itk_text(AFFINE, "1 0 0 0 1 0 0 0 1 0 0", "0 0 0"), ["12 parameters", "11 and 3"]),
        (itk_text(AFFINE, UNIT, "0 0"), ["12 parameters", "12 and 2"]),
        (itk_text(AFFINE, "1 0 0 0 nan 0 0 0 1 0 0 0", "0 0 0"), ["finite", "NaN"]),
        (itk_text(AFFINE, "1 0 0 0 1e999 0 0 0 1 0 0 0", "0 0 0"), ["finite", "inf"]),
        (itk_text(AFFINE, "1 0 0 0 x 0 0 0 1 0 0 0", "0 0 0"), ["line 4", "numbers"]),
        (itk_text(AFFINE, "1 0 0 0 1 0 1 1 0 0 0 0", "0 0 0"), ["singular", "condition"]),
        (itk_text(AFFINE, "1 0 0 0 1 0 0 0 1e-7 0 0 0", "0 0 0"), ["singular", "1.000e7"]),
        (itk_text("AffineTransform_double_2_2", "1 0 0 1 0 0", "0 0"), ["3-D", "_2_2"]),
        (itk_text("BSplineTransform_double_3_3", "1", "1"), ["[18] fixed", "1 and 1"]),
        (itk_text("VersorRigid3DTransform_double_3_3", "1 1 0 0 0 0", "0 0 0"), ["versor", "1.41"]),
        (itk_text("Nonsense", UNIT, "0 0 0"), ["3-D", "Nonsense"]),
        (itk_text("ThinPlateTransform_double_3_3", "1", "1"), ["cubic B-spline", "ThinPlate"]),
        ("#Insight Transform File V1.0\n".to_string(), ["one transform", "0 transforms"]),
        (many, ["one transform", "2 transforms"]),
        ("#Insight Transform File V1.0\nParameters: 1\n".to_string(), ["line 2", "first"]),
        (
            "#Insight Transform File V1.0\nTransform: A\nWeights: 1\n".to_string(),
            ["line 3", "Weights"],
        ),
        ("#Insight Transform File V1.0\nTransform A\n".to_string(), ["line 2", "Key"]),
        ("1 0 0\n0 1 0\n0 0 1\n".to_string(), ["line 1", "four finite numbers"]),
        ("1 0 0 0\n0 1 0 0\n".to_string(), ["three rows", "2 rows"]),
        ("1 0 0 0\n0 1 0 0\n0 0 1 0\n0 0 1 1".to_string(), ["0 0 0 1", "4 rows"]),
        ("1 0 0 0\n0 1 0 0\n0 0 0 0".to_string(), ["singular", "inf"]),
        ("1 0 0 0\n0 nan 0 0\n0 0 1 0".to_string(), ["line 2", "finite"]),
        ("what is this\n".to_string(), ["line 1", "what is this"]),
        ("\u{1}\u{2}binary".to_string(), ["ITK", "another kind"]),
        (String::new(), ["ITK", "another kind"]),
    ] {
        let message = message(&folder.file("transform.txt", &text));
        assert!(words.iter().all(|word| message.contains(word)), "{text}: {message}");
    }
}

/// A .mat file as ITK writes it.
fn matlab_bytes() -> Vec<u8> {
    let folder = Folder::new();
    let path = folder.path("affine.mat");
    write_affine(&path, &Affine::identity()).expect("writable");
    fs::read(path).expect("written")
}

#[test]
fn mat_files_cut_anywhere_are_refused() {
    let folder = Folder::new();
    let whole = matlab_bytes();
    for length in 4..whole.len() {
        let path = folder.path("affine.mat");
        let _ = fs::remove_file(&path);
        fs::write(&path, &whole[..length]).expect("writable");
        let message = message(&path);
        assert!(message.contains("go on for"), "{length} bytes: {message}");
    }
}

#[test]
fn mat_files_of_either_byte_order_are_read() {
    let folder = Folder::new();
    let little = matlab_bytes();
    // Both headers, the names left as they are, the numbers.
    let mut big = Vec::new();
    let mut rest = little.as_slice();
    for count in [12usize, 3] {
        let (header, after) = rest.split_at(20);
        big.extend(1000u32.to_be_bytes());
        header[4..].chunks(4).for_each(|n| big.extend(n.iter().rev()));
        let name = u32::from_le_bytes(header[16..20].try_into().expect("four")) as usize;
        let (name, after) = after.split_at(name);
        big.extend(name);
        let (numbers, after) = after.split_at(8 * count);
        numbers.chunks(8).for_each(|n| big.extend(n.iter().rev()));
        rest = after;
    }
    assert_eq!(affine(&folder.file("big.mat", big)), Affine::identity());
}

#[test]
fn mat_files_that_are_no_transforms_are_refused() {
    let folder = Folder::new();
    let whole = matlab_bytes();
    let changed = |offset: usize, value: u32| {
        let mut bytes = whole.clone();
        bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
        bytes
    };
    let trailing = [whole.as_slice(), b"more"].concat();
    for (bytes, words) in [
        (changed(4, u32::MAX), ["go on for", "bytes"]),
        (changed(8, 7), ["go on for", "bytes"]),
        (changed(12, 1), ["real", "imaginary flag 1"]),
        (changed(16, 100_000), ["256", "100000"]),
        (trailing, ["nothing else", "4 bytes more"]),
    ] {
        let message = message(&folder.file("affine.mat", bytes));
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
    // MATLAB 5 and later: HDF5 or another header.
    let message = message(&folder.file("workspace.mat", b"MATLAB 5.0 MAT-file, Platform: GLNXA64"));
    assert!(message.contains("FLIRT"), "{message}");
}
