//! `--transform`: the last stage, in the place of others.

use ffdp_register::Stage;
use toml::{Table, Value};

use super::entries::defect;
use super::names::is_linear;
use crate::failure::{Failure, Result};

/// What a deformation takes over from the one in whose place it comes: what the preset is about.
const TAKEN_OVER: [&str; 2] = ["similarity", "levels"];
/// The same where it is not as the other has it by default.
const TAKEN_OVER_IF_SET: [&str; 2] = ["regularization", "sigma_gradient_voxels"];

/// Leaves out what comes after the stage with this name, or puts it in the place of another deformation, of which it
/// takes the entries [`TAKEN_OVER`] that it has itself.
pub(super) fn end_with(stages: &mut Vec<Stage>, name: &str) -> Result<()> {
    if let Some(at) = stages.iter().position(|stage| stage.name() == name) {
        stages.truncate(at + 1);
        return Ok(());
    }
    let mut table = Table::from_iter([("transform".to_string(), Value::from(name))]);
    // What a discrete search begins, another method goes on from.
    let follows = |stage: &Stage| !stage.is_linear() && !matches!(stage, Stage::Discrete(_));
    let deformable = stages.iter().position(follows);
    if let Some(at) = follower(stages, name) {
        // All linear maps are found with the same settings.
        let replaced = Table::try_from(&stages[at]).map_err(defect)?;
        table.extend(replaced.into_iter().filter(|(name, _)| name != "transform"));
        stages.truncate(at);
        stages.push(table.try_into().map_err(defect)?);
        return Ok(());
    }
    if is_linear(name) {
        return Err(Failure::user(
            format!("--transform {name}: the settings have no such stage"),
            "add it to the file, or leave --settings out",
        ));
    }
    if let Some(at) = deformable {
        let replaced = Table::try_from(&stages[at]).map_err(defect)?;
        let [own, usual] = [name, stages[at].name()].map(by_default);
        let (own, usual) = (own?, usual?);
        let taken = replaced.into_iter().filter(|(name, value)| {
            let is_set =
                TAKEN_OVER_IF_SET.contains(&name.as_str()) && usual.get(name) != Some(value);
            own.contains_key(name) && (is_set || TAKEN_OVER.contains(&name.as_str()))
        });
        table.extend(taken);
        stages.truncate(at);
    }
    stages.push(table.try_into().map_err(defect)?);
    Ok(())
}

/// The first stage that finds a linear map with more parameters than the one with this name, in whose place that can come.
fn follower(stages: &[Stage], name: &str) -> Option<usize> {
    let built_in = Stage::built_in();
    let rank = |name: &str| {
        built_in.iter().position(|(stage, _)| stage.name() == name && stage.is_linear())
    };
    let own = rank(name)?;
    stages.iter().position(|stage| rank(stage.name()).is_some_and(|rank| rank > own))
}

/// The settings of the built-in stage with this name; nothing where there is none.
fn by_default(name: &str) -> Result<Table> {
    let stage = Stage::built_in().into_iter().find(|(stage, _)| stage.name() == name);
    stage.map_or(Ok(Table::new()), |(stage, _)| Table::try_from(&stage).map_err(defect))
}
