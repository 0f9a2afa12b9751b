//! Files written by other programs, as gzip streams in hexadecimal.

use super::*;
use crate::io::images::{GeometrySource, header, read_displacement, read_slab, read_volume};

/// nibabel 5.4.2: a big-endian NIfTI-2 file with 16 bytes between header and data.
///
/// ```python
/// A = [[-1.5, 0.25, 0, 10], [0.125, 2, 0.5, -20], [0, -0.5, 3, 30], [0, 0, 0, 1]]
/// c, s = cos(0.5), sin(0.5)
/// Q = [[2 * c, -3 * s, 0, 1], [2 * s, 3 * c, 0, 2], [0, 0, -4, 3], [0, 0, 0, 1]]
/// header = nibabel.Nifti2Header(endianness='>')
/// header.set_data_dtype(int16); header.set_data_shape((2, 3, 2))
/// header.set_sform(A, 2); header.set_qform(Q, 1)
/// header['descrip'] = b'golden'; header['scl_slope'] = 0.5; header['scl_inter'] = 10
/// header['vox_offset'] = 560; header['magic'] = b'n+2\0\r\n\x1a\n'
/// write(header.binaryblock + 4 * b'\0' + 16 * b'\xee' + arange(-3, 9).astype('>i2').tobytes())
/// ```
const NIBABEL_NIFTI2: &str = "\
1f8b080000000000020363606092c9d33662e0e592e2626061106080006628cd8483cf4880c600fb3f40680728df8103\
4a436db4ff809f865a6f60ff00aa4f85812c909e9f93929ac7400fc088145e70607f7ed5bb2b9f45cbec7184c7fe1f50\
751750f5c1fc6b7f00551f2c3c0e98a085f703b470b623cf13efd0c0ffbffffffdff0ff61d133055b030b032b031b033\
700000d965969748020000";

/// SimpleITK 2.5.7 (ITK 5.4): a displacement field of 3x2x2 voxels.
///
/// ```python
/// image = GetImageFromArray((arange(36).reshape(2, 2, 3, 3) * 0.5 - 4).astype(float32), isVector=True)
/// image.SetSpacing([1.5, 2.0, 2.5]); image.SetOrigin([-7.0, 11.0, 13.0])
/// image.SetDirection([0, -1, 0, 1, 0, 0, 0, 0, 1])
/// WriteImage(image, 'displacement.nii.gz')
/// ```
const ITK_DISPLACEMENT: &str = "\
1f8b08000000000002038b616420021431b03230333001212390666440d5f49e59804101cc6ab067603800c40c0e0c0c\
0a0e98e66c7086a801032e860106c8fef8cc62ba9f81e101d0cd06071918021ca1c2503f80c40fec47e804a98101903f\
e1eae1204fdb10ca6a38005403c40d20fdd0b04900e205407c01643e50af04101b00b107102700d53280f07e485881cc\
6f00e20d0e10777000d52800b18523c45e870308b781c2de01a86602c8bd40fc018805806a3440ea8038c211006a6e8b\
b9f0010000";

fn from_hex(text: &str) -> Vec<u8> {
    let digit = |i: usize| u8::from_str_radix(&text[i..i + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digit).collect()
}

#[test]
fn a_nifti2_file_of_nibabel_is_read() {
    let folder = Folder::new();
    let path = folder.file("two.nii.gz", &from_hex(NIBABEL_NIFTI2));
    let header = header(&path).unwrap();
    assert_eq!((header.format, header.endian), (Version::Two.format(), Endian::Big));
    assert_eq!((header.dims.as_slice(), header.data_type), (&[2, 3, 2][..], DataType::I16));
    assert_eq!((header.vox_offset, header.description.as_str()), (560, "golden"));
    assert_eq!(header.geometry_source, GeometrySource::Sform);
    assert_eq!(header.geometry, sheared([2, 3, 2]));
    assert!(header.warnings[0].contains("disagree"), "{:?}", header.warnings);
    let (s, c) = 0.5f64.sin_cos();
    let expected =
        [[2.0 * c, -3.0 * s, 0.0, 1.0], [2.0 * s, 3.0 * c, 0.0, 2.0], [0.0, 0.0, -4.0, 3.0]];
    let qform = header.qform.unwrap();
    for (ours, theirs) in qform.voxel_to_mm.rows().iter().flatten().zip(expected.iter().flatten()) {
        assert!((ours - theirs).abs() < 1e-12, "{qform:?}");
    }
    let expected: Vec<f32> = (-3..9).map(|i| i as f32 * 0.5 + 10.0).collect();
    assert_eq!(read_volume(&path).unwrap().data, expected);
    assert_eq!(read_slab(&path, 1..2).unwrap().data, expected[6..]);
}

#[test]
fn a_displacement_of_itk_is_read() {
    let folder = Folder::new();
    let path = folder.file("itk.nii.gz", &from_hex(ITK_DISPLACEMENT));
    let (voxels, grid) = read_displacement(&path).unwrap();
    assert_eq!(grid.size, [3, 2, 2]);
    // ITK: index (0, 0, 0) and (2, 1, 1), physical points and vectors, all LPS.
    for (index, point, vector) in [
        ([0, 0, 0], [-7.0, 11.0, 13.0], [-4.0, -3.5, -3.0]),
        ([2, 1, 1], [-9.0, 14.0, 15.5], [12.5, 13.0, 13.5]),
    ] {
        let p = index.map(|i| i as f64);
        let offset = index[0] + 3 * (index[1] + 2 * index[2]);
        let moved = std::array::from_fn(|i| p[i] + f64::from(voxels[12 * i + offset]));
        let to_mm = grid.voxel_to_mm();
        let [x, y, z] = to_mm.apply(p);
        assert_eq!([-x, -y, z], point);
        let [x, y, z] = to_mm.apply(moved);
        for (ours, i) in [-x, -y, z].into_iter().zip(0..3) {
            // f32 vectors of about 10 mm.
            assert!((ours - point[i] - vector[i]).abs() < 2e-6, "{index:?}: {ours}");
        }
    }
}
