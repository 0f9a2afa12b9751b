//! `ffdp synth`: labelled images of any resolution, from label maps or procedural brains.
//!
//! Read [`run`] first; `synth/plan.rs` says which files and grids there will be,
//! `synth/source.rs` where labels and statistics come from, `synth/manifest.rs` what is listed.

mod manifest;
mod plan;
mod source;

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, ValueEnum};
use ffdp_image::Error;
use ffdp_image::image::Geometry;
use ffdp_image::io::images::{LabelWriter, VolumeWriter, write_displacement};
use ffdp_image::io::{check_memory, write_text};
use ffdp_image::synth::{
    Diffeomorphism, IntensityTable, LabelField, Modality, Slab, Slabs, SubjectSource, WarpScale,
    WarpSettings, coarsen_image, coarsen_labels,
};
use ffdp_train::user_flags::{UserFlags, WithoutEffect};

use crate::commands::register::ImageFormat;
use crate::failure::Result;
use crate::json::to_json;
use crate::manifest::{Identity, MANIFEST, place};
use crate::printer::{Printer, print_to_stdout};
use manifest::{Manifest, SubjectEntry, write_pairs};
use plan::{Plan, SubjectFiles};
use source::{Source, Sources};

const SYNTH_HELP: &str = "\
Labels become a smooth function of position, are seen through the subject's own warp, sampled on \
the finest grid, and given intensities: every voxel is a draw from its label's normal distribution, smoothed \
by 0.75 voxel (section K.1 of the FFDP paper). Coarser grids are block means (images) and \
majorities (labels) of the finest.

Without --labels, subjects are warps of a procedural brain. Statistics of the labels come from \
--image, from --statistics, or from a table for --modality (of the procedural brain, or of \
FreeSurfer's aseg labels).

Written to the output folder, for every subject and spacing:
  0.5mm/subject-000.nii.gz              the image
  0.5mm/subject-000_labels.nii.gz       its labels
  0.5mm/pairs.csv                       pairs of subjects, for the transmorph example's --data
  warps/subject-000_warp.nii.gz         from the subject to the label map (ITK: LPS mm)
  warps/subject-000_inverse_warp.nii.gz from the label map to the subject
  statistics.json                       mean and deviation of every label
  manifest.json                         all of it, with seeds, and every file

With the warp as transform, `ffdp apply` carries the label map onto the subject.
The same seed gives the same voxels on any number of threads.

The same command again replaces its own files. A folder with another data set, or with results of \
another command, is refused; --overwrite removes those files first, and no others.";

/// `ffdp synth`.
#[derive(Debug, Args)]
#[command(after_long_help = SYNTH_HELP)]
pub struct SynthArguments {
    #[command(flatten)]
    given: UserFlags,
    /// Folder for the results; made if it does not exist.
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// Label maps to start from; subject k is made from map k, cyclically.
    #[arg(long, value_name = "FILE", num_args = 1.., value_delimiter = ',')]
    pub labels: Vec<PathBuf>,
    /// Images on the grids of the label maps, one each. The intensity statistics of all labels are
    /// estimated from them.
    #[arg(long, value_name = "FILE", num_args = 1.., value_delimiter = ',', requires = "labels")]
    pub image: Vec<PathBuf>,
    /// Intensity statistics as `synth` writes them (statistics.json).
    #[arg(long, value_name = "FILE", conflicts_with = "image")]
    pub statistics: Option<PathBuf>,
    /// Contrast of the tabulated statistics [default: t1].
    #[arg(long, value_enum, conflicts_with_all = ["image", "statistics"])]
    pub modality: Option<ModalityChoice>,
    /// Number of subjects [default: one for each label map, 2 without].
    #[arg(short = 'n', long, value_name = "N")]
    pub subjects: Option<usize>,
    /// Voxel sizes in mm, the coarser ones multiples of the finest.
    #[arg(long, value_name = "MM", num_args = 1.., value_delimiter = ',', default_values_t = [1.0])]
    pub spacing: Vec<f64>,
    /// Strength of the random warps: root mean square of each velocity component, mm [default: 0
    /// if every subject has a label map of its own, else 3.2].
    #[arg(long, value_name = "MM")]
    pub warp_mm: Option<f64>,
    /// Distance of the random warps' knots, mm; features are twice as large [default: 64, at most
    /// a third of the labelled region].
    #[arg(long, value_name = "MM")]
    pub warp_knots_mm: Option<f64>,
    /// Spacing of the warps in their files, mm.
    #[arg(long, value_name = "MM", default_value_t = 2.0)]
    pub warp_spacing: f64,
    /// How much subjects differ in contrast: deviation of a label's mean between subjects, in
    /// deviations within the label.
    #[arg(long, value_name = "FACTOR", default_value_t = 0.0)]
    pub variation: f64,
    /// Smoothing of the intensities, voxels of the finest grid.
    #[arg(long, value_name = "VOXELS", default_value_t = 0.75)]
    pub smoothing: f64,
    /// Seed of the first subject. The next ones count on from it.
    #[arg(long, value_name = "S", default_value_t = 2025)]
    pub seed: u64,
    /// How images, labels and warps are written; with ome-zarr each with its pyramid.
    #[arg(long, value_enum, default_value_t)]
    pub format: ImageFormat,
    /// Write .nii instead of .nii.gz: larger, and slabs can be read without unpacking.
    #[arg(long, conflicts_with = "format")]
    pub uncompressed: bool,
    /// Remove the files of another run from the folder first. They are those that its manifest.json lists, and those with
    /// the names that data sets have.
    #[arg(long)]
    pub overwrite: bool,
    /// Start even if the disk seems too small for the files.
    #[arg(long)]
    pub ignore_disk: bool,
    /// Print manifest.json to stdout.
    #[arg(long)]
    pub json: bool,
    /// Print errors only.
    #[arg(short, long)]
    pub quiet: bool,
}

impl SynthArguments {
    /// What decides the files and their content.
    fn identity(&self) -> Identity {
        let places = |files: &[PathBuf]| {
            let places: Vec<String> = files.iter().map(|file| place(file)).collect();
            (!files.is_empty()).then(|| places.join("; "))
        };
        let number = |value: Option<f64>| value.map(|value| value.to_string());
        let identity = [
            ("labels", places(&self.labels)),
            ("image", places(&self.image)),
            ("statistics", self.statistics.as_deref().map(place)),
            ("modality", self.modality.map(|modality| format!("{modality:?}"))),
            ("subjects", self.subjects.map(|count| count.to_string())),
            ("spacing", Some(format!("{:?}", self.spacing))),
            ("warp_mm", number(self.warp_mm)),
            ("warp_knots_mm", number(self.warp_knots_mm)),
            ("warp_spacing", number(Some(self.warp_spacing))),
            ("variation", number(Some(self.variation))),
            ("smoothing", number(Some(self.smoothing))),
            ("seed", Some(self.seed.to_string())),
            ("uncompressed", self.uncompressed.then(String::new)),
            (
                "format",
                (self.format != ImageFormat::Nifti).then(|| self.format.ending().to_string()),
            ),
        ];
        identity.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

/// Contrasts that are tabulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModalityChoice {
    /// T1-weighted MRI.
    T1,
    /// T2-weighted MRI.
    T2,
    /// Computed tomography, brain window.
    Ct,
}

impl From<ModalityChoice> for Modality {
    fn from(choice: ModalityChoice) -> Self {
        match choice {
            ModalityChoice::T1 => Self::T1,
            ModalityChoice::T2 => Self::T2,
            ModalityChoice::Ct => Self::Ct,
        }
    }
}

/// Knots and strength of the phantom's warps, mm.
const DEFAULT_KNOTS_MM: f64 = 64.0;
const DEFAULT_WARP_MM: f64 = 3.2;
/// The least knot distance that warps accept, mm.
const LEAST_KNOTS_MM: f64 = 8.0;

/// Makes subjects and writes them.
pub fn run(request: &SynthArguments) -> Result<()> {
    let printer = Printer::new(request.quiet, false);
    let sources = Sources::resolve(request)?;
    let plan = Plan::new(request, &sources)?;
    request.given.refuse(&[WithoutEffect {
        flags: &["warp_knots_mm", "warp_spacing"],
        when: warp_rms_mm(request, plan.warped) == 0.0,
        because: "subjects are not warped",
        fix: "warp them: --warp-mm 3.2",
    }])?;
    let claim = plan.claim(request)?;
    plan.make_folders()?;
    let forecast = plan.disk_forecast(request.uncompressed);
    forecast.check("the data set", claim.result_folder(request.ignore_disk), printer)?;

    let run = DataSet { request, sources: &sources, plan: &plan, printer };
    let mut entries: Vec<Option<SubjectEntry>> = vec![None; plan.subjects];
    // Source by source: the smooth function of a label map is built once.
    for index in 0..sources.count().min(plan.subjects) {
        let source = run.load(index)?;
        for subject in (index..plan.subjects).step_by(sources.count()) {
            let drawn = run.draw(&source, subject)?;
            // The first: what can be refused early has been.
            if entries.iter().all(Option::is_none) {
                run.check_later_sources()?;
                claim.begin(&[])?;
                // Folders that were empty when the earlier run's files had gone.
                plan.make_folders()?;
            }
            entries[subject] = Some(run.write(&source, index, drawn)?);
        }
    }
    let entries: Vec<SubjectEntry> = entries.into_iter().flatten().collect();
    write_text(&request.output.join("statistics.json"), &to_json(&sources.table)?)?;
    write_pairs(&entries, &request.output)?;
    let manifest = Manifest::new(request, claim.completed(), entries, &sources.origin);
    let json = to_json(&manifest)?;
    write_text(&request.output.join(MANIFEST), &json)?;
    printer.note(&format!("results are in {}", request.output.display()));
    if request.json { print_to_stdout(&json) } else { Ok(()) }
}

/// A data set under way.
struct DataSet<'a> {
    request: &'a SynthArguments,
    sources: &'a Sources,
    plan: &'a Plan,
    printer: Printer,
}

/// What is random in a subject.
struct Drawn {
    subject: usize,
    seed: u64,
    settings: Option<WarpSettings>,
    warp: Option<Diffeomorphism>,
    begun: Instant,
}

impl DataSet<'_> {
    /// A source, once its subjects are known to fit.
    fn load(&self, index: usize) -> Result<Source> {
        let begun = Instant::now();
        check_memory("the subjects", self.plan.memory_bytes(index))?;
        let source = self.sources.load(index)?;
        if let Some(name) = self.sources.name(index) {
            let seconds = begun.elapsed().as_secs_f64();
            self.printer.note(&format!("{name}: smooth labels in {seconds:.1} s"));
        }
        Ok(source)
    }

    fn check_later_sources(&self) -> Result<()> {
        (1..self.sources.count()).try_for_each(|later| {
            check_memory("the subjects", self.plan.memory_bytes(later))?;
            self.sources.check(later)
        })
    }

    fn draw(&self, source: &Source, subject: usize) -> Result<Drawn> {
        let begun = Instant::now();
        let settings = warp_settings(self.request, self.plan.warped, source.box_mm);
        let seed = self.request.seed.wrapping_add(subject as u64);
        let warp = settings
            .as_ref()
            .map(|settings| Diffeomorphism::random_in(settings, seed, source.box_mm))
            .transpose()?;
        Ok(Drawn { subject, seed, settings, warp, begun })
    }

    /// The files of a subject of source `index`.
    fn write(&self, source: &Source, index: usize, drawn: Drawn) -> Result<SubjectEntry> {
        let Drawn { subject, seed, settings, warp, begun } = drawn;
        let (request, geometry) = (self.request, &self.plan.grids[index]);
        let files = &self.plan.files[subject];
        if let Some(warp) = &warp {
            write_warps(warp, files, &geometry.warp)?;
        }
        let table = self.sources.table.varied(request.variation, seed);
        let content = Content { field: &*source.field, warp: warp.as_ref(), table: &table, seed };
        write_images(&content, request.smoothing, files, &geometry.images)?;
        let seconds = begun.elapsed().as_secs_f64();
        self.printer.note(&format!("{}: {seconds:.1} s", files.name));
        Ok(SubjectEntry::new(request, files, seed, self.sources.name(index), settings))
    }
}

/// How strong the warps of this run are; 0 for none.
fn warp_rms_mm(request: &SynthArguments, warped: bool) -> f64 {
    request.warp_mm.unwrap_or(if warped { DEFAULT_WARP_MM } else { 0.0 })
}

/// The warps of this run; `None` for none.
fn warp_settings(
    request: &SynthArguments,
    warped: bool,
    [low, high]: [[f64; 3]; 2],
) -> Option<WarpSettings> {
    let rms_mm = warp_rms_mm(request, warped);
    let extent = (0..3).map(|axis| high[axis] - low[axis]).fold(0.0, f64::max);
    let fitting = (extent / 3.0).clamp(LEAST_KNOTS_MM, DEFAULT_KNOTS_MM);
    let knot_spacing_mm = request.warp_knots_mm.unwrap_or(fitting);
    let scales = vec![WarpScale { knot_spacing_mm, rms_mm }];
    (rms_mm != 0.0).then_some(WarpSettings { scales })
}

fn write_warps(warp: &Diffeomorphism, files: &SubjectFiles, grid: &Geometry) -> Result<()> {
    write_displacement(&files.warp, &warp.displacement_voxels(grid), grid)?;
    write_displacement(&files.inverse_warp, &warp.inverse_displacement_voxels(grid), grid)?;
    Ok(())
}

/// What a subject shows.
struct Content<'a> {
    field: &'a dyn LabelField,
    warp: Option<&'a Diffeomorphism>,
    table: &'a IntensityTable,
    seed: u64,
}

/// One resolution on its way to disk.
struct Output {
    /// Voxels of the finest grid along each edge of a voxel.
    factor: usize,
    image: VolumeWriter,
    labels: LabelWriter,
}

/// Streams a subject into the files of all resolutions.
fn write_images(
    content: &Content,
    smoothing_voxels: f64,
    files: &SubjectFiles,
    grids: &plan::ImageGrids,
) -> Result<()> {
    let ids = content.field.ids();
    // Outside the label map is background, which may not occur in it.
    let ids: Vec<i32> = ids.into_iter().chain([0]).collect();
    let open = |(index, &factor): (usize, &usize)| -> Result<Output> {
        let grid = &grids.of_factor[index];
        let image = VolumeWriter::create(&files.images[index], grid)?;
        Ok(Output { factor, image, labels: LabelWriter::create(&files.labels[index], grid, &ids)? })
    };
    let mut outputs: Vec<Output> =
        grids.factors.iter().enumerate().map(open).collect::<Result<_>>()?;
    let source = SubjectSource {
        field: content.field,
        warp: content.warp,
        table: content.table,
        geometry: grids.finest.clone(),
        smoothing_voxels,
        seed: content.seed,
    };
    let [nx, ny, _] = grids.finest.size;
    for Slab { labels, image, .. } in Slabs::new(source, grids.thickness)? {
        for output in &mut outputs {
            if output.factor == 1 {
                output.image.write(&image)?;
                output.labels.write(&labels)?;
            } else {
                output.image.write(&coarsen_image(&image, [nx, ny], output.factor))?;
                output.labels.write(&coarsen_labels(&labels, [nx, ny], output.factor))?;
            }
        }
    }
    for Output { image, labels, .. } in outputs {
        image.finish()?;
        labels.finish()?;
    }
    Ok(())
}

/// Makes a folder and those above it.
fn make_folder(folder: &std::path::Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|error| Error::io(folder, "create", error).into())
}
