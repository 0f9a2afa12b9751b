//! Templates of synthetic cohorts: one shape under known warps whose mean is the identity.

use std::ops::ControlFlow;

use burn::tensor::Device;
use ffdp_groups::template::{
    Average, RoundReport, Template, TemplateObserver, TemplateResult, TemplateSettings,
};
use ffdp_groups::{ImageReport, Images, Subject};
use ffdp_image::image::{Geometry, LabelMap, Volume};
use ffdp_image::{Error, Result};
use ffdp_register::{
    LevelSettings, Placement, Settings, Similarity, Stage,
    methods::{FfdSettings, GnkSettings, GreedySettings, SvfSettings, SynSettings},
    settings::{LinearSettings, MomentsSettings},
    verdict::Assessment,
};

/// Voxels along an axis.
const SIZE: usize = 28;
/// Half axes of the ellipsoid, in voxels.
const HALF_AXES: [f64; 3] = [9.0, 7.0, 8.0];
/// Of the edge of the ellipsoid, as a part of its radius.
const EDGE: f64 = 0.06;
/// Largest velocity of a warp, in voxels, and its phase from one end of the grid to the other.
const AMPLITUDE: f64 = 1.5;
const WAVES: f64 = 4.0;

fn centre() -> [f64; 3] {
    [(SIZE as f64 - 1.0) / 2.0; 3]
}

/// 1 at the surface.
fn radius(p: [f64; 3]) -> f64 {
    let c = centre();
    (0..3).map(|i| ((p[i] - c[i]) / HALF_AXES[i]).powi(2)).sum::<f64>().sqrt()
}

/// A bright ellipsoid with a darker core off its centre.
fn shape(p: [f64; 3]) -> f64 {
    let step = |r: f64| 1.0 / (1.0 + ((r - 1.0) / EDGE).exp());
    let c = centre();
    let core = (0..3).map(|i| ((p[i] - c[i] - [2.0, -1.0, 1.0][i]) / 2.5).powi(2)).sum::<f64>();
    100.0 * step(radius(p)) - 40.0 * (-core).exp()
}

/// The velocity of the warp of an image, in voxels; images with numbers 2k and 2k + 1 have opposite ones.
fn velocity(image: usize, p: [f64; 3]) -> [f64; 3] {
    let sign = if image.is_multiple_of(2) { 1.0 } else { -1.0 };
    let k = (image / 2) as f64;
    let wave = |v: f64, phase: f64| (WAVES * v / SIZE as f64 + phase + 2.0 * k).sin();
    let v = [wave(p[1], 0.3), wave(p[2], 1.1), wave(p[0], 2.0)];
    v.map(|v| sign * AMPLITUDE * v)
}

/// Where a point of the shape lies in an image: it flows for unit time.
fn displaced(image: usize, p: [f64; 3]) -> [f64; 3] {
    const STEPS: usize = 8;
    let step = 1.0 / STEPS as f64;
    (0..STEPS).fold(p, |p, _| {
        let v = velocity(image, p);
        let v = velocity(image, std::array::from_fn(|i| p[i] + step / 2.0 * v[i]));
        std::array::from_fn(|i| p[i] + step * v[i])
    })
}

/// The point of the shape that lies here in an image: the one with the opposite velocity leads back.
fn undisplaced(image: usize, y: [f64; 3]) -> [f64; 3] {
    displaced(image ^ 1, y)
}

fn grid() -> Geometry {
    Geometry::new([SIZE; 3], [2.0; 3]).expect("valid")
}

fn volume(value: impl Fn([f64; 3]) -> f64) -> Volume {
    let grid = grid();
    let at = |offset| value(grid.index_of(offset).map(|v| v as f64)) as f32;
    Volume::new((0..grid.len()).map(at).collect(), grid.clone()).expect("as many")
}

/// An image of the cohort in a unit of its own, with labels of the ellipsoid.
fn subject(image: usize) -> Subject {
    let unit = 1.0 + 0.5 * image as f64;
    let labels = volume(|p| f64::from(radius(undisplaced(image, p)) < 1.0));
    Subject {
        image: volume(|p| unit * shape(undisplaced(image, p))),
        labels: Some(
            LabelMap::new(labels.data.iter().map(|v| 7 * *v as i32).collect(), grid())
                .expect("as many"),
        ),
    }
}

fn cohort(count: usize) -> Vec<(String, Subject)> {
    (0..count).map(|image| (format!("brain{image}"), subject(image))).collect()
}

fn levels(list: &[(f64, usize)]) -> Vec<LevelSettings> {
    list.iter().map(|&(shrink, iterations)| LevelSettings { shrink, iterations }).collect()
}

fn settings(deformation: Stage, rounds: usize) -> TemplateSettings {
    let affine = LinearSettings {
        similarity: Similarity::Mse,
        levels: levels(&[(2.0, 20)]),
        ..LinearSettings::default()
    };
    TemplateSettings {
        registration: Settings {
            stages: vec![
                Stage::Moments(MomentsSettings::default()),
                Stage::Affine(affine),
                deformation,
            ],
            minimum_axis_voxels: 8,
            ..Settings::default()
        },
        rounds,
        linear_rounds: 1,
        ..TemplateSettings::default()
    }
}

fn greedy(iterations: usize) -> Stage {
    Stage::Greedy(GreedySettings {
        similarity: Similarity::Mse,
        levels: levels(&[(2.0, iterations), (1.0, iterations)]),
        ..GreedySettings::default()
    })
}

fn quick() -> TemplateSettings {
    settings(greedy(6), 2)
}

fn bits(found: &TemplateResult) -> Vec<u32> {
    let volumes = [&found.template, &found.mean, &found.variance];
    volumes.iter().flat_map(|volume| &volume.data).map(|v| v.to_bits()).collect()
}

/// The value between voxels.
fn linear(image: &Volume, p: [f64; 3]) -> f64 {
    let [nx, ny, _] = image.geometry.size;
    let (low, t) = (p.map(|v| v.floor() as usize), p.map(|v| v - v.floor()));
    (0..8)
        .map(|k| {
            let bit = |i: usize| k >> i & 1;
            let weight: f64 = (0..3).map(|i| if bit(i) == 1 { t[i] } else { 1.0 - t[i] }).product();
            let [x, y, z] = [low[0] + bit(0), low[1] + bit(1), low[2] + bit(2)];
            weight * f64::from(image.data[(z * ny + y) * nx + x])
        })
        .sum()
}

/// Directions from the centre, and the point of the surface that lies there.
fn rays() -> Vec<([f64; 3], [f64; 3])> {
    let direction = |k: i32| [k % 3, k / 3 % 3, k / 9].map(|step| f64::from(step) - 1.0);
    let directions = (0..27).filter(|&k| k != 13).map(direction);
    let ray = |direction: [f64; 3]| {
        let length = direction.iter().map(|v| v * v).sum::<f64>().sqrt();
        let unit = direction.map(|v| v / length);
        let at = |t: f64| std::array::from_fn(|i| centre()[i] + t * unit[i]);
        (unit, at(1.0 / radius(at(1.0))))
    };
    directions.map(ray).collect()
}

/// Distances in voxels between the surface of the shape and where an image has half of its plateau, along rays.
fn surface_errors(image: &Volume) -> Vec<f64> {
    let plateau = linear(image, std::array::from_fn(|i| centre()[i] + [-5.0, 1.0, -1.0][i]));
    let error = |(unit, surface): ([f64; 3], [f64; 3])| {
        let at = |t: f64| std::array::from_fn(|i| surface[i] + t * unit[i]);
        let mut steps = (0..400).map(|k| 0.01 * f64::from(k) - 2.0);
        let crossing = steps.find(|&t| linear(image, at(t)) < plateau / 2.0);
        crossing.map_or(f64::INFINITY, f64::abs)
    };
    rays().into_iter().map(error).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[test]
fn the_template_of_zero_mean_warps_is_the_shape_itself() {
    let images = cohort(4);
    let svf = Stage::Svf(SvfSettings {
        similarity: Similarity::Mse,
        levels: levels(&[(2.0, 40), (1.0, 25)]),
        ..SvfSettings::default()
    });
    for (name, stage) in [("greedy", greedy(30)), ("svf", svf)] {
        let found = Template::new(&images).settings(&settings(stage, 3)).run().expect(name);
        // What the test can see of the shape, and of single images.
        let best = mean(&surface_errors(&volume(shape)));
        let single = mean(&surface_errors(&images[0].1.image));
        let error = mean(&surface_errors(&found.template));
        eprintln!(
            "{name}: {error:.3} voxels, single {single:.3}, shape {best:.3}, {:?}",
            found.rounds.iter().map(|r| (r.change, r.mean_map_mm, r.sharpness)).collect::<Vec<_>>()
        );
        assert!(best < 0.03 && single > 0.4, "{best} {single}");
        assert!(error < 0.1, "{name}: the surface is off by {error} voxels");
        let dice: Vec<f64> = found.members.iter().map(|m| m.dice.expect("labels")).collect();
        assert!(mean(&dice) > 0.95, "{name}: {dice:?}");
        // Rounds make it sharper, and images alike.
        let (first, last) = (&found.rounds[0], &found.rounds[found.rounds.len() - 1]);
        assert!(last.sharpness[0] > 1.1 * first.sharpness[0], "{name}");
        assert!(last.spread < 0.5 * first.spread, "{name}: {} {}", last.spread, first.spread);
        // Maps lead from the surface of the template to that of each image, and back.
        for (k, member) in found.members.iter().enumerate() {
            let surface: Vec<[f64; 3]> = rays().iter().map(|&(_, surface)| surface).collect();
            let mm: Vec<[f64; 3]> = surface.iter().map(|p| p.map(|v| 2.0 * v)).collect();
            let there = found.transform(k).expect("kept").map_points(&mm).expect("on the CPU");
            let off = there.iter().map(|p| {
                let own = undisplaced(member.index, p.map(|v| v / 2.0));
                (radius(own) - 1.0).abs() * HALF_AXES[1]
            });
            let off = mean(&off.collect::<Vec<f64>>());
            assert!(off < 0.25, "{name}: {} is off by {off} voxels", member.name);
            let (_, error) = found.inverse_displacement(k).expect("kept").expect("it deforms");
            assert!(error.p95_voxels < 0.1, "{name}: {error:?}");
        }
    }
}

#[test]
fn the_order_of_the_list_does_not_change_a_bit() {
    let images = cohort(3);
    let reversed: Vec<_> = images.iter().rev().cloned().collect();
    for average in [Average::Mean, Average::Median, Average::Trimmed { part: 0.1 }] {
        let settings = TemplateSettings { average, ..quick() };
        let [forth, back] = [&images, &reversed]
            .map(|images| Template::new(images).settings(&settings).run().expect("three images"));
        assert!(bits(&forth) == bits(&back), "{average:?}");
        assert_eq!(forth.labels, back.labels);
        let names = |found: &TemplateResult| -> Vec<String> {
            found.members.iter().map(|member| member.name.clone()).collect()
        };
        assert_eq!(names(&forth), ["brain0", "brain1", "brain2"]);
        assert_eq!(names(&back), ["brain2", "brain1", "brain0"]);
    }
}

#[test]
fn devices_that_share_the_images_give_the_bits_of_one() {
    let images = cohort(4);
    let run = |placements: usize| {
        let placements = (0..placements).map(|_| Placement::from(&Device::flex())).collect();
        let template = Template::new(&images).settings(&quick()).on_each(placements);
        template.run().expect("four images")
    };
    let (one, two) = (run(1), run(2));
    assert!(bits(&one) == bits(&two));
    assert_eq!(one.labels, two.labels);
    assert_eq!(one.members, two.members);
    for k in 0..images.len() {
        let [one, two] = [&one, &two].map(|found| {
            let field = found.displacement(k).expect("kept").expect("it deforms");
            field.to_vec().expect("on the CPU")
        });
        assert!(one == two, "the map of image {k}");
    }
}

#[test]
fn every_deformable_method_brings_the_images_of_a_template_together() {
    let images = cohort(2);
    let (similarity, levels) = (Similarity::Mse, levels(&[(2.0, 6), (1.0, 4)]));
    let syn = SynSettings {
        similarity: similarity.clone(),
        levels: levels.clone(),
        ..SynSettings::default()
    };
    let ffd = FfdSettings {
        similarity: similarity.clone(),
        levels: levels.clone(),
        ..FfdSettings::default()
    };
    let gnk = GnkSettings { similarity, levels, ..GnkSettings::default() };
    for stage in [greedy(6), Stage::Syn(syn), Stage::Ffd(ffd), Stage::Gnk(gnk)] {
        let name = stage.name();
        let found = Template::new(&images).settings(&settings(stage, 1)).run().expect(name);
        let spread: Vec<f64> = found.rounds.iter().map(|round| round.spread).collect();
        eprintln!("{name}: spread {spread:?}");
        // What affine maps leave of opposite warps is what a deformation is for.
        let [_, linear, deformable] = spread[..] else { panic!("{name}: three rounds") };
        assert!(deformable < linear, "{name}: {deformable} after {linear}");
        for k in 0..images.len() {
            let (_, error) = found.inverse_displacement(k).expect("kept").expect(name);
            assert!(error.p95_voxels < 0.1, "{name}: {error:?}");
        }
    }
}

/// Ends the run after so many images.
struct EndsAfter(usize);

impl TemplateObserver for EndsAfter {
    fn registered(&mut self, _: &ImageReport, _: Option<&Assessment>) -> ControlFlow<()> {
        match self.0 {
            0 => ControlFlow::Break(()),
            _ => {
                self.0 -= 1;
                ControlFlow::Continue(())
            }
        }
    }
}

/// Counts registrations.
#[derive(Default)]
struct Counts(usize, Vec<usize>);

impl TemplateObserver for Counts {
    fn registered(&mut self, _: &ImageReport, _: Option<&Assessment>) -> ControlFlow<()> {
        self.0 += 1;
        ControlFlow::Continue(())
    }

    fn round_finished(&mut self, report: &RoundReport, _: &Volume) -> ControlFlow<()> {
        self.1.push(report.round);
        ControlFlow::Continue(())
    }
}

#[test]
fn a_run_that_was_ended_goes_on_with_the_same_bits() {
    let images = cohort(3);
    let settings = quick();
    let whole = Template::new(&images).settings(&settings).run().expect("three images");
    let folder = tempfile::tempdir().expect("a folder");
    // In the linear round, in the first deformable one, and in the second.
    for after in [1, 3, 1] {
        let mut ends = EndsAfter(after);
        let run = Template::new(&images).settings(&settings).folder(folder.path());
        let ended = run.observer(&mut ends).run().expect_err("it was ended");
        assert!(ended.to_string().contains("goes on"), "{ended}");
    }
    let other = TemplateSettings { update: 0.5, ..settings.clone() };
    let refused = Template::new(&images).settings(&other).folder(folder.path()).run();
    assert!(refused.expect_err("other settings").to_string().contains("settings"));
    let mut counts = Counts::default();
    let reversed: Vec<_> = images.iter().rev().cloned().collect();
    let run = Template::new(&reversed).settings(&settings).folder(folder.path());
    let found = run.observer(&mut counts).run().expect("it goes on");
    assert!(bits(&found) == bits(&whole));
    assert_eq!(found.labels, whole.labels);
    assert_eq!((counts.0, counts.1), (1, vec![0, 1, 2, 3]), "8 of 9 were registered");
}

/// A cohort with images that cannot be used.
struct Broken(Vec<(String, Subject)>);

impl Images for Broken {
    fn count(&self) -> usize {
        self.0.len() + 1
    }

    fn name(&self, index: usize) -> String {
        if index == 0 { "unreadable".to_string() } else { self.0.name(index - 1) }
    }

    fn read(&self, index: usize) -> Result<Subject> {
        match index {
            0 => Err(Error::invalid("a truncated file", index, "copy it again")),
            _ => self.0.read(index - 1),
        }
    }
}

#[test]
fn what_cannot_be_used_is_named_and_the_others_make_the_template() {
    let images = cohort(3);
    let expected = Template::new(&images).settings(&quick()).run().expect("three images");
    let mut broken = images.clone();
    let changed = |name: &str, change: &dyn Fn(&mut Subject)| {
        let mut subject = subject(5);
        change(&mut subject);
        (name.to_string(), subject)
    };
    broken.insert(1, changed("nan", &|s| s.image.data[40] = f32::NAN));
    broken.insert(2, changed("constant", &|s| s.image.data.fill(3.0)));
    broken.push(("again".to_string(), images[0].1.clone()));
    broken.push(changed("labels", &|s| {
        let small = Geometry::new([4; 3], [2.0; 3]).expect("valid");
        s.labels = Some(LabelMap::new(vec![1; 64], small).expect("as many"));
    }));
    let found = Template::new(&Broken(broken)).settings(&quick()).run().expect("three are good");
    assert!(bits(&found) == bits(&expected));
    let excluded: Vec<(&str, &str)> =
        found.excluded.iter().map(|e| (e.name.as_str(), e.reason.as_str())).collect();
    for (name, word) in [
        ("unreadable", "truncated"),
        ("nan", "NaN"),
        ("constant", "constant"),
        ("again", "the same image as brain0"),
        ("labels", "another grid"),
    ] {
        let reason = excluded.iter().find(|(excluded, _)| *excluded == name).expect(name).1;
        assert!(reason.contains(word), "{name}: {reason}");
    }
    assert_eq!(excluded.len(), 5);
    let alone = Template::new(&Broken(images[..1].to_vec())).settings(&quick()).run();
    let message = alone.expect_err("one is left").to_string();
    assert!(message.contains("two images") && message.contains("unreadable"), "{message}");
}

/// A subject with the first voxels of its grid, as many as `size` has, whose first one lies at `by` mm along each axis.
fn moved_to(mut subject: Subject, size: [usize; 3], by: f64) -> Subject {
    let [nx, ny, _] = subject.image.geometry.size;
    let (data, labels) = (&subject.image.data, subject.labels.as_ref().expect("labels"));
    let from = |offset: usize| {
        let (x, y) = (offset % size[0], offset / size[0] % size[1]);
        (offset / size[0] / size[1] * ny + y) * nx + x
    };
    let count = size.iter().product();
    let geometry = Geometry::new(size, [2.0; 3]).expect("valid").with_origin([by; 3]);
    let geometry = geometry.expect("valid");
    let image = (0..count).map(|offset| data[from(offset)]).collect();
    let labels = (0..count).map(|offset| labels.data[from(offset)]).collect();
    subject.labels = Some(LabelMap::new(labels, geometry.clone()).expect("as many"));
    subject.image = Volume::new(image, geometry).expect("as many");
    subject
}

#[test]
fn images_of_different_grids_and_places_share_a_template() {
    let mut images = cohort(2);
    let far = images[1].1.clone();
    images[1].1 = moved_to(far, [SIZE, SIZE, SIZE - 1], 30.0);
    let found = Template::new(&images).settings(&quick()).run().expect("two images");
    assert!(found.members.iter().all(|member| member.is_used), "{:?}", found.rounds);
    let dice: Vec<f64> = found.members.iter().map(|m| m.dice.expect("labels")).collect();
    assert!(mean(&dice) > 0.9, "{dice:?}");
    // Halfway between both.
    let middle = found.grid().center_mm();
    let expected = 2.0 * centre()[0] + 15.0;
    assert!(middle.iter().all(|v| (v - expected).abs() < 6.0), "{middle:?} {expected}");
}
