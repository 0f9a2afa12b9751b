//! A result, measured run of planes by run of planes: all of them at once where it is in host memory (`held.rs`), a few at a
//! time where images are read slab by slab. What is measured is shown to who writes or draws it.

use std::path::Path;

use ffdp_burn::transform::RoundTrip;
use ffdp_image::Result;
use ffdp_image::image::Affine;
use ffdp_image::metrics::{FieldPlanes, JacobianReport, Motion, Overlap, SimilarityMeasures};
use ffdp_register::Registration;
use ffdp_register::result::{Shown, ShownLabels};

use super::measures::Measured;
use crate::in_parallel::in_parallel;

/// Which map shows the moving image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// That of the start.
    Before,
    /// The result.
    After,
}

/// Who is shown what is measured, each run of planes once and in their order. By default nothing is done with it.
pub trait ResultObserver: Sync {
    /// The images.
    fn image(&self, _when: When, _shown: &Shown) -> Result<()> {
        Ok(())
    }

    /// The displacement.
    fn displacement(&self, _planes: &FieldPlanes) -> Result<()> {
        Ok(())
    }

    /// The labels; as they were before only where the fixed image has some as well.
    fn labels(&self, _when: When, _shown: &ShownLabels) -> Result<()> {
        Ok(())
    }

    /// A step is done.
    fn done(&self, _what: &str) {}
}

/// No one.
impl ResultObserver for () {}

/// A result with the images that it is measured on.
pub trait ResultPlanes: Sync {
    /// Whether steps may be done in parallel.
    const IN_PARALLEL: bool;

    /// How alike the images are, before and after.
    fn similarity(&self, observer: &dyn ResultObserver) -> Result<[SimilarityMeasures; 2]>;

    /// How the labels overlap, where both images have some.
    fn overlap(&self, observer: &dyn ResultObserver) -> Result<Option<Overlap>>;

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

    /// Measures images and displacements, which are written where they have paths.
    ///
    /// # Errors
    /// Those of reading, writing and of a device.
    fn measured(
        &self,
        found: &Registration,
        observer: &dyn ResultObserver,
        paths: Option<[&Path; 2]>,
    ) -> Result<Measured> {
        let done = |what: &str| observer.done(what);
        let grid = found.grid();
        let mut motions =
            [&Affine::identity(), &found.affine].map(|affine| Motion::new(grid, affine));
        let of_displacement = || {
            let jacobian = self.jacobian(|planes| {
                let own = planes.own_vectors(grid.size);
                motions.iter_mut().for_each(|motion| motion.add(planes.own.start, &own));
                observer.displacement(planes)
            });
            jacobian.inspect(|_| done("Jacobian"))
        };
        let written = || {
            let written = paths.map_or(Ok(()), |paths| self.write_displacements(paths));
            written.inspect(|()| done("displacements"))
        };
        let similarity = || self.similarity(observer).inspect(|_| done("warped image, compared"));
        let overlap = || self.overlap(observer).inspect(|_| done("labels"));
        let ((similarity, dice), (jacobian, ())) =
            self.both(|| self.both(similarity, overlap), || self.both(of_displacement, written))?;
        let [displacement_mm, motion_mm] = motions.each_ref().map(Motion::lengths);
        let inverse = self.inverse_error();
        Ok(Measured { similarity, jacobian, motion_mm, displacement_mm, dice, inverse })
    }
}
