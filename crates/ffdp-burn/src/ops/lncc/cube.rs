//! LNCC on the GPU: two marches along z per slab of planes.
//!
//! A cube owns a tile of 32 x 8 columns. `windows_kernel` reads the two images plane by plane, sums
//! the five products along x and y through shared memory, keeps the last `w` plane sums of each
//! column in registers, and writes the gamma fields of the slab; `gradient_kernel` box-filters
//! those in the same way and writes the gradient. The gamma fields of one slab at a time exist.
//!
//! Plane sums are added afresh for every window: nothing drifts along z.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::settings::Dim3;
use cubecl::prelude::*;

use super::{GradientMode, LnccOps, LnccOptions};
use crate::ops::launch::{
    Extent, UNITS, address, assert_f32, buffer, empty, extent, sum_over_cube, sum_rows, zeros,
};

/// Columns of a cube along x and y.
const TILE: Dim3 = Dim3::new_2d(32, 8);
const TILE_X: u32 = 32;
const TILE_Y: u32 = 8;

/// Voxels per slab of the gamma fields, about: bounds the extra memory (three to five floats
/// each) while a slab still fills a large GPU.
const SLAB_VOXELS: usize = 1 << 24;

/// Cubes that a launch should have, so that every multiprocessor has work to switch to.
const CUBES_WANTED: usize = 2048;

/// What is fixed when a kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Plan {
    radius: u32,
    /// Whether gamma fields are written for the moved and for the fixed image.
    to_moved: bool,
    to_fixed: bool,
    /// Whether the gradients are written at once, without the second march.
    approximate: bool,
}

impl Plan {
    fn fields(&self) -> usize {
        match (self.approximate, self.to_moved, self.to_fixed) {
            (true, ..) | (_, false, false) => 0,
            (_, true, true) => 5,
            _ => 3,
        }
    }
}

/// Where a launch works: planes `[first, first + planes)` of a volume, of which
/// `[counted, counted + count)` add to the value.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Slab {
    size: Extent,
    volume: u32,
    first: i32,
    planes: u32,
    counted: i32,
    count: u32,
    /// Planes that one cube marches over.
    chunk: u32,
    epsilon: f32,
}

/// The column of this unit.
#[derive(CubeType, Clone, Copy)]
struct Column {
    x: u32,
    y: u32,
    inside: bool,
}

#[cube]
fn column(size: &Extent) -> Column {
    let (x, y) = (ABSOLUTE_POS_X, ABSOLUTE_POS_Y);
    Column { x, y, inside: x < size.w && y < size.h }
}

/// Mean of at most 4096 voxels spread over each volume: the constant that images are read
/// relative to. One cube a volume.
#[cube(launch_unchecked, address_type = "dynamic")]
fn centre_kernel(image: &[f32], centres: &mut [f32], size: Extent) {
    let len = size.d as usize * size.h as usize * size.w as usize;
    let start = CUBE_POS_X as usize * len;
    let step = len.div_ceil(4096usize);
    let mut sum = 0.0f32;
    let mut voxel = UNIT_POS as usize * step;
    while voxel < len {
        sum += image[start + voxel];
        voxel += UNITS as usize * step;
    }
    let total = sum_over_cube(sum);
    if UNIT_POS == 0 {
        let samples = len.div_ceil(step);
        centres[CUBE_POS_X as usize] = total / f32::cast_from(samples);
    }
}

/// Loads the tile of one plane with its margin into shared memory, relative to `centre`; outside
/// the image the value is zero before centring.
#[cube]
fn load_tile(
    source: &[f32],
    tile: &mut Shared<[f32]>,
    base: usize,
    size: &Extent,
    plane_inside: bool,
    centre: f32,
    #[comptime] radius: u32,
) {
    let width = comptime!(TILE_X + 2 * radius);
    let items = comptime!((TILE_X + 2 * radius) * (TILE_Y + 2 * radius));
    let left = CUBE_POS_X as i32 * TILE_X as i32 - radius as i32;
    let top = CUBE_POS_Y as i32 * TILE_Y as i32 - radius as i32;
    let mut item = UNIT_POS;
    while item < items {
        let x = left + (item % width) as i32;
        let y = top + (item / width) as i32;
        let mut value = 0.0f32;
        if plane_inside && x >= 0 && y >= 0 && x < size.w as i32 && y < size.h as i32 {
            value = source[base + y as usize * size.w as usize + x as usize];
        }
        tile[item as usize] = value - centre;
        item += UNITS;
    }
}

/// Sums `w` neighbours along y of the x-sums of quantity `k`, for this unit's column.
#[cube]
fn sum_along_y(along_x: &Shared<[f32]>, #[comptime] k: u32, #[comptime] radius: u32) -> f32 {
    let rows = comptime!(TILE_Y + 2 * radius);
    let start = k * comptime!(rows * TILE_X) + UNIT_POS;
    let mut sum = 0.0f32;
    #[unroll]
    for j in 0..2 * radius + 1 {
        sum += along_x[(start + j * TILE_X) as usize];
    }
    sum
}

/// Pushes a plane sum into the ring of one quantity and returns the sum over the ring.
#[cube]
fn push(ring: &mut Array<f32>, value: f32, #[comptime] k: u32, #[comptime] window: u32) -> f32 {
    let first = comptime!((k * window) as usize);
    let mut sum = value;
    #[unroll]
    for i in 0..window - 1 {
        let slot = comptime!(first + i as usize);
        let next = ring[comptime!(slot + 1)];
        ring[slot] = next;
        sum += next;
    }
    ring[comptime!(first + window as usize - 1)] = value;
    sum
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn windows_kernel(
    moved: &[f32],
    fixed: &[f32],
    centres: &[f32],
    fields: &mut [f32],
    to_moved: &mut [f32],
    to_fixed: &mut [f32],
    partials: &mut [f32],
    volumes: u32,
    partial_start: u32,
    slab: Slab,
    #[comptime] plan: Plan,
) {
    let radius = comptime!(plan.radius);
    let window = comptime!(2 * radius + 1);
    let width = comptime!(TILE_X + 2 * radius);
    let rows = comptime!(TILE_Y + 2 * radius);
    let mut tile_m = Shared::<[f32]>::new_slice(comptime!((width * rows) as usize));
    let mut tile_f = Shared::<[f32]>::new_slice(comptime!((width * rows) as usize));
    let mut along_x = Shared::<[f32]>::new_slice(comptime!((5 * rows * TILE_X) as usize));
    let mut ring = Array::<f32>::new(comptime!((5 * window) as usize));
    #[unroll]
    for i in 0..5 * window {
        ring[i as usize] = 0.0f32;
    }
    let size = slab.size;
    let area = size.h as usize * size.w as usize;
    let volume = slab.volume as usize * size.d as usize * area;
    let centre_m = centres[slab.volume as usize];
    let centre_f = centres[(volumes + slab.volume) as usize];
    let column = column(&size);
    let scale = 1.0f32 / comptime!((window * window * window) as f32);
    let start = slab.first + (CUBE_POS_Z * slab.chunk) as i32;
    let stop = min(start + slab.chunk as i32, slab.first + slab.planes as i32);
    let mut value = 0.0f32;

    let mut z = start - radius as i32;
    while z < stop + radius as i32 {
        let plane_inside = z >= 0 && z < size.d as i32;
        let base = volume + select(plane_inside, z, 0i32) as usize * area;
        sync_cube();
        load_tile(moved, &mut tile_m, base, &size, plane_inside, centre_m, radius);
        load_tile(fixed, &mut tile_f, base, &size, plane_inside, centre_f, radius);
        sync_cube();
        let mut item = UNIT_POS;
        while item < rows * TILE_X {
            let from = (item / TILE_X) * width + item % TILE_X;
            let mut sf = 0.0f32;
            let mut sm = 0.0f32;
            let mut sff = 0.0f32;
            let mut smm = 0.0f32;
            let mut sfm = 0.0f32;
            #[unroll]
            for i in 0..window {
                let f = tile_f[(from + i) as usize];
                let m = tile_m[(from + i) as usize];
                sf += f;
                sm += m;
                sff += f * f;
                smm += m * m;
                sfm += f * m;
            }
            let quantity = comptime!((rows * TILE_X) as usize);
            along_x[item as usize] = sf;
            along_x[item as usize + quantity] = sm;
            along_x[item as usize + 2usize * quantity] = sff;
            along_x[item as usize + 3usize * quantity] = smm;
            along_x[item as usize + 4usize * quantity] = sfm;
            item += UNITS;
        }
        sync_cube();
        let f = scale * push(&mut ring, sum_along_y(&along_x, 0u32, radius), 0u32, window);
        let m = scale * push(&mut ring, sum_along_y(&along_x, 1u32, radius), 1u32, window);
        let ff = scale * push(&mut ring, sum_along_y(&along_x, 2u32, radius), 2u32, window);
        let mm = scale * push(&mut ring, sum_along_y(&along_x, 3u32, radius), 3u32, window);
        let fm = scale * push(&mut ring, sum_along_y(&along_x, 4u32, radius), 4u32, window);

        let centre = z - radius as i32;
        if centre >= start && column.inside {
            let exists = centre >= 0 && centre < size.d as i32;
            let a = fm - f * m;
            let b = max(ff - f * f, 0.0f32);
            let c = max(mm - m * m, 0.0f32);
            let d = b * c + slab.epsilon;
            let ratio = a / d;
            // Rounding may push A^2 past B C by a few ulps.
            let n = min(a * ratio, 1.0f32);
            let gamma = select(exists, 2.0f32 * ratio, 0.0f32);
            let to_m = gamma * ratio * b;
            let to_f = gamma * ratio * c;
            let counts = centre >= slab.counted && centre < slab.counted + slab.count as i32;
            if exists && counts {
                value += n;
            }
            let voxel = column.y as usize * size.w as usize + column.x as usize;
            if comptime!(plan.approximate) {
                if exists && counts {
                    let at = volume + centre as usize * area + voxel;
                    let own_f = fixed[at] - centre_f - f;
                    let own_m = moved[at] - centre_m - m;
                    if comptime!(plan.to_moved) {
                        to_moved[at] = gamma * own_f - to_m * own_m;
                    }
                    if comptime!(plan.to_fixed) {
                        to_fixed[at] = gamma * own_m - to_f * own_f;
                    }
                }
            } else if comptime!(plan.to_moved || plan.to_fixed) {
                let field = slab.planes as usize * area;
                let at = (centre - slab.first) as usize * area + voxel;
                fields[at] = gamma;
                if comptime!(plan.to_moved) {
                    fields[at + field] = to_m;
                    fields[at + 2usize * field] = to_m * m - gamma * f;
                }
                if comptime!(plan.to_fixed) {
                    let skip = comptime!(if plan.to_moved { 3usize } else { 1usize });
                    fields[at + skip * field] = to_f;
                    fields[at + (skip + 1usize) * field] = to_f * f - gamma * m;
                }
            }
        }
        z += 1;
    }

    let total = sum_over_cube(value);
    if UNIT_POS == 0 {
        let cube = (CUBE_POS_Z * CUBE_COUNT_Y + CUBE_POS_Y) * CUBE_COUNT_X + CUBE_POS_X;
        partials[(partial_start + cube) as usize] = total;
    }
}

/// `own (w * a) - other (w * b) + w * c`, with `own` the image that the gradient is not for, and
/// `a`, `b`, `c` the gamma fields number 0, `skip`, `skip + 1`.
#[cube(launch_unchecked, address_type = "dynamic")]
fn gradient_kernel(
    fields: &[f32],
    target: &[f32],
    partner: &[f32],
    centres: &[f32],
    gradient: &mut [f32],
    target_centre: u32,
    partner_centre: u32,
    slab: Slab,
    #[comptime] radius: u32,
    #[comptime] skip: u32,
) {
    let window = comptime!(2 * radius + 1);
    let width = comptime!(TILE_X + 2 * radius);
    let rows = comptime!(TILE_Y + 2 * radius);
    let mut tile_a = Shared::<[f32]>::new_slice(comptime!((width * rows) as usize));
    let mut tile_b = Shared::<[f32]>::new_slice(comptime!((width * rows) as usize));
    let mut tile_c = Shared::<[f32]>::new_slice(comptime!((width * rows) as usize));
    let mut along_x = Shared::<[f32]>::new_slice(comptime!((3 * rows * TILE_X) as usize));
    let mut ring = Array::<f32>::new(comptime!((3 * window) as usize));
    #[unroll]
    for i in 0..3 * window {
        ring[i as usize] = 0.0f32;
    }
    let size = slab.size;
    let area = size.h as usize * size.w as usize;
    let field = slab.planes as usize * area;
    let volume = slab.volume as usize * size.d as usize * area;
    let centre_t = centres[target_centre as usize];
    let centre_p = centres[partner_centre as usize];
    let column = column(&size);
    let scale = 1.0f32 / comptime!((window * window * window) as f32);
    let start = slab.counted + (CUBE_POS_Z * slab.chunk) as i32;
    let stop = min(start + slab.chunk as i32, slab.counted + slab.count as i32);

    let mut z = start - radius as i32;
    while z < stop + radius as i32 {
        let base = (z - slab.first) as usize * area;
        sync_cube();
        load_tile(fields, &mut tile_a, base, &size, true, 0.0f32, radius);
        load_tile(fields, &mut tile_b, base + skip as usize * field, &size, true, 0.0f32, radius);
        let third = base + comptime!((skip + 1) as usize) * field;
        load_tile(fields, &mut tile_c, third, &size, true, 0.0f32, radius);
        sync_cube();
        let mut item = UNIT_POS;
        while item < rows * TILE_X {
            let from = (item / TILE_X) * width + item % TILE_X;
            let mut sa = 0.0f32;
            let mut sb = 0.0f32;
            let mut sc = 0.0f32;
            #[unroll]
            for i in 0..window {
                sa += tile_a[(from + i) as usize];
                sb += tile_b[(from + i) as usize];
                sc += tile_c[(from + i) as usize];
            }
            let quantity = comptime!((rows * TILE_X) as usize);
            along_x[item as usize] = sa;
            along_x[item as usize + quantity] = sb;
            along_x[item as usize + 2usize * quantity] = sc;
            item += UNITS;
        }
        sync_cube();
        let a = scale * push(&mut ring, sum_along_y(&along_x, 0u32, radius), 0u32, window);
        let b = scale * push(&mut ring, sum_along_y(&along_x, 1u32, radius), 1u32, window);
        let c = scale * push(&mut ring, sum_along_y(&along_x, 2u32, radius), 2u32, window);
        let centre = z - radius as i32;
        if centre >= start && column.inside {
            let voxel = column.y as usize * size.w as usize + column.x as usize;
            let at = volume + centre as usize * area + voxel;
            gradient[at] = (partner[at] - centre_p) * a - (target[at] - centre_t) * b + c;
        }
        z += 1;
    }
}

/// A call, with its operands made contiguous.
struct Call {
    moved: CubeTensor,
    fixed: CubeTensor,
    /// The centring constants: of every moved volume, then of every fixed one.
    centres: CubeTensor,
    options: LnccOptions,
    plan: Plan,
}

impl Call {
    fn new(moved: CubeTensor, fixed: CubeTensor, options: LnccOptions, needs: [bool; 2]) -> Self {
        assert_f32("lncc", &[&moved, &fixed]);
        let (moved, fixed) = (into_contiguous(moved), into_contiguous(fixed));
        let plan = Plan {
            radius: options.window as u32 / 2,
            to_moved: needs[0],
            to_fixed: needs[1],
            approximate: options.gradient == GradientMode::AntsApproximate,
        };
        let centres = centres(&moved, &fixed);
        Self { moved, fixed, centres, options, plan }
    }

    fn size(&self) -> [usize; 3] {
        let shape = self.moved.meta.shape();
        [shape[2], shape[3], shape[4]]
    }

    fn volumes(&self) -> usize {
        volumes(&self.moved)
    }

    /// Planes per slab, and the margin that the gamma fields need around it.
    fn slab(&self) -> (usize, usize) {
        let [d, h, w] = self.size();
        match self.plan.fields() {
            0 => (d, 0),
            _ => ((SLAB_VOXELS / (h * w)).clamp(1, d), self.plan.radius as usize),
        }
    }

    /// Planes that one cube marches over: few enough to fill the GPU, many enough that the `2r`
    /// planes that it reads on top stay a small part.
    fn chunk(&self, planes: usize) -> usize {
        let [_, h, w] = self.size();
        let tiles = w.div_ceil(TILE_X as usize) * h.div_ceil(TILE_Y as usize);
        let chunks = CUBES_WANTED.div_ceil(tiles);
        planes.div_ceil(chunks).max(2 * self.plan.radius as usize).min(planes)
    }

    fn cubes(&self, planes: usize) -> (u32, u32, u32) {
        let [_, h, w] = self.size();
        let chunks = planes.div_ceil(self.chunk(planes));
        (w.div_ceil(TILE_X as usize) as u32, h.div_ceil(TILE_Y as usize) as u32, chunks as u32)
    }

    /// The launch argument for planes `[first, last)` with `margin` more on either side.
    fn launch_slab(
        &self,
        volume: usize,
        range: (usize, usize),
        margin: usize,
        chunk: usize,
    ) -> SlabLaunch {
        SlabLaunch::new(
            extent(self.size()),
            volume as u32,
            range.0 as i32 - margin as i32,
            (range.1 - range.0 + 2 * margin) as u32,
            range.0 as i32,
            (range.1 - range.0) as u32,
            chunk as u32,
            self.options.epsilon as f32,
        )
    }

    /// `sum n` and the gradients, slab by slab.
    fn run(self) -> (CubeTensor, CubeTensor, CubeTensor) {
        let [d, h, w] = self.size();
        let (thickness, margin) = self.slab();
        let slabs: Vec<(usize, usize)> =
            (0..d).step_by(thickness).map(|z| (z, (z + thickness).min(d))).collect();
        let per_launch = |&(start, stop): &(usize, usize)| {
            let (x, y, z) = self.cubes(stop - start + 2 * margin);
            (x * y * z) as usize
        };
        let per_volume: usize = slabs.iter().map(per_launch).sum();
        let partials = empty(&self.moved, [self.volumes() * per_volume]);
        let gradient = |wanted: bool| match wanted {
            true => empty(&self.moved, self.moved.meta.shape().clone()),
            false => zeros(&self.moved, [1]),
        };
        let (to_moved, to_fixed) = (gradient(self.plan.to_moved), gradient(self.plan.to_fixed));
        let planes = if margin == 0 { 0 } else { thickness + 2 * margin };
        let fields = empty(&self.moved, [(self.plan.fields() * planes * h * w).max(1)]);
        let mut done = 0;
        for volume in 0..self.volumes() {
            for slab in &slabs {
                let outputs = [&fields, &to_moved, &to_fixed, &partials];
                self.windows(volume, *slab, margin, outputs, done);
                done += per_launch(slab);
                if margin > 0 {
                    self.gradients(volume, *slab, margin, [&fields, &to_moved, &to_fixed]);
                }
            }
        }
        (sum_rows(&partials, 1, done, 1.0), to_moved, to_fixed)
    }

    fn windows(
        &self,
        volume: usize,
        slab: (usize, usize),
        margin: usize,
        [fields, to_moved, to_fixed, partials]: [&CubeTensor; 4],
        partial_start: usize,
    ) {
        let planes = slab.1 - slab.0 + 2 * margin;
        let (x, y, z) = self.cubes(planes);
        unsafe {
            windows_kernel::launch_unchecked(
                &self.moved.client,
                CubeCount::Static(x, y, z),
                TILE.into(),
                address(&[&self.moved, fields]),
                buffer(&self.moved),
                buffer(&self.fixed),
                buffer(&self.centres),
                buffer(fields),
                buffer(to_moved),
                buffer(to_fixed),
                buffer(partials),
                self.volumes() as u32,
                partial_start as u32,
                self.launch_slab(volume, slab, margin, self.chunk(planes)),
                self.plan,
            );
        }
    }

    fn gradients(
        &self,
        volume: usize,
        slab: (usize, usize),
        margin: usize,
        [fields, to_moved, to_fixed]: [&CubeTensor; 3],
    ) {
        let planes = slab.1 - slab.0;
        let (x, y, z) = self.cubes(planes);
        let (centre_m, centre_f) = (volume as u32, (self.volumes() + volume) as u32);
        let second = if self.plan.to_moved { 3 } else { 1 };
        let targets = [
            (self.plan.to_moved, &self.moved, &self.fixed, to_moved, centre_m, centre_f, 1),
            (self.plan.to_fixed, &self.fixed, &self.moved, to_fixed, centre_f, centre_m, second),
        ];
        for (wanted, target, partner, gradient, target_centre, partner_centre, skip) in targets {
            if !wanted {
                continue;
            }
            unsafe {
                gradient_kernel::launch_unchecked(
                    &self.moved.client,
                    CubeCount::Static(x, y, z),
                    TILE.into(),
                    address(&[&self.moved, fields]),
                    buffer(fields),
                    buffer(target),
                    buffer(partner),
                    buffer(&self.centres),
                    buffer(gradient),
                    target_centre,
                    partner_centre,
                    self.launch_slab(volume, slab, margin, self.chunk(planes)),
                    self.plan.radius,
                    skip,
                );
            }
        }
    }
}

fn volumes(image: &CubeTensor) -> usize {
    image.meta.shape()[0] * image.meta.shape()[1]
}

/// The centring constants, `[2 volumes]`.
fn centres(moved: &CubeTensor, fixed: &CubeTensor) -> CubeTensor {
    let shape = moved.meta.shape();
    let size = [shape[2], shape[3], shape[4]];
    let of = |image: &CubeTensor| {
        let output = empty(image, [volumes(image)]);
        unsafe {
            centre_kernel::launch_unchecked(
                &image.client,
                CubeCount::Static(volumes(image) as u32, 1, 1),
                CubeDim::new_1d(UNITS),
                address(&[image]),
                buffer(image),
                buffer(&output),
                extent(size),
            );
        }
        output
    };
    use burn::backend::ops::FloatTensorOps;
    CubeBackend::float_cat(vec![of(moved), of(fixed)], 0)
}

impl LnccOps for CubeBackend {
    fn lncc_3d(
        moved: FloatTensor<Self>,
        fixed: FloatTensor<Self>,
        options: LnccOptions,
    ) -> FloatTensor<Self> {
        Call::new(moved, fixed, options, [false, false]).run().0
    }

    fn lncc_3d_with_gradient(
        moved: FloatTensor<Self>,
        fixed: FloatTensor<Self>,
        options: LnccOptions,
        needs: [bool; 2],
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        Call::new(moved, fixed, options, needs).run()
    }
}
