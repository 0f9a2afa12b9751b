//! Writing landmarks.

use std::io::Write;
use std::path::Path;

use super::{LandmarkSpace, SLICER, in_space};
use crate::error::Result;
use crate::io::write_atomically;

/// Writes landmarks (points in RAS mm) in a space: three columns with the header `i,j,k` for voxel
/// indices, `x,y,z` for RAS, with ANTs' `x,y,z,t` for LPS; as Slicer's fiducials, whose file
/// names the space (RAS for voxels), when the name ends in `.fcsv`.
///
/// # Errors
/// [`Error::Io`](crate::Error::Io) when writing fails.
pub fn write_landmarks(
    path: impl AsRef<Path>,
    points: &[[f64; 3]],
    space: &LandmarkSpace,
) -> Result<()> {
    let path = path.as_ref();
    let name = path.to_string_lossy().to_lowercase();
    if name.ends_with(".fcsv") {
        return write_slicer(path, points, space);
    }
    let (header, end) = match space {
        LandmarkSpace::Voxel(_) => ("i,j,k\n", ""),
        LandmarkSpace::Ras => ("x,y,z\n", ""),
        LandmarkSpace::Lps => ("x,y,z,t\n", ",0"),
    };
    let points = in_space(points, space)?;
    write_atomically(path, |file| {
        file.write_all(header.as_bytes())?;
        points.iter().try_for_each(|[x, y, z]| writeln!(file, "{x},{y},{z}{end}"))
    })
}

fn write_slicer(path: &Path, points: &[[f64; 3]], space: &LandmarkSpace) -> Result<()> {
    let (space, name) = match space {
        LandmarkSpace::Lps => (LandmarkSpace::Lps, "LPS"),
        _ => (LandmarkSpace::Ras, "RAS"),
    };
    let points = in_space(points, &space)?;
    write_atomically(path, |file| {
        writeln!(file, "{SLICER} version = 4.11")?;
        writeln!(file, "# CoordinateSystem = {name}")?;
        writeln!(
            file,
            "# columns = id,x,y,z,ow,ox,oy,oz,vis,sel,lock,label,desc,associatedNodeID"
        )?;
        for (number, [x, y, z]) in (1..).zip(&points) {
            writeln!(file, "{number},{x},{y},{z},0,0,0,1,1,1,0,F-{number},,")?;
        }
        Ok(())
    })
}
