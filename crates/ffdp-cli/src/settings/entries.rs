//! Entries of stages, changed by their name.

use ffdp_image::Error;
use ffdp_register::methods::gnk::DeterminantBounds;
use ffdp_register::{Similarity, settings::LinearSettings};
use serde::Serialize;
use toml::{Table, Value};

use super::names::is_linear;
use crate::failure::{Failure, Result};

/// The stages of settings, as tables.
pub(super) struct Stages<'a>(Vec<&'a mut Table>);

impl<'a> Stages<'a> {
    pub fn of(settings: &'a mut Table) -> Self {
        let stages = settings.get_mut("stages").and_then(Value::as_array_mut);
        Self(stages.into_iter().flatten().filter_map(Value::as_table_mut).collect())
    }

    /// The similarities that a user means: those of the deformable stages, of all if there are none.
    fn similarities(&mut self) -> impl Iterator<Item = &mut Value> {
        let linear =
            |stage: &Table| stage.get("transform").and_then(Value::as_str).is_some_and(is_linear);
        let all = self.0.iter().all(|stage| linear(stage));
        let meant = self.0.iter_mut().filter(move |stage| all || !linear(stage));
        meant.filter_map(|stage| stage.get_mut("similarity"))
    }

    /// The stages that have an entry; what is wrong and the way out where none has.
    fn having(&mut self, entry: &str, wrong: &str, fix: &str) -> Result<Vec<&mut Table>> {
        let stages = self.0.iter_mut().filter(|stage| stage.contains_key(entry));
        let stages: Vec<_> = stages.map(|stage| &mut **stage).collect();
        match stages.is_empty() {
            true => Err(Failure::user(wrong, fix)),
            false => Ok(stages),
        }
    }

    /// Sets an entry in every stage that has it.
    pub fn set(&mut self, flag: &str, entry: &str, value: Option<Value>) -> Result<()> {
        let Some(value) = value else { return Ok(()) };
        let wrong = format!("{flag} {value} is given, but no stage has {entry}");
        for stage in self.having(entry, &wrong, "leave it out, or add a deformable stage")? {
            stage.insert(entry.to_string(), value.clone());
        }
        Ok(())
    }

    /// Bounds of the determinant, of the stages whose deformation knows them.
    pub fn set_determinant(&mut self, given: &[f64]) -> Result<()> {
        let &[least, most] = given else {
            let what =
                format!("--determinant {given:?} must be two numbers, the least and the most");
            return Err(Failure::user(what, "for example --determinant 0.25,4"));
        };
        let bounds = as_value(&DeterminantBounds { least, most })?;
        // An entry that is not set is none of the file's: that of the weight stands for it.
        let wrong = "--determinant is given, but no stage keeps its determinants within bounds";
        for stage in self.having("beta", wrong, "leave it out, or use --transform gnk")? {
            stage.insert("determinant".to_string(), bounds.clone());
        }
        Ok(())
    }

    /// Places control points, of stages that have them.
    pub fn set_spacing(&mut self, given: &[f64]) -> Result<()> {
        let spacing: [f64; 3] = match given {
            [all] => [*all; 3],
            _ => given.try_into().map_err(|_| {
                let what = format!("--spacing-mm {given:?} must be one number, or three: x, y, z");
                Failure::user(what, "for example --spacing-mm 5")
            })?,
        };
        let spacing = as_value(&spacing)?;
        let wrong = "--spacing-mm is given, but no stage has control points";
        for stage in self.having("spacing_mm", wrong, "leave it out, or use --transform ffd")? {
            stage.insert("spacing_mm".to_string(), spacing.clone());
        }
        Ok(())
    }

    /// Sets the weight of the diffusion, of stages that have penalties.
    pub fn set_diffusion(&mut self, weight: f64) -> Result<()> {
        let wrong = format!("--diffusion {weight} is given, but no stage has such a penalty");
        let fix = "leave it out, or use --transform greedy, syn, svf or ffd";
        for stage in self.having("regularization", &wrong, fix)? {
            let penalties = stage.get_mut("regularization").and_then(Value::as_table_mut);
            let penalties = penalties.ok_or_else(|| defect("penalties are a table"))?;
            penalties.insert("diffusion".to_string(), Value::Float(weight));
        }
        Ok(())
    }

    /// Asks every stage that has the choice for the same result every time.
    pub fn set_deterministic(&mut self) {
        let choices = self.0.iter_mut().filter_map(|stage| stage.get_mut("deterministic"));
        choices.for_each(|choice| *choice = Value::Boolean(true));
    }

    /// A stage that has the metric already keeps its settings.
    pub fn set_metric(&mut self, metric: &str) -> Result<()> {
        let named = Similarity::named(metric).expect("the parser knows the names");
        let value = as_value(&named)?;
        let mut meant = self.similarities().peekable();
        if meant.peek().is_none() {
            return Err(Failure::user(
                format!("--metric {metric} is given, but no deformable stage has a similarity"),
                "leave it out, or end the settings with another stage, as --transform greedy",
            ));
        }
        for similarity in meant {
            if similarity.get(metric).is_none() {
                *similarity = value.clone();
            }
        }
        Ok(())
    }

    /// What discrete searches compare; one that has these features already keeps their settings.
    pub fn set_features(&mut self, features: &str) -> Result<()> {
        let named = Similarity::named(features).expect("the parser knows the names");
        let value = as_value(&named)?;
        let wrong = format!("--features {features} is given, but no stage is a discrete search");
        let fix = "leave it out, or use --preset hard or --transform discrete";
        for stage in self.having("features", &wrong, fix)? {
            if stage.get("features").map(name_of).as_deref() != Some(features) {
                stage.insert("features".to_string(), value.clone());
            }
        }
        Ok(())
    }

    /// Sets an entry of the similarities that have it; `metrics` are their names.
    pub fn set_compared(
        &mut self,
        flag: &str,
        entry: &str,
        value: &Value,
        metrics: &str,
    ) -> Result<()> {
        let mut similarities = self.similarities().peekable();
        let metric = similarities.peek().map(|similarity| name_of(similarity)).unwrap_or_default();
        let mut own = similarities.filter_map(|similarity| entry_of(similarity, entry)).peekable();
        if own.peek().is_none() {
            let because = format!("the metric {metric} has no {entry}");
            let fix = format!("use --metric {metrics}");
            return Err(Error::without_effect(flag, because, &fix).into());
        }
        own.for_each(|own| *own = value.clone());
        Ok(())
    }

    /// New levels for the last stage; what is not given stays as it was.
    pub fn set_levels(
        &mut self,
        shrinks: Option<&[f64]>,
        iterations: Option<&[usize]>,
    ) -> Result<()> {
        let levels = self.0.last_mut().and_then(|stage| stage.get_mut("levels")?.as_array_mut());
        let Some(levels) = levels else {
            return Err(Failure::user(
                "--shrink or --iterations is given, but the last stage has no levels",
                "leave it out, or add a stage with levels",
            ));
        };
        let given = [shrinks.is_some(), iterations.is_some()];
        let column = |name: &str| -> Vec<Value> {
            levels.iter().filter_map(|level| level.get(name).cloned()).collect()
        };
        let shrinks: Vec<Value> = match shrinks {
            Some(shrinks) => shrinks.iter().copied().map(Value::Float).collect(),
            None => column("shrink"),
        };
        let iterations: Vec<Value> = match iterations {
            Some(iterations) => iterations.iter().map(as_value).collect::<Result<_>>()?,
            None => usual_iterations(column("iterations"), shrinks.len()),
        };
        if shrinks.len() != iterations.len() {
            return Err(refused_levels(given, &shrinks, &iterations));
        }
        let level = |(shrink, iterations)| {
            Value::Table(Table::from_iter([
                ("shrink".to_string(), shrink),
                ("iterations".to_string(), iterations),
            ]))
        };
        *levels = shrinks.into_iter().zip(iterations).map(level).collect();
        Ok(())
    }
}

/// Iterations of so many levels, where those of the settings have `known`: the last of them for the finest level, and
/// before the first of them the same again. A linear stage that leaves its levels to the images has fewer the finer.
fn usual_iterations(known: Vec<Value>, count: usize) -> Vec<Value> {
    match (known.first(), known.len()) {
        (Some(first), have) => {
            let more = std::iter::repeat_n(first.clone(), count.saturating_sub(have));
            more.chain(known[have.saturating_sub(count)..].iter().cloned()).collect()
        }
        (None, _) => {
            let linear = LinearSettings::ITERATIONS;
            let of_level = |k: usize| Value::from(linear[k.min(linear.len() - 1)] as i64);
            (0..count).map(of_level).collect()
        }
    }
}

/// Lists of different lengths: with both flags, or of --iterations alone.
fn refused_levels(given: [bool; 2], shrinks: &[Value], iterations: &[Value]) -> Failure {
    // 4, as a user writes it, in place of the 4.0 of a file.
    let number = |value: &Value| match value {
        Value::Float(number) => number.to_string(),
        other => other.to_string(),
    };
    let list = |values: &[Value]| values.iter().map(number).collect::<Vec<_>>().join(",");
    let counted = |flag: &str, values: &[Value]| {
        format!("{flag} {} is for {} levels", list(values), values.len())
    };
    let (iterations, count) = (counted("--iterations", iterations), shrinks.len());
    let (message, other) = match (given[0], count) {
        (true, _) => (format!("{}, {iterations}", counted("--shrink", shrinks)), "as many to both"),
        (false, 0) => (
            format!("{iterations}; those of the last stage are chosen by the images"),
            "--shrink with as many as --iterations",
        ),
        (false, _) => (
            format!(
                "{iterations}; the last stage of the settings has {count}, with shrink factors {}",
                list(shrinks)
            ),
            "--shrink with as many as --iterations",
        ),
    };
    Failure::user(
        message,
        format!(
            "give one number per level: {count} numbers, or {other} (--shrink 4,2,1 --iterations 200,100,50)"
        ),
    )
}

pub(super) fn as_value(value: &impl Serialize) -> Result<Value> {
    Value::try_from(value).map_err(defect)
}

/// An entry of a similarity, if it has it: its settings are the only entry of its table.
fn entry_of<'a>(similarity: &'a mut Value, entry: &str) -> Option<&'a mut Value> {
    similarity.as_table_mut()?.iter_mut().find_map(|(_, settings)| settings.get_mut(entry))
}

/// The name of a similarity: `"mse"`, or the key of `{ lncc = { .. } }`.
pub(super) fn name_of(similarity: &Value) -> String {
    let key = similarity.as_table().and_then(|table| table.keys().next());
    key.map(String::as_str).or(similarity.as_str()).unwrap_or_default().to_string()
}

/// Settings that were valid are written and read by the same derives.
pub(super) fn defect(reason: impl std::fmt::Display) -> Failure {
    Failure::defect(format!("settings could not be converted: {reason}"))
}
