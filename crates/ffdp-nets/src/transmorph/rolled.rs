//! Windows of tokens that are in parts: each window is attended to as a whole, at one place.
//!
//! The grid is padded to `P` planes along the cut axis, rolled by the shift `s` and cut into windows of `w`
//! planes, as in [`Windows`]; a place takes whole windows, those that lie nearest to its tokens:
//! ```text
//! rolled plane r  =  token plane (r + s) mod P       zeros where that lies beyond the grid
//! place k: rolled planes g_k w .. g_(k+1) w,         g_k = the token cut - s, in windows, rounded
//! ```
//! Where a token cut lies between windows, only `s` planes and the wrapped ones travel. Along the other
//! axes nothing is cut: there a part pads and rolls its own planes.

use std::ops::Range;

use burn::tensor::{Device, Tensor};

use super::attention::WindowContext;
use super::window::Windows;
use ffdp_parallel::Cuts;

use crate::activations::{PlaneRun, Slabs};

/// One kind of windows (aligned or shifted) of a stage in parts.
pub(super) struct RolledWindows {
    /// In rolled planes.
    cuts: Cuts,
    /// Of every place with windows.
    contexts: Vec<Option<WindowContext>>,
    shift: usize,
    extent: usize,
}

impl RolledWindows {
    /// For the windows of tokens cut like `tokens`, whose channels are last.
    pub fn new(whole: Windows, tokens: &Slabs) -> Self {
        let axis = tokens.dim() - 1;
        let (window, shift) = (whole.window[axis], whole.shift[axis]);
        let extent = tokens.cuts().extent();
        let count = extent.div_ceil(window);
        let places = tokens.cuts().places();
        let end = |k: usize| match k {
            0 => 0,
            _ if k == places => count,
            _ => {
                let cut = tokens.cuts().planes(k).start.saturating_sub(shift);
                ((2 * cut + window) / (2 * window)).min(count)
            }
        };
        let windows = Cuts::from_ends((0..=places).map(end).collect());
        let of_place = |k: usize| {
            let (own, device) = (windows.planes(k), tokens.mesh().device(k));
            (!own.is_empty()).then(|| context(whole, axis, &own, device))
        };
        let contexts = (0..places).map(of_place).collect();
        let cuts = Cuts::from_ends((0..=places).map(|k| end(k) * window).collect());
        Self { cuts, contexts, shift, extent }
    }

    /// Attention by `attend(place, windows, context)` of tokens `[N, D, H, W, C]`; result the same.
    pub fn attend(
        &self,
        tokens: &Slabs,
        attend: impl Fn(usize, Tensor<3>, &WindowContext) -> Tensor<3>,
    ) -> Slabs {
        let padded = self.cuts.extent();
        let tokens_of = |planes: &Range<usize>| unrolled(planes, [padded, self.shift, self.extent]);
        let rolled = tokens.through(&self.cuts, tokens_of, |k, _, block| {
            let context = self.contexts[k].as_ref().expect("planes are those of windows");
            let windows = context.windows.partition(block);
            context.windows.reverse(attend(k, windows, context))
        });
        let back = padded - self.shift;
        let rolled_of = |planes: &Range<usize>| {
            let wrapped = planes.start.min(self.shift)..planes.end.min(self.shift);
            let others = planes.start.max(self.shift)..planes.end.max(self.shift);
            let runs = [
                wrapped.start + back..wrapped.end + back,
                others.start - self.shift..others.end - self.shift,
            ];
            runs.map(PlaneRun::Planes).to_vec()
        };
        rolled.through(tokens.cuts(), rolled_of, |_, _, planes| planes)
    }
}

/// The tokens of rolled planes, in order.
fn unrolled(planes: &Range<usize>, [padded, shift, extent]: [usize; 3]) -> Vec<PlaneRun> {
    let back = padded - shift;
    // Rolled planes before `back` hold the tokens from `shift` on, the others those before.
    let before = planes.start.min(back) + shift..planes.end.min(back) + shift;
    let wrapped = planes.start.max(back) - back..planes.end.max(back) - back;
    let runs = [before, wrapped].into_iter().flat_map(|tokens| {
        let inside = tokens.start.min(extent)..tokens.end.min(extent);
        let beyond = tokens.len() - inside.len();
        [PlaneRun::Planes(inside), PlaneRun::Zeros(beyond)]
    });
    runs.collect()
}

/// The context of the windows `own` along an axis, in the count of the whole.
fn context(whole: Windows, axis: usize, own: &Range<usize>, device: &Device) -> WindowContext {
    let mut windows = whole;
    windows.grid[axis] = own.len() * whole.window[axis];
    windows.shift[axis] = 0;
    let regions = whole.regions(device);
    if regions.dims()[0] == 1 {
        return WindowContext::with_regions(windows, regions);
    }
    let counts = [0, 1, 2].map(|axis| whole.grid[axis].div_ceil(whole.window[axis]));
    let ([a, b, c], tokens) = (counts, whole.tokens());
    let regions = regions.reshape([a, b, c, tokens]).narrow(axis, own.start, own.len());
    let count = regions.shape().num_elements() / tokens;
    WindowContext::with_regions(windows, regions.reshape([count, tokens]))
}
