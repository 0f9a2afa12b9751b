//! What works with what, as the methods themselves say it: the table of the documentation.

use std::fmt::Write;

use super::{Settings, Stage};
use crate::methods::{Given, GreedySettings, SvfSettings, SynSettings};
use crate::settings::{LinearSettings, MomentsSettings, OptimizerSettings};

/// Every built-in method with each optimiser.
fn stages() -> Vec<(&'static str, Vec<(&'static str, Stage)>)> {
    let each = |stage: &dyn Fn(OptimizerSettings) -> Stage| {
        OptimizerSettings::ALL.map(|(name, optimizer)| (name, stage(optimizer))).to_vec()
    };
    vec![
        ("moments", vec![("BFGS", Stage::Moments(MomentsSettings::default()))]),
        ("rigid", vec![("BFGS", Stage::Rigid(LinearSettings::default()))]),
        ("affine", vec![("BFGS", Stage::Affine(LinearSettings::default()))]),
        (
            "greedy",
            each(&|optimizer| Stage::Greedy(GreedySettings { optimizer, ..Default::default() })),
        ),
        ("syn", each(&|optimizer| Stage::Syn(SynSettings { optimizer, ..Default::default() }))),
        ("svf", each(&|optimizer| Stage::Svf(SvfSettings { optimizer, ..Default::default() }))),
    ]
}

/// Which methods work with which optimisers, penalties, masks and channels, and where: a table in Markdown, made from
/// what the methods say. All similarities, also one's own, work with all of them.
pub fn matrix() -> String {
    let mut table = String::from(
        "| method | optimisers | penalties | masks | channels | shards and devices | slab by slab, offloaded, processes |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for (name, variants) in stages() {
        let is_valid = |stage: &Stage| {
            Settings { stages: vec![stage.clone()], ..Settings::default() }.validate().is_ok()
        };
        let valid = variants.iter().filter(|(_, stage)| is_valid(stage));
        let optimizers: Vec<&str> = valid.map(|(optimizer, _)| *optimizer).collect();
        let stage = &variants[0].1;
        let says = |given: Given| if stage.refuses(&given).is_none() { "yes" } else { "no" };
        let plain = Given { channels: 1, masked: [false; 2], parts: false };
        let penalties = if stage.is_linear() { "none to pay" } else { "yes" };
        let _ = writeln!(
            table,
            "| `{name}` | {} | {penalties} | {} | {} | {} | {} |",
            optimizers.join(", "),
            says(Given { masked: [true; 2], ..plain }),
            says(Given { channels: 2, ..plain }),
            says(Given { channels: 2, parts: true, ..plain }),
            says(Given { masked: [true; 2], parts: true, ..plain }),
        );
    }
    table
}
