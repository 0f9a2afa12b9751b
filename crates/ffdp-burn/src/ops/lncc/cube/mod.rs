//! LNCC on the GPU: two marches along z per slab of planes.
//!
//! `windows.rs` reads the two images, sums the five products over windows (`tile.rs`, `sums.rs`) and writes
//! the gamma fields; `gradient.rs` sums those in the same way and writes the gradient. The gamma
//! fields live in a ring of planes, one slab and the margin of the next, so every window is summed
//! once and little memory is taken. This file launches them.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{LnccCall, LnccOps, LnccOptions};
use ffdp_kit::launch::{address, assert_f32, buffer, empty_f32, extent, kind, readable, sum_rows};

mod centre;
mod gradient;
mod held;
mod plan;
mod ring;
mod scaled;
mod sums;
mod tile;
mod windows;

use centre::centres;
use gradient::gradient_kernel;
use plan::{Grid, Plan, SlabLaunch};
use scaled::scaled;
use windows::windows_kernel;

/// Voxels per slab of the gamma fields, about: bounds the extra memory (three to five floats
/// each) while a slab still fills a large GPU.
const SLAB_VOXELS: usize = 1 << 25;

/// A call, with its operands made contiguous.
struct Call {
    moved: CubeTensor,
    fixed: CubeTensor,
    /// Of the voxels; a placeholder if they have none.
    weights: CubeTensor,
    /// The centring constants: of every moved volume, then of every fixed one.
    centres: CubeTensor,
    options: LnccOptions,
    factor: f32,
    plan: Plan,
}

impl Call {
    fn new([moved, fixed, weights]: [CubeTensor; 3], call: LnccCall, needs: [bool; 2]) -> Self {
        let LnccCall { options, weighted, factor } = call;
        let [moved, fixed] = [moved, fixed].map(|image| readable("lncc", image));
        let weights = match weighted {
            true => into_contiguous(weights),
            false => empty_f32(&moved, [4]),
        };
        assert_f32("lncc", &[&weights]);
        let plan = Plan::new(&moved, &options, weighted, needs);
        let centres = centres(&moved, &fixed);
        Self { moved, fixed, weights, centres, options, factor: factor as f32, plan }
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
        let [windows_cubes, gradient_cubes] = self.plan.cubes(&self.moved);
        let grid = |tile, first: usize, last: usize, shift: usize, cubes| {
            Grid::new(tile, self.size(), first as i32 - shift as i32, last - first, cubes)
        };
        // Windows of the planes that the gradient of a slab reaches and that are not known yet.
        let slabs: Vec<(Grid, Grid)> = (0..d)
            .step_by(thickness)
            .map(|start| {
                let stop = (start + thickness).min(d);
                let known = if start == 0 { 0 } else { start + 2 * margin };
                let windows = self.plan.windows;
                let windows = grid(windows, known, stop + 2 * margin, margin, windows_cubes);
                (windows, grid(self.plan.gradient, start, stop, 0, gradient_cubes))
            })
            .collect();
        let per_volume: usize = slabs.iter().map(|(windows, _)| windows.len()).sum();
        let partials = empty_f32(&self.moved, [self.volumes() * per_volume]);
        let gradient = |wanted: bool| match wanted {
            true => empty_f32(&self.moved, self.moved.meta.shape().clone()),
            false => empty_f32(&self.moved, [1]),
        };
        let (to_moved, to_fixed) = (gradient(self.plan.to_moved), gradient(self.plan.to_fixed));
        let fields = empty_f32(&self.moved, [(self.plan.fields() * ring * h * w).max(1)]);
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
        (sum_rows(&partials, 1, done, self.factor), to_moved, to_fixed)
    }

    fn slab(&self, volume: usize, grid: &Grid, ring: usize) -> SlabLaunch {
        let [common, epsilon] = self.options.floors().map(|floor| floor as f32);
        SlabLaunch::new(
            extent(self.size()),
            volume as u32,
            grid.first,
            grid.planes as u32,
            ring as u32,
            grid.across as u32,
            grid.total as u32,
            grid.share as u32,
            common,
            epsilon,
            self.factor,
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
                [kind(&self.moved), kind(&self.fixed)],
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
                    [kind(target), kind(partner)],
                );
            }
        }
    }
}

fn volumes(image: &CubeTensor) -> usize {
    image.meta.shape()[0] * image.meta.shape()[1]
}

impl LnccOps for CubeBackend {
    fn lncc_3d_with_gradient(
        moved: FloatTensor<Self>,
        fixed: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        call: LnccCall,
        needs: [bool; 2],
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        Call::new([moved, fixed, weights], call, needs).run()
    }

    fn lncc_3d_scaled(
        gradient: FloatTensor<Self>,
        upstream: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        scaled(gradient, upstream)
    }
}
