//! The first march: the products of the images over windows, `n`, and the gamma fields.

use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::held::{advance, centred, fetch, place};
use super::plan::{Plan, Slab, march, plane_base};
use super::ring::{further, ring_slot};
use super::sums::{store_rows, sum_column, sum_over_tile, sum_rows, window_sums};
use super::tile::{SPAN, edges, run, slots};

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

/// `sum u n` of the launch's windows, a partial sum a cube, and what the gradient needs of them: the gamma
/// fields or, approximately, the gradient itself.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn windows_kernel<N: Size, M: Float, F: Float>(
    moved: &[Vector<M, N>],
    fixed: &[Vector<F, N>],
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
    #[define(M, F)] _kinds: [ElemType; 2],
) {
    let tile = comptime!(plan.windows);
    let (held, known) = comptime!((tile.held(), tile.window() - 1));
    let (planes, count, quantities) = comptime!((tile.planes, tile.run(), plan.quantities()));
    let depth = slab.size.d as i32;
    let area = slab.size.h as usize * slab.size.w as usize;
    let volume = slab.volume as usize * slab.size.d as usize * area;
    let centre_m = centres[slab.volume as usize];
    let centre_f = centres[(volumes + slab.volume) as usize];
    let unit = comptime!(plan.unit());
    let (slots, edges) = (slots(), edges(tile));
    let mut shared = Shared::<[f32]>::new_slice(comptime!(tile.shared_len(quantities)));
    let mut f = Array::<f32>::new(comptime!((held * SPAN) as usize));
    let mut m = Array::<f32>::new(comptime!((held * SPAN) as usize));
    let mut u = Array::<f32>::new(comptime!((held * SPAN) as usize));
    let mut value = 0.0f32;
    let field = slab.ring as usize * area;
    let mut start = 0u32;
    let mut first = CUBE_POS_X * slab.share;
    let end = min(first + slab.share, slab.total);
    while first < end {
        let march = march(first, end, &slab);
        let place = place(&slab.size, &march, tile);
        let run = run(&slab.size, &march, tile);
        let mut ring = ring_slot(march.start, &slab, tile.radius);
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
        centred(&mut f, centre_f, unit, 0u32, known);
        centred(&mut m, centre_m, unit, 0u32, known);
        let mut z = march.start;
        while z < march.stop {
            // Only now, so that a step does not wait for what it has just asked for.
            centred(&mut f, centre_f, unit, known, held);
            centred(&mut m, centre_m, unit, known, held);
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
                store_rows(&along_z, &mut shared, &slots, &edges, start, k, tile);
            }
            if comptime!(!tile.shuffles) {
                sum_rows(&mut shared, &slots, start, quantities, tile);
            }
            advance(&mut f, tile);
            advance(&mut m, tile);
            if comptime!(plan.weighted) {
                advance(&mut u, tile);
            }
            #[unroll]
            for p in 0..planes {
                let ahead = z + comptime!((planes + p + tile.radius) as i32);
                let inside =
                    ahead >= 0 && ahead < depth && z + comptime!(planes as i32) < march.stop;
                let base = plane_base(volume, ahead, depth, area);
                let slot = comptime!(known + p);
                fetch(fixed, base, inside, &place, &mut f, slot, plan.vector);
                fetch(moved, base, inside, &place, &mut m, slot, plan.vector);
                if comptime!(plan.weighted) {
                    fetch(weights, base, inside, &place, &mut u, slot, plan.vector);
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
                let ring_base = further(ring, run.plane, &slab) as usize * area;
                let plane = plane_base(volume, centre, depth, area);
                #[unroll]
                for i in 0..count {
                    if i < run.count {
                        let voxel = (run.offset + i * slab.size.w) as usize;
                        let at = plane + voxel;
                        // What makes means of the weighted sums, how much the window counts, and that over
                        // the weight of its voxels.
                        let mut scale = 1.0f32.runtime();
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
                        // Sums of products are means; sums of an image are means over the unit.
                        let part_f = mean_f * comptime!(plan.unit_squared());
                        let part_m = mean_m * comptime!(plan.unit_squared());
                        let a = mean_fm - part_f * mean_m + slab.common;
                        let b = max(mean_ff - part_f * mean_f, 0.0f32) + slab.common;
                        let c = max(mean_mm - part_m * mean_m, 0.0f32) + slab.common;
                        let d = b * c + slab.epsilon;
                        // A / D; the root to 2 ulp is several times cheaper than a division.
                        let root = d.inverse_sqrt();
                        let ratio = select(exists, a * root * root, 0.0f32);
                        // Rounding may push A^2 past B C by a few ulps.
                        value += own * min(a * ratio, 1.0f32);
                        let gamma = share * ratio;
                        let to_m = gamma * (ratio * b);
                        let to_f = gamma * (ratio * c);
                        if comptime!(plan.approximate) {
                            if exists {
                                let own_f = f32::cast_from(fixed[at].extract(0usize))
                                    - centre_f
                                    - unit * mean_f;
                                let own_m = f32::cast_from(moved[at].extract(0usize))
                                    - centre_m
                                    - unit * mean_m;
                                let factor = 2.0f32 * slab.factor;
                                if comptime!(plan.to_moved) {
                                    to_moved[at] = factor * (gamma * own_f - to_m * own_m);
                                }
                                if comptime!(plan.to_fixed) {
                                    to_fixed[at] = factor * (gamma * own_m - to_f * own_f);
                                }
                            }
                        } else if comptime!(plan.to_moved || plan.to_fixed) {
                            let at = ring_base + voxel;
                            fields[at] = gamma;
                            if comptime!(plan.to_moved) {
                                fields[at + field] = to_m;
                                fields[at + 2usize * field] = to_m * mean_m - gamma * mean_f;
                            }
                            if comptime!(plan.to_fixed) {
                                let skip = comptime!(if plan.to_moved { 3usize } else { 1usize });
                                fields[at + skip * field] = to_f;
                                fields[at + (skip + 1usize) * field] =
                                    to_f * mean_f - gamma * mean_m;
                            }
                        }
                    }
                }
            }
            if comptime!(tile.buffers == 2) {
                start = comptime!(tile.buffer_len(quantities)) - start;
            }
            ring = further(ring, planes, &slab);
            z += comptime!(planes as i32);
        }
        first += (march.stop - march.start) as u32;
    }

    let total = sum_over_tile(&mut shared, value, tile);
    if UNIT_POS == 0 {
        partials[(partial_start + CUBE_POS_X) as usize] = total;
    }
}
