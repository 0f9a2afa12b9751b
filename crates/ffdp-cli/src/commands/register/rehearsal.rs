//! A registration of made-up images while the real ones are read: so that kernels are compiled meanwhile.
//!
//! A GPU's kernels are compiled when they are first launched, which takes longer than everything else that a
//! registration of small images does. Which ones there are depends on the sizes and the settings, not on the
//! intensities: the made-up images have the grids of the real ones, and everything is done that will be done
//! on the device, with few iterations. One process compiles one kernel at a time: others begin with the last levels and
//! with the results meanwhile, and leave what they compile on disk. Where kernels are kept there (`persistence`), a
//! repeated run finds its own, sooner than it could rehearse: then there is none. When the real images cannot be read, the
//! rehearsal ends with the level under way ([`Until`]).
//!
//! The first pair of a list is rehearsed like a pair that is alone. Some kernels depend on the grids: while the first
//! pairs are registered, other processes rehearse those that follow ([`Following`]).

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use ffdp_burn::transform::Composite;
use ffdp_image::image::{Geometry, LabelMap, Volume};
use ffdp_kit::rehearsal::{Helper, Note, cores, part};
use ffdp_parallel::DeviceMesh;
use ffdp_register::report::{LevelReport, LevelStart, Progress};
use ffdp_register::{Observer, Register, Registration, Settings, Stage};
use rayon::prelude::*;

use super::args::RegisterArguments;
use super::channels;
use super::inputs::{Image, Inputs, Labels, Side};
use super::results::Results;
use crate::device::DeviceChoice;
use crate::failure::{Failure, Result};
use crate::hash::Hash;
use crate::label_names::LabelNames;
use crate::memory::{Held, Plan, Sizes};
use crate::pairs::read_named;
use crate::printer::Printer;

/// Iterations of a level: the second one starts from what the first has left, and their losses are
/// joined.
const ITERATIONS: usize = 2;
/// Voxels of both images up to which a rehearsal pays: beyond, its work on the host is no longer small
/// while kernels are compiled.
const MOST_VOXELS: usize = 64 << 20;

/// What is rehearsed.
#[derive(Clone, Copy)]
pub struct Rehearsed<'a> {
    pub request: &'a RegisterArguments,
    /// What a list calls the pair; empty of a pair that is alone.
    pub pair: &'a str,
    pub settings: &'a Settings,
    pub sizes: &'a Sizes,
    pub mesh: &'a DeviceMesh,
    pub until: Until<'a>,
}

/// Ends a rehearsal once the flag is set, for what follows it will not be done.
#[derive(Clone, Copy)]
pub struct Until<'a>(pub &'a AtomicBool);

impl Until<'_> {
    fn has_come(self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn flow(self) -> ControlFlow<()> {
        if self.has_come() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl Observer for Until<'_> {
    fn level_started(&mut self, _: &LevelStart) -> ControlFlow<()> {
        self.flow()
    }

    fn losses_read(&mut self, _: &Progress) -> ControlFlow<()> {
        self.flow()
    }

    fn level_finished(&mut self, _: &LevelReport) -> ControlFlow<()> {
        self.flow()
    }
}

/// Does once what the registration of images with these grids will do on the device. Its result means
/// nothing; nor does its failure, which the registration itself will report. So many other processes at `most` do parts of
/// it meanwhile. Whether there was anything to compile, and all of it was.
pub fn rehearse(rehearsed: Rehearsed, most: usize) -> bool {
    let Rehearsed { request, pair, settings, sizes, until, .. } = rehearsed;
    if sizes.voxels() > MOST_VOXELS || until.has_come() {
        return false;
    }
    let note = note_of(request, settings);
    if note.as_ref().is_some_and(Note::exists) {
        return false;
    }
    // Only where what they compile is kept.
    let parts = if note.is_some() { Part::of(settings) } else { Vec::new() };
    let parts = parts.into_iter().take(most.min(cores() / CORES));
    let helpers: Vec<_> = parts.filter_map(|part| part.helper(pair)).collect();
    let done = Rehearsal::new(rehearsed).and_then(Rehearsal::whole);
    drop(helpers);
    if until.has_come() {
        return false;
    }
    if let (Ok(()), Some(note)) = (done, note) {
        note.write();
    }
    true
}

/// Processes that rehearse later pairs of a list while the first ones are registered on the same device.
#[derive(Default)]
pub struct Following {
    helpers: Vec<Helper>,
    /// Memory of the device that each of them takes at most: as much as the first pair.
    bytes: u64,
    /// The most that a pair has taken there.
    most_bytes: u64,
}

impl Following {
    /// Starts so many at `most` for the pairs after this one, which takes so much memory of the device.
    pub fn start(&mut self, rehearsed: Rehearsed, most: usize, bytes: u64) {
        let Rehearsed { request, pair, settings, .. } = rehearsed;
        self.bytes = bytes;
        if note_of(request, settings).is_none() || self.most_bytes > bytes {
            return;
        }
        let apart = most.min(cores() / CORES).min(AHEAD);
        let parts = (0..apart).map(|first| Part::Following { first, apart });
        self.helpers = parts.filter_map(|part| part.helper(pair)).collect();
    }

    /// Ends them for a pair that takes more memory of the device than the first one, by which their room was counted.
    pub fn make_room(&mut self, bytes: u64) {
        self.most_bytes = self.most_bytes.max(bytes);
        if bytes > self.bytes {
            self.helpers.clear();
        }
    }
}

/// Cores for each process that helps.
const CORES: usize = 4;

/// What another process rehearses, which begins elsewhere: what it has compiled is found when this one comes there.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    /// The inverse, the measures on the device, what is read back.
    Results,
    /// A level of the last stage, from rest.
    Level(usize),
    /// Every `apart`-th of the following pairs of a list, beginning `first` lines after the next one.
    Following { first: usize, apart: usize },
}

impl Part {
    /// All that does not come first anyway, what comes last before the others.
    fn of(settings: &Settings) -> Vec<Self> {
        let Some(stage) = settings.stages.last().filter(|stage| !stage.is_linear()) else {
            return Vec::new();
        };
        let first = usize::from(settings.stages.len() == 1);
        let levels = (first..stage.levels().len()).rev().map(Self::Level);
        [Self::Results].into_iter().chain(levels).collect()
    }

    fn name(self) -> String {
        match self {
            Self::Results => "results".to_string(),
            Self::Level(level) => level.to_string(),
            Self::Following { first, apart } => format!("{first}/{apart}"),
        }
    }

    fn named(name: &str) -> Option<Self> {
        if name == "results" {
            return Some(Self::Results);
        }
        match name.split_once('/') {
            Some((first, apart)) => {
                let apart = apart.parse().ok().filter(|apart| *apart > 0)?;
                Some(Self::Following { first: first.parse().ok()?, apart })
            }
            None => name.parse().ok().map(Self::Level),
        }
    }

    /// A process that does this part for a pair of a list, or for the pair that is alone, without a name.
    fn helper(self, pair: &str) -> Option<Helper> {
        Helper::start(&format!("{}@{} {pair}", self.name(), std::process::id()))
    }
}

/// Does the part of a rehearsal that this process was started for, if it was; nothing of one that is not known.
pub fn help(request: &RegisterArguments) -> Option<Result<()>> {
    let part = part()?;
    let (part, pair) = part.split_once(' ').unwrap_or((&part, ""));
    let (part, parent) = part.split_once('@').unwrap_or((part, ""));
    let Some(part) = Part::named(part) else { return Some(Ok(())) };
    let parent = parent.parse().ok();
    Some(request.pairs_from(pair).and_then(|requests| part.rehearse(&requests, parent)))
}

impl RegisterArguments {
    /// The pairs of its list from the one with this name on, as far as they can be used, or the pair that is alone.
    fn pairs_from(&self, pair: &str) -> Result<Vec<Self>> {
        let Some(list) = &self.pairs else { return Ok(vec![self.clone()]) };
        let rows = read_named(list, &["fixed", "moving"], Printer::new(true, false))?;
        let from = rows.into_iter().skip_while(|(name, _)| name != pair);
        let requests = from.filter_map(|(name, row)| {
            // What is wrong with a pair it says itself.
            let mut request = self.of_pair(&row, &name).ok()?;
            request.mesh = self.mesh.each().swap_remove(0);
            Some(request)
        });
        Ok(requests.collect())
    }
}

/// Pairs of a list that are looked at ahead of those that are registered: after so many grids hardly a kernel is new.
const AHEAD: usize = 8;

impl Part {
    /// For the process `parent`, where that is known.
    fn rehearse(self, requests: &[RegisterArguments], parent: Option<u32>) -> Result<()> {
        let started = SystemTime::now();
        let Some((request, following)) = requests.split_first() else { return Ok(()) };
        let settings = request.resolve()?;
        let sizes = request.sizes(&settings)?;
        let Self::Following { first, apart } = self else { return self.of_pair(request, &sizes) };
        let most_bytes = request.planned(&settings, &sizes, Held::Whole)?.device_peak_bytes;
        let mut done = vec![sizes];
        for request in following.iter().take(AHEAD).skip(first).step_by(apart) {
            if parent.is_some_and(has_ended) {
                break;
            }
            // It is being registered, or was meanwhile.
            let changed = fs::metadata(&request.output).and_then(|folder| folder.modified());
            if changed.is_ok_and(|at| at > started) {
                continue;
            }
            // An error the pair reports itself.
            let Ok(sizes) = request.sizes(&settings) else { continue };
            let fits = |plan: Plan| plan.device_peak_bytes <= most_bytes;
            let fits = request.planned(&settings, &sizes, Held::Whole).is_ok_and(fits);
            if fits && sizes.voxels() <= MOST_VOXELS && !done.iter().any(|of| of.is_like(&sizes)) {
                let _ = self.of_pair(request, &sizes);
                done.push(sizes);
            }
        }
        Ok(())
    }

    fn of_pair(self, request: &RegisterArguments, sizes: &Sizes) -> Result<()> {
        let settings = request.resolve()?.for_images(&sizes.fixed);
        let mesh = request.mesh.open(&settings, sizes)?;
        // It is killed when it is to end.
        let never = AtomicBool::new(false);
        let until = Until(&never);
        let (settings, mesh) = (&settings, &mesh);
        let rehearsed = Rehearsed { request, pair: "", settings, sizes, mesh, until };
        let mut rehearsal = Rehearsal::new(rehearsed)?;
        let done = match self {
            Self::Results => {
                let found = rehearsal.made_up();
                rehearsal.results(found)
            }
            Self::Level(level) => {
                let last = settings.stages.last().expect("settings without stages do not resolve");
                let levels = last.levels().get(level).into_iter().copied().collect();
                rehearsal.stages(vec![last.clone().with_levels(levels)]).map(|_| ())
            }
            Self::Following { .. } => rehearsal.whole(),
        };
        // Pools keep pieces of the sizes that were asked for.
        mesh.device(0).memory_cleanup();
        done
    }
}

impl Sizes {
    fn voxels(&self) -> usize {
        self.fixed.len() + self.moving.len()
    }

    /// Whether the same kernels are compiled for both: of grids their extents and spacings, and what is given on them.
    fn is_like(&self, other: &Self) -> bool {
        let of = |Self { fixed, moving, content, labels }: &Self| {
            ([fixed, moving].map(|grid| (grid.size, grid.spacing_mm)), *content, *labels)
        };
        of(self) == of(other)
    }
}

/// Whether the process that has started this one has ended, where the system says who has.
fn has_ended(parent: u32) -> bool {
    #[cfg(unix)]
    return std::os::unix::process::parent_id() != parent;
    #[cfg(not(unix))]
    return false;
}

/// The note that kernels for such a run are kept. Of wgpu the driver compiles, and keeps, or does not.
fn note_of(request: &RegisterArguments, settings: &Settings) -> Option<Note> {
    if request.mesh.first() == DeviceChoice::Wgpu {
        return None;
    }
    let sides = [&request.fixed_labels, &request.moving_labels];
    let given =
        (request.masked(), sides.map(Option::is_some), &request.channels, request.no_inverse);
    Note::of(&format!("{} {settings:?} {given:?}", request.mesh))
}

/// Made-up images, and what is done with them.
struct Rehearsal<'a> {
    of: Rehearsed<'a>,
    inputs: Inputs,
}

impl<'a> Rehearsal<'a> {
    fn new(of: Rehearsed<'a>) -> Result<Self> {
        let inputs = Inputs::made_up(of.request, of.settings, of.sizes)?;
        Ok(Self { of, inputs })
    }

    fn whole(mut self) -> Result<()> {
        let found = self.stages(self.of.settings.stages.clone())?;
        if self.of.until.has_come() {
            return Ok(());
        }
        // Stages that found nothing better are not kept: then the results lack what is made of a deformation.
        let found = if found.warp.is_none() { self.made_up() } else { found };
        self.results(found)
    }

    /// Stages with few iterations.
    fn stages(&mut self, stages: Vec<Stage>) -> Result<Registration> {
        let Rehearsed { settings, mesh, mut until, .. } = self.of;
        let settings = shortened(&Settings { stages, ..settings.clone() });
        let registration = Register::of(self.inputs.problem(&settings)).settings(&settings);
        Ok(registration.on(mesh).observer(&mut until).run()?)
    }

    /// What stages may have found: no displacement at all, as a deformation and its inverse where there are such.
    fn made_up(&self) -> Registration {
        let grid = self.inputs.fixed.image.geometry();
        Registration::without_motion(grid, self.of.mesh.device(0), &self.of.settings.stages)
    }

    fn results(&mut self, found: Registration) -> Result<()> {
        Results::of(self.of.request, &mut self.inputs, found).map(|_| ())
    }
}

/// The same with few iterations a level.
pub fn shortened(settings: &Settings) -> Settings {
    let mut settings = settings.clone();
    for stage in &mut settings.stages {
        stage.shorten(ITERATIONS);
    }
    settings
}

impl Inputs {
    /// Blobs on the grids of a request, with labels, masks and further channels where it has them.
    fn made_up(request: &RegisterArguments, settings: &Settings, sizes: &Sizes) -> Result<Self> {
        let RegisterArguments { fixed_labels, moving_labels, .. } = request;
        let ids = settings.label_term.as_ref().map_or(&[1][..], |term| &term.labels);
        let more = channels::count(&request.channels)?;
        let side = |file: &Path, grid, radius, labelled: bool, masked: bool| {
            let image = blob(grid, radius)?;
            let label =
                |(k, value): (usize, &f32)| if *value > 0.5 { ids[k % ids.len()] } else { 0 };
            let labels = || {
                let all = image.data.par_iter().enumerate().map(label).collect();
                LabelMap::new(all, grid.clone())
            };
            let ones = || Volume::new(vec![1.0; grid.len()], grid.clone());
            Ok::<_, Failure>(Side {
                labels: labelled.then(labels).transpose()?.map(Labels::Map),
                driving: None,
                mask: masked.then(ones).transpose()?.map(Image::Volume),
                channels: (0..more).map(|_| Image::Volume(image.clone())).collect(),
                hash: Hash::later(file),
                mask_hash: None,
                warnings: Vec::new(),
                image: Image::Volume(image),
            })
        };
        let [fixed_mask, moving_mask] = request.masked();
        let fixed = request.fixed();
        let moving = request.moving();
        Ok(Self {
            fixed: side(fixed, &sizes.fixed, 0.5, fixed_labels.is_some(), fixed_mask)?,
            moving: side(moving, &sizes.moving, 0.52, moving_labels.is_some(), moving_mask)?,
            label_ids: None,
            label_names: LabelNames::default(),
            initial: Composite::default(),
            guides_hash: String::new(),
            landmarks: None,
            warnings: Vec::new(),
        })
    }
}

/// `max(0, 1 - r^2)`, the radius a part of each axis.
fn blob(grid: &Geometry, radius: f32) -> Result<Volume> {
    let value = |offset: usize| {
        let index = grid.index_of(offset);
        let part = |i: usize| (index[i] as f32 + 0.5) / grid.size[i] as f32 - 0.5;
        let square = |i: usize| if grid.size[i] > 1 { (part(i) / radius).powi(2) } else { 0.0 };
        (1.0 - (0..3).map(square).sum::<f32>()).max(0.0)
    };
    let data = (0..grid.len()).into_par_iter().map(value).collect();
    Ok(Volume::new(data, grid.clone())?)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use ffdp_image::io::images::write_volume;

    use super::super::case::{Case, Registrations};
    use super::*;
    use crate::args::{self, Arguments};
    use crate::cohort::Steps;
    use crate::hosts::Hosts;

    #[test]
    fn parts_are_what_does_not_come_first_and_known_by_their_names() {
        let settings = Settings::default();
        let deformation = settings.stages.last().expect("there are some");
        assert!(!deformation.is_linear() && settings.stages.len() > 1);
        let parts = Part::of(&settings);
        assert_eq!(parts.len(), 1 + deformation.levels().len());
        assert!(parts.iter().all(|part| Part::named(&part.name()) == Some(*part)));
        for name in ["", "2/", "/3", "x"] {
            assert_eq!(Part::named(name), None, "{name}");
        }
        let following = Part::Following { first: 1, apart: 3 };
        assert_eq!(Part::named(&following.name()), Some(following));
        // The coarsest level of a stage that is alone comes first.
        let alone = Settings { stages: vec![deformation.clone()], ..settings.clone() };
        assert_eq!(Part::of(&alone).len(), deformation.levels().len());
        let linear = settings.stages[..settings.stages.len() - 1].to_vec();
        assert!(Part::of(&Settings { stages: linear, ..settings }).is_empty());
    }

    /// The request for two images of a folder, the second of which ends in the middle.
    fn request_for_half_an_image(folder: &Path) -> RegisterArguments {
        let grid = Geometry::new([24; 3], [2.0; 3]).expect("valid");
        let [fixed, moving] = ["fixed.nii.gz", "moving.nii.gz"].map(|name| folder.join(name));
        write_volume(&fixed, &blob(&grid, 0.5).expect("fits")).expect("writable");
        let bytes = fs::read(&fixed).expect("written");
        fs::write(&moving, &bytes[..bytes.len() / 2]).expect("writable");
        let path = |path: &Path| path.to_str().expect("a plain name").to_string();
        let [fixed, moving, out] = [path(&fixed), path(&moving), path(&folder.join("out"))];
        let line = ["ffdp", "register", "-q", "-f", &fixed, "-m", &moving, "-o", &out];
        let line = [&line[..], &["--device", "cpu", "--shrink", "2"]].concat();
        let parsed = Arguments::try_parse_from(line).expect("a request");
        match parsed.command {
            args::Command::Register(request) => *request,
            other => panic!("another command: {other:?}"),
        }
    }

    #[test]
    fn a_rehearsal_ends_when_an_image_cannot_be_read() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let request = request_for_half_an_image(folder.path());
        let all = Registrations::new(&request, vec![request.mesh.clone()], &Hosts::default());
        let all = all.expect("valid settings");
        let case = Case::new(request, &all, Printer::new(true, false)).expect("good headers");
        let Case { request, sizes, .. } = &case;
        let settings = all.settings.for_images(&sizes.fixed);
        let mesh = &request.mesh.open(&settings, sizes).expect("a CPU");
        let until = Until(&all.unreadable);
        let rehearsed = Rehearsed { request, pair: "", settings: &settings, sizes, mesh, until };
        let stages = || {
            let mut rehearsal = Rehearsal::new(rehearsed).expect("small images");
            rehearsal.stages(settings.stages.clone()).expect("a CPU").stages.len()
        };
        assert!(settings.stages.len() > 1 && stages() == settings.stages.len());
        let refused = all.read(&case).err().expect("half an image").to_string();
        assert!(refused.contains("moving.nii.gz"), "{refused}");
        assert_eq!(stages(), 1, "the first level of the first stage asks");
        assert!(!rehearse(rehearsed, 0));
    }

    #[test]
    fn blobs_have_an_inside_and_an_outside_on_volumes_and_planes() {
        for size in [[16, 20, 9], [24, 16, 1]] {
            let grid = Geometry::new(size, [1.0; 3]).expect("valid");
            let image = blob(&grid, 0.5).expect("fits");
            let (low, high) = image.min_max().expect("finite");
            assert!(low == 0.0 && high > 0.9 && high <= 1.0, "{size:?}: {low}..{high}");
        }
    }
}
