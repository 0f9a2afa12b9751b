use burn::tensor::Device;

use super::sheared_grid;
use crate::error::Error;
use crate::image::{Geometry, LabelMap, Volume};

fn ramp() -> Volume {
    let grid = sheared_grid();
    Volume::new((0..grid.len()).map(|i| i as f32 * 0.25 - 3.0).collect(), grid).unwrap()
}

#[test]
fn a_volume_needs_one_value_per_voxel() {
    let error = Volume::new(vec![0.0; 104], sheared_grid()).unwrap_err().to_string();
    assert!(error.contains("[105]") && error.contains("[104]"), "{error}");
    assert!(LabelMap::new(vec![0; 106], sheared_grid()).is_err());
}

#[test]
fn tensors_have_x_last_and_come_back_unchanged() {
    let (volume, device) = (ramp(), Device::flex());
    let tensor = volume.to_tensor(&device);
    assert_eq!(tensor.dims(), [1, 1, 3, 7, 5]);
    // Voxel (x, y, z) = (4, 2, 1) lies at 4 + 5 (2 + 7 1) = 49.
    let one = tensor.clone().slice([0..1, 0..1, 1..2, 2..3, 4..5]).into_scalar::<f32>();
    assert_eq!(one, volume.data[49]);
    assert_eq!(Volume::from_tensor(tensor.clone(), sheared_grid()).unwrap(), volume);
    let other = Geometry::new([7, 5, 3], [1.0; 3]).unwrap();
    assert!(matches!(Volume::from_tensor(tensor, other), Err(Error::Shape { .. })));
}

#[test]
fn labels_pass_through_tensors_exactly() {
    let grid = sheared_grid();
    let mut data: Vec<i32> = (0..grid.len() as i32).map(|i| i % 4 * 1000).collect();
    (data[0], data[1]) = (i32::MAX, i32::MIN);
    let mut labels = LabelMap::new(data, grid.clone()).unwrap();
    assert_eq!(labels.ids(), [i32::MIN, 1000, 2000, 3000, i32::MAX]);
    let device = Device::flex();
    let back = LabelMap::from_tensor(labels.to_tensor(&device), grid).unwrap();
    assert_eq!(back, labels);
    let error = labels.to_float_tensor(&device).unwrap_err().to_string();
    assert!(error.contains("2147483647"), "{error}");
    (labels.data[0], labels.data[1]) = (1 << 24, -(1 << 24));
    let floats = labels.to_float_tensor(&device).unwrap().into_data().try_to_vec::<f32>().unwrap();
    assert!(floats.iter().zip(&labels.data).all(|(&f, &l)| f as i32 == l));
}

#[test]
fn labels_beyond_2_to_24_are_numbered_where_they_are_moved() {
    let grid = sheared_grid();
    let some = [i32::MIN, -5, 0, 7, 612_345_677, 612_345_678, i32::MAX];
    let data: Vec<i32> = (0..grid.len()).map(|i| some[i % some.len()]).collect();
    let device = Device::flex();
    let labels = LabelMap::new(data, grid.clone()).unwrap();
    let (tensor, meaning) = labels.to_movable_tensor(&device).unwrap();
    let values = tensor.into_data().try_to_vec::<f32>().unwrap();
    assert_eq!(values[..7], [-2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0]);
    assert_eq!(meaning.labels(values), labels.data);
    // Without a 0, which lies outside every image.
    let labels = LabelMap::new(vec![i32::MAX; grid.len()], grid).unwrap();
    let (tensor, meaning) = labels.to_movable_tensor(&device).unwrap();
    assert_eq!(tensor.into_data().try_to_vec::<f32>().unwrap()[0], 1.0);
    assert_eq!(meaning.labels(vec![0.0, 1.0]), [0, i32::MAX]);
}

#[test]
fn non_finite_voxels_are_counted_and_located() {
    let mut volume = ramp();
    assert!(volume.check_finite("fixed image").is_ok());
    volume.data[49] = f32::NAN;
    volume.data[60] = f32::NEG_INFINITY;
    volume.data[61] = f32::NAN;
    match volume.check_finite("fixed image").unwrap_err() {
        Error::NonFinite { nan: 2, infinite: 1, first: [4, 2, 1], .. } => {}
        other => panic!("{other}"),
    }
    let error = volume.check_finite("fixed image").unwrap_err().to_string();
    assert!(error.starts_with("fixed image holds 2 NaN and 1 infinite"), "{error}");
    assert_eq!(volume.min_max(), Some((-3.0, 23.0)));
    assert!(volume.normalized(0.0, 100.0).is_err());
    assert_eq!(volume.replace_non_finite(0.0), 3);
    assert_eq!(volume.data[49], 0.0);
    assert!(volume.check_finite("fixed image").is_ok());
}

#[test]
fn percentiles_interpolate_between_ranks() {
    let grid = Geometry::new([5, 1, 1], [1.0; 3]).unwrap();
    let volume = Volume::new(vec![40.0, 10.0, 50.0, 20.0, 30.0], grid).unwrap();
    // numpy.percentile([40, 10, 50, 20, 30], [0, 10, 25, 50, 99, 100])
    let expected = [10.0, 14.0, 20.0, 30.0, 49.6, 50.0];
    assert_eq!(volume.percentiles([0.0, 10.0, 25.0, 50.0, 99.0, 100.0]).unwrap(), expected);
    assert!(volume.percentiles([101.0]).is_err());
    assert!(volume.percentiles([f64::NAN]).is_err());
}

#[test]
fn normalisation_is_robust_to_hot_voxels() {
    let grid = Geometry::new([101, 1, 1], [1.0; 3]).unwrap();
    let mut data: Vec<f32> = (0..101).map(|i| i as f32).collect();
    data[100] = 3e38;
    data[0] = -3e38;
    let volume = Volume::new(data, grid.clone()).unwrap().normalized(1.0, 99.0).unwrap();
    assert_eq!((volume.data[0], volume.data[1], volume.data[99]), (0.0, 0.0, 1.0));
    assert_eq!((volume.data[100], volume.data[50]), (1.0, 0.5));
    let constant = Volume::new(vec![7.0; 101], grid.clone()).unwrap();
    assert!(constant.normalized(1.0, 99.0).unwrap_err().to_string().contains("constant"));
    let mut dot = Volume::new(vec![0.0; 101], grid).unwrap();
    dot.data[17] = 5.0;
    assert!(dot.normalized(1.0, 99.0).unwrap_err().to_string().contains("further apart"));
    assert_eq!(dot.normalized(0.0, 100.0).unwrap().data[17], 1.0);
    assert!(dot.normalized(99.0, 1.0).is_err());
}
