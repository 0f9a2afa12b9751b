//! What comes of a registration: measured, drawn and written in one way ([`ResultPlanes`], `files.rs`), from host memory
//! ([`HeldResult`]) or, slab by slab, from where it was found (`slabs.rs`).

mod files;
mod jacobian;
mod slabs;

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Instant;

use ffdp_burn::transform::{BsplineTransform, Composite, Step, write_transform};
use ffdp_image::image::{Affine, Physical};
use ffdp_image::io::{write_affine, write_text};
use ffdp_image::metrics::{TargetRegistrationError, tre_of_mapped};
use ffdp_register::{Registration, Settings};

use self::files::GrowingFiles;
use self::slabs::SlabPlanes;
use super::args::RegisterArguments;
use super::files::Files;
use super::inputs::{Inputs, Labels};
use crate::failure::Result;
use crate::hosts::Hosts;
use crate::memory::{give_back_memory, peak_memory_bytes};
use crate::printer::Printer;
use crate::report::measures::{Input, Measures, Process, Provenance, Seconds};
use crate::report::slices::{LandmarkMarks, Pictures};
use crate::result::{HeldResult, Measured, ResultMeasures, ResultPlanes};

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
        let landmarks =
            inputs.landmarks.as_ref().map(|landmarks| landmark_errors(landmarks, &found));
        let (landmarks, marks) = landmarks.transpose()?.unzip();
        let spline = spline_of(&found);
        let held = || HeldResult::of(&mut found, inputs.volumes(), request.result());
        let held = (!request.slabs).then(held).transpose()?;
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
        let (found, clock) = (&self.found, Instant::now());
        let paths = Some([&to.files.warp, &to.files.inverse].map(PathBuf::as_path));
        let ids = match &self.held {
            Some(held) => held.labels.as_ref().map(|[_, after]| after.ids()),
            None => inputs.moving.labels.as_ref().map(Labels::ids),
        };
        let files = GrowingFiles::begin(to, self, inputs, ids)?;
        let measured = match &self.held {
            Some(held) => (held, inputs.volumes()).measured(found, &files, paths),
            None => {
                let (placed, request) = (found.before()?, to.request.result());
                let planes = SlabPlanes { placed, found, inputs: Mutex::new(inputs), request };
                planes.measured(found, &files, paths)
            }
        }?;
        let panels = files.finish()?;
        let seconds = clock.elapsed().as_secs_f64();
        let read_back = |held: &HeldResult| {
            let [fields, rest] = held.seconds;
            format!(
                "inverse found and displacements read back in {fields:.2} s, what the report shows in {rest:.2} s; then, \
                 in parallel, "
            )
        };
        let read_back = self.held.as_ref().map(read_back).unwrap_or_default();
        to.printer.detail(&format!("{read_back}measures and files in {seconds:.2} s"));
        let processes = processes(to.hosts, found)?;
        if !to.hosts.is_first() {
            return Ok(None);
        }
        if let Some(spline) = &self.spline {
            let spline = Composite::new(vec![Step::Bspline(spline.clone())]);
            write_transform(&to.files.spline, &spline)?;
        }
        write_affine(&to.files.affine, &self.found.affine)?;
        write_affine(&to.files.affine_mat, &self.found.affine)?;
        let measures = self.measures(to.request, settings, inputs, measured, processes)?;
        if let Some(dice) = &measures.result.dice {
            write_text(&to.files.label_table, &dice.csv())?;
        }
        Ok(Some((measures, panels.draw())))
    }

    fn measures(
        &self,
        request: &RegisterArguments,
        settings: &Settings,
        inputs: &Inputs,
        measured: Measured,
        processes: Vec<Process>,
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

/// All processes; none where one works alone.
fn processes(hosts: &Hosts, found: &Registration) -> Result<Vec<Process>> {
    let Some(ranks) = hosts.ranks() else { return Ok(Vec::new()) };
    let planes = found.warp.as_ref().map_or(0..0, |warp| warp.field.layout().held());
    let numbers = [planes.start as u64, planes.end as u64, peak_memory_bytes().unwrap_or(0)];
    let all = hosts.all_gather(&numbers.map(|number| number as f64))?;
    let process = |(host, numbers): (&String, &[f64])| {
        let [start, end, peak] = [0, 1, 2].map(|i| numbers[i] as usize);
        Process {
            host: host.clone(),
            planes: (start < end).then_some([start, end]),
            peak_memory_bytes: (peak > 0).then_some(peak as u64),
        }
    };
    Ok(ranks.hosts().iter().zip(all.chunks_exact(3)).map(process).collect())
}

/// The distances of landmarks, and where those of the moving image lie on the fixed side: a landmark that the map misses by
/// `e` lies about `A^-1 e` from the fixed one, with the affine part `A` of the map.
fn landmark_errors(
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
