//! What `register` and `atlas` share: the deformation's settings by flags or by a file, and its progress.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use ffdp_image::Error;
use ffdp_image::io::read_toml;
use ffdp_shapes::attachment::{Attachment, advised_sigmas};
use ffdp_shapes::lddmm::{Iteration, LddmmSettings, Metric, Scheme};
use ffdp_shapes::shape::width_advice;
use ffdp_shapes::{Decay, Position, Shape};

use crate::device::DeviceChoice;
use crate::failure::{Failure, Result};
use crate::printer::Printer;

/// Where it is computed, and what is printed.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// Device to compute on; it must be compiled in.
    #[arg(long, value_name = "cpu|cuda[:I]|wgpu", default_value = DeviceChoice::AUTO)]
    pub device: DeviceChoice,
    /// Errors only.
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Every iteration.
    #[arg(short, long)]
    verbose: bool,
}

impl RunArguments {
    pub fn printer(&self) -> Printer {
        Printer::new(self.quiet, self.verbose)
    }
}

/// How shapes are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Compare {
    /// Point for point.
    Landmarks,
    /// Normals or directions; opposite ones cancel.
    Currents,
    /// Positions and directions; nothing cancels.
    Varifolds,
    /// The same without inside and outside.
    UnorientedVarifolds,
    /// Optimal transport of area or length.
    Transport,
}

/// How a kernel of deformations decays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KernelChoice {
    /// exp(-r^2 / 2 sigma^2).
    Gaussian,
    /// 1 / (1 + r^2 / sigma^2): distant points are taken along as well.
    Cauchy,
}

impl From<KernelChoice> for Decay {
    fn from(choice: KernelChoice) -> Self {
        match choice {
            KernelChoice::Gaussian => Self::Gaussian,
            KernelChoice::Cauchy => Self::Cauchy,
        }
    }
}

/// Flags of a deformation.
#[derive(Debug, Args)]
pub struct MethodArguments {
    /// How shapes are compared [default: varifolds; landmarks for clouds of equal numbers].
    #[arg(short, long, value_name = "HOW")]
    attachment: Option<Compare>,
    /// Widths (standard deviations) of the comparison in mm, comma separated; for transport, the blur
    /// [default: from an eighth of the target's diameter down to the edges that --coarsen leaves].
    #[arg(long, value_name = "MM,..", value_delimiter = ',')]
    data_sigma: Vec<f64>,
    /// Transport on several scales: clusters of points first; for many thousand cells. With `-a transport` only.
    #[arg(long)]
    multiscale: bool,
    /// Widths of the deformation in mm, comma separated [default: a sixth of the target's diameter
    /// or half of its thickness, which is less, and half of that; for landmarks at most four times the
    /// distance of neighbours].
    #[arg(short, long, value_name = "MM,..", value_delimiter = ',')]
    sigma: Vec<f64>,
    /// How the deformation's kernel decays [default: gaussian].
    #[arg(long, value_enum, value_name = "HOW")]
    kernel: Option<KernelChoice>,
    /// Distance of control points in mm; 0 takes all points [default: three quarters of the
    /// narrower width].
    #[arg(long, value_name = "MM")]
    control_spacing: Option<f64>,
    /// Compare with one point in each cube of this side; 0 with all [default: what leaves 2500 cells].
    #[arg(long, value_name = "MM")]
    coarsen: Option<f64>,
    /// Weight of the comparison relative to the energy of the deformation [default: varifolds 4, landmarks 100,
    /// others 10].
    #[arg(long, value_name = "WEIGHT")]
    fidelity: Option<f64>,
    /// Kernels whose rows sum to 1, so that mass counts.
    #[arg(long)]
    normalised: bool,
    /// Integrate by Runge and Kutta's rule of fourth order instead of the midpoint rule.
    #[arg(long)]
    rk4: bool,
    /// Steps of the integration [default: 6].
    #[arg(long, value_name = "N")]
    steps: Option<usize>,
    /// Iterations at most [default: 100].
    #[arg(short, long, value_name = "N")]
    iterations: Option<usize>,
    /// Settings as in the settings.toml of a run, some or all of them; flags go before.
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
}

impl MethodArguments {
    /// The settings for a target: those that go with it, then what a file names, then flags.
    ///
    /// # Errors
    /// A file that is no settings, and numbers without meaning.
    pub fn settings(&self, source: &Shape, target: &Shape) -> Result<LddmmSettings> {
        let file = self.named_in_file()?;
        self.check_extent(source, target, &file)?;
        let clouds = source.cells.is_empty() && target.cells.is_empty();
        let how = match self.attachment {
            None if file.contains_key("attachment") => None,
            None if clouds && source.points.len() == target.points.len() => {
                Some(Compare::Landmarks)
            }
            None => Some(Compare::Varifolds),
            how => how,
        };
        self.check_effects(how)?;
        let mut settings = self.for_target(target, how, &file)?;
        self.set_flags(&mut settings);
        let spaced = self.control_spacing.is_some() || file.contains_key("control_spacing_mm");
        // Control points go with the widths, whoever gives these; landmarks are their own.
        if !spaced && settings.attachment != Attachment::Landmarks {
            settings.control_spacing_mm = settings.advised_control_spacing_mm();
        }
        settings.validate()?;
        Ok(settings)
    }

    /// What goes with the target, with what the file names; compared as it says where `how` does not.
    fn for_target(
        &self,
        target: &Shape,
        how: Option<Compare>,
        file: &toml::Table,
    ) -> Result<LddmmSettings> {
        let mut settings = LddmmSettings::advised(target);
        let of_file = with_entries(settings.clone(), file)?;
        let coarsen_mm = self.coarsen.unwrap_or(of_file.coarsen_mm);
        let coarse = target.coarsened(coarsen_mm);
        let attachment = match how {
            Some(how) => self.attachment(how, &coarse),
            None => self.with_blur(of_file.attachment, file, &coarse),
        };
        settings.fidelity = attachment.advised_fidelity();
        if attachment == Attachment::Landmarks {
            settings = settings.for_landmarks(target);
        }
        let entries = with_entries(settings, file)?;
        let mut settings = LddmmSettings { attachment, coarsen_mm, ..entries };
        if self.multiscale {
            let Attachment::Transport(transport) = &mut settings.attachment else {
                let message =
                    "--multiscale is of optimal transport, and another comparison is chosen";
                return Err(Failure::user(message, "give -a transport, too"));
            };
            transport.multiscale.get_or_insert_default();
        }
        Ok(settings)
    }

    fn set_flags(&self, settings: &mut LddmmSettings) {
        if !self.sigma.is_empty() {
            settings.sigmas_mm.clone_from(&self.sigma);
        }
        if let Some(kernel) = self.kernel {
            settings.decay = kernel.into();
        }
        if self.normalised {
            settings.metric = Metric::Normalised;
        }
        if self.rk4 {
            settings.scheme = Scheme::Rk4;
        }
        settings.control_spacing_mm = self.control_spacing.unwrap_or(settings.control_spacing_mm);
        settings.fidelity = self.fidelity.unwrap_or(settings.fidelity);
        settings.steps = self.steps.unwrap_or(settings.steps);
        settings.iterations = self.iterations.unwrap_or(settings.iterations);
    }

    /// Transport of a file; the blur that it leaves out goes with the target.
    fn with_blur(&self, attachment: Attachment, file: &toml::Table, target: &Shape) -> Attachment {
        let named = |entry: &str| file["attachment"].get(entry).is_some();
        match (attachment, self.attachment(Compare::Transport, target)) {
            (Attachment::Transport(mut own), Attachment::Transport(advised)) => {
                if !named("blur") {
                    own.blur = advised.blur;
                }
                if !named("at_blur") {
                    own.at_blur = advised.at_blur;
                }
                Attachment::Transport(own)
            }
            (attachment, _) => attachment,
        }
    }

    /// The entries of the file of settings, none without a file.
    fn named_in_file(&self) -> Result<toml::Table> {
        let Some(path) = &self.settings else { return Ok(toml::Table::new()) };
        let fix = "use the settings.toml of a run";
        // As settings first: an entry that is none is named, with its line.
        read_toml::<LddmmSettings>(path, fix)?;
        Ok(read_toml(path, fix)?)
    }

    /// Refuses flags that the comparison leaves without an effect; without a choice it is that of the file.
    fn check_effects(&self, how: Option<Compare>) -> Result<()> {
        let widths = self.data_sigma.iter().map(f64::to_string).collect::<Vec<_>>().join(",");
        let data_sigma = (!widths.is_empty()).then(|| format!("--data-sigma {widths}"));
        let coarsen = self.coarsen.map(|mm| format!("--coarsen {mm}"));
        let points = "landmarks are compared point for point";
        let refused = match how {
            Some(Compare::Landmarks) => data_sigma.or(coarsen).map(|given| (given, points)),
            Some(Compare::Transport) if self.data_sigma.len() > 1 => data_sigma.map(|given| {
                (given, "transport has one blur, the widths after it are not looked at")
            }),
            None => data_sigma
                .map(|given| (given, "the comparison is that of --settings, with its widths")),
            _ => None,
        };
        match refused {
            None => Ok(()),
            Some((given, because)) => {
                let fix = "choose another comparison by --attachment";
                Err(Error::without_effect(given, because, fix).into())
            }
        }
    }

    /// Widths follow from the size of the target, which a single point does not have.
    fn check_extent(&self, source: &Shape, target: &Shape, file: &toml::Table) -> Result<()> {
        let clouds = source.cells.is_empty() && target.cells.is_empty();
        let pairs = clouds && source.points.len() == target.points.len();
        let of_file = self.attachment.is_none() && file.contains_key("attachment");
        let by_widths = !of_file && self.attachment.map_or(!pairs, |how| how != Compare::Landmarks);
        let missing = self.sigma.is_empty() && !file.contains_key("sigmas_mm")
            || by_widths && self.data_sigma.is_empty();
        if !missing || target.diameter() > 0.0 {
            return Ok(());
        }
        let what = match target.points.len() {
            1 => "the target is a single point".to_string(),
            count => format!("all {count} points of the target are the same"),
        };
        let flags = if by_widths { "--sigma and --data-sigma" } else { "--sigma" };
        Err(Failure::user(
            format!("{what}: no width of the deformation follows from its size"),
            format!("give the widths in mm with {flags}, or a shape of several points"),
        ))
    }

    fn attachment(&self, how: Compare, target: &Shape) -> Attachment {
        let given = !self.data_sigma.is_empty();
        let sigmas_mm = if given { self.data_sigma.clone() } else { advised_sigmas(target) };
        match how {
            Compare::Landmarks => Attachment::Landmarks,
            Compare::Currents => Attachment::Currents { sigmas_mm },
            Compare::Varifolds => Attachment::Varifolds { sigmas_mm, oriented: true },
            Compare::UnorientedVarifolds => Attachment::Varifolds { sigmas_mm, oriented: false },
            Compare::Transport if given => Attachment::transport_blurred(self.data_sigma[0]),
            Compare::Transport => Attachment::transport(&sigmas_mm),
        }
    }
}

/// Settings with other values for the entries of a file, which was read as settings.
fn with_entries(settings: LddmmSettings, file: &toml::Table) -> Result<LddmmSettings> {
    let defect = |error: &dyn ToString| Failure::defect(error.to_string());
    let mut entries = toml::Table::try_from(settings).map_err(|error| defect(&error))?;
    entries.extend(file.clone());
    entries.try_into().map_err(|error| defect(&error))
}

/// As a file.
pub fn to_toml(settings: &LddmmSettings) -> Result<String> {
    toml::to_string(settings).map_err(|error| Failure::defect(error.to_string()))
}

/// What should be looked at before a deformation: widths that do not go with the shapes.
pub fn warnings(settings: &LddmmSettings, source: &Shape, target: &Shape) -> Vec<String> {
    let widest = settings.sigmas_mm.iter().copied().fold(0.0, f64::max);
    let mut warnings: Vec<String> =
        width_advice("deformation", widest, source).into_iter().map(|advice| advice.text).collect();
    if let Attachment::Currents { sigmas_mm } | Attachment::Varifolds { sigmas_mm, .. } =
        &settings.attachment
    {
        let finest = sigmas_mm.iter().copied().fold(f64::INFINITY, f64::min);
        let advice = width_advice("comparison's smallest", finest, source);
        warnings.extend(advice.map(|advice| advice.text));
    }
    if matches!(settings.attachment, Attachment::Landmarks) {
        warnings.extend(torn_landmarks(&source.points, &target.points));
    }
    warnings
}

/// Landmarks at one place that must go to several.
fn torn_landmarks(source: &[Position], target: &[Position]) -> Option<String> {
    let mut seen: HashMap<[u64; 3], usize> = HashMap::new();
    let mut torn = source.iter().zip(target).enumerate().filter_map(|(i, (point, goal))| {
        let first = *seen.entry(point.map(|v| (v + 0.0).to_bits())).or_insert(i);
        (target[first] != *goal).then_some((first, i))
    });
    let (first, second) = torn.next()?;
    let others = match torn.count() {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let [a, b] = [target[first], target[second]];
    let mm = a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
    Some(format!(
        "landmarks {} and {} of the source are one point, and must go to points {mm:.2} mm apart{others}: no smooth \
         map does that, the result lies between",
        first + 1,
        second + 1
    ))
}

/// Without -v, a line is written at most so often.
const SILENCE: Duration = Duration::from_secs(10);

/// Talks of the iterations; `save` is called with each.
pub fn watch<'a>(
    printer: Printer,
    iterations: usize,
    mut save: impl FnMut(&Iteration) -> ControlFlow<()> + 'a,
) -> impl FnMut(&Iteration) -> ControlFlow<()> + 'a {
    let start = Instant::now();
    let mut said = start;
    move |iteration| {
        let Iteration { number, cost, .. } = iteration;
        let seconds = start.elapsed().as_secs_f64();
        let line = format!(
            "iteration {number}/{iterations}: cost {cost:.6}, {:.2} s each",
            seconds / *number as f64
        );
        if said.elapsed() >= SILENCE {
            said = Instant::now();
            printer.note(&line);
        } else {
            printer.detail(&line);
        }
        save(iteration)
    }
}
