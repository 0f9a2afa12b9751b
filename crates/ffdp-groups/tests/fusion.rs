//! Labels of several atlases on one image.

use std::ops::ControlFlow;

use ffdp_groups::fusion::{Fusion, FusionMethod, FusionObserver, FusionSettings, JointSettings};
use ffdp_groups::{ImageReport, Images, Subject};
use ffdp_image::metrics::dice;
use ffdp_image::synth::{PhantomSettings, pair};
use ffdp_register::{LevelSettings, Settings, Similarity, Stage, methods::GreedySettings};

/// Voxels along an axis.
const SIZE: usize = 24;

/// Brains of one head under known warps, with labels; the first is the target.
fn brains(count: u64) -> Vec<(String, Subject)> {
    let of = |seed| {
        let pair = pair(&PhantomSettings::with_size([SIZE; 3]), seed).expect("valid settings");
        let side = pair.moving;
        let subject = Subject { image: side.image, labels: Some(side.labels) };
        (format!("brain{seed}"), subject)
    };
    (1..=count).map(of).collect()
}

fn settings(method: FusionMethod) -> FusionSettings {
    let levels = [(2.0, 20), (1.0, 12)]
        .map(|(shrink, iterations)| LevelSettings { shrink, iterations })
        .to_vec();
    let stage = GreedySettings { similarity: Similarity::Mse, levels, ..GreedySettings::default() };
    let registration = Settings {
        stages: vec![Stage::Greedy(stage)],
        minimum_axis_voxels: 8,
        ..Settings::default()
    };
    FusionSettings { registration, method }
}

const JOINT: FusionMethod =
    FusionMethod::Joint(JointSettings { alpha: 0.1, beta: 2.0, patch_radius: 1, search_radius: 1 });

#[test]
fn joined_labels_are_better_than_those_of_one_atlas() {
    let mut atlases = brains(5);
    let (_, target) = atlases.remove(0);
    let truth = target.labels.expect("they are known");
    let score = |labels: &[i32]| dice(&truth.data, labels).expect("one grid").mean();
    let mut scores = Vec::new();
    for method in [FusionMethod::Majority, JOINT] {
        let found = Fusion::new(&target.image, &atlases).settings(&settings(method)).run();
        let found = found.expect("four atlases");
        assert!(
            found.atlases.iter().all(|atlas| atlas.registration.is_used && atlas.dice.is_some())
        );
        assert_eq!(found.weighed_voxels > 0, method != FusionMethod::Majority);
        scores.push(score(&found.labels.data));
    }
    let alone = |k: usize| {
        let one = vec![atlases[k].clone()];
        let found = Fusion::new(&target.image, &one)
            .settings(&settings(FusionMethod::Majority))
            .run()
            .expect("one atlas");
        score(&found.labels.data)
    };
    let mean = (0..4).map(alone).sum::<f64>() / 4.0;
    eprintln!("majority {:.3}, joint {:.3}, one atlas {mean:.3}", scores[0], scores[1]);
    assert!(scores[0] > mean && scores[1] > scores[0], "{scores:?} {mean}");
}

/// Ends the run after so many atlases, and counts them.
struct Watch(usize, usize);

impl FusionObserver for Watch {
    fn registered(&mut self, _: &ImageReport) -> ControlFlow<()> {
        self.1 += 1;
        if self.1 > self.0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

#[test]
fn broken_atlases_are_named_and_an_ended_run_goes_on() {
    let mut atlases = brains(4);
    let (_, target) = atlases.remove(0);
    let settings = settings(JOINT);
    let expected = Fusion::new(&target.image, &atlases).settings(&settings).run();
    let expected = expected.expect("three atlases");
    let (_, mut unlabelled) = atlases[0].clone();
    unlabelled.labels = None;
    atlases.push(("unlabelled".to_string(), unlabelled));
    let folder = tempfile::tempdir().expect("a folder");
    let mut ends = Watch(1, 0);
    let run = || Fusion::new(&target.image, &atlases).settings(&settings).folder(folder.path());
    let ended = run().observer(&mut ends).run().expect_err("it was ended");
    assert!(ended.to_string().contains("goes on"), "{ended}");
    let mut counts = Watch(9, 0);
    let found = run().observer(&mut counts).run().expect("three atlases");
    assert_eq!(counts.1, 2, "two of four were registered before");
    assert_eq!(found.labels, expected.labels);
    let last = &found.atlases[3].registration;
    assert!(!last.is_used && last.reasons[0].contains("needs labels"), "{last:?}");
    let none = vec![atlases.remove(3)];
    let refused = Fusion::new(&target.image, &none).settings(&settings).run();
    assert!(refused.expect_err("no labels").to_string().contains("unlabelled"));
}

/// Atlases in files, the first of which was written so many times.
struct Written(Vec<(String, Subject)>, usize);

impl Images for Written {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn name(&self, index: usize) -> String {
        self.0[index].0.clone()
    }

    fn version(&self, index: usize) -> String {
        format!("{index} written {} times", self.1)
    }

    fn read(&self, index: usize) -> ffdp_image::Result<Subject> {
        Ok(self.0[index].1.clone())
    }
}

#[test]
fn a_run_does_not_go_on_from_an_atlas_that_was_rewritten_since() {
    let mut atlases = brains(3);
    let (_, target) = atlases.remove(0);
    let settings = settings(FusionMethod::Majority);
    let folder = tempfile::tempdir().expect("a folder");
    let [once, twice] = [1, 2].map(|times| Written(atlases.clone(), times));
    let mut ends = Watch(1, 0);
    let run =
        |atlases| Fusion::new(&target.image, atlases).settings(&settings).folder(folder.path());
    run(&once).observer(&mut ends).run().expect_err("it was ended");
    let refused = run(&twice).run().expect_err("another version").to_string();
    assert!(refused.contains("of the same images"), "{refused}");
    run(&once).run().expect("the same version");
}
