//! A deformable level on a mesh ends where the serial one ends, whatever its method, similarity and optimiser.

use super::*;
use ffdp_burn::losses;
use ffdp_burn::ops::{
    self, Accumulation, AdamOptions, DeformImages, DeformMethod, DeformOptions, DeformState,
    HistogramOptions, LnccOptions, Measure, Moments, Optimizer, Penalties, Update,
};
use ffdp_image::image::Volume;
use ffdp_image::synth::{PhantomSettings, pair};
use ffdp_kit::testing::{gpu_devices, several_gpus};

/// The bound on a registration's field, in voxels.
pub(super) const FIELD_VOXELS: f64 = 1e-3;
/// The same f64 operations in another order, over ten iterations of Adam.
pub(super) const F64_ITERATIONS: f64 = 1e-9;
/// Sums of some ten thousand terms in f32.
pub(super) const MEASURE: f64 = 1e-4;

pub(super) fn options(measure: Measure) -> DeformOptions {
    DeformOptions::greedy(measure)
}

pub(super) fn measures() -> [Measure; 4] {
    [
        Measure::Lncc(LnccOptions::default()),
        Measure::SquaredDifference,
        Measure::MutualInformation(HistogramOptions::default()),
        Measure::NormalizedMutualInformation(HistogramOptions::default()),
    ]
}

/// One way to iterate for each measure, and others that exchange something else across a seam: what squarings look at and
/// give back, planes of penalties, and those of an added step.
fn across_seams() -> Vec<(String, DeformOptions)> {
    let by_measure = measures().map(|measure| (format!("{measure:?}"), options(measure)));
    let others = ["greedy, additive", "greedy, penalties", "svf", "svf, penalties"];
    let others = variants().into_iter().filter(|(what, _)| others.contains(what));
    by_measure.into_iter().chain(others.map(|(what, options)| (what.into(), options))).collect()
}

/// A pair of phantoms with the identity between them.
pub(super) fn phantoms(size: [usize; 3], dtype: DType) -> DeformImages {
    let settings = PhantomSettings::with_size(size);
    let pair = pair(&settings, 3).unwrap();
    let device = Device::flex();
    let image = |volume: &Volume| volume.to_tensor(&device).cast(dtype);
    let identity = [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0];
    DeformImages {
        fixed: image(&pair.fixed.image),
        moving: image(&pair.moving.image),
        affine: tensor(&identity, [1, 3, 4], &device, dtype),
        masks: [None, None],
    }
}

pub(super) fn start(fixed: &Tensor<5>) -> Tensor<5> {
    let [batch, _, d, h, w] = fixed.dims();
    Tensor::zeros([batch, 3, d, h, w], (&fixed.device(), fixed.dtype()))
}

/// Fields of a method: a displacement, a velocity, or two halves.
pub(super) fn starts(images: &DeformImages, options: &DeformOptions) -> Vec<Tensor<5>> {
    let count = options.method.fields();
    vec![start(&images.fixed); count]
}

/// Losses and fields of the serial method.
pub(super) fn serial(
    images: &DeformImages,
    options: &DeformOptions,
    iterations: usize,
) -> [Vec<f64>; 2] {
    let state = |field| DeformState { field, moments: Moments::default() };
    let states = starts(images, options).into_iter().map(state).collect();
    let (measures, states) = ops::deform(images, states, options, iterations);
    let values = images.fixed.shape().num_elements();
    [
        to_f64(options.measure.loss(measures, values)),
        states.into_iter().flat_map(|state| to_f64(state.field)).collect(),
    ]
}

/// Both images with their masks as another channel, and which has one.
pub(super) fn with_masks(images: &DeformImages) -> ([Tensor<5>; 2], [bool; 2]) {
    let DeformImages { fixed, moving, masks, .. } = images;
    let with = |image: &Tensor<5>, mask: &Option<Tensor<5>>| match mask {
        None => image.clone(),
        Some(mask) => Tensor::cat(vec![image.clone(), mask.clone()], 1),
    };
    ([with(fixed, &masks[0]), with(moving, &masks[1])], masks.each_ref().map(Option::is_some))
}

/// The same on virtual shards.
fn on_shards(
    images: &DeformImages,
    (fixed, moving): (&Layout, &Layout),
    options: &DeformOptions,
    iterations: usize,
) -> [Vec<f64>; 2] {
    on_meshes(images, [(fixed, &mesh(fixed)), (moving, &mesh(moving))], options, iterations)
}

/// The same on any devices, in two calls.
fn on_meshes(
    images: &DeformImages,
    [fixed, moving]: [(&Layout, &DeviceMesh); 2],
    options: &DeformOptions,
    iterations: usize,
) -> [Vec<f64>; 2] {
    let part = |image: Tensor<5>, (layout, mesh): (&Layout, &DeviceMesh)| {
        Sharded::from_tensor(image, layout, mesh)
    };
    let fields = starts(images, options).into_iter().map(|field| part(field, fixed)).collect();
    let (both, masked) = with_masks(images);
    let images = ShardedImages {
        fixed: part(both[0].clone(), fixed),
        moving: part(both[1].clone(), moving),
        affine: images.affine.clone(),
        masked,
        landmarks: None,
    };
    let state = ShardedState::new(fields);
    let first = iterations / 3;
    let (before, state) = deform(&images, state, options, first).unwrap();
    let (after, state) = deform(&images, state, options, iterations - first).unwrap();
    let fields = state.fields.iter().map(whole).collect();
    [to_f64(Tensor::cat(vec![before, after], 0)), to_f64(Tensor::cat(fields, 0))]
}

pub(super) fn largest_difference(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).fold(0.0, |most, (a, b)| most.max((a - b).abs()))
}

#[test]
fn thirty_iterations_end_where_the_serial_ones_do() {
    let images = phantoms([18, 20, 28], DType::F32);
    let size = [28, 20, 18];
    // Every measure along one axis: shorter runs have all of them along each.
    let cuts = [(Axis::Z, 2), (Axis::Y, 5), (Axis::X, 8), (Axis::Y, 3)];
    for (measure, (axis, shards)) in measures().into_iter().zip(cuts) {
        let options = options(measure);
        let [measures, field] = serial(&images, &options, 30);
        // It did move, and seams were crossed.
        assert!(field.iter().fold(0.0f64, |most, u| most.max(u.abs())) > 1.5, "{measure:?}");
        let fixed = Layout::balanced(size, axis, shards).unwrap();
        let moving = Layout::balanced(size, Axis::Z, shards).unwrap();
        let [got, found] = on_shards(&images, (&fixed, &moving), &options, 30);
        let error = largest_difference(&found, &field);
        println!("deform {measure:?} {axis:?} x {shards}: {error:.1e} voxel");
        assert!(error <= FIELD_VOXELS, "{measure:?} {axis:?} x {shards}: {error:.1e} voxel");
        assert_close(&format!("{measure:?}"), &got, &measures, MEASURE);
    }
}

#[test]
fn iterations_are_the_serial_ones_but_for_rounding() {
    let images = phantoms([14, 13, 17], DType::F64);
    for measure in measures() {
        let options = options(measure);
        let [measures, field] = serial(&images, &options, 10);
        for cuts in [&[9, 8][..], &[1, 5, 1, 2, 8], &[3, 1, 1, 1, 1, 1, 2, 7]] {
            let layout = Layout::uneven([17, 13, 14], Axis::Z, cuts).unwrap();
            let [got, found] = on_shards(&images, (&layout, &layout), &options, 10);
            let label = format!("{measure:?} {cuts:?}");
            let error = assert_close(&label, &found, &field, F64_ITERATIONS);
            assert_close(&label, &got, &measures, F64_ITERATIONS);
            println!("deform {label}: {error:.1e}");
        }
    }
}

/// Weights that fade from 1 in a ball to 0 outside it, on the grid of an image; centre and radius in voxels.
fn ball(like: &Tensor<5>, centre: [f64; 3], radius: f64) -> Tensor<5> {
    let [_, _, d, h, w] = like.dims();
    let weight = |i: usize| {
        let at = [i % w, i / w % h, i / (w * h)].map(|n| n as f64);
        let squares = (0..3).map(|axis| (at[axis] - centre[axis]).powi(2));
        (radius - squares.sum::<f64>().sqrt()).clamp(0.0, 1.0)
    };
    let weights: Vec<f64> = (0..d * h * w).map(weight).collect();
    tensor(&weights, [1, 1, d, h, w], &like.device(), like.dtype())
}

/// The images with masks.
pub(super) fn masked_balls(plain: &DeformImages, masked: [bool; 2]) -> DeformImages {
    let mut images = plain.clone();
    // Where there is something to see, whatever the number of planes.
    let along = |part: f64| part * plain.fixed.dims()[2] as f64;
    images.masks[0] = masked[0].then(|| ball(&plain.fixed, [6.0, 6.0, along(0.41)], 6.0));
    images.masks[1] = masked[1].then(|| ball(&plain.moving, [7.0, 6.0, along(0.53)], 7.0));
    images
}

#[test]
fn masked_iterations_are_the_serial_ones_but_for_rounding() {
    let plain = phantoms([14, 13, 17], DType::F64);
    for masked in [[true, false], [false, true], [true, true]] {
        let images = masked_balls(&plain, masked);
        for measure in measures() {
            let options = options(measure);
            let [measures, field] = serial(&images, &options, 10);
            let unmasked = serial(&plain, &options, 10);
            assert!(largest_difference(&field, &unmasked[1]) > 0.1, "{measure:?}: masks matter");
            for cuts in [&[17][..], &[9, 8], &[1, 5, 1, 2, 8]] {
                let layout = Layout::uneven([17, 13, 14], Axis::Z, cuts).unwrap();
                let [got, found] = on_shards(&images, (&layout, &layout), &options, 10);
                let label = format!("{measure:?} {cuts:?} {masked:?}");
                let error = assert_close(&label, &found, &field, F64_ITERATIONS);
                assert_close(&label, &got, &measures, F64_ITERATIONS);
                println!("deform {label}: {error:.1e}");
            }
        }
    }
}

#[test]
fn a_mesh_of_a_gpu_and_a_cpu_ends_where_the_cpu_does() {
    // What travels between the two is what travels between two GPUs.
    let plain = phantoms([14, 13, 17], DType::F32);
    let images = |masked| masked_balls(&plain, [masked; 2]);
    let all = gpu_devices().into_iter().flat_map(|gpu| [(gpu.clone(), false), (gpu, true)]);
    for ((name, gpu), masked) in all {
        let images = images(masked);
        for cuts in [&[5, 2, 6, 4][..], &[9, 8]] {
            let layout = Layout::uneven([17, 13, 14], Axis::Z, cuts).unwrap();
            let [devices, others] = [[gpu.clone(), Device::flex()], [Device::flex(), gpu.clone()]];
            let mesh = |devices: [Device; 2]| DeviceMesh::new(&devices, cuts.len()).unwrap();
            let meshes = [devices, others].map(mesh);
            for (what, options) in across_seams() {
                let [measures, field] = serial(&images, &options, 10);
                let shards = [(&layout, &meshes[0]), (&layout, &meshes[1])];
                let [got, found] = on_meshes(&images, shards, &options, 10);
                let error = largest_difference(&found, &field);
                let label = format!("{name} {what} {cuts:?}, masks {masked}");
                assert!(error <= FIELD_VOXELS, "{label}: {error:.1e} voxel");
                assert_close(&label, &got, &measures, MEASURE);
            }
        }
    }
}

#[test]
fn several_gpus_end_where_the_cpu_does() {
    let gpus = several_gpus();
    if gpus.is_empty() {
        return;
    }
    let plain = phantoms([14, 13, 37], DType::F32);
    let size = [37, 13, 14];
    let spread = |cuts: &[usize]| {
        let layout = Layout::uneven(size, Axis::Z, cuts).unwrap();
        let mesh = DeviceMesh::new(&gpus, cuts.len()).unwrap();
        (layout, mesh)
    };
    // Shards as wide as what they exchange, and thinner ones.
    let cuts = [&[20, 17][..], &[10, 9, 12, 6], &[4, 12, 1, 2, 18]];
    for cuts in cuts.into_iter().filter(|cuts| cuts.len() >= gpus.len()) {
        let (layout, mesh) = spread(cuts);
        let all = across_seams().into_iter().flat_map(|way| [(way.clone(), false), (way, true)]);
        for ((what, options), masked) in all {
            let images = masked_balls(&plain, [masked; 2]);
            let [measures, field] = serial(&images, &options, 10);
            let shards = [(&layout, &mesh); 2];
            let [got, found] = on_meshes(&images, shards, &options, 10);
            let error = largest_difference(&found, &field);
            let label = format!("{what} {cuts:?}, masks {masked}");
            println!("deform {label} on {} GPUs: {error:.1e} voxel", gpus.len());
            assert!(error <= FIELD_VOXELS, "{label}: {error:.1e} voxel");
            assert_close(&label, &got, &measures, MEASURE);
        }
    }
}

#[test]
fn several_gpus_give_the_same_bits_again() {
    let gpus = several_gpus();
    if gpus.is_empty() {
        return;
    }
    // Large enough for a device to be busy while the other's planes arrive.
    let size = [128, 160, 192];
    let images = phantoms([192, 160, 128], DType::F32);
    let options = options(Measure::Lncc(LnccOptions::default()));
    for shards in [gpus.len(), 2 * gpus.len()] {
        let layout = Layout::balanced(size, Axis::Z, shards).unwrap();
        let mesh = DeviceMesh::new(&gpus, shards).unwrap();
        let run = || on_meshes(&images, [(&layout, &mesh); 2], &options, 30);
        let [measures, field] = run();
        for again in 1..4 {
            let [got, found] = run();
            let apart =
                found.iter().zip(&field).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
            let most = largest_difference(&found, &field);
            assert_eq!(apart, 0, "{shards} shards, run {again}: {most:.1e} voxel at most");
            assert_eq!(got, measures, "{shards} shards, run {again}");
        }
    }
}

#[test]
fn a_mesh_of_one_is_the_serial_program() {
    let images = phantoms([14, 13, 17], DType::F32);
    let layout = Layout::balanced([17, 13, 14], Axis::Z, 1).unwrap();
    for measure in measures() {
        let options = options(measure);
        let found = on_shards(&images, (&layout, &layout), &options, 6);
        let expected = serial(&images, &options, 6);
        for (found, expected) in found.iter().zip(&expected) {
            assert!(found.iter().zip(expected).all(|(a, b)| a.to_bits() == b.to_bits()));
        }
    }
}

/// Methods, optimisers, ways to step and penalties, of which the serial operation knows all combinations.
pub(super) fn variants() -> Vec<(&'static str, DeformOptions)> {
    let greedy = options(Measure::SquaredDifference);
    let floor = Optimizer::Adam(AdamOptions { gradient_floor: 0.1, ..AdamOptions::default() });
    let newton = Optimizer::GaussNewton { damping: 1.0 };
    let rough = Penalties { diffusion: 0.3, bending: 0.2, total_variation: 0.05 };
    let svf = DeformOptions {
        method: DeformMethod::Svf { squarings: 4, accumulation: Accumulation::Reproducible },
        update: Update::Additive,
        ..greedy
    };
    let syn = DeformOptions { method: DeformMethod::Syn, ..greedy };
    vec![
        ("greedy, sgd", DeformOptions { optimizer: Optimizer::Sgd, ..greedy }),
        ("greedy, gauss newton", DeformOptions { optimizer: newton, ..greedy }),
        ("greedy, additive", DeformOptions { update: Update::Additive, ..greedy }),
        (
            "greedy, additive, sgd",
            DeformOptions { update: Update::Additive, optimizer: Optimizer::Sgd, ..greedy },
        ),
        ("greedy, penalties", DeformOptions { penalties: rough, ..greedy }),
        (
            "greedy, penalties, gauss newton",
            DeformOptions { penalties: rough, optimizer: newton, ..greedy },
        ),
        ("syn", DeformOptions { optimizer: floor, ..syn }),
        ("syn, sgd", DeformOptions { optimizer: Optimizer::Sgd, ..syn }),
        ("syn, gauss newton", DeformOptions { optimizer: newton, ..syn }),
        ("syn, penalties", DeformOptions { penalties: rough, ..syn }),
        ("svf", svf),
        ("svf, sgd", DeformOptions { optimizer: Optimizer::Sgd, ..svf }),
        ("svf, penalties", DeformOptions { penalties: rough, ..svf }),
    ]
}

/// What the images hold: one or two channels, masks or none.
pub(super) fn contents(plain: &DeformImages) -> [(&'static str, DeformImages); 3] {
    let second =
        |image: &Tensor<5>| Tensor::cat(vec![image.clone(), image.clone().powf_scalar(0.5)], 1);
    let mut channels = plain.clone();
    (channels.fixed, channels.moving) = (second(&plain.fixed), second(&plain.moving));
    let masked = masked_balls(plain, [true; 2]);
    [("plain", plain.clone()), ("channels", channels), ("masks", masked)]
}

/// Every cell of methods, optimisers and penalties times similarities, half of them with two channels and the other half
/// with masks too; in two or in many thin shards in turn: how many there are is one code for all cells.
#[test]
fn all_combinations_are_the_serial_ones_but_for_rounding() {
    let plain = phantoms([14, 13, 17], DType::F64);
    for (i, (content, images)) in contents(&plain).into_iter().enumerate() {
        for (j, (name, variant)) in variants().into_iter().enumerate() {
            for (k, measure) in measures().into_iter().enumerate() {
                if i > 0 && (i + j + k) % 2 == 1 {
                    continue;
                }
                let options = DeformOptions { measure, ..variant };
                let [losses, field] = serial(&images, &options, 3);
                let cuts = [&[9, 8][..], &[1, 5, 1, 2, 8]][(i + j + k / 2) % 2];
                let layout = Layout::uneven([17, 13, 14], Axis::Z, cuts).unwrap();
                let [got, found] = on_shards(&images, (&layout, &layout), &options, 3);
                let label = format!("{name}, {measure:?}, {content}, {cuts:?}");
                assert_close(&label, &got, &losses, F64_ITERATIONS);
                let error = assert_close(&label, &found, &field, F64_ITERATIONS);
                println!("deform {label}: {error:.1e}");
            }
        }
    }
}

/// Every method, optimiser and penalty in shards of a GPU that stay there, and in shards that rest in host memory.
#[test]
fn all_methods_in_shards_of_a_gpu_end_where_the_cpu_does() {
    for (name, gpu) in gpu_devices() {
        let plain = phantoms([14, 13, 37], DType::F32);
        let layout = Layout::uneven([37, 13, 14], Axis::Z, &[20, 17]).unwrap();
        let mesh = DeviceMesh::new(std::slice::from_ref(&gpu), 2).unwrap();
        for (i, (content, images)) in contents(&plain).into_iter().enumerate() {
            for (j, (variant, options)) in variants().into_iter().enumerate() {
                // All measures in turn: which one it is, is another kernel and nothing else.
                let options = DeformOptions { measure: measures()[(i + j) % 4], ..options };
                let [losses, field] = serial(&images, &options, 3);
                for rest in [&gpu, &Device::flex()] {
                    let at_rest = |volume: &Tensor<5>| {
                        let cut = Sharded::from_tensor(volume.clone(), &layout, &mesh);
                        cut.moved_to(&DeviceMesh::of(vec![rest.clone(); 2]))
                    };
                    let (both, masked) = with_masks(&images);
                    let sharded = ShardedImages {
                        fixed: at_rest(&both[0]),
                        moving: at_rest(&both[1]),
                        affine: images.affine.clone().to_device(&gpu),
                        masked,
                        landmarks: None,
                    };
                    let fields = starts(&images, &options);
                    let state = ShardedState::new(fields.iter().map(at_rest).collect());
                    let mut run = ShardedDeform::new(sharded, state, &options, &mesh).unwrap();
                    let measure = options.measure;
                    let label = format!("{name}, {variant}, {measure:?}, {content}, {rest:?}");
                    assert_close(&label, &to_f64(run.iterate(3).unwrap()), &losses, MEASURE);
                    let found: Vec<f64> =
                        run.fields().iter().flat_map(|field| to_f64(whole(field))).collect();
                    // In f32 the slope of an image jumps where positions round to the other side of a voxel, and Adam makes
                    // steps of one length of faint gradients: single vectors end elsewhere (1.4e-3 seen, 1.0e-5 in the mean;
                    // three times that is allowed).
                    let mean = found.iter().zip(&field).map(|(a, b)| (a - b).abs()).sum::<f64>()
                        / field.len() as f64;
                    let most = largest_difference(&found, &field);
                    println!("deform {label}: {mean:.1e} voxel in the mean, {most:.1e} at most");
                    assert!(mean <= 0.03 * FIELD_VOXELS, "{label}: {mean:.1e} voxel in the mean");
                    assert!(most <= 4.0 * FIELD_VOXELS, "{label}: {most:.1e} voxel");
                }
            }
        }
    }
}

/// A similarity without a fused iteration, here that of LNCC by the tape, is iterated as well.
#[test]
fn a_similarity_of_ones_own_is_iterated_as_the_fused_one() {
    #[derive(Debug)]
    struct Own(losses::Lncc);

    impl losses::SimilarityLoss for Own {
        fn partial(&self, pair: &losses::Pair) -> Tensor<1> {
            self.0.partial(pair)
        }

        fn finish(&self, total: Tensor<1>, count: Tensor<1>) -> Tensor<1> {
            self.0.finish(total, count)
        }

        fn reach_voxels(&self) -> usize {
            self.0.reach_voxels()
        }
    }

    let lncc = LnccOptions { window: 5, ..LnccOptions::default() };
    let plain = phantoms([14, 13, 17], DType::F64);
    let options = options(Measure::Lncc(lncc));
    for images in [plain.clone(), masked_balls(&plain, [true; 2])] {
        let [losses, field] = serial(&images, &options, 6);
        for cuts in [&[17][..], &[9, 8], &[1, 5, 1, 2, 8]] {
            let layout = Layout::uneven([17, 13, 14], Axis::Z, cuts).unwrap();
            let cut = |image: &Tensor<5>| split(image, &layout);
            let (both, masked) = with_masks(&images);
            let sharded = ShardedImages {
                fixed: cut(&both[0]),
                moving: cut(&both[1]),
                affine: images.affine.clone(),
                masked,
                landmarks: None,
            };
            let state = ShardedState::new(vec![cut(&start(&images.fixed))]);
            let own = std::sync::Arc::new(Own(losses::Lncc(lncc)));
            let mesh = mesh(&layout);
            let mut run = ShardedDeform::by(own, sharded, state, &options, &mesh).unwrap();
            let got = to_f64(run.iterate(6).unwrap());
            let found = to_f64(whole(&run.fields()[0]));
            assert_close(&format!("{cuts:?}"), &got, &losses, F64_ITERATIONS);
            assert_close(&format!("{cuts:?}"), &found, &field, F64_ITERATIONS);
        }
    }
}

/// The map that fields mean is that of the whole ones, and the loss without an iteration that of what they show.
#[test]
fn maps_of_parts_are_those_of_the_whole() {
    let images = phantoms([14, 13, 17], DType::F64);
    let layout = Layout::uneven([17, 13, 14], Axis::Z, &[6, 4, 7]).unwrap();
    for (name, options) in variants().into_iter().filter(|(name, _)| !name.contains(',')) {
        let field = serial(&images, &options, 10)[1].clone();
        let count = field.len() / (3 * 17 * 13 * 14);
        let fields = tensor(&field, [count, 3, 17, 13, 14], &Device::flex(), DType::F64);
        let fields: Vec<_> = (0..count).map(|n| fields.clone().narrow(0, n, 1)).collect();
        let of = |layout: &Layout| {
            let cut: Vec<_> = fields.iter().map(|field| split(field, layout)).collect();
            let (mesh, alone) = (mesh(layout), Holders::ALONE);
            let maps = match options.method {
                DeformMethod::Greedy => Ok([cut[0].clone(), cut[0].clone()]),
                DeformMethod::Syn => map_of_halves([&cut[0], &cut[1]], &mesh, &alone),
                DeformMethod::Svf { squarings, accumulation } => {
                    let exp = ExpOptions { squarings, accumulation };
                    flow_of_velocity(&cut[0], exp, &mesh, &alone)
                }
            };
            maps.unwrap().map(|map| to_f64(whole(&map)))
        };
        let one = Layout::balanced([17, 13, 14], Axis::Z, 1).unwrap();
        let ([w, back], [parts, parts_back]) = (of(&one), of(&layout));
        assert!(w.iter().any(|u| u.abs() > 0.5), "{name}: something moved");
        // What the search for an inverse calls solved.
        assert_close(name, &parts, &w, 1e-8);
        assert_close(name, &parts_back, &back, 1e-8);
    }
}
