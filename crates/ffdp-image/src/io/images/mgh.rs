//! FreeSurfer's volumes (`.mgh`, and packed `.mgz`), read: a big-endian header of 284 bytes, then the voxels, x fastest,
//! frame after frame; what follows them (times of the sequence, names of files) is left out.
//!
//! Source: <https://surfer.nmr.mgh.harvard.edu/fswiki/FsTutorial/MghFormat>. The header has the directions of the axes in
//! RAS, and the RAS position of the voxel `size / 2`, the centre.

use std::path::Path;

use super::data_type::{DataType, Endian};
use super::format::ImageFormat;
use super::header::{Format, Header};
use super::refuse::check_addressable;
use super::source::Source;
use crate::error::{Error, Result};
use crate::image::{Affine, Geometry};

/// The first voxel of an unpacked file.
const FIRST_VOXEL: usize = 284;
/// The only version that there is.
const VERSION: i32 = 1;
/// Voxels of 1 mm in the coronal slices of FreeSurfer: what a header without a placement means.
const USUAL_AXES: [[f64; 3]; 3] = [[-1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]];

const DAMAGED: &str = "it is damaged: copy or download it again";
const CONVERT: &str = "convert it to NIfTI: mri_convert IMAGE.mgz IMAGE.nii.gz";

/// The format.
pub struct Mgh;

impl ImageFormat for Mgh {
    fn name(&self) -> &'static str {
        "MGH"
    }

    fn help(&self) -> String {
        "MGH (.mgz)".to_string()
    }

    fn endings(&self) -> &'static [&'static str] {
        &[".mgz", ".mgh", ".mgh.gz"]
    }

    fn open(&self, path: &Path) -> Result<(Source, Header)> {
        let mut source = Source::open_file(path)?;
        let mut bytes = [0; FIRST_VOXEL];
        let known = source.read_some(&mut bytes)?;
        if known < FIRST_VOXEL {
            let what = format!("the header must have {FIRST_VOXEL} bytes");
            return Err(Error::file(path, &what, known, DAMAGED));
        }
        let header = header(path, &Fields(&bytes))?;
        // What follows the voxels is part of the format.
        source.check_length(header.vox_offset, header.data_bytes())?;
        Ok((source, header))
    }
}

/// Numbers by their positions.
struct Fields<'a>(&'a [u8; FIRST_VOXEL]);

impl Fields<'_> {
    fn at<const N: usize>(&self, position: usize) -> [u8; N] {
        std::array::from_fn(|i| self.0[position + i])
    }

    fn integer(&self, position: usize) -> i32 {
        i32::from_be_bytes(self.at(position))
    }

    fn three(&self, position: usize) -> [f64; 3] {
        [0, 4, 8].map(|i| f64::from(f32::from_be_bytes(self.at(position + i))))
    }
}

fn header(path: &Path, fields: &Fields) -> Result<Header> {
    let version = fields.integer(0);
    if version != VERSION {
        return Err(Error::file(path, "the version of the format must be 1", version, DAMAGED));
    }
    let stored = [4, 8, 12, 16].map(|position| fields.integer(position));
    let dims = stored.map(|size| usize::try_from(size).ok().filter(|size| *size > 0));
    let [Some(x), Some(y), Some(z), Some(frames)] = dims else {
        let what = "width, height, depth and frames must be positive";
        return Err(Error::file(path, what, format!("{stored:?}"), DAMAGED));
    };
    let data_type = match fields.integer(20) {
        0 => DataType::U8,
        1 => DataType::I32,
        3 => DataType::F32,
        4 => DataType::I16,
        10 => DataType::U16,
        other => {
            let what =
                "voxels must be of type 0 (uchar), 1 (int), 3 (float), 4 (short) or 10 (ushort)";
            return Err(Error::file(path, what, other, CONVERT));
        }
    };
    let mut dims = vec![x, y, z, frames];
    check_addressable(path, &dims, data_type)?;
    if frames == 1 {
        dims.pop();
    }
    let mut warnings = Vec::new();
    let is_placed = i16::from_be_bytes(fields.at(28)) == 1;
    let (spacing, axes, centre) = match is_placed {
        true => (fields.three(30), [42, 54, 66].map(|at| fields.three(at)), fields.three(78)),
        false => {
            let text = "the header has no placement; taken as FreeSurfer does: 1 mm, axes to the left, below and front";
            warnings.push(text.to_string());
            ([1.0; 3], USUAL_AXES, [0.0; 3])
        }
    };
    let geometry =
        grid_of_centre([x, y, z], spacing, axes, centre).map_err(Error::in_file(path))?;
    let mut header = Header::new(Format::named("MGH"), data_type, dims, geometry);
    header.endian = Endian::Big;
    header.vox_offset = FIRST_VOXEL as u64;
    header.warnings = warnings;
    Ok(header)
}

/// The grid whose voxel `size / 2` lies at `centre`; `axes` has the direction of the first, of the second, of the third.
pub fn grid_of_centre(
    size: [usize; 3],
    spacing_mm: [f64; 3],
    axes: [[f64; 3]; 3],
    centre: [f64; 3],
) -> Result<Geometry> {
    // Before columns are normalised, which would make negative spacings positive.
    Geometry::new(size, spacing_mm)?;
    let rows = std::array::from_fn(|i| {
        let [a, b, c] = [0, 1, 2].map(|j| axes[j][i] * spacing_mm[j]);
        let half = [a, b, c].into_iter().zip(size).map(|(part, n)| part * n as f64 / 2.0);
        [a, b, c, centre[i] - half.sum::<f64>()]
    });
    Geometry::from_affine(size, Affine::from_rows(rows))
}
