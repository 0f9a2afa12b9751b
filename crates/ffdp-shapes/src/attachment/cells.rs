//! Centres, directions and sizes of cells as functions of the points, on the tape.

use burn::tensor::{DType, Int, Tensor, TensorData};

use crate::shape::{Cells, Shape};
use crate::tensors::TensorOptions;

/// Which points the cells of a shape join.
#[derive(Clone, Debug)]
pub(super) struct CellTensors {
    /// The first, second (third) point of every cell, `[F]` each; none for a cloud.
    corners: Vec<Tensor<1, Int>>,
}

/// Added to squared sizes, relative to their mean: the root of zero has no slope.
const SMALLEST: f64 = 1e-12;

impl CellTensors {
    pub fn new(shape: &Shape, (device, _): TensorOptions) -> Self {
        let (indices, corners) = shape.cells.indices();
        let count = if matches!(shape.cells, Cells::None) { 0 } else { corners };
        let corner = |k: usize| {
            let of_cell = indices.chunks_exact(corners).map(|cell| cell[k] as i32);
            let data = TensorData::new(of_cell.collect::<Vec<_>>(), [indices.len() / corners]);
            Tensor::from_data(data, (device, DType::I32))
        };
        Self { corners: (0..count).map(corner).collect() }
    }

    fn of_corners(&self, points: &Tensor<2>) -> Vec<Tensor<2>> {
        self.corners.iter().map(|corner| points.clone().select(0, corner.clone())).collect()
    }

    /// `[F, 3]`.
    pub fn centres(&self, points: &Tensor<2>) -> Tensor<2> {
        let count = self.corners.len() as f64;
        let sum = self.of_corners(points).into_iter().reduce(Tensor::add);
        sum.map_or_else(|| points.clone(), |sum| sum / count)
    }

    /// Edges, or normals as long as the area, `[F, 3]`; none for clouds.
    pub fn directions(&self, points: &Tensor<2>) -> Option<Tensor<2>> {
        match &self.of_corners(points)[..] {
            [a, b] => Some(b.clone() - a.clone()),
            [a, b, c] => Some(cross(b.clone() - a.clone(), c.clone() - a.clone()) * 0.5),
            _ => None,
        }
    }

    /// Lengths or areas, `[F, 1]`; 1 for the points of a cloud.
    pub fn measures(&self, points: &Tensor<2>, directions: Option<&Tensor<2>>) -> Tensor<2> {
        let Some(directions) = directions else {
            return Tensor::ones([points.dims()[0], 1], (&points.device(), points.dtype()));
        };
        let squares = directions.clone().square().sum_dim(1);
        let least = squares.clone().detach().mean().unsqueeze::<2>() * SMALLEST;
        (squares + least).sqrt()
    }
}

fn cross(a: Tensor<2>, b: Tensor<2>) -> Tensor<2> {
    let part = |t: &Tensor<2>, c: usize| t.clone().narrow(1, c % 3, 1);
    let component =
        |c: usize| part(&a, c + 1) * part(&b, c + 2) - part(&a, c + 2) * part(&b, c + 1);
    Tensor::cat((0..3).map(component).collect(), 1)
}
