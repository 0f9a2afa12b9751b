//! Where a run can be continued: what it has found after each level.

use std::ops::Range;

use burn::tensor::{Device, Tensor, TensorData};

use super::report::{LevelReport, StageReport};
use ffdp_burn::transform::Displacement;
use ffdp_image::error::{Error, Result};
use ffdp_image::image::{Affine, Geometry, Physical, download};
use ffdp_parallel::{Axis, Layout, Sharded};

/// What a run has reached; with the same problem, settings and device, [`Register::resume`](super::Register::resume)
/// goes on from here to the same bits.
///
/// Stages that have ended are known by what they found. Of the stage under way, the levels that have
/// ended are known by what the next level starts from; where a stage keeps nothing of this kind, it
/// starts anew.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Reports of the stages that have ended.
    pub stages: Vec<StageReport>,
    /// The affine map they found, in RAS mm.
    pub affine: Affine<Physical, Physical>,
    /// The fields that the last deformable one of them found, as its method means them: a displacement, halves of one,
    /// a velocity. None before there is one; a displacement where a run begins with one.
    pub found: Vec<SavedField>,
    /// Reports of the levels that have ended in the stage under way.
    pub levels: Vec<LevelReport>,
    /// What its next level starts from, by the stage's own order and meaning.
    pub carried: Vec<SavedField>,
}

/// A field of a checkpoint, wherever its parts lie. It is read and made a few planes at a time.
#[derive(Clone, Debug)]
pub struct SavedField {
    pub(super) values: Sharded,
    pub(super) geometry: Geometry,
}

/// Voxels of a part of a field that is read from a file.
const PART: usize = 1 << 22;

impl SavedField {
    pub(super) fn new(values: Sharded, geometry: Geometry) -> Self {
        Self { values, geometry }
    }

    /// Three numbers for each of the points of a grid, `[1, 3, D, H, W]`.
    pub fn whole(values: Tensor<5>, geometry: Geometry) -> Self {
        Self::new(Sharded::whole(values), geometry)
    }

    /// Rows of numbers, all of one length, as a field of a checkpoint: a point for each, whose first component it is.
    ///
    /// # Errors
    /// Where there are none.
    pub(super) fn of_rows(rows: &[Vec<f32>]) -> Result<Self> {
        let geometry = Geometry::new([rows.first().map_or(0, Vec::len), rows.len(), 1], [1.0; 3])?;
        let [d, h, w] = geometry.dims();
        let mut values = rows.concat();
        values.resize(3 * geometry.len(), 0.0);
        let values = TensorData::new(values, [1, 3, d, h, w]);
        Ok(Self::whole(Tensor::from_data(values, &Device::flex()), geometry))
    }

    /// The opposite.
    ///
    /// # Errors
    /// As [`SavedField::planes`].
    pub(super) fn rows(&self) -> Result<Vec<Vec<f32>>> {
        let [length, rows, _] = self.geometry.size;
        let values = self.planes(0..1)?;
        Ok(values.chunks(length).take(rows).map(<[f32]>::to_vec).collect())
    }

    /// As numbers, to be sent: size, spacing, origin, direction, then the values.
    ///
    /// # Errors
    /// As [`SavedField::planes`].
    pub(super) fn numbers(&self) -> Result<Vec<f64>> {
        let Geometry { size, spacing_mm, origin_mm, direction } = &self.geometry;
        let values = self.planes(0..size[2])?.into_iter().map(f64::from).collect();
        let grid = [size.map(|n| n as f64), *spacing_mm, *origin_mm].concat();
        Ok([grid, direction.concat(), values].concat())
    }

    /// The opposite.
    ///
    /// # Errors
    /// Where the numbers are those of no grid.
    pub(super) fn of_numbers(numbers: &[f64]) -> Result<Self> {
        let triple = |first: usize| [0, 1, 2].map(|i| numbers[first + i]);
        let geometry = Geometry::new(triple(0).map(|n| n as usize), triple(3))?
            .with_direction([triple(9), triple(12), triple(15)])?
            .with_origin(triple(6))?;
        let [d, h, w] = geometry.dims();
        let values: Vec<f32> = numbers[18..].iter().map(|v| *v as f32).collect();
        let values = Tensor::from_data(TensorData::new(values, [1, 3, d, h, w]), &Device::flex());
        Ok(Self::whole(values, geometry))
    }

    /// The grid of the field, in voxels of which its vectors are.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Planes `[3, n, H, W]` of it.
    ///
    /// # Errors
    /// [`Error::Device`] when they cannot be read back.
    pub fn planes(&self, z: Range<usize>) -> Result<Vec<f32>> {
        let planes = self.values.window(z, &Device::flex());
        download(planes, "a field")
    }

    /// In which runs of planes a field on a grid is read and written.
    pub fn runs(geometry: &Geometry) -> Vec<Range<usize>> {
        parts(geometry).all_planes().collect()
    }

    /// A field in host memory whose planes `[3, n, H, W]` are `read`, [run](Self::runs) by run.
    ///
    /// # Errors
    /// Those of `read`, and [`Error::Shape`] when it gives another number of values.
    pub fn read<E: From<Error>>(
        geometry: Geometry,
        mut read: impl FnMut(Range<usize>) -> std::result::Result<Vec<f32>, E>,
    ) -> std::result::Result<Self, E> {
        let [_, h, w] = geometry.dims();
        let layout = parts(&geometry);
        let part = |planes: Range<usize>| {
            let dims = [1, 3, planes.len(), h, w];
            let values = read(planes)?;
            let (expected, got) = (dims.iter().product(), values.len());
            if expected != got {
                let what = "number of values of a field [3, n, H, W]".into();
                return Err(Error::Shape { what, expected: vec![expected], got: vec![got] }.into());
            }
            let data = TensorData::new::<f32, _>(values, dims);
            Ok(Tensor::from_data(data, &Device::flex()))
        };
        let parts = layout.all_planes().map(part).collect::<std::result::Result<_, E>>()?;
        Ok(Self { values: Sharded::new(parts, layout), geometry })
    }
}

impl From<Displacement> for SavedField {
    fn from(displacement: Displacement) -> Self {
        let geometry = displacement.geometry().clone();
        Self { values: Sharded::whole(displacement.into_field()), geometry }
    }
}

/// A field in parts of about equal size.
fn parts(geometry: &Geometry) -> Layout {
    let [d, h, w] = geometry.dims();
    let planes = (PART / (h * w)).clamp(1, d);
    Layout::balanced([d, h, w], Axis::Z, d.div_ceil(planes)).expect("no more parts than planes")
}

impl Checkpoint {
    /// The time that its levels took.
    pub fn seconds(&self) -> f64 {
        let levels = self.stages.iter().flat_map(|stage| &stage.levels).chain(&self.levels);
        levels.map(|level| level.seconds).sum()
    }

    /// Nothing was done yet.
    pub(super) fn start(initial: Affine<Physical, Physical>) -> Self {
        let (found, carried) = (Vec::new(), Vec::new());
        Self { stages: Vec::new(), affine: initial, found, levels: Vec::new(), carried }
    }
}
