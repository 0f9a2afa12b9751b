//! Whole training steps.

use std::fmt;
use std::time::Instant;

use burn::optim::GradientsParams;
use burn::tensor::{Device, Distribution, Int, Tensor};
use ffdp::losses::{Lncc, MutualInformation, SimilarityLoss, diffusion, label_dice_loss};
use ffdp::nets::{Resolution, TransMorph, TransMorphConfig, Variant};
use ffdp::ops;
use ffdp_train::AmsGrad;
use serde::Serialize;

/// Labels of the Dice term, as in OASIS.
pub const LABELS: i32 = 36;
/// Steps before those that count, the first excepted.
const WARM_UP: usize = 2;

/// What is trained with which loss; all have diffusion.
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// Width and depth.
    pub variant: Variant,
    /// Where the flow is predicted.
    pub resolution: Resolution,
    /// MI in place of LNCC.
    pub mutual_information: bool,
    /// With Dice.
    pub dice: bool,
}

const fn case(name: &'static str, variant: Variant, resolution: Resolution) -> Case {
    Case { name, variant, resolution, mutual_information: false, dice: false }
}

/// The published recipes: IXI at full resolution, OASIS at half.
pub const CASES: &[Case] = &[
    case("tiny full, LNCC", Variant::Tiny, Resolution::Full),
    case("base full, LNCC", Variant::Base, Resolution::Full),
    case("small full, LNCC", Variant::Small, Resolution::Full),
    case("small half, LNCC", Variant::Small, Resolution::Half),
    Case { dice: true, ..case("small half, LNCC + Dice", Variant::Small, Resolution::Half) },
    case("large half, LNCC", Variant::Large, Resolution::Half),
    Case { dice: true, ..case("large half, LNCC + Dice", Variant::Large, Resolution::Half) },
    Case {
        dice: true,
        mutual_information: true,
        ..case("large half, MI + Dice", Variant::Large, Resolution::Half)
    },
];

impl Case {
    /// The network's settings for images of `size`.
    pub fn config(&self, size: [usize; 3]) -> TransMorphConfig {
        TransMorphConfig::new(self.variant).with_resolution(self.resolution).for_size(size)
    }
}

/// A pair of images with labels.
pub struct Problem {
    /// Extents (D, H, W).
    pub size: [usize; 3],
    /// Without autodiff.
    pub device: Device,
    /// Images, uniform in [0, 1).
    pub images: [Tensor<5>; 2],
    /// Label maps, blocks of 8 voxels.
    pub labels: [Tensor<5, Int>; 2],
}

/// The figures of one case.
#[derive(Debug, Serialize)]
pub struct Figures {
    step_s: f64,
    forward_s: f64,
    backward_s: f64,
    optimizer_s: f64,
    in_a_row_s: f64,
    host_s: f64,
    first_s: f64,
    reserved_gb: Option<f64>,
}

/// The names of the columns.
pub fn print_header() {
    println!(
        "{:<34} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>12}",
        "case",
        "s/step",
        "forward",
        "backward",
        "Adam",
        "in a row",
        "host",
        "first s",
        "reserved GB"
    );
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step_s, forward_s, backward_s, optimizer_s, first_s, reserved_gb, .. } = self;
        write!(f, "{step_s:>9.4} {forward_s:>9.4} {backward_s:>9.4} {optimizer_s:>9.4} ")?;
        write!(f, "{:>9.4} {:>9.4} ", self.in_a_row_s, self.host_s)?;
        match reserved_gb {
            Some(gb) => write!(f, "{first_s:>9.1} {gb:>12.2}"),
            None => write!(f, "{first_s:>9.1} {:>12}", "-"),
        }
    }
}

impl Problem {
    /// Random images and labels on `device`, which does not track gradients.
    pub fn new(size: [usize; 3], device: Device) -> Self {
        let [d, h, w] = size;
        let uniform = |high| Distribution::Uniform(0.0, high);
        let image = || Tensor::random([1, 1, d, h, w], uniform(1.0), &device);
        let labels = || {
            let [bd, bh, bw] = size.map(|extent| extent.div_ceil(8));
            let blocks =
                Tensor::<6>::random([bd, 1, bh, 1, bw, 1], uniform(LABELS as f64), &device);
            let wide = blocks.floor().expand([bd, 8, bh, 8, bw, 8]);
            let whole = wide.reshape([1, 1, 8 * bd, 8 * bh, 8 * bw]);
            whole.slice([0..1, 0..1, 0..d, 0..h, 0..w]).int()
        };
        let (images, labels) = ([image(), image()], [labels(), labels()]);
        Self { size, device, images, labels }
    }

    /// Trains for some steps.
    pub fn measure(&self, case: &Case, steps: usize) -> Figures {
        self.device.memory_cleanup();
        let device = self.device.clone().autodiff();
        let mut network = case.config(self.size).init(&device);
        let mut adam = AmsGrad::with_epsilon(1e-8).init();
        let (mut first_s, mut times) = (0.0, Vec::new());
        for i in 0..1 + WARM_UP + steps {
            let start = self.now();
            let loss = self.loss(case, &network);
            let forward = self.now();
            let gradients = loss.backward();
            let backward = self.now();
            let gradients = GradientsParams::from_grads(gradients, &network);
            network = adam.step(1e-4, network, gradients);
            let end = self.now();
            let parts = [end - start, forward - start, backward - forward, end - backward];
            let parts = parts.map(|part| part.as_secs_f64());
            match i {
                0 => {
                    let [all, forward, backward, adam] = parts;
                    eprintln!(
                        "{}: first step {all:.1} s (forward {forward:.1}, backward {backward:.1}, \
                         Adam {adam:.1})",
                        case.name
                    );
                    first_s = all;
                }
                i if i > WARM_UP => times.push(parts),
                _ => {}
            }
        }
        // As a training takes them: nothing waits for the device between them.
        let start = self.now();
        for _ in 0..steps {
            let gradients = self.loss(case, &network).backward();
            let gradients = GradientsParams::from_grads(gradients, &network);
            network = adam.step(1e-4, network, gradients);
        }
        let host_s = start.elapsed().as_secs_f64() / steps as f64;
        let in_a_row_s = (self.now() - start).as_secs_f64() / steps as f64;
        let median = |part: usize| {
            let mut times: Vec<f64> = times.iter().map(|t| t[part]).collect();
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        };
        Figures {
            step_s: median(0),
            forward_s: median(1),
            backward_s: median(2),
            optimizer_s: median(3),
            in_a_row_s,
            host_s,
            first_s,
            reserved_gb: self
                .device
                .memory_pool_usage()
                .map(|usage| usage.bytes_reserved as f64 / 1e9),
        }
    }

    fn loss(&self, case: &Case, network: &TransMorph) -> Tensor<1> {
        let [moving, fixed] = self.images.clone().map(|image| image.autodiff());
        let displacement = network.forward(moving.clone(), fixed.clone());
        let moved = ops::warp(moving, displacement.clone());
        let similarity: &dyn SimilarityLoss = if case.mutual_information {
            &MutualInformation::default()
        } else {
            &Lncc::transmorph()
        };
        let loss = similarity.loss(moved, fixed) + diffusion(displacement.clone());
        if case.dice { loss + self.overlap(displacement) } else { loss }
    }

    /// The Dice term of the labels after `displacement`.
    pub fn overlap(&self, displacement: Tensor<5>) -> Tensor<1> {
        let [moving, fixed] = self.labels.clone().map(|labels| labels.autodiff());
        let ids: Vec<i32> = (0..LABELS).collect();
        label_dice_loss(moving, fixed, displacement, &ids)
    }

    fn now(&self) -> Instant {
        self.device.sync().expect("the device executes what it was given");
        Instant::now()
    }
}
