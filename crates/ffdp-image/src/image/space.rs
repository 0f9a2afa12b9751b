//! Typed spaces and the affine maps between them.

use std::fmt;
use std::marker::PhantomData;

use serde::{Serialize, Serializer};

use super::eigen::symmetric_eigen;
use crate::error::{Error, Result};

/// Continuous voxel index (x, y, z); integers are voxel centres, x is fastest in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Voxel {}

/// Physical space: millimetres, RAS+ (x to the right, y to the front, z to the top).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Physical {}

/// A 3x3 matrix, `[row][column]`.
pub type Matrix3 = [[f64; 3]; 3];

/// Largest condition number of a linear part that [`Affine::inverse`] accepts.
pub const MAX_CONDITION: f64 = 1e6;

/// An affine map `q = L p + t` from one space to another, as the 3x4 matrix `[L | t]` in f64.
///
/// Full affines, shear and reflection included. The spaces are in the type, so that a map from
/// voxels to mm cannot be applied to a point in mm.
pub struct Affine<From, To> {
    rows: [[f64; 4]; 3],
    spaces: PhantomData<fn(From) -> To>,
}

impl<From, To> Affine<From, To> {
    /// The map with the given rows of `[L | t]`.
    pub const fn from_rows(rows: [[f64; 4]; 3]) -> Self {
        Self { rows, spaces: PhantomData }
    }

    /// The map `q = linear p + translation`.
    pub fn from_parts(linear: Matrix3, translation: [f64; 3]) -> Self {
        let row = |i: usize| [linear[i][0], linear[i][1], linear[i][2], translation[i]];
        Self::from_rows([row(0), row(1), row(2)])
    }

    /// The map that changes no coordinate.
    pub const fn identity() -> Self {
        Self::from_rows([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]])
    }

    /// The rows of `[L | t]`.
    pub const fn rows(&self) -> &[[f64; 4]; 3] {
        &self.rows
    }

    /// The rows of `[L | t]` in f32, row by row: the form kernels take.
    pub fn to_f32(&self) -> [f32; 12] {
        std::array::from_fn(|k| self.rows[k / 4][k % 4] as f32)
    }

    /// The linear part `L`.
    pub fn linear(&self) -> Matrix3 {
        self.rows.map(|row| [row[0], row[1], row[2]])
    }

    /// The translation `t`.
    pub fn translation(&self) -> [f64; 3] {
        self.rows.map(|row| row[3])
    }

    /// The image of a point.
    pub fn apply(&self, p: [f64; 3]) -> [f64; 3] {
        self.rows.map(|row| row[0] * p[0] + row[1] * p[1] + row[2] * p[2] + row[3])
    }

    /// The image of a vector: a difference of points, so the translation plays no part.
    pub fn apply_vector(&self, v: [f64; 3]) -> [f64; 3] {
        apply3(&self.linear(), v)
    }

    /// This map first, then `next`: the matrix product `next * self`.
    pub fn then<Next>(&self, next: &Affine<To, Next>) -> Affine<From, Next> {
        let linear = product3(&next.linear(), &self.linear());
        Affine::from_parts(linear, next.apply(self.translation()))
    }

    /// The inverse map.
    ///
    /// # Errors
    /// [`Error::Singular`] when the condition number of the linear part exceeds [`MAX_CONDITION`],
    /// or an entry is not finite.
    pub fn inverse(&self) -> Result<Affine<To, From>> {
        let condition = self.condition();
        if condition > MAX_CONDITION {
            let what = format!("the affine map {:?}", self.rows);
            return Err(Error::Singular { what, condition, limit: MAX_CONDITION });
        }
        let inverse = inverse3(&self.linear());
        let translation = apply3(&inverse, self.translation()).map(|t| -t);
        Ok(Affine::from_parts(inverse, translation))
    }

    /// Condition number of the linear part in the 2-norm: largest over smallest singular value,
    /// infinite when an entry of the map is not finite or the determinant vanishes.
    pub fn condition(&self) -> f64 {
        let linear = self.linear();
        let determinant = determinant3(&linear).abs();
        if !self.rows.iter().flatten().all(|v| v.is_finite()) || determinant == 0.0 {
            return f64::INFINITY;
        }
        // 1 / smallest singular value = largest one of the inverse = of adjugate / determinant.
        let condition = singular3(&linear)[0] * singular3(&adjugate3(&linear))[0] / determinant;
        if condition.is_nan() { f64::INFINITY } else { condition }
    }

    /// Singular values of the linear part, the largest first: by how much the map stretches at most and at least.
    pub fn singular_values(&self) -> [f64; 3] {
        singular3(&self.linear())
    }

    /// Determinant of the linear part: the change of volume, negative when the map reflects.
    pub fn determinant(&self) -> f64 {
        determinant3(&self.linear())
    }
}

// Derived implementations would demand the same of the marker types.
impl<From, To> Clone for Affine<From, To> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<From, To> Copy for Affine<From, To> {}

impl<From, To> PartialEq for Affine<From, To> {
    fn eq(&self, other: &Self) -> bool {
        self.rows == other.rows
    }
}

impl<From, To> fmt::Debug for Affine<From, To> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Affine").field(&self.rows).finish()
    }
}

impl<From, To> Serialize for Affine<From, To> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.rows.serialize(serializer)
    }
}

/// The product `m v` of a matrix and a vector.
pub fn apply3(m: &Matrix3, v: [f64; 3]) -> [f64; 3] {
    m.map(|row| row[0] * v[0] + row[1] * v[1] + row[2] * v[2])
}

/// The product `a b` of two matrices.
pub fn product3(a: &Matrix3, b: &Matrix3) -> Matrix3 {
    a.map(|row| std::array::from_fn(|j| row[0] * b[0][j] + row[1] * b[1][j] + row[2] * b[2][j]))
}

/// Inverse of a matrix whose condition the caller has checked.
fn inverse3(m: &Matrix3) -> Matrix3 {
    let determinant = determinant3(m);
    adjugate3(m).map(|row| row.map(|v| v / determinant))
}

pub(crate) fn determinant3(m: &Matrix3) -> f64 {
    let adjugate = adjugate3(m);
    m[0][0] * adjugate[0][0] + m[0][1] * adjugate[1][0] + m[0][2] * adjugate[2][0]
}

/// Transposed cofactors: `adjugate(m) m = det(m) 1`.
fn adjugate3(m: &Matrix3) -> Matrix3 {
    let cofactor = |i: usize, j: usize| {
        let (a, b, c, d) = ((i + 1) % 3, (i + 2) % 3, (j + 1) % 3, (j + 2) % 3);
        m[a][c] * m[b][d] - m[a][d] * m[b][c]
    };
    std::array::from_fn(|i| std::array::from_fn(|j| cofactor(j, i)))
}

/// Singular values, the largest first: roots of the eigenvalues of `m^T m`.
fn singular3(m: &Matrix3) -> [f64; 3] {
    let scale = m.iter().flatten().fold(0.0f64, |largest, v| largest.max(v.abs()));
    if scale == 0.0 {
        return [0.0; 3];
    }
    let m = m.map(|row| row.map(|v| v / scale));
    let transposed: Matrix3 = std::array::from_fn(|i| std::array::from_fn(|j| m[j][i]));
    let (values, _) = symmetric_eigen(&product3(&transposed, &m));
    values.map(|value| scale * value.max(0.0).sqrt())
}
