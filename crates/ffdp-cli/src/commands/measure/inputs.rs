//! The files that are measured, on one grid.

use std::path::Path;

use burn::tensor::Device;
use ffdp_burn::transform::Displacement;
use ffdp_image::image::{Geometry, LabelMap, Volume};
use ffdp_image::io::images::{header, read_displacement, read_labels};

use super::MeasureArguments;
use crate::commands::chain::chain;
use crate::commands::input::{image, landmark_pairs};
use crate::device::DeviceChoice;
use crate::failure::{Failure, Result};
use crate::label_names::LabelNames;
use crate::printer::Printer;
use crate::result::shows_all;

/// A displacement `[3, D, H, W]` in voxels of its grid.
pub struct Field {
    pub values: Vec<f32>,
    pub geometry: Geometry,
}

impl Field {
    /// What the transforms do to the fixed grid, where there are some and a grid.
    fn of_transforms(request: &MeasureArguments, device: &Device) -> Result<Option<Self>> {
        let grid = request.fixed.as_deref().or(request.fixed_labels.as_deref());
        let (Some(grid), false) = (grid, request.transform.is_empty()) else { return Ok(None) };
        let geometry = header(grid)?.geometry;
        let whole = chain(&request.transform, device)?.to_displacement(&geometry, device);
        Ok(Some(Self { values: whole.to_vec()?, geometry }))
    }
}

/// What was read. All but `moving_labels` and the inverse lie on the fixed grid.
pub struct Inputs {
    /// The fixed image, and the moving one on its grid.
    pub images: Option<[Volume; 2]>,
    /// The fixed labels, and the moving ones on their grid.
    pub labels: Option<[LabelMap; 2]>,
    /// The moving labels as they were read.
    pub moving_labels: Option<LabelMap>,
    pub warp: Option<Field>,
    pub inverse_warp: Option<Field>,
    pub mask: Option<Vec<bool>>,
    /// Which voxels the moving image covers, where it was brought onto the fixed grid.
    pub covered: Option<Vec<bool>>,
    pub landmarks: Option<Landmarks>,
    /// What labels are called.
    pub label_names: LabelNames,
}

/// Corresponding points in RAS mm.
pub struct Landmarks {
    pub fixed: Vec<[f64; 3]>,
    pub moving: Vec<[f64; 3]>,
    /// The fixed ones through the transforms.
    pub mapped: Vec<[f64; 3]>,
}

impl Landmarks {
    fn read(request: &MeasureArguments, device: &Device) -> Result<Option<Self>> {
        let Some([fixed, moving]) = request.landmarks.as_deref() else { return Ok(None) };
        let space = request.landmark_space;
        let spaces = [
            space.read(request.fixed.as_deref(), "--fixed")?,
            space.read(request.moving.as_deref(), "--moving")?,
        ];
        let [fixed, moving] = landmark_pairs([fixed, moving], spaces)?;
        let mapped = chain(&request.transform, device)?.map_points(&fixed)?;
        Ok(Some(Self { fixed, moving, mapped }))
    }
}

impl Inputs {
    pub fn read(request: &MeasureArguments, printer: Printer) -> Result<Self> {
        let reading = request.reading;
        let read_image = |path: &Path| image(path, reading, printer);
        let field = |path: &Path| -> Result<Field> {
            let (values, geometry) = read_displacement(path)?;
            Ok(Field { values, geometry })
        };
        let device = DeviceChoice::Cpu.open()?;
        let warp = match request.warp.as_deref() {
            Some(path) => Some(field(path)?),
            None => Field::of_transforms(request, &device)?,
        };
        let inverse_warp = request.inverse_warp.as_deref().map(field).transpose()?;
        let placement = MovingOnFixed::new(request, warp.as_ref(), &device)?;

        let (mut images, mut covered) = (None, None);
        if let (Some(fixed_path), Some(moving_path)) = (&request.fixed, &request.moving) {
            let (fixed, moving) = (read_image(fixed_path)?, read_image(moving_path)?);
            placement.check_fixed(&fixed.geometry, fixed_path)?;
            let moved = match placement.map(&fixed.geometry, &moving.geometry, moving_path)? {
                Some(map) => {
                    let shown = map.warp(&moving)?;
                    let ones = Volume::new(vec![1.0; moving.data.len()], moving.geometry)?;
                    covered = Some(shows_all(&map.warp(&ones)?));
                    shown
                }
                None => moving,
            };
            images = Some([fixed, moved]);
        }
        let image = images.as_ref().map(|[image, _]| &image.geometry);
        let (labels, moving_labels) = labels_on_fixed(request, &placement, image)?.unzip();
        let mask = match (&request.mask, &images) {
            (Some(path), Some([fixed, _])) => Some(mask(path, fixed)?),
            _ => None,
        };
        let landmarks = Landmarks::read(request, &device)?;
        let label_names = LabelNames::of(request.label_names.as_deref())?;
        Ok(Self {
            images,
            labels,
            moving_labels,
            warp,
            inverse_warp,
            mask,
            covered,
            landmarks,
            label_names,
        })
    }
}

/// The fixed labels with the moving ones on their grid, and the moving ones as they were read.
fn labels_on_fixed(
    request: &MeasureArguments,
    placement: &MovingOnFixed,
    image: Option<&Geometry>,
) -> Result<Option<([LabelMap; 2], LabelMap)>> {
    let (Some(fixed_path), Some(moving_path)) = (&request.fixed_labels, &request.moving_labels)
    else {
        return Ok(None);
    };
    let (fixed, moving) = (labels_of(fixed_path)?, labels_of(moving_path)?);
    placement.check_fixed(&fixed.geometry, fixed_path)?;
    if let (Some(image), Some(path)) = (image, &request.fixed) {
        let what = format!("{} (labels of {})", fixed_path.display(), path.display());
        image.check_same_grid(&fixed.geometry, &what)?;
    }
    let moved = match placement.map(&fixed.geometry, &moving.geometry, moving_path)? {
        Some(map) => map.warp_labels(&moving)?,
        None => moving.clone(),
    };
    Ok(Some(([fixed, moved], moving)))
}

/// How the moving side comes onto the fixed grid.
struct MovingOnFixed<'a> {
    warp: Option<Displacement>,
    warp_path: &'a Path,
    resample: bool,
    device: &'a Device,
}

impl<'a> MovingOnFixed<'a> {
    fn new(
        request: &'a MeasureArguments,
        warp: Option<&Field>,
        device: &'a Device,
    ) -> Result<Self> {
        let needed = request.fixed.is_some() || request.fixed_labels.is_some();
        let map = |field: &Field| {
            Displacement::from_vec(field.values.clone(), field.geometry.clone(), device)
        };
        let warp = warp.filter(|_| needed).map(map).transpose()?;
        let warp_path = request.warp.as_deref().unwrap_or(Path::new(""));
        Ok(Self { warp, warp_path, resample: request.resample, device })
    }

    /// A warp belongs to a fixed grid.
    fn check_fixed(&self, fixed: &Geometry, path: &Path) -> Result<()> {
        if let Some(warp) = &self.warp {
            let what = format!("{} (warp of {})", self.warp_path.display(), path.display());
            fixed.check_same_grid(warp.geometry(), &what)?;
        }
        Ok(())
    }

    /// The map that carries what lies on `moving` onto the grid `fixed`; none if it is there already.
    fn map(
        &self,
        fixed: &Geometry,
        moving: &Geometry,
        moving_path: &Path,
    ) -> Result<Option<Displacement>> {
        if let Some(warp) = &self.warp {
            fixed.check_overlap(moving, 0.0)?;
            return Ok(Some(warp.clone()));
        }
        let path = moving_path.display().to_string();
        match fixed.check_same_grid(moving, &path) {
            Ok(()) => Ok(None),
            Err(_) if self.resample => {
                fixed.check_overlap(moving, 0.0)?;
                Ok(Some(Displacement::zero(fixed.clone(), self.device)))
            }
            Err(error) => Err(Failure::from(error).with_help(
                "give the transform that leads to it (-t or --warp), or place it on the fixed grid by the \
                 headers with --resample",
            )),
        }
    }
}

/// The labels of a file, at least one besides background.
fn labels_of(path: &Path) -> Result<LabelMap> {
    let labels = read_labels(path)?;
    if labels.data.iter().any(|&label| label != 0) {
        return Ok(labels);
    }
    Err(Failure::user(
        format!("{}: the label map holds no label but background (0)", path.display()),
        "check that it is the file you meant",
    ))
}

fn mask(path: &Path, fixed: &Volume) -> Result<Vec<bool>> {
    let mask = read_labels(path)?;
    fixed.geometry.check_same_grid(&mask.geometry, &format!("{} (mask)", path.display()))?;
    let mask: Vec<bool> = mask.data.into_iter().map(|label| label != 0).collect();
    if mask.contains(&true) {
        return Ok(mask);
    }
    Err(Failure::user(
        format!("{}: the mask is empty", path.display()),
        "give a mask that is not 0 where voxels count",
    ))
}
