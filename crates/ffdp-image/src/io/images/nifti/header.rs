//! What a NIfTI header says, checked.

use std::path::Path;

use super::super::data_type::DataType;
use super::super::header::{Form, GeometrySource, Header, INTENT_DISPLACEMENT, Vectors};
use super::super::refuse::reject;
use super::super::source::Source;
use super::layout::{NotNifti, RawHeader, Version};
use super::orientation::qform_to_affine;
use crate::error::{Error, Result};
use crate::image::{Affine, Geometry, Physical, SPACING_LIMITS_MM, Voxel};

/// Beyond this distance at a corner, in voxels, qform and sform are said to disagree. Rounding a
/// quaternion to f32 moves corners by up to several hundredths of a voxel.
const FORM_TOLERANCE_VOXELS: f64 = 0.1;

/// The bits of `xyzt_units` that say in what unit the fourth axis is, and two of their values.
const TIME_UNITS: i32 = 0x38;
const MILLISECONDS: i32 = 16;
const MICROSECONDS: i32 = 24;

/// Relative difference of spacings beyond which a warning is given.
const SPACING_TOLERANCE: f64 = 1e-3;

/// Reads the header at the start of `source` and compares lengths; goes on to the voxels of a pair.
pub fn read(source: &mut Source) -> Result<Header> {
    let bytes = read_header_bytes(source)?;
    let raw = RawHeader::parse(&bytes).map_err(|reason| not_nifti(source.path(), reason))?;
    let mut header = interpret(&raw, source.path())?;
    if raw.pair {
        source.go_on_in_image()?;
    }
    let warning = source.check_length(header.vox_offset, header.data_bytes())?;
    header.warnings.extend(warning);
    Ok(header)
}

/// The header's bytes, or as many as there are: 348, or 540 if the first number says so.
fn read_header_bytes(source: &mut Source) -> Result<Vec<u8>> {
    let mut bytes = vec![0; Version::One.header_bytes()];
    let known = source.read_some(&mut bytes)?;
    bytes.truncate(known);
    let size = (Version::Two.header_bytes() as u32).to_le_bytes();
    let is_two = bytes.starts_with(&size) || bytes.iter().take(4).eq(size.iter().rev());
    if is_two && bytes.len() == Version::One.header_bytes() {
        bytes.resize(Version::Two.header_bytes(), 0);
        let more = source.read_some(&mut bytes[known..])?;
        bytes.truncate(known + more);
    }
    Ok(bytes)
}

fn interpret(raw: &RawHeader, path: &Path) -> Result<Header> {
    let mut warnings = Vec::new();
    let reject = |what: &str, value: String, fix: &str| reject(path, what, value, fix);
    let data_type = DataType::from_code(raw.datatype).ok_or_else(|| {
        let value = format!("datatype {} ({})", raw.datatype, DataType::describe(raw.datatype));
        reject("voxels must be integers or floats", value, "convert the file to one channel")
    })?;
    if i32::from(raw.bitpix) != 8 * data_type.bytes() as i32 {
        let (bitpix, code) = (raw.bitpix, raw.datatype);
        warnings.push(format!("bitpix {bitpix} contradicts datatype {code}; datatype is used"));
    }
    let dims = check_dims(raw, data_type, path, &mut warnings)?;
    let (slope, intercept) = scaling(raw, &mut warnings);
    let vox_offset = check_vox_offset(raw, path, &mut warnings)?;
    let mut placement = Orientation::of(raw, &dims, &mut warnings);
    placement.check_pixdim(&dims, path, &mut warnings)?;
    let (geometry, geometry_source) =
        placement.geometry(&mut warnings).map_err(Error::in_file(path))?;
    Ok(Header {
        format: raw.version.format(),
        endian: raw.endian,
        dims,
        data_type,
        vox_offset,
        slope,
        intercept,
        time_step_seconds: time_step_seconds(raw),
        intent_code: raw.intent_code,
        intent_name: raw.intent_name.clone(),
        description: raw.description.clone(),
        qform: placement.qform,
        sform: placement.sform,
        geometry,
        geometry_source,
        is_interleaved: false,
        vectors: if raw.intent_code == INTENT_DISPLACEMENT { Vectors::Ras } else { Vectors::Lps },
        is_luminance: false,
        warnings,
    })
}

fn not_nifti(path: &Path, reason: NotNifti) -> Error {
    let what = "the file must be a NIfTI-1 or NIfTI-2";
    match reason {
        NotNifti::Truncated => reject(
            path,
            "the file must hold a complete NIfTI header (348 or 540 bytes)",
            "a shorter file".to_string(),
            "it is truncated: copy or download it again",
        ),
        NotNifti::Size(bytes) => {
            let value = format!("a file that starts with the bytes {bytes:02x?}");
            reject(path, what, value, "rename it, or convert it to .nii or .nii.gz")
        }
        NotNifti::Magic(bytes) => {
            let value = format!("the magic bytes {bytes:02x?} (Analyze 7.5, or damaged)");
            reject(path, what, value, "convert it to .nii, stating its orientation")
        }
    }
}

/// Sizes of all axes; their product, in bytes of the file and of f32 values, can be addressed.
///
/// As in niftilib, 0 along an axis after the third is 1.
fn check_dims(
    raw: &RawHeader,
    data_type: DataType,
    path: &Path,
    warnings: &mut Vec<String>,
) -> Result<Vec<usize>> {
    let rank = raw.dim[0];
    if !(1..=7).contains(&rank) {
        let value = format!("dim[0] = {rank}");
        return Err(reject(path, "an image has 1 to 7 axes", value, "repair the header"));
    }
    let mut stored = raw.dim[1..=rank as usize].to_vec();
    for (i, size) in stored.iter_mut().enumerate().skip(3).filter(|(_, size)| **size == 0) {
        warnings.push(format!("dim[{}] is 0; taken as 1", i + 1));
        *size = 1;
    }
    let dims: Vec<usize> =
        stored.iter().filter_map(|&d| usize::try_from(d).ok().filter(|&d| d > 0)).collect();
    if dims.len() != stored.len() {
        let what = "every axis must have a positive size";
        return Err(reject(path, what, format!("dim {stored:?}"), "repair the header"));
    }
    let bytes = dims
        .iter()
        .try_fold(data_type.bytes().max(4), |n, &d| n.checked_mul(d))
        .filter(|&n| n <= isize::MAX as usize);
    if bytes.is_none() {
        let what = "the number of voxels must be addressable";
        return Err(reject(path, what, format!("dim {stored:?}"), "repair the header"));
    }
    Ok(dims)
}

/// Slope and intercept; a slope of 0 or of no number means values as they are stored, an intercept of no number none.
fn scaling(raw: &RawHeader, warnings: &mut Vec<String>) -> (f64, f64) {
    let (slope, intercept) = (raw.scl_slope, raw.scl_inter);
    if slope == 0.0 {
        return (1.0, 0.0);
    }
    if !slope.is_finite() {
        warnings.push(format!("scl_slope is {slope}; values are taken as stored, not scaled"));
        return (1.0, 0.0);
    }
    if !intercept.is_finite() {
        // As niftilib.
        warnings.push(format!("scl_inter is {intercept}; nothing is added to the values"));
        return (slope, 0.0);
    }
    (slope, intercept)
}

fn check_vox_offset(raw: &RawHeader, path: &Path, warnings: &mut Vec<String>) -> Result<u64> {
    let first = if raw.pair { 0 } else { raw.version.first_data_byte() as u64 };
    let stored = raw.vox_offset;
    if stored == 0.0 && !raw.pair {
        warnings.push(format!("vox_offset is 0; data is read from byte {first}, after the header"));
        return Ok(first);
    }
    let whole = stored.is_finite() && stored.fract() == 0.0 && stored < 2f64.powi(63);
    if !whole || stored < first as f64 {
        let what = format!("vox_offset must be a whole number of at least {first} bytes");
        return Err(reject(path, &what, stored.to_string(), "repair the header"));
    }
    Ok(stored as u64)
}

/// The two forms and the spacing of a header, in mm.
struct Orientation {
    size: [usize; 3],
    pixdim_mm: [f64; 3],
    /// Whether the spacing was of no use, which has been said.
    is_pixdim_odd: bool,
    qform: Option<Form>,
    sform: Option<Form>,
}

impl Orientation {
    fn of(raw: &RawHeader, dims: &[usize], warnings: &mut Vec<String>) -> Self {
        let scale = unit_in_mm(raw.xyzt_units, warnings);
        let size = std::array::from_fn(|i| dims.get(i).copied().unwrap_or(1));
        // The spacing of an axis that is not there means nothing; many writers leave it 0.
        let spacing = |i: usize| if i < dims.len() { raw.pixdim[i + 1] * scale } else { 1.0 };
        let pixdim_mm = std::array::from_fn(spacing);
        // As niftilib: the sign of a spacing has no meaning, and 0 is 1.
        let [dx, dy, dz] = pixdim_mm.map(|s: f64| if s == 0.0 { 1.0 } else { s.abs() });
        let offset = raw.qoffset.map(|v| v * scale);
        let quaternion_squared: f64 = raw.quatern.iter().map(|v| v * v).sum();
        if raw.qform_code > 0 && quaternion_squared > 1.001 {
            warnings.push(format!("quaternion {:?} is longer than 1; normalised", raw.quatern));
        }
        let qform = (raw.qform_code > 0).then(|| Form {
            code: raw.qform_code,
            voxel_to_mm: qform_to_affine(raw.quatern, offset, [raw.pixdim[0], dx, dy, dz]),
        });
        let is_zero = raw.srow.iter().all(|row| row[..3].iter().all(|v| *v == 0.0));
        if raw.sform_code > 0 && is_zero {
            warnings.push("the sform is set, but zero; it counts as none".to_string());
        }
        let sform = (raw.sform_code > 0 && !is_zero).then(|| Form {
            code: raw.sform_code,
            voxel_to_mm: Affine::from_rows(raw.srow.map(|row| row.map(|v| v * scale))),
        });
        Self { size, pixdim_mm, is_pixdim_odd: false, qform, sform }
    }

    /// Demands spacings, unless a form makes up for them: the sform has its own, and the qform needs no more than their size.
    fn check_pixdim(
        &mut self,
        dims: &[usize],
        path: &Path,
        warnings: &mut Vec<String>,
    ) -> Result<()> {
        let [low, high] = SPACING_LIMITS_MM;
        let spacing = self.pixdim_mm[..dims.len().min(3)].to_vec();
        let is_sound = |s: &f64| (low..=high).contains(s);
        if spacing.iter().all(is_sound) {
            return Ok(());
        }
        let sound_without_sign = spacing.iter().all(|s| *s == 0.0 || is_sound(&s.abs()));
        match (&self.sform, &self.qform) {
            (Some(_), _) => {
                let text = "is not positive and finite; the placement is that of the sform";
                warnings.push(format!("spacing (pixdim) {spacing:?} {text}"));
                // What such a qform says of the size of voxels means nothing.
                self.qform = None;
            }
            (None, Some(_)) if sound_without_sign => {
                let text = "is not positive; the qform is used with sizes without a sign, 1 mm in place of 0";
                warnings.push(format!("spacing (pixdim) {spacing:?} {text}"));
            }
            _ => {
                let what = "spacing (pixdim) must be positive, finite and within 1e-9..1e6 mm";
                return Err(reject(path, what, format!("{spacing:?}"), "repair the header"));
            }
        }
        self.is_pixdim_odd = true;
        Ok(())
    }

    /// The sform if there is one, else the qform, else the spacing alone.
    fn geometry(&self, warnings: &mut Vec<String>) -> Result<(Geometry, GeometrySource)> {
        match (&self.sform, &self.qform) {
            (Some(sform), qform) => {
                let used = Geometry::from_affine(self.size, sform.voxel_to_mm)?;
                if let Some(qform) = qform {
                    self.compare_forms(&used, qform.voxel_to_mm, warnings);
                } else if !self.is_pixdim_odd {
                    self.compare_spacing(&used, warnings);
                }
                Ok((used, GeometrySource::Sform))
            }
            (None, Some(qform)) => {
                let used = Geometry::from_affine(self.size, qform.voxel_to_mm)?;
                Ok((used, GeometrySource::Qform))
            }
            (None, None) => {
                warnings.push(
                    "neither qform nor sform is set; axes are taken as RAS, the origin as 0"
                        .to_string(),
                );
                Ok((Geometry::new(self.size, self.pixdim_mm)?, GeometrySource::Pixdim))
            }
        }
    }

    fn compare_forms(
        &self,
        used: &Geometry,
        qform: Affine<Voxel, Physical>,
        warnings: &mut Vec<String>,
    ) {
        let distance = Geometry::from_affine(self.size, qform)
            .map_or(f64::INFINITY, |other| used.grid_distance_voxels(&other));
        if distance > FORM_TOLERANCE_VOXELS {
            warnings.push(format!(
                "qform and sform disagree by up to {distance:.2} voxels; the sform is used"
            ));
        }
    }

    fn compare_spacing(&self, used: &Geometry, warnings: &mut Vec<String>) {
        let differs = |i: usize| {
            (used.spacing_mm[i] - self.pixdim_mm[i]).abs() > SPACING_TOLERANCE * used.spacing_mm[i]
        };
        if (0..3).any(differs) {
            let (sform, pixdim) = (used.spacing_mm, self.pixdim_mm);
            warnings.push(format!(
                "pixdim says spacing {pixdim:?} mm, the sform {sform:?} mm; the sform is used"
            ));
        }
    }
}

fn time_step_seconds(raw: &RawHeader) -> f64 {
    let scale = match raw.xyzt_units & TIME_UNITS {
        MILLISECONDS => 1e-3,
        MICROSECONDS => 1e-6,
        _ => 1.0,
    };
    let step = raw.pixdim[4] * scale;
    if raw.dim[0] > 3 && step.is_finite() && step > 0.0 { step } else { 0.0 }
}

/// Millimetres in the header's unit of length.
fn unit_in_mm(xyzt_units: i32, warnings: &mut Vec<String>) -> f64 {
    let (unit, scale) = match xyzt_units & 7 {
        0 | 2 => return 1.0, // unknown is taken as mm, as all readers do
        1 => ("metres", 1e3),
        3 => ("micrometres", 1e-3),
        other => {
            warnings.push(format!("unit of length {other} is unknown; taken as millimetres"));
            return 1.0;
        }
    };
    warnings.push(format!("lengths are in {unit}; converted to millimetres"));
    scale
}
