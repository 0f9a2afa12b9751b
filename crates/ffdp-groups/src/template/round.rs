//! One round: every image is registered to the template, the mean map is taken out, and the images are averaged anew.
//!
//! ```text
//! phi_i = A_i o (id + w_i)                   from the template T to image i, as registered
//! psi   = (id + mean w)^-1 o (mean A)^-1     takes the mean map out: exp(-mean v) where methods find velocities
//! phi'_i = phi_i o psi = A'_i o (id + w'_i)  A'_i = A_i o (mean A)^-1
//! T'    = average over i of image_i o phi'_i
//! ```
//! A point `x` of `T` lies at `x + mean w(x)` on average, so that is where `T'` has it: the mean of `(id + w_i) o psi` is
//! the identity. With the mean of the inverses of `id + w_i` it would be so for small displacements only. Each image is
//! sampled once.

use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use burn::tensor::Device;
use ffdp_burn::ops::exp;
use ffdp_burn::transform::{Composite, Displacement, Step};
use ffdp_image::error::{Error, Result};
use ffdp_image::image::{Affine, Geometry, Physical, Volume, download};
use ffdp_register::verdict::Assessment;
use ffdp_register::{Placement, Register, Settings};
use serde::{Deserialize, Serialize};

use super::affine_mean::{affine_mean, affine_power};
use super::average::{Sums, beyond, of_all};
use super::grid::mean_centre;
use super::report::{RoundReport, TemplateObserver};
use super::settings::{Average, RoundKind, TemplateSettings};
use super::sharpness::{sharpened, sharpness};
use super::survey::{Member, Scale};
use crate::images::{Images, Subject, each_ahead};
use crate::registrations::{
    ImageReport, Kept, Registered, Registering, is_used, register_missing, unless_ended,
};
use crate::store::Store;

type Map = Affine<Physical, Physical>;

/// Squarings of the exponential of a mean velocity.
const SQUARINGS: usize = 7;

/// Part of a template's largest value below which a voxel is background.
const FOREGROUND: f32 = 0.1;

/// What all rounds have in common.
pub(super) struct Making<'a> {
    pub images: &'a dyn Images,
    pub settings: &'a TemplateSettings,
    pub placements: Vec<Placement>,
    /// Where images are averaged.
    pub device: Device,
    pub observer: Mutex<&'a mut dyn TemplateObserver>,
    pub store: Store,
    /// In an order that does not depend on the list.
    pub members: Vec<Member>,
    pub grid: Geometry,
}

/// What a round leaves.
pub(super) struct Round {
    pub template: Volume,
    pub mean: Volume,
    pub variance: Volume,
    /// Of each member: the affine part of its map, and whether there is a displacement before it.
    pub maps: Vec<MemberMap>,
    pub report: RoundReport,
}

/// The map of a member without its displacement.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct MemberMap {
    affine: [[f64; 4]; 3],
    pub deforms: bool,
    pub is_used: bool,
}

impl MemberMap {
    pub fn affine(&self) -> Map {
        Affine::from_rows(self.affine)
    }
}

/// Where the map of a member is kept (`w'`), its registration as long as the round is not complete, and the template of a
/// round with what is reported of it.
pub(super) fn map_file(round: usize, member: &Member) -> String {
    format!("round-{round:02}/map-{}", member.hash)
}

fn found_file(round: usize, member: &Member) -> String {
    format!("round-{round:02}/found-{}", member.hash)
}

fn template_file(round: usize) -> String {
    format!("round-{round:02}/template")
}

/// The map of an image as it was registered.
#[derive(Serialize, Deserialize)]
struct FoundMap {
    affine: [[f64; 4]; 3],
    fields: Fields,
}

type Found = Kept<FoundMap>;

/// What follows the header, in voxels of the template: the displacement, and the velocity after it.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Fields {
    None,
    Displacement,
    DisplacementAndVelocity,
}

/// What is kept of a round, before its three volumes.
#[derive(Serialize, Deserialize)]
struct Header {
    maps: Vec<MemberMap>,
    report: RoundReport,
}

impl Making<'_> {
    /// Does a round, or reads what it has left.
    pub fn round(
        &self,
        round: usize,
        rounds: usize,
        kind: RoundKind,
        before: Option<&Round>,
    ) -> Result<Round> {
        let done = match self.read(round)? {
            Some(done) => done,
            None => {
                self.watch(|observer| observer.round_started(round, rounds, kind))?;
                let clock = Instant::now();
                let mut done = match before {
                    None => self.start()?,
                    Some(before) => self.register(round, kind, before)?,
                };
                done.report.seconds = clock.elapsed().as_secs_f64();
                self.keep(&done)?;
                done
            }
        };
        self.watch(|observer| observer.round_finished(&done.report, &done.template))?;
        Ok(done)
    }

    fn watch(
        &self,
        event: impl FnOnce(&mut dyn TemplateObserver) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut observer = self.observer.lock().unwrap_or_else(PoisonError::into_inner);
        unless_ended(event(&mut **observer), "template", "image")
    }

    /// Images as their headers or their centres of mass place them.
    fn start(&self) -> Result<Round> {
        let centre = mean_centre(&self.members);
        let placed = |member: &Member| {
            let by_mass = self.settings.is_placed_by_mass();
            let shift = |i: usize| if by_mass { member.centre_mm[i] - centre[i] } else { 0.0 };
            let mut affine = *Map::identity().rows();
            (0..3).for_each(|i| affine[i][3] = shift(i));
            MemberMap { affine, deforms: false, is_used: true }
        };
        let maps: Vec<MemberMap> = self.members.iter().map(placed).collect();
        let images = self.members.iter().map(|member| ImageReport {
            index: member.index,
            name: member.name.clone(),
            is_used: true,
            reasons: Vec::new(),
            loss: None,
            seconds: 0.0,
        });
        let images = images.collect();
        self.averaged(0, RoundKind::Start, None, RoundMaps { maps, change: None, images })
    }

    /// Registers all, and averages them anew.
    fn register(&self, round: usize, kind: RoundKind, before: &Round) -> Result<Round> {
        let settings = self.settings.of_round(kind);
        let indices = self.members.iter().map(|member| member.index);
        let registering = Registrations { making: self, round, before, settings };
        register_missing(&registering, self.images, indices, &self.placements, &self.store)?;
        let read = |member: &Member| {
            let found = self.store.read::<Found>(&found_file(round, member))?;
            let mut found = found.expect("it was written or read a moment ago");
            // The list may be another one than when it was written.
            (found.report.index, found.report.name) = (member.index, member.name.clone());
            Ok(found)
        };
        let found = self.members.iter().map(read).collect::<Result<Vec<Found>>>()?;
        let used: Vec<&Found> = found.iter().filter(|found| found.report.is_used).collect();
        if used.len() < 2 {
            let reasons = found.iter().flat_map(|found| {
                found.report.reasons.iter().map(|reason| format!("{}: {reason}", found.report.name))
            });
            let what =
                format!("in round {round}, two images or more must be registered to the template");
            return Err(Error::invalid(what, used.len(), reasons.collect::<Vec<_>>().join("; ")));
        }
        let affines = used.iter().map(|found| Map::from_rows(found.header.affine));
        let affines: Vec<Map> = affines.collect();
        let mean = affine_power(&affine_mean(&affines)?, self.settings.update)?;
        let psi = Psi { back: mean.inverse()?, field: self.mean_field(round, &found)? };
        let maps: Vec<MemberMap> = found
            .iter()
            .map(|found| MemberMap {
                affine: *psi.back.then(&Map::from_rows(found.header.affine)).rows(),
                deforms: found.report.is_used
                    && (found.header.fields != Fields::None || psi.field.is_some()),
                is_used: found.report.is_used,
            })
            .collect();
        let images = found.iter().map(|found| found.report.clone()).collect();
        let fields = found.iter().map(|found| found.header.fields).collect();
        let change = Some(Change { psi, fields });
        self.averaged(round, kind, Some(before), RoundMaps { maps, change, images })
    }

    /// The map from the mean shape to the template, without the affine part; `None` where nothing deforms.
    fn mean_field(&self, round: usize, found: &[Found]) -> Result<Option<Displacement>> {
        let used = || self.members.iter().zip(found).filter(|(_, found)| found.report.is_used);
        let deforms = |found: &Found| found.header.fields != Fields::None;
        let count = used().count();
        if !used().any(|(_, found)| deforms(found)) {
            return Ok(None);
        }
        // What does not deform has a velocity, of zero.
        let by_velocity = used().all(|(_, found)| found.header.fields != Fields::Displacement);
        let voxels = self.grid.len();
        let first = if by_velocity { 3 } else { 0 };
        let mut mean = Vec::with_capacity(3 * voxels);
        for component in first..first + 3 {
            let mut sum = vec![0.0f64; voxels];
            for (member, _) in used().filter(|(_, found)| deforms(found)) {
                let part = component * voxels..(component + 1) * voxels;
                let values = self.store.values::<f32>(&found_file(round, member), part)?;
                sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += f64::from(value));
            }
            mean.extend(sum.iter().map(|sum| (sum * self.settings.update / count as f64) as f32));
        }
        let mean = Displacement::from_vec(mean, self.grid.clone(), &self.device)?;
        let field = match by_velocity {
            true => Displacement::new(exp(mean.into_field().neg(), SQUARINGS), self.grid.clone())?,
            false => Composite::new(vec![Step::Displacement(mean)])
                .inverse()?
                .to_displacement(&self.grid, &self.device),
        };
        Ok(Some(field))
    }

    /// Averages the images under their maps, and reports the round.
    fn averaged(
        &self,
        round: usize,
        kind: RoundKind,
        before: Option<&Round>,
        RoundMaps { maps, change, mut images }: RoundMaps,
    ) -> Result<Round> {
        let members = || self.members.iter().zip(&maps).enumerate();
        let used: Vec<usize> = members()
            .filter(|(_, (_, map))| map.is_used)
            .map(|(k, _)| self.members[k].index)
            .collect();
        let mut sums = Sums::new(self.grid.len());
        let keeps_all = self.settings.average != Average::Mean;
        let warped_file = |member: &Member| format!("round-{round:02}/warped-{}", member.hash);
        each_ahead(self.images, &used, |index, subject| {
            let find = |member: &Member| member.index == index;
            let k = self.members.iter().position(find).expect("only members are read");
            let displacement = match &change {
                Some(change) => self.map(round, k, &maps[k], change)?,
                None => None,
            };
            let warped = self.warped(&self.members[k], subject?, &maps[k], displacement)?;
            if keeps_all {
                self.store.write(&warped_file(&self.members[k]), &(), &[&warped.data])?;
            }
            sums.add(&warped.data);
            Ok(())
        })?;
        let [mut mean, mut variance] = sums.finish(&self.grid)?;
        let mut average = match keeps_all {
            false => mean.clone(),
            true => {
                let used = members().filter(|(_, (_, map))| map.is_used);
                let names: Vec<String> = used.map(|(_, (member, _))| warped_file(member)).collect();
                let average = of_all(&self.store, &names, self.settings.average, &self.grid)?;
                names.iter().try_for_each(|name| self.store.remove(name))?;
                average
            }
        };
        self.to_intensities([&mut mean, &mut average], &mut variance);
        let template = sharpened(&average, self.settings.sharpening, &self.device)?;
        images.sort_by_key(|image| image.index);
        let report = RoundReport {
            round,
            kind,
            change: before.map(|before| change_of(&template, &before.template)),
            mean_map_mm: match &change {
                Some(change) => self.length_mm(&change.psi, &foreground(&mean))?,
                None => 0.0,
            },
            sharpness: [sharpness(&average)?, sharpness(&template)?],
            spread: spread(&mean, &variance),
            images,
            seconds: 0.0,
        };
        Ok(Round { template, mean, variance, maps, report })
    }

    /// From scaled intensities to the mean scale of the images.
    fn to_intensities(&self, images: [&mut Volume; 2], variance: &mut Volume) {
        let Scale { low, unit } = Scale::mean(&self.members);
        for image in images {
            image.data.iter_mut().for_each(|v| *v = (low + unit * f64::from(*v)) as f32);
        }
        variance.data.iter_mut().for_each(|v| *v = (unit * unit * f64::from(*v)) as f32);
    }

    /// The displacement `w'` of a member's new map, which is kept; `None` where it has none.
    fn map(
        &self,
        round: usize,
        k: usize,
        map: &MemberMap,
        Change { psi, fields }: &Change,
    ) -> Result<Option<Displacement>> {
        if !map.deforms {
            return Ok(None);
        }
        let member = &self.members[k];
        let mut steps = vec![Step::Affine(psi.back)];
        steps.extend(psi.field.clone().map(Step::Displacement));
        if fields[k] != Fields::None {
            let values = self.store.values(&found_file(round, member), 0..3 * self.grid.len())?;
            let found = Displacement::from_vec(values, self.grid.clone(), &self.device)?;
            steps.push(Step::Displacement(found));
        }
        // A'^-1 o A = mean A.
        steps.push(Step::Affine(psi.back.inverse()?));
        let displacement = Composite::new(steps).to_displacement(&self.grid, &self.device);
        self.store.write(&map_file(round, member), &(), &[&displacement.to_vec()?])?;
        Ok(Some(displacement))
    }

    /// An image in scaled intensities under its map, NaN where nothing is known of it.
    fn warped(
        &self,
        member: &Member,
        subject: Subject,
        map: &MemberMap,
        displacement: Option<Displacement>,
    ) -> Result<Volume> {
        let mut image = subject.image;
        member.scale.applied(&mut image);
        let affine = map.affine();
        let values = displacement.as_ref().map(Displacement::to_vec).transpose()?;
        let steps = displacement.map(Step::Displacement).into_iter().chain([Step::Affine(affine)]);
        let map = Composite::new(steps.collect());
        let mut warped = map.warp(&image, &self.grid, &self.device)?;
        beyond(&mut warped, &image.geometry, member.beyond, &affine, values.as_deref());
        Ok(warped)
    }

    /// Root mean square of a map's displacement at some voxels of the grid, mm.
    fn length_mm(&self, psi: &Psi, inside: &[bool]) -> Result<f64> {
        let mut steps = vec![Step::Affine(psi.back)];
        steps.extend(psi.field.clone().map(Step::Displacement));
        let whole = Composite::new(steps).to_displacement(&self.grid, &self.device);
        let mm = download(whole.to_mm(), "the mean map")?;
        let components =
            mm.chunks_exact(inside.len()).flat_map(|component| component.iter().zip(inside));
        let squares: f64 =
            components.filter(|(_, inside)| **inside).map(|(v, _)| f64::from(*v).powi(2)).sum();
        let count = inside.iter().filter(|inside| **inside).count().max(1);
        Ok((squares / count as f64).sqrt())
    }

    /// What a complete round has left.
    fn read(&self, round: usize) -> Result<Option<Round>> {
        let file = template_file(round);
        let Some(Header { maps, mut report }) = self.store.read(&file)? else { return Ok(None) };
        let voxels = self.grid.len();
        let volume = |k: usize| {
            let values = self.store.values(&file, k * voxels..(k + 1) * voxels)?;
            Volume::new(values, self.grid.clone())
        };
        // The list may be another one than when it was written; maps are in the order of the members.
        let used = self.members.iter().zip(&maps);
        for image in &mut report.images {
            let same = used.clone().find(|(member, _)| member.name == image.name);
            image.index = same.map_or(image.index, |(member, _)| member.index);
        }
        report.images.sort_by_key(|image| image.index);
        let (template, mean, variance) = (volume(0)?, volume(1)?, volume(2)?);
        Ok(Some(Round { template, mean, variance, maps, report }))
    }

    /// Keeps a round, and removes what it was made of.
    fn keep(&self, done: &Round) -> Result<()> {
        let Round { template, mean, variance, maps, report } = done;
        let round = report.round;
        let header = Header { maps: maps.clone(), report: report.clone() };
        let volumes = [&template.data[..], &mean.data, &variance.data];
        self.store.write(&template_file(round), &header, &volumes)?;
        for member in &self.members {
            self.store.remove(&found_file(round, member))?;
            if round > 0 {
                self.store.remove(&map_file(round - 1, member))?;
            }
        }
        Ok(())
    }
}

/// How the template of a round is moved to the mean shape.
struct Psi {
    /// The inverse of the mean affine map, which comes first.
    back: Map,
    field: Option<Displacement>,
}

/// The maps under which a round averages.
struct RoundMaps {
    /// Of each member.
    maps: Vec<MemberMap>,
    /// How they differ from those that were found; `None` before anything was registered.
    change: Option<Change>,
    images: Vec<ImageReport>,
}

struct Change {
    psi: Psi,
    /// Of each member.
    fields: Vec<Fields>,
}

/// The registrations of a round.
struct Registrations<'a, 'b> {
    making: &'a Making<'b>,
    round: usize,
    before: &'a Round,
    settings: Settings,
}

impl Registrations<'_, '_> {
    /// The number of a member.
    fn member(&self, index: usize) -> usize {
        let mut members = self.making.members.iter();
        members.position(|member| member.index == index).expect("only members are read")
    }
}

impl Registering for Registrations<'_, '_> {
    type Header = FoundMap;

    fn file(&self, index: usize) -> String {
        found_file(self.round, &self.making.members[self.member(index)])
    }

    fn register(
        &self,
        index: usize,
        subject: Subject,
        placement: &Placement,
    ) -> Result<Registered<FoundMap>> {
        let (template, settings) = (&self.before.template, &self.settings);
        let start = self.before.maps[self.member(index)].affine();
        let run = Register::new(template, &subject.image).initial(start).settings(settings);
        let found = run.on(placement).run()?;
        let assessment = found.evidence(settings, &subject.image.geometry)?.assess();
        let loss = [found.loss_before, found.loss_after];
        if !is_used(&assessment) {
            let header = self.unregistered(index);
            return Ok(Registered { header, values: Vec::new(), loss, assessment });
        }
        let mut values = Vec::new();
        if let Some(warp) = &found.warp {
            values.push(warp.to_vec()?);
            values.extend(found.velocity.as_ref().map(|velocity| velocity.to_vec()).transpose()?);
        }
        let fields = match values.len() {
            0 => Fields::None,
            1 => Fields::Displacement,
            _ => Fields::DisplacementAndVelocity,
        };
        let header = FoundMap { affine: *found.affine.rows(), fields };
        Ok(Registered { header, values, loss, assessment })
    }

    /// It lies where it lay.
    fn unregistered(&self, index: usize) -> FoundMap {
        FoundMap { affine: self.before.maps[self.member(index)].affine, fields: Fields::None }
    }

    fn watch(&self, report: &ImageReport, assessment: Option<&Assessment>) -> Result<()> {
        self.making.watch(|observer| observer.registered(report, assessment))
    }
}

/// Root mean square of a difference, as a part of that of the image.
fn change_of(image: &Volume, before: &Volume) -> f64 {
    let square = |v: f64| v * v;
    let pairs = image.data.iter().zip(&before.data);
    let difference: f64 = pairs.map(|(a, b)| square(f64::from(*a) - f64::from(*b))).sum();
    let all: f64 = image.data.iter().map(|a| square(f64::from(*a))).sum();
    (difference / all.max(f64::MIN_POSITIVE)).sqrt()
}

/// Which voxels lie above the background.
fn foreground(mean: &Volume) -> Vec<bool> {
    let (low, high) = mean.min_max().unwrap_or((0.0, 0.0));
    mean.data.iter().map(|v| *v > low + FOREGROUND * (high - low)).collect()
}

/// Root of the mean variance in the foreground, as a part of the mean there above the darkest.
fn spread(mean: &Volume, variance: &Volume) -> f64 {
    let low = mean.min_max().map_or(0.0, |(low, _)| low);
    let inside = foreground(mean);
    let (mut sum, mut squares, mut count) = (0.0, 0.0, 0.0);
    for ((mean, variance), _) in
        mean.data.iter().zip(&variance.data).zip(&inside).filter(|(_, inside)| **inside)
    {
        (sum, squares, count) =
            (sum + f64::from(*mean - low), squares + f64::from(*variance), count + 1.0);
    }
    if count == 0.0 { 0.0 } else { (squares / count).sqrt() / (sum / count) }
}
