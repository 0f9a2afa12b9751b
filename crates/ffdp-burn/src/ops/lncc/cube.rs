//! LNCC on the GPU: two marches along z per slab of planes.
//!
//! `windows_kernel` reads the two images plane by plane, sums the five products over windows and
//! writes the gamma fields of the slab; `gradient_kernel` box-filters those in the same way (see
//! `tile.rs`) and writes the gradient. The gamma fields of one slab at a time exist.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::tile::{
    TILE_X, Tile, fetch, loads, plane, push_plane, read_quad, store, unit_x, unit_y, window_mean,
    write_quad_sums,
};
use super::{GradientMode, LnccOps, LnccOptions};
use crate::ops::launch::{
    Extent, UNITS, address, assert_f32, buffer, empty, extent, sum_in_tree, sum_over_cube,
    sum_rows, zeros,
};

/// Voxels per slab of the gamma fields, about: bounds the extra memory (three to five floats
/// each) while a slab still fills a large GPU.
const SLAB_VOXELS: usize = 1 << 24;

/// Cubes that a launch should have: a few for each multiprocessor of a large GPU. More would share
/// out the planes in shorter marches, each of which reads `2r` planes on top.
const CUBES_WANTED: usize = 768;

/// What is fixed when a kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Plan {
    tile: Tile,
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

/// The planes that a cube marches over.
#[derive(CubeType, Clone, Copy)]
struct March {
    /// First centre of a window.
    start: i32,
    /// Last plane that a window reaches.
    last: i32,
}

#[cube]
fn march(first: i32, planes: u32, chunk: u32, #[comptime] radius: u32) -> March {
    let start = first + (CUBE_POS_Z * chunk) as i32;
    let stop = min(start + chunk as i32, first + planes as i32);
    March { start, last: stop + comptime!(radius as i32) - 1 }
}

/// Where plane `z` of a volume of `depth` planes begins; the first plane for those outside.
#[cube]
fn plane_base(volume: usize, z: i32, depth: i32, area: usize) -> usize {
    volume + select(z >= 0 && z < depth, z, 0i32) as usize * area
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
    let tile = comptime!(plan.tile);
    let window = comptime!(tile.window());
    let loads = loads(&slab.size, tile);
    let mut plane_m = plane(tile);
    let mut plane_f = plane(tile);
    let mut sums = Shared::<[f32]>::new_slice(comptime!(5 * tile.sums_len() as usize));
    let mut ring = Array::<f32>::new(comptime!(5 * tile.ring_len() as usize));
    let size = slab.size;
    let depth = size.d as i32;
    let area = size.h as usize * size.w as usize;
    let volume = slab.volume as usize * size.d as usize * area;
    let centre_m = centres[slab.volume as usize];
    let centre_f = centres[(volumes + slab.volume) as usize];
    let march = march(slab.first, slab.planes, slab.chunk, tile.radius);
    let mut m = Array::<f32>::new(comptime!((window + 3) as usize));
    let mut f = Array::<f32>::new(comptime!((window + 3) as usize));
    let mut product = Array::<f32>::new(comptime!((window + 3) as usize));
    let mut value = 0.0f32;

    let mut z = march.start - comptime!(tile.radius as i32);
    let base = plane_base(volume, z, depth, area);
    fetch(&mut plane_m, moved, base, z >= 0 && z < depth, &loads, tile);
    fetch(&mut plane_f, fixed, base, z >= 0 && z < depth, &loads, tile);
    while z <= march.last {
        store(&mut plane_m, &loads, centre_m, tile);
        store(&mut plane_f, &loads, centre_f, tile);
        sync_cube();
        let ahead = z + 1;
        let inside = ahead >= 0 && ahead < depth && ahead <= march.last;
        let base = plane_base(volume, ahead, depth, area);
        fetch(&mut plane_m, moved, base, inside, &loads, tile);
        fetch(&mut plane_f, fixed, base, inside, &loads, tile);
        let mut item = UNIT_POS;
        while item < comptime!(tile.quads()) {
            read_quad(&plane_f, item, &mut f, tile);
            read_quad(&plane_m, item, &mut m, tile);
            write_quad_sums(&f, &mut sums, item, 0u32, tile);
            write_quad_sums(&m, &mut sums, item, 1u32, tile);
            #[unroll]
            for i in 0..window + 3 {
                product[i as usize] = f[i as usize] * f[i as usize];
            }
            write_quad_sums(&product, &mut sums, item, 2u32, tile);
            #[unroll]
            for i in 0..window + 3 {
                product[i as usize] = m[i as usize] * m[i as usize];
            }
            write_quad_sums(&product, &mut sums, item, 3u32, tile);
            #[unroll]
            for i in 0..window + 3 {
                product[i as usize] = f[i as usize] * m[i as usize];
            }
            write_quad_sums(&product, &mut sums, item, 4u32, tile);
            item += UNITS;
        }
        sync_cube();
        #[unroll]
        for k in 0..5u32 {
            push_plane(&sums, &mut ring, k, tile);
        }
        let centre = z - comptime!(tile.radius as i32);
        if centre >= march.start {
            let exists = centre >= 0 && centre < depth;
            let counts = centre >= slab.counted && centre < slab.counted + slab.count as i32;
            #[unroll]
            for column in 0..comptime!(tile.columns()) {
                let (x, y) = (unit_x(), unit_y(tile) + column);
                if x < size.w && y < size.h {
                    let mean_f = window_mean(&ring, 0u32, column, tile);
                    let mean_m = window_mean(&ring, 1u32, column, tile);
                    let mean_ff = window_mean(&ring, 2u32, column, tile);
                    let mean_mm = window_mean(&ring, 3u32, column, tile);
                    let mean_fm = window_mean(&ring, 4u32, column, tile);
                    let a = mean_fm - mean_f * mean_m;
                    let b = max(mean_ff - mean_f * mean_f, 0.0f32);
                    let c = max(mean_mm - mean_m * mean_m, 0.0f32);
                    let d = b * c + slab.epsilon;
                    let ratio = a / d;
                    // Rounding may push A^2 past B C by a few ulps.
                    let n = min(a * ratio, 1.0f32);
                    let gamma = select(exists, 2.0f32 * ratio, 0.0f32);
                    let to_m = gamma * ratio * b;
                    let to_f = gamma * ratio * c;
                    if exists && counts {
                        value += n;
                    }
                    let voxel = y as usize * size.w as usize + x as usize;
                    if comptime!(plan.approximate) {
                        if exists && counts {
                            let at = volume + centre as usize * area + voxel;
                            let own_f = fixed[at] - centre_f - mean_f;
                            let own_m = moved[at] - centre_m - mean_m;
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
        z += 1;
    }

    let total = sum_in_tree(&mut sums, value);
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
    #[comptime] tile: Tile,
    #[comptime] skip: u32,
) {
    let window = comptime!(tile.window());
    let loads = loads(&slab.size, tile);
    let mut plane_a = plane(tile);
    let mut plane_b = plane(tile);
    let mut plane_c = plane(tile);
    let mut sums = Shared::<[f32]>::new_slice(comptime!(3 * tile.sums_len() as usize));
    let mut ring = Array::<f32>::new(comptime!(3 * tile.ring_len() as usize));
    let mut values = Array::<f32>::new(comptime!((window + 3) as usize));
    let size = slab.size;
    let area = size.h as usize * size.w as usize;
    let field = slab.planes as usize * area;
    let second = skip as usize * field;
    let third = comptime!((skip + 1) as usize) * field;
    let volume = slab.volume as usize * size.d as usize * area;
    let centre_t = centres[target_centre as usize];
    let centre_p = centres[partner_centre as usize];
    let march = march(slab.counted, slab.count, slab.chunk, tile.radius);

    let mut z = march.start - comptime!(tile.radius as i32);
    let base = (z - slab.first) as usize * area;
    fetch(&mut plane_a, fields, base, true, &loads, tile);
    fetch(&mut plane_b, fields, base + second, true, &loads, tile);
    fetch(&mut plane_c, fields, base + third, true, &loads, tile);
    while z <= march.last {
        store(&mut plane_a, &loads, 0.0f32, tile);
        store(&mut plane_b, &loads, 0.0f32, tile);
        store(&mut plane_c, &loads, 0.0f32, tile);
        sync_cube();
        let ahead = min(z + 1, march.last);
        let base = (ahead - slab.first) as usize * area;
        fetch(&mut plane_a, fields, base, true, &loads, tile);
        fetch(&mut plane_b, fields, base + second, true, &loads, tile);
        fetch(&mut plane_c, fields, base + third, true, &loads, tile);
        let mut item = UNIT_POS;
        while item < comptime!(tile.quads()) {
            read_quad(&plane_a, item, &mut values, tile);
            write_quad_sums(&values, &mut sums, item, 0u32, tile);
            read_quad(&plane_b, item, &mut values, tile);
            write_quad_sums(&values, &mut sums, item, 1u32, tile);
            read_quad(&plane_c, item, &mut values, tile);
            write_quad_sums(&values, &mut sums, item, 2u32, tile);
            item += UNITS;
        }
        sync_cube();
        #[unroll]
        for k in 0..3u32 {
            push_plane(&sums, &mut ring, k, tile);
        }
        let centre = z - comptime!(tile.radius as i32);
        if centre >= march.start {
            #[unroll]
            for column in 0..comptime!(tile.columns()) {
                let (x, y) = (unit_x(), unit_y(tile) + column);
                if x < size.w && y < size.h {
                    let a = window_mean(&ring, 0u32, column, tile);
                    let b = window_mean(&ring, 1u32, column, tile);
                    let c = window_mean(&ring, 2u32, column, tile);
                    let voxel = y as usize * size.w as usize + x as usize;
                    let at = volume + centre as usize * area + voxel;
                    gradient[at] = (partner[at] - centre_p) * a - (target[at] - centre_t) * b + c;
                }
            }
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
        let radius = options.window as u32 / 2;
        let plan = Plan {
            tile: Tile { radius },
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
            _ => ((SLAB_VOXELS / (h * w)).clamp(1, d), self.plan.tile.radius as usize),
        }
    }

    /// Planes that one cube marches over: few enough to fill the GPU, many enough that the `2r`
    /// planes that it reads on top stay a small part.
    fn chunk(&self, planes: usize) -> usize {
        let (x, y) = self.tiles();
        let chunks = CUBES_WANTED.div_ceil(x * y);
        planes.div_ceil(chunks).max(4 * self.plan.tile.radius as usize).min(planes)
    }

    fn tiles(&self) -> (usize, usize) {
        let [_, h, w] = self.size();
        (w.div_ceil(TILE_X as usize), h.div_ceil(self.plan.tile.height() as usize))
    }

    fn cubes(&self, planes: usize) -> (u32, u32, u32) {
        let (x, y) = self.tiles();
        (x as u32, y as u32, planes.div_ceil(self.chunk(planes)) as u32)
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
                CubeDim::new_1d(UNITS),
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
                    CubeDim::new_1d(UNITS),
                    address(&[&self.moved, fields]),
                    buffer(fields),
                    buffer(target),
                    buffer(partner),
                    buffer(&self.centres),
                    buffer(gradient),
                    target_centre,
                    partner_centre,
                    self.launch_slab(volume, slab, margin, self.chunk(planes)),
                    self.plan.tile,
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
