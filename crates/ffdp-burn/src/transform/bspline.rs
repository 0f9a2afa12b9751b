//! A free-form deformation with its place in space.

use burn::tensor::{DType, Device, Tensor, TensorData};

use super::resample::map_vectors;
use crate::ops::{Beyond, ControlGrid, bspline, bspline_at, inverse};
use ffdp_image::error::{Error, Result};
use ffdp_image::image::Geometry;
use ffdp_kit::TensorPlace;

/// The map `x -> x + u(x)` with `u` a cubic B-spline on a control grid of any place and direction, in RAS mm.
///
/// `u` is zero wherever one of the four control points of an axis is missing, as in ITK's
/// `BSplineTransform`. Coefficients are kept in f64 on the host: a control grid is small, and points are
/// carried in f64.
#[derive(Clone, Debug, PartialEq)]
pub struct BsplineTransform {
    coefficients: Vec<f64>,
    geometry: Geometry,
}

/// Voxels a spacing of the dense field that the solver of [`inverse`] begins with.
const FINE: usize = 4;

/// Cosines of axes that are the same: what files lose to rounding.
const SAME_AXIS: f64 = 1e-6;

/// Corrections of an inverse by the exact field; each takes off all but a few percent of what is left.
const CORRECTIONS: usize = 6;

impl BsplineTransform {
    /// A transform from its coefficients in RAS mm: all x components, then y, then z, x fastest, at the control
    /// points of `geometry`.
    ///
    /// # Errors
    /// [`Error::Shape`] when there are not three coefficients a control point, [`Error::Invalid`] for fewer than
    /// four control points along an axis.
    pub fn new(coefficients: Vec<f64>, geometry: Geometry) -> Result<Self> {
        let (expected, got) = (3 * geometry.len(), coefficients.len());
        if expected != got {
            let what = "number of coefficients of a B-spline".into();
            return Err(Error::Shape { what, expected: vec![expected], got: vec![got] });
        }
        if geometry.size.iter().any(|n| *n < 4) {
            return Err(Error::invalid(
                "a cubic B-spline has four or more control points along every axis",
                format_args!("{:?}", geometry.size),
                "repeat the control points of an axis that does not vary",
            ));
        }
        Ok(Self { coefficients, geometry })
    }

    /// The transform of a control grid of a fixed image: coefficients `[1, 3, d, h, w]` in its voxels, as
    /// [`bspline()`] takes them. An axis with a single control point gets four equal ones, so that it has a cell.
    ///
    /// # Errors
    /// [`Error::Device`] when the coefficients cannot be read back, and those of [`Self::new`].
    pub fn from_control_grid(
        coefficients: Tensor<5>,
        grid: &ControlGrid,
        fixed: &Geometry,
    ) -> Result<Self> {
        let repeats = |axis: usize| if coefficients.dims()[axis] == 1 { 4 } else { 1 };
        let repeats = [1, 1, repeats(2), repeats(3), repeats(4)];
        let coefficients = coefficients.repeat(&repeats).cast(DType::F64);
        let [_, _, d, h, w] = coefficients.dims();
        let to_mm = fixed.voxel_to_mm();
        let spacing = [0, 1, 2].map(|a| grid.spacing_voxels[a] * fixed.spacing_mm[a]);
        let geometry = Geometry::new([w, h, d], spacing)?
            .with_direction(fixed.direction)?
            .with_origin(to_mm.apply(grid.origin_voxels))?;
        let mm = map_vectors(coefficients.to_device(&Device::flex()), &to_mm.linear());
        let values = mm.try_into_vec_as::<f64>();
        let values =
            values.map_err(|reason| Error::device("reading back a control grid", reason))?;
        Self::new(values, geometry)
    }

    /// The coefficients `[1, 3, d, h, w]` in voxels of `grid`, and where the control points lie along its axes: what
    /// [`bspline()`] takes, on the device and in the precision of `like`.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the axes of the two grids differ.
    pub fn control_grid(
        &self,
        grid: &Geometry,
        like: &TensorPlace,
    ) -> Result<(Tensor<5>, ControlGrid)> {
        let own = &self.geometry;
        let axes = own.direction.iter().flatten().zip(grid.direction.iter().flatten());
        if axes.into_iter().any(|(a, b)| (a - b).abs() > SAME_AXIS) {
            return Err(Error::invalid(
                "a control grid is evaluated along axes that are its own",
                format_args!("{:?} and {:?}", own.direction, grid.direction),
                "apply it as a transform, which samples it anywhere",
            ));
        }
        let [d, h, w] = own.dims();
        let data = TensorData::new(self.coefficients.clone(), [1, 3, d, h, w]);
        let mm = Tensor::from_data(data, (&Device::flex(), DType::F64));
        let voxels = map_vectors(mm, &grid.mm_to_voxel().linear());
        let control = ControlGrid {
            spacing_voxels: [0, 1, 2].map(|a| own.spacing_mm[a] / grid.spacing_mm[a]),
            origin_voxels: grid.mm_to_voxel().apply(own.voxel_to_mm().apply([0.0; 3])),
            beyond: Beyond::Cut,
        };
        Ok((voxels.cast(like.dtype).to_device(&like.device), control))
    }

    /// The coefficients in RAS mm, in the order of [`Self::new`].
    pub fn coefficients(&self) -> &[f64] {
        &self.coefficients
    }

    /// The grid of the control points.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The coefficients where and as points are computed, in mm.
    fn tensor(&self, like: &Tensor<5>) -> Tensor<5> {
        let [d, h, w] = self.geometry.dims();
        let data = TensorData::new(self.coefficients.clone(), [1, 3, d, h, w]);
        Tensor::from_data(data.convert_dtype(like.dtype()), (&like.device(), like.dtype()))
    }

    /// `u` in mm at continuous indices of the control grid, `[1, 3, D, H, W]`.
    pub(super) fn at(&self, indices: Tensor<5>) -> Tensor<5> {
        bspline_at(self.tensor(&indices), indices, Beyond::Cut)
    }

    /// `s` in mm with `s + u(x + s) = 0` at continuous indices `x` of the control grid.
    ///
    /// The solver works on a dense trilinear field `T` near the spline `S`; what that misses is taken off its
    /// argument: `y <- y + x - S(T^-1(y))`, from `y = x` on.
    pub(super) fn inverse_at(&self, indices: Tensor<5>) -> Tensor<5> {
        let fine = FINE as f64;
        let to_voxels = self.geometry.mm_to_voxel().linear().map(|row| row.map(|v| v * fine));
        let coefficients = map_vectors(self.tensor(&indices), &to_voxels);
        let grid = ControlGrid {
            spacing_voxels: [fine; 3],
            origin_voxels: [-fine; 3],
            beyond: Beyond::Cut,
        };
        let size = self.geometry.dims().map(|controls| FINE * (controls - 3) + 1);
        let dense = bspline(coefficients.clone(), &grid, size);
        let solve = |y: &Tensor<5>| inverse(dense.clone(), Some(y.clone())) + y.clone();
        let exact = |z: &Tensor<5>| {
            let controls = z.clone().div_scalar(fine).add_scalar(1.0);
            bspline_at(coefficients.clone(), controls, Beyond::Cut) + z.clone()
        };
        let x = indices.sub_scalar(1.0).mul_scalar(fine);
        let mut y = x.clone();
        for _ in 0..CORRECTIONS {
            y = y.clone() + x.clone() - exact(&solve(&y));
        }
        let linear = self.geometry.voxel_to_mm().linear().map(|row| row.map(|v| v / fine));
        map_vectors(solve(&y) - x, &linear)
    }
}
