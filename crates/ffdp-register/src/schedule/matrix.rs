//! What works with what, as the methods themselves say it: the table of the documentation.

use std::fmt::Write;

use super::Settings;
use crate::methods::{Stage, StageInputs};
use crate::settings::OptimizerSettings;

/// Every built-in method with each optimiser.
fn stages() -> Vec<(&'static str, Vec<(&'static str, Stage)>)> {
    let each = |(stage, _): (Stage, &str)| {
        let with = |(name, optimizer)| Some((name, stage.clone().with_optimizer(optimizer)?));
        let variants: Vec<_> = OptimizerSettings::ALL.into_iter().filter_map(with).collect();
        let name = stage.name();
        let own = match stage.fields() {
            _ if stage.is_linear() => "BFGS",
            Some(_) => "Gauss-Newton with conjugate gradients",
            None => "none: a search",
        };
        (name, if variants.is_empty() { vec![(own, stage)] } else { variants })
    };
    Stage::built_in().into_iter().map(each).collect()
}

/// Which methods work with which optimisers, penalties, masks and channels, and where: a table in Markdown, made from
/// what the methods say. All similarities, also one's own, work with all of them.
pub fn matrix() -> String {
    let mut table = String::from(
        "| method | optimisers | penalties | masks | channels | shards and devices | slab by slab, processes | offloaded |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for (name, variants) in stages() {
        let is_valid = |stage: &Stage| {
            Settings { stages: vec![stage.clone()], ..Settings::default() }.validate().is_ok()
        };
        let valid = variants.iter().filter(|(_, stage)| is_valid(stage));
        let optimizers: Vec<&str> = valid.map(|(optimizer, _)| *optimizer).collect();
        let stage = &variants[0].1;
        let says = |given: StageInputs| if stage.refuses(&given).is_none() { "yes" } else { "no" };
        let plain = StageInputs {
            channels: 1,
            masked: [false; 2],
            parts: false,
            at_rest: false,
            processes: false,
        };
        let slabs = StageInputs { masked: [true; 2], parts: true, ..plain };
        let penalties = match stage.fields() {
            None => "not applicable",
            Some(method) if method.keeps_shards_on_devices() => "`beta`, `beta_div`",
            Some(_) => "yes",
        };
        let _ = writeln!(
            table,
            "| `{name}` | {} | {penalties} | {} | {} | {} | {} | {} |",
            optimizers.join(", "),
            says(StageInputs { masked: [true; 2], ..plain }),
            says(StageInputs { channels: 2, ..plain }),
            says(StageInputs { channels: 2, parts: true, ..plain }),
            match stage.refuses(&StageInputs { processes: true, ..slabs }) {
                Some(_) if says(slabs) == "yes" => "slab by slab",
                _ => says(slabs),
            },
            says(StageInputs { at_rest: true, ..slabs }),
        );
    }
    table
}
