//! Exact Euclidean distance to the nearest marked point of a grid, one axis after the other.
//!
//! ```text
//! d^2(x, y, z) = min_k (sz (z - k))^2 + min_j (sy (y - j))^2 + min_i (sx (x - i))^2,  (i, j, k) marked
//! ```
//! Each minimum is the lower envelope of parabolas, found in linear time (Felzenszwalb and
//! Huttenlocher 2012, "Distance transforms of sampled functions"; Meijster et al. 2000). Squared
//! distances are kept in f32: on unit spacing they are whole numbers, exact up to 2^24, that is up
//! to 4096 voxels.
//!
//! The work along z is done column by column, so that whoever asks for few points pays for few
//! columns and no second map is needed: see [`Planes`].

use rayon::prelude::*;

use crate::{Error, Result};

/// Points along x that are fetched from memory at once: one cache line of f32.
const LINE: usize = 16;

/// Distance of every voxel centre to the nearest voxel with `marked`, in the unit of `spacing`;
/// infinite when there is none. `marked` is `[D, H, W]`, `size` and `spacing` are (x, y, z).
///
/// # Errors
/// [`Error::Shape`] when `marked` is not of that size.
pub fn distance_transform(
    marked: &[bool],
    size: [usize; 3],
    spacing: [f64; 3],
) -> Result<Vec<f32>> {
    let [nx, ny, nz] = size;
    if marked.len() != nx * ny * nz {
        return Err(Error::Shape {
            what: "a mask [D, H, W] must match its grid".into(),
            expected: vec![nz, ny, nx],
            got: vec![marked.len()],
        });
    }
    if marked.is_empty() {
        return Ok(Vec::new());
    }
    let planes = Planes::new(size, spacing, |offset| marked[offset]);
    // Solved as [H, D, W], where each y is on its own; then put in order.
    let mut by_row = vec![0f32; marked.len()];
    by_row.par_chunks_mut(nz * nx).enumerate().for_each(|(y, row)| {
        planes.solve_columns(
            y,
            |_| true,
            |x, column| {
                column.iter().enumerate().for_each(|(z, squared)| row[z * nx + x] = squared.sqrt());
            },
        );
    });
    let mut distances = vec![0f32; marked.len()];
    distances.par_chunks_mut(nx).enumerate().for_each(|(line, out)| {
        let (y, z) = (line % ny, line / ny);
        out.copy_from_slice(&by_row[(y * nz + z) * nx..][..nx]);
    });
    Ok(distances)
}

/// Squared distance of every point to the nearest marked point of its own z plane.
pub(super) struct Planes {
    squared: Vec<f32>,
    size: [usize; 3],
    spacing: [f64; 3],
}

impl Planes {
    /// The points with `is_marked(offset)`, on a grid of `size` (x, y, z), none of them 0.
    pub fn new(
        size: [usize; 3],
        spacing: [f64; 3],
        is_marked: impl Fn(usize) -> bool + Sync,
    ) -> Self {
        let [nx, ny, nz] = size;
        let mut squared = vec![f32::INFINITY; nx * ny * nz];
        squared.par_chunks_mut(nx * ny).enumerate().for_each(|(z, plane)| {
            let mut any = false;
            for (y, row) in plane.chunks_mut(nx).enumerate() {
                any |= along_row(row, spacing[0], |x| is_marked((z * ny + y) * nx + x));
            }
            if any {
                along_y(plane, nx, spacing[1]);
            }
        });
        Self { squared, size, spacing }
    }

    /// Hands the squared distances along z of every column (x, `y`) that is `wanted(x)` to
    /// `take(x, column)`.
    pub fn solve_columns(
        &self,
        y: usize,
        wanted: impl Fn(usize) -> bool,
        mut take: impl FnMut(usize, &[f32]),
    ) {
        let [nx, ny, nz] = self.size;
        let mut envelope = Envelope::with_capacity(nz);
        let mut block = vec![[0f32; LINE]; nz];
        let mut column = vec![0f32; nz];
        for start in (0..nx).step_by(LINE) {
            let width = LINE.min(nx - start);
            if !(start..start + width).any(&wanted) {
                continue;
            }
            for (z, line) in block.iter_mut().enumerate() {
                line[..width].copy_from_slice(&self.squared[(z * ny + y) * nx + start..][..width]);
            }
            for x in (start..start + width).filter(|&x| wanted(x)) {
                column.iter_mut().zip(&block).for_each(|(v, line)| *v = line[x - start]);
                envelope.lower(&mut column, self.spacing[2]);
                take(x, &column);
            }
        }
    }
}

/// Squared distances along x; whether anything is marked.
fn along_row(row: &mut [f32], spacing: f64, is_marked: impl Fn(usize) -> bool) -> bool {
    let squared = |steps: usize| (spacing * steps as f64).powi(2) as f32;
    let mut last = None;
    for (x, value) in row.iter_mut().enumerate() {
        last = if is_marked(x) { Some(x) } else { last };
        if let Some(last) = last {
            *value = squared(x - last);
        }
    }
    let mut next = None;
    for (x, value) in row.iter_mut().enumerate().rev() {
        next = if *value == 0.0 { Some(x) } else { next };
        if let Some(next) = next {
            *value = value.min(squared(next - x));
        }
    }
    last.is_some()
}

/// Adds the distances along y to a plane of rows of `nx`.
fn along_y(plane: &mut [f32], nx: usize, spacing: f64) {
    let ny = plane.len() / nx;
    let mut envelope = Envelope::with_capacity(ny);
    let mut block = vec![0f32; LINE * ny];
    for start in (0..nx).step_by(LINE) {
        let width = LINE.min(nx - start);
        for (y, row) in plane.chunks(nx).enumerate() {
            (0..width).for_each(|k| block[k * ny + y] = row[start + k]);
        }
        for column in block.chunks_mut(ny).take(width) {
            envelope.lower(column, spacing);
        }
        for (y, row) in plane.chunks_mut(nx).enumerate() {
            (0..width).for_each(|k| row[start + k] = block[k * ny + y]);
        }
    }
}

/// The lower envelope of parabolas of one width, one on every finite point of a line.
struct Envelope {
    /// Where the parabolas of the envelope stand, how high, and from where on each is the lowest.
    parabolas: Vec<Parabola>,
}

#[derive(Clone, Copy)]
struct Parabola {
    vertex: f64,
    height: f64,
    from: f64,
}

impl Envelope {
    fn with_capacity(points: usize) -> Self {
        Self { parabolas: Vec::with_capacity(points) }
    }

    /// `line[i] <- min_j (spacing (i - j))^2 + line[j]`, in place.
    fn lower(&mut self, line: &mut [f32], spacing: f64) {
        let curvature = spacing * spacing;
        self.parabolas.clear();
        for (q, &height) in line.iter().enumerate().filter(|(_, height)| height.is_finite()) {
            self.push(q as f64, f64::from(height), curvature);
        }
        if self.parabolas.is_empty() {
            return;
        }
        let mut lowest = 0;
        for (q, value) in line.iter_mut().enumerate() {
            let q = q as f64;
            while self.parabolas.get(lowest + 1).is_some_and(|next| next.from < q) {
                lowest += 1;
            }
            let Parabola { vertex, height, .. } = self.parabolas[lowest];
            *value = (curvature * (q - vertex) * (q - vertex) + height) as f32;
        }
    }

    fn push(&mut self, vertex: f64, height: f64, curvature: f64) {
        while let Some(&last) = self.parabolas.last() {
            // Where the two cross: beyond it the new one, which stands farther right, is lower.
            let middle = 0.5 * (vertex + last.vertex);
            let from = middle + (height - last.height) / (2.0 * curvature * (vertex - last.vertex));
            if from > last.from {
                self.parabolas.push(Parabola { vertex, height, from });
                return;
            }
            self.parabolas.pop();
        }
        self.parabolas.push(Parabola { vertex, height, from: f64::NEG_INFINITY });
    }
}
