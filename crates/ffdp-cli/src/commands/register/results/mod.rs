//! What comes of a registration: measured, drawn and written from host memory (`held.rs`) or, slab by slab, from where it
//! was found (`slabs.rs`).

mod held;
mod jacobian;
mod slabs;

use ffdp_burn::transform::{BsplineTransform, Composite, Step, write_transform};
use ffdp_image::image::{Affine, Physical};
use ffdp_image::io::{write_affine, write_text};
use ffdp_image::metrics::{TargetRegistrationError, tre_of_mapped};
use ffdp_register::{Registration, Settings};

use super::args::RegisterArguments;
use super::files::Files;
use super::inputs::Inputs;
use crate::failure::Result;
use crate::hosts::Hosts;
use crate::memory::give_back_memory;
use crate::printer::Printer;
use crate::report::measures::{Input, Measures, Process, Provenance, Seconds};
use crate::report::slices::{LandmarkMarks, Pictures};
use crate::result::{HeldResult, Measured, ResultMeasures, ResultRequest};

/// A result, and what of it is in host memory.
pub struct Results {
    found: Registration,
    /// `None` slab by slab.
    held: Option<HeldResult>,
    landmarks: Option<TargetRegistrationError>,
    /// The same landmarks as they are drawn.
    marks: Option<LandmarkMarks>,
    /// The displacement as a spline, where it is one.
    spline: Option<BsplineTransform>,
}

/// A result that is written.
struct Written {
    measured: Measured,
    pictures: Pictures,
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
            false => {
                let asked =
                    ResultRequest { background: request.background, inverse: !request.no_inverse };
                Some(HeldResult::of(&mut found, inputs.volumes(), asked)?)
            }
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
        let written = match &self.held {
            Some(held) => Some(held.finish(to, self, inputs.volumes())?),
            None => slabs::finish(to, self, inputs)?,
        };
        let Some(Written { measured, pictures, processes }) = written else { return Ok(None) };
        if let Some(spline) = &self.spline {
            let spline = Composite::new(vec![Step::Bspline(spline.clone())]);
            write_transform(&to.files.spline, &spline)?;
        }
        write_affine(&to.files.affine, &self.found.affine)?;
        write_affine(&to.files.affine_mat, &self.found.affine)?;
        let measures = self.measures(to.request, settings, inputs, (measured, processes))?;
        if let Some(dice) = &measures.result.dice {
            write_text(&to.files.label_table, &dice.csv())?;
        }
        Ok(Some((measures, pictures)))
    }

    fn measures(
        &self,
        request: &RegisterArguments,
        settings: &Settings,
        inputs: &Inputs,
        (measured, processes): (Measured, Vec<Process>),
    ) -> Result<Measures> {
        let [fixed, moving] = [&inputs.fixed, &inputs.moving].map(|side| side.image.geometry());
        let (landmarks, names) = (self.landmarks.clone(), &inputs.label_names);
        Ok(Measures {
            run: Provenance::here(&request.mesh),
            fixed: Input::of(request.fixed(), inputs.fixed.hash.get()?, fixed),
            moving: Input::of(request.moving(), inputs.moving.hash.get()?, moving),
            result: ResultMeasures::of(&self.found, settings, moving, measured, landmarks, names)?,
            warnings: inputs.warnings.clone(),
            settings: settings.clone(),
            seconds: Seconds::default(),
            peak_memory_bytes: None,
            processes,
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

/// The spline that a displacement is, if it is one.
fn spline_of(found: &Registration) -> Option<BsplineTransform> {
    match found.exact()?.step()? {
        Step::Bspline(spline) => Some(spline),
        _ => None,
    }
}
