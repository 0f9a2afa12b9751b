//! The network as a whole: sizes, locality of attention, gradients, records.

use super::plan::StagePlan;
use super::*;
use burn::module::Param;
use burn::tensor::DType;

use crate::ops::Precision;
use ffdp_kit::testing::{normal, tensor, uniform};

fn images(size: [usize; 3], n: usize, device: &Device) -> (Tensor<5>, Tensor<5>) {
    let [d, h, w] = size;
    let image = |seed| {
        let values = uniform(n * d * h * w, 0.0, 1.0, seed);
        tensor(&values, [n, 1, d, h, w], device, DType::F32)
    };
    (image(1), image(2))
}

fn largest(x: Tensor<5>) -> f32 {
    x.abs().max().into_scalar::<f32>()
}

#[test]
fn parameter_counts_are_the_published_ones() {
    let cases = [
        (Variant::Tiny, 244_527, 239_235),
        (Variant::Small, 11_757_195, 11_708_811),
        (Variant::Base, 46_771_251, 46_556_979),
        (Variant::Large, 108_343_907, 107_949_923),
    ];
    for (variant, full, half) in cases {
        for (resolution, expected) in [(Resolution::Full, full), (Resolution::Half, half)] {
            let config = TransMorphConfig::new(variant).with_resolution(resolution);
            let count = config.init(&Device::flex()).num_params();
            assert_eq!(count, expected, "{variant:?}, {resolution:?}");
        }
    }
}

#[test]
fn the_displacement_has_the_size_of_the_images() {
    let device = Device::flex();
    let sizes = [[32, 32, 32], [48, 64, 40], [64, 33, 31], [1, 20, 50], [96, 32, 32]];
    for resolution in [Resolution::Full, Resolution::Half] {
        for (i, size) in sizes.into_iter().enumerate() {
            let config =
                TransMorphConfig::tiny().with_resolution(resolution).for_size(size).with_seed(3);
            let batch = 1 + i % 2;
            let (moving, fixed) = images(size, batch, &device);
            let u = config.init(&device).forward(moving, fixed);
            let [d, h, w] = size;
            assert_eq!(u.dims(), [batch, 3, d, h, w], "{resolution:?}");
        }
    }
    // A window made for another size: everything is padded, nothing fails.
    let (moving, fixed) = images([40, 32, 70], 1, &device);
    let u = TransMorphConfig::tiny().init(&device).forward(moving, fixed);
    assert_eq!(u.dims(), [1, 3, 40, 32, 70]);
}

#[test]
fn untrained_networks_predict_almost_no_motion() {
    let device = Device::flex();
    for resolution in [Resolution::Full, Resolution::Half] {
        let config = TransMorphConfig::tiny()
            .with_resolution(resolution)
            .for_size([32, 32, 32])
            .with_seed(1);
        let (moving, fixed) = images([32, 32, 32], 1, &device);
        let u = largest(config.init(&device).forward(moving, fixed));
        // 16 x 27 normalised features of order 1 times weights of 1e-5: 2e-4 at one deviation.
        assert!(u > 0.0 && u < 2e-3, "{resolution:?}: {u}");
    }
}

#[test]
fn samples_of_a_batch_do_not_mix() {
    let device = Device::flex();
    let net = TransMorphConfig::tiny().for_size([32, 40, 32]).init(&device);
    let (moving, fixed) = images([32, 40, 32], 2, &device);
    let both = net.forward(moving.clone(), fixed.clone());
    for i in 0..2 {
        let one = |x: &Tensor<5>| x.clone().slice_dim(0, i..i + 1);
        let alone = net.forward(one(&moving), one(&fixed));
        let difference = largest(one(&both) - alone.clone());
        // Rounding only: sums in another order.
        assert!(difference < 1e-4 * largest(alone), "sample {i}: {difference}");
    }
}

#[test]
fn the_seed_names_the_network() {
    let device = Device::flex();
    let (moving, fixed) = images([32, 32, 32], 1, &device);
    let run = |seed| {
        let config = TransMorphConfig::tiny().for_size([32, 32, 32]).with_seed(seed);
        config.init(&device).forward(moving.clone(), fixed.clone()).into_data()
    };
    run(5).assert_eq(&run(5), true);
    assert_ne!(run(5), run(6));
}

/// Changes the tokens of one region and reports which tokens of the output change.
fn influence(windows: Windows, changed: impl Fn([usize; 3]) -> bool) -> Vec<([usize; 3], bool)> {
    let device = Device::flex();
    let channels = 8;
    let mut init = WeightInit::new(4, &device);
    let plan = StagePlan {
        channels,
        heads: 2,
        window: windows.window,
        drop_path: &[],
        merges: false,
        precision: Precision::Single,
    };
    let attention = WindowAttention::new(&plan, &mut init);
    let context = WindowContext::new(windows, &device);
    let [d, h, w] = windows.grid;
    let positions: Vec<[usize; 3]> =
        (0..d * h * w).map(|t| [t / (h * w), t / w % h, t % w]).collect();
    let flags: Vec<f32> = positions.iter().map(|&p| changed(p) as u8 as f32).collect();
    let flags = Tensor::<1>::from_floats(flags.as_slice(), &device).reshape([1, d, h, w, 1]);
    let random = |seed| -> Tensor<5> {
        let values = normal(d * h * w * channels, seed);
        tensor(&values, [1, d, h, w, channels], &device, DType::F32)
    };
    let tokens = random(1);
    let noise = random(2) * flags;
    let run = |tokens| windows.reverse(attention.forward(windows.partition(tokens), &context));
    let difference = (run(tokens.clone() + noise) - run(tokens)).abs().sum_dim(4);
    let difference: Vec<f32> = difference.into_data().try_to_vec().unwrap();
    // exp(-100) is zero relative to any other weight in f32, so masked tokens change nothing at all.
    positions.into_iter().zip(difference.into_iter().map(|d| d > 0.0)).collect()
}

#[test]
fn attention_stays_within_windows_and_regions() {
    let (grid, window) = ([4, 8, 8], [2, 4, 4]);
    let aligned = Windows::aligned(grid, window);
    for (p, reached) in influence(aligned, |p| p == [1, 5, 2]) {
        let same = p[0] / 2 == 0 && p[1] / 4 == 1 && p[2] / 4 == 0;
        assert_eq!(reached, same, "aligned: {p:?}");
    }
    // Shifted by (1, 2, 2): windows are [1, 3) x [2, 6) x [2, 6) and what wraps around the border.
    let shifted = Windows::shifted(grid, window);
    for (p, reached) in influence(shifted, |p| p == [2, 3, 4]) {
        let same = (1..3).contains(&p[0]) && (2..6).contains(&p[1]) && (2..6).contains(&p[2]);
        assert_eq!(reached, same, "shifted: {p:?}");
    }
    // A corner shares its rolled window with the seven other corners, and reaches none of them.
    for (p, reached) in influence(shifted, |p| p == [0, 0, 0]) {
        let same = p[0] < 1 && p[1] < 2 && p[2] < 2;
        assert_eq!(reached, same, "corner: {p:?}");
    }
}

#[test]
fn every_parameter_but_the_unused_one_receives_a_gradient() {
    struct Check<'a>(&'a burn::tensor::Gradients, Vec<String>, usize, Vec<String>);
    impl burn::module::ModuleVisitor for Check<'_> {
        fn enter_module(&mut self, name: &str, _container: &str) {
            self.1.push(name.to_string());
        }
        fn exit_module(&mut self, _name: &str, _container: &str) {
            self.1.pop();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.2 += 1;
            let grad = param.val().grad(self.0);
            if !grad.is_some_and(|g| g.abs().max().into_scalar::<f32>() > 0.0) {
                self.3.push(self.1.join("."));
            }
        }
    }
    let device = Device::flex().autodiff();
    for (resolution, unused) in
        [(Resolution::Full, vec![]), (Resolution::Half, vec!["decoder.c2.conv.weight"])]
    {
        let net = TransMorphConfig::tiny()
            .with_resolution(resolution)
            .with_drop_path(0.0)
            .for_size([64, 32, 32])
            .init(&device);
        let (moving, fixed) = images([64, 32, 32], 1, &device);
        let u = net.forward(moving, fixed);
        let values = normal(u.shape().num_elements(), 3);
        let target: Tensor<5> = tensor(&values, u.dims(), &device, DType::F32);
        let gradients = ((u - target).square()).mean().backward();
        let mut check = Check(&gradients, vec![], 0, vec![]);
        net.visit(&mut check);
        assert!(check.2 > 100, "only {} parameters were visited", check.2);
        assert_eq!(check.3, unused, "{resolution:?}");
    }
}

#[test]
fn drop_path_is_off_in_inference() {
    let device = Device::flex().autodiff();
    let net = TransMorphConfig::tiny().with_drop_path(0.9).for_size([32, 32, 32]).init(&device);
    let (moving, fixed) = images([32, 32, 32], 1, &device);
    let training = || net.forward(moving.clone(), fixed.clone()).inner();
    assert!(largest(training() - training()) > 0.0, "training draws anew each time");
    let valid = net.valid();
    let inference = || valid.forward(moving.clone().inner(), fixed.clone().inner());
    assert_eq!(largest(inference() - inference()), 0.0);
}

#[test]
fn a_record_restores_the_network() {
    let device = Device::flex();
    let config = TransMorphConfig::tiny().for_size([32, 32, 32]);
    let (moving, fixed) = images([32, 32, 32], 1, &device);
    let net = config.clone().with_seed(1).init(&device);
    let expected = net.forward(moving.clone(), fixed.clone()).into_data();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.bpk");
    net.save_file(&path).unwrap();
    let other = config.with_seed(2).init(&device);
    assert_ne!(other.forward(moving.clone(), fixed.clone()).into_data(), expected);
    let restored = other.try_load_file(&path).unwrap();
    restored.forward(moving, fixed).into_data().assert_eq(&expected, true);
}

/// All parameters in double precision.
struct Widen;

impl burn::module::ModuleMapper for Widen {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        Param::from_tensor(param.val().cast(DType::F64).detach())
    }
}

#[test]
fn the_gradient_is_the_slope_of_the_loss_along_itself() {
    // The whole chain at once, in f64: no direction has a larger slope, so none is better
    // conditioned.
    let device = Device::flex().autodiff();
    for resolution in [Resolution::Half, Resolution::Full] {
        let config = TransMorphConfig::tiny().with_resolution(resolution).with_drop_path(0.0);
        let net = config.for_size([32, 32, 64]).init(&device).map(&mut Widen);
        let random = |channels: usize, seed| -> Tensor<5> {
            let values = normal(channels << 16, seed);
            tensor(&values, [1, channels, 32, 32, 64], &device, DType::F64)
        };
        let (moving, fixed, cotangent) = (random(1, 1), random(1, 2), random(3, 3));
        let loss = |m: Tensor<5>| (net.forward(m, fixed.clone()) * cotangent.clone()).sum();
        let moving = moving.require_grad();
        let gradients = loss(moving.clone()).backward();
        let gradient = Tensor::from_inner(moving.grad(&gradients).unwrap());
        let slope = gradient.clone().square().sum().into_scalar::<f64>().sqrt();
        let direction = gradient * (1.0 / slope);
        let moving = moving.detach();
        let at = |t: f64| loss(moving.clone() + direction.clone() * t).into_scalar::<f64>();
        let step = 1e-6;
        let numeric = (at(step) - at(-step)) / (2.0 * step);
        let error = (slope - numeric).abs() / slope;
        println!("{resolution:?}: relative error {error:.1e}");
        // Steps above 1e-5 cross the kinks of LeakyReLU, below 1e-7 rounding takes over; between
        // them the error is about 1e-8.
        assert!(error < 1e-6, "{resolution:?}: {slope} is not {numeric}");
    }
}

#[test]
fn the_diffeomorphic_network_integrates_its_velocity() {
    let device = Device::flex();
    let size = [32, 24, 40];
    let config = TransMorphConfig::tiny().for_size(size).with_integration_steps(Some(7));
    let mut net = config.init(&device);
    // Weights of the size a trained head has, so that the velocity is of several voxels.
    net.head.conv.weight = Param::from_tensor((net.head.conv.weight.val() * 1e4).detach());
    let (moving, fixed) = images(size, 1, &device);
    let velocity = net.flow(moving.clone(), fixed.clone());
    let u = net.forward(moving.clone(), fixed.clone());
    assert!(largest(velocity.clone()) > 1.0 && largest(u.clone() - velocity.clone()) > 0.01);
    let expected = ffdp_burn::ops::compose::exp(velocity, 7);
    assert_eq!(largest(u - expected), 0.0);
}
