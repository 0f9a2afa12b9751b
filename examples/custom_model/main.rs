//! A transform model of one's own: a sum of affine maps, each with a Gaussian around its centre (Arsigny et al. 2009), in
//! a page.
//!
//! ```text
//! u(x) = sum_k w_k(x) (L_k (x - c_k) / sigma + t_k)         w_k(x) = exp(-|x - c_k|^2 / 2 sigma^2) / sum_j ..
//! ```
//! A [`TransformModel`] says which displacement its parameters (`L_k`, `t_k`) stand for, in Burn's operations; gradients,
//! levels, similarities, masks, shards and the search are those of the engine.
//!
//! `cargo run --example custom_model`

use std::ops::Range;

use burn::tensor::{Device, Tensor, TensorData};
use ffdp::Result;
use ffdp::image::{Geometry, Volume};
use ffdp::parallel::DeviceMesh;
use ffdp::register::{
    LevelSettings, Placement, Register, Registration, Settings, Source, Stage,
    methods::{ModelSettings, TransformModel},
};
use ffdp::synth::{PhantomSettings, subject};
use ffdp::transform::{Composite, Displacement, Step};

/// A sum of affine maps.
#[derive(Debug)]
pub struct AffineSum {
    /// `c_k`, RAS mm.
    pub centres_mm: Vec<[f64; 3]>,
    /// `sigma`, mm.
    pub sigma_mm: f64,
}

impl AffineSum {
    /// `[N, 4 K]` of the voxel centres of planes: `w_k (x - c_k) / sigma` and `w_k`.
    fn basis(&self, grid: &Geometry, planes: Range<usize>) -> Vec<f32> {
        let [x, y, _] = grid.size;
        let to_mm = grid.voxel_to_mm();
        let mut basis = Vec::with_capacity(planes.len() * x * y * 4 * self.centres_mm.len());
        for offset in planes.start * x * y..planes.end * x * y {
            let p = to_mm.apply(grid.index_of(offset).map(|i| i as f64));
            let from = |c: &[f64; 3]| [0, 1, 2].map(|i| (p[i] - c[i]) / self.sigma_mm);
            let away: Vec<[f64; 3]> = self.centres_mm.iter().map(from).collect();
            let square = |d: &[f64; 3]| d.iter().map(|v| v * v).sum::<f64>();
            // The nearest one sets the scale: far from all of them their weights would vanish together.
            let nearest = away.iter().map(square).fold(f64::INFINITY, f64::min);
            let weights: Vec<f64> =
                away.iter().map(|d| (-0.5 * (square(d) - nearest)).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for (d, weight) in away.iter().zip(weights) {
                let weight = weight / sum;
                basis.extend([d[0], d[1], d[2], 1.0].map(|v| (weight * v) as f32));
            }
        }
        basis
    }
}

impl TransformModel for AffineSum {
    fn name(&self) -> &'static str {
        "affine sum"
    }

    /// For each centre three columns of `L_k` and `t_k`, in mm at a distance of `sigma`.
    fn at_rest(&self, _fixed: &Geometry) -> Vec<Vec<f32>> {
        vec![vec![0.0; 12]; self.centres_mm.len()]
    }

    fn displacement(
        &self,
        parameters: Tensor<2>,
        grid: &Geometry,
        planes: Range<usize>,
    ) -> Tensor<5> {
        let ([x, y, _], n, k) = (grid.size, planes.len(), self.centres_mm.len());
        let like = (parameters.device(), parameters.dtype());
        let shape = [n * x * y, 4 * k];
        let basis = TensorData::new(self.basis(grid, planes), shape);
        let basis = Tensor::<2>::from_data(basis, (&like.0, like.1));
        let mm = basis.matmul(parameters.reshape([4 * k, 3]));
        // Rows of the matrix from mm to voxels are columns here.
        let linear = grid.mm_to_voxel().linear();
        let rows: Vec<f32> = (0..9).map(|i| linear[i % 3][i / 3] as f32).collect();
        let to_voxels = Tensor::<2>::from_data(TensorData::new(rows, [3, 3]), (&like.0, like.1));
        mm.matmul(to_voxels).transpose().reshape([1, 3, n, y, x])
    }
}

/// A brain, and the same brain moved by such a sum: what is to be found again.
///
/// # Errors
/// None with these settings.
pub fn brains() -> Result<[Volume; 2]> {
    let moving = subject(&PhantomSettings::with_size([40; 3]), 3)?.image;
    let grid = moving.geometry.clone();
    let mut parameters = Vec::new();
    for side in [-1.0f32, 1.0] {
        parameters.extend([0.0, side * 3.0, 0.0, 2.0, 0.0, 1.0, 0.0, side * 2.0, 1.0]);
        parameters.extend([side * 4.0, 3.0, -2.0]);
    }
    let parameters = Tensor::from_data(TensorData::new(parameters, [2, 12]), &Device::flex());
    let field = model(&grid).displacement(parameters, &grid, 0..grid.size[2]);
    let map = Composite::new(vec![Step::Displacement(Displacement::new(field, grid.clone())?)]);
    Ok([map.warp(&moving, &grid, &Device::flex())?, moving])
}

/// Two maps, left and right of the middle.
fn model(grid: &Geometry) -> AffineSum {
    let [x, y, z] = grid.center_mm();
    AffineSum { centres_mm: vec![[x - 40.0, y, z], [x + 40.0, y, z]], sigma_mm: 50.0 }
}

/// Registers two images by it: in one piece, in shards of a mesh, or read slab by slab in little memory.
///
/// # Errors
/// Those of a registration.
pub fn run<'a>(
    fixed: impl Into<Source<'a>>,
    moving: impl Into<Source<'a>>,
    grid: &Geometry,
    placement: &Placement,
) -> Result<Registration> {
    let level = |shrink, iterations| LevelSettings { shrink, iterations };
    let search =
        ModelSettings { levels: vec![level(4.0, 20), level(2.0, 20)], ..ModelSettings::default() };
    let stages = vec![Stage::model(model(grid), search)];
    let settings = Settings { stages, minimum_axis_voxels: 8, ..Settings::default() };
    Register::new(fixed, moving).settings(&settings).on(placement).run()
}

#[allow(dead_code)] // A test includes this file.
fn main() -> Result<()> {
    let [fixed, moving] = brains()?;
    let grid = &fixed.geometry;
    for shards in [1, 3] {
        let mesh = DeviceMesh::new(&[Device::flex()], shards)?;
        let found = run(&fixed, &moving, grid, &Placement::DeviceMesh(mesh))?;
        println!("{shards} shards: loss {:.4} -> {:.4}", found.loss_before, found.loss_after);
    }
    Ok(())
}
