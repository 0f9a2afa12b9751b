//! The fused histogram on the GPU. A unit marches along a column of the fixed image, as `bspline/cube/column.rs` says;
//! `march.rs` is what it finds at a voxel. `votes.rs` counts votes of any kernel in the tables of
//! `joint_histogram/cube/votes.rs`, `whole.rs` single ones at 16 bits a cell, `gradient.rs` goes back.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::{BsplineVotesOps, Counting, VotesPlan};
use crate::ops::bspline::BsplineOps;
use crate::ops::bspline::cube::tables;
use crate::ops::grid_sample::cube::{Cells, SamplePlan, SpaceLaunch, matrix};
use crate::ops::joint_histogram::ParzenKernel;
use crate::ops::joint_histogram::cube::{COPIES, Plan, polynomials, shape_of, table_of};
use ffdp_kit::launch::{
    ExtentLaunch, address, assert_f32, buffer, empty, extent, kind, readable, upload, zeros,
};

mod gradient;
pub(in crate::ops) mod march;
mod votes;
mod whole;

use gradient::gradient_kernel;
use march::TilesLaunch;
use votes::votes_kernel;
use whole::{Store, whole_kernel};

/// Units of a cube along x: a warp, for coalesced access.
pub(in crate::ops) const WIDE: u32 = 32;
/// Units of a cube whose table leaves room for one only, and planes of a column that are under way together: what an
/// H100 is fastest with.
const SMOOTH: Work = Work { units: 1024, ahead: 2 };
const WHOLE: Work = Work { units: 512, ahead: 4 };
/// Of the gradient, which waits for shared memory instead.
const GRADIENT: Work = Work { units: 512, ahead: 1 };
/// Shared memory that whole votes may take.
const SHARED: usize = 160 << 10;
/// Shared memory of a GPU whose cubes have it to themselves: elsewhere other cubes work while one waits for what it has
/// asked for, and a kernel of one plane is compiled sooner.
const LARGE: usize = 64 << 10;
/// Planes of a chunk, at least: four control planes are read before the first of them.
const SHORTEST: usize = 16;

/// How a kernel is shared out.
struct Work {
    units: u32,
    ahead: u32,
}

/// A call, with its operands made contiguous.
struct Call {
    fixed: CubeTensor,
    moving: CubeTensor,
    affine: CubeTensor,
    coefficients: CubeTensor,
    tables: CubeTensor,
    plan: VotesPlan,
}

impl Call {
    fn new(
        [fixed, moving]: [CubeTensor; 2],
        [affine, coefficients]: [CubeTensor; 2],
        plan: VotesPlan,
    ) -> Self {
        assert_f32("bspline_votes", &[&affine, &coefficients]);
        let [fixed, moving] = [fixed, moving].map(|image| readable("bspline_votes", image));
        let [affine, coefficients] = [affine, coefficients].map(into_contiguous);
        let tables = upload(&coefficients, &tables(&plan.lattice));
        Self { fixed, moving, affine, coefficients, tables, plan }
    }

    fn batch(&self) -> usize {
        self.coefficients.meta.shape()[0]
    }

    fn kinds(&self) -> [ElemType; 2] {
        [kind(&self.moving), kind(&self.fixed)]
    }

    fn space(&self) -> SpaceLaunch {
        let shape = self.moving.meta.shape();
        SpaceLaunch::new(
            extent([shape[2], shape[3], shape[4]]),
            extent(self.plan.sampling.size),
            matrix(self.plan.sampling.scale),
            1,
            if self.affine.meta.shape()[0] == 1 { 0 } else { 12 },
        )
    }

    fn controls(&self) -> ExtentLaunch {
        extent(self.plan.lattice.controls())
    }

    fn sampling(&self) -> SamplePlan {
        SamplePlan {
            interpolation: self.plan.sampling.interpolation,
            padding: self.plan.sampling.padding,
            mapped: true,
            displaced: true,
            single: true,
            cells: Cells::of(&self.moving, self.plan.sampling.size),
            pairs_along_x: false,
        }
    }

    /// Columns in tiles of a cube's units, in chunks that keep `cubes` cubes at work, and the launch.
    fn tiles(&self, units: u32, cubes: usize) -> (TilesLaunch, CubeCount) {
        let [d, h, w] = self.plan.sampling.size;
        let [x, y] = [w.div_ceil(WIDE as usize), h.div_ceil((units / WIDE) as usize)];
        // Several tasks a cube, so that none is waited for long.
        let wanted = (4 * cubes).div_ceil(x * y);
        let chunk = d.div_ceil(wanted).max(SHORTEST).min(d);
        let chunks = d.div_ceil(chunk);
        let count = (x * y * chunks).min(cubes.div_ceil(self.batch()).max(1));
        let tiles = TilesLaunch::new(x as u32, y as u32, chunks as u32, chunk as u32);
        (tiles, CubeCount::Static(count as u32, self.batch() as u32, 1))
    }

    fn totals(&self, plan: &Plan) -> CubeTensor {
        zeros(&self.coefficients, [self.batch() * 2 * plan.cells() as usize])
    }

    fn votes(&self) -> CubeTensor {
        let single = self.plan.binning.options.kernel == ParzenKernel::Delta;
        let copies = if single { 1 } else { COPIES };
        let plan = Plan::new(self.plan.binning, 1, &self.coefficients, copies, SMOOTH.units);
        let totals = self.totals(&plan);
        if single {
            self.whole(&totals, &plan);
        } else {
            let (tiles, count) = self.tiles(plan.units, plan.resident(plan.bytes(), &totals));
            unsafe {
                votes_kernel::launch_unchecked(
                    &totals.client,
                    count,
                    CubeDim::new_2d(WIDE, plan.units / WIDE),
                    address(&[&self.fixed, &self.moving]),
                    buffer(&self.fixed),
                    buffer(&self.moving),
                    buffer(&self.affine),
                    buffer(&self.coefficients),
                    buffer(&self.tables),
                    buffer(&totals),
                    self.space(),
                    self.controls(),
                    shape_of(self.plan.binning.options.kernel),
                    tiles,
                    SMOOTH.ahead,
                    plan,
                    self.sampling(),
                    self.kinds(),
                );
            }
        }
        table_of(&totals, self.batch(), &self.plan.binning, plan)
    }

    /// Whole votes.
    fn whole(&self, totals: &CubeTensor, plan: &Plan) {
        let hardware = &totals.client.properties().hardware;
        let cells = hardware.max_shared_memory_size.min(SHARED) / size_of::<u16>();
        let bins = plan.bins as usize;
        // Cells are stored in pairs.
        let band = (cells / bins).min(bins) & !1;
        let store = match self.plan.counting {
            Counting::Global => Store { bins: plan.bins, band: 0, units: 256 },
            _ if bins * bins <= cells && self.plan.counting == Counting::Automatic => {
                Store { bins: plan.bins, band: plan.bins, units: WHOLE.units }
            }
            Counting::Automatic => Store { bins: plan.bins, band: band as u32, units: WHOLE.units },
            Counting::Band(wanted) => {
                Store { bins: plan.bins, band: (band.min(wanted) & !1) as u32, units: WHOLE.units }
            }
        };
        let store = Store { units: store.units.min(hardware.max_units_per_cube), ..store };
        let ahead = if hardware.max_shared_memory_size < LARGE { 1 } else { WHOLE.ahead };
        let mut sized = *plan;
        sized.units = store.units;
        let resident = sized.resident(store.bytes().max(4), totals);
        let (tiles, count) = self.tiles(store.units, resident);
        unsafe {
            whole_kernel::launch_unchecked(
                &totals.client,
                count,
                CubeDim::new_2d(WIDE, store.units / WIDE),
                address(&[&self.fixed, &self.moving]),
                buffer(&self.fixed),
                buffer(&self.moving),
                buffer(&self.affine),
                buffer(&self.coefficients),
                buffer(&self.tables),
                buffer(totals),
                self.space(),
                self.controls(),
                tiles,
                ahead,
                store,
                *plan,
                self.sampling(),
                self.kinds(),
            );
        }
    }

    /// The gradient of the dense field; `None` where the table's polynomials do not fit.
    fn to_field(&self, grad: &CubeTensor) -> Option<CubeTensor> {
        let mut plan = Plan::new(self.plan.binning, 1, grad, 1, GRADIENT.units);
        let bytes = polynomials(&plan, 3, grad)?;
        plan.units = GRADIENT.units.min(grad.client.properties().hardware.max_units_per_cube);
        let [d, h, w] = self.plan.sampling.size;
        let output = empty(&self.coefficients, [self.batch(), 3, d, h, w]);
        let (tiles, count) = self.tiles(plan.units, plan.resident(bytes, grad));
        unsafe {
            gradient_kernel::launch_unchecked(
                &output.client,
                count,
                CubeDim::new_2d(WIDE, plan.units / WIDE),
                address(&[&self.fixed, &self.moving, &output]),
                buffer(&self.fixed),
                buffer(&self.moving),
                buffer(&self.affine),
                buffer(&self.coefficients),
                buffer(&self.tables),
                buffer(grad),
                buffer(&output),
                self.space(),
                self.controls(),
                tiles,
                GRADIENT.ahead,
                plan,
                self.sampling(),
                self.kinds(),
            );
        }
        Some(output)
    }
}

impl BsplineVotesOps for CubeBackend {
    fn bspline_votes_3d(
        fixed: FloatTensor<Self>,
        moving: FloatTensor<Self>,
        affine: FloatTensor<Self>,
        coefficients: FloatTensor<Self>,
        plan: VotesPlan,
    ) -> FloatTensor<Self> {
        Call::new([fixed, moving], [affine, coefficients], plan).votes()
    }

    fn bspline_votes_3d_backward(
        fixed: FloatTensor<Self>,
        moving: FloatTensor<Self>,
        affine: FloatTensor<Self>,
        coefficients: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        plan: VotesPlan,
    ) -> FloatTensor<Self> {
        assert_f32("bspline_votes", &[&grad]);
        let grad = into_contiguous(grad);
        let images = [fixed.clone(), moving.clone()];
        let call = Call::new(images, [affine.clone(), coefficients.clone()], plan);
        if let Some(to_field) = call.to_field(&grad) {
            return Self::bspline_3d_backward(to_field, plan.lattice);
        }
        // Of other kernels, and of more bins than fit: one operation after the other.
        use crate::ops::grid_sample::GridSampleOps;
        use crate::ops::joint_histogram::JointHistogramOps;
        let field = Self::bspline_3d(coefficients, plan.lattice);
        let (image, map, u) = (moving.clone(), affine.clone(), field.clone());
        let moved = Self::grid_sample_3d(image, map, u, plan.sampling);
        let binning = plan.binning;
        let needs = [true, false];
        let (to_moved, _) =
            Self::joint_histogram_3d_backward(moved, fixed.clone(), fixed, grad, binning, needs);
        let needs = [false, false, true];
        let (_, _, to_field) =
            Self::grid_sample_3d_backward(moving, affine, field, to_moved, plan.sampling, needs);
        Self::bspline_3d_backward(to_field, plan.lattice)
    }
}
