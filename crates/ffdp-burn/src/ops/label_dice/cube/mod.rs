//! The label sums on the GPU: a table of whole numbers a cube, in shared memory.
//!
//! Most voxels see one label only, few more than two: a membership is summed once for every label that
//! is there, and its column is looked up in shared memory.
//!
//! A unit walks up a column of voxels. As long as it sees one label all around it adds in registers;
//! only at the borders of labels, and when the label changes, it adds to the shared table. So the
//! units of a warp, which mostly see the same label, do not queue for one entry.
//! Read `corners.rs` first.

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::settings::Dim3;
use cubecl::prelude::*;

use super::{Denominator, LabelDiceOps, LabelTable};
use ffdp_kit::cubes::grid_of_cubes;
use ffdp_kit::launch::{
    CUBE, Extent, address, assert_f32, buffer, cubes, empty, extent, size, sum_rows,
};

mod corners;
mod gradient;
mod sums;

use gradient::gradient_kernel;
use sums::sums_kernel;

const TILE: Dim3 = Dim3::new_2d(32, 8);

/// Voxels that a unit walks up.
const COLUMN: u32 = 32;

/// Span of the ids up to which columns are looked up, in shared memory of 8 kB: FreeSurfer's fit.
const MOST_SPAN: i64 = 2048;

/// What is fixed when a kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Plan {
    labels: u32,
    /// From the smallest id to the largest; 0 if they are too far apart to look columns up.
    span: u32,
    denominator: Denominator,
}

/// The extents of fixed (and displacement) and of moving.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Sizes {
    output: Extent,
    input: Extent,
}

/// A call, with its operands made contiguous and the ids on the device.
struct Call {
    displacement: CubeTensor,
    moving: CubeTensor,
    fixed: CubeTensor,
    ids: CubeTensor,
    table: LabelTable,
}

impl Call {
    fn new(
        displacement: CubeTensor,
        moving: CubeTensor,
        fixed: CubeTensor,
        table: LabelTable,
    ) -> Self {
        assert_f32("label_dice", &[&displacement]);
        let [displacement, moving, fixed] = [displacement, moving, fixed].map(into_contiguous);
        let ids = table.columns.iter().map(|(id, _)| *id);
        let columns = table.columns.iter().map(|(_, column)| *column as i32);
        let values: Vec<i32> = ids.chain(columns).collect();
        let (client, device) = (displacement.client.clone(), displacement.device.clone());
        let handle = client.create_from_slice(i32::as_bytes(&values));
        let shape = [values.len()].into();
        let ids = CubeTensor::new_contiguous(client, device, shape, handle, moving.dtype);
        Self { displacement, moving, fixed, ids, table }
    }

    fn batch(&self) -> usize {
        self.displacement.meta.shape()[0]
    }

    fn size(&self) -> [usize; 3] {
        size(&self.displacement)
    }

    fn sizes(&self) -> SizesLaunch {
        SizesLaunch::new(extent(self.size()), extent(size(&self.moving)))
    }

    fn plan(&self) -> Plan {
        let ids = &self.table.columns;
        let span = i64::from(ids[ids.len() - 1].0) - i64::from(ids[0].0) + 1;
        Plan {
            labels: self.table.len() as u32,
            span: if span <= MOST_SPAN { span as u32 } else { 0 },
            denominator: self.table.denominator,
        }
    }

    fn forward(self) -> CubeTensor {
        let (batch, [d, h, w]) = (self.batch(), self.size());
        let (x, y) = (w.div_ceil(TILE.x as usize), h.div_ceil(TILE.y as usize));
        let z = d.div_ceil(COLUMN as usize);
        let rows = batch * 3 * self.table.len();
        let partials = empty(&self.displacement, [rows * x * y * z]);
        unsafe {
            sums_kernel::launch_unchecked(
                &partials.client,
                grid_of_cubes("label_dice", [x, y, batch * z]),
                TILE.into(),
                address(&[&self.displacement, &self.moving, &partials]),
                buffer(&self.displacement),
                buffer(&self.moving),
                buffer(&self.fixed),
                buffer(&self.ids),
                buffer(&partials),
                self.sizes(),
                self.plan(),
            );
        }
        let CubeTensor { client, device, handle, dtype, .. } =
            sum_rows(&partials, rows, x * y * z, 1.0);
        let shape = self.table.sums_shape(self.displacement.meta.shape());
        CubeTensor::new_contiguous(client, device, shape, handle, dtype)
    }

    fn backward(self, grad: CubeTensor) -> CubeTensor {
        assert_f32("label_dice", &[&grad]);
        let grad = into_contiguous(grad);
        let output = empty(&self.displacement, self.displacement.meta.shape().clone());
        unsafe {
            gradient_kernel::launch_unchecked(
                &output.client,
                cubes("label_dice", self.batch(), self.size()),
                CUBE.into(),
                address(&[&self.displacement, &self.moving]),
                buffer(&self.displacement),
                buffer(&self.moving),
                buffer(&self.fixed),
                buffer(&self.ids),
                buffer(&grad),
                buffer(&output),
                self.sizes(),
                self.plan(),
            );
        }
        output
    }
}

impl LabelDiceOps for CubeBackend {
    fn label_sums_3d(
        displacement: FloatTensor<Self>,
        moving: IntTensor<Self>,
        fixed: IntTensor<Self>,
        table: LabelTable,
    ) -> FloatTensor<Self> {
        Call::new(displacement, moving, fixed, table).forward()
    }

    fn label_sums_3d_backward(
        displacement: FloatTensor<Self>,
        moving: IntTensor<Self>,
        fixed: IntTensor<Self>,
        grad: FloatTensor<Self>,
        table: LabelTable,
    ) -> FloatTensor<Self> {
        Call::new(displacement, moving, fixed, table).backward(grad)
    }
}
