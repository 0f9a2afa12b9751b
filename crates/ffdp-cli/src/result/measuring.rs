//! A result, measured run of planes by run of planes: all of them at once where it is in host memory (`held.rs`), a few at a
//! time where images are read slab by slab. What is measured is shown to [`ResultFiles`].

use std::path::Path;
use std::time::Instant;

use ffdp_burn::transform::RoundTrip;
use ffdp_image::Result;
use ffdp_image::image::Affine;
use ffdp_image::metrics::{FieldPlanes, JacobianReport, Motion, Overlap, SimilarityMeasures};
use ffdp_register::Registration;

use super::files::ResultFiles;
use super::measures::Measured;
use crate::in_parallel::in_parallel;

/// A result with the images that it is measured on. All that is measured is shown to the files, each run of planes once and
/// in their order; labels as they were before only where the fixed image has some as well.
pub trait ResultPlanes: Sync {
    /// Whether steps may be done in parallel.
    const IN_PARALLEL: bool;

    /// How alike the images are, before and after.
    fn similarity(&self, files: &ResultFiles) -> Result<[SimilarityMeasures; 2]>;

    /// How the labels overlap, where both images have some.
    fn overlap(&self, files: &ResultFiles) -> Result<Option<Overlap>>;

    /// The Jacobian of the displacement, which `each` is shown.
    fn jacobian(
        &self,
        each: impl FnMut(&FieldPlanes) -> Result<()> + Send,
    ) -> Result<JacobianReport>;

    /// Writes the displacement and its inverse, where there are such.
    fn write_displacements(&self, paths: [&Path; 2]) -> Result<()>;

    /// The error of the inverse, where it is known: it is composed with its displacement in one piece.
    fn inverse_error(&self) -> Option<RoundTrip> {
        None
    }

    /// Does both, the second where the first did not fail unless they are done in parallel.
    fn both<A: Send, B: Send>(
        &self,
        first: impl FnOnce() -> Result<A> + Send,
        second: impl FnOnce() -> Result<B> + Send,
    ) -> Result<(A, B)> {
        match Self::IN_PARALLEL {
            true => {
                let (first, second) = in_parallel(first, second);
                Ok((first?, second?))
            }
            false => Ok((first()?, second()?)),
        }
    }

    /// Measures images and displacements, and writes all that has a file.
    ///
    /// # Errors
    /// Those of reading, writing and of a device.
    fn measured(&self, found: &Registration, files: &ResultFiles) -> Result<Measured> {
        let (clock, grid) = (Instant::now(), found.grid());
        let mut motions =
            [&Affine::identity(), &found.affine].map(|affine| Motion::new(grid, affine));
        let of_displacement = || {
            let jacobian = self.jacobian(|planes| {
                let own = planes.own_vectors(grid.size);
                motions.iter_mut().for_each(|motion| motion.add(planes.own.start, &own));
                files.displacement(planes)
            });
            files.done("Jacobian", clock, jacobian)
        };
        let displacements = || {
            let paths = files.displacements.as_ref();
            let written =
                paths.map(|paths| self.write_displacements(paths.each_ref().map(|path| &**path)));
            files.done("displacements", clock, written.unwrap_or(Ok(())))
        };
        let similarity = || files.done("warped image, compared", clock, self.similarity(files));
        let overlap = || files.done("labels", clock, self.overlap(files));
        let ((similarity, dice), (jacobian, ())) = self.both(
            || self.both(similarity, overlap),
            || self.both(of_displacement, displacements),
        )?;
        let [displacement_mm, motion_mm] = motions.each_ref().map(Motion::lengths);
        let inverse = self.inverse_error();
        Ok(Measured { similarity, jacobian, motion_mm, displacement_mm, dice, inverse })
    }
}
