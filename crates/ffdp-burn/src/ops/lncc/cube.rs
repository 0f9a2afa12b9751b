//! LNCC on the GPU: two marches along z per slab of planes.
//!
//! `windows_kernel` reads the two images, sums the five products over windows (see `tile.rs`) and writes
//! the gamma fields; `gradient_kernel` sums those in the same way and writes the gradient. The gamma
//! fields live in a ring of planes, one slab and the margin of the next, so every window is summed
//! once and little memory is taken.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::features::Plane;
use cubecl::prelude::*;

use super::tile::{
    LANES, SPAN, Tile, advance, fetch, place, run, slots, store_rows, subtract, sum_column,
    sum_over_tile, sum_rows as sum_rows_of_tile, window_sums,
};
use super::{GradientMode, LnccCall, LnccOps, LnccOptions};
use crate::ops::launch::{
    Extent, UNITS, address, assert_f32, buffer, empty, extent, sum_over_cube, sum_rows,
};

/// Voxels per slab of the gamma fields, about: bounds the extra memory (three to five floats
/// each) while a slab still fills a large GPU.
const SLAB_VOXELS: usize = 1 << 24;

/// What is fixed when a kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Plan {
    /// Of the windows' march, and of the gradient's.
    windows: Tile,
    gradient: Tile,
    /// Values that a load takes from the images and from the gamma fields, 1 or 4.
    vector: u32,
    /// Whether gamma fields are written for the moved and for the fixed image.
    to_moved: bool,
    to_fixed: bool,
    /// Whether the gradients are written at once, without the second march.
    approximate: bool,
    /// Whether voxels have weights.
    weighted: bool,
}

impl Plan {
    fn new(image: &CubeTensor, options: &LnccOptions, weighted: bool, needs: [bool; 2]) -> Self {
        let properties = image.client.properties();
        let hardware = &properties.hardware;
        // Rows of 16 units must lie within planes of units.
        let shuffles = properties.features.plane.contains(Plane::Ops)
            && hardware.plane_size_min.is_multiple_of(LANES);
        let radius = options.window as u32 / 2;
        let tile = |quantities, held| {
            Tile::new(radius, options.weights, quantities, held, shuffles, hardware)
        };
        let approximate = options.gradient == GradientMode::AntsApproximate;
        let [to_moved, to_fixed] = needs;
        // The approximate gradient and the weights are also read voxel by voxel.
        let whole = image.meta.shape()[4].is_multiple_of(SPAN as usize);
        let vector = if whole && !approximate && !weighted { SPAN } else { 1 };
        let windows = if weighted { tile(6, 3) } else { tile(5, 2) };
        let gradient = tile(3, 3);
        Self { windows, gradient, vector, to_moved, to_fixed, approximate, weighted }
    }

    /// Sums over windows: the five products and, if voxels have weights, those.
    fn quantities(&self) -> u32 {
        if self.weighted { 6 } else { 5 }
    }

    fn fields(&self) -> usize {
        match (self.approximate, self.to_moved, self.to_fixed) {
            (true, ..) | (_, false, false) => 0,
            (_, true, true) => 5,
            _ => 3,
        }
    }
}

/// Where a launch works.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Slab {
    size: Extent,
    volume: u32,
    /// Planes `[first, first + planes)` of windows or of the gradient.
    first: i32,
    planes: u32,
    /// Planes of the ring that holds the gamma fields.
    ring: u32,
    /// Planes that one cube marches over.
    chunk: u32,
    epsilon: f32,
}

/// Mean of at most 4096 voxels spread over each volume: the constant that images are read
/// relative to. One cube a volume, first those of the moved image.
#[cube(launch_unchecked, address_type = "dynamic")]
fn centre_kernel(moved: &[f32], fixed: &[f32], centres: &mut [f32], size: Extent) {
    let volumes = CUBE_COUNT_X / 2;
    let len = size.d as usize * size.h as usize * size.w as usize;
    let start = (CUBE_POS_X % volumes) as usize * len;
    let step = len.div_ceil(4096usize);
    let mut sum = 0.0f32;
    let mut voxel = UNIT_POS as usize * step;
    while voxel < len {
        if CUBE_POS_X < volumes {
            sum += moved[start + voxel];
        } else {
            sum += fixed[start + voxel];
        }
        voxel += UNITS as usize * step;
    }
    let total = sum_over_cube(sum);
    if UNIT_POS == 0 {
        let samples = len.div_ceil(step);
        centres[CUBE_POS_X as usize] = total / f32::cast_from(samples);
    }
}

/// The planes of windows that a cube marches over.
#[derive(CubeType, Clone, Copy)]
struct March {
    start: i32,
    stop: i32,
}

#[cube]
fn march(slab: &Slab) -> March {
    let start = slab.first + (CUBE_POS_Z * slab.chunk) as i32;
    March { start, stop: min(start + slab.chunk as i32, slab.first + slab.planes as i32) }
}

/// Where plane `z` of a volume of `depth` planes begins; the first plane for those outside.
#[cube]
fn plane_base(volume: usize, z: i32, depth: i32, area: usize) -> usize {
    volume + select(z >= 0 && z < depth, z, 0i32) as usize * area
}

/// Where the gamma fields of plane `z` begin in their ring.
#[cube]
fn ring_base(z: i32, slab: &Slab, area: usize, #[comptime] radius: u32) -> usize {
    ((z + comptime!(radius as i32)) as u32 % slab.ring) as usize * area
}

/// Product number `k` of the two images: `F`, `M`, `F^2`, `M^2`, `F M`, 1.
#[cube]
fn product(f: f32, m: f32, #[comptime] k: u32) -> f32 {
    let mut product = f;
    if comptime!(k == 1) {
        product = m;
    } else if comptime!(k == 2) {
        product = f * f;
    } else if comptime!(k == 3) {
        product = m * m;
    } else if comptime!(k == 4) {
        product = f * m;
    } else if comptime!(k == 5) {
        product = 1.0f32.runtime();
    }
    product
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn windows_kernel<N: Size>(
    moved: &[Vector<f32, N>],
    fixed: &[Vector<f32, N>],
    weights: &[Vector<f32, N>],
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
    let tile = comptime!(plan.windows);
    let (held, known) = comptime!((tile.held(), tile.window() - 1));
    let (planes, count, quantities) = comptime!((tile.planes, tile.run(), plan.quantities()));
    let depth = slab.size.d as i32;
    let area = slab.size.h as usize * slab.size.w as usize;
    let volume = slab.volume as usize * slab.size.d as usize * area;
    let centre_m = centres[slab.volume as usize];
    let centre_f = centres[(volumes + slab.volume) as usize];
    let march = march(&slab);
    let place = place(&slab.size, tile);
    let run = run(&slab.size, tile);
    let slots = slots();
    let mut shared = Shared::<[f32]>::new_slice(comptime!(tile.shared_len(quantities)));
    let mut f = Array::<f32>::new(comptime!((held * SPAN) as usize));
    let mut m = Array::<f32>::new(comptime!((held * SPAN) as usize));
    let mut u = Array::<f32>::new(comptime!((held * SPAN) as usize));
    let mut value = 0.0f32;
    let field = slab.ring as usize * area;

    #[unroll]
    for i in 0..held {
        let z = march.start + comptime!(i as i32 - tile.radius as i32);
        let base = plane_base(volume, z, depth, area);
        fetch(fixed, base, z >= 0 && z < depth, &place, &mut f, i, plan.vector);
        fetch(moved, base, z >= 0 && z < depth, &place, &mut m, i, plan.vector);
        if comptime!(plan.weighted) {
            fetch(weights, base, z >= 0 && z < depth, &place, &mut u, i, plan.vector);
        }
    }
    subtract(&mut f, centre_f, 0u32, known);
    subtract(&mut m, centre_m, 0u32, known);
    let mut start = 0u32;
    let mut z = march.start;
    while z < march.stop {
        // Only now, so that a step does not wait for what it has just asked for.
        subtract(&mut f, centre_f, known, held);
        subtract(&mut m, centre_m, known, held);
        if comptime!(tile.buffers == 1) {
            sync_cube();
        }
        #[unroll]
        for k in 0..quantities {
            let mut along_z = Array::<f32>::new(comptime!((planes * SPAN) as usize));
            #[unroll]
            for j in 0..SPAN {
                let mut values = Array::<f32>::new(comptime!(held as usize));
                let mut sums = Array::<f32>::new(comptime!(planes as usize));
                #[unroll]
                for i in 0..held {
                    let at = comptime!((i * SPAN + j) as usize);
                    values[i as usize] = product(f[at], m[at], k);
                    if comptime!(plan.weighted) {
                        values[i as usize] *= u[at];
                    }
                }
                window_sums(&values, &mut sums, 0u32, planes, tile);
                #[unroll]
                for p in 0..planes {
                    along_z[comptime!((p * SPAN + j) as usize)] = sums[p as usize];
                }
            }
            store_rows(&along_z, &mut shared, &slots, start, k, tile);
        }
        if comptime!(!tile.shuffles) {
            sum_rows_of_tile(&mut shared, &slots, start, quantities, tile);
        }
        advance(&mut f, tile);
        advance(&mut m, tile);
        if comptime!(plan.weighted) {
            advance(&mut u, tile);
        }
        #[unroll]
        for p in 0..planes {
            let ahead = z + comptime!((planes + p + tile.radius) as i32);
            let inside = ahead >= 0 && ahead < depth && z + comptime!(planes as i32) < march.stop;
            let base = plane_base(volume, ahead, depth, area);
            fetch(fixed, base, inside, &place, &mut f, comptime!(known + p), plan.vector);
            fetch(moved, base, inside, &place, &mut m, comptime!(known + p), plan.vector);
            if comptime!(plan.weighted) {
                fetch(weights, base, inside, &place, &mut u, comptime!(known + p), plan.vector);
            }
        }
        sync_cube();
        let centre = z + run.plane as i32;
        if run.count > 0 && centre < march.stop {
            let mut sums = Array::<f32>::new(comptime!((quantities * count) as usize));
            #[unroll]
            for k in 0..quantities {
                sum_column(&shared, &run, start, &mut sums, k, tile);
            }
            let exists = centre >= 0 && centre < depth;
            let ring = ring_base(centre, &slab, area, tile.radius);
            let plane = plane_base(volume, centre, depth, area);
            #[unroll]
            for i in 0..count {
                if i < run.count {
                    let voxel = (run.offset + i * slab.size.w) as usize;
                    let at = plane + voxel;
                    let mut scale = comptime!(tile.scale()).runtime();
                    // How much the window counts, and that over the weight of its voxels.
                    let mut own = 1.0f32.runtime();
                    let mut share = 1.0f32.runtime();
                    if comptime!(plan.weighted) {
                        own = weights[at].extract(0usize);
                        let total = sums[comptime!((5 * count + i) as usize)];
                        scale = select(total > 0.0f32, 1.0f32 / total, 0.0f32);
                        share = own * scale / comptime!(tile.scale());
                    }
                    if comptime!(plan.approximate) {
                        // The windows that reach the voxel add up to its own.
                        share = own;
                    }
                    let mean_f = sums[i as usize] * scale;
                    let mean_m = sums[comptime!((count + i) as usize)] * scale;
                    let mean_ff = sums[comptime!((2 * count + i) as usize)] * scale;
                    let mean_mm = sums[comptime!((3 * count + i) as usize)] * scale;
                    let mean_fm = sums[comptime!((4 * count + i) as usize)] * scale;
                    let a = mean_fm - mean_f * mean_m;
                    let b = max(mean_ff - mean_f * mean_f, 0.0f32);
                    let c = max(mean_mm - mean_m * mean_m, 0.0f32);
                    let d = b * c + slab.epsilon;
                    // A / D; the root to 2 ulp is several times cheaper than a division.
                    let root = d.inverse_sqrt();
                    let ratio = select(exists, a * root * root, 0.0f32);
                    // Rounding may push A^2 past B C by a few ulps.
                    value += own * min(a * ratio, 1.0f32);
                    let gamma = share * (2.0f32 * ratio);
                    let to_m = gamma * (ratio * b);
                    let to_f = gamma * (ratio * c);
                    if comptime!(plan.approximate) {
                        if exists {
                            let own_f = fixed[at].extract(0usize) - centre_f - mean_f;
                            let own_m = moved[at].extract(0usize) - centre_m - mean_m;
                            if comptime!(plan.to_moved) {
                                to_moved[at] = gamma * own_f - to_m * own_m;
                            }
                            if comptime!(plan.to_fixed) {
                                to_fixed[at] = gamma * own_m - to_f * own_f;
                            }
                        }
                    } else if comptime!(plan.to_moved || plan.to_fixed) {
                        let at = ring + voxel;
                        fields[at] = gamma;
                        if comptime!(plan.to_moved) {
                            fields[at + field] = to_m;
                            fields[at + 2usize * field] = to_m * mean_m - gamma * mean_f;
                        }
                        if comptime!(plan.to_fixed) {
                            let skip = comptime!(if plan.to_moved { 3usize } else { 1usize });
                            fields[at + skip * field] = to_f;
                            fields[at + (skip + 1usize) * field] = to_f * mean_f - gamma * mean_m;
                        }
                    }
                }
            }
        }
        if comptime!(tile.buffers == 2) {
            start = comptime!(tile.buffer_len(quantities)) - start;
        }
        z += comptime!(planes as i32);
    }

    let total = sum_over_tile(&mut shared, value, tile);
    if UNIT_POS == 0 {
        let cube = (CUBE_POS_Z * CUBE_COUNT_Y + CUBE_POS_Y) * CUBE_COUNT_X + CUBE_POS_X;
        partials[(partial_start + cube) as usize] = total;
    }
}

/// `partner (w * a) - target (w * b) + w * c`, the gradient to the target, with `a`, `b`, `c` the gamma
/// fields number 0, `skip`, `skip + 1`.
#[cube(launch_unchecked, address_type = "dynamic")]
fn gradient_kernel<N: Size>(
    fields: &[Vector<f32, N>],
    target: &[f32],
    partner: &[f32],
    weights: &[f32],
    centres: &[f32],
    gradient: &mut [f32],
    target_centre: u32,
    partner_centre: u32,
    slab: Slab,
    #[comptime] plan: Plan,
    #[comptime] skip: u32,
) {
    let tile = comptime!(plan.gradient);
    let (held, known) = comptime!((tile.held(), tile.window() - 1));
    let (planes, count) = comptime!((tile.planes, tile.run()));
    let area = slab.size.h as usize * slab.size.w as usize;
    let field = slab.ring as usize * area;
    let volume = slab.volume as usize * slab.size.d as usize * area;
    let centre_t = centres[target_centre as usize];
    let centre_p = centres[partner_centre as usize];
    let march = march(&slab);
    let place = place(&slab.size, tile);
    let run = run(&slab.size, tile);
    let slots = slots();
    let second = skip as usize * field;
    let third = comptime!((skip + 1) as usize) * field;
    let mut shared = Shared::<[f32]>::new_slice(comptime!(tile.shared_len(3)));
    let mut a = Array::<f32>::new(comptime!((held * SPAN) as usize));
    let mut b = Array::<f32>::new(comptime!((held * SPAN) as usize));
    let mut c = Array::<f32>::new(comptime!((held * SPAN) as usize));

    #[unroll]
    for i in 0..held {
        let z = march.start + comptime!(i as i32 - tile.radius as i32);
        let needed = z < march.stop + comptime!(tile.radius as i32);
        let base = ring_base(z, &slab, area, tile.radius);
        fetch(fields, base, needed, &place, &mut a, i, plan.vector);
        fetch(fields, base + second, needed, &place, &mut b, i, plan.vector);
        fetch(fields, base + third, needed, &place, &mut c, i, plan.vector);
    }
    let mut start = 0u32;
    let mut z = march.start;
    while z < march.stop {
        if comptime!(tile.buffers == 1) {
            sync_cube();
        }
        #[unroll]
        for k in 0..3u32 {
            let mut along_z = Array::<f32>::new(comptime!((planes * SPAN) as usize));
            #[unroll]
            for j in 0..SPAN {
                let mut values = Array::<f32>::new(comptime!(held as usize));
                let mut sums = Array::<f32>::new(comptime!(planes as usize));
                #[unroll]
                for i in 0..held {
                    let at = comptime!((i * SPAN + j) as usize);
                    if comptime!(k == 0) {
                        values[i as usize] = a[at];
                    } else if comptime!(k == 1) {
                        values[i as usize] = b[at];
                    } else {
                        values[i as usize] = c[at];
                    }
                }
                window_sums(&values, &mut sums, 0u32, planes, tile);
                #[unroll]
                for p in 0..planes {
                    along_z[comptime!((p * SPAN + j) as usize)] = sums[p as usize];
                }
            }
            store_rows(&along_z, &mut shared, &slots, start, k, tile);
        }
        if comptime!(!tile.shuffles) {
            sum_rows_of_tile(&mut shared, &slots, start, 3u32, tile);
        }
        advance(&mut a, tile);
        advance(&mut b, tile);
        advance(&mut c, tile);
        #[unroll]
        for p in 0..planes {
            let ahead = z + comptime!((planes + p + tile.radius) as i32);
            let needed = ahead < march.stop + comptime!(tile.radius as i32);
            let base = ring_base(ahead, &slab, area, tile.radius);
            fetch(fields, base, needed, &place, &mut a, comptime!(known + p), plan.vector);
            fetch(fields, base + second, needed, &place, &mut b, comptime!(known + p), plan.vector);
            fetch(fields, base + third, needed, &place, &mut c, comptime!(known + p), plan.vector);
        }
        sync_cube();
        let centre = z + run.plane as i32;
        if run.count > 0 && centre < march.stop {
            let mut sums = Array::<f32>::new(comptime!((3 * count) as usize));
            #[unroll]
            for k in 0..3u32 {
                sum_column(&shared, &run, start, &mut sums, k, tile);
            }
            let plane = volume + centre as usize * area;
            #[unroll]
            for i in 0..count {
                if i < run.count {
                    let at = plane + (run.offset + i * slab.size.w) as usize;
                    let to_partner = (partner[at] - centre_p) * sums[i as usize];
                    let to_target = (target[at] - centre_t) * sums[comptime!((count + i) as usize)];
                    let rest = sums[comptime!((2 * count + i) as usize)];
                    let mut slope = comptime!(tile.scale()) * (to_partner - to_target + rest);
                    if comptime!(plan.weighted) {
                        slope *= weights[at];
                    }
                    gradient[at] = slope;
                }
            }
        }
        if comptime!(tile.buffers == 2) {
            start = comptime!(tile.buffer_len(3)) - start;
        }
        z += comptime!(planes as i32);
    }
}

/// A call, with its operands made contiguous.
struct Call {
    moved: CubeTensor,
    fixed: CubeTensor,
    /// Of the voxels; a placeholder if they have none.
    weights: CubeTensor,
    /// The centring constants: of every moved volume, then of every fixed one.
    centres: CubeTensor,
    options: LnccOptions,
    plan: Plan,
}

/// The launches of one march: a tile over planes `[first, first + planes)`.
struct Grid {
    first: i32,
    planes: usize,
    chunk: usize,
    cubes: [usize; 3],
}

impl Grid {
    /// Shares the planes out in marches such that the last wave of cubes is full, but not so short
    /// that their margins count.
    fn new(
        tile: Tile,
        [_, h, w]: [usize; 3],
        first: i32,
        planes: usize,
        image: &CubeTensor,
    ) -> Self {
        let hardware = &image.client.properties().hardware;
        let processors = hardware.num_streaming_multiprocessors.unwrap_or(32) as usize;
        let x = w.div_ceil(tile.columns() as usize);
        let y = h.div_ceil(tile.height() as usize);
        let step = tile.planes as usize;
        // Loading a plane of the margin costs about a third of a plane of windows.
        let margin = step + 2 * tile.radius as usize / 3;
        let time = |chunk: usize| {
            let waves = (x * y * planes.div_ceil(chunk)).div_ceil(processors);
            waves * (chunk + margin)
        };
        let chunks = (1..=planes).map(|parts| planes.div_ceil(parts).next_multiple_of(step));
        let chunk = chunks.min_by_key(|chunk| time(*chunk)).expect("there is a plane");
        Self { first, planes, chunk, cubes: [x, y, planes.div_ceil(chunk)] }
    }

    fn count(&self) -> CubeCount {
        let [x, y, z] = self.cubes.map(|cubes| cubes as u32);
        CubeCount::Static(x, y, z)
    }

    fn len(&self) -> usize {
        self.cubes.iter().product()
    }
}

impl Call {
    fn new([moved, fixed, weights]: [CubeTensor; 3], call: LnccCall, needs: [bool; 2]) -> Self {
        let LnccCall { options, weighted } = call;
        assert_f32("lncc", &[&moved, &fixed, &weights]);
        let [moved, fixed] = [moved, fixed].map(into_contiguous);
        let weights = if weighted { into_contiguous(weights) } else { empty(&moved, [4]) };
        let plan = Plan::new(&moved, &options, weighted, needs);
        let centres = centres(&moved, &fixed);
        Self { moved, fixed, weights, centres, options, plan }
    }

    fn size(&self) -> [usize; 3] {
        let shape = self.moved.meta.shape();
        [shape[2], shape[3], shape[4]]
    }

    fn volumes(&self) -> usize {
        volumes(&self.moved)
    }

    /// `sum n` and the gradients, slab by slab.
    fn run(self) -> (CubeTensor, CubeTensor, CubeTensor) {
        let [d, h, w] = self.size();
        let radius = self.plan.windows.radius as usize;
        let (thickness, margin) = match self.plan.fields() {
            0 => (d, 0),
            _ => ((SLAB_VOXELS / (h * w)).clamp(1, d), radius),
        };
        let ring = thickness + 2 * margin;
        let grid = |tile, first: usize, last: usize, shift: usize| {
            Grid::new(tile, self.size(), first as i32 - shift as i32, last - first, &self.moved)
        };
        // Windows of the planes that the gradient of a slab reaches and that are not known yet.
        let slabs: Vec<(Grid, Grid)> = (0..d)
            .step_by(thickness)
            .map(|start| {
                let stop = (start + thickness).min(d);
                let known = if start == 0 { 0 } else { start + 2 * margin };
                let windows = grid(self.plan.windows, known, stop + 2 * margin, margin);
                (windows, grid(self.plan.gradient, start, stop, 0))
            })
            .collect();
        let per_volume: usize = slabs.iter().map(|(windows, _)| windows.len()).sum();
        let partials = empty(&self.moved, [self.volumes() * per_volume]);
        let gradient = |wanted: bool| match wanted {
            true => empty(&self.moved, self.moved.meta.shape().clone()),
            false => empty(&self.moved, [1]),
        };
        let (to_moved, to_fixed) = (gradient(self.plan.to_moved), gradient(self.plan.to_fixed));
        let fields = empty(&self.moved, [(self.plan.fields() * ring * h * w).max(1)]);
        let mut done = 0;
        for volume in 0..self.volumes() {
            for (windows, gradient) in &slabs {
                let outputs = [&fields, &to_moved, &to_fixed, &partials];
                self.windows(volume, windows, ring, outputs, done);
                done += windows.len();
                if margin > 0 {
                    self.gradients(volume, gradient, ring, [&fields, &to_moved, &to_fixed]);
                }
            }
        }
        (sum_rows(&partials, 1, done, 1.0), to_moved, to_fixed)
    }

    fn slab(&self, volume: usize, grid: &Grid, ring: usize) -> SlabLaunch {
        SlabLaunch::new(
            extent(self.size()),
            volume as u32,
            grid.first,
            grid.planes as u32,
            ring as u32,
            grid.chunk as u32,
            self.options.epsilon as f32,
        )
    }

    fn windows(
        &self,
        volume: usize,
        grid: &Grid,
        ring: usize,
        [fields, to_moved, to_fixed, partials]: [&CubeTensor; 4],
        partial_start: usize,
    ) {
        unsafe {
            windows_kernel::launch_unchecked(
                &self.moved.client,
                grid.count(),
                CubeDim::new_1d(self.plan.windows.units()),
                address(&[&self.moved, fields]),
                self.plan.vector as usize,
                buffer(&self.moved),
                buffer(&self.fixed),
                buffer(&self.weights),
                buffer(&self.centres),
                buffer(fields),
                buffer(to_moved),
                buffer(to_fixed),
                buffer(partials),
                self.volumes() as u32,
                partial_start as u32,
                self.slab(volume, grid, ring),
                self.plan,
            );
        }
    }

    fn gradients(
        &self,
        volume: usize,
        grid: &Grid,
        ring: usize,
        [fields, to_moved, to_fixed]: [&CubeTensor; 3],
    ) {
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
                    grid.count(),
                    CubeDim::new_1d(self.plan.gradient.units()),
                    address(&[&self.moved, fields]),
                    self.plan.vector as usize,
                    buffer(fields),
                    buffer(target),
                    buffer(partner),
                    buffer(&self.weights),
                    buffer(&self.centres),
                    buffer(gradient),
                    target_centre,
                    partner_centre,
                    self.slab(volume, grid, ring),
                    self.plan,
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
    let count = 2 * volumes(moved);
    let centres = empty(moved, [count]);
    unsafe {
        centre_kernel::launch_unchecked(
            &moved.client,
            CubeCount::Static(count as u32, 1, 1),
            CubeDim::new_1d(UNITS),
            address(&[moved]),
            buffer(moved),
            buffer(fixed),
            buffer(&centres),
            extent([shape[2], shape[3], shape[4]]),
        );
    }
    centres
}

impl LnccOps for CubeBackend {
    fn lncc_3d(
        moved: FloatTensor<Self>,
        fixed: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        call: LnccCall,
    ) -> FloatTensor<Self> {
        Call::new([moved, fixed, weights], call, [false, false]).run().0
    }

    fn lncc_3d_with_gradient(
        moved: FloatTensor<Self>,
        fixed: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        call: LnccCall,
        needs: [bool; 2],
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        Call::new([moved, fixed, weights], call, needs).run()
    }
}
