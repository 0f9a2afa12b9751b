//! Cuts and meshes.

use super::*;
use ffdp_image::Error;

const SIZE: [usize; 3] = [11, 5, 7];

#[test]
fn balanced_shards_differ_by_one_plane() {
    let layout = Layout::balanced(SIZE, Axis::Z, 4).unwrap();
    let thicknesses: Vec<usize> = layout.all_planes().map(|planes| planes.len()).collect();
    assert_eq!(thicknesses, [3, 3, 3, 2]);
    assert_eq!(layout.seams(), [3, 6, 9]);
    assert_eq!(layout.shard_size(3), [2, 5, 7]);
    let columns = Layout::balanced(SIZE, Axis::X, 2).unwrap();
    assert_eq!(columns.shard_size(0), [11, 5, 4]);
    assert_eq!(columns.extent(), 7);
}

#[test]
fn windows_find_their_owners() {
    let layout = Layout::uneven(SIZE, Axis::Z, &[4, 1, 6]).unwrap();
    assert_eq!(layout.overlaps(&(3..7)), [(0, 3..4), (1, 0..1), (2, 0..2)]);
    assert_eq!(layout.overlaps(&(0..4)), [(0, 0..4)]);
}

#[test]
fn cuts_without_a_meaning_are_refused() {
    for (error, value) in [
        (Layout::balanced(SIZE, Axis::Y, 6), "6"),
        (Layout::balanced(SIZE, Axis::Y, 0), "0"),
        (Layout::uneven(SIZE, Axis::Z, &[4, 0, 7]), "[4, 0, 7]"),
        (Layout::uneven(SIZE, Axis::Z, &[4, 6]), "[4, 6]"),
    ] {
        let error = error.unwrap_err();
        assert!(matches!(&error, Error::Invalid { value: got, .. } if got == value), "{error}");
    }
    assert!(DeviceMesh::new(&[], 1).is_err());
    let two = [Device::flex(), Device::flex()];
    assert!(DeviceMesh::new(&two, 1).is_err());
    assert_eq!(DeviceMesh::new(&two, 5).unwrap().count(), 5);
}

#[test]
fn a_coarse_level_has_a_shard_a_plane_at_most() {
    let mesh = DeviceMesh::new(&[Device::flex()], 8).unwrap();
    assert_eq!(mesh.layout([5, 40, 40], Axis::Z).unwrap().count(), 5);
    assert_eq!(mesh.layout([50, 40, 40], Axis::Z).unwrap().count(), 8);
}

#[test]
fn parts_make_the_whole() {
    for layout in layouts(1) {
        let image = random(2, layout.size(), [-1.0, 1.0], DType::F32, 5);
        let sharded = split(&image, &layout);
        assert_eq!(sharded.dims(), image.dims());
        assert_eq!(bits(whole(&sharded)), bits(image.clone()), "{layout:?}");
        let dim = layout.axis().dim();
        let slabs = Sharded::build(&layout, &mesh(&layout), |planes, _| {
            Ok(image.clone().narrow(dim, planes.start, planes.len()))
        });
        assert_eq!(bits(whole(&slabs.unwrap())), bits(image), "{layout:?}");
    }
}

#[test]
fn a_slab_that_cannot_be_read_is_the_callers_error() {
    let layout = Layout::balanced(SIZE, Axis::Z, 3).unwrap();
    let error = Sharded::build(&layout, &mesh(&layout), |planes, _| {
        Err(Error::invalid("a slab", planes.start, "read it again"))
    });
    assert!(matches!(error, Err(Error::Invalid { .. })));
}

#[test]
#[should_panic(expected = "shard 1 must be [1, 1, 5, 5, 7], got [1, 1, 6, 5, 7]")]
fn shards_of_another_layout_are_refused() {
    let layout = Layout::balanced(SIZE, Axis::Z, 2).unwrap();
    let shard = Tensor::zeros([1, 1, 6, 5, 7], &Device::flex());
    Sharded::new(vec![shard.clone(), shard], layout);
}

#[test]
#[should_panic(expected = "cut differently")]
fn operands_cut_differently_are_refused() {
    let image = random(1, SIZE, [0.0, 1.0], DType::F32, 1);
    let [a, b] = [[4, 7], [5, 6]].map(|cuts| Layout::uneven(SIZE, Axis::Z, &cuts).unwrap());
    split(&image, &a).zip_map(&split(&image, &b), Tensor::add);
}

#[test]
fn cuts_are_even_and_follow_the_stride() {
    let cuts = Cuts::balanced(160, 4, 3);
    assert_eq!(cuts, Cuts::from_ends(vec![0, 52, 108, 160]));
    assert_eq!(cuts.at(4), Cuts::from_ends(vec![0, 13, 27, 40]));
    assert_eq!(cuts.at(32), Cuts::from_ends(vec![0, 2, 3, 5]));
    // More places than planes of the coarsest grid: some have none.
    assert_eq!(Cuts::balanced(64, 4, 4).at(32), Cuts::from_ends(vec![0, 1, 1, 2, 2]));
}
