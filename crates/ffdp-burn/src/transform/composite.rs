//! Transforms that are made of others, one after the other, in physical space.

use std::ops::Range;

use burn::tensor::{Device, Tensor};

use super::displacement::Displacement;
use super::points::Points;
use super::step::Step;
use crate::ops::Interpolation;
use ffdp_image::error::Result;
use ffdp_image::image::{Affine, Geometry, LabelMap, Physical, SmoothImage, Volume, download};

/// The map `phi = step_n o .. o step_1` from points of the fixed to points of the moving image: the
/// first step is applied first.
///
/// A registration is `[Displacement(w), Affine(A)]`: `phi(x) = A (x + w(x))`. ITK and ANTs list the
/// same transforms in the opposite order (the last of the list is applied first).
#[derive(Clone, Debug, Default)]
pub struct Composite {
    steps: Vec<Step>,
}

impl Composite {
    /// The map that applies `steps` from the first to the last; none is the identity.
    pub fn new(steps: Vec<Step>) -> Self {
        Self { steps }
    }

    /// The steps, the first applied first.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The grid of the first step, if that is a displacement.
    pub fn first_grid(&self) -> Option<&Geometry> {
        match self.steps.first()? {
            Step::Displacement(first) => Some(first.geometry()),
            _ => None,
        }
    }

    /// This map first, then `next`.
    pub fn then(mut self, next: Self) -> Self {
        self.steps.extend(next.steps);
        self
    }

    /// The inverse map: the inverse steps in the opposite order, `((id + w)^-1 o A^-1)` for
    /// `A o (id + w)`. Nothing is computed yet but the inverses of matrices: see [`Step::Inverse`].
    ///
    /// # Errors
    /// [`Error::Singular`](ffdp_image::Error::Singular) for an affine map that cannot be inverted reliably.
    pub fn inverse(&self) -> Result<Self> {
        let inverse = |step: &Step| {
            Ok(match step {
                Step::Affine(affine) => Step::Affine(affine.inverse()?),
                Step::Displacement(displacement) => Step::Inverse(displacement.clone()),
                Step::Inverse(displacement) => Step::Displacement(displacement.clone()),
                Step::Bspline(spline) => Step::InverseBspline(spline.clone()),
                Step::InverseBspline(spline) => Step::Bspline(spline.clone()),
                Step::Map(map) => Step::Map(map.inverse()),
            })
        };
        Ok(Self { steps: self.steps.iter().rev().map(inverse).collect::<Result<_>>()? })
    }

    /// The whole map as one matrix, if all its steps are affine.
    pub fn as_affine(&self) -> Option<Affine<Physical, Physical>> {
        self.steps.iter().try_fold(Affine::identity(), |map, step| match step {
            Step::Affine(next) => Some(map.then(next)),
            _ => None,
        })
    }

    /// The linear steps that come last as one matrix, and what comes before them.
    pub fn split_affine(&self) -> (Self, Affine<Physical, Physical>) {
        let linear = self.steps.iter().rev().take_while(|step| matches!(step, Step::Affine(_)));
        let (before, last) = self.steps.split_at(self.steps.len() - linear.count());
        let affine = Self::new(last.to_vec()).as_affine().expect("they are linear");
        (Self::new(before.to_vec()), affine)
    }

    /// The map at all voxels of a grid, for several images.
    pub fn on_grid(&self, grid: &Geometry, device: &Device) -> GridMap {
        GridMap { grid: grid.clone(), points: Points::of_grid(grid, device) }.then(self)
    }

    /// The whole map as one displacement on a grid, whatever the steps: `phi(p) = p + u(p)` at its
    /// voxels.
    pub fn to_displacement(&self, grid: &Geometry, device: &Device) -> Displacement {
        self.on_grid(grid, device).displacement()
    }

    /// The points (RAS mm) where `points` go; computed in f64 on the CPU.
    ///
    /// # Errors
    /// [`Error::Device`](ffdp_image::Error::Device) when a displacement cannot be read back from its device.
    pub fn map_points(&self, points: &[[f64; 3]]) -> Result<Vec<[f64; 3]>> {
        if points.is_empty() {
            return Ok(Vec::new());
        }
        self.steps.iter().fold(Points::listed(points), Points::then).to_list()
    }

    /// The image seen through the map, `moving(phi(x))` on `grid`; trilinear, sampled once however
    /// many steps there are, zero outside the image.
    ///
    /// # Errors
    /// [`Error::Device`](ffdp_image::Error::Device) when the result cannot be read back.
    pub fn warp(&self, moving: &Volume, grid: &Geometry, device: &Device) -> Result<Volume> {
        self.on_grid(grid, device).warp(moving, Interpolation::Linear)
    }

    /// The labels seen through the map, by [`Interpolation::Nearest`] or by the smoother
    /// [`Interpolation::Label`]; background 0 outside.
    ///
    /// # Errors
    /// [`Error::Invalid`](ffdp_image::Error::Invalid) for more than 2^24 labels beyond 2^24,
    /// [`Error::Device`](ffdp_image::Error::Device) when the result cannot be read back.
    ///
    /// # Panics
    /// If labels were to be mixed: linear interpolation.
    pub fn warp_labels(
        &self,
        moving: &LabelMap,
        grid: &Geometry,
        how: Interpolation,
        device: &Device,
    ) -> Result<LabelMap> {
        self.on_grid(grid, device).warp_labels(moving, how)
    }
}

impl From<Affine<Physical, Physical>> for Composite {
    fn from(affine: Affine<Physical, Physical>) -> Self {
        Self::new(vec![Step::Affine(affine)])
    }
}

/// A map evaluated at the voxels of one grid, ready for any number of images.
#[derive(Clone, Debug)]
pub struct GridMap {
    grid: Geometry,
    points: Points,
}

impl GridMap {
    /// The grid.
    pub fn grid(&self) -> &Geometry {
        &self.grid
    }

    /// Where it is evaluated.
    pub fn device(&self) -> &Device {
        self.points.device()
    }

    /// This map first, then `next`.
    pub fn then(self, next: &Composite) -> Self {
        let points = next.steps.iter().fold(self.points, Points::then);
        Self { points, ..self }
    }

    /// The planes of an image on `image` that are read where it is seen through the map; empty where the map leads past
    /// all of them.
    ///
    /// # Errors
    /// [`Error::Device`](ffdp_image::Error::Device) when they cannot be read back.
    pub fn planes_of(&self, image: &Geometry) -> Result<Range<usize>> {
        self.points.planes(image)
    }

    /// Values on `grid` (`[1, C, D', H', W']`) seen through the map, `[1, C, D, H, W]`; zero outside.
    pub fn sample(&self, values: Tensor<5>, grid: &Geometry, how: Interpolation) -> Tensor<5> {
        self.points.image(values, grid, how)
    }

    /// The image seen through the map, `moving(phi(x))`; zero outside the image.
    ///
    /// # Errors
    /// [`Error::Device`](ffdp_image::Error::Device) when the result cannot be read back.
    pub fn warp(&self, moving: &Volume, how: Interpolation) -> Result<Volume> {
        let image = moving.to_tensor(self.points.device());
        Volume::from_tensor(self.points.image(image, &moving.geometry, how), self.grid.clone())
    }

    /// The values of an image seen through the map as [`GridMap::warp`] gives them, read by a kernel that is smoother; on
    /// the host. `outside` where the image is not.
    ///
    /// # Errors
    /// As there.
    pub fn read_smoothly(&self, image: &SmoothImage, outside: f32) -> Result<Vec<f32>> {
        let points = download(self.points.indices(image.geometry()), "positions")?;
        let count = self.grid.len();
        let at = |i: usize| [0, 1, 2].map(|c| f64::from(points[c * count + i]));
        Ok(image.at_all(count, outside, at))
    }

    /// As [`Composite::warp_labels`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// If labels were to be mixed: linear interpolation.
    pub fn warp_labels(&self, moving: &LabelMap, how: Interpolation) -> Result<LabelMap> {
        assert!(how != Interpolation::Linear, "warp_labels: a mean of labels is no label");
        let (labels, meaning) = moving.to_movable_tensor(self.points.device())?;
        let warped = self.points.image(labels, &moving.geometry, how);
        let values = download(warped, "warped labels")?;
        LabelMap::new(meaning.labels(values), self.grid.clone())
    }

    /// Part of the grid, in percent, whose points the map takes into an image (voxel faces included).
    ///
    /// # Errors
    /// [`Error::Device`](ffdp_image::Error::Device) when it cannot be read back.
    pub fn percent_inside(&self, image: &Geometry) -> Result<f64> {
        self.points.percent_inside(image)
    }

    /// The map as one displacement on the grid.
    pub fn displacement(&self) -> Displacement {
        Displacement::new(self.points.displacement_voxels(&self.grid), self.grid.clone())
            .expect("the points are those of the grid")
    }
}
