//! A result, measured run of planes by run of planes: all of them at once where it is in host memory (`held.rs`), a few at a
//! time where images are read slab by slab. What is measured is shown to whoever writes or draws it.

use std::path::Path;
use std::time::Instant;

use ffdp_burn::transform::RoundTrip;
use ffdp_image::Result;
use ffdp_image::image::Affine;
use ffdp_image::metrics::{FieldPlanes, JacobianReport, Motion, Overlap, SimilarityMeasures};
use ffdp_register::Registration;
use ffdp_register::result::{Shown, ShownLabels};

use super::measures::Measured;

/// Which map shows the moving image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// That of the start.
    Before,
    /// The result.
    After,
}

/// Who is shown what is measured: each run of planes once, in their order. By default nothing is done with it.
pub trait ResultObserver: Sync {
    /// The images.
    fn image(&self, _when: When, _shown: &Shown) -> Result<()> {
        Ok(())
    }

    /// The displacement.
    fn displacement(&self, _planes: &FieldPlanes) -> Result<()> {
        Ok(())
    }

    /// The labels; those before only where the fixed image has some as well.
    fn labels(&self, _when: When, _shown: &ShownLabels) -> Result<()> {
        Ok(())
    }

    /// A step that is done, and its seconds.
    fn done(&self, _what: &str, _seconds: f64) {}
}

/// No one.
impl ResultObserver for () {}

/// A result with the images that it is measured on.
pub trait ResultPlanes: Sync {
    /// How alike the images are, before and after.
    fn similarity(&self, observer: &impl ResultObserver) -> Result<[SimilarityMeasures; 2]>;

    /// How the labels overlap, where both images have some.
    fn overlap(&self, observer: &impl ResultObserver) -> Result<Option<Overlap>>;

    /// The Jacobian of the displacement, which `each` is shown.
    fn jacobian(
        &self,
        each: impl FnMut(&FieldPlanes) -> Result<()> + Send,
    ) -> Result<JacobianReport>;

    /// The error of the inverse, where it is known.
    fn inverse_error(&self) -> Option<RoundTrip>;

    /// Writes the displacement and its inverse, where there are such.
    fn write_displacements(&self, paths: [&Path; 2]) -> Result<()>;

    /// Does both: in parallel, or the second where the first did not fail.
    fn both<A: Send, B: Send>(
        &self,
        first: impl FnOnce() -> Result<A> + Send,
        second: impl FnOnce() -> Result<B> + Send,
    ) -> Result<(A, B)>;
}

/// Measures images and displacements.
pub fn measured(
    planes: &impl ResultPlanes,
    found: &Registration,
    observer: &impl ResultObserver,
) -> Result<Measured> {
    let grid = found.grid();
    let mut motions = [&Affine::identity(), &found.affine].map(|affine| Motion::new(grid, affine));
    let of_images = || timed(observer, "warped image, compared", || planes.similarity(observer));
    let of_labels = || timed(observer, "labels", || planes.overlap(observer));
    let of_displacement = || {
        planes.jacobian(|planes| {
            let own = planes.own_vectors(grid.size);
            motions.iter_mut().for_each(|motion| motion.add(planes.own.start, &own));
            observer.displacement(planes)
        })
    };
    let ((similarity, dice), jacobian) = planes.both(
        || planes.both(of_images, of_labels),
        || timed(observer, "Jacobian", of_displacement),
    )?;
    let [displacement_mm, motion_mm] = motions.each_ref().map(Motion::lengths);
    let inverse = planes.inverse_error();
    Ok(Measured { similarity, jacobian, motion_mm, displacement_mm, dice, inverse })
}

/// A step whose seconds are reported.
pub fn timed<T>(
    observer: &impl ResultObserver,
    what: &str,
    step: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let clock = Instant::now();
    let done = step()?;
    observer.done(what, clock.elapsed().as_secs_f64());
    Ok(done)
}
