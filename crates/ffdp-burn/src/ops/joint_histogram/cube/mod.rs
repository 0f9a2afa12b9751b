//! The joint histogram on the GPU: integer votes in shared memory, gradients by gathering.
//!
//! `votes_kernel` splits the vote of a voxel, `2^places` units, into integers that add up to it, and
//! adds them to a table in shared memory. Every cell is there in up to 32 copies, one for each lane
//! of a warp and in a bank of its own: equal intensities side by side, as in any background, do not
//! wait for each other. A word that overflows carries into a second one, so that a cube may see any
//! number of voxels; at its end it adds its table to the totals of two words a cell. Tables too
//! large for shared memory are added to the totals at once. `table_kernel` turns totals into votes.
//! Read `votes.rs` first.
//!
//! All sums are of integers: the result depends on no order.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{Binning, HistogramMode, JointHistogramOps, ParzenKernel};
use crate::ops::launch::{UNITS, address, assert_f32, buffer, empty, upload, zeros};

mod gradient;
mod parzen;
mod votes;

use gradient::gradient_kernel;
use parzen::{Kernel, ShapeLaunch};
use votes::{table_kernel, votes_kernel};

/// Copies of the table, at most: the lanes of a warp, and the banks of shared memory.
const COPIES: usize = 32;
/// Shared memory that the copies may take, where there is so much, in bytes.
const SHARED: usize = 160 << 10;
/// Shared memory that a multiprocessor divides among its cubes, and its units, on a large GPU.
const MULTIPROCESSOR: (usize, usize) = (220 << 10, 2048);
/// Multiprocessors where the device does not tell.
const MULTIPROCESSORS: u32 = 16;

/// What is fixed when a kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Plan {
    kernel: Kernel,
    bins: u32,
    radius: u32,
    hard: bool,
    weighted: bool,
    places: u32,
    /// Copies of the table in shared memory; 0 if none fits.
    copies: u32,
    units: u32,
}

impl Plan {
    fn cells(&self) -> u32 {
        self.bins * self.bins
    }

    fn inner(&self) -> u32 {
        self.bins - 2 * self.radius
    }

    fn taps(&self) -> u32 {
        2 * self.radius
    }

    /// Voxels that a unit reads before it votes, to have several reads in flight.
    fn at_once(&self) -> u32 {
        match (self.hard, self.radius) {
            (true, _) => 4,
            (false, 0..=2) => 2,
            _ => 1,
        }
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
        assert_f32("joint_histogram", &[&a, &b, &weights]);
        let [a, b, weights] = [a, b, weights].map(into_contiguous);
        Self { a, b, weights, binning }
    }

    fn batch(&self) -> usize {
        self.a.meta.shape()[0]
    }

    /// Voxels of a volume.
    fn voxels(&self) -> usize {
        self.a.meta.shape().num_elements() / self.batch().max(1)
    }

    fn shape(&self) -> ShapeLaunch {
        let kernel = self.binning.options.kernel;
        let [rate, edge] = match kernel {
            ParzenKernel::Gaussian { sigma_bins } => kernel.gaussian(sigma_bins),
            _ => [0.0, 0.0],
        };
        ShapeLaunch::new(rate as f32, edge as f32)
    }

    /// With room for `copies` tables of words and one more in shared memory, at most.
    fn plan(&self, most: usize) -> Plan {
        let Binning { options, weighted, places } = self.binning;
        let hardware = &self.a.client.properties().hardware;
        let words = hardware.max_shared_memory_size.min(SHARED) / size_of::<u32>();
        let room = (words / options.bins.pow(2)).saturating_sub(1).min(most);
        let copies = if room > 0 { 1 << room.ilog2() } else { 0 };
        // A table that leaves room for one cube only needs its units to keep a multiprocessor busy.
        let large = copies * options.bins.pow(2) * size_of::<u32>() > 48 << 10;
        let units = if large { 1024 } else { UNITS };
        Plan {
            kernel: match options.kernel {
                ParzenKernel::Delta => Kernel::Delta,
                ParzenKernel::BSpline3 => Kernel::BSpline3,
                ParzenKernel::Gaussian { .. } => Kernel::Gaussian,
            },
            bins: options.bins as u32,
            radius: options.kernel.radius() as u32,
            hard: options.is_hard(),
            weighted,
            places,
            copies: copies as u32,
            units: units.min(hardware.max_units_per_cube),
        }
    }

    /// As many cubes as run at once: each begins and ends with a pass over its table.
    fn cubes(&self, plan: &Plan, at_once: u32) -> CubeCount {
        let hardware = &self.a.client.properties().hardware;
        let bytes = ((plan.copies + 1) * plan.cells()) as usize * size_of::<u32>();
        let (memory, units) = MULTIPROCESSOR;
        let resident = (memory / bytes).clamp(1, units / plan.units as usize);
        let multiprocessors = hardware.num_streaming_multiprocessors.unwrap_or(MULTIPROCESSORS);
        let wanted = (multiprocessors as usize * resident).div_ceil(self.batch());
        let work = self.voxels().div_ceil((plan.units * at_once) as usize);
        CubeCount::Static(work.clamp(1, wanted) as u32, self.batch() as u32, 1)
    }

    fn votes(&self) -> CubeTensor {
        let plan = self.plan(COPIES);
        let cells = plan.cells() as usize;
        let totals = zeros(&self.a, [self.batch() * 2 * cells]);
        unsafe {
            votes_kernel::launch_unchecked(
                &self.a.client,
                self.cubes(&plan, plan.at_once()),
                CubeDim::new_1d(plan.units),
                address(&[&self.a]),
                buffer(&self.a),
                buffer(&self.b),
                buffer(&self.weights),
                buffer(&totals),
                self.shape(),
                self.voxels(),
                plan,
            );
        }
        let kernel = self.binning.options.kernel;
        let shares = match self.binning.options.mode {
            HistogramMode::Exact => vec![1.0],
            HistogramMode::Approximate => kernel.at_whole_bins(),
        };
        let shares: Vec<f32> = shares.into_iter().map(|share| share as f32).collect();
        let output = empty(&self.a, [self.batch() * cells]);
        unsafe {
            table_kernel::launch_unchecked(
                &self.a.client,
                CubeCount::Static(plan.cells().div_ceil(UNITS), self.batch() as u32, 1),
                CubeDim::new_1d(UNITS),
                buffer(&totals),
                buffer(&upload(&self.a, &shares)),
                buffer(&output),
                plan,
                shares.len() as u32 / 2,
            );
        }
        dense(output, self.binning.table(self.a.meta.shape()))
    }

    fn gradients(&self, grad: &CubeTensor, needs: [bool; 2]) -> [CubeTensor; 2] {
        let plan = self.plan(1);
        let len = self.a.meta.shape().num_elements();
        let constant = plan.kernel == Kernel::Delta;
        let [to_a, to_b] = needs.map(|needed| match (needed, constant) {
            (false, _) => zeros(&self.a, [1]),
            (true, true) => zeros(&self.a, [len]),
            (true, false) => empty(&self.a, [len]),
        });
        if !constant && needs != [false, false] {
            unsafe {
                gradient_kernel::launch_unchecked(
                    &self.a.client,
                    self.cubes(&plan, 1),
                    CubeDim::new_1d(plan.units),
                    address(&[&self.a]),
                    buffer(&self.a),
                    buffer(&self.b),
                    buffer(&self.weights),
                    buffer(grad),
                    buffer(&to_a),
                    buffer(&to_b),
                    self.shape(),
                    self.voxels(),
                    plan,
                    needs,
                );
            }
        }
        let shaped = |gradient: CubeTensor, needed: bool| match needed {
            true => dense(gradient, self.a.meta.shape().clone()),
            false => gradient,
        };
        [shaped(to_a, needs[0]), shaped(to_b, needs[1])]
    }
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
