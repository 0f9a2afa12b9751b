//! Halos are the planes of the whole, and their gradients come home.

use super::*;

/// The whole with `width` planes more on either side, by index.
fn padded(whole: &Tensor<5>, axis: Axis, width: usize, beyond: Beyond) -> Tensor<5> {
    let (dim, extent) = (axis.dim(), whole.dims()[axis.dim()] as isize);
    let plane = |i: isize| {
        let plane = whole.clone().narrow(dim, i.clamp(0, extent - 1) as usize, 1);
        let inside = (0..extent).contains(&i) || beyond == Beyond::Edge;
        if inside { plane } else { plane.zeros_like() }
    };
    Tensor::cat((-(width as isize)..extent + width as isize).map(plane).collect(), dim)
}

#[test]
fn halos_are_the_planes_of_the_whole() {
    for layout in layouts(2) {
        let image = random(2, layout.size(), [-1.0, 1.0], DType::F32, 5);
        let (sharded, dim) = (split(&image, &layout), layout.axis().dim());
        // Wider than most shards, and than the volume.
        for width in [0, 1, 3, 25] {
            for beyond in [Beyond::Nothing, Beyond::Zeros, Beyond::Edge] {
                let haloed = sharded.with_halo(width, beyond);
                let padded = padded(&image, layout.axis(), width, beyond);
                for (k, block) in haloed.blocks().iter().enumerate() {
                    let planes = layout.planes(k);
                    let (first, end) = match beyond {
                        Beyond::Nothing => (
                            planes.start.max(width),
                            (planes.end + 2 * width).min(layout.extent() + width),
                        ),
                        _ => (planes.start, planes.end + 2 * width),
                    };
                    let expected = padded.clone().narrow(dim, first, end - first);
                    assert_eq!(
                        bits(block.clone()),
                        bits(expected),
                        "{layout:?} {width} {beyond:?}"
                    );
                }
                assert_eq!(bits(whole(&haloed.crop())), bits(image.clone()), "{layout:?} {width}");
            }
        }
    }
}

#[test]
fn gradients_of_halos_come_home_with_and_without_a_tape() {
    for layout in layouts(3) {
        let image = random(1, layout.size(), [-1.0, 1.0], DType::F64, 5);
        for (width, beyond) in
            [(2, Beyond::Nothing), (4, Beyond::Zeros), (25, Beyond::Edge), (3, Beyond::Edge)]
        {
            let leaf = tracked(&image);
            let sharded = Sharded::from_tensor(leaf.clone(), &layout, &mesh(&layout));
            let haloed = sharded.with_halo(width, beyond);
            let weights: Vec<Tensor<5>> = (haloed.blocks().iter().zip(7..))
                .map(|(block, seed)| {
                    let values = uniform(block.shape().num_elements(), -1.0, 1.0, seed);
                    tensor(&values, block.dims(), &Device::flex(), DType::F64)
                })
                .collect();
            let sums = haloed.blocks().iter().zip(&weights);
            let sums = sums.map(|(block, weights)| weighted_sum(block.clone(), weights));
            let gradient = leaf.grad(&reduce(sums, Reduction::Sum).backward()).unwrap();
            let returned = split(&image, &layout).with_halo(width, beyond).sum_back(weights);
            let label = format!("{layout:?} {width} {beyond:?}");
            assert_close(&label, &to_f64(whole(&returned)), &to_f64(gradient), F64_ROUNDING);
        }
    }
}

#[test]
fn values_are_combined_over_all_shards() {
    let values = || {
        [[3.0, -1.0], [2.0, 5.0], [-4.0, 0.5]]
            .map(|values| tensor::<1>(&values, [2], &Device::flex(), DType::F64))
    };
    for (reduction, expected) in
        [(Reduction::Sum, [1.0, 4.5]), (Reduction::Max, [3.0, 5.0]), (Reduction::Min, [-4.0, -1.0])]
    {
        let everywhere = all_reduce(values().to_vec(), reduction);
        assert_eq!(everywhere.len(), 3);
        everywhere.into_iter().for_each(|value| assert_eq!(to_f64(value), expected));
    }
}

#[test]
fn extremes_are_those_of_the_whole() {
    for layout in layouts(4) {
        let field = random(3, layout.size(), [-2.0, 3.0], DType::F64, 5);
        let sharded = split(&field, &layout);
        let values = to_f64(field.clone());
        let fold = |f: fn(f64, f64) -> f64| values.iter().copied().reduce(f).unwrap();
        let [low, high] = min_max(&sharded);
        assert_eq!([to_f64(low)[0], to_f64(high)[0]], [fold(f64::min), fold(f64::max)]);
        let longest = to_f64((field.clone() * field).sum_dim(1)).into_iter().fold(0.0, f64::max);
        assert_eq!(to_f64(max_norm(&sharded)), [longest.sqrt()]);
    }
}
