//! What we write, read again; and writes that end early.

use super::*;

#[test]
fn images_of_any_size_come_back_to_the_bit() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("image.zarr");
    // One voxel, one plane, more than one chunk and layer, more than one shard.
    let sizes = [[1, 1, 1], [7, 5, 1], [130, 3, 40], [33, 129, 65], [1030, 9, 2], [64, 64, 64]];
    for (seed, size) in sizes.into_iter().enumerate() {
        let mut volume = random(oblique(size), seed as u64);
        volume.data[0] = -0.0;
        write_volume(&path, &volume).expect("writable");
        let back = read_volume(&path).expect("readable");
        assert_eq!(back.geometry, volume.geometry, "{size:?}");
        let bits = |volume: &Volume| volume.data.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert!(bits(&back) == bits(&volume), "{size:?}");
        let last = size[2] - 1;
        let slab = read_slab(&path, last..size[2]).expect("the last plane");
        assert_eq!(slab.data, volume.data[last * size[0] * size[1]..]);
        let header = header(&path).expect("readable");
        assert_eq!((header.format.name(), header.data_type), ("OME-Zarr 0.5", DataType::F32));
    }
    // The folder was replaced each time, and nothing is left next to it.
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
}

#[test]
fn planes_are_read_in_any_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("image.zarr");
    let mut volume = random(oblique([20, 30, 100]), 5);
    write_volume(&path, &volume).expect("writable");
    let mut reader = PlaneReader::open(&path, None).expect("readable");
    for z in [0..3, 30..70, 60..100, 10..12, 99..100, 0..100, 5..6] {
        let expected = volume.read(z.clone()).expect("inside").to_vec();
        assert!(reader.read(z.clone()).expect("readable") == expected, "{z:?}");
    }
}

#[test]
fn labels_series_and_displacements_come_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let grid = oblique([40, 33, 35]);
    let path = folder.path().join("labels.zarr");
    for largest in [3, 70_000, 600_000_000] {
        let data = (0..grid.len()).map(|i| (i / 100 % 7) as i32 * (largest / 6)).collect();
        let labels = LabelMap::new(data, grid.clone()).expect("one for each voxel");
        write_labels(&path, &labels).expect("writable");
        assert_eq!(read_labels(&path).expect("readable"), labels, "{largest}");
        assert_eq!(header(&path).expect("readable").intent_code, 1002);
    }
    let path = folder.path().join("series.zarr");
    let series = [1, 2, 3].map(|seed| random(grid.clone(), seed));
    write_volumes(&path, &series, 2.5).expect("writable");
    assert_eq!(read_volumes(&path).expect("readable"), series);
    assert_eq!(header(&path).expect("readable").time_step_seconds, 2.5);
    let second = folder.path().join("series.zarr#0,t=1");
    assert_eq!(read_volume(&second).expect("readable"), series[1]);
    assert_eq!(read_volume_at(&path, 2).expect("readable"), series[2]);
    assert!(message(read_volume(&path)).contains("--volume K"));
    let path = folder.path().join("warp.zarr");
    let field: Vec<f32> = (0..3).flat_map(|seed| random(grid.clone(), seed).data).collect();
    write_displacement(&path, &field, &grid).expect("writable");
    let (back, same) = read_displacement(&path).expect("readable");
    assert_eq!(same, grid);
    // Through mm and back: two roundings of f32.
    let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 2.0 * f32::EPSILON * b.abs();
    assert!(back.iter().zip(&field).all(near));
}

#[test]
fn conversions_keep_every_value() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let grid = oblique([21, 18, 37]);
    let labels: Vec<i32> = (0..grid.len()).map(|i| i as i32 % 300).collect();
    let labels = LabelMap::new(labels, grid.clone()).expect("one for each voxel");
    write_labels(at("0.nii.gz"), &labels).expect("writable");
    let names = ["1.zarr", "2.nrrd", "3.mha", "4.zarr", "5.nii", "6.zarr"];
    let mut from = at("0.nii.gz");
    for name in names {
        convert(&from, at(name), None).expect("convertible");
        from = at(name);
        let back = read_labels(&from).expect("readable");
        assert_eq!(back.data, labels.data, "{name}");
        assert!(back.geometry.same_grid(&grid, 1e-4), "{name}");
        assert_eq!(header(&from).expect("readable").data_type, DataType::I16, "{name}");
    }
    let field: Vec<f32> = (0..3).flat_map(|seed| random(grid.clone(), seed).data).collect();
    write_displacement(at("warp.nii.gz"), &field, &grid).expect("writable");
    convert(at("warp.nii.gz"), at("warp.zarr"), None).expect("convertible");
    convert(at("warp.zarr"), at("warp.nii"), None).expect("convertible");
    let (back, _) = read_displacement(at("warp.nii")).expect("readable");
    let worst = back.iter().zip(&field).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    // Numbers up to 1000 in f32 through a sheared grid, four roundings.
    assert!(worst < 2e-3, "{worst}");
    let refused = message(convert(at("warp.zarr"), at("warp.mha"), None));
    assert!(refused.contains("write a .nii.gz file"), "{refused}");
}

#[test]
fn levels_lie_where_the_first_one_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("image.zarr");
    let grid = oblique([128, 96, 66]);
    // Linear in space: means of blocks are the values in their middle.
    let plane = |p: [f64; 3]| (0.5 * p[0] - 0.25 * p[1] + 2.0 * p[2]) as f32;
    let value = |geometry: &Geometry, i: usize| {
        plane(geometry.voxel_to_mm().apply(geometry.index_of(i).map(|k| k as f64)))
    };
    let data = (0..grid.len()).map(|i| value(&grid, i)).collect();
    write_volume(&path, &Volume::new(data, grid.clone()).expect("one a voxel")).expect("writable");
    for level in 1..=1 {
        let name = folder.path().join(format!("image.zarr#{level}"));
        let coarse = read_volume(&name).expect("readable");
        assert_eq!(coarse.geometry.size, [64, 48, 33]);
        assert!(coarse.geometry.same_grid(&grid.resized([64, 48, 33]).expect("a grid"), 1e-6));
        for (i, v) in coarse.data.iter().enumerate() {
            assert!((v - value(&coarse.geometry, i)).abs() < 1e-3, "{i}: {v}");
        }
    }
    let none = message(read_volume(folder.path().join("image.zarr#2")));
    assert!(none.contains("must be less than 2"), "{none}");
}

#[cfg(unix)]
#[test]
fn names_need_not_be_utf_8() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().expect("a folder");
    let named = |bytes: &[u8]| folder.path().join(std::ffi::OsStr::from_bytes(bytes));
    let volume = random(Geometry::new([70, 70, 3], [1.0; 3]).expect("a grid"), 1);
    write_volume(named(b"a\xff#b.zarr"), &volume).expect("writable");
    assert_eq!(read_volume(named(b"a\xff#b.zarr")).expect("readable"), volume);
    let coarse = read_volume(named(b"a\xff#b.zarr#1")).expect("readable");
    assert_eq!(coarse.geometry.size, [35, 35, 2]);
}

#[test]
fn a_write_that_ends_early_leaves_nothing_and_the_old_image() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = sound(folder.path());
    let old = read_volume(&path).expect("readable");
    let grid = Geometry::new([20, 20, 40], [1.0; 3]).expect("a grid");
    let mut writer = crate::io::images::VolumeWriter::create(&path, &grid).expect("writable");
    writer.write(&vec![1.0; 20 * 20 * 39]).expect("writable");
    assert!(message(writer.finish()).contains("number of values"));
    assert_eq!(read_volume(&path).expect("readable"), old);
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    // A folder that is no image is not replaced.
    let other = folder.path().join("mine.zarr");
    write(&other.join("notes.txt"), b"mine");
    assert!(crate::io::check_writable(&other).is_err() && write_volume(&other, &old).is_err());
    assert!(other.join("notes.txt").exists());
}

#[test]
fn a_layer_that_cannot_be_written_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("image.zarr");
    let geometry = Geometry::new([64, 64, 100], [1.0; 3]).expect("positive");
    let mut writer = VolumeWriter::create(&path, &geometry).expect("writable");
    // Where its first level was there is a file now.
    let parts = fs::read_dir(folder.path()).expect("a folder").map(|part| part.expect("read"));
    let level = parts.map(|part| part.path().join("0")).find(|level| level.is_dir());
    let level = level.expect("the level has begun");
    fs::remove_dir_all(&level).expect("removable");
    fs::write(&level, "").expect("writable");
    // The thread that writes meets it while planes come, or when they have.
    let planes = vec![1.0; geometry.len()];
    let ended = writer.write(&planes).and_then(|()| writer.finish());
    assert!(message(ended).contains("image.zarr"));
    assert!(!path.exists());
}
