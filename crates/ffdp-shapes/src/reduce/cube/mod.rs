//! Reductions on the GPU, through CubeCL: CUDA, Vulkan, Metal, WebGPU. Read `kernel.rs`, then `stage.rs`.

// The macros of CubeCL make items of their own, without documentation.
#![allow(missing_docs)]

mod kernel;
mod stage;

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use ffdp_kit::cubes::CUBES_ALONG_AXIS;
use ffdp_kit::launch::{address, assert_f32, buffer, empty};
use ffdp_kit::tensor_cores;

use self::kernel::{Plan, UNITS, join_kernel, reduce_kernel};
use self::stage::Code;
use super::{ReduceOps, Reduction, SLOTS, Task};
use crate::ranges::Ranges;

/// Columns of a tile: a blocked sum, and a few kilobytes of shared memory a cube.
const TILE: usize = 256;

/// Largest tile, in vectors of four.
const TILE_VECTORS: usize = 1024;

/// Cubes that a multiprocessor works through, so that the last ones do not idle.
const CUBES_A_MULTIPROCESSOR: usize = 12;

/// Where a device does not report it.
const MULTIPROCESSORS: usize = 16;

/// Numbers that shares may hand on: bounds the memory.
const HANDED: usize = 3 << 20;

/// Registers that the rows of a unit may take, about.
const REGISTERS: usize = 96;

/// Rows of a unit: each column that is read serves all of them.
fn rows_per_unit(code: &Code, reduction: Reduction, rows: usize) -> usize {
    let program = &code.program;
    let states = match reduction {
        Reduction::Sum => 3 * code.terms(),
        Reduction::LogSumExp => 3,
        // The places are those of one row.
        Reduction::Nearest { .. } => return 1,
    };
    let one = program.row.results.len() + states;
    let fits =
        |per_unit: usize| per_unit * one <= REGISTERS && rows >= per_unit * UNITS as usize * 16;
    [4, 2].into_iter().find(|per_unit| fits(*per_unit)).unwrap_or(1)
}

/// The cubes' rows and ranges, as the kernel reads them, and the number of cubes.
fn table_of(ranges: &Ranges, rows_a_cube: usize) -> (Vec<u32>, usize) {
    let clusters: Vec<_> = ranges.clusters().filter(|(rows, _)| !rows.is_empty()).collect();
    let cubes = clusters.iter().map(|(rows, _)| rows.len().div_ceil(rows_a_cube)).sum::<usize>();
    let (mut entries, mut lists) = (Vec::with_capacity(4 * cubes), Vec::new());
    for (rows, columns) in clusters {
        let place = 4 * cubes + lists.len();
        for start in rows.clone().step_by(rows_a_cube) {
            let stop = rows.end.min(start + rows_a_cube);
            entries.extend([start, stop, place, columns.len()].map(|n| n as u32));
        }
        lists.extend(columns.iter().flat_map(|range| [range.start as u32, range.end as u32]));
    }
    entries.extend(lists);
    (entries, cubes)
}

/// What is launched: the plan, cubes along the rows, shares of the columns and their length.
struct Launch {
    plan: Plan,
    table: CubeTensor,
    cubes: usize,
    shares: usize,
    share: usize,
}

impl Launch {
    fn new(task: &Task, like: &CubeTensor) -> Self {
        let ptx = tensor_cores::available(&like.client);
        let code = Code { program: task.program.clone(), ptx };
        let per_unit = rows_per_unit(&code, task.reduction, task.rows);
        let rows_a_cube = per_unit * UNITS as usize;
        let tile = TILE.min(TILE_VECTORS / code.vectors()).max(1);
        let (table, cubes) = match &task.ranges {
            Some(ranges) => {
                let (table, cubes) = table_of(ranges, rows_a_cube);
                (upload(like, &table), cubes)
            }
            // Not read.
            None => (like.clone(), task.rows.div_ceil(rows_a_cube)),
        };
        let ranged = task.ranges.is_some();
        let mut plan =
            Plan { code, reduction: task.reduction, per_unit, tile, ranged, shared: false };
        let can_share = !ranged && !matches!(task.reduction, Reduction::Nearest { .. });
        let hardware = &like.client.properties().hardware;
        let multiprocessors =
            hardware.num_streaming_multiprocessors.map_or(MULTIPROCESSORS, |n| n as usize);
        let wanted = (multiprocessors * CUBES_A_MULTIPROCESSOR).div_ceil(cubes.max(1));
        let affordable = HANDED / (task.rows * plan.handed()).max(1);
        let useful = task.columns.div_ceil(plan.tile);
        let shares = match can_share {
            true => wanted.min(affordable).min(useful).clamp(1, CUBES_ALONG_AXIS),
            false => 1,
        };
        // Whole tiles.
        let share = task.columns.div_ceil(shares).next_multiple_of(plan.tile);
        let shares = task.columns.div_ceil(share).max(1);
        plan.shared = shares > 1;
        Self { plan, table, cubes, shares, share }
    }

    fn run(&self, task: &Task, inputs: &[CubeTensor], output: &CubeTensor, places: &CubeTensor) {
        assert!(
            self.cubes <= CUBES_ALONG_AXIS && task.columns < 1 << 31,
            "kernel product: {} rows and {} columns are more than a launch takes; split the rows",
            task.rows,
            task.columns
        );
        let at = |slot: usize| buffer(inputs.get(slot).unwrap_or(&inputs[0]));
        let mut all: Vec<&CubeTensor> = inputs.iter().collect();
        all.extend([output, places]);
        unsafe {
            reduce_kernel::launch_unchecked(
                &output.client,
                CubeCount::Static(self.cubes as u32, self.shares as u32, 1),
                CubeDim::new_1d(UNITS),
                address(&all),
                at(0),
                at(1),
                at(2),
                at(3),
                at(4),
                at(5),
                at(6),
                at(7),
                buffer(&self.table),
                buffer(output),
                buffer(places),
                task.rows as u32,
                task.columns as u32,
                self.share as u32,
                self.plan.clone(),
            );
        }
    }

    fn join(&self, task: &Task, inputs: &[CubeTensor], parts: &CubeTensor, output: &CubeTensor) {
        let plan = Plan { per_unit: 1, shared: false, ..self.plan.clone() };
        let at = |slot: usize| buffer(inputs.get(slot).unwrap_or(&inputs[0]));
        let mut all: Vec<&CubeTensor> = inputs.iter().collect();
        all.extend([parts, output]);
        unsafe {
            join_kernel::launch_unchecked(
                &output.client,
                CubeCount::Static(task.rows.div_ceil(UNITS as usize) as u32, 1, 1),
                CubeDim::new_1d(UNITS),
                address(&all),
                at(0),
                at(1),
                at(2),
                at(3),
                at(4),
                at(5),
                at(6),
                at(7),
                buffer(parts),
                buffer(output),
                task.rows as u32,
                self.shares as u32,
                plan,
            );
        }
    }
}

/// Whole numbers, copied to the device of `like`.
fn upload(like: &CubeTensor, values: &[u32]) -> CubeTensor {
    let handle = like.client.create_from_slice(u32::as_bytes(values));
    let (client, device) = (like.client.clone(), like.device.clone());
    CubeTensor::new_contiguous(client, device, [values.len()].into(), handle, DType::U32)
}

/// The variables as the kernels read them.
fn readable(inputs: [CubeTensor; SLOTS], task: &Task) -> Vec<CubeTensor> {
    let count = task.formula.variables().len();
    let inputs: Vec<CubeTensor> = inputs.into_iter().take(count).map(into_contiguous).collect();
    assert_f32("kernel product", &inputs.iter().collect::<Vec<_>>());
    inputs
}

fn integers(like: &CubeTensor, shape: [usize; 2]) -> CubeTensor {
    let (client, device) = (like.client.clone(), like.device.clone());
    empty_device_contiguous_dtype(client, device, shape.into(), DType::I32)
}

impl ReduceOps for CubeBackend {
    fn reduce(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        c: FloatTensor<Self>,
        d: FloatTensor<Self>,
        e: FloatTensor<Self>,
        f: FloatTensor<Self>,
        g: FloatTensor<Self>,
        h: FloatTensor<Self>,
        task: Task,
    ) -> FloatTensor<Self> {
        let inputs = readable([a, b, c, d, e, f, g, h], &task);
        let like = &inputs[0];
        // A kernel writes it: on its own even where it is empty.
        let places = integers(like, [1, 1]);
        let output = empty(like, task.shape());
        let launch = Launch::new(&task, like);
        if launch.shares == 1 {
            launch.run(&task, &inputs, &output, &places);
            return output;
        }
        let parts = empty(like, [launch.shares, task.rows, launch.plan.handed()]);
        launch.run(&task, &inputs, &parts, &places);
        launch.join(&task, &inputs, &parts, &output);
        output
    }

    fn reduce_nearest(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        c: FloatTensor<Self>,
        d: FloatTensor<Self>,
        e: FloatTensor<Self>,
        f: FloatTensor<Self>,
        g: FloatTensor<Self>,
        h: FloatTensor<Self>,
        task: Task,
    ) -> IntTensor<Self> {
        let inputs = readable([a, b, c, d, e, f, g, h], &task);
        let places = integers(&inputs[0], [task.rows, task.width()]);
        let output = empty(&inputs[0], [1]);
        Launch::new(&task, &inputs[0]).run(&task, &inputs, &output, &places);
        places
    }
}
