//! The ring sampler against the serial sampler on the whole.

use super::*;
use crate::ring::thickest_parcel_of_block;
use ffdp_burn::ops::{
    self, GaussianOptions, GridSampleOptions, Interpolation, Padding, grid_sample,
};

const SCALE: [[f64; 3]; 3] = [[1.1, 0.0, 0.05], [0.0, 0.9, 0.1], [-0.05, 0.0, 1.0]];
/// Off the lattice; turns, shears and shifts.
const MAP: [f64; 12] =
    [0.9, 0.21, -0.07, 0.613, -0.13, 1.07, 0.11, -0.377, 0.09, -0.17, 1.03, 0.241];
const IDENTITY: [f64; 12] = [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0];

/// A fixed and a moving grid, cut in another way.
fn pairs(seed: u64) -> Vec<(Layout, Layout)> {
    let mut moving = layouts(seed + 500);
    // Another axis and another number of shards.
    moving.rotate_left(11);
    layouts(seed).into_iter().zip(moving).collect()
}

/// A problem on whole grids.
struct Problem {
    image: Tensor<5>,
    affine: Tensor<3>,
    field: Tensor<5>,
    weights: Tensor<5>,
}

impl Problem {
    fn new((fixed, moving): (&Layout, &Layout), map: [f64; 12], reach: f64, dtype: DType) -> Self {
        let field = random(3, fixed.size(), [-1.0, 1.0], dtype, 6).mul_scalar(reach);
        let noise = random(2, moving.size(), [-1.0, 1.0], dtype, 5);
        let image = match dtype {
            // Smooth, as images are: the slope of noise changes by several times its size from voxel
            // to voxel, and positions are rounded to 1e-6 voxel.
            DType::F32 => ops::gaussian(noise, &GaussianOptions::isotropic(1.0)),
            _ => noise,
        };
        Self {
            image,
            affine: tensor(&map, [1, 3, 4], &Device::flex(), dtype),
            field,
            weights: random(2, fixed.size(), [-1.0, 1.0], dtype, 7),
        }
    }

    fn tracked(&self) -> (Tensor<5>, Tensor<3>, Tensor<5>) {
        (tracked(&self.image), tracked(&self.affine), tracked(&self.field))
    }
}

/// Value, gradients on the tape and gradients without one, all against the serial operation.
fn agree(
    label: &str,
    (fixed, moving): (&Layout, &Layout),
    problem: &Problem,
    options: &GridSampleOptions,
    tolerance: f64,
) {
    let (image, affine, field) = problem.tracked();
    let all = grid_sample(image.clone(), Some(affine.clone()), Some(field.clone()), options);
    let expected = to_f64(all.clone().inner());
    let gradients = weighted_sum(all, &problem.weights).backward();
    let serial = [
        to_f64(image.grad(&gradients).unwrap()),
        to_f64(affine.grad(&gradients).unwrap()),
        to_f64(field.grad(&gradients).unwrap()),
    ];

    let (image, affine, field) = problem.tracked();
    let parts = Sharded::from_tensor(image.clone(), moving, &mesh(moving));
    let fields = Sharded::from_tensor(field.clone(), fixed, &mesh(fixed));
    let inputs = RingInputs { moving: &parts, affine: Some(&affine), displacement: Some(&fields) };
    let sampled = whole(
        &ring_sample(&inputs, ShardPlaces { layout: fixed, mesh: &mesh(fixed) }, options).unwrap(),
    );
    assert_close(label, &to_f64(sampled.clone().inner()), &expected, tolerance);
    let gradients = weighted_sum(sampled, &problem.weights).backward();
    let taped = [
        to_f64(image.grad(&gradients).unwrap()),
        to_f64(affine.grad(&gradients).unwrap()),
        to_f64(field.grad(&gradients).unwrap()),
    ];

    let [parts, fields] = [(&problem.image, moving), (&problem.field, fixed)]
        .map(|(tensor, layout)| split(tensor, layout));
    let affine = &problem.affine;
    let map = IndexMap::read(Some(affine), options.displacement_scale).unwrap();
    let bounds = DisplacementBounds::read(&fields).unwrap();
    let ring = RingSampler::new(
        ShardPlaces { layout: fixed, mesh: &mesh(fixed) },
        moving,
        &map,
        &bounds,
        options,
    );
    let inputs = RingInputs { moving: &parts, affine: Some(affine), displacement: Some(&fields) };
    let wanted = Wanted { image: true, affine: true, displacement: true };
    let found = ring.gradients(&inputs, &split(&problem.weights, fixed), wanted);
    let apart = [
        to_f64(whole(&found.image.unwrap())),
        to_f64(found.affine.unwrap()),
        to_f64(whole(&found.displacement.unwrap())),
    ];
    for (i, name) in ["image", "affine", "displacement"].into_iter().enumerate() {
        // Zero gradients of nearest voxels included.
        let close = |way: &str, found: &[f64]| {
            assert_close(&format!("{label}: {name}, {way}"), found, &serial[i], tolerance)
        };
        close("on the tape", &taped[i]);
        close("without a tape", &apart[i]);
    }
}

#[test]
fn sampling_is_that_of_the_whole() {
    for (i, (fixed, moving)) in pairs(11).iter().enumerate() {
        for (j, (dtype, tolerance)) in PRECISIONS.into_iter().enumerate() {
            // Within the neighbours; and through the whole ring, far beyond the image.
            for (k, reach) in [1.5, 40.0].into_iter().enumerate() {
                // In turn of pairs of layouts, of which one is cut evenly.
                let padding = [Padding::Zeros, Padding::Border][(i / 8 + i / 2 + j + k) % 2];
                let problem = Problem::new((fixed, moving), MAP, reach, dtype);
                let options = GridSampleOptions {
                    padding,
                    displacement_scale: SCALE,
                    ..GridSampleOptions::default()
                };
                let label = format!("{fixed:?} {moving:?} {dtype:?} {reach} {padding:?}");
                agree(&label, (fixed, moving), &problem, &options, tolerance);
            }
        }
    }
}

#[test]
fn coordinates_on_the_lattice_have_the_slopes_of_the_whole() {
    // Whole voxels, as of a displacement that is still zero: on seams, on borders and beyond.
    for (fixed, moving) in &pairs(12) {
        for reach in [0.0, 2.9, 30.0] {
            for padding in [Padding::Zeros, Padding::Border] {
                let mut problem = Problem::new((fixed, moving), IDENTITY, reach, DType::F64);
                problem.field = problem.field.round();
                let options = GridSampleOptions { padding, ..GridSampleOptions::default() };
                let label = format!("{fixed:?} {moving:?} {reach} {padding:?}");
                agree(&label, (fixed, moving), &problem, &options, F64_ROUNDING);
            }
        }
    }
}

#[test]
fn nearest_voxels_and_labels_are_those_of_the_whole() {
    for (fixed, moving) in &pairs(13) {
        for (interpolation, padding) in [
            (Interpolation::Nearest, Padding::Zeros),
            (Interpolation::Nearest, Padding::Border),
            (Interpolation::Label, Padding::Zeros),
            (Interpolation::Label, Padding::Border),
        ] {
            for (map, reach) in [(MAP, 1.5), (MAP, 25.0), (IDENTITY, 12.0)] {
                let mut problem = Problem::new((fixed, moving), map, reach, DType::F32);
                problem.image = (problem.image * 40.0).floor() + 7.0;
                if map == IDENTITY {
                    // On the lattice and in the middle between two voxels.
                    problem.field = (problem.field * 2.0).round() * 0.5;
                }
                let options =
                    GridSampleOptions { interpolation, padding, ..GridSampleOptions::default() };
                let Problem { image, affine, field, .. } = problem;
                let (parts, fields) = (split(&image, moving), split(&field, fixed));
                let serial = grid_sample(image, Some(affine.clone()), Some(field), &options);
                let inputs = RingInputs {
                    moving: &parts,
                    affine: Some(&affine),
                    displacement: Some(&fields),
                };
                let sampled = ring_sample(
                    &inputs,
                    ShardPlaces { layout: fixed, mesh: &mesh(fixed) },
                    &options,
                )
                .unwrap();
                let label = format!("{fixed:?} {moving:?} {interpolation:?} {padding:?} {reach}");
                assert_eq!(to_f64(whole(&sampled)), to_f64(serial), "{label}");
            }
        }
    }
}

#[test]
fn every_entry_of_a_batch_has_its_own_map() {
    for (fixed, moving) in &pairs(14) {
        let mut problem = Problem::new((fixed, moving), MAP, 2.0, DType::F64);
        let far = [-1.0, 0.0, 0.2, 11.3, 0.0, 1.0, 0.0, 6.1, 0.1, 0.0, -1.0, 7.7];
        let other = tensor(&far, [1, 3, 4], &Device::flex(), DType::F64);
        problem.affine = Tensor::cat(vec![problem.affine, other], 0);
        let options = GridSampleOptions::default();
        agree(&format!("{fixed:?} {moving:?}"), (fixed, moving), &problem, &options, F64_ROUNDING);
    }
}

#[test]
fn without_a_map_or_a_displacement_voxels_stay() {
    let (fixed, moving) = &pairs(15)[12];
    let image = random(2, moving.size(), [-1.0, 1.0], DType::F32, 5);
    let options = GridSampleOptions { size: Some(fixed.size()), ..GridSampleOptions::default() };
    let parts = split(&image, moving);
    let inputs = RingInputs { moving: &parts, affine: None, displacement: None };
    let sampled =
        ring_sample(&inputs, ShardPlaces { layout: fixed, mesh: &mesh(fixed) }, &options).unwrap();
    assert_eq!(bits(whole(&sampled)), bits(grid_sample(image, None, None, &options)));
}

#[test]
fn only_planes_that_can_be_reached_travel() {
    let layout = Layout::balanced([80, 5, 6], Axis::Z, 8).unwrap();
    let mesh = mesh(&layout);
    let plan = |bounds, map: &IndexMap| {
        let options = GridSampleOptions::default();
        RingSampler::new(
            ShardPlaces { layout: &layout, mesh: &mesh },
            &layout,
            map,
            &[bounds],
            &options,
        )
    };
    // Shard 3 has planes 30 to 39. They move by -2.5..3.5: corners 27 to 43, and one for rounding.
    let bounds = DisplacementBounds([[-9.0, 9.0], [0.0, 0.0], [-2.5, 3.5]]);
    let near = plan(bounds, &IndexMap::identity());
    assert_eq!(near.planes(3), vec![26..45]);
    assert_eq!(near.planes(0), vec![0..15]);
    // Without bounds, everything, in parcels of at most two shards, its own part first.
    for (unbounded, reason) in [(f64::INFINITY, "infinite"), (1e30, "far")] {
        let all = plan(DisplacementBounds::within([unbounded; 3]), &IndexMap::identity()).planes(4);
        assert_eq!(all, vec![40..60, 60..80, 0..20, 20..40], "{reason}");
    }
    // Upside down.
    let mut flip = IndexMap::identity();
    flip.affine[0][2] = [0.0, 0.0, -1.0, 79.0];
    assert_eq!(plan(DisplacementBounds::NONE, &flip).planes(0), vec![69..80]);
    // Beyond the image there is nothing to fetch; one plane keeps the tape in one piece.
    flip.affine[0][2] = [0.0, 0.0, 1.0, 500.0];
    assert_eq!(plan(DisplacementBounds::NONE, &flip).planes(0), vec![79..80]);
}

#[test]
fn what_a_thin_shard_samples_is_fetched_at_once() {
    // Shards of 21 planes, 9 more on either side of which are compared: displacements of 15 voxels, bounds that
    // are 10 iterations old, and rounding.
    assert!(thickest_parcel_of_block(21, 39) > 39 + 2 * (15 + 3 + 3));
    // Around thick ones nothing more than before: memory stays a part of the image.
    assert_eq!(thickest_parcel_of_block(700, 718), 1400);
    assert_eq!(thickest_parcel_of_block(4, 4), 12);
}

/// Turned planes reach many of the image, and the next ones nearly the same: each is read once.
#[test]
fn planes_of_a_file_are_read_once_for_all_that_reach_them() {
    let (fixed, moving) = ([24, 11, 9], [30, 10, 13]);
    let layouts = [fixed, moving].map(|size| Layout::balanced(size, Axis::Z, 1).expect("planes"));
    let problem = Problem::new((&layouts[0], &layouts[1]), MAP, 1.5, DType::F64);
    let rows = [0, 4, 8].map(|i| [MAP[i], MAP[i + 1], MAP[i + 2], MAP[i + 3]]);
    let map = ffdp_image::image::Affine::from_rows(rows);
    let [image, field] =
        [&problem.image, &problem.field].map(|values| values.clone().narrow(0, 0, 1));
    let bounds = DisplacementBounds::within([1.5; 3]);
    for (planes_held, interpolation) in [
        (30, Interpolation::Linear),
        (30, Interpolation::Nearest),
        // No window fits: parts of it are read again and added up.
        (2, Interpolation::Linear),
    ] {
        let scale = map.linear();
        let options =
            GridSampleOptions { interpolation, displacement_scale: scale, ..Default::default() };
        let options = GridSampleOptions { size: Some(fixed), ..options };
        let whole =
            grid_sample(image.clone(), Some(problem.affine.clone()), Some(field.clone()), &options);
        let most = planes_held * moving[1] * moving[2];
        let mut sampler =
            ReadSampler::new([fixed, moving], map, most, interpolation).expect("planes");
        let mut reads = vec![0; moving[0]];
        let parts = (0..fixed[0]).step_by(3).map(|first| {
            let own = field.clone().narrow(2, first, 3);
            let read = |z: std::ops::Range<usize>| {
                reads[z.clone()].iter_mut().for_each(|count| *count += 1);
                Ok(image.clone().narrow(2, z.start, z.len()))
            };
            let displaced = BoundedField { field: Some(&own), bounds: &bounds };
            sampler.sample(&(first..first + 3), displaced, &Device::flex(), read).expect("read")
        });
        let parts = Tensor::cat(parts.collect(), 2);
        assert_close("planes", &to_f64(parts), &to_f64(whole), 1e-12);
        let most_read = reads.iter().max();
        match planes_held {
            30 => assert_eq!(most_read, Some(&1), "{reads:?}"),
            _ => assert!(most_read > Some(&1), "{reads:?}"),
        }
    }
}

/// Four planes of the image to one of the grid: the planes that one looks at end where those of the next begin.
#[test]
fn planes_of_a_file_that_only_touch_are_read_once() {
    let (fixed, moving) = ([5, 4, 4], [20, 4, 4]);
    let mut rows = [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 4.0, 0.0]];
    let image = random(1, moving, [-1.0, 1.0], DType::F64, 3).narrow(1, 0, 1);
    // Next to each other, and with planes between them that nobody looks at.
    for shift in [0.0, 0.5] {
        rows[2][3] = shift;
        let map = ffdp_image::image::Affine::from_rows(rows);
        let affine = tensor(&rows.concat(), [1, 3, 4], &Device::flex(), DType::F64);
        let options = GridSampleOptions { size: Some(fixed), ..Default::default() };
        let whole = grid_sample(image.clone(), Some(affine), None, &options);
        let linear = Interpolation::Linear;
        let mut sampler = ReadSampler::new([fixed, moving], map, 1 << 10, linear).expect("planes");
        let mut reads = vec![0; moving[0]];
        let parts = (0..fixed[0]).map(|first| {
            let read = |z: std::ops::Range<usize>| {
                reads[z.clone()].iter_mut().for_each(|count| *count += 1);
                Ok(image.clone().narrow(2, z.start, z.len()))
            };
            let none = BoundedField::NONE;
            sampler.sample(&(first..first + 1), none, &Device::flex(), read).expect("read")
        });
        let parts = Tensor::cat(parts.collect(), 2);
        assert_close("planes", &to_f64(parts), &to_f64(whole), 1e-12);
        assert_eq!(reads.iter().max(), Some(&1), "{reads:?}");
    }
}

#[test]
fn a_mesh_of_one_samples_serially() {
    let layout = Layout::balanced([9, 8, 7], Axis::Z, 1).unwrap();
    for padding in [Padding::Zeros, Padding::Border] {
        let problem = Problem::new((&layout, &layout), MAP, 3.0, DType::F32);
        let options = GridSampleOptions {
            padding,
            displacement_scale: SCALE,
            ..GridSampleOptions::default()
        };
        let (parts, fields) = (split(&problem.image, &layout), split(&problem.field, &layout));
        let affine = Some(&problem.affine);
        let inputs = RingInputs { moving: &parts, affine, displacement: Some(&fields) };
        let sampled =
            ring_sample(&inputs, ShardPlaces { layout: &layout, mesh: &mesh(&layout) }, &options)
                .unwrap();
        let serial = grid_sample(
            problem.image.clone(),
            Some(problem.affine.clone()),
            Some(problem.field.clone()),
            &options,
        );
        assert_eq!(bits(whole(&sampled)), bits(serial));
    }
}

#[test]
fn fields_compose_across_seams() {
    for layout in layouts(16) {
        for (dtype, tolerance) in PRECISIONS {
            for reach in [0.7, 30.0] {
                let [outer, inner, weights] = [5, 6, 7].map(|seed| {
                    let reach = if seed == 6 { reach } else { 2.0 };
                    random(3, layout.size(), [-reach, reach], dtype, seed)
                });
                let (u, v) = (tracked(&outer), tracked(&inner));
                let all = ops::compose(u.clone(), v.clone());
                let expected = to_f64(all.clone().inner());
                let gradients = weighted_sum(all, &weights).backward();
                let serial = [u, v].map(|x| to_f64(x.grad(&gradients).unwrap()));

                let (u, v) = (tracked(&outer), tracked(&inner));
                let parts =
                    |x: &Tensor<5>| Sharded::from_tensor(x.clone(), &layout, &mesh(&layout));
                let bounds = [DisplacementBounds::within([reach; 3])];
                let composed = whole(&compose(&parts(&u), &parts(&v), &bounds));
                let label = format!("{layout:?} {dtype:?} {reach}");
                assert_close(&label, &to_f64(composed.clone().inner()), &expected, tolerance);
                let gradients = weighted_sum(composed, &weights).backward();
                let taped = [u, v].map(|x| to_f64(x.grad(&gradients).unwrap()));
                assert_close(&format!("{label} outer"), &taped[0], &serial[0], tolerance);
                assert_close(&format!("{label} inner"), &taped[1], &serial[1], tolerance);
            }
        }
    }
}

#[test]
fn a_displacement_that_is_no_number_harms_no_other_voxel() {
    for (fixed, moving) in &pairs(20) {
        let mut problem = Problem::new((fixed, moving), MAP, 2.0, DType::F64);
        let nowhere = problem.field.clone().greater_elem(1.9);
        problem.field = problem.field.mask_fill(nowhere, f64::NAN);
        let Problem { image, affine, field, .. } = problem;
        let (parts, fields) = (split(&image, moving), split(&field, fixed));
        let options = GridSampleOptions::default();
        let serial = to_f64(grid_sample(image, Some(affine.clone()), Some(field), &options));
        let inputs =
            RingInputs { moving: &parts, affine: Some(&affine), displacement: Some(&fields) };
        let sampled =
            ring_sample(&inputs, ShardPlaces { layout: fixed, mesh: &mesh(fixed) }, &options)
                .unwrap();
        let sampled = to_f64(whole(&sampled));
        assert!(serial.iter().any(|y| y.is_nan()), "{fixed:?}");
        let same = |(a, b): (&f64, &f64)| a.is_nan() && b.is_nan() || (a - b).abs() < F64_ROUNDING;
        assert!(sampled.iter().zip(&serial).all(same), "{fixed:?} {moving:?}");
    }
}

#[test]
fn velocities_are_integrated_across_seams() {
    for layout in layouts(19) {
        for (dtype, tolerance) in PRECISIONS {
            let noise = random(3, layout.size(), [-9.0, 9.0], dtype, 5);
            let velocity = ops::gaussian(noise, &GaussianOptions::isotropic(1.5));
            let weights = random(3, layout.size(), [-1.0, 1.0], dtype, 6);
            let (a, b) = (tracked(&velocity), tracked(&velocity));
            let parts = Sharded::from_tensor(a.clone(), &layout, &mesh(&layout));
            let parts = whole(&exp(&parts, 5).unwrap());
            let all = ops::exp(b.clone(), 5);
            let label = format!("{layout:?} {dtype:?}");
            let [found, expected] = [&parts, &all].map(|y| to_f64(y.clone().inner()));
            assert_close(&label, &found, &expected, tolerance);
            let gradient =
                |y, x: &Tensor<5>| to_f64(x.grad(&weighted_sum(y, &weights).backward()).unwrap());
            assert_close(&label, &gradient(parts, &a), &gradient(all, &b), tolerance);
        }
    }
}

#[test]
#[should_panic(expected = "planned for a field cut as")]
fn a_field_cut_in_another_way_is_refused() {
    let [a, b] = [[4, 5], [5, 4]].map(|cuts| Layout::uneven([9, 8, 7], Axis::Z, &cuts).unwrap());
    let problem = Problem::new((&a, &b), MAP, 1.0, DType::F32);
    let (parts, fields) = (split(&problem.image, &b), split(&problem.field, &b));
    let inputs = RingInputs { moving: &parts, affine: None, displacement: Some(&fields) };
    let _ = ring_sample(
        &inputs,
        ShardPlaces { layout: &a, mesh: &mesh(&a) },
        &GridSampleOptions::default(),
    );
}
