//! A file in pieces, and whole.

use std::ops::Range;
use std::path::Path;

use burn::tensor::Device;

use super::finite::Finite;
use super::labels::looks_like_labels;
use super::{FileInterpolation, FileWarp, Maps, NonFiniteVoxels, warp_labels, warp_volume};
use ffdp_burn::transform::read_transform;
use ffdp_image::Error;
use ffdp_image::image::{Geometry, LabelMap, OneOf, Planes, Volume, runs};
use ffdp_image::io::images::{
    DataType, IntegerForm, header, read_volumes, write_displacement, write_integers, write_volumes,
};
use ffdp_image::io::open_displacement;
use ffdp_parallel::chain::PlaneChain;

#[test]
fn pieces_are_the_whole_with_every_interpolation_background_and_type() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let grid = Geometry::new([14, 12, 16], [1.0; 3]).expect("valid");
    let wave = |i: usize, c: usize| {
        let [x, y, z] = grid.index_of(i).map(|i| i as f32);
        [3.3 * (0.4 * y).sin(), 2.9 * (0.3 * z).cos(), 5.7 * (0.35 * x).sin() + 1.13][c]
    };
    let shift = |c| (0..grid.len()).map(move |i| (i, c));
    let field: Vec<f32> = (0..3).flat_map(shift).map(|(i, c)| wave(i, c)).collect();
    write_displacement(path("warp.nii.gz"), &field, &grid).expect("writable");
    let volume = |k: usize| {
        let value = |i: usize| ((i * (7 + k)) % 41) as f32 * 0.5 - 3.0;
        Volume::new((0..grid.len()).map(value).collect(), grid.clone()).expect("fits")
    };
    write_volumes(path("floats.nii.gz"), &[volume(0), volume(1)], 2.0).expect("writable");
    let labels = |k: usize| {
        let value = |i: usize| [0, 3, 600_000_000, 17][(i / 5 + k) % 4];
        LabelMap::new((0..grid.len()).map(value).collect(), grid.clone()).expect("fits")
    };
    let form = IntegerForm {
        data_type: DataType::I32,
        intercept: 0,
        scale: None,
        intent_code: 1002,
        time_step_seconds: 2.0,
    };
    write_integers(path("labels.nii"), &[labels(0), labels(1)], form).expect("writable");
    let pieces = |voxels| runs(&grid, voxels).collect::<Vec<_>>();
    let (whole, thin) = (pieces(grid.len()), pieces(1));
    assert_eq!((whole.len(), thin.len()), (1, 16));
    for (image, how) in [
        ("floats.nii.gz", FileInterpolation::Linear),
        ("floats.nii.gz", FileInterpolation::Cubic),
        ("floats.nii.gz", FileInterpolation::Sinc),
        ("floats.nii.gz", FileInterpolation::Nearest),
        ("labels.nii", FileInterpolation::Nearest),
        ("labels.nii", FileInterpolation::Label),
    ] {
        for background in [0.0, 9.0] {
            let warped = |pieces: &[Range<usize>], from_file: bool| {
                let (from, to, warp) = (path(image), path("warped.nii"), path("warp.nii.gz"));
                let device = Device::flex();
                let chain = match from_file {
                    true => PlaneChain::default()
                        .then_stored(open_displacement(&warp).expect("readable").expect("a field")),
                    false => PlaneChain::default()
                        .then(read_transform(&warp, &device).expect("readable")),
                };
                let warp = FileWarp::open(&from).expect("there");
                let warp = warp.interpolation(how).background(background);
                let last =
                    warp.write_pieces(Maps::One(chain), &grid, pieces, &device, Path::new(&to));
                last.expect("warped").finish().expect("written");
                assert_eq!(header(&to).expect("there").time_step_seconds, 2.0);
                read_volumes(&to).expect("readable").into_iter().flat_map(|v| v.data).collect()
            };
            let [expected, got]: [Vec<f32>; 2] = [warped(&whole, false), warped(&thin, true)];
            let beyond = expected.iter().filter(|v| **v == background).count();
            assert!(beyond > 100, "{beyond} voxels lie outside");
            let apart = expected.iter().zip(&got).map(|(a, b)| (a - b).abs());
            if image == "floats.nii.gz" && how != FileInterpolation::Nearest {
                // Positions near 16 are rounded to 1e-6 of a voxel; neighbouring values differ by up to 20.
                assert!(apart.fold(0.0, f32::max) < 1e-4, "{image} {how:?} {background}");
            } else {
                // In the middle between two voxels the other one may be the nearest.
                assert!(apart.filter(|d| *d > 0.0).count() <= 2, "{image} {how:?} {background}");
            }
        }
    }
}

#[test]
fn an_image_in_memory_is_warped_as_its_file() {
    use FileInterpolation::{Cubic, Label, Linear, Nearest, Sinc};
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (grid, device) = (Geometry::new([9, 8, 7], [1.0; 3]).expect("valid"), Device::flex());
    let field: Vec<f32> = (0..3 * grid.len()).map(|i| 2.5 * (0.1 * i as f32).sin()).collect();
    write_displacement(path("warp.nii"), &field, &grid).expect("writable");
    let value = |i: usize| ((i * 7) % 41) as f32 * 0.5 - 3.0;
    let image = Volume::new((0..grid.len()).map(value).collect(), grid.clone()).expect("fits");
    write_volumes(path("image.nii"), std::slice::from_ref(&image), 0.0).expect("writable");
    let label = |i: usize| [0, 3, 600_000_000, 17][(i / 5) % 4];
    let labels = LabelMap::new((0..grid.len()).map(label).collect(), grid.clone()).expect("fits");
    let form = IntegerForm {
        data_type: DataType::I32,
        intercept: 0,
        scale: None,
        intent_code: 1002,
        time_step_seconds: 0.0,
    };
    write_integers(path("labels.nii"), std::slice::from_ref(&labels), form).expect("writable");
    let transform = || read_transform(path("warp.nii"), &device).expect("readable");
    let map = transform().on_grid(&grid, &device);
    for (how, background) in
        [Linear, Cubic, Sinc, Nearest, Label].into_iter().flat_map(|how| [(how, 0.0), (how, -9.0)])
    {
        for (name, is_labels) in [("image.nii", false), ("labels.nii", true)] {
            // A map of labels is asked for by the nearest or the heaviest one.
            if is_labels != (how == Label) && (how != Nearest) {
                continue;
            }
            let (chain, to) = (PlaneChain::default().then(transform()), path("warped.nii"));
            let warp = FileWarp::open(path(name)).expect("there");
            let warp = warp.interpolation(how).background(background);
            let last = warp.write(chain, &grid, &device, &to).expect("warped");
            last.finish().expect("written");
            let expected = read_volumes(&to).expect("readable").remove(0).data;
            let got: Vec<f32> = match is_labels {
                true => {
                    let warped = warp_labels(&labels, &map, how, background).expect("warped");
                    warped.data.into_iter().map(|label| label as f32).collect()
                }
                false => warp_volume(image.clone(), &map, how, background).expect("warped").data,
            };
            let beyond = expected.iter().filter(|value| **value == background).count();
            assert!(beyond > 20, "{name} {how:?} {background}: {beyond} voxels lie outside");
            assert_eq!(got, expected, "{name} {how:?} {background}");
        }
    }
    let refused = warp_labels(&labels, &map, Label, 0.5).expect_err("no label");
    assert!(refused.to_string().contains("the background of labels must be a label"), "{refused}");
    let far = grid.with_origin([100.0; 3]).expect("valid");
    let apart = transform().on_grid(&far, &device);
    let unseen = warp_volume(image, &apart, Linear, 0.0).expect_err("nothing is seen");
    assert!(matches!(unseen, Error::NoOverlap { .. }), "{unseen}");
}

#[test]
fn label_maps_are_known_from_images_of_few_integers() {
    let folder = tempfile::tempdir().expect("a folder");
    let grid = Geometry::new([40, 30, 8], [1.0; 3]).expect("valid");
    let is_labels = |intent_code: i32, value: &dyn Fn([usize; 3]) -> i32| {
        let data = (0..grid.len()).map(|i| value(grid.index_of(i))).collect();
        let volume = LabelMap::new(data, grid.clone()).expect("fits");
        let (data_type, path) = (DataType::U16, folder.path().join("image.nii"));
        let form = IntegerForm {
            data_type,
            intercept: 0,
            scale: None,
            intent_code,
            time_step_seconds: 0.0,
        };
        write_integers(&path, &[volume], form).expect("writable");
        looks_like_labels(&path, &header(&path).expect("there")).expect("readable")
    };
    let noise = |[x, y, z]: [usize; 3]| (x * 7919 + y * 104_729 + z * 1_299_709) % 251;
    // Regions of an atlas, a mask, and whatever says so itself.
    assert!(is_labels(0, &|[x, y, _]| [0, 4, 17, 2035][(x / 10 + y / 15) % 4]));
    assert!(is_labels(0, &|[x, _, _]| i32::from(x > 20)));
    assert!(is_labels(1002, &|at| noise(at) as i32));
    // A smooth image of few values, a noisy one of 8 bits, one that is constant.
    assert!(!is_labels(0, &|[x, y, _]| (10 + x / 5 + y / 6) as i32));
    assert!(!is_labels(0, &|at| noise(at) as i32));
    assert!(!is_labels(0, &|_| 7));
}

#[test]
fn what_is_not_finite_is_refused_or_counted_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let grid = Geometry::new([4, 5, 12], [1.0; 3]).expect("valid");
    let mut image = Volume::new(vec![1.0; grid.len()], grid.clone()).expect("fits");
    for z in [2, 7] {
        image.data[20 * z + 6] = f32::NAN;
    }
    let mut replaced = |policy| {
        let planes = OneOf::new(&mut image, &grid, 0);
        // What lies before what was read is read again.
        let mut finite = Finite::new(planes, path("image"), policy);
        for z in [0..3, 2..9, 1..8] {
            let values = finite.read(z).map_err(|error| error.to_string())?;
            assert!(values.iter().all(|v| *v == 1.0 || *v == 0.0));
        }
        Ok::<_, String>(finite.replaced)
    };
    assert_eq!(replaced(NonFiniteVoxels::Zero), Ok(2));
    let refused = replaced(NonFiniteVoxels::Refused).expect_err("not finite");
    let position = "2 NaN and 0 infinite voxels, the first at voxel (x, y, z) = [2, 1, 2]";
    assert!(refused.contains(position), "{refused}");
}
