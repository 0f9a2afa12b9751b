//! The measures of a series: as `metrics.json`, as a page with its motion, as lines for people.

use std::fmt::Write;

use ffdp_groups::series::{HEAD_RADIUS_MM, Onto, SeriesVerdict, VolumeResult};
use ffdp_register::{Settings, verdict::Verdict};
use ffdp_train::report::{document, tile};
use maud::{Markup, PreEscaped, html as markup};
use serde::Serialize;
use serde_json::{Value, json};

use super::charts::{Curve, over_volumes};
use super::html::{STYLE, TO_LOOK_AT, heading};
use super::measures::{Input, Provenance, RunMeasures};
use super::sections::run_section;
use super::summary::verdict_word;
use crate::failure::Result;
use crate::json::to_json;

/// Everything that is known about a registered series.
#[derive(Debug, Serialize)]
pub struct SeriesMeasures {
    #[serde(flatten)]
    pub run: Provenance,
    /// Null where the series was registered to itself.
    pub fixed: Option<Input>,
    pub moving: Input,
    /// What the volumes were brought onto.
    pub onto: Onto,
    /// About which rotations turn, RAS mm.
    pub centre_mm: [f64; 3],
    #[serde(flatten)]
    pub verdict: SeriesVerdict,
    /// Mean and largest.
    pub framewise_displacement_mm: [f64; 2],
    /// What is unusual about the inputs.
    pub warnings: Vec<String>,
    pub settings: Settings,
    pub seconds: SeriesSeconds,
    /// The most memory the process had resident; null where the system does not say.
    pub peak_memory_bytes: Option<u64>,
    pub volumes: Vec<VolumeResult>,
}

/// Where the time went.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SeriesSeconds {
    /// Headers, the fixed image, and opening the device.
    pub read_and_start: f64,
    /// From the first volume that was read to the last transform.
    pub register: f64,
    /// Warping and writing.
    pub results: f64,
    /// From the start of the process.
    pub total: f64,
}

fn onto(measures: &SeriesMeasures) -> String {
    match measures.onto {
        Onto::Fixed => "the fixed image".to_string(),
        Onto::Mean => "the mean of the series".to_string(),
        Onto::Volume(k) => format!("volume {k}"),
    }
}

/// The most numbers of volumes that a line of text names.
const NAMED: usize = 20;

fn named(volumes: &[usize]) -> String {
    let names: Vec<String> = volumes.iter().take(NAMED).map(usize::to_string).collect();
    let more = volumes.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    names.join(", ") + &more
}

impl RunMeasures for SeriesMeasures {
    fn end(&self) -> Value {
        json!({"verdict": self.verdict, "peak_memory_bytes": self.peak_memory_bytes})
    }

    fn json(&self) -> Result<String> {
        to_json(self)
    }

    fn summary(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "{name:<22}{value}");
        };
        let SeriesVerdict { verdict, doubtful, failed, not_registered } = &self.verdict;
        line("verdict", verdict_word(*verdict).into());
        for (name, volumes) in
            [("  doubtful", doubtful), ("  failed", failed), ("  not registered", not_registered)]
        {
            if !volumes.is_empty() {
                line(name, format!("volumes {}", named(volumes)));
            }
        }
        line("volumes", format!("{}, onto {}", self.volumes.len(), onto(self)));
        let [mean, largest] = self.framewise_displacement_mm;
        line("frame displacement", format!("mean {mean:.3} mm, largest {largest:.3} mm"));
        let [mm, degrees] = farthest(self);
        line("motion", format!("up to {mm:.2} mm along an axis, {degrees:.2} degrees about one"));
        let SeriesSeconds { read_and_start, register, results, total } = self.seconds;
        line(
            "time",
            format!(
                "{total:.2} s: start {read_and_start:.2}, registration {register:.2}, results {results:.2}"
            ),
        );
        text
    }
}

/// The largest translation along an axis, in mm, and rotation about one, in degrees.
fn farthest(measures: &SeriesMeasures) -> [f64; 2] {
    let all = || measures.volumes.iter().map(|volume| volume.motion);
    let most = |values: &mut dyn Iterator<Item = f64>| values.map(f64::abs).fold(0.0, f64::max);
    let mm = most(&mut all().flat_map(|motion| motion.translations_mm));
    [mm, most(&mut all().flat_map(|motion| motion.rotations_rad)).to_degrees()]
}

/// The page of a series.
///
/// # Errors
/// Settings that cannot be written: a defect.
pub fn html(measures: &SeriesMeasures) -> Result<String> {
    let name = measures.moving.path.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    let title = format!("{name} onto {}", onto(measures));
    let content = markup! {
        (heading("Registration of a series", &title, Some(measures.verdict.verdict), &measures.run))
        (headlines(measures))
        (notes(measures))
        (motion(measures))
        (run(measures)?)
    };
    Ok(document(&format!("Series {title}"), STYLE, &content))
}

fn headlines(measures: &SeriesMeasures) -> Markup {
    /// A usual limit of what is left out of an analysis (Power et al. 2012).
    const SCRUBBED_MM: f64 = 0.5;
    let [mean, largest] = measures.framewise_displacement_mm;
    let [mm, degrees] = farthest(measures);
    let all = measures.volumes.iter();
    let moved = all.filter(|volume| volume.framewise_displacement_mm > SCRUBBED_MM).count();
    markup! {
        section.headlines {
            (tile("Framewise displacement", &format!("{mean:.2} mm"), &format!("mean; largest {largest:.2} mm")))
            (tile("Volumes above 0.5 mm", &moved.to_string(), &format!("of {}", measures.volumes.len())))
            (tile("Translation", &format!("{mm:.2} mm"), "the largest along an axis"))
            (tile("Rotation", &format!("{degrees:.2}°"), "the largest about an axis"))
            (tile("Time", &format!("{:.1} s", measures.seconds.total),
                  &format!("{:.1} s of it registration", measures.seconds.register)))
        }
    }
}

fn notes(measures: &SeriesMeasures) -> Markup {
    let volumes = measures.volumes.iter().enumerate();
    let doubted: Vec<_> = volumes.filter(|(_, volume)| !volume.reasons.is_empty()).collect();
    let named = doubted.iter().take(NAMED);
    let named = named.map(|(k, volume)| format!("volume {k}: {}", volume.reasons.join("; ")));
    let mut texts: Vec<String> = measures.warnings.iter().cloned().chain(named).collect();
    if doubted.len() > NAMED {
        texts.push(format!("{} volumes more, in motion.tsv", doubted.len() - NAMED));
    }
    super::html::notes(TO_LOOK_AT, &texts)
}

fn motion(measures: &SeriesMeasures) -> Markup {
    let volumes = || measures.volumes.iter();
    let axis = |i: usize| volumes().map(|v| v.motion.translations_mm[i]).collect::<Vec<f64>>();
    let angle =
        |i: usize| volumes().map(|v| v.motion.rotations_rad[i].to_degrees()).collect::<Vec<f64>>();
    let (translations, rotations) = ([0, 1, 2].map(axis), [0, 1, 2].map(angle));
    let displacements: Vec<f64> = volumes().map(|v| v.framewise_displacement_mm).collect();
    let numbered = volumes().enumerate();
    let marked: Vec<usize> =
        numbered.filter(|(_, v)| v.verdict != Verdict::Aligned).map(|(k, _)| k).collect();
    let axes = |values: &[Vec<f64>; 3], quantity: &str| {
        let names = ["x", "y", "z"].into_iter().zip(values);
        let curves: Vec<Curve> = names.map(|(name, values)| Curve { name, values }).collect();
        over_volumes(&curves, quantity, &marked).unwrap_or_default()
    };
    let displacement = Curve { name: "framewise displacement", values: &displacements };
    let [x, y, z] = measures.centre_mm.map(|mm| format!("{mm:.1}"));
    markup! {
        section {
            h2 { "Motion" }
            (PreEscaped(axes(&translations, "translation, mm")))
            (PreEscaped(axes(&rotations, "rotation, degrees")))
            (PreEscaped(over_volumes(&[displacement], "displacement, mm", &marked).unwrap_or_default()))
            p.note {
                "From the reference to the volume, RAS: x to the right, y to the front, z up; rotations about the middle of \
                 the reference's grid (" (x) ", " (y) ", " (z) " mm). Framewise displacement: the sum of the absolute \
                 changes since the volume before, rotations as arcs on a sphere of "
                (format!("{HEAD_RADIUS_MM:.0}")) " mm. Dashed lines: volumes to look at."
            }
        }
    }
}

fn run(measures: &SeriesMeasures) -> Result<Markup> {
    let SeriesMeasures { run, seconds, .. } = measures;
    let inputs = measures.fixed.iter().chain([&measures.moving]);
    let inputs = markup! {
        @for input in inputs {
            tr { th scope="row" { (input.path.display()) } td {
                (format!("{:?} voxels of {:?} mm, {}", input.size, input.spacing_mm, input.axes))
                br; code { (input.sha256) }
            } }
        }
    };
    let time = format!(
        "{:.2} s: start {:.2}, register {:.2}, warp and write {:.2}",
        seconds.total, seconds.read_and_start, seconds.register, seconds.results
    );
    let rows = [inputs, Markup::default()];
    run_section(run, rows, &time, measures.peak_memory_bytes, &measures.settings)
}
