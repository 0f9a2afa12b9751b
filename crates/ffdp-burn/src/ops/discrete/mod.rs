//! Discrete search of large displacements by coupled convex optimisation (Siebert, Hansen and Heinrich 2021; Heinrich,
//! Papiez, Schnabel and Handels 2014): finds what descent along a gradient cannot, a structure that lies further away
//! than it is wide.
//!
//! ```text
//! F, M       features, means over cells of s^3 voxels: of F one for each control point, s apart
//! C(p, d) =  sum over channels of (F(p) - M(p + q d))^2        d in {-r..r}^3, q voxels a step
//! d(p)    =  the d of the least C(p, d) + theta |d - v(p)|^2   v the field d of before, smoothed
//! ```
//! for `theta` in [`THETAS`], one after the other, the first time without `v`. Both directions are searched, `u` from
//! fixed to moving and `w` back, and made each other's inverse: `u <- (u - w(p + u(p))) / 2` and the same for `w`, as
//! often as the options say.
//!
//! Beyond the image lies its nearest cell. Of equal costs the shortest displacement is taken. The scale of the features
//! counts, for `theta` does: descriptors in 0..1 of twelve channels, as of [`mind`](crate::ops::mind()), are what it is
//! made for. Corresponding points draw the control points near them (`points.rs`). Not differentiable.

use burn::Tensor;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, backend_extension};
use burn::tensor::{Shape, TensorData};

use crate::ops::{
    GaussianOptions, GridSampleOptions, Padding, compose, gaussian, grid_sample, warp,
};

#[cfg(feature = "cube")]
mod cube;
mod flex;
mod points;
#[cfg(test)]
mod tests;

pub use points::PointPairs;

/// How strongly a displacement is drawn to those around, one pass after the other (Siebert et al.).
pub const THETAS: [f64; 6] = [0.003, 0.01, 0.03, 0.1, 0.3, 1.0];

/// Options of [`discrete`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiscreteOptions {
    /// Voxels from one control point to the next along each axis; 1 to 16. Default 6.
    pub spacing_voxels: usize,
    /// Voxels from one displacement of the window to the next, by which the spacing can be divided. Default 6. Fine
    /// texture, of structures smaller than a cell, is matched by steps of half the spacing only.
    pub step_voxels: usize,
    /// Radius of the window of displacements, in steps; 1 to 8. Default 4: up to 24 voxels with the usual steps.
    pub radius: usize,
    /// Standard deviation of the smoothing of displacements, in control points. Default 1.
    pub sigma_points: f64,
    /// How often both directions are made each other's inverse. Default 15.
    pub consistency_iterations: usize,
    /// The costs take so many bytes at most, or those of one plane of control points. If all of them do not fit, they
    /// are computed for tiles of planes, and anew in every pass. Default 1 GiB.
    pub cost_bytes: usize,
}

impl Default for DiscreteOptions {
    fn default() -> Self {
        Self {
            spacing_voxels: 6,
            step_voxels: 6,
            radius: 4,
            sigma_points: 1.0,
            consistency_iterations: 15,
            cost_bytes: 1 << 30,
        }
    }
}

impl DiscreteOptions {
    /// A spacing, and steps as wide.
    pub fn coarse(spacing_voxels: usize, radius: usize) -> Self {
        Self { spacing_voxels, step_voxels: spacing_voxels, radius, ..Self::default() }
    }

    /// Control points of a volume along each axis.
    pub fn grid(&self, size: [usize; 3]) -> [usize; 3] {
        size.map(|voxels| voxels.div_ceil(self.spacing_voxels))
    }

    /// Bytes of all costs of a volume (D, H, W) in f32.
    pub fn all_cost_bytes(&self, size: [usize; 3]) -> usize {
        4 * self.grid(size).iter().product::<usize>() * Window::labels_of(self.radius)
    }

    /// Bytes of the costs of a volume (D, H, W) in f32 that are there at once.
    pub fn cost_bytes_at_once(&self, size: [usize; 3]) -> usize {
        let all = self.all_cost_bytes(size);
        all.min(self.cost_bytes.max(all / self.grid(size)[0].max(1)))
    }

    fn check(&self) {
        let Self { spacing_voxels: s, step_voxels: q, radius: r, sigma_points: sigma, .. } = *self;
        assert!(
            (1..=16).contains(&s),
            "discrete: the spacing must be within 1..=16 voxels, got {s}"
        );
        assert!(
            (1..=s).contains(&q) && s.is_multiple_of(q),
            "discrete: the step must divide the spacing, {s} voxels, got {q}"
        );
        assert!((1..=8).contains(&r), "discrete: the radius must be within 1..=8 steps, got {r}");
        assert!(
            sigma >= 0.0 && sigma.is_finite(),
            "discrete: sigma must not be negative, got {sigma}"
        );
    }
}

/// A window of displacements, and the planes of control points whose costs are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// `r`.
    pub radius: usize,
    /// Steps from one control point to the next.
    pub steps: usize,
    /// The first plane.
    pub first: usize,
    /// How many.
    pub planes: usize,
}

impl Window {
    fn labels_of(radius: usize) -> usize {
        (2 * radius + 1).pow(3)
    }

    /// Displacements of the window, dx fastest.
    pub(crate) fn labels(&self) -> usize {
        Self::labels_of(self.radius)
    }

    fn cost_shape(&self, features: &Shape) -> Shape {
        Shape::from([features[0], self.labels(), self.planes, features[3], features[4]])
    }
}

/// A cell, a cube of voxels, and the voxels from one to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cells {
    /// Voxels of a cell along each axis.
    pub width: usize,
    /// Voxels from one cell to the next.
    pub stride: usize,
}

/// Backend operations. Control grids `[N, C, D, H, W]`, costs `[N, (2 r + 1)^3, planes, H, W]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait DiscreteOps: Backend {
    /// Means over cells, those at the ends of as many voxels as there are.
    #[fusion(dtype = features, shape = pooled_shape(features, *cells))]
    fn pool_3d(features: FloatTensor<Self>, cells: Cells) -> FloatTensor<Self>;

    /// `C` of a window's planes; `moving` has a cell for each step.
    #[fusion(dtype = fixed, shape = { let _ = moving; window.cost_shape(fixed) })]
    fn displacement_costs_3d(
        fixed: FloatTensor<Self>,
        moving: FloatTensor<Self>,
        window: Window,
    ) -> FloatTensor<Self>;

    /// The `d` of the least `C + theta |d - v|^2` of a window's planes, `[N, 3, planes, H, W]`, components (x, y, z);
    /// `near` is `v` and `theta` of every point of the whole grid, `[N, 4, D, H, W]`.
    #[fusion(
        dtype = costs,
        shape = { let _ = near; Shape::from([costs[0], 3, costs[2], costs[3], costs[4]]) }
    )]
    fn least_displacement_3d(
        costs: FloatTensor<Self>,
        near: FloatTensor<Self>,
        window: Window,
    ) -> FloatTensor<Self>;
}

fn pooled_shape(features: &Shape, cells: Cells) -> Shape {
    let along = |axis: usize| features[axis].div_ceil(cells.stride);
    Shape::from([features[0], features[1], along(2), along(3), along(4)])
}

/// Nothing is differentiable: results are constants.
impl<B: DiscreteOps, C: CheckpointStrategy> DiscreteOps for Autodiff<B, C> {
    fn pool_3d(features: FloatTensor<Self>, cells: Cells) -> FloatTensor<Self> {
        <FloatTensor<Self>>::new(B::pool_3d(features.into_primitive(), cells))
    }

    fn displacement_costs_3d(
        fixed: FloatTensor<Self>,
        moving: FloatTensor<Self>,
        window: Window,
    ) -> FloatTensor<Self> {
        let (fixed, moving) = (fixed.into_primitive(), moving.into_primitive());
        <FloatTensor<Self>>::new(B::displacement_costs_3d(fixed, moving, window))
    }

    fn least_displacement_3d(
        costs: FloatTensor<Self>,
        near: FloatTensor<Self>,
        window: Window,
    ) -> FloatTensor<Self> {
        let (costs, near) = (costs.into_primitive(), near.into_primitive());
        <FloatTensor<Self>>::new(B::least_displacement_3d(costs, near, window))
    }
}

/// Displacements of control points, in voxels.
#[derive(Clone, Debug)]
pub struct ControlDisplacement {
    /// From the fixed to the moving image, `[N, 3, d, h, w]`, components (x, y, z).
    pub forward: Tensor<5>,
    /// And back.
    pub backward: Tensor<5>,
    /// Voxels between control points; the first is the middle of the first so many voxels along each axis.
    pub spacing_voxels: usize,
    /// The extent (D, H, W) of the volume.
    pub size: [usize; 3],
}

impl ControlDisplacement {
    /// The displacement of every voxel from the fixed to the moving image, `[N, 3, D, H, W]` in voxels: linear between
    /// control points, constant beyond.
    pub fn dense_forward(&self) -> Tensor<5> {
        dense(self.forward.clone(), self.spacing_voxels, self.size)
    }

    /// The same from the moving to the fixed image.
    pub fn dense_backward(&self) -> Tensor<5> {
        dense(self.backward.clone(), self.spacing_voxels, self.size)
    }
}

fn dense(field: Tensor<5>, spacing: usize, size: [usize; 3]) -> Tensor<5> {
    let (scale, shift) = (1.0 / spacing as f64, -((spacing - 1) as f64) / (2.0 * spacing as f64));
    let row = |axis: usize| {
        std::array::from_fn::<f64, 4, _>(|i| match i {
            3 => shift,
            i if i == axis => scale,
            _ => 0.0,
        })
    };
    let map = TensorData::from([[row(0), row(1), row(2)]]);
    let map = Tensor::<3>::from_data(map, (&field.device(), field.dtype()));
    let options = GridSampleOptions {
        padding: Padding::Border,
        size: Some(size),
        ..GridSampleOptions::default()
    };
    grid_sample(field, Some(map), None, &options)
}

/// The displacements, on a grid of control points, by which the features of two images match. Not differentiable.
///
/// # Shapes
/// fixed, moving `[N, C, D, H, W]`, features of two images of one grid, such as those of [`mind`](crate::ops::mind()).
///
/// # Errors of the result
/// Displacements are multiples of the step before they are smoothed: expect a fraction of it. A second, narrow round
/// ([`discrete_rounds`]) or a deformable method takes it from there.
///
/// # Panics
/// If the shapes differ, an axis has no voxels or an option is outside its range.
pub fn discrete(
    fixed: Tensor<5>,
    moving: Tensor<5>,
    options: &DiscreteOptions,
) -> ControlDisplacement {
    guided(fixed, moving, &Guide::default(), options)
}

/// What there is besides features to find a displacement by.
#[derive(Clone, Debug, Default)]
pub struct Guide {
    /// Weights in 0..1 of the voxels of the fixed and of the moving image, `[N, 1, D, H, W]`. The costs of a control point
    /// count by the mean weight of its cell: in the fixed image where displacements forth are searched, in the moving
    /// one for those back. Where nothing counts the displacement follows those around.
    pub weights: [Option<Tensor<5>>; 2],
    /// Points that belong together.
    pub pairs: Option<PointPairs>,
}

/// [`discrete`] with a guide.
fn guided(
    fixed: Tensor<5>,
    moving: Tensor<5>,
    guide: &Guide,
    options: &DiscreteOptions,
) -> ControlDisplacement {
    options.check();
    guide.pairs.iter().for_each(PointPairs::check);
    let (a, b) = (fixed.dims(), moving.dims());
    assert!(a == b, "discrete: fixed {a:?} and moving {b:?} must have the same shape");
    assert!(!a.contains(&0), "discrete: the images must have voxels, got {a:?}");
    let (width, step) = (options.spacing_voxels, options.step_voxels);
    let pooled = |features: &Tensor<5>, stride: usize| {
        let features = features.clone().detach().into_dispatch();
        let cells = Cells { width, stride };
        Tensor::<5>::from_dispatch(<Dispatch as DiscreteOps>::pool_3d(features, cells))
    };
    let search = |fixed: &Tensor<5>, moving: &Tensor<5>, weights: &Option<Tensor<5>>, pairs| {
        let weights = weights.as_ref().map(|weights| pooled(weights, width));
        let found = coupled(pooled(fixed, width), pooled(moving, step), weights, pairs, options);
        found.mul_scalar(step as f64 / width as f64)
    };
    let Guide { weights: [of_fixed, of_moving], pairs } = guide;
    let mut forward = search(&fixed, &moving, of_fixed, pairs.clone());
    let mut backward = search(&moving, &fixed, of_moving, pairs.as_ref().map(PointPairs::swapped));
    for _ in 0..options.consistency_iterations {
        // `compose` is `u(p) + w(p + u(p))`: what a pair of inverses has none of.
        let away = compose(backward.clone(), forward.clone()).mul_scalar(-0.5);
        let back = compose(forward.clone(), backward.clone()).mul_scalar(-0.5);
        (forward, backward) = (forward + away, backward + back);
    }
    ControlDisplacement {
        forward: forward.mul_scalar(width as f64),
        backward: backward.mul_scalar(width as f64),
        spacing_voxels: width,
        size: [a[2], a[3], a[4]],
    }
}

/// Several rounds of [`discrete`], such as a wide and a narrow one: each searches what is left after the features were
/// warped by those before. The displacement of every voxel from the fixed to the moving image, in voxels.
///
/// # Shapes
/// fixed, moving `[N, C, D, H, W]`; result `[N, 3, D, H, W]`, components (x, y, z).
///
/// # Panics
/// As [`discrete`], without a round, or for points that are not one to one, not finite or given for a batch of several.
pub fn discrete_rounds(
    fixed: Tensor<5>,
    moving: Tensor<5>,
    guide: &Guide,
    rounds: &[DiscreteOptions],
) -> Tensor<5> {
    assert!(!rounds.is_empty(), "discrete: at least one round is needed");
    let mut found: Option<Tensor<5>> = None;
    for options in rounds {
        let seen = |moving: Tensor<5>| match &found {
            None => moving,
            Some(field) => warp(moving, field.clone()),
        };
        let [of_fixed, of_moving] = guide.weights.clone();
        let pairs = guide.pairs.as_ref().map(|pairs| match &found {
            None => pairs.clone(),
            Some(field) => pairs.seen_through(field.clone()),
        });
        let left = Guide { weights: [of_fixed, of_moving.map(seen)], pairs };
        let more = guided(fixed.clone(), seen(moving.clone()), &left, options).dense_forward();
        found = Some(match found {
            None => more,
            Some(field) => compose(field, more),
        });
    }
    found.expect("there was a round")
}

/// Tiles of planes whose costs fit, `(first, planes)`.
fn tiles(features: &Tensor<5>, options: &DiscreteOptions) -> Vec<(usize, usize)> {
    let [n, _, d, h, w] = features.dims();
    let a_plane = n * Window::labels_of(options.radius) * h * w * features.dtype().size();
    let planes = (options.cost_bytes / a_plane).clamp(1, d);
    (0..d).step_by(planes).map(|first| (first, planes.min(d - first))).collect()
}

/// What a point counts of which nothing counts where displacements are smoothed: less than the ends of the Gaussian of those
/// that count, so that their displacements come to it, a few points with each pass.
const LEAST_WEIGHT: f64 = 1e-3;

/// The displacements of one direction, in steps; `weights` of the points `[N, 1, D, H, W]`.
fn coupled(
    fixed: Tensor<5>,
    moving: Tensor<5>,
    weights: Option<Tensor<5>>,
    pairs: Option<PointPairs>,
    options: &DiscreteOptions,
) -> Tensor<5> {
    let [n, _, d, h, w] = fixed.dims();
    let steps = options.spacing_voxels / options.step_voxels;
    let windows: Vec<Window> = tiles(&fixed, options)
        .into_iter()
        .map(|(first, planes)| Window { radius: options.radius, steps, first, planes })
        .collect();
    let costs_of = |window: &Window| {
        let (fixed, moving) = (fixed.clone().into_dispatch(), moving.clone().into_dispatch());
        let costs = Tensor::<5>::from_dispatch(<Dispatch as DiscreteOps>::displacement_costs_3d(
            fixed, moving, *window,
        ));
        match &weights {
            None => costs,
            Some(weights) => costs * weights.clone().narrow(2, window.first, window.planes),
        }
    };
    let like = (&fixed.device(), fixed.dtype());
    let ones = || Tensor::ones([n, 1, d, h, w], like);
    let drawing = pairs.map(|pairs| {
        let counted = weights.clone().unwrap_or_else(ones).sum().reshape([1, 1, 1, 1, 1]);
        pairs.drawing(&fixed, counted, options)
    });
    let kept = (windows.len() == 1).then(|| costs_of(&windows[0]));
    let best = |near: Tensor<5>, theta: f64| {
        let near = match &drawing {
            None => Tensor::cat(vec![near, ones().mul_scalar(theta)], 1),
            Some(drawing) => drawing.with(near, theta),
        };
        let of_tile = |window: &Window| {
            let costs = kept.clone().unwrap_or_else(|| costs_of(window)).into_dispatch();
            let near = near.clone().into_dispatch();
            Tensor::<5>::from_dispatch(<Dispatch as DiscreteOps>::least_displacement_3d(
                costs, near, *window,
            ))
        };
        let tiles: Vec<Tensor<5>> = windows.iter().map(of_tile).collect();
        if tiles.len() == 1 { tiles[0].clone() } else { Tensor::cat(tiles, 2) }
    };
    let counts = match &drawing {
        Some(drawing) => Some(weights.clone().unwrap_or_else(ones) + drawing.weight.clone()),
        None => weights.clone(),
    };
    let counts = counts.map(|counts| counts.add_scalar(LEAST_WEIGHT));
    let smoothing = GaussianOptions::isotropic(options.sigma_points);
    let smooth = |found: Tensor<5>| match &counts {
        None => gaussian(found, &smoothing),
        Some(counts) => {
            gaussian(found * counts.clone(), &smoothing) / gaussian(counts.clone(), &smoothing)
        }
    };
    let first = smooth(best(Tensor::zeros([n, 3, d, h, w], like), 0.0));
    THETAS.iter().fold(first, |near, theta| smooth(best(near, *theta)))
}
