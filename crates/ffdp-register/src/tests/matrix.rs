//! Every method with every similarity, optimiser, penalty, mask and channel, in every place:
//! what is found is what one device finds in whole images.

use std::sync::Arc;
use std::thread;

use burn::tensor::Device;

use super::{half_heads, register, register_slabs, tall_pair_of};
use crate::{
    LevelSettings, Placement, Problem, Registration, Settings, Silent, Similarity, Stage,
    methods::{FfdSettings, GreedySettings, SvfSettings, SynSettings},
    settings::{LinearSettings, MiSettings, OptimizerSettings, Regularization},
};
use ffdp_image::image::Volume;
use ffdp_image::synth::Pair;
use ffdp_parallel::{
    DeviceMesh,
    hosts::{Ranks, Threads},
};

/// Of a field in voxels: f32 sums in another order, over four iterations on each of two levels.
const FIELD_VOXELS: f32 = 1e-3;
/// Of the rows of an affine map, mm and mm per mm: the same over three iterations of a search.
const AFFINE: f64 = 1e-3;
/// Of losses: sums of 10^4 terms in another order.
const LOSS: f64 = 1e-5;

fn similarities() -> [Similarity; 4] {
    [
        GreedySettings::default().similarity,
        Similarity::Mse,
        Similarity::Mi(MiSettings::default()),
        Similarity::Nmi(MiSettings::default()),
    ]
}

fn optimizers() -> [OptimizerSettings; 4] {
    OptimizerSettings::ALL.map(|(_, optimizer)| optimizer)
}

/// What the images hold.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Content {
    Plain,
    Masks,
    Channels,
}

/// All deformable stages: the similarities with each method, and with one similarity each all else that can be set:
/// every optimiser with every method, half of them with all penalties, and every optimiser with and without them. With
/// masks and channels, without the optimisers and penalties that see fields alone, and each similarity with half of the
/// methods: with the other half where there are channels for masks.
fn deformable(content: Content) -> Vec<(String, Stage)> {
    let images_only = content != Content::Plain;
    let level = |shrink, iterations| LevelSettings { shrink, iterations };
    let rough = Regularization { diffusion: Some(0.05), bending: 2.0, total_variation: 0.01 };
    let none = Regularization::default();
    let mut stages = Vec::new();
    for (i, similarity) in similarities().into_iter().enumerate() {
        for (j, (optimizer, regularization, freeform)) in optimizers()
            .into_iter()
            .flat_map(|optimizer| [(optimizer, none, false), (optimizer, rough, true)])
            .enumerate()
        {
            let is_newton = matches!(optimizer, OptimizerSettings::GaussNewton(_));
            // The plain ones with all similarities; what else is set does not know which one it is.
            let is_plain = regularization == none && optimizer == OptimizerSettings::default();
            let sees_images = is_plain || (is_newton && regularization == none);
            if (images_only && !sees_images) || (!is_plain && similarity != Similarity::Mse) {
                continue;
            }
            let label = format!("{similarity:?}, {optimizer:?}, rough {freeform}");
            let is_wanted = |method: usize| match content {
                Content::Plain if optimizer == OptimizerSettings::default() => true,
                // Splines without penalties are plain.
                Content::Plain if method == 3 => j % 2 == 1,
                // With penalties or without, in turn of methods and optimisers.
                Content::Plain => (method + j / 2 + j).is_multiple_of(2),
                _ if is_newton => true,
                Content::Masks => (i + method) % 4 < 2,
                Content::Channels => (i + method) % 4 >= 2,
            };
            // Enough to move; what is plain also gathers what rounding does over a few more.
            let iterations = if is_plain { 4 } else { 2 };
            let levels = vec![level(2.0, iterations), level(1.0, iterations)];
            let similarity = similarity.clone();
            let (ffd_levels, ffd_similarity) = (levels.clone(), similarity.clone());
            let greedy = GreedySettings {
                levels: levels.clone(),
                similarity: similarity.clone(),
                optimizer,
                regularization,
                freeform,
                ..GreedySettings::default()
            };
            if is_wanted(0) {
                stages.push((format!("greedy, {label}"), Stage::Greedy(greedy)));
            }
            let syn = SynSettings {
                levels: levels.clone(),
                similarity: similarity.clone(),
                optimizer,
                regularization,
                ..SynSettings::default()
            };
            if is_wanted(1) {
                stages.push((format!("syn, {label}"), Stage::Syn(syn)));
            }
            if !is_newton && is_wanted(2) {
                let svf = SvfSettings {
                    levels,
                    similarity,
                    optimizer,
                    regularization,
                    ..SvfSettings::default()
                };
                stages.push((format!("svf, {label}"), Stage::Svf(svf)));
            }
            let ffd = FfdSettings {
                levels: ffd_levels,
                similarity: ffd_similarity,
                spacing_mm: [40.0; 3],
                // Its own in place of Adam: few coefficients, each of which gathers rounding of a whole support.
                optimizer: match is_plain {
                    true => FfdSettings::default().optimizer,
                    false => optimizer,
                },
                regularization,
                volume: if freeform { 0.1 } else { 0.0 },
                ..FfdSettings::default()
            };
            let ffd = Stage::Ffd(ffd);
            let settings = Settings { stages: vec![ffd.clone()], ..Settings::default() };
            if settings.validate().is_ok() && is_wanted(3) {
                stages.push((format!("ffd, {label}"), ffd));
            }
        }
    }
    stages
}

/// Descriptors and edges, which look into neighbouring parts, by one method that follows their gradient.
fn features() -> [(String, Stage); 2] {
    ["mind", "ngf"].map(|name| {
        let levels = [2.0, 1.0].map(|shrink| LevelSettings { shrink, iterations: 4 }).to_vec();
        let similarity = Similarity::named(name).expect("built in");
        let greedy = GreedySettings { levels, similarity, ..GreedySettings::default() };
        (format!("greedy, {name}"), Stage::Greedy(greedy))
    })
}

/// All linear stages; where there are masks or channels, affine ones with each similarity and the others with squares:
/// what is searched for knows nothing of either.
fn linear(content: Content) -> Vec<(String, Stage)> {
    let levels = vec![LevelSettings { shrink: 2.0, iterations: 3 }];
    let of = |similarity: Similarity| {
        let label = format!("{similarity:?}");
        let all = content == Content::Plain || similarity == Similarity::Mse;
        let settings =
            LinearSettings { levels: levels.clone(), similarity, ..LinearSettings::default() };
        let stages = [
            (format!("affine, {label}"), Stage::Affine(settings.clone())),
            (format!("rigid, {label}"), Stage::Rigid(settings.clone())),
            (format!("similarity, {label}"), Stage::Similarity(settings)),
        ];
        stages.into_iter().take(if all { 3 } else { 1 })
    };
    similarities().into_iter().flat_map(of).collect()
}

fn settings(stage: &Stage) -> Settings {
    Settings { stages: vec![stage.clone()], minimum_axis_voxels: 8, ..Settings::default() }
}

/// What a place has found.
struct Got {
    affine: Vec<f64>,
    field: Option<Vec<f32>>,
    inverse: Option<Vec<f32>>,
    losses: [f64; 2],
}

impl Got {
    fn of(found: &Registration) -> Self {
        let all = |warp: &crate::result::Warp| warp.to_vec().expect("readable");
        Self {
            affine: found.affine.rows().concat(),
            field: found.warp.as_ref().map(all),
            inverse: found.inverse.as_ref().map(all),
            losses: [found.loss_before, found.loss_after],
        }
    }

    /// Demands of this what `whole` has.
    fn check(&self, label: &str, whole: &Self) {
        let off = self.affine.iter().zip(&whole.affine);
        let off = off.fold(0.0f64, |most, (a, b)| most.max((a - b).abs()));
        assert!(off <= AFFINE, "{label}: the affine map is {off} off");
        let pairs = [(&self.field, &whole.field), (&self.inverse, &whole.inverse)];
        for (name, (found, expected)) in ["field", "inverse"].into_iter().zip(pairs) {
            assert_eq!(found.is_some(), expected.is_some(), "{label}: {name}");
            let (Some(found), Some(expected)) = (found, expected) else { continue };
            let off = found.iter().zip(expected);
            let off = off.fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
            assert!(off <= FIELD_VOXELS, "{label}: the {name} is {off} voxel off");
        }
        for (found, expected) in self.losses.iter().zip(&whole.losses) {
            let off = (found - expected).abs();
            assert!(off <= LOSS, "{label}: losses {found} and {expected}");
        }
    }
}

/// A pair of images and what counts of them.
struct Images<'a> {
    pair: &'a Pair,
    masks: Option<&'a [Volume; 2]>,
    channels: bool,
}

impl Images<'_> {
    fn problem<'b>(&'b self, [fixed, moving]: &'b [Volume; 2]) -> Problem<'b> {
        let more = || vec![[fixed.into(), moving.into()]];
        Problem {
            fixed_mask: self.masks.map(|masks| (&masks[0]).into()),
            moving_mask: self.masks.map(|masks| (&masks[1]).into()),
            more_channels: if self.channels { more() } else { Vec::new() },
            ..Problem::new(&self.pair.fixed.image, &self.pair.moving.image)
        }
    }

    /// Another channel of each.
    fn squares(&self) -> [Volume; 2] {
        [&self.pair.fixed.image, &self.pair.moving.image].map(|image| Volume {
            data: image.data.iter().map(|v| v * v).collect(),
            geometry: image.geometry.clone(),
        })
    }

    fn on_mesh(&self, stage: &Stage, shards: usize) -> Got {
        let more = self.squares();
        let (problem, settings) = (self.problem(&more), settings(stage));
        let mesh = DeviceMesh::new(&[Device::flex()], shards).expect("a shard");
        let found = match shards {
            1 => register(&problem, &settings, &Device::flex(), &mut Silent),
            _ => register(&problem, &settings, &mesh, &mut Silent),
        };
        let found = found.expect("good input");
        Got::of(&found)
    }

    fn placed(&self, stage: &Stage, placement: &Placement) -> Got {
        let (mut fixed, mut moving) =
            (self.pair.fixed.image.clone(), self.pair.moving.image.clone());
        let mut masks = self.masks.cloned();
        let [fixed_mask, moving_mask] = match &mut masks {
            Some([a, b]) => [Some(a.into()), Some(b.into())],
            None => [None, None],
        };
        let mut more = self.squares();
        let [fixed_more, moving_more] = &mut more;
        let channels = [fixed_more.into(), moving_more.into()];
        let problem = Problem {
            fixed_mask,
            moving_mask,
            more_channels: if self.channels { vec![channels] } else { Vec::new() },
            ..Problem::new(&mut fixed, &mut moving)
        };
        let settings = settings(stage);
        let found = register_slabs(problem, &settings, placement, &mut Silent).expect("good input");
        Got::of(&found)
    }

    fn on_ranks(&self, stage: &Stage) -> Vec<Got> {
        thread::scope(|scope| {
            let rank = |ranks: Threads| {
                let ranks: Arc<dyn Ranks> = Arc::new(ranks);
                let mesh = DeviceMesh::new(&[Device::flex()], 1).expect("a shard");
                self.placed(stage, &Placement::Ranks { mesh, ranks })
            };
            let threads = Threads::new(2).into_iter();
            let threads: Vec<_> = threads.map(|ranks| scope.spawn(move || rank(ranks))).collect();
            threads.into_iter().map(|thread| thread.join().expect("it did not panic")).collect()
        })
    }
}

/// Two ranks share levels from 16 planes each on.
const SIZE: [usize; 3] = [18, 20, 32];

#[test]
fn every_cell_finds_what_whole_images_find() {
    check_cells(Content::Plain);
}

#[test]
fn every_cell_finds_what_whole_images_find_inside_masks() {
    check_cells(Content::Masks);
}

#[test]
fn every_cell_finds_what_whole_images_of_two_channels_find() {
    check_cells(Content::Channels);
}

fn check_cells(content: Content) {
    let pair = tall_pair_of(SIZE, 3);
    let masks = half_heads(&pair);
    let images = Images {
        pair: &pair,
        masks: (content == Content::Masks).then_some(&masks),
        channels: content == Content::Channels,
    };
    for (name, stage) in linear(content).into_iter().chain(deformable(content)).chain(features()) {
        let whole = images.on_mesh(&stage, 1);
        let label = |place: &str| format!("{name}, {content:?}, {place}");
        if let Some(field) = &whole.field {
            assert!(field.iter().any(|u| u.abs() > 0.1), "{}", label("it moves"));
        }
        images.on_mesh(&stage, 3).check(&label("three shards"), &whole);
        let device = |per_voxel: u64| Placement::Device {
            device: Device::flex(),
            bytes: per_voxel * SIZE.iter().product::<usize>() as u64,
        };
        let fields = stage.fields();
        let searched = fields.map(|fields| fields.descent().optimizer);
        let offloaded = match (&stage, searched) {
            (_, Some(OptimizerSettings::Lbfgs(_))) => 450,
            (Stage::Svf(_), _) => 330,
            _ => 200,
        };
        for (place, placement) in [
            (
                "slabs",
                Placement::DeviceMesh(DeviceMesh::new(&[Device::flex()], 3).expect("a shard")),
            ),
            ("offloaded", device(offloaded)),
        ] {
            images.placed(&stage, &placement).check(&label(place), &whole);
        }
        for got in images.on_ranks(&stage) {
            got.check(&label("ranks"), &whole);
        }
    }
}
