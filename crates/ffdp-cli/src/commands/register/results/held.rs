//! A result in host memory: measured, written and drawn in parallel, while the device does something else.

use std::time::Instant;

use ffdp_burn::ops::Interpolation;
use ffdp_burn::transform::{BsplineTransform, Composite, Displacement, RoundTrip, Step};
use ffdp_image::image::{Affine, Geometry, LabelMap, Physical, Volume};
use ffdp_image::io::images::{write_displacement, write_labels, write_volume};
use ffdp_image::metrics::{Coverage, FieldPlanes, Lengths, Overlap, SimilarityMeasures, jacobian};
use ffdp_register::{Registration, coverage::background, result::Warp};

use super::jacobian::log_jacobian;
use super::{Measured, Results, Writing};
use crate::commands::register::args::RegisterArguments;
use crate::commands::register::files::Files;
use crate::commands::register::inputs::Volumes;
use crate::failure::Result;
use crate::in_parallel::in_parallel;
use crate::report::slices::{Panels, Pictures, Quantity};

/// Everything that is written or measured.
pub struct Held {
    /// What it took until displacements were here, and the rest after that.
    seconds: [f64; 2],
    /// Whether there is more than an affine map.
    deforms: bool,
    /// Where the run began: the affine map, and the displacement before it.
    start: (Affine<Physical, Physical>, Option<Vec<f32>>),
    /// The moving image on the fixed grid as it was placed at the start, and as it was found.
    images: [Volume; 2],
    /// The same of its labels.
    labels: Option<[LabelMap; 2]>,
    /// `[3, D, H, W]` in voxels.
    displacement: Vec<f32>,
    /// The opposite of the displacement, `[3, D, H, W]` in voxels of the same grid, and its error.
    inverse: Option<(Vec<f32>, RoundTrip)>,
}

impl Held {
    /// Reads everything back, and releases what the device has of it.
    pub fn of(
        request: &RegisterArguments,
        inputs: Volumes,
        found: &mut Registration,
    ) -> Result<Self> {
        let clock = Instant::now();
        let (grid, device) = (&inputs.fixed.geometry, found.device().clone());
        // What is written comes first.
        let inverse = match request.no_inverse {
            true => None,
            false => found.inverse_displacement()?,
        };
        let inverse = inverse.map(|(inverse, error)| Ok((inverse.to_vec()?, error)));
        let inverse = inverse.transpose().map_err(|error: ffdp_image::Error| error)?;
        let warp = found.warp.as_ref().map(Warp::displacement).transpose()?;
        let displacement = match &warp {
            Some(warp) => warp.to_vec()?,
            None => Displacement::zero(grid.clone(), &device).to_vec()?,
        };
        let fields_seconds = clock.elapsed().as_secs_f64();
        let after = warp.map(Step::Displacement).into_iter().chain([Step::Affine(found.affine)]);
        let start = found.before()?.transform()?;
        let (deformation, placement) = start.split_affine();
        let start_displacement = match deformation.steps() {
            [Step::Displacement(w)] => Some(w.to_vec()?),
            _ => None,
        };
        let maps = [start, Composite::new(after.collect())];
        let labels = inputs.moving_labels.map(|labels| {
            let nearest = Interpolation::Nearest;
            let [before, after] =
                maps.each_ref().map(|map| map.warp_labels(labels, grid, nearest, &device));
            Ok::<_, ffdp_image::Error>([before?, after?])
        });
        let moving = inputs.moving;
        let [before, after] = maps.each_ref().map(|map| map.warp(moving, grid, &device));
        let mut images = [before?, after?];
        let beyond = match request.background {
            Some(value) => value,
            None => background(&mut { moving })?,
        };
        if beyond != 0.0 {
            let grids = [grid, &moving.geometry];
            let [before, after] = &mut images;
            let began = start_displacement.as_deref();
            Coverage::new(grids, &placement, began).fill(&mut before.data, beyond);
            let deformed = Some(&displacement[..]);
            Coverage::new(grids, &found.affine, deformed).fill(&mut after.data, beyond);
        }
        let deforms = found.warp.is_some();
        (found.warp, found.inverse, found.velocity) = (None, None, None);
        let seconds = [fields_seconds, clock.elapsed().as_secs_f64() - fields_seconds];
        let labels = labels.transpose()?;
        let start = (placement, start_displacement);
        Ok(Self { seconds, deforms, start, images, labels, displacement, inverse })
    }

    /// Measures, writes and draws.
    pub fn finish(
        &self,
        to: Writing,
        results: &Results,
        inputs: Volumes,
    ) -> Result<(Measured, Pictures)> {
        let clock = Instant::now();
        let grid = &inputs.fixed.geometry;
        let ((measured, written), pictures) = in_parallel(
            || {
                let written = || {
                    self.write(to.files, grid)?;
                    self.write_jacobian(to, &results.found, grid)
                };
                in_parallel(|| self.measures(&results.found, inputs), written)
            },
            || self.draw(inputs, results),
        );
        written?;
        let [fields, rest] = self.seconds;
        to.printer.detail(&format!(
            "inverse found and displacements read back in {fields:.2} s, what the report shows in {rest:.2} s; then, in \
             parallel, measures, files and pictures in {:.2} s",
            clock.elapsed().as_secs_f64()
        ));
        Ok((measured?, pictures?))
    }

    /// All measures, in parallel.
    fn measures(&self, found: &Registration, inputs: Volumes) -> ffdp_image::Result<Measured> {
        let (fixed, moving) = (inputs.fixed, &inputs.moving.geometry);
        let (grid, displacement) = (&fixed.geometry, &self.displacement[..]);
        let similarity = |moved, affine, displacement| {
            let coverage = Coverage::new([grid, moving], affine, displacement);
            SimilarityMeasures::of(fixed, moved, &coverage.compared())
        };
        let lengths = |affine: &Affine<_, _>| Lengths::of(displacement, grid, affine);
        let [before, after] = &self.images;
        let ((before, after), (dice, (jacobian, (displacement_mm, motion_mm)))) = in_parallel(
            || {
                in_parallel(
                    || similarity(before, &self.start.0, self.start.1.as_deref()),
                    || similarity(after, &found.affine, Some(displacement)),
                )
            },
            || {
                in_parallel(
                    || self.overlap(inputs),
                    || {
                        in_parallel(
                            || jacobian(displacement, grid.size),
                            || (lengths(&Affine::identity()), lengths(&found.affine)),
                        )
                    },
                )
            },
        );
        Ok(Measured {
            similarity: [before?, after?],
            jacobian: jacobian?,
            motion_mm,
            displacement_mm,
            dice: dice?,
            inverse: self.inverse.as_ref().map(|(_, error)| *error),
            processes: Vec::new(),
        })
    }

    fn overlap(&self, inputs: Volumes) -> ffdp_image::Result<Option<Overlap>> {
        match (inputs.fixed_labels, inputs.moving_labels, &self.labels) {
            (Some(fixed), Some(moving), Some(moved)) => {
                Overlap::of(fixed, moving, moved.each_ref(), inputs.label_ids).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn draw(&self, inputs: Volumes, results: &Results) -> Result<Pictures> {
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
