//! The second march: the gradient from the gamma fields.

use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::held::{advance, fetch, place};
use super::plan::{Plan, Slab, march};
use super::ring::{further, ring_slot};
use super::sums::{store_rows, sum_column, sum_rows, window_sums};
use super::tile::{SPAN, edges, run, slots};

/// `partner (w * a) - target (w * b) + w * c`, the gradient to the target, with `a`, `b`, `c` the gamma
/// fields number 0, `skip`, `skip + 1`.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn gradient_kernel<N: Size, T: Float, P: Float>(
    fields: &[Vector<f32, N>],
    target: &[T],
    partner: &[P],
    weights: &[f32],
    centres: &[f32],
    gradient: &mut [f32],
    target_centre: u32,
    partner_centre: u32,
    slab: Slab,
    #[comptime] plan: Plan,
    #[comptime] skip: u32,
    #[define(T, P)] _kinds: [ElemType; 2],
) {
    let tile = comptime!(plan.gradient);
    let (held, known) = comptime!((tile.held(), tile.window() - 1));
    let (planes, count) = comptime!((tile.planes, tile.run()));
    let area = slab.size.h as usize * slab.size.w as usize;
    let field = slab.ring as usize * area;
    let second = skip as usize * field;
    let third = comptime!((skip + 1) as usize) * field;
    let volume = slab.volume as usize * slab.size.d as usize * area;
    let centre_t = centres[target_centre as usize];
    let centre_p = centres[partner_centre as usize];
    let (slots, edges) = (slots(), edges(tile));
    let factor = slab.factor * comptime!(2.0 * tile.scale());
    let mut shared = Shared::<[f32]>::new_slice(comptime!(tile.shared_len(3)));
    let mut a = Array::<f32>::new(comptime!((held * SPAN) as usize));
    let mut b = Array::<f32>::new(comptime!((held * SPAN) as usize));
    let mut c = Array::<f32>::new(comptime!((held * SPAN) as usize));

    let mut start = 0u32;
    let mut at = CUBE_POS_X * slab.share;
    let end = min(at + slab.share, slab.total);
    while at < end {
        let march = march(at, end, &slab);
        let place = place(&slab.size, &march, tile);
        let run = run(&slab.size, &march, tile);
        let mut next = ring_slot(march.start - comptime!(tile.radius as i32), &slab, tile.radius);
        #[unroll]
        for i in 0..held {
            let z = march.start + comptime!(i as i32 - tile.radius as i32);
            let needed = z < march.stop + comptime!(tile.radius as i32);
            let base = next as usize * area;
            fetch(fields, base, needed, &place, &mut a, i, plan.vector);
            fetch(fields, base + second, needed, &place, &mut b, i, plan.vector);
            fetch(fields, base + third, needed, &place, &mut c, i, plan.vector);
            next = further(next, 1u32, &slab);
        }
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
                store_rows(&along_z, &mut shared, &slots, &edges, start, k, tile);
            }
            if comptime!(!tile.shuffles) {
                sum_rows(&mut shared, &slots, start, 3u32, tile);
            }
            advance(&mut a, tile);
            advance(&mut b, tile);
            advance(&mut c, tile);
            #[unroll]
            for p in 0..planes {
                let ahead = z + comptime!((planes + p + tile.radius) as i32);
                let needed = ahead < march.stop + comptime!(tile.radius as i32);
                let base = next as usize * area;
                fetch(fields, base, needed, &place, &mut a, comptime!(known + p), plan.vector);
                fetch(
                    fields,
                    base + second,
                    needed,
                    &place,
                    &mut b,
                    comptime!(known + p),
                    plan.vector,
                );
                fetch(
                    fields,
                    base + third,
                    needed,
                    &place,
                    &mut c,
                    comptime!(known + p),
                    plan.vector,
                );
                next = further(next, 1u32, &slab);
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
                        let to_partner =
                            (f32::cast_from(partner[at]) - centre_p) * sums[i as usize];
                        let to_target = (f32::cast_from(target[at]) - centre_t)
                            * sums[comptime!((count + i) as usize)];
                        let rest =
                            sums[comptime!((2 * count + i) as usize)] * comptime!(plan.unit());
                        let mut slope = factor * (to_partner - to_target + rest);
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
        at += (march.stop - march.start) as u32;
    }
}
