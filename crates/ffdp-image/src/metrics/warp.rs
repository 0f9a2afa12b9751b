//! A displacement field as a map of physical space, on the host.

use crate::image::{Affine, Geometry, Physical, Voxel};
use crate::{Error, Result};

/// The map `phi(p) = p + u(p)`: `u` is `[3, D, H, W]`, components (x, y, z), in voxels of its grid;
/// points are in RAS mm. Between voxels `u` is trilinear, beyond the grid it keeps its border values.
#[derive(Clone, Debug)]
pub struct Warp<'a> {
    displacement: &'a [f32],
    geometry: &'a Geometry,
    to_voxel: Affine<Physical, Voxel>,
    to_mm: Affine<Voxel, Physical>,
}

impl<'a> Warp<'a> {
    /// The map of a field on its grid.
    ///
    /// # Errors
    /// [`Error::Shape`] when the field is not of the grid's size.
    pub fn new(displacement: &'a [f32], geometry: &'a Geometry) -> Result<Self> {
        check_field(displacement, geometry.size)?;
        let (to_voxel, to_mm) = (geometry.mm_to_voxel(), geometry.voxel_to_mm());
        Ok(Self { displacement, geometry, to_voxel, to_mm })
    }

    /// The grid of the field.
    pub fn geometry(&self) -> &Geometry {
        self.geometry
    }

    /// Where a point goes, RAS mm.
    pub fn apply(&self, point_mm: [f64; 3]) -> [f64; 3] {
        let p = self.to_voxel.apply(point_mm);
        let u = self.at_voxel(p);
        self.to_mm.apply([0, 1, 2].map(|i| p[i] + u[i]))
    }

    /// Whether a point (RAS mm) lies in the image: at most half a voxel beyond the outer centres, the
    /// upper faces left out.
    pub fn covers(&self, point_mm: [f64; 3]) -> bool {
        let p = self.to_voxel.apply(point_mm);
        (0..3).all(|i| (-0.5..self.geometry.size[i] as f64 - 0.5).contains(&p[i]))
    }

    /// The displacement in voxels at a continuous voxel index.
    pub fn at_voxel(&self, p: [f64; 3]) -> [f64; 3] {
        let [nx, ny, nz] = self.geometry.size;
        let count = nx * ny * nz;
        // Along each axis: the two neighbours and how far the second is.
        let [x, y, z] = [0, 1, 2].map(|i| {
            let last = self.geometry.size[i] - 1;
            let p = p[i].clamp(0.0, last as f64);
            let low = (p as usize).min(last.saturating_sub(1));
            ([low, (low + 1).min(last)], p - low as f64)
        });
        let mut u = [0.0; 3];
        for corner in 0..8 {
            let side = [corner & 1, corner >> 1 & 1, corner >> 2 & 1];
            let part = |side: usize, t: f64| if side == 1 { t } else { 1.0 - t };
            let weight = part(side[0], x.1) * part(side[1], y.1) * part(side[2], z.1);
            let offset = (z.0[side[2]] * ny + y.0[side[1]]) * nx + x.0[side[0]];
            for (c, u) in u.iter_mut().enumerate() {
                *u += weight * f64::from(self.displacement[c * count + offset]);
            }
        }
        u
    }
}

/// Demands three values per voxel of a grid of `size` (x, y, z) that is not empty.
pub(super) fn check_field(displacement: &[f32], [nx, ny, nz]: [usize; 3]) -> Result<()> {
    let count = nx * ny * nz;
    if count > 0 && displacement.len() == 3 * count {
        return Ok(());
    }
    Err(Error::Shape {
        what: "a displacement [3, D, H, W] must match its grid".into(),
        expected: vec![3, nz, ny, nx],
        got: vec![displacement.len()],
    })
}
