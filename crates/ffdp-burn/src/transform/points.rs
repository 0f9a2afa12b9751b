//! Points of physical space on their way through the steps of a transform.

use std::ops::Range;

use burn::tensor::{DType, Device, Tensor, TensorData};

use super::displacement::Displacement;
use super::resample::{affine_tensor, map_vectors};
use super::step::Step;
use crate::ops::{
    GridSampleOptions, Interpolation, Padding, affine_field, extremes, grid_sample, inverse,
    sum_of_all,
};
use ffdp_image::error::{Error, Result};
use ffdp_image::image::{Affine, Geometry, Physical, Voxel, download};

/// The points `B p + d(p)` for all elements `p` of an array: voxels of a grid, or a list.
///
/// Affine steps only change `B` and turn `d`; no grid of positions is stored.
#[derive(Clone, Debug)]
pub(super) struct Points {
    /// Extent (D, H, W) of the array.
    size: [usize; 3],
    /// `B`.
    affine: Affine<Voxel, Physical>,
    /// `d`, `[1, 3, D, H, W]` in RAS mm.
    displacement: Option<Tensor<5>>,
    device: Device,
    dtype: DType,
}

impl Points {
    /// The voxels of a grid, in f32 on `device`.
    pub fn of_grid(grid: &Geometry, device: &Device) -> Self {
        Self {
            size: grid.dims(),
            affine: grid.voxel_to_mm(),
            displacement: None,
            device: device.clone(),
            dtype: DType::F32,
        }
    }

    /// Points in RAS mm, in f64 on the CPU.
    pub fn listed(points: &[[f64; 3]]) -> Self {
        let (device, dtype) = (Device::flex(), DType::F64);
        let count = points.len();
        let values: Vec<f64> = (0..3).flat_map(|c| points.iter().map(move |p| p[c])).collect();
        let data = TensorData::new(values, [1, 3, 1, 1, count]);
        Self {
            size: [1, 1, count],
            affine: Affine::from_rows([[0.0; 4]; 3]),
            displacement: Some(Tensor::from_data(data, (&device, dtype))),
            device,
            dtype,
        }
    }

    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Where the step takes the points.
    pub fn then(self, step: &Step) -> Self {
        match step {
            Step::Affine(affine) => Self {
                affine: self.affine.then(affine),
                displacement: self.displacement.map(|d| map_vectors(d, &affine.linear())),
                ..self
            },
            Step::Displacement(step) => {
                let u = self.read(step);
                self.moved(u)
            }
            Step::Inverse(step) => {
                let grid = step.geometry();
                let points = (!self.are_voxels_of(grid)).then(|| self.indices(grid));
                let solution = inverse(self.field(step), points);
                self.moved(map_vectors(solution, &grid.voxel_to_mm().linear()))
            }
            Step::Bspline(step) => {
                let u = step.at(self.indices(step.geometry()));
                self.moved(u)
            }
            Step::InverseBspline(step) => {
                let s = step.inverse_at(self.indices(step.geometry()));
                self.moved(s)
            }
            Step::Map(map) => {
                let here = rows(self.positions());
                let u = map.map(here.clone()) - here;
                let [d, h, w] = self.size;
                self.moved(u.transpose().reshape([1, 3, d, h, w]))
            }
        }
    }

    fn moved(self, by: Tensor<5>) -> Self {
        let displacement = Some(match self.displacement {
            None => by,
            Some(d) => d + by,
        });
        Self { displacement, ..self }
    }

    /// `u` at the points, in mm.
    fn read(&self, step: &Displacement) -> Tensor<5> {
        let grid = step.geometry();
        let field = self.field(step);
        let there = match self.are_voxels_of(grid) {
            true => field,
            false => self.sample(field, grid, Interpolation::Linear, Padding::Border),
        };
        map_vectors(there, &grid.voxel_to_mm().linear())
    }

    fn are_voxels_of(&self, grid: &Geometry) -> bool {
        self.displacement.is_none() && self.affine == grid.voxel_to_mm() && self.size == grid.dims()
    }

    /// `u` in voxels, where and as the points are computed.
    fn field(&self, step: &Displacement) -> Tensor<5> {
        step.field().clone().to_device(&self.device).cast(self.dtype)
    }

    /// An image on `grid` at the points, zero outside.
    pub fn image(&self, image: Tensor<5>, grid: &Geometry, how: Interpolation) -> Tensor<5> {
        self.sample(image, grid, how, Padding::Zeros)
    }

    fn sample(
        &self,
        image: Tensor<5>,
        grid: &Geometry,
        interpolation: Interpolation,
        padding: Padding,
    ) -> Tensor<5> {
        let to_voxel = grid.mm_to_voxel();
        let affine = affine_tensor(&self.affine.then(&to_voxel), &self.device, self.dtype);
        let options = GridSampleOptions {
            interpolation,
            padding,
            displacement_scale: to_voxel.linear(),
            size: Some(self.size),
            ..GridSampleOptions::default()
        };
        grid_sample(image, Some(affine), self.displacement.clone(), &options)
    }

    /// The points as continuous indices of `grid`, `[1, 3, D, H, W]`.
    pub fn indices(&self, grid: &Geometry) -> Tensor<5> {
        let to_voxel = grid.mm_to_voxel();
        self.added_to(&self.affine.then(&to_voxel), &to_voxel)
    }

    /// The planes of a grid that are read for an image on it at the points, and one more on either side: positions are
    /// rounded. Empty where all points lie before or behind it.
    pub fn planes(&self, grid: &Geometry) -> Result<Range<usize>> {
        let row = self.affine.then(&grid.mm_to_voxel()).rows()[2];
        let [low, high] = match self.displacement {
            None => {
                let [d, h, w] = self.size.map(|n| (n - 1) as f64);
                let ends = [row[0] * w, row[1] * h, row[2] * d];
                let sum = |end: fn(f64, f64) -> f64| ends.iter().map(|&v| end(v, 0.0)).sum::<f64>();
                [row[3] + sum(f64::min), row[3] + sum(f64::max)]
            }
            Some(_) => {
                let z = extremes(self.indices(grid).narrow(1, 2, 1));
                let ends = download(z, "the planes that a map reaches")?;
                [ends[0].into(), ends[1].into()]
            }
        };
        let count = grid.size[2];
        if !(low.is_finite() && high.is_finite()) {
            return Ok(0..count);
        }
        let [first, end] = [low.floor() - 1.0, high.floor() + 3.0];
        let [first, end] = [first, end].map(|plane| plane.clamp(0.0, count as f64) as usize);
        Ok(first..end)
    }

    /// Part of the points, in percent, that lie inside a grid, its outer voxel faces included.
    pub fn percent_inside(&self, grid: &Geometry) -> Result<f64> {
        let indices = self.indices(grid);
        let inside = (0..3).map(|c| {
            let index = indices.clone().narrow(1, c, 1);
            let last = grid.size[c] as f64 - 0.5;
            index.clone().greater_equal_elem(-0.5).bool_and(index.lower_equal_elem(last))
        });
        let inside = inside.reduce(Tensor::bool_and).expect("three axes");
        let points = inside.shape().num_elements() as f64;
        let count = sum_of_all(inside.float()).try_into_vec_as::<f32>();
        let count = count.map_err(|reason| Error::device("reading back an overlap", reason))?;
        Ok(100.0 * f64::from(count[0]) / points)
    }

    /// `G^-1 (B p + d(p)) - p`, in voxels of the grid `G` whose voxels the points were.
    pub fn displacement_voxels(&self, grid: &Geometry) -> Tensor<5> {
        assert_eq!(self.size, grid.dims(), "displacement_voxels: points of another grid");
        let to_voxel = grid.mm_to_voxel();
        let mut rows = *self.affine.then(&to_voxel).rows();
        (0..3).for_each(|i| rows[i][i] -= 1.0);
        self.added_to(&Affine::from_rows(rows), &to_voxel)
    }

    /// `map p + L d(p)`, with `L` the linear part of `to_voxel`.
    fn added_to(
        &self,
        map: &Affine<Voxel, Voxel>,
        to_voxel: &Affine<Physical, Voxel>,
    ) -> Tensor<5> {
        affine_field(map.rows(), &to_voxel.linear(), self.displacements())
    }

    /// The points, `[1, 3, D, H, W]` in RAS mm.
    fn positions(&self) -> Tensor<5> {
        let unchanged = Affine::<Physical, Physical>::identity().linear();
        affine_field(self.affine.rows(), &unchanged, self.displacements())
    }

    /// `d`, also where nothing has displaced the points.
    fn displacements(&self) -> Tensor<5> {
        let [d, h, w] = self.size;
        let none = || Tensor::zeros([1, 3, d, h, w], (&self.device, self.dtype));
        self.displacement.clone().unwrap_or_else(none)
    }

    /// The points, in RAS mm and in order.
    pub fn to_list(&self) -> Result<Vec<[f64; 3]>> {
        let values = rows(self.positions())
            .try_into_vec_as::<f64>()
            .map_err(|reason| Error::device("reading back points", reason))?;
        Ok(values.as_chunks::<3>().0.to_vec())
    }
}

/// Vectors `[1, 3, D, H, W]` as `[D H W, 3]`.
fn rows(vectors: Tensor<5>) -> Tensor<2> {
    let [_, _, d, h, w] = vectors.dims();
    vectors.reshape([3, d * h * w]).transpose()
}
