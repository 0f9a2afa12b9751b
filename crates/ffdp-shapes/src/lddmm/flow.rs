//! A deformation of all of space, as it is kept and applied: in f64 on the CPU, or on a device.

use std::sync::Arc;

use burn::tensor::{DType, Device, Tensor};
use ffdp_image::image::{Affine, Geometry, Physical, PointMap};
use ffdp_image::{Error, Result};
use serde::{Deserialize, Serialize};

use super::hamiltonian::{Hamiltonian, Metric};
use super::path::{Path, Scheme};
use super::settings::LddmmSettings;
use crate::kernel::{Decay, Kernel};
use crate::shape::{Position, Shape};
use crate::tensors::{TensorOptions, to_points, to_tensor};

/// What a deformation is made of: enough to repeat it anywhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedFlow {
    /// Widths of the kernel, in mm.
    pub sigmas_mm: Vec<f64>,
    /// How it decays.
    #[serde(default)]
    pub decay: Decay,
    /// The metric.
    pub metric: Metric,
    /// The integration.
    pub scheme: Scheme,
    /// Its steps.
    pub steps: usize,
    /// The linear map that comes first, rows of `[L | t]` in RAS mm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<[[f64; 4]; 3]>,
    /// Control points at t = 0, RAS mm.
    pub control_points_mm: Vec<Position>,
    /// Their momenta at t = 0.
    pub momenta: Vec<Position>,
}

/// A deformation.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    saved: SavedFlow,
}

/// Points that are carried at once: a grid of millions would need all stages of all of them.
const CHUNK: usize = 1 << 16;

impl Flow {
    pub(super) fn new(
        settings: &LddmmSettings,
        control_points_mm: Vec<Position>,
        momenta: Vec<Position>,
    ) -> Self {
        let LddmmSettings { sigmas_mm, decay, metric, scheme, steps, .. } = settings.clone();
        let start = None;
        let flow = SavedFlow {
            sigmas_mm,
            decay,
            metric,
            scheme,
            steps,
            start,
            control_points_mm,
            momenta,
        };
        Self { saved: flow }
    }

    /// The same after a linear map, which comes before a linear map that is there already.
    ///
    /// # Errors
    /// [`Error::Singular`] for a map without an inverse.
    pub fn after(mut self, map: &Affine<Physical, Physical>) -> Result<Self> {
        let map = self.start(Direction::Forward)?.map_or(*map, |start| map.then(&start));
        self.saved.start = Some(*map.rows());
        Self::from_saved(self.saved)
    }

    /// A deformation as it was saved.
    ///
    /// # Errors
    /// [`Error::Invalid`] for widths that are not positive, no steps, numbers that are not finite, and momenta that do
    /// not fit the points; [`Error::Singular`] for a linear map without an inverse.
    pub fn from_saved(saved: SavedFlow) -> Result<Self> {
        let SavedFlow { sigmas_mm, steps, control_points_mm: q, momenta: p, .. } = &saved;
        let finite = q.iter().chain(p).flatten().all(|v| v.is_finite());
        let widths = !sigmas_mm.is_empty() && sigmas_mm.iter().all(|s| *s > 0.0 && s.is_finite());
        if !(finite && widths && *steps > 0 && q.len() == p.len() && !q.is_empty()) {
            let what = "a deformation needs positive widths and steps, and a finite momentum for every point";
            let value =
                format!("{sigmas_mm:?}, {steps} steps, {} points, {} momenta", q.len(), p.len());
            return Err(Error::invalid(what, value, "the file is damaged; compute it again"));
        }
        let flow = Self { saved };
        flow.start(Direction::Back)?;
        Ok(flow)
    }

    /// The linear map before the flow; its inverse, which comes after the flow, on the way back.
    fn start(&self, direction: Direction) -> Result<Option<Affine<Physical, Physical>>> {
        let start = self.saved.start.map(Affine::from_rows);
        match direction {
            Direction::Forward => Ok(start),
            Direction::Back => start.map(|map| map.inverse()).transpose(),
        }
    }

    /// To be saved.
    pub fn saved(&self) -> &SavedFlow {
        &self.saved
    }

    fn hamiltonian(&self) -> Hamiltonian {
        let SavedFlow { sigmas_mm, decay, metric, .. } = &self.saved;
        Hamiltonian { kernel: Kernel::sum_of(*decay, sigmas_mm), metric: *metric }
    }

    fn path(&self, place: TensorOptions) -> Path {
        let SavedFlow { scheme, steps, control_points_mm, momenta, .. } = &self.saved;
        let state = [to_tensor(control_points_mm, place), to_tensor(momenta, place)];
        Path::shoot(&self.hamiltonian(), state, *scheme, *steps, 1.0)
    }

    fn path_back(&self, place: TensorOptions) -> Path {
        let end = self.path(place).end().clone();
        let SavedFlow { scheme, steps, .. } = &self.saved;
        Path::shoot(&self.hamiltonian(), end, *scheme, *steps, -1.0)
    }

    fn path_along(&self, direction: Direction, place: TensorOptions) -> Path {
        match direction {
            Direction::Forward => self.path(place),
            Direction::Back => self.path_back(place),
        }
    }

    /// Where points go, RAS mm; computed in f64 on the CPU.
    ///
    /// # Errors
    /// [`Error::Device`] when they cannot be read back.
    pub fn map_points(&self, points: &[Position]) -> Result<Vec<Position>> {
        self.map_points_along(Direction::Forward, points)
    }

    /// Where points come from: the inverse map, the same geodesic backwards.
    ///
    /// # Errors
    /// As [`Flow::map_points`].
    pub fn map_points_back(&self, points: &[Position]) -> Result<Vec<Position>> {
        self.map_points_along(Direction::Back, points)
    }

    fn map_points_along(&self, direction: Direction, points: &[Position]) -> Result<Vec<Position>> {
        let place = (&Device::flex(), DType::F64);
        self.carried(direction, &self.path_along(direction, place), points, place)
    }

    /// Points along the path of a direction, with the linear map before or after it.
    fn carried(
        &self,
        direction: Direction,
        path: &Path,
        points: &[Position],
        place: TensorOptions,
    ) -> Result<Vec<Position>> {
        let start = self.start(direction)?;
        let moved = |points: &[Position]| match &start {
            Some(map) => points.iter().map(|&p| map.apply(p)).collect(),
            None => points.to_vec(),
        };
        match direction {
            Direction::Forward => carried(path, &moved(points), place),
            Direction::Back => Ok(moved(&carried(path, points, place)?)),
        }
    }

    /// The shape at the end.
    ///
    /// # Errors
    /// As [`Flow::map_points`].
    pub fn apply(&self, shape: &Shape) -> Result<Shape> {
        shape.with_points(self.map_points(&shape.points)?)
    }

    /// The flow as a step of a transform (`ffdp_burn::transform::Step::Map`). A transform maps points of the fixed to
    /// points of the moving image: [`Direction::Back`] carries images and labels of the source onto the target.
    pub fn as_map(&self, direction: Direction) -> Arc<dyn PointMap> {
        Arc::new(FlowMap { flow: self.clone(), direction })
    }

    /// The displacements in mm from the voxels of a grid, in their order: for an image that is sampled through it,
    /// `moved(x) = image(x + u(x))`. `Direction::Back` samples the source on the grid of the target.
    ///
    /// # Errors
    /// As [`Flow::map_points`].
    pub fn displacement_mm(
        &self,
        grid: &Geometry,
        direction: Direction,
        device: &Device,
    ) -> Result<Vec<Position>> {
        let place = (device, DType::F32);
        let path = self.path_along(direction, place);
        let to_mm = grid.voxel_to_mm();
        let voxel = |offset: usize| to_mm.apply(grid.index_of(offset).map(|v| v as f64));
        let mut displacement = Vec::with_capacity(grid.len());
        for start in (0..grid.len()).step_by(CHUNK) {
            let here: Vec<Position> = (start..grid.len().min(start + CHUNK)).map(voxel).collect();
            let there = self.carried(direction, &path, &here, place)?;
            displacement.extend(there.iter().zip(&here).map(|(&a, &b)| crate::shape::sub(a, b)));
        }
        Ok(displacement)
    }
}

/// Which way a flow is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the source to the target.
    Forward,
    /// From the target to the source.
    Back,
}

impl Direction {
    fn opposite(self) -> Self {
        match self {
            Self::Forward => Self::Back,
            Self::Back => Self::Forward,
        }
    }
}

/// A flow that is followed one way.
#[derive(Clone, Debug)]
struct FlowMap {
    flow: Flow,
    direction: Direction,
}

impl PointMap for FlowMap {
    /// The path of the control points is computed again for every call: they are hundreds.
    fn map(&self, points: Tensor<2>) -> Tensor<2> {
        let (device, dtype) = (points.device(), points.dtype());
        let path = self.flow.path_along(self.direction, (&device, dtype));
        let count = points.dims()[0];
        let start = self.flow.start(self.direction).expect("it was inverted when it was read");
        let moved = |points: Tensor<2>| match &start {
            Some(map) => linear(points, map),
            None => points,
        };
        let carried = |points: Tensor<2>| match self.direction {
            Direction::Forward => path.carry_to_end(moved(points)),
            Direction::Back => moved(path.carry_to_end(points)),
        };
        let chunks = (0..count)
            .step_by(CHUNK)
            .map(|from| carried(points.clone().narrow(0, from, CHUNK.min(count - from))));
        Tensor::cat(chunks.collect(), 0)
    }

    fn inverse(&self) -> Arc<dyn PointMap> {
        self.flow.as_map(self.direction.opposite())
    }
}

/// A linear map of `[N, 3]`, entry by entry: a product of matrices may round to fewer digits on a GPU.
fn linear(points: Tensor<2>, map: &Affine<Physical, Physical>) -> Tensor<2> {
    let place = (&points.device(), points.dtype());
    let row = |c: usize| {
        let [x, y, z, shift] = map.rows()[c];
        let weights = to_tensor(&[[x, y, z]], place);
        (points.clone() * weights).sum_dim(1).add_scalar(shift)
    };
    Tensor::cat(vec![row(0), row(1), row(2)], 1)
}

fn carried(path: &Path, points: &[Position], place: TensorOptions) -> Result<Vec<Position>> {
    let mut all = Vec::with_capacity(points.len());
    for chunk in points.chunks(CHUNK) {
        all.extend(to_points(path.carry_to_end(to_tensor(chunk, place)))?);
    }
    Ok(all)
}
