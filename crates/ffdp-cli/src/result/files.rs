//! What of a result is written and drawn while it is measured.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ffdp_image::Result;
use ffdp_image::image::Geometry;
use ffdp_image::io::images::{LabelWriter, VolumeWriter};
use ffdp_image::metrics::FieldPlanes;
use ffdp_register::result::{Shown, ShownLabels};

use super::jacobian::log_jacobian;
use crate::printer::Printer;
use crate::report::slices::{Panels, Quantity};

/// Which map shows the moving image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// That of the start.
    Before,
    /// The result.
    After,
}

/// Files that grow run of planes by run of planes, and pictures of planes through the fixed image: each where it is there.
#[derive(Default)]
pub struct ResultFiles {
    pub panels: Option<Mutex<Panels>>,
    pub warped: Option<Mutex<VolumeWriter>>,
    pub labels: Option<Mutex<LabelWriter>>,
    /// With the grid and the determinant of the affine map.
    pub jacobian: Option<(Mutex<VolumeWriter>, Geometry, f64)>,
    /// Names of the displacement and its inverse.
    pub displacements: Option<[PathBuf; 2]>,
    /// To whom steps are reported.
    pub printer: Option<Printer>,
}

impl ResultFiles {
    /// Puts the files in place; what is seen of the result is left, to be drawn.
    ///
    /// # Errors
    /// Those of writing.
    pub fn finish(self) -> Result<Option<Panels>> {
        let Self { panels, warped, labels, jacobian, .. } = self;
        for image in warped.into_iter().chain(jacobian.map(|(file, ..)| file)) {
            into_inner(image).finish()?;
        }
        labels.map_or(Ok(()), |labels| into_inner(labels).finish())?;
        Ok(panels.map(into_inner))
    }

    pub(crate) fn image(&self, when: When, shown: &Shown) -> Result<()> {
        let Shown { planes, fixed, moved } = shown;
        if let Some(mut panels) = self.panels.as_ref().map(lock) {
            if when == When::After {
                panels.add(Quantity::Fixed, planes.start, fixed);
            }
            panels.add(when.of(Quantity::Before, Quantity::Warped), planes.start, moved);
        }
        let file = self.warped.as_ref().filter(|_| when == When::After);
        file.map_or(Ok(()), |file| lock(file).write(moved))
    }

    pub(crate) fn displacement(&self, planes: &FieldPlanes) -> Result<()> {
        if let Some((file, grid, determinant)) = &self.jacobian {
            lock(file).write(&log_jacobian(planes, grid.size, *determinant)?)?;
        }
        self.panels.as_ref().map_or(Ok(()), |panels| lock(panels).add_displacement(planes))
    }

    pub(crate) fn labels(&self, when: When, shown: &ShownLabels) -> Result<()> {
        let ShownLabels { planes, fixed, moved } = shown;
        if let (Some(mut panels), Some(fixed)) = (self.panels.as_ref().map(lock), fixed) {
            if when == When::After {
                panels.add_labels(Quantity::LabelFixed, planes.start, fixed);
            }
            let quantity = when.of(Quantity::LabelBefore, Quantity::LabelAfter);
            panels.add_labels(quantity, planes.start, moved);
        }
        let file = self.labels.as_ref().filter(|_| when == When::After);
        file.map_or(Ok(()), |file| lock(file).write(moved))
    }

    /// Reports what a step gave, and when it was done.
    pub(crate) fn done<T>(&self, what: &str, clock: Instant, gave: Result<T>) -> Result<T> {
        let seconds = clock.elapsed().as_secs_f64();
        self.printer.inspect(|printer| printer.detail(&format!("{what}: after {seconds:.1} s")));
        gave
    }
}

impl When {
    fn of<T>(self, before: T, after: T) -> T {
        if self == Self::Before { before } else { after }
    }
}

/// A thread that panics ends the command: no lock outlives it.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn into_inner<T>(shared: Mutex<T>) -> T {
    shared.into_inner().unwrap_or_else(PoisonError::into_inner)
}
