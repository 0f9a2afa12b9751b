//! A similarity of one's own: normalised gradient fields (Haber and Modersitzki 2006), which compare where edges lie
//! and how they are turned, not how bright anything is.
//!
//! ```text
//! n = (grad M . grad F)^2 / ((|grad M|^2 + e^2) (|grad F|^2 + e^2))           loss = 1 - mean n
//! ```
//! Two methods are enough: the sums of a part of an image, and the loss of those of all parts. Burn's tape gives the
//! gradient, and the engine cuts the images: the same struct works for whole volumes, linear stages, shards, slabs and
//! processes.
//!
//! `cargo run --example custom_similarity`

use burn::tensor::{Device, Tensor};
use ffdp::Result;
use ffdp::losses::{Pair, SimilarityLoss};
use ffdp::parallel::DeviceMesh;
use ffdp::register::{
    self, LevelSettings, Register, Registration, Settings, Stage, methods::GreedySettings,
};
use ffdp::synth::{PhantomSettings, pair};

/// Normalised gradient fields.
#[derive(Debug)]
pub struct GradientFields {
    /// `e`: edges fainter than this, in intensity a voxel, count less.
    pub edge: f64,
}

/// Forward differences along x, y, z where all three exist, `[N, C, D - 1, H - 1, W - 1]` each.
fn differences(image: &Tensor<5>) -> [Tensor<5>; 3] {
    let [_, _, d, h, w] = image.dims();
    let part = |[z, y, x]: [usize; 3]| {
        image.clone().narrow(2, z, d - 1).narrow(3, y, h - 1).narrow(4, x, w - 1)
    };
    [[0, 0, 1], [0, 1, 0], [1, 0, 0]].map(|step| part(step) - part([0; 3]))
}

impl SimilarityLoss for GradientFields {
    fn partial(&self, pair: &Pair) -> Tensor<1> {
        let (m, f) = (differences(&pair.moved), differences(&pair.fixed));
        let dot = |a: &[Tensor<5>; 3], b: &[Tensor<5>; 3]| {
            let [x, y, z] = [0, 1, 2].map(|axis| a[axis].clone() * b[axis].clone());
            x + y + z
        };
        let e2 = self.edge * self.edge;
        let aligned = dot(&m, &f);
        let lengths = dot(&m, &m).add_scalar(e2) * dot(&f, &f).add_scalar(e2);
        let n = aligned.clone() * aligned / lengths;
        let n = match &pair.weights {
            None => n,
            Some(weights) => {
                let [_, _, d, h, w] = weights.dims();
                n * weights.clone().narrow(2, 0, d - 1).narrow(3, 0, h - 1).narrow(4, 0, w - 1)
            }
        };
        n.sum()
    }

    fn finish(&self, total: Tensor<1>, count: Tensor<1>) -> Tensor<1> {
        (total / count).neg().add_scalar(1.0)
    }

    /// A difference looks at the next voxel.
    fn reach_voxels(&self) -> usize {
        1
    }

    /// The loss is linear in the sums: one pass over the parts is enough.
    fn is_mean(&self) -> bool {
        true
    }
}

/// Registers two phantoms, of which the moving one has its intensities turned over, in so many shards.
///
/// # Errors
/// Those of a registration.
pub fn run(shards: usize) -> Result<Registration> {
    let pair = pair(&PhantomSettings::with_size([48; 3]), 3)?;
    let mut moving = pair.moving.image.clone();
    let brightest = moving.data.iter().copied().fold(0.0, f32::max);
    moving.data.iter_mut().filter(|v| **v > 0.1).for_each(|v| *v = 1.1 * brightest - *v);

    let greedy = GreedySettings {
        similarity: register::Similarity::own(GradientFields { edge: 0.05 }),
        levels: [(2.0, 40), (1.0, 20)]
            .map(|(shrink, iterations)| LevelSettings { shrink, iterations })
            .to_vec(),
        ..GreedySettings::default()
    };
    let settings = Settings { stages: vec![Stage::Greedy(greedy)], ..Settings::default() };
    let mesh = DeviceMesh::new(&[Device::flex()], shards)?;
    Register::new(&pair.fixed.image, &moving).settings(&settings).on(&mesh).run()
}

#[allow(dead_code)] // A test includes this file.
fn main() -> Result<()> {
    for shards in [1, 3] {
        let found = run(shards)?;
        println!("{shards} shards: loss {:.4} -> {:.4}", found.loss_before, found.loss_after);
    }
    Ok(())
}
