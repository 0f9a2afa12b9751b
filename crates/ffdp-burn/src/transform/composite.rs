//! Transforms that are made of others, one after the other, in physical space.

use burn::tensor::{DType, Device, Tensor};

use super::displacement::Displacement;
use super::resample::{affine_tensor, map_vectors};
use crate::error::{Error, Result};
use crate::image::{Affine, Geometry, LabelMap, Physical, Volume, Voxel};
use crate::ops::{GridSampleOptions, Interpolation, Padding, grid_sample};

/// One map of physical space.
#[derive(Clone, Debug)]
pub enum Step {
    /// `x -> L x + t`, in RAS mm.
    Affine(Affine<Physical, Physical>),
    /// `x -> x + u(x)`; beyond its grid, by the values at the border.
    Displacement(Displacement),
}

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

    /// This map first, then `next`.
    pub fn then(mut self, next: Self) -> Self {
        self.steps.extend(next.steps);
        self
    }

    /// The image seen through the map, `moving(phi(x))` on `grid`; trilinear, sampled once however
    /// many steps there are, zero outside the image.
    ///
    /// # Errors
    /// [`Error::Device`] when the result cannot be read back.
    pub fn warp(&self, moving: &Volume, grid: &Geometry, device: &Device) -> Result<Volume> {
        let map = OnGrid::new(self, grid, device);
        let image = moving.to_tensor(device);
        let warped = map.sample(image, &moving.geometry, Interpolation::Linear);
        Volume::from_tensor(warped, grid.clone())
    }

    /// The labels seen through the map, by [`Interpolation::Nearest`] or by the smoother
    /// [`Interpolation::Label`]; background 0 outside.
    ///
    /// # Errors
    /// [`Error::Invalid`] for labels beyond 2^24, [`Error::Device`] when the result cannot be read
    /// back.
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
        assert!(how != Interpolation::Linear, "warp_labels: a mean of labels is no label");
        let map = OnGrid::new(self, grid, device);
        let labels = moving.to_float_tensor(device)?;
        let values = map
            .sample(labels, &moving.geometry, how)
            .try_into_vec_as::<f32>()
            .map_err(|reason| Error::device("reading back warped labels", reason))?;
        // Whole numbers of at most 24 bits, copied: exact.
        LabelMap::new(values.into_iter().map(|v| v as i32).collect(), grid.clone())
    }
}

/// A composite on the voxels `p` of one grid: `phi(p) = B p + d(p)`. No grid of positions is stored.
struct OnGrid {
    grid: Geometry,
    /// `B`.
    affine: Affine<Voxel, Physical>,
    /// `d`, `[1, 3, D, H, W]` in RAS mm.
    displacement: Option<Tensor<5>>,
    device: Device,
}

impl OnGrid {
    fn new(composite: &Composite, grid: &Geometry, device: &Device) -> Self {
        let start = Self {
            grid: grid.clone(),
            affine: grid.voxel_to_mm(),
            displacement: None,
            device: device.clone(),
        };
        composite.steps.iter().fold(start, Self::then)
    }

    fn then(self, step: &Step) -> Self {
        match step {
            Step::Affine(affine) => Self {
                affine: self.affine.then(affine),
                displacement: self.displacement.map(|d| map_vectors(d, &affine.linear())),
                ..self
            },
            Step::Displacement(step) => {
                let u = self.read(step);
                let displacement = Some(match self.displacement {
                    None => u,
                    Some(d) => d + u,
                });
                Self { displacement, ..self }
            }
        }
    }

    /// `u(phi(p))` in mm.
    fn read(&self, step: &Displacement) -> Tensor<5> {
        let here = self.displacement.is_none() && self.affine == self.grid.voxel_to_mm();
        if here && *step.geometry() == self.grid {
            return step.to_mm();
        }
        let options =
            GridSampleOptions { padding: Padding::Border, ..self.options(step.geometry()) };
        let affine = self.index_map(step.geometry());
        let field = step.to_mm();
        grid_sample(field, Some(affine), self.displacement.clone(), &options)
    }

    /// An image on `grid` seen through the map.
    fn sample(&self, image: Tensor<5>, grid: &Geometry, how: Interpolation) -> Tensor<5> {
        let options = GridSampleOptions { interpolation: how, ..self.options(grid) };
        let affine = self.index_map(grid);
        grid_sample(image, Some(affine), self.displacement.clone(), &options)
    }

    /// `G^-1 B`, from voxels of the grid to those of `to`.
    fn index_map(&self, to: &Geometry) -> Tensor<3> {
        affine_tensor(&self.affine.then(&to.mm_to_voxel()), &self.device, DType::F32)
    }

    fn options(&self, to: &Geometry) -> GridSampleOptions {
        GridSampleOptions {
            displacement_scale: to.mm_to_voxel().linear(),
            size: Some(self.grid.dims()),
            ..GridSampleOptions::default()
        }
    }
}
