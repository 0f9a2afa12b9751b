//! The joint histogram on the GPU: integer votes in shared memory, gradients by gathering.
//!
//! `votes_kernel` splits the vote of a voxel, `2^23` or `2^27` units, into integers that add up to it,
//! and adds them to a table in shared memory. Every cell is there in up to 32 copies, one for each lane of a
//! warp and in a bank of its own: equal intensities side by side, as in any background, do not wait
//! for each other. Before a word can overflow the units empty the table into registers of two words
//! a cell; a table with few copies would be emptied all the time, and carries every overflow into a
//! second word instead. At its end a cube adds what it has to the totals of two words a cell. Tables
//! too large for shared memory (more than 143 bins on an H200) are added to the totals at once.
//! Unweighted votes for single cells are whole numbers, need one copy, and no word overflows.
//! `table_kernel` turns totals into votes. Read `votes.rs` first.
//!
//! All sums are of integers: the result depends on no order.
//!
//! The gradients gather from the gradient of the table, in shared memory where it fits: as polynomials
//! with the B-spline (`pieces.rs`), cell by cell else (`gradient.rs`).

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::{Binning, HistogramMode, JointHistogramOps, ParzenKernel};
use ffdp_kit::launch::{UNITS, address, assert_f32, buffer, empty_f32, kind, readable, zeros};

mod gradient;
mod images;
pub(in crate::ops) mod parzen;
pub(in crate::ops) mod pieces;
mod table;
pub(in crate::ops) mod votes;

use gradient::gradient_kernel;
use parzen::{Kernel, ShapeLaunch};
use pieces::pieces_kernel;
use table::table_kernel;
use votes::votes_kernel;

/// Binary places of a vote in words that carry: a cell is rounded by less than 4e-8 of a vote with the
/// B-spline (1e-7 with the widest Gaussian); its row and its column lose less than one unit each, and
/// the largest cell gains what the others lost.
const PLACES: u32 = 27;
/// Binary places in words that are emptied: 8e-7 for the largest cell, 6e-8 for the others, as an f32 has them; and
/// a share of a vote is rounded by one addition (`votes.rs`).
const PLACES_EMPTIED: u32 = 23;
/// Copies of the table, at most: the lanes of a warp, and the banks of shared memory.
pub(in crate::ops) const COPIES: usize = 32;
/// Shared memory that the copies or the polynomials may take, where there is so much, in bytes.
const SHARED: usize = 160 << 10;
const POLYNOMIALS: usize = 200 << 10;
/// Shared memory that a multiprocessor divides among its cubes, and its units, on a large GPU.
const MULTIPROCESSOR: (usize, usize) = (220 << 10, 2048);
/// Multiprocessors where the device does not report them.
const MULTIPROCESSORS: u32 = 16;

/// What is fixed when a kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::ops) struct Plan {
    pub kernel: Kernel,
    pub bins: u32,
    pub radius: u32,
    pub hard: bool,
    pub weighted: bool,
    /// Copies of the table in shared memory; 0 if none fits.
    pub copies: u32,
    /// Rounds of four voxels a unit after which the copies are emptied; 0: words carry.
    pub every: u32,
    /// Voxels in a vector: 4, or 1 where volumes do not divide.
    pub width: u32,
    pub units: u32,
}

impl Plan {
    /// For the device of `like`, with room for `most` copies of the table in shared memory, at most. A table that leaves
    /// room for one cube only needs many units to keep a multiprocessor busy: `units`.
    pub(in crate::ops) fn new(
        Binning { options, weighted }: Binning,
        width: u32,
        like: &CubeTensor,
        most: usize,
        units: u32,
    ) -> Self {
        let hardware = &like.client.properties().hardware;
        let words = hardware.max_shared_memory_size.min(SHARED) / size_of::<u32>();
        let room = (words / options.bins.pow(2)).saturating_sub(1).min(most);
        let copies = if room > 0 { 1 << room.ilog2() } else { 0 };
        let large = copies * options.bins.pow(2) * size_of::<u32>() > 48 << 10;
        let units = if large { units } else { UNITS };
        let mut plan = Self {
            kernel: match options.kernel {
                ParzenKernel::Delta => Kernel::Delta,
                ParzenKernel::Linear => Kernel::Linear,
                ParzenKernel::BSpline3 => Kernel::BSpline3,
                ParzenKernel::Gaussian { .. } => Kernel::Gaussian,
            },
            bins: options.bins as u32,
            radius: options.kernel.radius() as u32,
            hard: options.is_hard(),
            weighted,
            copies: copies as u32,
            every: 0,
            width,
            units: units.min(hardware.max_units_per_cube),
        };
        // Emptying costs as much as a round or two of votes. The many small shares of a Gaussian need
        // the finer units.
        let rounds = plan.capacity() * plan.copies / (4 * plan.units);
        let empties = rounds >= 2 && !plan.counts() && plan.kernel != Kernel::Gaussian;
        plan.every = if empties { rounds } else { 0 };
        plan
    }

    /// Cubes with `bytes` of shared memory that run at once on the device of `like`.
    pub(in crate::ops) fn resident(&self, bytes: usize, like: &CubeTensor) -> usize {
        let (memory, units) = MULTIPROCESSOR;
        let cubes = (memory / bytes).clamp(1, units / self.units as usize);
        let hardware = &like.client.properties().hardware;
        hardware.num_streaming_multiprocessors.unwrap_or(MULTIPROCESSORS) as usize * cubes
    }

    pub(in crate::ops) fn cells(&self) -> u32 {
        self.bins * self.bins
    }

    pub(in crate::ops) fn inner(&self) -> u32 {
        self.bins - 2 * self.radius
    }

    fn taps(&self) -> u32 {
        2 * self.radius
    }

    /// Whether votes are whole numbers.
    fn counts(&self) -> bool {
        self.hard && !self.weighted
    }

    pub(in crate::ops) fn places(&self) -> u32 {
        match (self.counts(), self.every) {
            (true, _) => 0,
            (false, 0) => PLACES,
            (false, _) => PLACES_EMPTIED,
        }
    }

    /// Second words in shared memory, one at least.
    pub(in crate::ops) fn carries(&self) -> u32 {
        let carries = self.copies > 0 && self.every == 0 && !self.counts();
        if carries { self.cells() } else { 1 }
    }

    /// Cells that a unit empties.
    pub(in crate::ops) fn own(&self) -> u32 {
        if self.copies > 0 { self.cells().div_ceil(self.units) } else { 1 }
    }

    /// Vectors that a cube reads at once: four voxels a unit.
    fn span(&self) -> u32 {
        self.units * 4 / self.width
    }

    /// Shared memory of the votes.
    pub(in crate::ops) fn bytes(&self) -> usize {
        (self.copies * self.cells() + self.carries()) as usize * size_of::<u32>()
    }

    /// Votes that one word can take from single voxels, whatever they are.
    fn capacity(&self) -> u32 {
        // The largest share of a cell, and more than rounding may add to it.
        let peak = if self.kernel == Kernel::BSpline3 && !self.hard { 4.0 / 9.0 } else { 1.0 };
        (f64::from(u32::MAX) / (peak * f64::from(1 << PLACES_EMPTIED) + 16.0)) as u32
    }
}

/// Two images, their weights, and how they are binned.
struct Call {
    a: CubeTensor,
    b: CubeTensor,
    weights: CubeTensor,
    binning: Binning,
}

impl Call {
    fn new(
        a: FloatTensor<CubeBackend>,
        b: FloatTensor<CubeBackend>,
        weights: FloatTensor<CubeBackend>,
        binning: Binning,
    ) -> Self {
        let [a, b] = [a, b].map(|image| readable("joint_histogram", image));
        // Bound, but not read where there are no weights.
        let weights = match binning.weighted {
            true => weights,
            false => empty_f32(&a, [4]),
        };
        assert_f32("joint_histogram", &[&weights]);
        let weights = into_contiguous(weights);
        Self { a, b, weights, binning }
    }

    fn kinds(&self) -> [ElemType; 2] {
        [kind(&self.a), kind(&self.b)]
    }

    fn batch(&self) -> usize {
        self.a.meta.shape()[0]
    }

    /// Voxels of a volume.
    fn voxels(&self) -> usize {
        self.a.meta.shape().num_elements() / self.batch().max(1)
    }

    fn shape(&self) -> ShapeLaunch {
        shape_of(self.binning.options.kernel)
    }

    fn width(&self) -> u32 {
        if self.voxels().is_multiple_of(4) { 4 } else { 1 }
    }

    /// With room for `most` copies of the table in shared memory, at most.
    fn plan(&self, most: usize) -> Plan {
        Plan::new(self.binning, self.width(), &self.a, most, 1024)
    }

    /// As many cubes of `plan` with `bytes` of shared memory as run at once: each begins and ends
    /// with a pass over its table.
    fn cubes(&self, plan: &Plan, bytes: usize) -> CubeCount {
        let wanted = plan.resident(bytes, &self.a).div_ceil(self.batch());
        let work = self.voxels().div_ceil(4 * plan.units as usize);
        CubeCount::Static(work.clamp(1, wanted) as u32, self.batch() as u32, 1)
    }

    fn votes(&self) -> CubeTensor {
        let single = self.binning.options.is_hard() && !self.binning.weighted;
        let plan = self.plan(if single { 1 } else { COPIES });
        let cells = plan.cells() as usize;
        let totals = zeros(&self.weights, [self.batch() * 2 * cells]);
        unsafe {
            votes_kernel::launch_unchecked(
                &self.a.client,
                self.cubes(&plan, plan.bytes()),
                CubeDim::new_1d(plan.units),
                address(&[&self.a]),
                plan.width as usize,
                buffer(&self.a),
                buffer(&self.b),
                buffer(&self.weights),
                buffer(&totals),
                self.shape(),
                self.voxels() / plan.width as usize,
                plan,
                self.kinds(),
            );
        }
        table_of(&totals, self.batch(), &self.binning, plan)
    }

    fn gradients(&self, grad: &CubeTensor, needs: [bool; 2]) -> [CubeTensor; 2] {
        let len = self.a.meta.shape().num_elements();
        let constant = self.binning.options.kernel == ParzenKernel::Delta;
        let [to_a, to_b] = needs.map(|needed| match (needed, constant) {
            // Bound as one vector at least, but neither read nor written.
            (false, _) => empty_f32(&self.a, [4]),
            (true, true) => zeros(&self.weights, [len]),
            (true, false) => empty_f32(&self.a, [len]),
        });
        if !constant && needs != [false, false] && !self.pieces(grad, [&to_a, &to_b], needs) {
            self.gather(grad, [&to_a, &to_b], needs);
        }
        let shaped = |gradient: CubeTensor, needed: bool| match needed {
            true => dense(gradient, self.a.meta.shape().clone()),
            false => dense(gradient, [1].into()),
        };
        [shaped(to_a, needs[0]), shaped(to_b, needs[1])]
    }

    /// The gradients from polynomials, if the kernel has them and they fit into shared memory.
    fn pieces(&self, grad: &CubeTensor, [to_a, to_b]: [&CubeTensor; 2], needs: [bool; 2]) -> bool {
        let mut plan = self.plan(1);
        let Some(bytes) = polynomials(&plan, if needs[1] { 4 } else { 3 }, grad) else {
            return false;
        };
        let hardware = &self.a.client.properties().hardware;
        let units = if bytes > MULTIPROCESSOR.0 / 4 { 1024 } else { 512 };
        plan.units = units.min(hardware.max_units_per_cube);
        unsafe {
            pieces_kernel::launch_unchecked(
                &self.a.client,
                self.cubes(&plan, bytes),
                CubeDim::new_1d(plan.units),
                address(&[&self.a]),
                plan.width as usize,
                buffer(&self.a),
                buffer(&self.b),
                buffer(&self.weights),
                buffer(grad),
                buffer(to_a),
                buffer(to_b),
                self.voxels() / plan.width as usize,
                plan,
                needs,
                self.kinds(),
            );
        }
        true
    }

    /// The gradients cell by cell.
    fn gather(&self, grad: &CubeTensor, [to_a, to_b]: [&CubeTensor; 2], needs: [bool; 2]) {
        let plan = self.plan(1);
        unsafe {
            gradient_kernel::launch_unchecked(
                &self.a.client,
                self.cubes(&plan, plan.bytes()),
                CubeDim::new_1d(plan.units),
                address(&[&self.a]),
                buffer(&self.a),
                buffer(&self.b),
                buffer(&self.weights),
                buffer(grad),
                buffer(to_a),
                buffer(to_b),
                self.shape(),
                self.voxels(),
                plan,
                needs,
                self.kinds(),
            );
        }
    }
}

/// Shared memory of the polynomials, `rows` a piece, if the kernel has them and they fit.
pub(in crate::ops) fn polynomials(plan: &Plan, rows: usize, like: &CubeTensor) -> Option<usize> {
    let bytes = (plan.inner() as usize + 1).pow(2) * rows * 4 * size_of::<f32>();
    let most = like.client.properties().hardware.max_shared_memory_size.min(POLYNOMIALS);
    (plan.kernel == Kernel::BSpline3 && bytes <= most).then_some(bytes)
}

/// The numbers of a kernel.
pub(in crate::ops) fn shape_of(kernel: ParzenKernel) -> ShapeLaunch {
    let [rate, edge] = match kernel {
        ParzenKernel::Gaussian { sigma_bins } => kernel.gaussian(sigma_bins),
        _ => [0.0, 0.0],
    };
    ShapeLaunch::new(rate as f32, edge as f32)
}

/// The votes `[batch, B, B]` from totals of two words a cell.
pub(in crate::ops) fn table_of(
    totals: &CubeTensor,
    batch: usize,
    binning: &Binning,
    plan: Plan,
) -> CubeTensor {
    let Binning { options, .. } = binning;
    let reach = match options.mode {
        HistogramMode::Exact => 0,
        HistogramMode::Approximate => plan.radius.saturating_sub(1),
    };
    let output = empty_f32(totals, [batch * plan.cells() as usize]);
    unsafe {
        table_kernel::launch_unchecked(
            &totals.client,
            CubeCount::Static(plan.cells().div_ceil(UNITS), batch as u32, 1),
            CubeDim::new_1d(UNITS),
            buffer(totals),
            buffer(&output),
            shape_of(options.kernel),
            plan,
            reach,
        );
    }
    dense(output, [batch, options.bins, options.bins].into())
}

/// The same elements as a contiguous tensor of another shape.
fn dense(tensor: CubeTensor, shape: burn::tensor::Shape) -> CubeTensor {
    CubeTensor::new_contiguous(tensor.client, tensor.device, shape, tensor.handle, tensor.dtype)
}

impl JointHistogramOps for CubeBackend {
    fn joint_histogram_3d(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        binning: Binning,
    ) -> FloatTensor<Self> {
        Call::new(a, b, weights, binning).votes()
    }

    fn joint_histogram_3d_backward(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        binning: Binning,
        needs: [bool; 2],
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        assert_f32("joint_histogram", &[&grad]);
        let grad = into_contiguous(grad);
        let [to_a, to_b] = Call::new(a, b, weights, binning).gradients(&grad, needs);
        (to_a, to_b)
    }
}
