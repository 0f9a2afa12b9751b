//! What of a result is written and drawn while it is measured.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use ffdp_burn::transform::BsplineTransform;
use ffdp_image::Result;
use ffdp_image::image::Geometry;
use ffdp_image::io::images::{LabelWriter, VolumeWriter};
use ffdp_image::metrics::FieldPlanes;
use ffdp_register::result::{Shown, ShownLabels};

use super::jacobian::log_jacobian;
use super::{Results, Writing};
use crate::commands::register::inputs::{Image, Inputs};
use crate::in_parallel::lock;
use crate::printer::Printer;
use crate::report::slices::{Panels, Quantity};
use crate::result::{ResultObserver, When};

/// Files that grow run of planes by run of planes, of the first process, and pictures of planes through the fixed image.
pub struct GrowingFiles {
    panels: Mutex<Panels>,
    warped: Mutex<Option<VolumeWriter>>,
    jacobian: Mutex<Option<VolumeWriter>>,
    labels: Mutex<Option<LabelWriter>>,
    grid: Geometry,
    /// Of the affine map.
    determinant: f64,
    printer: Printer,
    begun: Instant,
}

impl GrowingFiles {
    /// Of a result whose moving labels have these ids, if there are any.
    pub fn begin(
        to: Writing,
        results: &Results,
        inputs: &Inputs,
        label_ids: Option<Vec<i32>>,
    ) -> crate::failure::Result<Self> {
        let Writing { request, files, hosts, printer } = to;
        let (grid, is_first) = (results.found.grid().clone(), hosts.is_first());
        let mut panels = match &inputs.fixed.image {
            Image::Volume(fixed) => Panels::through_mass(fixed)?,
            Image::Planes(_) => Panels::new(&grid, grid.center_mm(), "middle"),
        };
        panels.landmarks = results.marks.clone();
        panels.controls = results.spline.as_ref().map(BsplineTransform::geometry).cloned();
        let image = |path: &Path, wanted: bool| {
            let file = (is_first && wanted).then(|| VolumeWriter::create(path, &grid));
            file.transpose().map(Mutex::new)
        };
        let labels = label_ids.filter(|_| is_first);
        let labels = labels.map(|ids| LabelWriter::create(&files.labels, &grid, &ids));
        Ok(Self {
            panels: Mutex::new(panels),
            warped: image(&files.warped, true)?,
            jacobian: image(&files.jacobian, request.jacobian)?,
            labels: Mutex::new(labels.transpose()?),
            determinant: results.found.affine.determinant(),
            begun: Instant::now(),
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
}

impl ResultObserver for GrowingFiles {
    fn image(&self, when: When, shown: &Shown) -> Result<()> {
        let (first, mut panels) = (shown.planes.start, lock(&self.panels));
        if when == When::Before {
            panels.add(Quantity::Before, first, shown.moved);
            return Ok(());
        }
        panels.add(Quantity::Fixed, first, shown.fixed);
        panels.add(Quantity::Warped, first, shown.moved);
        drop(panels);
        lock(&self.warped).as_mut().map_or(Ok(()), |file| file.write(shown.moved))
    }

    fn displacement(&self, planes: &FieldPlanes) -> Result<()> {
        if let Some(file) = lock(&self.jacobian).as_mut() {
            file.write(&log_jacobian(planes, self.grid.size, self.determinant)?)?;
        }
        lock(&self.panels).add_displacement(planes)
    }

    fn labels(&self, when: When, shown: &ShownLabels) -> Result<()> {
        let (first, mut panels) = (shown.planes.start, lock(&self.panels));
        if when == When::Before {
            panels.add_labels(Quantity::LabelBefore, first, shown.moved);
            return Ok(());
        }
        if let Some(fixed) = shown.fixed {
            panels.add_labels(Quantity::LabelFixed, first, fixed);
            panels.add_labels(Quantity::LabelAfter, first, shown.moved);
        }
        drop(panels);
        lock(&self.labels).as_mut().map_or(Ok(()), |file| file.write(shown.moved))
    }

    fn done(&self, what: &str) {
        let seconds = self.begun.elapsed().as_secs_f64();
        self.printer.detail(&format!("{what}: after {seconds:.1} s"));
    }
}

fn into_inner<T>(shared: Mutex<T>) -> T {
    shared.into_inner().unwrap_or_else(PoisonError::into_inner)
}
