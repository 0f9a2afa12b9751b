//! Mutual information of two images, for different modalities.
//!
//! A [joint histogram](crate::ops::joint_histogram()), and on it
//! [`information_loss`](crate::ops::information_loss()), each a few launches: of a small volume they
//! are what takes time. The functions [`mutual_information`] and [`normalized_mutual_information`] are
//! the same by tensor arithmetic, for tables of any origin.

use std::fmt::Debug;

use burn::Tensor;
use burn::backend::Dispatch;
use serde::{Deserialize, Serialize};

use crate::losses::{Pair, PairGradients, SimilarityLoss};
use crate::ops::information::{InformationOps, TINY};
use crate::ops::joint_histogram::{Binning, JointHistogramOps, joint_votes};
use crate::ops::{
    HistogramMode, HistogramOptions, Information, Measure, ParzenKernel, information_loss,
};
use ffdp_image::error::{Error, Result};

/// Negative mutual information in nats, averaged over the batch (Mattes et al. 2001).
///
/// ```text
/// loss = -I(A; B) = H(A, B) - H(A) - H(B)          H(p) = -sum p log p
/// ```
/// 0 for unrelated images, down to `-log B` (-3.5 with 32 bins) where one image determines the other. A
/// finite image shows a little more than it should: about `B^2 / 2 n` nats for `n` voxels of noise.
/// Images of one channel, scaled to [0, 1]; see [`joint_histogram`](crate::ops::joint_histogram()).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MutualInformation(pub HistogramOptions);

/// One minus the normalised mutual information, averaged over the batch (Studholme et al. 1999).
///
/// ```text
/// loss = 1 - I(A; B) / H(A, B) = 2 - (H(A) + H(B)) / H(A, B)
/// ```
/// In 0..1: 0 where each image determines the other (reached with [`ParzenKernel::Delta`] only: a wider
/// kernel blurs the table), 1 for unrelated images and for constant ones. Unlike mutual information
/// it does not grow with the overlap of the images alone.
///
/// [`ParzenKernel::Delta`]: crate::ops::ParzenKernel::Delta
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NormalizedMutualInformation(pub HistogramOptions);

/// Settings of the mutual information.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MiSettings {
    /// Bins of each image's intensities, 8 to 256. Default 32 (FFDP paper).
    pub bins: usize,
    /// How a voxel's vote is spread over them: `linear`, `bspline3` or `{ gaussian = { sigma_bins = 0.5 } }`. Default:
    /// the cubic B-spline (Mattes et al. 2003). Votes for whole bins have no gradient: only the finite differences of `ffd`
    /// count them.
    pub kernel: ParzenKernel,
    /// Whether every vote is spread, or the finished table: `exact` or `approximate`, the faster of the FFDP paper. Default
    /// `exact`.
    pub mode: HistogramMode,
}

impl Default for MiSettings {
    fn default() -> Self {
        let HistogramOptions { bins, kernel, mode } = HistogramOptions::default();
        Self { bins, kernel, mode }
    }
}

impl MiSettings {
    pub(super) fn options(self) -> HistogramOptions {
        let Self { bins, kernel, mode } = self;
        HistogramOptions { bins, kernel, mode }
    }

    pub(super) fn validate(self) -> Result<()> {
        if self.kernel == ParzenKernel::Delta {
            let what = "votes for whole bins have no gradient";
            let hint = "use bspline3; ffd counts whole bins with gradient = \"finite_differences\"";
            return Err(Error::invalid(what, "kernel = \"delta\"", hint));
        }
        if let ParzenKernel::Gaussian { sigma_bins } = self.kernel
            && !(0.25..=2.0).contains(&sigma_bins)
        {
            let what = "sigma_bins of mutual information must lie in 0.25..2";
            return Err(Error::invalid(what, sigma_bins, "0.5 is a usual one"));
        }
        let least = self.options().least_bins();
        if (least..=256).contains(&self.bins) {
            return Ok(());
        }
        let what = format!("the bins of mutual information must lie in {least}..256");
        Err(Error::invalid(what, self.bins, "32 is the usual number"))
    }
}

/// The entropies `H(A)`, `H(B)`, `H(A, B)` of joint distributions, in nats.
struct Entropies {
    a: Tensor<3>,
    b: Tensor<3>,
    joint: Tensor<3>,
}

impl Entropies {
    /// Shapes: joint `[N, B, B]`, sum 1 each; the entropies `[N, 1, 1]`.
    fn of(joint: Tensor<3>) -> Self {
        let entropy =
            |p: Tensor<3>| (p.clone() * p.add_scalar(TINY).log()).sum_dim(2).sum_dim(1).neg();
        Self {
            a: entropy(joint.clone().sum_dim(2)),
            b: entropy(joint.clone().sum_dim(1)),
            joint: entropy(joint),
        }
    }

    /// `I(A; B)`.
    fn mutual(&self) -> Tensor<3> {
        self.a.clone() + self.b.clone() - self.joint.clone()
    }
}

/// Mutual information of joint distributions, in nats.
///
/// # Shapes
/// joint `[N, B, B]`, summing to 1 for every batch entry; result `[N]`.
pub fn mutual_information(joint: Tensor<3>) -> Tensor<1> {
    Entropies::of(joint).mutual().flatten(0, 2)
}

/// `I(A; B) / H(A, B)` of joint distributions, in 0..1; 0 where both images are constant.
///
/// # Shapes
/// As [`mutual_information`].
pub fn normalized_mutual_information(joint: Tensor<3>) -> Tensor<1> {
    let entropies = Entropies::of(joint);
    (entropies.mutual() / entropies.joint.clamp_min(TINY)).flatten(0, 2)
}

/// What both kinds of information differ by.
trait Informative {
    fn options(&self) -> &HistogramOptions;
    fn information(&self) -> Information;
    /// What information is divided by, `[N, 1, 1]`, of joint distributions; `None` for nothing.
    fn divisor(&self, _joint: Tensor<3>) -> Option<Tensor<3>> {
        None
    }
    fn measured(&self) -> Measure;
    fn gain(&self) -> f64;
}

impl Informative for MutualInformation {
    fn options(&self) -> &HistogramOptions {
        &self.0
    }

    fn information(&self) -> Information {
        Information::Mutual
    }

    fn measured(&self) -> Measure {
        Measure::MutualInformation(self.0)
    }

    fn gain(&self) -> f64 {
        0.5
    }
}

impl Informative for NormalizedMutualInformation {
    fn options(&self) -> &HistogramOptions {
        &self.0
    }

    fn information(&self) -> Information {
        Information::Normalized
    }

    fn divisor(&self, joint: Tensor<3>) -> Option<Tensor<3>> {
        Some(Entropies::of(joint).joint)
    }

    fn measured(&self) -> Measure {
        Measure::NormalizedMutualInformation(self.0)
    }

    /// That of mutual information over a joint entropy of about five nats.
    fn gain(&self) -> f64 {
        0.1
    }
}

/// Every channel has a table of its own, as if it were an entry of the batch.
fn apart(image: &Tensor<5>) -> Tensor<5> {
    let [batch, channels, d, h, w] = image.dims();
    image.clone().reshape([batch * channels, 1, d, h, w])
}

/// The tables in a row of `[N C B B]` votes.
fn tables(votes: Tensor<1>, options: &HistogramOptions) -> Tensor<3> {
    let bins = options.bins;
    let batch = votes.dims()[0] / (bins * bins);
    votes.reshape([batch, bins, bins])
}

/// The loss of each entry, `[N]`, from the votes of all.
fn losses_of_votes(
    loss: &impl Informative,
    votes: Tensor<1>,
    [entries, channels, ..]: [usize; 5],
) -> Tensor<1> {
    let votes = tables(votes, loss.options());
    let total = votes.clone().sum_dim(2).sum_dim(1);
    let joint = votes / total.clamp_min(f64::from(f32::MIN_POSITIVE));
    let losses = match loss.information() {
        Information::Mutual => mutual_information(joint).neg(),
        Information::Normalized => normalized_mutual_information(joint).neg() + 1.0,
    };
    losses.reshape([entries, channels]).mean_dim(1).reshape([entries])
}

impl<T: Informative + Debug + Send + Sync> SimilarityLoss for T {
    /// The votes of every channel's table, `[N C B B]`.
    fn partial(&self, pair: &Pair) -> Tensor<1> {
        let weights = pair.weights.as_ref().map(apart);
        let (moved, fixed) = (apart(&pair.moved), apart(&pair.fixed));
        joint_votes(moved, fixed, weights, self.options()).flatten(0, 2)
    }

    fn finish(&self, total: Tensor<1>, _count: Tensor<1>) -> Tensor<1> {
        information_loss(tables(total, self.options()), self.information())
    }

    /// All tables by one launch, and their information by tensor arithmetic.
    fn losses_of(&self, pair: &Pair) -> Tensor<1> {
        losses_of_votes(self, self.partial(pair), pair.moved.dims())
    }

    fn losses_and_gradients_of(&self, pair: &Pair) -> Option<(Tensor<1>, Tensor<5>)> {
        let votes = self.partial(pair);
        // The loss of all tables is the mean of those of the entries.
        let slope = self.slope(&votes, &Tensor::ones([1], (&votes.device(), votes.dtype())));
        let slope = slope.mul_scalar(pair.moved.dims()[0] as f64);
        let [to_moved, _] = self.gradient(pair, &slope, [true, false]);
        Some((losses_of_votes(self, votes, pair.moved.dims()), to_moved?))
    }

    fn may_ignore_outside(&self) -> bool {
        true
    }

    fn usual_gain(&self) -> f64 {
        self.gain()
    }

    fn slope(&self, total: &Tensor<1>, count: &Tensor<1>) -> Tensor<1> {
        let votes = tables(total.clone(), self.options()).into_dispatch();
        let count = count.clone().into_dispatch();
        let which = self.information();
        let slope = <Dispatch as InformationOps>::information_loss_backward(votes, count, which);
        Tensor::<3>::from_dispatch(slope).flatten(0, 2)
    }

    fn gradient(&self, pair: &Pair, slope: &Tensor<1>, needs: [bool; 2]) -> PairGradients {
        let shape = pair.moved.dims();
        let binning = Binning { options: *self.options(), weighted: pair.weights.is_some() };
        let [moved, fixed] = [&pair.moved, &pair.fixed].map(|image| apart(image).into_dispatch());
        // Bound, but not read where there are no weights.
        let weights = pair.weights.as_ref().map(|weights| apart(weights).into_dispatch());
        let weights = weights.unwrap_or_else(|| fixed.clone());
        let slope = tables(slope.clone(), self.options()).into_dispatch();
        let (to_moved, to_fixed) = <Dispatch as JointHistogramOps>::joint_histogram_3d_backward(
            moved, fixed, weights, slope, binning, needs,
        );
        let given = |gradient, needed: bool| {
            needed.then(|| Tensor::<5>::from_dispatch(gradient).reshape(shape))
        };
        [given(to_moved, needs[0]), given(to_fixed, needs[1])]
    }

    fn nats(&self, total: &Tensor<1>, count: &Tensor<1>) -> Tensor<1> {
        let votes = tables(total.clone(), self.options());
        let sum = votes.clone().sum_dim(2).sum_dim(1).add_scalar(TINY);
        self.divisor(votes / sum).map_or_else(|| count.ones_like(), Tensor::mean)
    }

    fn measure(&self) -> Option<Measure> {
        Some(self.measured())
    }

    fn loss_of(&self, pair: &Pair) -> Tensor<1> {
        self.finish(self.partial(pair), pair.count())
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device};

    use super::*;
    use crate::ops::{HistogramMode, ParzenKernel, joint_histogram};
    use ffdp_kit::testing::{assert_close, gpu_devices, gradcheck, tensor, to_f64, uniform};

    /// f64 sums of at most a thousand terms in another order.
    const ROUNDING: f64 = 1e-12;
    /// `TINY` for each of at most 1024 cells, and for the marginals.
    const EMPTY_CELLS: f64 = 2e-7;
    /// Logarithms of order 5, differenced, over steps of 1e-4.
    const FINITE_DIFFERENCES: f64 = 1e-7;
    /// Three f32 entropies of about 3 to 6, each rounded a few times.
    const GPU_VALUE: f64 = 5e-6;
    /// Logarithms of the table in f32, and their differences over a support.
    const GPU_GRADIENT: f64 = 1e-4;

    const SHAPE: [usize; 5] = [2, 1, 4, 5, 6];

    fn delta(bins: usize) -> HistogramOptions {
        HistogramOptions { bins, kernel: ParzenKernel::Delta, ..Default::default() }
    }

    fn losses(options: HistogramOptions) -> [Box<dyn SimilarityLoss>; 2] {
        [Box::new(MutualInformation(options)), Box::new(NormalizedMutualInformation(options))]
    }

    /// Loss and gradients to moved and fixed.
    fn evaluate(
        similarity: &dyn SimilarityLoss,
        images: [&[f64]; 2],
        shape: [usize; 5],
        device: &Device,
        dtype: DType,
    ) -> (f64, Vec<Vec<f64>>) {
        let device = device.clone().autodiff();
        let [moved, fixed] = images
            .map(|image| -> Tensor<5> { tensor(image, shape, &device, dtype).require_grad() });
        let loss = similarity.loss(moved.clone(), fixed.clone());
        assert_eq!(loss.dims(), [1]);
        let gradients = loss.backward();
        let of = |t: &Tensor<5>| to_f64(t.grad(&gradients).expect("both want a gradient"));
        (to_f64(loss.inner())[0], vec![of(&moved), of(&fixed)])
    }

    fn loss(similarity: &dyn SimilarityLoss, images: [&[f64]; 2], shape: [usize; 5]) -> f64 {
        evaluate(similarity, images, shape, &Device::flex(), DType::F64).0
    }

    /// A pair with a relation that is not linear, and noise.
    fn pair(len: usize, seed: u64) -> [Vec<f64>; 2] {
        let fixed = uniform(len, 0.05, 0.95, seed);
        let noise = uniform(len, -0.05, 0.05, seed + 1);
        let moved = fixed.iter().zip(noise).map(|(f, n)| 0.9 - 0.8 * f * f + n).collect();
        [moved, fixed]
    }

    #[test]
    fn an_image_has_its_entropy_as_information_about_itself() {
        // 1, 2, 3 and 6 of 12 voxels in bins 0, 2, 4 and 7 of 8.
        let counts = [(0.05, 1), (0.3, 2), (0.55, 3), (0.99, 6)];
        let image: Vec<f64> =
            counts.iter().flat_map(|(v, count)| std::iter::repeat_n(*v, *count)).collect();
        let entropy: f64 = counts
            .iter()
            .map(|(_, count)| f64::from(*count as u32) / 12.0)
            .map(|p| -p * p.ln())
            .sum();
        // Any relabelling of the intensities has the same information.
        let relabelled: Vec<f64> = image.iter().map(|v| (1.3 * v + 0.2) % 1.0).collect();
        let [mi, nmi] = losses(delta(8));
        for other in [&image, &relabelled] {
            let images = [&other[..], &image];
            let shape = [1, 1, 1, 3, 4];
            assert!((loss(&*mi, images, shape) + entropy).abs() < EMPTY_CELLS);
            assert!(loss(&*nmi, images, shape).abs() < EMPTY_CELLS);
        }
    }

    #[test]
    fn independent_noise_has_no_mutual_information() {
        let shape = [1, 1, 40, 50, 50];
        let (a, b) = (uniform(100_000, 0.0, 1.0, 1), uniform(100_000, 0.0, 1.0, 2));
        let [mi, nmi] = losses(delta(16));
        // The bias of the estimate is (B - 1)^2 / 2 n = 1.1e-3, its deviation a tenth of that.
        let value = -loss(&*mi, [&a, &b], shape);
        assert!((value - 225.0 / 200_000.0).abs() < 5e-4, "{value}");
        assert!(loss(&*nmi, [&a, &b], shape) > 0.999);
        // A table that is a product by construction: every pair of eight levels once.
        let grid = |f: fn(usize) -> usize| -> Vec<f64> {
            (0..64).map(|voxel| f(voxel) as f64 / 8.0 + 0.03).collect()
        };
        let (a, b) = (grid(|voxel| voxel / 8), grid(|voxel| voxel % 8));
        for kernel in [ParzenKernel::BSpline3, ParzenKernel::Gaussian { sigma_bins: 1.0 }] {
            let [mi, nmi] = losses(HistogramOptions { kernel, ..Default::default() });
            assert!(loss(&*mi, [&a, &b], [1, 1, 1, 8, 8]).abs() < EMPTY_CELLS, "{kernel:?}");
            assert!(
                (loss(&*nmi, [&a, &b], [1, 1, 1, 8, 8]) - 1.0).abs() < EMPTY_CELLS,
                "{kernel:?}"
            );
        }
    }

    #[test]
    fn related_images_score_better_than_scrambled_ones() {
        let [moved, fixed] = pair(240, 3);
        let mut scrambled = moved.clone();
        scrambled.rotate_left(17);
        for mode in [HistogramMode::Exact, HistogramMode::Approximate] {
            for similarity in losses(HistogramOptions { mode, ..Default::default() }) {
                let related = loss(&*similarity, [&moved, &fixed], SHAPE);
                let unrelated = loss(&*similarity, [&scrambled, &fixed], SHAPE);
                let label = format!("{similarity:?}: {related} against {unrelated}");
                assert!(related < unrelated - 0.05, "{label}");
                assert!(related < 1.0 && unrelated <= 1.0, "{label}");
            }
        }
    }

    #[test]
    fn batch_entries_are_averaged_and_parts_add_up() {
        let [moved, fixed] = pair(240, 4);
        for similarity in losses(HistogramOptions::default()) {
            let whole = loss(&*similarity, [&moved, &fixed], SHAPE);
            let halves = [0..120, 120..240].map(|n| [&moved[n.clone()], &fixed[n]]);
            let [first, second] = halves.map(|n| loss(&*similarity, n, [1, 1, 4, 5, 6]));
            assert!((whole - (first + second) / 2.0).abs() < ROUNDING, "{similarity:?}");
            let [moved, fixed] =
                [&moved, &fixed].map(|v| tensor::<5>(v, SHAPE, &Device::flex(), DType::F64));
            let slab = |planes: std::ops::Range<usize>| {
                let part = |t: &Tensor<5>| t.clone().narrow(2, planes.start, planes.len());
                similarity.partial(&Pair::new(part(&moved), part(&fixed)))
            };
            let count = Pair::new(moved.clone(), fixed.clone()).count();
            let parts = similarity.finish(slab(0..1) + slab(1..4), count);
            assert!((to_f64(parts)[0] - whole).abs() < ROUNDING, "{similarity:?}");
        }
    }

    #[test]
    fn a_mask_leaves_voxels_out() {
        let [moved, fixed] = pair(240, 8);
        let mask: Vec<f64> = (0..240).map(|voxel| f64::from(voxel % 3 == 0)).collect();
        let kept = |image: &[f64]| -> Vec<f64> { image.iter().step_by(3).copied().collect() };
        let of = |v: &[f64], shape| tensor::<5>(v, shape, &Device::flex(), DType::F64);
        let [whole, part] = [[1, 1, 4, 6, 10], [1, 1, 4, 2, 10]];
        let masked = Pair::weighted(of(&moved, whole), of(&fixed, whole), Some(of(&mask, whole)));
        for similarity in losses(HistogramOptions::default()) {
            let expected = loss(&*similarity, [&kept(&moved), &kept(&fixed)], part);
            let found = to_f64(similarity.loss_of(&masked))[0];
            assert!((found - expected).abs() < ROUNDING, "{similarity:?}: {found}");
        }
    }

    #[test]
    fn gradients_agree_with_finite_differences() {
        for kernel in [ParzenKernel::BSpline3, ParzenKernel::Gaussian { sigma_bins: 1.5 }] {
            for similarity in losses(HistogramOptions { bins: 16, kernel, ..Default::default() }) {
                let inputs = pair(80, 5).to_vec();
                let shape = [2, 1, 2, 4, 5];
                let checks = gradcheck(&["moved", "fixed"], &inputs, 1e-4, |inputs| {
                    let images = [&inputs[0][..], &inputs[1]];
                    evaluate(&*similarity, images, shape, &Device::flex(), DType::F64)
                });
                for check in checks {
                    assert!(check.error < FINITE_DIFFERENCES, "{similarity:?}: {check:?}");
                }
            }
        }
    }

    #[test]
    fn constant_images_give_finite_numbers() {
        let [moved, _] = pair(240, 6);
        let (zeros, ones) = (vec![0.0; 240], vec![1.0; 240]);
        for options in [delta(32), HistogramOptions::default()] {
            for similarity in losses(options) {
                for images in [[&zeros, &zeros], [&zeros, &ones], [&moved, &zeros]] {
                    let images = images.map(|image| &image[..]);
                    let (value, gradients) =
                        evaluate(&*similarity, images, SHAPE, &Device::flex(), DType::F32);
                    let unrelated =
                        if format!("{similarity:?}").starts_with('N') { 1.0 } else { 0.0 };
                    assert!((value - unrelated).abs() < 1e-5, "{similarity:?}: {value}");
                    assert!(gradients.iter().flatten().all(|g| g.is_finite()), "{similarity:?}");
                }
            }
        }
    }

    #[test]
    fn empty_cells_do_not_matter() {
        // Finer bins leave most of the table empty; the value stays that of the filled cells.
        let image: Vec<f64> = (0..64).map(|voxel| f64::from(voxel % 4) / 4.0 + 0.1).collect();
        let device = Device::flex();
        let image: Tensor<5> = tensor(&image, [1, 1, 4, 4, 4], &device, DType::F32);
        let joint = joint_histogram(image.clone(), image, &delta(256));
        let value = to_f64(mutual_information(joint.clone()))[0];
        assert!((value - 4f64.ln()).abs() < 1e-6, "{value}");
        assert!((to_f64(normalized_mutual_information(joint))[0] - 1.0).abs() < 1e-6);
    }

    #[test]
    fn gpu_agrees_with_cpu() {
        for (name, device) in gpu_devices() {
            for shape in [SHAPE, [1, 1, 21, 22, 23]] {
                let [moved, fixed] = pair(shape.iter().product(), 7);
                for similarity in losses(HistogramOptions::default()) {
                    let run = |device: &Device, dtype| {
                        evaluate(&*similarity, [&moved, &fixed], shape, device, dtype)
                    };
                    let (expected, gradients) = run(&Device::flex(), DType::F64);
                    let (actual, others) = run(&device, DType::F32);
                    let label = format!("{name} {shape:?} {similarity:?}");
                    let error = (actual - expected).abs();
                    assert!(error < GPU_VALUE, "{label}: {actual} against {expected}");
                    print!("loss {label}: value {error:.1e}");
                    for (actual, expected) in others.iter().zip(&gradients) {
                        print!(
                            " gradient {:.1e}",
                            assert_close(&label, actual, expected, GPU_GRADIENT)
                        );
                    }
                    println!();
                }
            }
        }
    }
}
