//! ITK's transforms from their parameters.
//!
//! All of them but displacement fields are `x -> M (x - c) + c + t` in LPS mm, with the centre `c` in
//! the fixed parameters; they differ in how `M` is written. The formulas are those of ITK 5.4 (checked
//! against SimpleITK 2.5.7 by `scripts/golden/transforms.py`).

use std::path::Path;

use super::parts::{ItkTransform, TransformPart};
use crate::error::{Error, Result};
use crate::image::{Affine, Geometry, Matrix3, Physical, Voxel};
use crate::io::images::lps_to_voxels;
use crate::io::lps::{LPS_SIGNS, flip_both, flip_target};

const CONVERT: &str =
    "convert it with SimpleITK or ANTs: an affine transform or a displacement field";
const DAMAGED: &str = "it is damaged: copy or write it again";

const UNIT: Matrix3 = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];

/// The parts of a file's transforms, the first applied first: ITK's lists are read from the end.
pub(super) fn parts(transforms: Vec<ItkTransform>, path: &Path) -> Result<Vec<TransformPart>> {
    let is_composite = |t: &ItkTransform| t.name.starts_with("CompositeTransform");
    let composite = transforms.first().is_some_and(is_composite);
    let simple: Vec<_> = transforms.into_iter().skip(usize::from(composite)).collect();
    if simple.iter().any(is_composite) {
        let what = "a composite transform must hold simple transforms only";
        return Err(Error::file(path, what, "a composite within it", "write it flattened"));
    }
    if simple.is_empty() || (!composite && simple.len() > 1) {
        let what = "a transform file must hold one transform, or a composite of some";
        let fix = "store the transforms in files of their own; of a list with one for each volume give that of the \
                   volume, with --volume";
        return Err(Error::file(path, what, format!("{} transforms", simple.len()), fix));
    }
    simple.into_iter().rev().map(|transform| part(transform, path)).collect()
}

fn part(transform: ItkTransform, path: &Path) -> Result<TransformPart> {
    let [kind, dimensions] = split_name(&transform.name);
    if dimensions != "3_3" {
        let what = "a transform must be 3-D (its name ends in _3_3)";
        return Err(Error::file(path, what, format!("{:?}", transform.name), CONVERT));
    }
    let all = transform.parameters.iter().chain(&transform.fixed_parameters);
    if let Some(value) = all.clone().find(|v| !v.is_finite()) {
        let what = format!("the parameters of {} must be finite", transform.name);
        return Err(Error::file(path, &what, value, DAMAGED));
    }
    if kind == "DisplacementFieldTransform" {
        return displacement(&transform, path);
    }
    if kind == "BSplineTransform" {
        return bspline(&transform, path);
    }
    let map = affine(kind, &transform, path)?;
    map.inverse().map_err(Error::in_file(path))?;
    Ok(TransformPart::Affine(flip_both(&map)))
}

/// `AffineTransform_double_3_3` as its kind and its dimensions.
fn split_name(name: &str) -> [&str; 2] {
    let precision = ["_double_", "_float_"].into_iter().find_map(|p| name.split_once(p));
    precision.map_or([name, ""], |(kind, dimensions)| [kind, dimensions])
}

/// The map in LPS mm.
fn affine(kind: &str, itk: &ItkTransform, path: &Path) -> Result<Affine<Physical, Physical>> {
    check_counts(kind, itk, path)?;
    let p = itk.parameters.as_slice();
    let vector = |from: usize| [p[from], p[from + 1], p[from + 2]];
    let (matrix, translation) = match kind {
        "AffineTransform" | "MatrixOffsetTransformBase" => {
            ([vector(0), vector(3), vector(6)], vector(9))
        }
        "Euler3DTransform" => {
            let z_y_x = itk.fixed_parameters.get(3).is_some_and(|&flag| flag != 0.0);
            (euler(vector(0), z_y_x), vector(3))
        }
        "VersorRigid3DTransform" => (versor(vector(0), path)?, vector(3)),
        "VersorTransform" => (versor(vector(0), path)?, [0.0; 3]),
        "QuaternionRigidTransform" => (quaternion([p[3], p[0], p[1], p[2]], path)?, vector(4)),
        "Similarity3DTransform" => {
            (versor(vector(0), path)?.map(|row| row.map(|v| p[6] * v)), vector(3))
        }
        // The scales are added to the rotation, not multiplied with it: so ITK has it.
        "ScaleVersor3DTransform" => {
            (plus(versor(vector(0), path)?, less_unit(vector(6))), vector(3))
        }
        "ScaleSkewVersor3DTransform" => {
            let [x, y, z] = less_unit(vector(6));
            let skew = [[x[0], p[9], p[10]], [p[11], y[1], p[12]], [p[13], p[14], z[2]]];
            (plus(versor(vector(0), path)?, skew), vector(3))
        }
        "ComposeScaleSkewVersor3DTransform" => {
            let scales = plus(UNIT, less_unit(vector(6)));
            let skew = [[1.0, p[9], p[10]], [0.0, 1.0, p[11]], [0.0, 0.0, 1.0]];
            (product(&versor(vector(0), path)?, &product(&scales, &skew)), vector(3))
        }
        "ScaleTransform" => (plus(UNIT, less_unit(vector(0))), [0.0; 3]),
        "TranslationTransform" => (UNIT, vector(0)),
        "IdentityTransform" => (UNIT, [0.0; 3]),
        _ => {
            let what = "the transform must be affine, rigid, a displacement field, a cubic B-spline or a composite";
            return Err(Error::file(path, what, format!("{:?}", itk.name), CONVERT));
        }
    };
    let center = itk.fixed_parameters.first_chunk().copied().unwrap_or([0.0; 3]);
    let turned = Affine::<Physical, Physical>::from_parts(matrix, [0.0; 3]).apply(center);
    let offset = std::array::from_fn(|i| translation[i] + center[i] - turned[i]);
    Ok(Affine::from_parts(matrix, offset))
}

/// Demands as many parameters, and fixed parameters, as the kind has.
fn check_counts(kind: &str, itk: &ItkTransform, path: &Path) -> Result<()> {
    let (parameters, fixed): (usize, &[usize]) = match kind {
        "AffineTransform" | "MatrixOffsetTransformBase" => (12, &[3]),
        "ComposeScaleSkewVersor3DTransform" => (12, &[3]),
        "Euler3DTransform" => (6, &[3, 4]),
        "VersorRigid3DTransform" => (6, &[3]),
        "VersorTransform" => (3, &[3]),
        "QuaternionRigidTransform" | "Similarity3DTransform" => (7, &[3]),
        "ScaleVersor3DTransform" => (9, &[3]),
        "ScaleSkewVersor3DTransform" => (15, &[3]),
        "ScaleTransform" => (3, &[0, 3]),
        "TranslationTransform" => (3, &[0]),
        // The identity may have any.
        _ => return Ok(()),
    };
    // Without a centre it is the origin, as ITK has it.
    let centred = !itk.fixed_parameters.is_empty();
    counts(itk, parameters, if centred { fixed } else { &[0] }, path)
}

/// A map in RAS mm as ITK's affine transform about the origin.
pub(super) fn from_affine(map: &Affine<Physical, Physical>) -> ItkTransform {
    let lps = flip_both(map);
    let matrix = lps.linear().into_iter().flatten();
    ItkTransform {
        name: "AffineTransform_double_3_3".to_string(),
        parameters: matrix.chain(lps.translation()).collect(),
        fixed_parameters: vec![0.0; 3],
    }
}

/// Parts, the first applied first, as ITK's composite: its list is read from the end.
pub(super) fn from_parts(parts: &[TransformPart]) -> Vec<ItkTransform> {
    let name = "CompositeTransform_double_3_3".to_string();
    let composite = ItkTransform { name, ..ItkTransform::default() };
    let part = |part: &TransformPart| match part {
        TransformPart::Affine(map) => from_affine(map),
        TransformPart::Displacement { values, geometry } => from_displacement(values, geometry),
        TransformPart::Bspline { coefficients, geometry } => from_bspline(coefficients, geometry),
    };
    std::iter::once(composite).chain(parts.iter().rev().map(part)).collect()
}

/// A displacement in voxels as [`displacement`] reads it; vectors are rounded as in NIfTI files, to f32.
fn from_displacement(values: &[f32], geometry: &Geometry) -> ItkTransform {
    let to_lps = flip_target(&geometry.voxel_to_mm());
    let voxels = geometry.len();
    let vector = |p: usize| to_lps.apply_vector([0, 1, 2].map(|c| values[c * voxels + p].into()));
    let rounded = |p: usize| vector(p).map(|v| f64::from(v as f32));
    ItkTransform {
        name: "DisplacementFieldTransform_double_3_3".to_string(),
        parameters: (0..voxels).flat_map(rounded).collect(),
        fixed_parameters: fixed_of(geometry),
    }
}

/// Size, origin, spacing and direction in the fixed parameters; one LPS vector in mm per voxel.
fn displacement(itk: &ItkTransform, path: &Path) -> Result<TransformPart> {
    let geometry = grid(itk, "a displacement field", path)?;
    let [nx, ny, nz] = geometry.size;
    let voxels = geometry.len();
    if itk.parameters.len() != 3 * voxels {
        let what =
            format!("a displacement field of {nx} x {ny} x {nz} voxels has {} numbers", 3 * voxels);
        return Err(Error::file(path, &what, itk.parameters.len(), DAMAGED));
    }
    let component = |c| itk.parameters.iter().skip(c).step_by(3).map(|&v| v as f32);
    let mut values: Vec<f32> = (0..3).flat_map(component).collect();
    lps_to_voxels(&mut values, &geometry.mm_to_voxel().linear());
    Ok(TransformPart::Displacement { values, geometry })
}

/// A control grid as [`bspline`] reads it.
pub(super) fn from_bspline(coefficients: &[f64], geometry: &Geometry) -> ItkTransform {
    let points = geometry.len();
    let signed = |(i, value): (usize, &f64)| LPS_SIGNS[i / points] * value;
    ItkTransform {
        name: "BSplineTransform_double_3_3".to_string(),
        parameters: coefficients.iter().enumerate().map(signed).collect(),
        fixed_parameters: fixed_of(geometry),
    }
}

/// Size, origin, spacing and direction of the control grid in the fixed parameters; all x components of its
/// LPS vectors in mm, then y, then z.
fn bspline(itk: &ItkTransform, path: &Path) -> Result<TransformPart> {
    let geometry = grid(itk, "a B-spline", path)?;
    let [nx, ny, nz] = geometry.size;
    let points = geometry.len();
    if itk.parameters.len() != 3 * points || geometry.size.iter().any(|n| *n < 4) {
        let what = format!(
            "a cubic B-spline of {nx} x {ny} x {nz} control points, four or more along every axis, has \
             {} numbers",
            3 * points
        );
        return Err(Error::file(path, &what, itk.parameters.len(), DAMAGED));
    }
    let signed = |(i, value): (usize, &f64)| LPS_SIGNS[i / points] * value;
    let coefficients = itk.parameters.iter().enumerate().map(signed).collect();
    Ok(TransformPart::Bspline { coefficients, geometry })
}

/// A grid as ITK's fixed parameters: size, origin, spacing, and the direction row by row, in LPS mm.
fn fixed_of(geometry: &Geometry) -> Vec<f64> {
    let to_lps = flip_target(&geometry.voxel_to_mm());
    let (linear, spacing) = (to_lps.linear(), geometry.spacing_mm);
    let direction = (0..9).map(|entry| linear[entry / 3][entry % 3] / spacing[entry % 3]);
    let size = geometry.size.map(|n| n as f64);
    size.into_iter().chain(to_lps.translation()).chain(spacing).chain(direction).collect()
}

/// The grid in the fixed parameters.
fn grid(itk: &ItkTransform, kind: &str, path: &Path) -> Result<Geometry> {
    let f = itk.fixed_parameters.as_slice();
    counts(itk, itk.parameters.len(), &[18], path)?;
    let count = |v: f64| (v >= 1.0 && v.fract() == 0.0 && v < 1e9).then_some(v as usize);
    let [Some(nx), Some(ny), Some(nz)] = [count(f[0]), count(f[1]), count(f[2])] else {
        let what = format!("the size of {kind} must be three counts of points");
        return Err(Error::file(path, &what, format!("{:?}", &f[..3]), DAMAGED));
    };
    let matrix = std::array::from_fn(|i| std::array::from_fn(|j| f[9 + 3 * i + j] * f[6 + j]));
    let to_lps = Affine::<Voxel, Physical>::from_parts(matrix, [f[3], f[4], f[5]]);
    Geometry::from_affine([nx, ny, nz], flip_target(&to_lps)).map_err(Error::in_file(path))
}

fn counts(itk: &ItkTransform, parameters: usize, fixed: &[usize], path: &Path) -> Result<()> {
    let got = [itk.parameters.len(), itk.fixed_parameters.len()];
    if got[0] == parameters && fixed.contains(&got[1]) {
        return Ok(());
    }
    let what = format!("{} has {parameters} parameters and {fixed:?} fixed parameters", itk.name);
    Err(Error::file(path, &what, format!("{} and {}", got[0], got[1]), DAMAGED))
}

/// `Rz Rx Ry`, or `Rz Ry Rx`; angles in radians.
fn euler([x, y, z]: [f64; 3], z_y_x: bool) -> Matrix3 {
    let ((sx, cx), (sy, cy), (sz, cz)) = (x.sin_cos(), y.sin_cos(), z.sin_cos());
    let about_x = [[1.0, 0.0, 0.0], [0.0, cx, -sx], [0.0, sx, cx]];
    let about_y = [[cy, 0.0, sy], [0.0, 1.0, 0.0], [-sy, 0.0, cy]];
    let about_z = [[cz, -sz, 0.0], [sz, cz, 0.0], [0.0, 0.0, 1.0]];
    let [second, first] = if z_y_x { [about_y, about_x] } else { [about_x, about_y] };
    product(&about_z, &product(&second, &first))
}

/// The rotation whose unit quaternion has this vector part.
fn versor([x, y, z]: [f64; 3], path: &Path) -> Result<Matrix3> {
    let squares = x * x + y * y + z * z;
    if squares > 1.0 + 1e-9 {
        let what = "the vector part of a versor must not be longer than 1";
        return Err(Error::file(path, what, squares.sqrt(), DAMAGED));
    }
    quaternion([(1.0 - squares).max(0.0).sqrt(), x, y, z], path)
}

/// The rotation of a quaternion (w, x, y, z), which is normalised.
fn quaternion(q: [f64; 4], path: &Path) -> Result<Matrix3> {
    let length = q.iter().map(|v| v * v).sum::<f64>().sqrt();
    if length == 0.0 {
        return Err(Error::file(path, "a quaternion must not vanish", length, DAMAGED));
    }
    let [w, x, y, z] = q.map(|v| v / length);
    Ok([
        [1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y - z * w), 2.0 * (x * z + y * w)],
        [2.0 * (x * y + z * w), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z - x * w)],
        [2.0 * (x * z - y * w), 2.0 * (y * z + x * w), 1.0 - 2.0 * (x * x + y * y)],
    ])
}

/// A diagonal matrix less the unit matrix.
fn less_unit([x, y, z]: [f64; 3]) -> Matrix3 {
    [[x - 1.0, 0.0, 0.0], [0.0, y - 1.0, 0.0], [0.0, 0.0, z - 1.0]]
}

fn plus(a: Matrix3, b: Matrix3) -> Matrix3 {
    std::array::from_fn(|i| std::array::from_fn(|j| a[i][j] + b[i][j]))
}

/// `a b`.
fn product(a: &Matrix3, b: &Matrix3) -> Matrix3 {
    let [a, b] = [a, b].map(|m| Affine::<Physical, Physical>::from_parts(*m, [0.0; 3]));
    b.then(&a).linear()
}
