//! The differences on the GPU: a cube a control point, six times over its support.
//!
//! The units add up what the displaced voxels change in the table, then go over the table, empty it, and add up what
//! that changes in the entropies. All changes are integers, and all sums have a fixed order: reproducible bit by bit.

use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::{BsplineDifferencesOps, DifferencesPlan, ENTROPIES, MAP};
use crate::ops::bspline::cube::{ENTRY, tables_and_ranges};
use crate::ops::bspline_votes::march::value_at;
use crate::ops::grid_sample::cube::{
    Cells, Point, SamplePlan, Space, SpaceLaunch, Voxel, map_of, matrix, position,
};
use crate::ops::information::Information;
use crate::ops::joint_histogram::cube::Plan;
use crate::ops::joint_histogram::cube::parzen::bin;
use crate::ops::joint_histogram::{Binning, HistogramOptions, ParzenKernel};
use ffdp_kit::launch::{
    Extent, address, assert_f32, buffer, empty, extent, kind, readable, upload, zeros,
};

/// Units of a cube whose table leaves room for one, and for several.
const UNITS: [u32; 2] = [1024, 256];
/// Shared memory that the table may take, and what must be left of it for rows and sums.
const SHARED: usize = 208 << 10;
const OTHER_SHARED: usize = 8 << 10;

/// What is fixed when the kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Store {
    bins: u32,
    /// Bins of the moving image around that of the fixed one whose cells are in shared memory.
    band: u32,
    units: u32,
    information: Information,
}

impl Store {
    fn words(&self) -> u32 {
        self.bins * self.band
    }

    fn whole(&self) -> bool {
        self.band == self.bins
    }
}

/// The changes of a table and of its rows.
#[derive(CubeType)]
struct Changes {
    cells: Shared<[Atomic<i32>]>,
    rows: Shared<[Atomic<i32>]>,
    /// Whether there is a change beyond the band.
    beyond: Shared<[Atomic<u32>]>,
    tree: Shared<[f32]>,
}

#[cube]
fn no_changes(#[comptime] store: Store) -> Changes {
    let changes = Changes {
        cells: Shared::<[Atomic<i32>]>::new_slice(comptime!(store.words().max(1) as usize)),
        rows: Shared::<[Atomic<i32>]>::new_slice(comptime!(store.bins as usize)),
        beyond: Shared::<[Atomic<u32>]>::new_slice(1usize),
        tree: Shared::<[f32]>::new_slice(comptime!(store.units as usize)),
    };
    let (words, bins, units) = comptime!((store.words(), store.bins, store.units));
    let mut word = UNIT_POS;
    while word < words {
        changes.cells[word as usize].store(0i32);
        word += units;
    }
    let mut row = UNIT_POS;
    while row < bins {
        changes.rows[row as usize].store(0i32);
        row += units;
    }
    if UNIT_POS == 0 {
        changes.beyond[0].store(0u32);
    }
    sync_cube();
    changes
}

/// Adds to a cell; `own` is the cube's table in global memory.
#[cube]
fn add(
    changes: &Changes,
    scratch: &[Atomic<i32>],
    own: usize,
    moving: u32,
    fixed: u32,
    by: i32,
    #[comptime] store: Store,
) {
    let (bins, band) = comptime!((store.bins, store.band));
    if comptime!(store.whole()) {
        changes.cells[(moving * bins + fixed) as usize].fetch_add(by);
    } else {
        // Below the band the difference is negative, and so very large.
        let across = moving + band / 2 - fixed;
        if across < band {
            changes.cells[(fixed * band + across) as usize].fetch_add(by);
        } else {
            scratch[own + (moving * bins + fixed) as usize].fetch_add(by);
            changes.beyond[0].store(1u32);
        }
    }
}

/// `log(1 + r)`, also where `1 + r` is rounded to 1.
#[cube]
fn log_of_one_and(r: f32) -> f32 {
    let series = r * (1.0f32 - r * (0.5f32 - r * (1.0f32 / 3.0f32 - r * (0.25f32 - r * 0.2f32))));
    select(r.abs() < 0.0625f32, series, (1.0f32 + r).ln())
}

/// `eta(n + m) - eta(n)` of counts.
#[cube]
fn change(n: f32, m: f32) -> f32 {
    let mut of = 0.0f32;
    if n > 0.0f32 && n + m > 0.0f32 {
        of = m * n.ln() + (n + m) * log_of_one_and(m / n);
    } else if n > 0.0f32 {
        of = -n * n.ln();
    } else if m > 0.0f32 {
        of = m * m.ln();
    }
    of
}

/// The sum over the units of a cube, in a fixed order; every unit gets it.
#[cube]
fn sum_of_units(tree: &mut Shared<[f32]>, value: f32, #[comptime] units: u32) -> f32 {
    sync_cube();
    tree[UNIT_POS as usize] = value;
    sync_cube();
    let mut stride = comptime!(units / 2).runtime();
    while stride > 0 {
        if UNIT_POS < stride {
            let other = tree[(UNIT_POS + stride) as usize];
            tree[UNIT_POS as usize] += other;
        }
        sync_cube();
        stride /= 2;
    }
    tree[0]
}

/// What the changes of cells and rows change in the loss; all is empty afterwards. All units of the cube take part.
#[cube]
fn take(
    changes: &mut Changes,
    scratch: &[Atomic<i32>],
    own: usize,
    known: &[f32],
    voxels: f32,
    #[comptime] store: Store,
) -> f32 {
    let (bins, band, units) = comptime!((store.bins, store.band.max(1), store.units));
    let rows = comptime!(MAP + ENTROPIES);
    let cells = rows + bins as usize;
    sync_cube();
    let mut joint = 0.0f32;
    let mut word = UNIT_POS;
    while word < comptime!(store.words()) {
        let by = changes.cells[word as usize].load();
        if by != 0 {
            changes.cells[word as usize].store(0i32);
            let mut moving = word / bins;
            let mut cell = word;
            if comptime!(!store.whole()) {
                let fixed = word / band;
                moving = word % band + fixed - band / 2;
                cell = moving * bins + fixed;
            }
            joint += change(known[cells + cell as usize], f32::cast_from(by));
            changes.rows[moving as usize].fetch_add(by);
        }
        word += units;
    }
    // The first condition is decided when the kernel is compiled.
    #[allow(clippy::collapsible_if)]
    if comptime!(!store.whole()) {
        if changes.beyond[0].load() > 0 {
            let mut cell = UNIT_POS;
            while cell < comptime!(store.bins * store.bins) {
                let by = scratch[own + cell as usize].load();
                if by != 0 {
                    scratch[own + cell as usize].store(0i32);
                    joint += change(known[cells + cell as usize], f32::cast_from(by));
                    changes.rows[(cell / bins) as usize].fetch_add(by);
                }
                cell += units;
            }
        }
    }
    sync_cube();
    let mut apart = 0.0f32;
    let mut row = UNIT_POS;
    while row < bins {
        let by = changes.rows[row as usize].load();
        if by != 0 {
            changes.rows[row as usize].store(0i32);
            apart += change(known[rows + row as usize], f32::cast_from(by));
        }
        row += units;
    }
    if UNIT_POS == 0 {
        changes.beyond[0].store(0u32);
    }
    let joint = -sum_of_units(&mut changes.tree, joint, store.units) / voxels;
    let apart = -sum_of_units(&mut changes.tree, apart, store.units) / voxels;
    let mut loss = joint - apart;
    if comptime!(store.information == Information::Normalized) {
        let (before_apart, before) = (known[comptime!(MAP)], known[comptime!(MAP + 1)]);
        let after = before + joint;
        loss = (before_apart * joint - apart * before) / (before * after);
        if before < 1e-10f32 || after < 1e-10f32 {
            loss = 0.0f32;
        }
    }
    loss
}

/// The weight of control point `control` at position `p` of the axis whose table begins at `table`.
#[cube]
fn weight_of(tables: &[f32], table: usize, p: u32, control: u32) -> f32 {
    let entry = table + p as usize * comptime!(ENTRY);
    let tap = control - u32::cast_from(tables[entry]);
    tables[entry + 1 + tap as usize]
}

/// Where an axis' table has the positions that see a control point: the first, and the one after the last.
#[cube]
fn range_of(tables: &[f32], table: usize, len: u32, control: u32, #[comptime] end: usize) -> u32 {
    u32::cast_from(tables[table + len as usize * comptime!(ENTRY) + control as usize * 2 + end])
}

/// `output[c, control]`: the differences of one control point after the other.
#[cube(launch_unchecked, address_type = "dynamic")]
fn differences_kernel<A: Float, B: Float>(
    fixed: &[B],
    moving: &[A],
    moved: &[f32],
    field: &[f32],
    known: &[f32],
    tables: &[f32],
    scratch: &[Atomic<i32>],
    output: &mut [f32],
    space: Space,
    controls: Extent,
    step: f32,
    #[comptime] store: Store,
    #[comptime] plan: Plan,
    #[comptime] sampling: SamplePlan,
    #[define(A, B)] _kinds: [ElemType; 2],
) {
    let units = comptime!(store.units);
    let mut changes = no_changes(store);
    let own = CUBE_POS_X as usize * comptime!((store.bins * store.bins) as usize);
    let size = &space.output;
    let map = map_of(known, &space, 0u32, sampling);
    let area = size.h as usize * size.w as usize;
    let len = area * size.d as usize;
    let table_y = size.w as usize * comptime!(ENTRY) + 2 * controls.w as usize;
    let table_z = table_y + size.h as usize * comptime!(ENTRY) + 2 * controls.h as usize;
    let count = controls.d * controls.h * controls.w;
    let voxels = f32::cast_from(size.d) * f32::cast_from(size.h) * f32::cast_from(size.w);
    let mut control = CUBE_POS_X;
    while control < count {
        let (cx, cy) = (control % controls.w, control / controls.w % controls.h);
        let cz = control / (controls.w * controls.h);
        let x0 = range_of(tables, 0usize, size.w, cx, 0usize);
        let y0 = range_of(tables, table_y, size.h, cy, 0usize);
        let z0 = range_of(tables, table_z, size.d, cz, 0usize);
        let wide = range_of(tables, 0usize, size.w, cx, 1usize) - x0;
        let high = range_of(tables, table_y, size.h, cy, 1usize) - y0;
        let deep = range_of(tables, table_z, size.d, cz, 1usize) - z0;
        for component in 0..3u32 {
            let mut losses = 0.0f32;
            for turn in 0..2u32 {
                let sign = select(turn == 0, 1.0f32, -1.0f32);
                let mut place = UNIT_POS;
                while place < wide * high * deep {
                    let x = x0 + place % wide;
                    let y = y0 + place / wide % high;
                    let z = z0 + place / (wide * high);
                    let weight = weight_of(tables, 0usize, x, cx)
                        * weight_of(tables, table_y, y, cy)
                        * weight_of(tables, table_z, z, cz);
                    let voxel = z as usize * area + y as usize * size.w as usize + x as usize;
                    let far = sign * step * weight;
                    let u = Point {
                        x: field[voxel] + select(component == 0, far, 0.0f32),
                        y: field[voxel + len] + select(component == 1, far, 0.0f32),
                        z: field[voxel + 2 * len] + select(component == 2, far, 0.0f32),
                    };
                    let at = position(&map, &space, &Voxel { n: 0u32, x, y, z }, &u, sampling);
                    let before = bin(moved[voxel], plan);
                    let after = bin(value_at(moving, &space, &at, sampling), plan);
                    if before != after {
                        let stays = bin(f32::cast_from(fixed[voxel]), plan);
                        add(&changes, scratch, own, before, stays, -1i32, store);
                        add(&changes, scratch, own, after, stays, 1i32, store);
                    }
                    place += units;
                }
                losses += sign * take(&mut changes, scratch, own, known, voxels, store);
                sync_cube();
            }
            if UNIT_POS == 0 {
                output[(component * count + control) as usize] = losses / (2.0f32 * step);
            }
        }
        control += CUBE_COUNT_X;
    }
}

/// Bytes of shared memory of a cube.
fn shared_bytes(bins: usize, band: usize) -> usize {
    4 * bins * band + OTHER_SHARED
}

/// What a cube keeps of the joint histogram in the shared memory of the device, and its units.
fn store(plan: &DifferencesPlan, field: &CubeTensor) -> Store {
    let hardware = &field.client.properties().hardware;
    let room = hardware.max_shared_memory_size.min(SHARED).saturating_sub(OTHER_SHARED) / 4;
    let band = (room / plan.bins).min(plan.bins);
    let band = if band < plan.bins { band & !1 } else { band };
    let units = if shared_bytes(plan.bins, band) > 48 << 10 { UNITS[0] } else { UNITS[1] };
    let units = 1 << units.min(hardware.max_units_per_cube).ilog2();
    Store { bins: plan.bins as u32, band: band as u32, units, information: plan.information }
}

/// How the moving image is sampled.
fn sample_plan(plan: &DifferencesPlan, moving: &CubeTensor) -> SamplePlan {
    SamplePlan {
        interpolation: plan.sampling.interpolation,
        padding: plan.sampling.padding,
        mapped: true,
        displaced: true,
        single: true,
        cells: Cells::of(moving, plan.sampling.size),
        pairs_along_x: false,
    }
}

impl BsplineDifferencesOps for CubeBackend {
    fn bspline_differences_3d(
        fixed: CubeTensor,
        moving: CubeTensor,
        moved: CubeTensor,
        field: CubeTensor,
        known: CubeTensor,
        plan: DifferencesPlan,
    ) -> CubeTensor {
        assert_f32("bspline_differences", &[&moved, &field, &known]);
        let [fixed, moving] = [fixed, moving].map(|i| readable("bspline_differences", i));
        let [moved, field, known] = [moved, field, known].map(into_contiguous);
        let store = store(&plan, &field);
        let units = store.units;
        let options =
            HistogramOptions { bins: plan.bins, kernel: ParzenKernel::Delta, ..Default::default() };
        let binning = Binning { options, weighted: false };
        let mut bins = Plan::new(binning, 1, &field, 1, units);
        bins.units = units;
        let controls = plan.lattice.controls();
        let bytes = shared_bytes(plan.bins, store.band as usize);
        let cubes = bins.resident(bytes, &field).min(controls.iter().product());
        let beyond = if store.whole() { 1 } else { cubes * plan.bins * plan.bins };
        let scratch = zeros(&field, [beyond]);
        let [d, h, w] = controls;
        let output = empty(&field, [1, 3, d, h, w]);
        let shape = moving.meta.shape().clone();
        unsafe {
            differences_kernel::launch_unchecked(
                &output.client,
                CubeCount::Static(cubes as u32, 1, 1),
                CubeDim::new_1d(units),
                address(&[&fixed, &moving, &field]),
                buffer(&fixed),
                buffer(&moving),
                buffer(&moved),
                buffer(&field),
                buffer(&known),
                buffer(&upload(&field, &tables_and_ranges(&plan.lattice))),
                buffer(&scratch),
                buffer(&output),
                SpaceLaunch::new(
                    extent([shape[2], shape[3], shape[4]]),
                    extent(plan.sampling.size),
                    matrix(plan.sampling.scale),
                    1,
                    0,
                ),
                extent(controls),
                plan.step as f32,
                store,
                bins,
                sample_plan(&plan, &moving),
                [kind(&moving), kind(&fixed)],
            );
        }
        output
    }
}
