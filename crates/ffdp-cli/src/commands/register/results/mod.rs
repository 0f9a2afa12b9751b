//! What comes of a registration: measured, drawn and written from host memory (`held.rs`) or, slab by slab, from where it
//! was found (`slabs.rs`).

mod held;
mod jacobian;
mod slabs;

use ffdp_burn::transform::{BsplineTransform, Composite, RoundTrip, Step, write_transform};
use ffdp_image::image::{Affine, Physical};
use ffdp_image::io::{write_affine, write_text};
use ffdp_image::metrics::{
    BeforeAfter, JacobianReport, Lengths, Overlap, SimilarityMeasures, TargetRegistrationError,
    tre_of_mapped,
};
use ffdp_register::{Registration, Settings, Stage, verdict::Evidence};

use self::held::Held;
use super::args::RegisterArguments;
use super::files::Files;
use super::inputs::Inputs;
use crate::affine_parts::AffineParts;
use crate::failure::Result;
use crate::hosts::Hosts;
use crate::label_names::NamedOverlap;
use crate::memory::give_back_memory;
use crate::printer::Printer;
use crate::report::measures::{Folds, Input, Measures, Process, Provenance, Seconds};
use crate::report::slices::{LandmarkMarks, Pictures};

/// A result, and what of it is in host memory.
pub struct Results {
    found: Registration,
    /// `None` slab by slab.
    held: Option<Held>,
    landmarks: Option<TargetRegistrationError>,
    /// The same landmarks as they are drawn.
    marks: Option<LandmarkMarks>,
    /// The displacement as a spline, where it is one.
    spline: Option<BsplineTransform>,
}

/// What was measured of a result while it was written.
struct Measured {
    similarity: [SimilarityMeasures; 2],
    jacobian: JacobianReport,
    motion_mm: Lengths,
    displacement_mm: Lengths,
    dice: Option<Overlap>,
    inverse: Option<RoundTrip>,
    processes: Vec<Process>,
}

/// Where results go, and who writes them.
#[derive(Clone, Copy)]
pub struct Writing<'a> {
    pub request: &'a RegisterArguments,
    pub files: &'a Files,
    pub hosts: &'a Hosts,
    pub printer: Printer,
}

impl Results {
    /// Does the rest of what is done on the device; reads everything back, unless that is done slab by slab.
    pub fn of(
        request: &RegisterArguments,
        inputs: &mut Inputs,
        mut found: Registration,
    ) -> Result<Self> {
        let landmarks = inputs.landmarks.as_ref().map(|landmarks| measured(landmarks, &found));
        let (landmarks, marks) = landmarks.transpose()?.unzip();
        let spline = spline_of(&found);
        let held = match request.slabs {
            true => None,
            false => Some(Held::of(request, inputs.volumes(), &mut found)?),
        };
        Ok(Self { found, held, landmarks, marks, spline })
    }

    /// Writes the results and says what they are worth, all but the times; on the first of several processes, which do it
    /// together.
    pub fn finish(
        &self,
        to: Writing,
        settings: &Settings,
        inputs: &mut Inputs,
    ) -> Result<Option<(Measures, Pictures)>> {
        give_back_memory();
        let measured = match &self.held {
            Some(held) => Some(held.finish(to, self, inputs.volumes())?),
            None => slabs::finish(to, self, inputs)?,
        };
        let Some((measured, pictures)) = measured else { return Ok(None) };
        if let Some(spline) = &self.spline {
            let spline = Composite::new(vec![Step::Bspline(spline.clone())]);
            write_transform(&to.files.spline, &spline)?;
        }
        write_affine(&to.files.affine, &self.found.affine)?;
        write_affine(&to.files.affine_mat, &self.found.affine)?;
        let measures = self.measures(to.request, settings, inputs, measured)?;
        if let Some(dice) = &measures.dice {
            write_text(&to.files.label_table, &dice.csv())?;
        }
        Ok(Some((measures, pictures)))
    }

    fn measures(
        &self,
        request: &RegisterArguments,
        settings: &Settings,
        inputs: &Inputs,
        measured: Measured,
    ) -> Result<Measures> {
        let Self { found, landmarks, .. } = self;
        let [fixed, moving] = [&inputs.fixed, &inputs.moving].map(|side| side.image.geometry());
        let Measured { similarity, jacobian, dice, inverse, .. } = measured;
        let folds = Folds::new(&jacobian, found.affine.determinant());
        let surfaces = dice.as_ref().and_then(|dice| dice.surfaces.as_ref());
        let evidence = Evidence {
            similarity: shown(&similarity, settings),
            folds_percent: Some(folds.percent),
            inverse_p95_voxels: inverse.map(|error| error.p95_voxels),
            dice: dice.as_ref().map(|dice| dice.mean.pair()),
            hd95_mm: surfaces.map(|surfaces| surfaces.hd95_mm.pair()),
            landmarks_mm: landmarks.as_ref().map(|tre| [tre.before.mean, tre.after.mean]),
            ..found.evidence(settings, moving)?
        };
        Ok(Measures {
            run: Provenance::here(&request.mesh),
            fixed: Input::of(request.fixed(), inputs.fixed.hash.get()?, fixed),
            moving: Input::of(request.moving(), inputs.moving.hash.get()?, moving),
            assessment: evidence.assess(),
            warnings: inputs.warnings.clone(),
            overlap_percent: BeforeAfter::of(evidence.overlap_percent.expect("of two grids")),
            loss: BeforeAfter { before: found.loss_before, after: found.loss_after },
            affine: *found.affine.rows(),
            affine_determinant: found.affine.determinant(),
            affine_singular_values: found.affine.singular_values(),
            affine_parts: AffineParts::of(&found.affine, fixed.center_mm()),
            dice: dice.map(|overlap| NamedOverlap { overlap, names: inputs.label_names.clone() }),
            landmarks_mm: landmarks.clone(),
            stages: found.stages.clone(),
            settings: settings.clone(),
            seconds: Seconds::default(),
            peak_memory_bytes: None,
            similarity: BeforeAfter::of(similarity),
            folds,
            motion_mm: measured.motion_mm,
            displacement_mm: measured.displacement_mm,
            inverse,
            processes: measured.processes,
        })
    }
}

/// The distances of landmarks, and where those of the moving image lie on the fixed side: a landmark that the map misses by
/// `e` lies about `A^-1 e` from the fixed one, with the affine part `A` of the map.
fn measured(
    [fixed, moving]: &[Vec<[f64; 3]>; 2],
    found: &Registration,
) -> Result<(TargetRegistrationError, LandmarkMarks)> {
    let start = found.before()?;
    let [before, after] = [start.map_points(fixed)?, found.map_points(fixed)?];
    let placement = start.transform()?.split_affine().1;
    let seen = |mapped: &[[f64; 3]], affine: &Affine<Physical, Physical>| {
        let back = affine.inverse()?;
        let seen = |((at, to), landmark): ((&[f64; 3], &[f64; 3]), &[f64; 3])| {
            let missed = back.apply_vector([0, 1, 2].map(|i| landmark[i] - to[i]));
            [0, 1, 2].map(|i| at[i] + missed[i])
        };
        Ok::<_, ffdp_image::Error>(fixed.iter().zip(mapped).zip(moving).map(seen).collect())
    };
    let moving_marks = [seen(&before, &placement)?, seen(&after, &found.affine)?];
    let marks = LandmarkMarks { fixed: fixed.clone(), moving: moving_marks };
    Ok((tre_of_mapped(&before, &after, moving)?, marks))
}

/// How alike the images are before and after, by what the last stage compares: local correlation of one contrast,
/// information of two. Unknown where they did not meet before.
fn shown(similarity: &[SimilarityMeasures; 2], settings: &Settings) -> Option<[f64; 2]> {
    let one_contrast = settings.stages.last().is_some_and(Stage::compares_intensities);
    let of = |similarity: &SimilarityMeasures| match one_contrast {
        true => similarity.local_ncc_foreground,
        false => similarity.nmi,
    };
    (!similarity[0].ncc.is_nan()).then(|| similarity.each_ref().map(of))
}

/// The spline that a displacement is, if it is one.
fn spline_of(found: &Registration) -> Option<BsplineTransform> {
    match found.exact()?.step()? {
        Step::Bspline(spline) => Some(spline),
        _ => None,
    }
}
