//! Corresponding points as a term of the loss of a velocity.
//!
//! ```text
//! E(v) = a / (2 sigma^2) sum_i |r_i|^2,   r_i = L (y_i - p_i) + t_i,   y_i the end of  dx/dt = -v(x),  x(0) = p_i
//! ```
//! `L`, `t_i` as [`Landmarks`] have them. The points go in the steps of the images' transport (Heun), with the velocity
//! trilinear between voxels:
//!
//! ```text
//! x' = x - dt / 2 (v(x) + v(b)),   b = x - dt v(x)
//! ```
//! Gradient and Gauss-Newton product are those of these steps, exactly: back through them with the transposed slopes of
//! the velocity, `H x = a / sigma^2 J^T L^T L J x`. A velocity is asked at the voxels around the `2 n` places of each
//! point, once for a product; all else is arithmetic of the host.

use ffdp_image::error::Result;
use ffdp_image::image::{Matrix3, apply3};
use ffdp_parallel::{Sharded, deform::Landmarks, periodic::PeriodicGrid};

/// Points of a periodic box, and where they belong.
pub(super) struct LandmarkTerm {
    /// `p_i`, (x, y, z) in voxels of the box.
    start: Vec<[f64; 3]>,
    landmarks: Landmarks,
}

/// The points' ways along a velocity.
pub(super) struct Paths {
    grid: PeriodicGrid,
    /// The voxels around all places, each once.
    voxels: Vec<[usize; 3]>,
    /// Two places a step, of all points: `x` and `b`.
    places: Vec<Vec<Place>>,
    /// `L^T L`, `a / sigma^2` times.
    metric: Matrix3,
    /// `dE / dy`.
    pub pull: Vec<[f64; 3]>,
    /// `E`.
    pub energy: f64,
}

/// Where a velocity is read.
struct Place {
    /// Eight voxels: of the box, and later of the list of all.
    corners: [usize; 8],
    weights: [f64; 8],
    /// The velocity, in voxels per unit time.
    velocity: [f64; 3],
    /// `slope[i][j]` its component i along axis j.
    slope: Matrix3,
}

impl LandmarkTerm {
    /// Points of an image whose first voxel is voxel `first` (x, y, z) of the box, and which ends `size` voxels later.
    pub fn new(landmarks: Landmarks, first: [usize; 3], size: [usize; 3]) -> Self {
        let inside = |p: &[f64; 3]| {
            std::array::from_fn(|a| p[a].clamp(0.0, (size[a] - 1) as f64) + first[a] as f64)
        };
        Self { start: landmarks.fixed_voxels.iter().map(inside).collect(), landmarks }
    }

    /// The ways along `velocity` `[1, 3, D, H, W]`, in the grid's unit per unit time, in so many steps; `E` and its
    /// derivatives count `scale` times.
    ///
    /// # Errors
    /// Those of [`PeriodicGrid::values_at`].
    pub fn follow(
        &self,
        grid: &PeriodicGrid,
        velocity: &Sharded,
        steps: usize,
        scale: f64,
    ) -> Result<Paths> {
        let dt = 1.0 / steps as f64;
        let mut at = self.start.clone();
        let mut places = Vec::with_capacity(2 * steps);
        for _ in 0..steps {
            let here = places_at(grid, velocity, &at)?;
            let there: Vec<_> = at.iter().zip(&here).map(|(x, p)| ahead(x, -dt, p)).collect();
            let there = places_at(grid, velocity, &there)?;
            for ((x, here), there) in at.iter_mut().zip(&here).zip(&there) {
                *x = ahead(&ahead(x, -0.5 * dt, here), -0.5 * dt, there);
            }
            places.extend([here, there]);
        }
        let Landmarks { offsets_mm, linear_mm, sigma_mm, weight, .. } = &self.landmarks;
        let precision = scale * weight / sigma_mm.powi(2);
        let (mut energy, mut pull) = (0.0, Vec::with_capacity(at.len()));
        for ((y, p), t) in at.iter().zip(&self.start).zip(offsets_mm) {
            let moved = apply3(linear_mm, std::array::from_fn(|a| y[a] - p[a]));
            let off: [f64; 3] = std::array::from_fn(|i| moved[i] + t[i]);
            energy += 0.5 * precision * off.iter().map(|r| r * r).sum::<f64>();
            pull.push(apply_transposed(linear_mm, &off).map(|x| precision * x));
        }
        let metric: Matrix3 = std::array::from_fn(|i| {
            let column = std::array::from_fn(|j| precision * linear_mm[j][i]);
            apply_transposed(linear_mm, &column)
        });
        let voxels = listed(grid, &mut places);
        Ok(Paths { grid: grid.clone(), voxels, places, metric, pull, energy })
    }
}

impl Paths {
    /// `dE / dv`, in the type of the field `like`.
    pub fn gradient(&self, like: &Sharded) -> Sharded {
        self.transposed(self.pull.clone(), like)
    }

    /// Gauss and Newton's product with a change `x` of the velocity.
    ///
    /// # Errors
    /// Those of [`PeriodicGrid::values_at`].
    pub fn product(&self, x: &Sharded) -> Result<Sharded> {
        let ends = self.tangent(x)?;
        Ok(self.transposed(ends.iter().map(|d| apply3(&self.metric, *d)).collect(), x))
    }

    /// How the ends change with the velocity.
    fn tangent(&self, x: &Sharded) -> Result<Vec<[f64; 3]>> {
        let voxel = self.grid.voxel();
        let changes: Vec<[f64; 3]> = self.grid.values_at(x, &self.voxels)?;
        let change = |place: &Place| {
            let mut sum = [0.0; 3];
            for (corner, weight) in place.corners.iter().zip(place.weights) {
                (0..3).for_each(|i| sum[i] += weight * changes[*corner][i] / voxel[i]);
            }
            sum
        };
        let dt = self.step();
        let mut moved = vec![[0.0; 3]; self.pull.len()];
        for step in self.places.chunks_exact(2) {
            for ((d, here), there) in moved.iter_mut().zip(&step[0]).zip(&step[1]) {
                let first = plus(&change(here), 1.0, &apply3(&here.slope, *d));
                let there_d = plus(d, -dt, &first);
                let second = plus(&change(there), 1.0, &apply3(&there.slope, there_d));
                *d = plus(&plus(d, -0.5 * dt, &first), -0.5 * dt, &second);
            }
        }
        Ok(moved)
    }

    /// The transpose of that, of what pulls at the ends.
    fn transposed(&self, mut pull: Vec<[f64; 3]>, like: &Sharded) -> Sharded {
        let (dt, voxel) = (self.step(), self.grid.voxel());
        let mut on_voxels = vec![[0.0; 3]; self.voxels.len()];
        let mut scatter = |place: &Place, to: &[f64; 3]| {
            for (corner, weight) in place.corners.iter().zip(place.weights) {
                (0..3).for_each(|i| on_voxels[*corner][i] += weight * to[i] / voxel[i]);
            }
        };
        for step in self.places.chunks_exact(2).rev() {
            for ((l, here), there) in pull.iter_mut().zip(&step[0]).zip(&step[1]) {
                let to_second = l.map(|l| -0.5 * dt * l);
                scatter(there, &to_second);
                let to_there = apply_transposed(&there.slope, &to_second);
                let to_first = plus(&to_second, -dt, &to_there);
                scatter(here, &to_first);
                let to_here = apply_transposed(&here.slope, &to_first);
                *l = plus(&plus(l, 1.0, &to_there), 1.0, &to_here);
            }
        }
        self.grid.field_of(&self.voxels, &on_voxels, like)
    }

    fn step(&self) -> f64 {
        2.0 / self.places.len() as f64
    }
}

/// The velocity and its slopes at points, in voxels; corners are numbers of voxels of the box.
fn places_at(grid: &PeriodicGrid, velocity: &Sharded, at: &[[f64; 3]]) -> Result<Vec<Place>> {
    let [depth, height, width] = grid.size();
    let (size, voxel) = ([width, height, depth], grid.voxel());
    let around = |p: &[f64; 3]| {
        let p = *p;
        (0..8).map(move |c| {
            std::array::from_fn(|a| {
                let corner = p[a].floor() as i64 + (c >> a & 1);
                corner.rem_euclid(size[a] as i64) as usize
            })
        })
    };
    let voxels: Vec<[usize; 3]> = at.iter().flat_map(around).collect();
    let values = grid.values_at(velocity, &voxels)?;
    let place = |p: &[f64; 3], corners: &[[usize; 3]], values: &[[f64; 3]]| {
        let mut place = Place {
            corners: std::array::from_fn(|c| flat(corners[c], size)),
            weights: [0.0; 8],
            velocity: [0.0; 3],
            slope: [[0.0; 3]; 3],
        };
        for (c, value) in values.iter().enumerate() {
            let part: [[f64; 2]; 3] = std::array::from_fn(|a| {
                let upper = p[a] - p[a].floor();
                if c >> a & 1 == 1 { [upper, 1.0] } else { [1.0 - upper, -1.0] }
            });
            let [x, y, z] = part;
            place.weights[c] = x[0] * y[0] * z[0];
            let slope = [x[1] * y[0] * z[0], x[0] * y[1] * z[0], x[0] * y[0] * z[1]];
            for i in 0..3 {
                let value = value[i] / voxel[i];
                place.velocity[i] += place.weights[c] * value;
                (0..3).for_each(|j| place.slope[i][j] += slope[j] * value);
            }
        }
        place
    };
    let corners = voxels.chunks_exact(8).zip(values.chunks_exact(8));
    Ok(at.iter().zip(corners).map(|(p, (c, v))| place(p, c, v)).collect())
}

/// The voxels of all places, each once; corners become places in the list.
fn listed(grid: &PeriodicGrid, places: &mut [Vec<Place>]) -> Vec<[usize; 3]> {
    let [_, height, width] = grid.size();
    let all = || places.iter().flatten().flat_map(|place| place.corners);
    let mut list: Vec<usize> = all().collect();
    list.sort_unstable();
    list.dedup();
    for place in places.iter_mut().flatten() {
        let corners = place.corners;
        place.corners = corners.map(|c| list.binary_search(&c).expect("it is listed"));
    }
    list.iter().map(|at| [at % width, at / width % height, at / (width * height)]).collect()
}

fn flat([x, y, z]: [usize; 3], [width, height, _]: [usize; 3]) -> usize {
    x + width * (y + height * z)
}

/// `x + dt v` of a place's velocity.
fn ahead(x: &[f64; 3], dt: f64, place: &Place) -> [f64; 3] {
    plus(x, dt, &place.velocity)
}

/// `a + factor b`.
fn plus(a: &[f64; 3], factor: f64, b: &[f64; 3]) -> [f64; 3] {
    std::array::from_fn(|i| a[i] + factor * b[i])
}

fn apply_transposed(m: &Matrix3, x: &[f64; 3]) -> [f64; 3] {
    std::array::from_fn(|i| (0..3).map(|j| m[j][i] * x[j]).sum())
}
