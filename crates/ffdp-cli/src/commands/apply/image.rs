//! An image through transforms, a run of planes at a time: what the result is made of is read as far as these planes look at it,
//! and they are written before the next ones come.

use std::ops::Range;
use std::path::Path;

use burn::Tensor;
use burn::tensor::Device;
use ffdp_burn::ops::Interpolation;
use ffdp_burn::transform::GridMap;
use ffdp_image::Error;
use ffdp_image::image::{
    Geometry, OneOf, Planes, SmoothImage, SmoothKernel, Volume, check_finite, download, runs,
};
use ffdp_image::io::images::{
    DataType, Header, IntegerForm, IntegerWriter, LabelWriter, PlaneReader, VolumeWriter, header,
    unreadable_by_itk,
};
use ffdp_parallel::{PlaneChain, SeenImage};
use rayon::prelude::*;

use super::{ApplyArguments, InterpolationChoice, Writing};
use crate::disk::Forecast;
use crate::failure::{Failure, Result};
use crate::nan_policy::NanPolicy;
use crate::printer::Printer;

const INTENT_LABELS: i32 = 1002;

/// Voxels of the result that are computed and written at a time, unless that is fewer planes than the next number.
pub const PIECE: usize = 1 << 23;
/// With each piece the planes that are held for it are put together anew.
const PIECE_PLANES: usize = 8;

/// Where an image is seen, and on what it is warped.
pub struct Warping<'a> {
    /// From the grid to the image.
    pub map: PlaneChain,
    /// The grid of the result.
    pub grid: &'a Geometry,
    /// Where it is computed.
    pub device: &'a Device,
}

/// Warps an image onto a grid and writes it but for its last piece, which is left for the time when the device has other
/// things to do.
pub fn warp_image(request: &ApplyArguments, path: &Path, warping: Warping) -> Result<Writing> {
    let [x, y, _] = warping.grid.size;
    let pieces = runs(warping.grid, PIECE.max(PIECE_PLANES * x * y));
    let pieces: Vec<Range<usize>> = pieces.collect();
    in_pieces(request, path, warping, &pieces)
}

fn in_pieces(
    request: &ApplyArguments,
    path: &Path,
    Warping { mut map, grid, device }: Warping,
    pieces: &[Range<usize>],
) -> Result<Writing> {
    let header = header(path)?;
    let named = |warning: &String| format!("{}: {warning}", path.display());
    header.warnings.iter().for_each(|warning| warn(&named(warning)));
    unreadable_by_itk(request.output(), grid).iter().for_each(|warning| warn(warning));
    let mut result = Resulting::of(request, &header)?;
    if request.interpolation == InterpolationChoice::Linear && looks_like_labels(path, &header)? {
        warn(&named(&LABEL_ADVICE.to_string()));
    }
    let bytes = if result.form.is_some() { header.data_type.bytes() } else { size_of::<f32>() };
    let bytes = bytes as u64 * result.volumes as u64 * grid.len() as u64;
    Forecast::of_file(request.output(), bytes).check_file("the result", request.output())?;
    let (mut stack, labels) = result.open(request, path, &header)?;
    let mut writer = result.writer(request, (grid, &header), labels)?;
    let (mut evaluated, mut is_met, mut computed) = (None, false, None);
    for k in 0..result.volumes {
        let name = match result.volumes {
            1 => path.display().to_string(),
            _ => format!("{}, volume {k}", path.display()),
        };
        let of_volume = OneOf::new(&mut stack, &header.geometry, k);
        let mut settled = Settled::new(of_volume, name, request.nan_policy);
        let mut reading = result.reading(&mut settled)?;
        for z in pieces {
            let map = match evaluated.take() {
                Some(map) => map,
                None => map.on_planes(grid, z.clone(), device)?,
            };
            // Where all planes are one piece, the next volume goes the same way.
            evaluated = (pieces.len() == 1).then(|| map.clone());
            is_met = is_met || map.percent_inside(&header.geometry)? > 0.0;
            let piece = result.piece(&mut reading, &map)?;
            if let Some(before) = computed.replace(piece) {
                writer.write(before)?;
            }
        }
        drop(reading);
        settled.warn_of_replaced();
    }
    if !is_met {
        return Err(Error::NoOverlap {
            fixed_box_mm: grid.bounding_box_mm(),
            moving_box_mm: header.geometry.bounding_box_mm(),
            overlap_percent: 0.0,
            required_percent: 0.0,
        }
        .into());
    }
    Ok(Box::new(move || {
        writer.write(computed.expect("a grid has planes"))?;
        writer.finish()
    }))
}

const LABEL_ADVICE: &str =
    "looks like a label map, and is mixed as an image; use --interpolation label, or nearest";

/// The planes in the middle that are looked at, of an image of any size.
const LOOKED_AT: usize = 16;
/// A label map has no more different values there.
const MOST_LABELS: usize = 512;
/// Of the voxels other than 0, the part whose neighbour in the row is the same, at least: 0.88 to 1 in the label maps of
/// shared data sets, 0 to 0.23 in their MR and ultrasound images of 8 and 16 bits.
const EQUAL_NEIGHBOURS: f64 = 0.6;
/// Of the steps between values other than 0, the part by more than 1, at least: those of a smooth image are small.
const LARGE_STEPS: f64 = 0.15;

/// Whether an image seems to have labels: it says so, or has integers, few, in regions with borders that are no slopes.
/// Two values or one, as of a mask, count where no intent contradicts.
fn looks_like_labels(path: &Path, header: &Header) -> Result<bool> {
    if header.intent_code == INTENT_LABELS {
        return Ok(true);
    }
    if header.slope != 1.0 || header.volumes() > 1 {
        return Ok(false);
    }
    let mut planes = PlaneReader::open(path, None)?;
    let [x, _, all] = header.geometry.size;
    let first = all.saturating_sub(LOOKED_AT) / 2;
    let values = planes.read(first..(first + LOOKED_AT).min(all))?;
    if values.iter().any(|value| value.fract() != 0.0) {
        return Ok(false);
    }
    let distinct: std::collections::BTreeSet<i64> = values.iter().map(|v| *v as i64).collect();
    let pairs = values.chunks(x).flat_map(|row| row.windows(2)).map(|pair| (pair[0], pair[1]));
    let (mut equal, mut small, mut other) = (0usize, 0usize, 0usize);
    for (a, b) in pairs.filter(|(a, b)| *a != 0.0 && *b != 0.0) {
        match (a - b).abs() {
            0.0 => equal += 1,
            1.0 => small += 1,
            _ => other += 1,
        }
    }
    let (steps, inside) = (small + other, equal + small + other);
    let is_in_regions = inside > 0 && equal as f64 >= EQUAL_NEIGHBOURS * inside as f64;
    let has_borders = distinct.len() <= 4 || other as f64 >= LARGE_STEPS * steps as f64;
    Ok(distinct.len() <= MOST_LABELS && distinct.len() > 1 && is_in_regions && has_borders)
}

fn warn(text: &str) {
    Printer::new(false, false).warning(text);
}

/// How voxels of the result come to be.
struct Resulting {
    volumes: usize,
    how: Interpolation,
    /// In place of `how`.
    smooth: Option<SmoothKernel>,
    /// Of integers that stay what they are.
    form: Option<IntegerForm>,
    outside: Outside,
}

/// What voxels get that the image does not reach.
struct Outside {
    background: f32,
    /// The integer that stands for it, where there is one.
    integer: Option<i32>,
    /// Samplers give 0.
    is_zero: bool,
}

/// Weights of a sum are rounded: this near to 1 a voxel lies inside.
const INSIDE: f32 = 1.0 - 1e-5;

impl Resulting {
    fn of(request: &ApplyArguments, header: &Header) -> Result<Self> {
        let (how, smooth) = match request.interpolation {
            InterpolationChoice::Linear => (Interpolation::Linear, None),
            InterpolationChoice::Cubic => (Interpolation::Linear, Some(SmoothKernel::Cubic)),
            InterpolationChoice::Sinc => (Interpolation::Linear, Some(SmoothKernel::Lanczos)),
            InterpolationChoice::Nearest => (Interpolation::Nearest, None),
            InterpolationChoice::Label => (Interpolation::Label, None),
        };
        let background = request.background;
        let form = match how {
            Interpolation::Linear => None,
            Interpolation::Nearest => {
                IntegerForm::of(header).or_else(|| IntegerForm::of_stored(header))
            }
            Interpolation::Label => IntegerForm::of(header)
                .map(|form| IntegerForm { intent_code: INTENT_LABELS, ..form }),
        };
        // Of a background that the type does not hold, floats.
        let form = form.filter(|form| form.integer(background.into()).is_some());
        let whole = background.fract() == 0.0 && background.abs() < i32::MAX as f32;
        let integer = match form {
            Some(form) => form.integer(background.into()),
            None => whole.then_some(background as i32),
        };
        if how == Interpolation::Label && integer.is_none() {
            return Err(Failure::user(
                format!("--background {background} is no label"),
                "give an integer, or another --interpolation",
            ));
        }
        let volumes = if request.volume.is_some() { 1 } else { header.volumes() };
        let is_zero = background == 0.0 && integer == Some(0);
        let outside = Outside { background, integer, is_zero };
        Ok(Self { volumes, how, smooth, form, outside })
    }

    /// Whether values are integers on their way.
    fn moves_integers(&self) -> bool {
        self.form.is_some() || self.how == Interpolation::Label
    }

    /// The planes of all volumes, or of the one asked for, and the labels in them where their number may be too large, or
    /// says the type of the result.
    fn open(
        &mut self,
        request: &ApplyArguments,
        path: &Path,
        header: &Header,
    ) -> Result<(PlaneReader, Met)> {
        /// Beyond, f32 does not have all integers.
        const EXACT: f64 = 8_388_608.0;
        let open = || match request.volume {
            None => PlaneReader::open_all(path),
            volume => PlaneReader::open(path, volume),
        };
        // Labels are integers, or the file is refused; of 64 bits that is seen with their list.
        let says_labels = header.intent_code == INTENT_LABELS && header.data_type == DataType::F32;
        if says_labels && self.how == Interpolation::Nearest {
            open()?.with_labels()?;
        }
        if let Some((planes, list)) = self.listed(open()?, header)? {
            return Ok((planes, Met::List(list)));
        }
        let planes = open()?;
        let is_stored = self.form.is_some_and(|form| form.scale.is_some());
        let planes = if is_stored { planes.stored() } else { planes };
        let is_exact = header.data_type.bytes() <= 2 && planes.header().intercept.abs() <= EXACT;
        Ok(match self.moves_integers() && !(is_exact && self.form.is_some()) {
            true => {
                let (planes, ids) = planes.with_labels()?;
                (planes, Met::Ids(ids))
            }
            false => (planes, Met::Ids(Vec::new())),
        })
    }

    /// The planes of integers that neither f32 nor i32 may hold, with the list of all values; `None` for what is of
    /// another kind.
    fn listed(
        &mut self,
        planes: PlaneReader,
        header: &Header,
    ) -> Result<Option<(PlaneReader, Vec<i64>)>> {
        let is_wide = matches!(header.data_type, DataType::U32 | DataType::I64 | DataType::U64);
        let form = match (self.form, self.how) {
            (Some(form), _) if is_wide && form.scale.is_none() => Some(form),
            (None, Interpolation::Nearest | Interpolation::Label) => {
                IntegerForm::of_doubles(header)
            }
            _ => None,
        };
        let background = self.outside.background;
        let Some(form) = form.filter(|form| form.integer(background.into()).is_some()) else {
            return Ok(None);
        };
        let Some((planes, mut list)) = planes.with_values()? else { return Ok(None) };
        let intent_code = match self.how {
            Interpolation::Label => INTENT_LABELS,
            _ => form.intent_code,
        };
        self.form = Some(IntegerForm { intent_code, ..form });
        let value = background as i64;
        let place = list.iter().position(|listed| *listed == value).unwrap_or(list.len());
        if place == list.len() {
            list.push(value);
        }
        self.outside.integer = Some(place as i32);
        Ok(Some((planes, list)))
    }

    fn writer(
        &self,
        request: &ApplyArguments,
        (grid, header): (&Geometry, &Header),
        met: Met,
    ) -> Result<Writer> {
        let path = request.output();
        let ids = match (met, self.form) {
            (Met::List(list), Some(form)) => {
                let file = IntegerWriter::create(path, grid, self.volumes, form)?;
                return Ok(Writer::Listed(file, list));
            }
            (Met::List(_), None) => unreachable!("a list is made for a form"),
            (Met::Ids(ids), _) => ids,
        };
        Ok(match (self.form, self.moves_integers()) {
            (Some(form), _) => {
                Writer::Integers(IntegerWriter::create(path, grid, self.volumes, form)?)
            }
            (None, true) if self.volumes == 1 => {
                let ids = [&ids, self.outside.integer.as_slice()].concat();
                Writer::Labels(LabelWriter::create(path, grid, &ids)?)
            }
            (None, true) => {
                let what = format!("{} label maps of floats in one file", self.volumes);
                let fix = "choose one with --volume K, or convert them to integers";
                return Err(Failure::user(what, fix));
            }
            (None, false) => {
                let series = (self.volumes, header.time_step_seconds);
                Writer::Floats(VolumeWriter::create_series(path, grid, series)?)
            }
        })
    }

    /// How a volume is looked at.
    fn reading<'a, 'b>(&self, planes: &'a mut Settled<'b>) -> Result<InputVolume<'a>>
    where
        'b: 'a,
    {
        let Some(kernel) = self.smooth else {
            return Ok(InputVolume::Planes(Box::new(SeenImage::new(planes))));
        };
        let grid = planes.geometry().clone();
        let values = planes.read(0..grid.size[2])?.to_vec();
        Ok(InputVolume::Whole(Box::new(SmoothImage::new(Volume::new(values, grid)?, kernel))))
    }

    /// What a map sees of a volume.
    fn piece(&self, seen: &mut InputVolume, map: &GridMap) -> Result<Values> {
        let planes = match seen {
            InputVolume::Planes(planes) => planes,
            InputVolume::Whole(image) => {
                return Ok(Values::Floats(map.read_smoothly(image, self.outside.background)?));
            }
        };
        let meaning = planes.labels().clone();
        let window = planes.through(map)?;
        let sampled = |values: Tensor<5>, grid: &Geometry, how| {
            download(map.sample(values, grid, how), "a warped image")
        };
        let count = map.grid().len();
        let values = match &window {
            Some((values, grid)) => sampled(values.clone(), grid, self.how)?,
            None => vec![0.0; count],
        };
        // How much of the image is in each voxel, where that is not known.
        let inside = match &window {
            _ if self.outside.is_zero => Vec::new(),
            None => vec![0.0; count],
            Some((values, grid)) => {
                let how = match self.how {
                    Interpolation::Linear => Interpolation::Linear,
                    Interpolation::Nearest | Interpolation::Label => Interpolation::Nearest,
                };
                sampled(values.ones_like(), grid, how)?
            }
        };
        Ok(match self.moves_integers() {
            true => Values::Integers(self.outside.fill_integers(meaning.read(&values)?, &inside)),
            false => Values::Floats(self.outside.fill(values, &inside)),
        })
    }
}

impl Outside {
    fn fill(&self, mut values: Vec<f32>, inside: &[f32]) -> Vec<f32> {
        let pairs = values.iter_mut().zip(inside);
        for (value, inside) in pairs.filter(|(_, inside)| **inside < INSIDE) {
            *value += (1.0 - inside) * self.background;
        }
        values
    }

    fn fill_integers(&self, mut values: Vec<i32>, inside: &[f32]) -> Vec<i32> {
        let background = self.integer.expect("asked for, or refused, before");
        let pairs = values.iter_mut().zip(inside);
        pairs.filter(|(_, inside)| **inside == 0.0).for_each(|(value, _)| *value = background);
        values
    }
}

/// What is known of the values of an image before it is warped.
enum Met {
    /// Its labels, or none where no one needs them.
    Ids(Vec<i32>),
    /// All values, whose places are moved in place of them.
    List(Vec<i64>),
}

/// A volume as it is looked at.
enum InputVolume<'a> {
    Planes(Box<SeenImage<'a>>),
    /// What a kernel reads everywhere of, or filters, is there whole.
    Whole(Box<SmoothImage>),
}

/// Voxels of the result.
enum Values {
    Floats(Vec<f32>),
    Integers(Vec<i32>),
}

/// The file of the result.
enum Writer {
    Floats(VolumeWriter),
    Integers(IntegerWriter),
    /// By their places in a list.
    Listed(IntegerWriter, Vec<i64>),
    Labels(LabelWriter),
}

impl Writer {
    fn write(&mut self, values: Values) -> Result<()> {
        match (self, values) {
            (Self::Floats(file), Values::Floats(values)) => file.write(&values)?,
            (Self::Integers(file), Values::Integers(values)) => file.write(&values)?,
            (Self::Listed(file, list), Values::Integers(places)) => {
                file.write_listed(&places, list)?;
            }
            (Self::Labels(file), Values::Integers(values)) => file.write(&values)?,
            _ => unreachable!("integers go where integers are written"),
        }
        Ok(())
    }

    fn finish(self) -> Result<()> {
        Ok(match self {
            Self::Floats(file) => file.finish(),
            Self::Integers(file) | Self::Listed(file, _) => file.finish(),
            Self::Labels(file) => file.finish(),
        }?)
    }
}

/// A volume whose NaN and infinite voxels are treated as asked, where they are read.
struct Settled<'a> {
    planes: OneOf<'a>,
    name: String,
    policy: NanPolicy,
    /// Planes that were read before.
    known: Vec<bool>,
    /// Voxels that were set to 0.
    replaced: usize,
    values: Vec<f32>,
}

impl<'a> Settled<'a> {
    fn new(planes: OneOf<'a>, name: String, policy: NanPolicy) -> Self {
        let known = vec![false; planes.geometry().size[2]];
        Self { planes, name, policy, known, replaced: 0, values: Vec::new() }
    }

    /// Says what was replaced.
    fn warn_of_replaced(self) {
        if self.replaced > 0 {
            let (name, count) = (self.name, self.replaced);
            warn(&format!("{name}: {count} NaN or infinite voxels were set to 0"));
        }
    }
}

impl Planes for Settled<'_> {
    fn geometry(&self) -> &Geometry {
        self.planes.geometry()
    }

    fn read(&mut self, z: Range<usize>) -> ffdp_image::Result<&[f32]> {
        /// Values that a core looks at at a time.
        const PART: usize = 1 << 16;
        let finite = |part: &[f32]| part.iter().all(|value| value.is_finite());
        if self.planes.read(z.clone())?.par_chunks(PART).all(finite) {
            return self.planes.read(z);
        }
        if self.policy == NanPolicy::Error {
            check_finite(&self.name, &mut self.planes)?;
        }
        self.values = self.planes.read(z.clone())?.to_vec();
        let plane = self.values.len() / z.len();
        for (values, z) in self.values.chunks_mut(plane).zip(z) {
            let odd = values.iter_mut().filter(|value| !value.is_finite());
            let count = odd.map(|value| *value = 0.0).count();
            self.replaced += if self.known[z] { 0 } else { count };
            self.known[z] = true;
        }
        Ok(&self.values)
    }

    fn labels(&self) -> &ffdp_image::image::MovedLabels {
        self.planes.labels()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::chain::TransformChoice;
    use crate::device::DeviceChoice;
    use clap::Parser;
    use ffdp_image::image::LabelMap;
    use ffdp_image::io::images::{read_volumes, write_displacement, write_integers, write_volumes};
    use ffdp_image::io::open_displacement;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        apply: ApplyArguments,
    }

    #[test]
    fn pieces_are_the_whole_with_every_interpolation_background_and_type() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let grid = Geometry::new([14, 12, 16], [1.0; 3]).expect("valid");
        let wave = |i: usize, c: usize| {
            let [x, y, z] = grid.index_of(i).map(|i| i as f32);
            [3.3 * (0.4 * y).sin(), 2.9 * (0.3 * z).cos(), 5.7 * (0.35 * x).sin() + 1.13][c]
        };
        let shift = |c| (0..grid.len()).map(move |i| (i, c));
        let field: Vec<f32> = (0..3).flat_map(shift).map(|(i, c)| wave(i, c)).collect();
        write_displacement(path("warp.nii.gz"), &field, &grid).expect("writable");
        let volume = |k: usize| {
            let value = |i: usize| ((i * (7 + k)) % 41) as f32 * 0.5 - 3.0;
            Volume::new((0..grid.len()).map(value).collect(), grid.clone()).expect("fits")
        };
        write_volumes(path("floats.nii.gz"), &[volume(0), volume(1)], 2.0).expect("writable");
        let labels = |k: usize| {
            let value = |i: usize| [0, 3, 600_000_000, 17][(i / 5 + k) % 4];
            LabelMap::new((0..grid.len()).map(value).collect(), grid.clone()).expect("fits")
        };
        let form = IntegerForm {
            data_type: ffdp_image::io::images::DataType::I32,
            intercept: 0,
            scale: None,
            intent_code: 1002,
            time_step_seconds: 2.0,
        };
        write_integers(path("labels.nii"), &[labels(0), labels(1)], form).expect("writable");
        let pieces = |voxels| runs(&grid, voxels).collect::<Vec<_>>();
        let (whole, thin) = (pieces(grid.len()), pieces(1));
        assert_eq!((whole.len(), thin.len()), (1, 16));
        for (image, how) in [
            ("floats.nii.gz", "linear"),
            ("floats.nii.gz", "cubic"),
            ("floats.nii.gz", "sinc"),
            ("floats.nii.gz", "nearest"),
            ("labels.nii", "nearest"),
            ("labels.nii", "label"),
        ] {
            for background in ["0", "9"] {
                let warped = |pieces: &[Range<usize>], from_file: bool| {
                    let (from, to) = (path(image), path("warped.nii"));
                    let (warp, how) = (path("warp.nii.gz"), ["--interpolation", how]);
                    let flags = ["apply", "-i", &from, "-t", &warp, "-o", &to, "--device", "cpu"];
                    let flags = [&flags[..], &how, &["--background", background]].concat();
                    let request = Command::parse_from(flags).apply;
                    let device = DeviceChoice::Cpu.open().expect("there");
                    let chain = match from_file {
                        true => PlaneChain::default().then_stored(
                            open_displacement(&warp).expect("readable").expect("a field"),
                        ),
                        false => {
                            let warp = warp.parse::<TransformChoice>().expect("a name");
                            let map = crate::commands::chain::chain(&[warp], &device);
                            PlaneChain::default().then(map.expect("readable"))
                        }
                    };
                    let write = in_pieces(
                        &request,
                        Path::new(&from),
                        Warping { map: chain, grid: &grid, device: &device },
                        pieces,
                    );
                    write.expect("warped")().expect("written");
                    assert_eq!(header(&to).expect("there").time_step_seconds, 2.0);
                    read_volumes(&to).expect("readable").into_iter().flat_map(|v| v.data).collect()
                };
                let [expected, got]: [Vec<f32>; 2] = [warped(&whole, false), warped(&thin, true)];
                let outside: f32 = background.parse().expect("a number");
                let beyond = expected.iter().filter(|v| **v == outside).count();
                assert!(beyond > 100, "{beyond} voxels lie outside");
                let apart = expected.iter().zip(&got).map(|(a, b)| (a - b).abs());
                if image == "floats.nii.gz" && how != "nearest" {
                    // Positions near 16 are rounded to 1e-6 of a voxel; neighbouring values differ by up to 20.
                    assert!(apart.fold(0.0, f32::max) < 1e-4, "{image} {how} {background}");
                } else {
                    // In the middle between two voxels the other one may be the nearest.
                    assert!(apart.filter(|d| *d > 0.0).count() <= 2, "{image} {how} {background}");
                }
            }
        }
    }

    #[test]
    fn label_maps_are_known_from_images_of_few_integers() {
        let folder = tempfile::tempdir().expect("a folder");
        let grid = Geometry::new([40, 30, 8], [1.0; 3]).expect("valid");
        let is_labels = |intent_code: i32, value: &dyn Fn([usize; 3]) -> i32| {
            let data = (0..grid.len()).map(|i| value(grid.index_of(i))).collect();
            let volume = LabelMap::new(data, grid.clone()).expect("fits");
            let (data_type, path) = (DataType::U16, folder.path().join("image.nii"));
            let form = IntegerForm {
                data_type,
                intercept: 0,
                scale: None,
                intent_code,
                time_step_seconds: 0.0,
            };
            write_integers(&path, &[volume], form).expect("writable");
            looks_like_labels(&path, &header(&path).expect("there")).expect("readable")
        };
        let noise = |[x, y, z]: [usize; 3]| (x * 7919 + y * 104_729 + z * 1_299_709) % 251;
        // Regions of an atlas, a mask, and whatever says so itself.
        assert!(is_labels(0, &|[x, y, _]| [0, 4, 17, 2035][(x / 10 + y / 15) % 4]));
        assert!(is_labels(0, &|[x, _, _]| i32::from(x > 20)));
        assert!(is_labels(1002, &|at| noise(at) as i32));
        // A smooth image of few values, a noisy one of 8 bits, one that is constant.
        assert!(!is_labels(0, &|[x, y, _]| (10 + x / 5 + y / 6) as i32));
        assert!(!is_labels(0, &|at| noise(at) as i32));
        assert!(!is_labels(0, &|_| 7));
    }

    #[test]
    fn what_is_not_finite_is_refused_or_counted_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let grid = Geometry::new([4, 5, 12], [1.0; 3]).expect("valid");
        let mut image = Volume::new(vec![1.0; grid.len()], grid.clone()).expect("fits");
        for z in [2, 7] {
            image.data[20 * z + 6] = f32::NAN;
        }
        let mut settled = |policy| {
            let planes = OneOf::new(&mut image, &grid, 0);
            // What lies before what was read is read again.
            let mut settled = Settled::new(planes, path("image"), policy);
            for z in [0..3, 2..9, 1..8] {
                let values = settled.read(z).map_err(|error| error.to_string())?;
                assert!(values.iter().all(|v| *v == 1.0 || *v == 0.0));
            }
            Ok::<_, String>(settled.replaced)
        };
        assert_eq!(settled(NanPolicy::Zero), Ok(2));
        let refused = settled(NanPolicy::Error).expect_err("not finite");
        let position = "2 NaN and 0 infinite voxels, the first at voxel (x, y, z) = [2, 1, 2]";
        assert!(refused.contains(position), "{refused}");
    }
}
