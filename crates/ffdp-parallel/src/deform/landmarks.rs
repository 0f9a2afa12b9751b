//! Corresponding points of both images as a term of the loss, which pulls at the displacement where they are:
//!
//! ```text
//! E = a / (2 sigma^2) sum_i |r_i|^2,    r_i = L (x_i + u(x_i)) + t - q_i,    dE/du(x) = a / sigma^2 sum_i c_i(x) L^T r_i
//! ```
//! `u` the displacement in voxels, trilinear between them, `c_i(x)` the weight of voxel x in that · `L`, `t` from fixed
//! voxels to mm of the moving image · `q_i` where the point belongs · `a` the weight. Of two halves, `x_i` is the point of the middle from which the half of the
//! fixed image leads to point i (`x <- p - u_fixed(x)`, a step with each evaluation), and both halves are pulled apart.
//!
//! Every shard reads what its own planes add to `u(x_i)`; the sums are those of all, so that every shard knows all `r_i`
//! and adds what falls on its planes and those around them.

use std::ops::Range;

use burn::Tensor;
use burn::tensor::{DType, IndexingUpdateOp, Int, TensorData};

use super::block::{Block, Pieces};
use super::view::Grid;
use crate::exchange::Reduction;
use crate::sharded::Sharded;
use ffdp_image::error::Result;
use ffdp_kit::TensorPlace;

/// Corresponding points, and how exactly they are known.
#[derive(Clone, Debug, PartialEq)]
pub struct Landmarks {
    /// Of the fixed image, (x, y, z) in its voxels.
    pub fixed_voxels: Vec<[f64; 3]>,
    /// How far the affine map alone takes each past its counterpart, in mm.
    pub offsets_mm: Vec<[f64; 3]>,
    /// `L`, from fixed voxels to mm of the moving image.
    pub linear_mm: [[f64; 3]; 3],
    /// `sigma`: the standard deviation of their distance, in mm.
    pub sigma_mm: f64,
    /// `a`: twice what a point costs that lies one standard deviation off.
    pub weight: f64,
}

/// The term of a problem.
pub(super) struct LandmarkTerm {
    landmarks: Landmarks,
    /// Where they are looked at, `[3, n]` voxels on the device of every shard: of halves in the middle.
    at: Vec<Tensor<2>>,
}

/// Of an evaluation, what the points add to the loss and to its gradient.
pub(super) struct Pull {
    at: Vec<Tensor<2>>,
    /// `a L^T r / sigma^2`, `[3, n]` on the device of every shard.
    force: Vec<Tensor<2>>,
    /// `E`, `[1]` on the device of the first shard.
    pub energy: Tensor<1>,
}

impl LandmarkTerm {
    pub fn new(landmarks: Landmarks, grid: &Grid, dtype: DType) -> Self {
        let home = |k: usize| TensorPlace::new(grid.homes.device(k), dtype);
        let start = |k: usize| matrix(&landmarks.fixed_voxels, &home(k));
        let at = (0..grid.layout.count()).map(start).collect();
        Self { at, landmarks }
    }

    /// What the points add where displacements, that of the moving image last, are as they are.
    pub fn pull(&mut self, displaced: &[Sharded], grid: &Grid) -> Result<Pull> {
        /// Steps towards the middle with each evaluation, beginning where the last one ended.
        const STEPS: usize = 2;
        let Landmarks { fixed_voxels, offsets_mm, linear_mm, sigma_mm, weight } = &self.landmarks;
        let last = displaced.last().expect("there is a field");
        if let [half, _] = displaced {
            for _ in 0..STEPS {
                let there = read(half, &self.at, grid)?;
                let moved =
                    there.into_iter().map(|u| matrix(fixed_voxels, &TensorPlace::of(&u)) - u);
                self.at = moved.collect();
            }
        }
        let displacement = read(last, &self.at, grid)?;
        let residuals = displacement.into_iter().zip(&self.at).map(|(u, at)| {
            let like = TensorPlace::of(&u);
            let constant = |columns: &[[f64; 3]]| matrix(columns, &like);
            let moved = at.clone() - constant(fixed_voxels) + u;
            constant(offsets_mm) + product(linear_mm, &moved)
        });
        let residuals: Vec<_> = residuals.collect();
        let precision = weight / sigma_mm.powi(2);
        let squares = residuals[0].clone().powi_scalar(2).sum();
        let energy = squares.mul_scalar(0.5 * precision);
        let back = transposed(linear_mm);
        let force = residuals.iter().map(|r| product(&back, r).mul_scalar(precision));
        Ok(Pull { at: self.at.clone(), force: force.collect(), energy })
    }
}

impl Pull {
    /// A gradient on the pieces of the block `inner` of shard `k` with `scale` `[1]` times that of the energy.
    pub fn add(&self, gradient: Pieces, inner: &Block, k: usize, scale: &Tensor<1>) -> Pieces {
        let force = self.force[k].clone() * scale.clone().reshape([1, 1]);
        let [of_below, of_own, of_above] = inner.pieces();
        let on = |piece: Tensor<5>, planes: Range<usize>| {
            let dims = piece.dims();
            let corners = Corners::of(&self.at[k], inner, planes, dims);
            let values = Tensor::cat(vec![force.clone(); 8], 1) * corners.weight;
            let flat = piece.reshape([3, dims[2] * dims[3] * dims[4]]);
            let update = IndexingUpdateOp::Add;
            flat.select_assign(1, corners.index, values, update).reshape(dims)
        };
        let Pieces { below, own, above } = gradient;
        Pieces {
            below: below.map(|piece| on(piece, of_below)),
            own: on(own, of_own),
            above: above.map(|piece| on(piece, of_above)),
        }
    }
}

/// A displacement `[1, 3, D, H, W]` at points `[3, n]`, on the device of every shard.
fn read(field: &Sharded, at: &[Tensor<2>], grid: &Grid) -> Result<Vec<Tensor<2>>> {
    let part = |k: usize| {
        let own = grid.homes.bring(k, field.shards()[k].clone());
        let dims = own.dims();
        assert!(dims[0] == 1, "landmarks: a batch of one, got {}", dims[0]);
        let block = grid.block(k);
        let corners = Corners::of(&at[k], &block, block.own.clone(), dims);
        let flat = own.reshape([3, dims[2] * dims[3] * dims[4]]);
        let n = at[k].dims()[1];
        let seen = flat.select(1, corners.index) * corners.weight;
        seen.reshape([3, 8, n]).sum_dim(1).reshape([3, n])
    };
    let parts = (0..grid.layout.count()).map(part).collect();
    grid.holders.all_reduce(parts, Reduction::Sum)
}

/// The eight voxels around each of n points, corner by corner.
struct Corners {
    /// In a tensor of some planes, `[8 n]`.
    index: Tensor<1, Int>,
    /// 0 of voxels on other planes, `[1, 8 n]`.
    weight: Tensor<2>,
}

impl Corners {
    /// Of points `[3, n]` in voxels of the whole, among those of the `planes` of a block, in a tensor `[.., D, H, W]`.
    fn of(at: &Tensor<2>, block: &Block, planes: Range<usize>, dims: [usize; 5]) -> Self {
        let (n, like) = (at.dims()[1], &TensorPlace::of(at));
        let cut = block.axis.component();
        let offsets: Vec<f64> = (0..3)
            .flat_map(|axis| (0..8).flat_map(move |c| vec![(c >> axis & 1) as f64; n]))
            .collect();
        let offset = data(offsets, 8 * n, like);
        let mut weight = Tensor::<2>::ones([1, 8 * n], like);
        let mut index = Tensor::<2, Int>::zeros([1, 8 * n], &like.device);
        let mut stride = 1;
        for axis in 0..3 {
            let size = if axis == cut { block.extent() } else { dims[4 - axis] };
            let row = at.clone().narrow(0, axis, 1).clamp(0.0, (size - 1) as f64);
            let base = row.clone().floor();
            let part = Tensor::cat(vec![row - base.clone(); 8], 1);
            let upper = offset.clone().narrow(0, axis, 1);
            let lower = upper.clone().neg().add_scalar(1.0);
            weight = weight * (upper.clone() * part.clone() + lower * part.neg().add_scalar(1.0));
            let mut place = Tensor::cat(vec![base; 8], 1) + upper;
            if axis == cut {
                place = place.sub_scalar(planes.start as f64);
                let last = planes.len() as f64 - 0.5;
                let inside =
                    place.clone().greater_elem(-0.5).bool_and(place.clone().lower_elem(last));
                weight = weight * inside.float().cast(like.dtype);
            }
            let place = place.clamp(0.0, (dims[4 - axis] - 1) as f64).int();
            index = index + place.mul_scalar(stride as i64);
            stride *= dims[4 - axis];
        }
        Self { index: index.reshape([8 * n]), weight }
    }
}

/// Columns `[3, n]`.
fn matrix(columns: &[[f64; 3]], like: &TensorPlace) -> Tensor<2> {
    let rows = (0..3).flat_map(|i| columns.iter().map(move |column| column[i]));
    data(rows.collect(), columns.len(), like)
}

fn data(rows: Vec<f64>, columns: usize, like: &TensorPlace) -> Tensor<2> {
    Tensor::from_data(TensorData::new(rows, [3, columns]).convert_dtype(like.dtype), like)
}

/// A matrix times columns `[3, n]`; small ones, for which a GPU would first try which of its ways is the fastest.
fn product(matrix: &[[f64; 3]; 3], columns: &Tensor<2>) -> Tensor<2> {
    let term = |factor: f64, j: usize| columns.clone().narrow(0, j, 1).mul_scalar(factor);
    let row = |row: &[f64; 3]| term(row[0], 0) + term(row[1], 1) + term(row[2], 2);
    Tensor::cat(matrix.iter().map(row).collect(), 0)
}

/// Rows as columns.
fn transposed(rows: &[[f64; 3]; 3]) -> [[f64; 3]; 3] {
    std::array::from_fn(|i| std::array::from_fn(|j| rows[j][i]))
}
