//! `ffdp bench registration`: methods x resolutions on pairs with labels.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use burn::tensor::Device;
use clap::{Args, ValueEnum};
use ffdp_burn::ops::Interpolation;
use ffdp_burn::transform::Composite;
use ffdp_image::Error;
use ffdp_image::io::images::header;
use ffdp_image::io::write_text;
use ffdp_register::{Content, Observer, Register, Registration, Settings, Silent};
use ffdp_train::RunFolder;
use ffdp_train::predict::{CheckpointChoice, Predictor};

use super::cost::{Cost, Meter, TimedTransform, measured};
use super::method::BenchMethod;
use super::pairs::{self, Pair};
use super::results::{CurvePoint, Key, Results, Row};
use super::scores::{Images, Scores};
use super::{plots, tables};
use crate::commands::register::shortened;
use crate::device::DeviceChoice;
use crate::disk::{Forecast, Written};
use crate::failure::{Failure, Result};
use crate::label_names::LabelNames;
use crate::manifest::{Inputs, inputs};
use crate::memory::{Held, Plan, Sizes};
use crate::printer::{Printer, summarise};

const HELP: &str = "\
The pairs must be aligned up to a deformation: but for `affine`, methods start from the headers. Their \
levels are those of the FFDP paper (4, 2, 1, 0.5, 0.25 mm with at most 200, 200, 200, 100, 25 \
iterations), down to the resolution of the images. `upsampled` registers at the coarsest resolution \
given and is measured at the finer ones. The network of --model sees images of the size of its training \
(that of the coarsest resolution given, where the training kept each image's own): as `network` the \
whole image, brought to that size, and as `patches` the image at its own resolution, part by part.

Lists of pairs are what `ffdp synth` writes (1mm/pairs.csv, 0.5mm/pairs.csv): lines of \
fixed,moving,fixed_labels,moving_labels under a heading with these names. A pair has the same file names \
at every resolution.

Written to the output folder:
  results.json              one row for each pair, resolution and method; rows that are there are skipped,
                            so a folder belongs to one choice of --labels; rows of files that were changed
                            since are made again
  results.csv               the same for other programs
  labels.csv                each label of each row
  tables.md                 means over the pairs: accuracy, efficiency, definitions
  accuracy_over_time.svg    and accuracy_over_memory.svg, with --curve dice_over_time.svg

On a GPU each method is run for two iterations a level before it is timed, so that no kernel is compiled \
in the measured time.";

/// `ffdp bench registration`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct RegistrationArguments {
    /// Lists of pairs (CSV), of any resolutions.
    #[arg(required = true, value_name = "PAIRS.CSV")]
    pairs: Vec<PathBuf>,
    /// Folder for the results; made if it does not exist.
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// What is compared [default: all].
    #[arg(long, value_enum, value_name = "METHOD,METHOD,..", value_delimiter = ',')]
    methods: Option<Vec<BenchMethod>>,
    /// A trained network (the folder of `ffdp train`), for the methods `network` and `patches`.
    #[arg(long, value_name = "RUN")]
    model: Option<PathBuf>,
    /// The labels that count [default: all].
    #[arg(long, value_name = "ID,ID,..", value_delimiter = ',')]
    labels: Option<Vec<i32>>,
    /// Names of the labels: a table (CSV, TSV, ITK-SNAP, FreeSurfer). As ffdp register takes it.
    #[arg(long, value_name = "FILE")]
    label_names: Option<PathBuf>,
    /// Dice over time, too: methods with levels are also ended sooner. Each is run again for every level, after a
    /// quarter and after all of its iterations. Written as dice_over_time.svg and the entry `curve` of the rows.
    #[arg(long)]
    curve: bool,
    /// Device to compute on; it must be compiled in.
    #[arg(long, value_name = "cpu|cuda[:I]|wgpu", default_value = DeviceChoice::AUTO)]
    device: DeviceChoice,
    /// Print errors only.
    #[arg(short, long)]
    quiet: bool,
}

impl RegistrationArguments {
    /// Refuses a network that nothing is predicted by, and methods that have no row at all.
    fn refuse_without_effect(&self, pairs: &[Pair]) -> Result<()> {
        let Some(methods) = &self.methods else { return Ok(()) };
        if let (Some(model), false) = (&self.model, methods.iter().any(|method| method.is_learnt()))
        {
            let given = format!("--model {}", model.display());
            let because = "no method that was asked for predicts by a network";
            return Err(Error::without_effect(given, because, "add network to --methods").into());
        }
        let levels = |method: &BenchMethod| {
            pairs.iter().any(|pair| !method.shorter(pair.spacing_mm).is_empty())
        };
        if self.curve && !methods.iter().any(levels) {
            let because = "no method that was asked for ends after levels";
            let fix = "add greedy or baseline to --methods";
            return Err(Error::without_effect("--curve", because, fix).into());
        }
        // Of several resolutions of a pair, those but the coarsest.
        let finer = |pair: &Pair| {
            pairs.iter().any(|other| other.name == pair.name && other.spacing_mm > pair.spacing_mm)
        };
        let of_finer = |method: &&BenchMethod| {
            [BenchMethod::Upsampled, BenchMethod::Patches].contains(*method)
        };
        match methods.iter().find(of_finer).filter(|_| !pairs.iter().any(finer)) {
            None => Ok(()),
            Some(method) => {
                let name = method.to_possible_value().expect("no method is hidden");
                let given = format!("--methods {}", name.get_name());
                let because =
                    "it is measured at resolutions finer than the coarsest, and there is one";
                let fix = "list the pairs at a finer resolution, too";
                Err(Error::without_effect(given, because, fix).into())
            }
        }
    }
}

/// Compares, and writes what there is.
pub fn run(request: &RegistrationArguments) -> Result<()> {
    let pairs = pairs::read(&request.pairs)?;
    let learnt = request.methods.iter().flatten().find(|method| method.is_learnt());
    if let (Some(method), None) = (learnt, &request.model) {
        let name = method.to_possible_value().expect("no method is hidden").get_name().to_string();
        return Err(Failure::user(
            format!("the method {name} needs a network"),
            "add --model with the folder of a training",
        ));
    }
    request.refuse_without_effect(&pairs)?;
    let label_names = LabelNames::of(request.label_names.as_deref())?;
    let folder = &request.output;
    fs::create_dir_all(folder).map_err(|e| Error::io(folder, "create the output folder", e))?;
    let results = Results::open(folder, label_names)?;
    request.labels.as_deref().map_or(Ok(()), |asked| results.check_labels(asked))?;
    let device = request.device.open()?;
    let load = |run: &PathBuf| -> Result<(Predictor, PathBuf)> {
        let run = RunFolder::new(run);
        let predictor = Predictor::load(&run, CheckpointChoice::Best, &device)?;
        Ok((predictor, CheckpointChoice::Best.weights(&run)?))
    };
    let (network, weights) = request.model.as_ref().map(load).transpose()?.unzip();
    let mut bench = Bench {
        request,
        printer: Printer::new(request.quiet, false),
        network,
        weights,
        device,
        device_name: request.device.to_string(),
        pairs: &pairs,
        results,
        warm: Vec::new(),
    };
    pairs.iter().try_for_each(|pair| bench.pair(pair))?;
    bench.warn_of_outdated();
    let rows = bench.results.rows();
    let tables = tables::markdown(rows);
    write_text(&folder.join("results.csv"), &bench.results.csv())?;
    bench.results.write_labels()?;
    write_text(&folder.join("tables.md"), &tables)?;
    for (name, plot) in [
        ("accuracy_over_time.svg", plots::accuracy_over_time(rows)),
        ("accuracy_over_memory.svg", plots::accuracy_over_memory(rows)),
        ("dice_over_time.svg", plots::dice_over_time(rows)),
    ] {
        plot.map(|svg| write_text(&folder.join(name), &svg)).transpose()?;
    }
    bench.printer.note(&format!("results are in {}", folder.display()));
    summarise(request.quiet, || tables)
}

/// A comparison under way.
struct Bench<'a> {
    request: &'a RegistrationArguments,
    printer: Printer,
    device: Device,
    device_name: String,
    network: Option<Predictor>,
    /// The file with its weights.
    weights: Option<PathBuf>,
    /// Coarse to fine.
    pairs: &'a [Pair],
    results: Results,
    /// Methods and spacings whose kernels are compiled.
    warm: Vec<(BenchMethod, f64)>,
}

impl<'a> Bench<'a> {
    /// Adds the rows of a pair that are missing.
    fn pair(&mut self, pair: &'a Pair) -> Result<()> {
        let missing = self.missing(pair)?;
        if missing.is_empty() {
            return Ok(());
        }
        let images = Images::read(pair)?;
        let ids = images.ids(self.request.labels.as_deref())?;
        for (method, name) in missing {
            let inputs = self.inputs(method, pair);
            let Some((map, cost)) = self.register(method, pair, &images)? else { continue };
            let start = Instant::now();
            let scores = Scores::of(&map, method.deforms(), &images, &ids, &self.device)?;
            self.say(pair, &name, &scores, cost, start.elapsed().as_secs_f64());
            let curve = match self.request.curve {
                true => self.curve(method, pair, &images, &ids)?,
                false => Vec::new(),
            };
            let row = Row::new(self.key(pair, &name), &scores, cost, inputs);
            self.results.push(Row { curve, ..row })?;
        }
        Ok(())
    }

    /// What a method has reached when it is ended sooner. Its kernels are compiled.
    fn curve(
        &self,
        method: BenchMethod,
        pair: &Pair,
        images: &Images,
        ids: &[i32],
    ) -> Result<Vec<CurvePoint>> {
        let ended = |settings: Settings| -> Result<CurvePoint> {
            let settings = method.by_its_operations(settings);
            let (map, cost) = measured(&self.device, |meter| {
                TimedTransform::of(&find(images, &settings, &self.device, meter)?)
            })?;
            let dice = Scores::of(&map, method.deforms(), images, ids, &self.device)?.dice;
            Ok(CurvePoint { seconds: cost.seconds, dice })
        };
        method.shorter(pair.spacing_mm).into_iter().map(ended).collect()
    }

    /// Whether a row is to have a curve that it lacks.
    fn lacks_curve(&self, method: BenchMethod, key: Key) -> bool {
        let row = self.results.rows().iter().find(|row| row.key() == key);
        let lacks = row.is_some_and(|row| row.curve.is_empty());
        self.request.curve && lacks && !method.shorter(key.spacing_mm).is_empty()
    }

    /// The methods of the rows of a pair that are missing or of files that were changed since, and their names in the
    /// tables.
    fn missing(&self, pair: &'a Pair) -> Result<Vec<(BenchMethod, String)>> {
        let coarsest_mm = self.coarsest(pair).spacing_mm;
        let finer = coarsest_mm != pair.spacing_mm;
        let asked = self.request.methods.as_deref().unwrap_or(BenchMethod::value_variants());
        let named = asked.iter().filter_map(|&method| {
            let name = match (method, &self.network) {
                // The coarsest resolution has nothing to be upsampled from, and is one patch.
                (BenchMethod::Upsampled | BenchMethod::Patches, _) if !finer => return None,
                (BenchMethod::Upsampled, _) => format!("greedy at {coarsest_mm} mm, upsampled"),
                (BenchMethod::Network | BenchMethod::Patches, None) => return None,
                (BenchMethod::Network, Some(network)) => match finer {
                    true => format!("{} on the whole image, upsampled", network.name()),
                    false => network.name().to_string(),
                },
                (BenchMethod::Patches, Some(network)) => format!("{} in patches", network.name()),
                _ => method.to_string(),
            };
            Some((method, name))
        });
        let mut missing: Vec<(BenchMethod, String)> = Vec::new();
        for (method, name) in named {
            let inputs = self.inputs(method, pair);
            let is_there = self.results.has(self.key(pair, &name), &inputs)?
                && !self.lacks_curve(method, self.key(pair, &name));
            // A method may be asked for twice.
            if !is_there && missing.iter().all(|(_, other)| *other != name) {
                missing.push((method, name));
            }
        }
        Ok(missing)
    }

    /// The files that a row is made of.
    fn inputs(&self, method: BenchMethod, pair: &'a Pair) -> Inputs {
        let Pair { fixed, moving, fixed_labels, moving_labels, .. } = pair;
        let own = [fixed, moving, fixed_labels, moving_labels].map(PathBuf::as_path);
        let coarse = self.coarsest(pair);
        let coarse = (method == BenchMethod::Upsampled).then(|| [&*coarse.fixed, &*coarse.moving]);
        let weights = self.weights.as_deref().filter(|_| method.is_learnt());
        inputs(own.into_iter().chain(coarse.into_iter().flatten()).chain(weights))
    }

    /// Rows of methods that were not asked for stay as they are.
    fn warn_of_outdated(&self) {
        for (Key { pair, method, spacing_mm, .. }, files) in self.results.outdated() {
            let files = files.join(", ");
            self.printer.warning(&format!(
                "the row of {pair} at {spacing_mm} mm with {method} is of files that were changed since: {files}; it is \
                 made again when its method is asked for (--methods)"
            ));
        }
    }

    fn key<'k>(&'k self, pair: &'k Pair, method: &'k str) -> Key<'k> {
        let Pair { name, spacing_mm, .. } = pair;
        Key { pair: name, spacing_mm: *spacing_mm, method, device: &self.device_name }
    }

    fn say(&self, pair: &Pair, method: &str, scores: &Scores, cost: Option<Cost>, measured: f64) {
        let seconds = cost.map_or(0.0, |cost| cost.seconds);
        self.printer.note(&format!(
            "{}, {} mm, {method}: Dice {:.4}, {seconds:.1} s (and {measured:.1} s to measure it)",
            pair.name, pair.spacing_mm, scores.dice
        ));
    }

    /// The same pair at the coarsest resolution.
    fn coarsest(&self, pair: &'a Pair) -> &'a Pair {
        self.pairs.iter().find(|other| other.name == pair.name).unwrap_or(pair)
    }

    /// The map that a method finds, and its cost; nothing where the memory is too small.
    fn register(
        &mut self,
        method: BenchMethod,
        pair: &'a Pair,
        images: &Images,
    ) -> Result<Option<(Composite, Option<Cost>)>> {
        if method.is_learnt() {
            return Ok(Some(self.predict(method, pair, images)?));
        }
        let coarse = (method == BenchMethod::Upsampled).then(|| self.coarsest(pair));
        let read = coarse.map(Images::read).transpose()?;
        let (pair, images) = (coarse.unwrap_or(pair), read.as_ref().unwrap_or(images));
        let Some(settings) = method.settings(pair.spacing_mm) else {
            return Ok(Some((Composite::default(), None)));
        };
        let short = method.by_its_operations(shortened(&settings));
        let settings = method.by_its_operations(settings);
        let [fixed, moving] = [&images.fixed, &images.moving].map(|image| image.geometry.clone());
        let disk = Forecast::of_registration(fixed.len() as u64, Written::all(&settings, true));
        let sizes = Sizes { fixed, moving, content: Content::PLAIN, labels: true };
        let plan = Plan::new(&settings, &sizes, Held::Whole, self.request.device, disk)?;
        if let Err(failure) = plan.check_memory() {
            let spacing_mm = pair.spacing_mm;
            self.printer.warning(&format!("{method} at {spacing_mm} mm is left out: {failure}"));
            return Ok(None);
        }
        if self.is_cold(method, pair.spacing_mm) {
            find(images, &short, &self.device, &mut Silent)?;
        }
        let work =
            |meter: &mut Meter| TimedTransform::of(&find(images, &settings, &self.device, meter)?);
        let (map, cost) = measured(&self.device, work)?;
        Ok(Some((map, Some(cost))))
    }

    /// The map that the network predicts, and its cost.
    fn predict(
        &mut self,
        method: BenchMethod,
        pair: &'a Pair,
        images: &Images,
    ) -> Result<(Composite, Option<Cost>)> {
        let is_cold = self.is_cold(method, pair.spacing_mm);
        let network = self.network.as_ref().expect("without one its methods are not listed");
        let size = network.size(&header(&self.coarsest(pair).fixed)?.geometry)?;
        let work = || predicted(network, method, images, size, &self.device);
        if is_cold {
            work()?;
        }
        let (map, cost) = measured(&self.device, |_| work())?;
        Ok((map, Some(cost)))
    }

    /// Whether a method has kernels to compile for this resolution; asked once, since it is then run.
    fn is_cold(&mut self, method: BenchMethod, spacing_mm: f64) -> bool {
        if self.request.device == DeviceChoice::Cpu || self.warm.contains(&(method, spacing_mm)) {
            return false;
        }
        self.warm.push((method, spacing_mm));
        true
    }
}

fn find(
    images: &Images,
    settings: &Settings,
    device: &Device,
    observer: &mut dyn Observer,
) -> Result<Registration> {
    let registration = Register::new(&images.fixed, &images.moving).settings(settings);
    Ok(registration.on(device).observer(observer).run()?)
}

/// What a network predicts, and the warped image read back, as a registration ends.
fn predicted(
    network: &Predictor,
    method: BenchMethod,
    images: &Images,
    size: [usize; 3],
    device: &Device,
) -> Result<TimedTransform> {
    let Images { fixed, moving, .. } = images;
    let map = match method {
        BenchMethod::Patches => network.predict_in_patches(fixed, moving, size)?,
        _ => network.predict_on(fixed, moving, size)?,
    };
    map.on_grid(&fixed.geometry, device).warp(moving, Interpolation::Linear)?;
    Ok(TimedTransform { map, iteration_seconds: None })
}
