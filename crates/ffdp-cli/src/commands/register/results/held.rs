//! A result in host memory: measured, written and drawn in parallel, while the device does something else.

use std::time::Instant;

use ffdp_burn::transform::BsplineTransform;
use ffdp_image::image::{Geometry, Volume};
use ffdp_image::io::images::{write_displacement, write_labels, write_volume};
use ffdp_image::metrics::FieldPlanes;
use ffdp_register::Registration;

use super::jacobian::log_jacobian;
use super::{Results, Writing, Written};
use crate::commands::register::files::Files;
use crate::commands::register::pair::timed;
use crate::failure::Result;
use crate::in_parallel::in_parallel;
use crate::report::slices::{Panels, Pictures, Quantity};
use crate::result::{HeldResult, PairVolumes};

impl HeldResult {
    /// Measures, writes and draws.
    pub(super) fn finish(
        &self,
        to: Writing,
        results: &Results,
        inputs: PairVolumes,
    ) -> Result<Written> {
        let clock = Instant::now();
        let grid = &inputs.fixed.geometry;
        let (((measured, of_measures), (written, of_files)), (pictures, of_pictures)) = in_parallel(
            || {
                let written = || {
                    self.write(to.files, grid)?;
                    self.write_jacobian(to, &results.found, grid)
                };
                let measured = || timed(|| self.measured(&results.found, inputs));
                in_parallel(measured, || timed(written))
            },
            || timed(|| self.draw(inputs, results)),
        );
        written?;
        let [fields, rest] = self.seconds;
        to.printer.detail(&format!(
            "inverse found and displacements read back in {fields:.2} s, what the report shows in {rest:.2} s; then, in \
             parallel, measures ({of_measures:.2} s), files ({of_files:.2} s) and pictures ({of_pictures:.2} s) in {:.2} s",
            clock.elapsed().as_secs_f64()
        ));
        Ok(Written { measured: measured?, pictures: pictures?, processes: Vec::new() })
    }

    fn draw(&self, inputs: PairVolumes, results: &Results) -> Result<Pictures> {
        let (fixed, [before, warped]) = (inputs.fixed, &self.images);
        let mut panels = Panels::through_mass(fixed)?;
        panels.controls = results.spline.as_ref().map(BsplineTransform::geometry).cloned();
        panels.landmarks = results.marks.clone();
        if let (Some(fixed), Some([before, after])) = (inputs.fixed_labels, &self.labels) {
            panels.add_labels([&fixed.data, &before.data, &after.data]);
        }
        panels.add(Quantity::Fixed, 0, &fixed.data);
        panels.add(Quantity::Before, 0, &before.data);
        panels.add(Quantity::Warped, 0, &warped.data);
        let own = 0..fixed.geometry.size[2];
        let displacement = &self.displacement[..];
        panels.add_displacement(&FieldPlanes { displacement, first: 0, own })?;
        Ok(panels.draw())
    }

    /// The images, the displacements and the labels, in parallel.
    fn write(&self, files: &Files, grid: &Geometry) -> ffdp_image::Result<()> {
        let displacement = |path, field: Option<&Vec<f32>>| {
            field.map_or(Ok(()), |field| write_displacement(path, field, grid))
        };
        let warp = self.deforms.then_some(&self.displacement);
        let inverse = self.inverse.as_ref().map(|(inverse, _)| inverse);
        let labels = self.labels.as_ref().map(|[_, after]| after);
        let ((warped, labels), (warp, inverse)) = in_parallel(
            || {
                in_parallel(
                    || write_volume(&files.warped, &self.images[1]),
                    || labels.map_or(Ok(()), |labels| write_labels(&files.labels, labels)),
                )
            },
            || {
                in_parallel(
                    || displacement(&files.warp, warp),
                    || displacement(&files.inverse, inverse),
                )
            },
        );
        [warped, labels, warp, inverse].into_iter().collect()
    }

    /// The map of volume change, where it is asked for.
    fn write_jacobian(
        &self,
        to: Writing,
        found: &Registration,
        grid: &Geometry,
    ) -> ffdp_image::Result<()> {
        if !to.request.jacobian {
            return Ok(());
        }
        let own = 0..grid.size[2];
        let planes = FieldPlanes { displacement: &self.displacement, first: 0, own };
        let values = log_jacobian(&planes, grid.size, found.affine.determinant())?;
        write_volume(&to.files.jacobian, &Volume::new(values, grid.clone())?)
    }
}
