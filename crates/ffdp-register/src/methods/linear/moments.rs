//! The first placement: centre onto centre, principal axes along principal axes.
//!
//! An ellipsoid has no front: its axes leave four ways to turn it (eight with reflections), and the
//! axes of a field of view that ends in the neck are not those of the brain. So the candidates are
//! tried, each improved by some rigid steps on a coarse level, and the most alike one wins; the
//! placement by the headers is one of them, if it shows anything.
//!
//! How alike is judged after some affine steps more: heads of different size look alike upside
//! down as well, until they are stretched onto each other. The placement stays rigid nevertheless.

use std::time::Instant;

use super::affine::General;
use super::information::is_informative;
use super::mass::Mass;
use super::motion::{Frame, Map};
use super::orientations::{across, angle_between, orientations};
use super::rigid::Rigid;
use super::search::{Bounds, Judged, LinearSearch, State};
use super::together::together;
use crate::checks::{MINIMUM_OVERLAP_PERCENT, check_overlap};
use crate::context::{Estimate, Run, StageResult};
use crate::level::{Solver, level_start};
use crate::methods::StageMethod;
use crate::pair::{AlignedPair, overlap_percent};
use crate::pyramid::{finest_spacing_mm, plane_axis};
use crate::report::{LevelReport, StageReport, Stop, Undone};
use crate::settings::{
    LevelSettings, LinearSettings, MomentsCentre, MomentsOrder, MomentsSettings,
    OrientationSettings, Similarity,
};
use ffdp_image::error::Result;
use ffdp_image::image::{Geometry, Matrix3, Volume};

impl StageMethod for MomentsSettings {
    /// It has one of its own.
    fn levels(&self) -> &[LevelSettings] {
        &[]
    }

    fn similarity(&self) -> &Similarity {
        &self.similarity
    }

    /// That is not known.
    fn compares_intensities(&self) -> bool {
        false
    }

    fn is_linear(&self) -> bool {
        true
    }

    fn validate(&self) -> Result<()> {
        MomentsSettings::validate(self)
    }

    fn run(&self, _: &'static str, run: &mut Run, found: Estimate) -> Result<StageResult> {
        moments(run, self, found)
    }
}

/// A moments stage, from `found` on.
fn moments(run: &mut Run, settings: &MomentsSettings, found: Estimate) -> Result<StageResult> {
    let start = Instant::now();
    let shrink = match settings.search {
        None => settings.shrink,
        Some(_) => settings.shrink.min(search_shrink(&run.grids[0])),
    };
    let mut level = LevelSettings { shrink, iterations: settings.refinement };
    let pair = run.whole_pair(&mut level)?;
    let aligned = pair.alignment(settings.similarity.loss(), settings.outside);
    let images = pair.volumes()?;
    let size = images[0].geometry.size;
    let announced = level_start("moments", 0, &[level], size);
    let mut stop = Stop::IterationsSpent;
    if run.observer.level_started(&announced).is_break() {
        stop = Stop::Cancelled;
    }

    let shapes = Shapes::of(&images, settings);
    let frame = shapes.frame();
    let candidates = shapes.candidates(&aligned, settings, &found.affine)?;
    let tried = compared(&aligned, settings, frame, candidates)?;
    let margin = settings.search.as_ref().and_then(|_| margin(&tried));
    let Some(best) = tried.into_iter().next() else {
        // Says how little of the images meets, for there was no candidate with more.
        let onto = translation(&found.affine, shapes.centres_mm);
        check_overlap(&run.grids[0], &run.grids[1], &onto)?;
        unreachable!("a candidate that overlaps was tried")
    };

    let (map, undone) = match settings.similarity.loss().may_ignore_outside()
        && overlap_percent(aligned.pair.grids.each_ref(), &found.affine) >= MINIMUM_OVERLAP_PERCENT
        && !is_informative(&pair, &frame, &best.map)?
    {
        true => (found.affine, Some(Undone::Uninformative)),
        false => (best.map, None),
    };
    let seconds = start.elapsed().as_secs_f64();
    let shrink = level.shrink;
    let mut level =
        LevelReport { shrink, size, losses: best.losses, stop, seconds, newton: Vec::new() };
    if run.observer.level_finished(&level).is_break() {
        level.stop = Stop::Cancelled;
    }
    let loss_without = aligned.loss(&found.affine)?;
    let loss_before = aligned.loss(&run.start.affine)?;
    let report = StageReport {
        transform: "moments",
        levels: vec![level],
        loss_after: if undone.is_some() { loss_without } else { best.loss },
        undone,
        margin,
        seconds,
    };
    let found = Estimate { affine: map, ..found };
    Ok(StageResult { found, report, loss_without, loss_before })
}

/// What placements of two images are made of.
struct Shapes<'a> {
    grids: [&'a Geometry; 2],
    masses: [Mass; 2],
    /// What is laid onto each other, RAS mm.
    centres_mm: [[f64; 3]; 2],
}

impl<'a> Shapes<'a> {
    fn of(images: &'a [Volume; 2], settings: &MomentsSettings) -> Self {
        let grids = images.each_ref().map(|image| &image.geometry);
        let masses = images.each_ref().map(|image| Mass::of(image, settings.foreground));
        let centres_mm = match settings.centre {
            MomentsCentre::Mass => masses.map(|mass| mass.centre_mm),
            MomentsCentre::Frame => grids.map(Geometry::center_mm),
        };
        Self { grids, masses, centres_mm }
    }

    /// That of the fixed image.
    fn frame(&self) -> Frame {
        let mass = &self.masses[0];
        Frame { centre_mm: mass.centre_mm, radius_mm: mass.radius_mm() }
    }

    /// What is tried: the headers, the centres, the axes, and the best of a search; nothing that turns a plane over or lets
    /// the images hardly meet.
    fn candidates(
        &self,
        aligned: &AlignedPair,
        settings: &MomentsSettings,
        initial: &Map,
    ) -> Result<Vec<Map>> {
        let mut maps = vec![*initial, translation(initial, self.centres_mm)];
        if settings.order == MomentsOrder::Second {
            maps.extend(self.along_axes(1.0));
            if settings.reflections {
                maps.extend(self.along_axes(-1.0));
            }
        }
        if let Some(search) = &settings.search {
            maps.extend(self.searched(aligned, search, initial)?);
        }
        let grids = aligned.pair.grids.each_ref();
        let meets = |map: &Map| overlap_percent(grids, map) >= MINIMUM_OVERLAP_PERCENT;
        maps.retain(|map| keeps_planes(map, self.grids) && meets(map));
        Ok(maps)
    }

    /// Axes onto axes with every choice of signs, whose determinant has the sign of `proper`.
    fn along_axes(&self, proper: f64) -> [Map; 4] {
        let axes = self.masses.map(|mass| mass.axes());
        [[1., 1., 1.], [1., -1., -1.], [-1., 1., -1.], [-1., -1., 1.]].map(|signs| {
            let turn = |sign: f64| onto(turned(&axes, signs.map(|s| sign * s)), self.centres_mm);
            let map = turn(1.0);
            if map.determinant() * proper > 0.0 { map } else { turn(-1.0) }
        })
    }

    /// The most alike of all orientations, centre on centre.
    fn searched(
        &self,
        aligned: &AlignedPair,
        search: &OrientationSettings,
        initial: &Map,
    ) -> Result<Vec<Map>> {
        let frames = self.grids.map(Geometry::center_mm);
        let placed = |turn: &Matrix3| {
            let turned = Map::from_parts(*turn, [0.0; 3]).then(initial).linear();
            [self.centres_mm, frames].map(|centres| onto(turned, centres)).to_vec()
        };
        let fixed = self.grids[0];
        orientations(aligned, search, across(fixed, plane_axis(fixed)), placed)
    }
}

/// Candidates after their improvement, the most promising first; of a search the best of different ones.
fn compared(
    aligned: &AlignedPair,
    settings: &MomentsSettings,
    frame: Frame,
    candidates: Vec<Map>,
) -> Result<Vec<RefinedCandidate>> {
    let iterations = settings.refinement;
    let mut tried = together(aligned, candidates, |candidate, images| {
        RefinedCandidate::refined(images, frame, candidate, iterations)
    })?;
    if settings.search.is_some() {
        tried = distinct(tried);
        tried.truncate(MOST_PROMISING);
    }
    let mut tried = together(aligned, tried, |candidate, images| {
        candidate.looked_ahead(images, frame, iterations)
    })?;
    tried.sort_by(|a, b| a.promise.total_cmp(&b.promise));
    Ok(tried)
}

/// Voxels along the longest axis of the level on which all orientations are compared: 8 mm of a head.
const SEARCHED_VOXELS: f64 = 32.0;

fn search_shrink(fixed: &Geometry) -> f64 {
    let finest = finest_spacing_mm(fixed);
    let longest_mm = (0..3).map(|i| fixed.size[i] as f64 * fixed.spacing_mm[i]).fold(0.0, f64::max);
    (longest_mm / finest / SEARCHED_VOXELS).max(1.0)
}

/// Degrees within which two placements are the same, found twice.
const SAME_DEGREES: f64 = 20.0;

/// Orientations of a search that are looked at closely.
const MOST_PROMISING: usize = 8;

/// The best of all that have come to the same placement, the best first.
fn distinct(mut tried: Vec<RefinedCandidate>) -> Vec<RefinedCandidate> {
    tried.sort_by(|a, b| a.loss.total_cmp(&b.loss));
    let mut found: Vec<RefinedCandidate> = Vec::new();
    for candidate in tried {
        let is_new =
            |other: &RefinedCandidate| angle_between(&candidate.map, &other.map) > SAME_DEGREES;
        if found.iter().all(is_new) {
            found.push(candidate);
        }
    }
    found
}

/// What the best of different placements, which comes first, gains over the next: as a part of what it gains over the one
/// in the middle of the others. `None` where there is no other.
fn margin(tried: &[RefinedCandidate]) -> Option<f64> {
    let (best, others) = tried.split_first()?;
    let gained = others.get(others.len() / 2)?.promise - best.promise;
    (gained > 0.0).then(|| (others[0].promise - best.promise) / gained)
}

/// A candidate after its improvement.
struct RefinedCandidate {
    map: Map,
    /// Its own loss.
    loss: f64,
    /// That of the best affine map near it, once it was looked for.
    promise: f64,
    losses: Vec<f64>,
    /// Of the placement that it began with.
    bounds: Bounds,
}

impl RefinedCandidate {
    fn refined(images: Judged, frame: Frame, candidate: Map, iterations: usize) -> Result<Self> {
        let bounds = Bounds::of(&LinearSettings::default(), &images, &candidate);
        let state = State::default();
        let mut search = LinearSearch::<Rigid, 6>::new(images, frame, bounds, candidate, state);
        let losses = search.iterate(iterations)?;
        let (map, loss) = (search.map(), search.loss()?);
        Ok(Self { map, loss, promise: loss, losses, bounds })
    }

    /// With what it promises.
    fn looked_ahead(self, images: Judged, frame: Frame, iterations: usize) -> Result<Self> {
        let (bounds, state) = (self.bounds, State::default());
        let mut further = LinearSearch::<General, 12>::new(images, frame, bounds, self.map, state);
        further.iterate(iterations)?;
        Ok(Self { promise: further.loss()?, ..self })
    }
}

/// Whether `map` does not turn a plane over: what would be seen from behind is a mirror image. Always
/// so for volumes.
fn keeps_planes(map: &Map, [fixed, moving]: [&Geometry; 2]) -> bool {
    let axis = plane_axis(fixed);
    let Some((normal, of_moving)) = across(fixed, axis).zip(across(moving, axis)) else {
        return true;
    };
    let turned = map.apply_vector(normal);
    turned.iter().zip(of_moving).map(|(a, b)| a * b).sum::<f64>() > 0.0
}

/// The initial placement, moved so that the centres meet.
fn translation(initial: &Map, centres: [[f64; 3]; 2]) -> Map {
    onto(initial.linear(), centres)
}

/// `x -> L (x - c_fixed) + c_moving`.
fn onto(linear: Matrix3, [fixed, moving]: [[f64; 3]; 2]) -> Map {
    let turned = Map::from_parts(linear, [0.0; 3]).apply(fixed);
    Map::from_parts(linear, std::array::from_fn(|i| moving[i] - turned[i]))
}

/// `E_moving diag(signs) E_fixed^T`.
fn turned([fixed, moving]: &[Matrix3; 2], signs: [f64; 3]) -> Matrix3 {
    std::array::from_fn(|i| {
        std::array::from_fn(|j| (0..3).map(|k| moving[i][k] * signs[k] * fixed[j][k]).sum())
    })
}
