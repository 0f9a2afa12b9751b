//! What every similarity promises: its parts add up, its gradient is its derivative, and a similarity of a
//! user's own, without a kernel, is as good as one of ours.

use std::sync::Arc;

use burn::tensor::{DType, Device, Tensor};

use super::*;
use crate::ops::{
    HistogramOptions, LnccFloor, LnccOptions, Measure, MindOptions, MindStorage, VarianceBounds,
    lncc, mind, mse, normalized_gradient,
};
use ffdp_image::synth::PhantomSettings;
use ffdp_kit::testing::{assert_close, gpu_devices, tensor, to_f64, uniform};

/// f32 sums of a few hundred terms of order 1, taken in another order.
const F32_ROUNDING: f64 = 1e-5;
/// f64 sums in another order.
const F64_ROUNDING: f64 = 1e-12;

/// A similarity without its kernels: what a user writes.
#[derive(Debug)]
struct ByTape<S>(S);

impl<S: SimilarityLoss> SimilarityLoss for ByTape<S> {
    fn partial(&self, pair: &Pair) -> Tensor<1> {
        self.0.partial(pair)
    }

    fn finish(&self, total: Tensor<1>, count: Tensor<1>) -> Tensor<1> {
        self.0.finish(total, count)
    }

    fn reach_voxels(&self) -> usize {
        self.0.reach_voxels()
    }
}

/// [`Mind`] of descriptors that are stored, channel after channel of the images.
#[derive(Debug)]
struct OfStoredDescriptors(MindOptions);

impl SimilarityLoss for OfStoredDescriptors {
    fn partial(&self, pair: &Pair) -> Tensor<1> {
        let channel = |c: usize| {
            let at = |image: &Tensor<5>| image.clone().narrow(1, c, 1);
            let [moved, fixed] = [&pair.moved, &pair.fixed].map(|image| mind(at(image), &self.0));
            let difference = moved - fixed;
            let squares = difference.clone() * difference;
            match &pair.weights {
                Some(weights) => (squares * at(weights)).sum(),
                None => squares.sum(),
            }
        };
        let sums = (0..pair.moved.dims()[1]).map(channel).collect();
        Tensor::cat(sums, 0).sum().mul_scalar(1.0 / 12.0)
    }

    fn finish(&self, total: Tensor<1>, count: Tensor<1>) -> Tensor<1> {
        total / count
    }
}

const SHAPE: [usize; 5] = [1, 2, 6, 5, 8];

fn image(seed: u64, dtype: DType) -> Tensor<5> {
    let values = uniform(SHAPE.iter().product(), 0.05, 0.95, seed);
    tensor(&values, SHAPE, &Device::flex(), dtype)
}

fn crossing() -> Ngf {
    Ngf { term: NgfTerm::Cross, edge: 0.1 }
}

/// Sums, of which one is linear in the sums of its terms.
fn means() -> WeightedSum {
    let window = LnccOptions { window: 5, ..LnccOptions::default() };
    WeightedSum::new([
        (0.7, Arc::new(Lncc(window)) as Arc<dyn SimilarityLoss>),
        (3.0, Arc::new(Mse)),
    ])
}

fn mixed() -> WeightedSum {
    let bins = HistogramOptions { bins: 16, ..HistogramOptions::default() };
    let information = Arc::new(MutualInformation(bins)) as Arc<dyn SimilarityLoss>;
    WeightedSum::new([(1.5, information), (0.4, Arc::new(Mse))])
}

/// Terms of one channel each, one of them also of both.
fn named() -> WeightedSum {
    let window = LnccOptions { window: 5, ..LnccOptions::default() };
    let bins = HistogramOptions { bins: 16, ..HistogramOptions::default() };
    let of = |loss: Arc<dyn SimilarityLoss>, channels: &[usize]| -> Arc<dyn SimilarityLoss> {
        Arc::new(OfChannels::new(loss, channels.iter().copied()))
    };
    WeightedSum::new([
        (0.5, of(Arc::new(Lncc(window)), &[1])),
        (2.0, of(Arc::new(MutualInformation(bins)), &[0])),
        (1.5, of(Arc::new(Dice), &[1])),
        (1.0, Arc::new(Mse) as Arc<dyn SimilarityLoss>),
    ])
}

/// What a discrete search compares in place of losses.
#[test]
fn squared_differences_of_features_are_the_loss() {
    /// f64 sums in another order, of roots that are squared again.
    const RELATIVE: f64 = 1e-9;
    let (a, b) = (image(1, DType::F64), image(2, DType::F64));
    let voxels = SHAPE[2..].iter().product::<usize>() as f64;
    let apart = |similarity: &dyn SimilarityLoss, weight: f64| {
        let [x, y] = [&a, &b].map(|image| similarity.features(image, weight).expect("it has some"));
        to_f64((x - y).square().sum())[0] / voxels
    };
    let second = |loss: Arc<dyn SimilarityLoss>| OfChannels::new(loss, [1]);
    let one = second(Arc::new(Mse));
    let sum = WeightedSum::new([
        (0.5, Arc::new(Mse) as Arc<dyn SimilarityLoss>),
        (2.0, Arc::new(second(Arc::new(Mind::default())))),
    ]);
    let mind = Mind::default();
    let all: [(&str, &dyn SimilarityLoss); 4] =
        [("mse", &Mse), ("mind", &mind), ("a channel", &one), ("a sum", &sum)];
    for (name, similarity) in all {
        let loss = to_f64(similarity.loss(a.clone(), b.clone()))[0];
        // With 24, descriptors of two channels are as they are.
        for weight in [1.0, 2.5, 24.0] {
            let (found, expected) = (apart(similarity, weight), weight * loss);
            let off = (found - expected).abs();
            assert!(off < RELATIVE * expected, "{name}, {weight}: {found} {expected}");
        }
    }
    for (name, similarity) in [
        ("lncc", Arc::new(Lncc(LnccOptions::default())) as Arc<dyn SimilarityLoss>),
        ("dice", Arc::new(Dice)),
        ("cross", Arc::new(crossing())),
        ("a sum with lncc", Arc::new(means())),
    ] {
        assert!(similarity.features(&a, 1.0).is_none(), "{name}");
    }
}

#[test]
fn features_of_edges_do_not_know_their_sign() {
    /// Rounding of f64.
    const ROUNDING: f64 = 1e-12;
    let (a, b) = (image(1, DType::F64), image(2, DType::F64));
    let ngf = Ngf::default();
    let features = |image: &Tensor<5>| ngf.features(image, 1.0).expect("it has some");
    let apart = |x: &Tensor<5>, y: &Tensor<5>| {
        to_f64((features(x) - features(y)).square().sum_dim(1).mean())[0]
    };
    let [n, c, d, h, w] = SHAPE;
    let normals = |image: &Tensor<5>| {
        normalized_gradient(image.clone().reshape([n * c, 1, d, h, w]), [1.0; 3], ngf.edge)
    };
    let (m, f) = (normals(&a), normals(&b));
    let dot = |x: &Tensor<5>, y: &Tensor<5>| (x.clone() * y.clone()).sum_dim(1).square();
    let expected = (dot(&m, &m) + dot(&f, &f)).mul_scalar(0.5) - dot(&m, &f);
    let expected = to_f64(expected.mean())[0];
    assert!((apart(&a, &b) - expected).abs() < ROUNDING, "{} {expected}", apart(&a, &b));
    let inverted = a.clone().neg().add_scalar(1.0);
    assert!(apart(&a, &inverted) < ROUNDING, "{}", apart(&a, &inverted));
}

#[test]
fn a_sum_is_that_of_its_terms() {
    let (a, b) = (image(1, DType::F64), image(2, DType::F64));
    let bins = HistogramOptions { bins: 16, ..HistogramOptions::default() };
    let pair = || Pair::new(a.clone(), b.clone());
    let loss = |similarity: &dyn SimilarityLoss| to_f64(similarity.loss_of(&pair()))[0];
    let expected = 1.5 * loss(&MutualInformation(bins)) + 0.4 * loss(&Mse);
    assert!((loss(&mixed()) - expected).abs() < F64_ROUNDING, "{expected}");
    assert!(means().is_mean() && !mixed().is_mean());
    assert_eq!(means().reach_voxels(), 2);
}

#[test]
fn a_sum_is_read_from_a_file_and_refused_without_a_meaning() {
    let text = r#"{"sum": [{"weight": 1.0, "similarity": {"lncc": {"window": 5}}}, {"weight": 0.5, "similarity": "mse"}]}"#;
    let sum: similarities::Similarity = serde_json::from_str(text).expect("a sum");
    assert_eq!(sum.name(), "sum");
    assert!(sum.validate().is_ok() && sum.loss().is_mean());
    for (terms, word) in [
        ("", "at least one"),
        (r#"{"weight": 0.0, "similarity": "mse"}"#, "above 0"),
        (r#"{"weight": 1.0, "similarity": "dice", "channels": []}"#, "ascend"),
        (r#"{"weight": 1.0, "similarity": "mse", "channels": [1, 1]}"#, "ascend"),
    ] {
        let text = format!(r#"{{"sum": [{terms}]}}"#);
        let sum: similarities::Similarity = serde_json::from_str(&text).expect("a sum");
        let error = sum.validate().expect_err("no meaning").to_string();
        assert!(error.contains(word), "{error}");
    }
}

/// The same loss with and without its kernels.
fn cases() -> Vec<(Box<dyn SimilarityLoss>, Box<dyn SimilarityLoss>)> {
    let window = LnccOptions { window: 5, ..LnccOptions::default() };
    let common = LnccOptions { floor: LnccFloor::Common, ..window };
    let bins = HistogramOptions { bins: 16, ..HistogramOptions::default() };
    vec![
        (Box::new(Lncc(window)), Box::new(ByTape(Lncc(window)))),
        (Box::new(Lncc(common)), Box::new(ByTape(Lncc(common)))),
        (Box::new(Mse), Box::new(ByTape(Mse))),
        (Box::new(MutualInformation(bins)), Box::new(ByTape(MutualInformation(bins)))),
        (
            Box::new(NormalizedMutualInformation(bins)),
            Box::new(ByTape(NormalizedMutualInformation(bins))),
        ),
        (Box::new(Mind::default()), Box::new(OfStoredDescriptors(Mind::default().0))),
        (Box::new(Mind::default()), Box::new(ByTape(Mind::default()))),
        (Box::new(Ngf::default()), Box::new(ByTape(Ngf::default()))),
        (Box::new(crossing()), Box::new(ByTape(crossing()))),
        (Box::new(means()), Box::new(ByTape(means()))),
        (Box::new(mixed()), Box::new(ByTape(mixed()))),
        (Box::new(Dice), Box::new(ByTape(Dice))),
        (Box::new(named()), Box::new(ByTape(named()))),
    ]
}

#[test]
fn a_loss_is_that_of_its_operation() {
    let (a, b) = (image(1, DType::F32), image(2, DType::F32));
    let options = LnccOptions { window: 5, ..LnccOptions::default() };
    let cases: [(&dyn SimilarityLoss, f64); 2] = [
        (&Lncc(options), to_f64(lncc(a.clone(), b.clone(), &options))[0]),
        (&Mse, to_f64(mse(a.clone(), b.clone()))[0]),
    ];
    for (similarity, expected) in cases {
        let got = to_f64(similarity.loss(a.clone(), b.clone()))[0];
        assert!((got - expected).abs() < F32_ROUNDING, "{similarity:?}: {got} {expected}");
        let same = to_f64(similarity.loss(a.clone(), a.clone()))[0];
        assert!(same < got, "{similarity:?}");
    }
}

#[test]
fn partial_sums_of_batches_add_up() {
    // A batch is two volumes; windows do not reach from one into the other.
    let (a, b) = (image(1, DType::F32), image(2, DType::F32));
    let similarities: [&dyn SimilarityLoss; 4] =
        [&Lncc::transmorph(), &Mse, &Mind::default(), &Ngf::default()];
    for similarity in similarities {
        let of = |moved: &Tensor<5>, fixed: &Tensor<5>| {
            similarity.partial(&Pair::new(moved.clone(), fixed.clone()))
        };
        let both = |x: &Tensor<5>, y: &Tensor<5>| Tensor::cat(vec![x.clone(), y.clone()], 0);
        let pair = Pair::new(both(&a, &b), both(&b, &a));
        let apart = similarity.finish(of(&a, &b) + of(&b, &a), pair.count());
        let (apart, whole) = (to_f64(apart)[0], to_f64(similarity.loss_of(&pair))[0]);
        assert!((apart - whole).abs() < F32_ROUNDING, "{similarity:?}: {apart} {whole}");
    }
}

/// Blocks with a margin overlap; what both have is counted in either and taken off once. Terms look no further than
/// they say.
#[test]
fn overlapping_parts_add_up_to_the_whole() {
    let shape = [1, 1, 24, 5, 6];
    let image = |seed| {
        let values = uniform(shape.iter().product(), 0.05, 0.95, seed);
        tensor::<5>(&values, shape, &Device::flex(), DType::F64)
    };
    let (moved, fixed) = (image(11), image(12));
    let similarities: [&dyn SimilarityLoss; 4] =
        [&Lncc::default(), &Mind::default(), &Ngf::default(), &crossing()];
    for similarity in similarities {
        let reach = similarity.reach_voxels();
        let part = |from: usize, to: usize| {
            let narrow = |image: &Tensor<5>| image.clone().narrow(2, from, to - from);
            similarity.partial(&Pair::new(narrow(&moved), narrow(&fixed)))
        };
        let parts = part(0, 12 + reach) + part(12 - reach, 24) - part(12 - reach, 12 + reach);
        let (parts, whole) = (to_f64(parts)[0], to_f64(part(0, 24))[0]);
        assert!((parts - whole).abs() < 1e-10 * whole.abs(), "{similarity:?}: {parts} {whole}");
    }
}

/// A similarity of named channels is that of images that have no others, and moves nothing else.
#[test]
fn named_channels_are_compared_as_if_there_were_no_others() {
    let shape = [1, 4, 6, 5, 8];
    let image = |seed| {
        let values = uniform(shape.iter().product(), 0.05, 0.95, seed);
        tensor::<5>(&values, shape, &Device::flex(), DType::F64)
    };
    let weights = {
        let values = uniform(240, 0.05, 0.95, 23);
        tensor::<5>(&values, [1, 1, 6, 5, 8], &Device::flex(), DType::F64)
    };
    let (moved, fixed) = (image(21), image(22));
    let part = |image: &Tensor<5>| {
        Tensor::cat(vec![image.clone().narrow(1, 0, 1), image.clone().narrow(1, 2, 2)], 1)
    };
    let window = LnccOptions { window: 5, ..LnccOptions::default() };
    let bins = HistogramOptions { bins: 16, ..HistogramOptions::default() };
    let similarities: [Arc<dyn SimilarityLoss>; 7] = [
        Arc::new(Lncc(window)),
        Arc::new(Mse),
        Arc::new(MutualInformation(bins)),
        Arc::new(NormalizedMutualInformation(bins)),
        Arc::new(Mind::default()),
        Arc::new(Ngf::default()),
        Arc::new(Dice),
    ];
    for weights in [None, Some(weights)] {
        let all = Pair::weighted(moved.clone(), fixed.clone(), weights.clone());
        let three = Pair::weighted(part(&moved), part(&fixed), weights.clone());
        for similarity in &similarities {
            let label = format!("{similarity:?}, weights {}", weights.is_some());
            let named = OfChannels::new(similarity.clone(), [0, 2, 3]);
            assert_eq!(named.least_channels(), 4);
            let of = |loss: &dyn SimilarityLoss, pair: &Pair| {
                let count = counted(pair.count());
                let slope = loss.slope(&loss.partial(pair), &count);
                let (_, [gradient, _]) = loss.partial_and_gradient(pair, &slope, [true, false]);
                let gradient = gradient.expect("it was wanted") / count.reshape([1; 5]);
                (to_f64(loss.loss_of(pair))[0], gradient)
            };
            let ((got, gradient), (expected, alone)) =
                (of(&named, &all), of(&**similarity, &three));
            // Means of means; what keeps logarithms and ratios defined (1e-5 voxels of a hundred) is not scaled as sums are.
            assert!((got - expected).abs() < 1e-7, "{label}: {got} {expected}");
            assert_close(&label, &to_f64(part(&gradient)), &to_f64(alone), 1e-7);
            let others = to_f64(gradient.narrow(1, 1, 1));
            assert!(others.iter().all(|slope| *slope == 0.0), "{label}");
        }
    }
}

#[test]
#[should_panic(expected = "a similarity of 3 channels: the images have 2")]
fn channels_that_images_lack_are_a_bug_of_the_caller() {
    let named = OfChannels::new(Arc::new(Mse), [2]);
    named.partial(&Pair::new(image(1, DType::F32), image(2, DType::F32)));
}

#[test]
fn dice_is_that_of_memberships_and_its_curvature_that_of_least_squares() {
    let (a, b) = (image(1, DType::F64), image(2, DType::F64));
    let expected = to_f64(soft_dice(a.clone(), b.clone()))[0];
    let pair = Pair::new(a.clone(), b.clone());
    let got = to_f64(Dice.loss_of(&pair))[0];
    assert!((got - expected).abs() < 1e-10, "{got} {expected}");
    let same = to_f64(Dice.loss(a.clone(), a.clone()))[0];
    // What keeps empty labels finite.
    assert!(same.abs() < 1e-6, "{same}");
    let count = counted(pair.count());
    let curvature = Dice.curvature(&pair, &Dice.partial(&pair), &count).expect("it has one");
    let (values, curvature) = ([to_f64(a), to_f64(b)], to_f64(curvature));
    let of_channel = values[0].len() / 2;
    for channel in 0..2 {
        let range = channel * of_channel..(channel + 1) * of_channel;
        let size: f64 = values.iter().flat_map(|v| &v[range.clone()]).map(|v| v * v).sum();
        let expected = values[0].len() as f64 * 2.0 / (2.0 * size);
        let off = curvature[range].iter().fold(0.0f64, |most, h| most.max((h - expected).abs()));
        assert!(off < 1e-5 * expected, "channel {channel}: {off} of {expected}");
    }
}

/// What these are for: an inverted contrast is as good as the same, a shift is not.
#[test]
fn inverted_contrast_is_alike() {
    let device = Device::flex();
    let pair = ffdp_image::synth::pair(&PhantomSettings::with_size([32; 3]), 3).expect("valid");
    let image: Tensor<5> = pair.fixed.image.to_tensor(&device);
    let inverted = image.clone().neg().add_scalar(1.0);
    let ends = [inverted.clone().narrow(4, 3, 29), inverted.clone().narrow(4, 0, 3)];
    let shifted = Tensor::cat(ends.into(), 4);
    for similarity in [&Mind::default() as &dyn SimilarityLoss, &Ngf::default()] {
        let of = |moved: &Tensor<5>| to_f64(similarity.loss(moved.clone(), image.clone()))[0];
        let [same, inverse, shifted] = [&image, &inverted, &shifted].map(of);
        println!("{similarity:?}: same {same:.5} inverted {inverse:.5} shifted {shifted:.5}");
        assert!((same - inverse).abs() < 1e-5 && shifted > inverse + 1e-3, "{similarity:?}");
    }
}

/// The gradient of warped descriptors is that of their channels' mean squared difference.
#[test]
fn warped_descriptors_have_an_exact_gradient() {
    let values = |seed| uniform(210, 0.05, 0.95, seed);
    let image = |seed| tensor::<5>(&values(seed), [1, 1, 5, 6, 7], &Device::flex(), DType::F64);
    let bounds = VarianceBounds::Fixed { low: 1e-6, high: 1.0 };
    let options = MindOptions { bounds, ..MindOptions::default() };
    let (fixed, moving) = (mind(image(13), &options), mind(image(14), &options));
    // Off the lattice, where linear interpolation has kinks.
    let field = uniform(630, 0.2, 0.8, 15);
    let checks = ffdp_kit::testing::gradcheck(&["displacement"], &[field], 1e-4, |inputs| {
        let device = Device::flex().autodiff();
        let field = tensor::<5>(&inputs[0], [1, 3, 5, 6, 7], &device, DType::F64).require_grad();
        let moved = crate::ops::warp(moving.clone().autodiff(), field.clone());
        let loss = Mse.loss(moved, fixed.clone().autodiff());
        let gradient = field.grad(&loss.backward()).expect("it is tracked");
        (to_f64(loss.inner())[0], vec![to_f64(gradient)])
    });
    assert!(checks[0].error < 1e-8, "{checks:?}");
}

/// Sums, slope and gradients by kernels are those of the tape, with weights and without.
#[test]
fn kernels_and_the_tape_agree() {
    let (moved, fixed) = (image(3, DType::F64), image(4, DType::F64));
    for weights in [None, Some(image(5, DType::F64))] {
        let pair = Pair::weighted(moved.clone(), fixed.clone(), weights);
        let count = counted(pair.count());
        for (fused, by_tape) in cases() {
            let label = format!("{fused:?}, weights {}", pair.weights.is_some());
            let total = fused.partial(&pair);
            assert_close(
                &label,
                &to_f64(total.clone()),
                &to_f64(by_tape.partial(&pair)),
                F64_ROUNDING,
            );
            let slope = fused.slope(&total, &count);
            let other = by_tape.slope(&total, &count);
            assert_close(&label, &to_f64(slope.clone()), &to_f64(other), F64_ROUNDING);
            let (sums, [to_moved, to_fixed]) =
                fused.partial_and_gradient(&pair, &slope, [true, true]);
            assert_close(&label, &to_f64(sums), &to_f64(total), F64_ROUNDING);
            let others = by_tape.gradient(&pair, &slope, [true, true]);
            for (a, b) in [to_moved, to_fixed].into_iter().zip(others) {
                let (a, b) = (a.expect("wanted"), b.expect("wanted"));
                assert_close(&label, &to_f64(a), &to_f64(b), 1e-10);
            }
            // Without its wish no gradient is made.
            let [to_moved, to_fixed] = fused.gradient(&pair, &slope, [true, false]);
            assert!(to_moved.is_some() && to_fixed.is_none(), "{label}");
        }
    }
}

/// `count` times the derivative of the loss, by central differences.
#[test]
fn a_gradient_is_that_of_the_loss() {
    const STEP: f64 = 1e-5;
    /// Third derivatives times the square of the step, and rounding over twice the step.
    const DIFFERENCES: f64 = 1e-6;
    let (moved, fixed) = (image(6, DType::F64), image(7, DType::F64));
    let weights = image(8, DType::F64);
    let pair = |moved: Tensor<5>| Pair::weighted(moved, fixed.clone(), Some(weights.clone()));
    let values = to_f64(moved.clone());
    for (similarity, _) in cases() {
        let here = pair(moved.clone());
        let count = counted(here.count());
        let slope = similarity.slope(&similarity.partial(&here), &count);
        let [gradient, _] = similarity.gradient(&here, &slope, [true, false]);
        let gradient = to_f64(gradient.expect("it was wanted"));
        let largest = gradient.iter().fold(0.0f64, |most, g| most.max(g.abs()));
        for i in [0, 77, 239, 311, 479] {
            let shifted = |step: f64| {
                let mut values = values.clone();
                values[i] += step;
                to_f64(similarity.loss_of(&pair(tensor(
                    &values,
                    SHAPE,
                    &Device::flex(),
                    DType::F64,
                ))))[0]
            };
            let slope = (shifted(STEP) - shifted(-STEP)) / (2.0 * STEP);
            let expected = slope * to_f64(count.clone())[0];
            let error = (gradient[i] - expected).abs() / largest;
            assert!(error < DIFFERENCES, "{similarity:?} at {i}: {} {expected}", gradient[i]);
        }
    }
}

/// Nothing counts: no division by zero, whichever code divides.
#[test]
fn without_weight_losses_are_finite() {
    let nothing = image(9, DType::F32).zeros_like();
    let pair = Pair::weighted(image(1, DType::F32), image(2, DType::F32), Some(nothing));
    for (similarity, _) in cases() {
        let loss = to_f64(similarity.loss_of(&pair))[0];
        assert!(loss.is_finite(), "{similarity:?}: {loss}");
    }
}

#[test]
fn what_a_file_names_is_what_is_chosen() {
    for (chosen, _) in similarities::Similarity::built_in() {
        let name = chosen.name();
        let written = serde_json::to_value(&chosen).expect("it is written");
        let key = written.as_object().and_then(|table| table.keys().next().map(String::as_str));
        assert_eq!(key.or(written.as_str()), Some(name));
        let read: similarities::Similarity = serde_json::from_value(written).expect("and read");
        assert_eq!(similarities::Similarity::named(name), Some(read));
        assert!(chosen.validate().is_ok(), "{name}");
    }
    assert_eq!(similarities::Similarity::named("own"), None);
}

#[test]
fn settings_reach_the_kernels() {
    let mut lncc = similarities::Similarity::Lncc(LnccSettings::default());
    *lncc.window_mut().expect("it has a window") = 11;
    let options = LnccOptions { window: 11, floor: LnccFloor::Common, ..LnccOptions::default() };
    assert_eq!(lncc.loss().measure(), Some(Measure::Lncc(options)));
    assert!(lncc.bins_mut().is_none());
    for name in ["mi", "nmi"] {
        let mut chosen = similarities::Similarity::named(name).expect("it is built in");
        *chosen.bins_mut().expect("it has bins") = 40;
        let (options, _) = chosen.loss().measure().and_then(|m| m.information()).expect("votes");
        assert_eq!(options, HistogramOptions { bins: 40, ..HistogramOptions::default() });
        *chosen.bins_mut().expect("it has bins") = 4;
        let error = chosen.validate().expect_err("too few").to_string();
        assert!(error.contains("8..256") && chosen.window_mut().is_none(), "{error}");
    }
}

/// What a GPU stores, within the rounding of it; a CPU stores none.
#[test]
fn descriptors_are_stored_as_the_settings_say() {
    let usual = MindSettings::default();
    let devices = std::iter::once(("cpu", Device::flex())).chain(gpu_devices());
    for (name, device) in devices {
        let [a, b] = [1, 2].map(|seed| {
            let values = uniform(SHAPE.iter().product(), 0.05, 0.95, seed);
            tensor(&values, SHAPE, &device, DType::F32)
        });
        let of = |storage| {
            let chosen = similarities::Similarity::Mind(MindSettings { storage, ..usual });
            chosen.check_on(&device).ok()?;
            Some(to_f64(chosen.loss().loss(a.clone(), b.clone()))[0])
        };
        let full = of(MindStorage::Full).expect("every device has f32");
        for (storage, rounding) in
            [(MindStorage::F16, 2f64.powi(-12)), (MindStorage::Bf16, 2f64.powi(-9))]
        {
            let Some(stored) = of(storage) else { continue };
            // Of the mean of squares of differences, each of which is off by the rounding at most.
            let bound = 2.0 * rounding * full.sqrt() + rounding * rounding;
            let off = (stored - full).abs();
            assert!(off <= bound + F32_ROUNDING * full, "{name} {storage:?}: {full} {stored}");
            assert!(name == "cpu" || off > 0.0, "{name}: {storage:?} is as exact as f32");
        }
    }
}

/// The known answer is a registration: a loss falls by about as much as it says, and so penalties are weighed alike.
#[test]
fn a_loss_gains_about_what_it_says() {
    let device = Device::flex();
    let pair = ffdp_image::synth::pair(&PhantomSettings::with_size([48; 3]), 3).expect("valid");
    let [d, h, w] = pair.fixed.image.geometry.dims();
    let [fixed, moving] = [&pair.fixed, &pair.moving].map(|s| s.image.to_tensor(&device));
    let answer = Tensor::<1>::from_floats(&pair.displacement[..], &device);
    let moved = crate::ops::warp(moving.clone(), answer.reshape([1, 3, d, h, w]));
    for (chosen, _) in similarities::Similarity::built_in() {
        let loss = chosen.loss();
        let of = |image: &Tensor<5>| to_f64(loss.loss(image.clone(), fixed.clone()))[0];
        let gain = of(&moving) - of(&moved);
        println!("{}: gains {gain:.4}, says {}", chosen.name(), loss.usual_gain());
        let part = gain / loss.usual_gain();
        assert!((0.25..4.0).contains(&part), "{}: {gain}", chosen.name());
    }
}
