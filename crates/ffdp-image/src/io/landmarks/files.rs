//! Files of landmarks, read by their content and written by their name.

use std::io::Write;
use std::path::Path;

use super::table::{Kind, LandmarkTable};
use super::{LandmarkSpace, elastix, in_space, read, slicer};
use crate::error::Result;
use crate::io::write_atomically;

impl LandmarkTable {
    /// Reads landmarks.
    ///
    /// CSV with commas, semicolons (then with decimal commas, too), tabs or blanks: three columns, or any with a
    /// header line that names `x`, `y`, `z` or `i`, `j`, `k`; lines that start with `#` and empty lines are skipped.
    /// Files of Slicer and elastix are known by their content. A `.fcsv` or `.mrk.json` says its space itself, and
    /// `space` is that of all others.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) when the file cannot be read, [`Error::File`](crate::Error::File) with the
    /// line's number for a line of other columns or a coordinate that is no finite number, for voxel indices without a
    /// grid, and for a file without any landmark.
    pub fn read(path: impl AsRef<Path>, space: &LandmarkSpace) -> Result<Self> {
        read::read(path.as_ref(), space)
    }

    /// Writes the points in a space, by the name as `.fcsv` or `.mrk.json` of Slicer, and otherwise as the text of
    /// elastix if it was one, or as CSV: three columns with the names that they had (`i,j,k` for voxels, `x,y,z` for
    /// mm; for LPS followed by a column `t`, as ANTs wants it), then all others as they were.
    ///
    /// [`LandmarkSpace::OfFile`] is the space of the file that was read; for a CSV made of a file of Slicer or elastix
    /// RAS, as a CSV has it by default.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) when writing fails.
    pub fn write(&self, path: impl AsRef<Path>, space: &LandmarkSpace) -> Result<()> {
        let path = path.as_ref();
        let name = path.to_string_lossy().to_lowercase();
        let (fcsv, markups) = (name.ends_with(".fcsv"), name.ends_with(".mrk.json"));
        let elastix = self.kind == Kind::Elastix && name.ends_with(".txt");
        let space = match space {
            LandmarkSpace::OfFile if fcsv || markups || elastix => &self.space,
            LandmarkSpace::OfFile if self.kind != Kind::Table => &LandmarkSpace::Ras,
            LandmarkSpace::OfFile => &self.space,
            other => other,
        };
        let text = match () {
            () if fcsv => slicer::fcsv(self, space)?,
            () if markups => slicer::markups(self, space)?,
            () if elastix => elastix::text(&in_space(&self.points, space)?, space),
            () => self.csv(space)?,
        };
        write_atomically(path, |file| file.write_all(text.as_bytes()))
    }
}
