//! What of a result is written and drawn while it is measured.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ffdp_burn::transform::BsplineTransform;
use ffdp_image::Result;
use ffdp_image::image::Geometry;
use ffdp_image::io::images::{LabelWriter, VolumeWriter};
use ffdp_image::metrics::FieldPlanes;
use ffdp_register::result::{Shown, ShownLabels};

use super::jacobian::log_jacobian;
use super::{Results, Writing};
use crate::commands::register::inputs::{Image, Inputs};
use crate::printer::Printer;
use crate::report::slices::{Panels, Quantity};
use crate::result::{ResultObserver, When};

/// Files that grow run of planes by run of planes, of the first process, and pictures of planes through the fixed image.
pub struct GrowingFiles {
    grid: Geometry,
    /// Of the affine map.
    determinant: f64,
    panels: Mutex<Panels>,
    warped: Mutex<Option<VolumeWriter>>,
    jacobian: Mutex<Option<VolumeWriter>>,
    labels: Mutex<Option<LabelWriter>>,
    printer: Printer,
}

impl GrowingFiles {
    /// Of a result whose moving labels are these, if there are any.
    pub fn begin(
        to: Writing,
        results: &Results,
        inputs: &Inputs,
        label_ids: Option<&[i32]>,
    ) -> crate::failure::Result<Self> {
        let Writing { request, files, hosts, printer } = to;
        let grid = results.found.grid().clone();
        let mut panels = match &inputs.fixed.image {
            Image::Volume(fixed) => Panels::through_mass(fixed)?,
            Image::Planes(_) => Panels::new(&grid, (grid.center_mm(), "middle")),
        };
        panels.landmarks = results.marks.clone();
        panels.controls = results.spline.as_ref().map(BsplineTransform::geometry).cloned();
        let first = hosts.is_first();
        let image = |path: &Path, wanted: bool| {
            let file = (first && wanted).then(|| VolumeWriter::create(path, &grid)).transpose();
            file.map(Mutex::new)
        };
        let labels = label_ids.filter(|_| first);
        let labels =
            labels.map(|ids| LabelWriter::create(&files.labels, &grid, ids)).transpose()?;
        Ok(Self {
            determinant: results.found.affine.determinant(),
            panels: Mutex::new(panels),
            warped: image(&files.warped, true)?,
            jacobian: image(&files.jacobian, request.jacobian)?,
            labels: Mutex::new(labels),
            grid,
            printer,
        })
    }

    /// Puts the files in place; what is seen of the result is left, to be drawn.
    pub fn finish(self) -> Result<Panels> {
        let Self { panels, warped, jacobian, labels, .. } = self;
        for image in [warped, jacobian] {
            into_inner(image).map_or(Ok(()), VolumeWriter::finish)?;
        }
        into_inner(labels).map_or(Ok(()), LabelWriter::finish)?;
        Ok(into_inner(panels))
    }

    fn draw(&self, quantity: Quantity, first: usize, planes: &[f32]) {
        lock(&self.panels).add(quantity, first, planes);
    }
}

impl ResultObserver for GrowingFiles {
    fn image(&self, when: When, shown: &Shown) -> Result<()> {
        let first = shown.planes.start;
        match when {
            When::Before => self.draw(Quantity::Before, first, shown.moved),
            When::After => {
                self.draw(Quantity::Fixed, first, shown.fixed);
                self.draw(Quantity::Warped, first, shown.moved);
                lock(&self.warped).as_mut().map_or(Ok(()), |file| file.write(shown.moved))?;
            }
        }
        Ok(())
    }

    fn displacement(&self, planes: &FieldPlanes) -> Result<()> {
        if let Some(file) = lock(&self.jacobian).as_mut() {
            file.write(&log_jacobian(planes, self.grid.size, self.determinant)?)?;
        }
        lock(&self.panels).add_displacement(planes)
    }

    fn labels(&self, when: When, shown: &ShownLabels) -> Result<()> {
        let ShownLabels { planes, fixed, moved } = shown;
        if let Some(fixed) = fixed {
            let (mut panels, first) = (lock(&self.panels), planes.start);
            match when {
                When::Before => panels.add_labels(Quantity::LabelBefore, first, moved),
                When::After => {
                    panels.add_labels(Quantity::LabelFixed, first, fixed);
                    panels.add_labels(Quantity::LabelAfter, first, moved);
                }
            }
        }
        match (when, lock(&self.labels).as_mut()) {
            (When::After, Some(file)) => file.write(moved),
            _ => Ok(()),
        }
    }

    fn done(&self, what: &str, seconds: f64) {
        self.printer.detail(&format!("{what}: {seconds:.1} s"));
    }
}

/// A thread that panics ends the command: no lock outlives it.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn into_inner<T>(shared: Mutex<T>) -> T {
    shared.into_inner().unwrap_or_else(PoisonError::into_inner)
}
