//! What a file says of its image, whatever its format: the form that all readers share.

use serde::Serialize;

use super::data_type::{DataType, Endian};
use crate::image::{Affine, Geometry, Physical, Voxel};

/// The NIfTI intent of values that are labels.
pub const INTENT_LABEL: i32 = 1002;
/// Displacement vectors; by the standard, and as ITK reads them since 5.3, in RAS mm.
pub(super) const INTENT_DISPLACEMENT: i32 = 1006;
/// Vectors; ITK and ANTs keep displacements so, in LPS mm.
pub(super) const INTENT_VECTOR: i32 = 1007;

/// The format of a file, with its version where that matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Format(&'static str);

impl Format {
    /// The one that is called so.
    pub(super) const fn named(name: &'static str) -> Self {
        Self(name)
    }

    /// What it is called.
    pub const fn name(self) -> &'static str {
        self.0
    }
}

/// In what the vectors of a displacement are.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) enum Vectors {
    /// LPS mm, as ITK and ANTs have them.
    #[default]
    Lps,
    /// RAS mm.
    Ras,
    /// Along the axes of the file (RFC-5 of OME-NGFF).
    AlongAxes(Components),
}

/// Components of vectors along the axes of a file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Components {
    /// The voxel axis (0 is x) of each component.
    pub axes: [usize; 3],
    /// How many mm the unit of each component is.
    pub unit_mm: [f64; 3],
}

impl Components {
    /// (z, y, x) in mm: those that are written.
    pub const ZYX_MM: Self = Self { axes: [2, 1, 0], unit_mm: [1.0; 3] };
}

/// Where the geometry of a file came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum GeometrySource {
    /// NIfTI: the affine matrix (`sform_code > 0`), always preferred.
    Sform,
    /// NIfTI: quaternion, offset and spacing (`qform_code > 0`).
    Qform,
    /// NIfTI: spacing only: axes and origin are unknown and taken as RAS and 0.
    Pixdim,
    /// The one placement that the other formats have.
    Metadata,
}

/// One of the two placements of a NIfTI header.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Form {
    /// What it is aligned to: 1 scanner, 2 another image, 3 Talairach, 4 MNI 152, 5 a template.
    pub code: i32,
    /// From voxel index to RAS mm.
    pub voxel_to_mm: Affine<Voxel, Physical>,
}

/// What a file says of its image, checked, in the words of NIfTI.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Header {
    /// Format and version.
    pub format: Format,
    /// Byte order.
    pub endian: Endian,
    /// Sizes of all axes, x first; at least one, up to seven.
    pub dims: Vec<usize>,
    /// Type of the stored voxels.
    pub data_type: DataType,
    /// Position of the first voxel in the uncompressed data (of a pair, of the `.img`), in bytes.
    pub vox_offset: u64,
    /// Factor from stored to real values; a stored 0 means 1.
    pub slope: f64,
    /// Added after the factor; 0 where the stored factor is 0.
    pub intercept: f64,
    /// Distance of volumes along the fourth axis in seconds (repetition time); 0 where unknown. A file
    /// that names no unit is taken to mean seconds.
    pub time_step_seconds: f64,
    /// What the values mean: 0 none, 1002 labels, 1007 vectors.
    pub intent_code: i32,
    /// Free text to the intent.
    pub intent_name: String,
    /// Free text.
    pub description: String,
    /// The placement by quaternion, when its code is positive.
    pub qform: Option<Form>,
    /// The placement by matrix, when its code is positive.
    pub sform: Option<Form>,
    /// The grid of the first three axes in RAS mm.
    pub geometry: Geometry,
    /// Which of the placements `geometry` is.
    pub geometry_source: GeometrySource,
    /// Whether the components of a voxel's vector lie together, and not those of all voxels.
    #[serde(skip)]
    pub(super) is_interleaved: bool,
    /// In what they are, where they are displacements.
    #[serde(skip)]
    pub(super) vectors: Vectors,
    /// Whether values are the luminance of colours.
    #[serde(skip)]
    pub(super) is_luminance: bool,
    /// What is unusual and how it was read.
    pub warnings: Vec<String>,
}

impl Header {
    /// That of an image of another format than NIfTI.
    pub(super) fn new(
        format: Format,
        data_type: DataType,
        dims: Vec<usize>,
        geometry: Geometry,
    ) -> Self {
        Self {
            format,
            endian: Endian::Little,
            dims,
            data_type,
            vox_offset: 0,
            slope: 1.0,
            intercept: 0.0,
            time_step_seconds: 0.0,
            intent_code: 0,
            intent_name: String::new(),
            description: String::new(),
            qform: None,
            sform: None,
            geometry,
            geometry_source: GeometrySource::Metadata,
            is_interleaved: false,
            vectors: Vectors::default(),
            is_luminance: false,
            warnings: Vec::new(),
        }
    }

    /// Makes it that of a field of vectors whose components lie together, as ITK has it: in LPS mm.
    pub(super) fn set_vectors(&mut self) {
        self.dims.resize(3, 1);
        self.dims.extend([1, 3]);
        self.intent_code = INTENT_VECTOR;
        self.is_interleaved = true;
    }

    /// Number of volumes: the product of the sizes of all axes after the third.
    pub fn volumes(&self) -> usize {
        self.dims.iter().skip(3).product()
    }

    /// Bytes of all voxels.
    pub fn data_bytes(&self) -> u64 {
        self.dims.iter().product::<usize>() as u64 * self.data_type.bytes() as u64
    }
}
