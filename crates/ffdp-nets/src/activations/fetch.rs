//! What a place computes from: planes of a volume, from wherever they lie, and their gradients back.
//!
//! A place looks at *windows*, each of which is made of runs of planes one after the other: the part below, its
//! own, the part above; or planes that the shift of windows has rolled around. All that travels for a layer
//! travels at once (`lending.rs` of `ffdp_parallel`), before the first place computes.

use std::ops::Range;

use burn::Tensor;

use ffdp_parallel::{
    Cuts,
    parts::{JOIN_STEPS, Loan, deepened, join, lent, narrow},
};

use super::Slabs;

/// Planes that a window is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlaneRun {
    /// Those of the whole.
    Planes(Range<usize>),
    /// So many of zeros.
    Zeros(usize),
}

impl PlaneRun {
    fn is_empty(&self) -> bool {
        match self {
            Self::Planes(planes) => planes.is_empty(),
            Self::Zeros(count) => *count == 0,
        }
    }
}

impl Slabs {
    /// The `windows(place, planes)` of this volume, for every place that has planes of `cuts`. Differentiable.
    ///
    /// # Panics
    /// If a window has no planes, or a run leaves the whole.
    pub fn fetch<const W: usize>(
        &self,
        cuts: &Cuts,
        windows: impl Fn(usize, &Range<usize>) -> [Vec<PlaneRun>; W],
    ) -> Vec<[Tensor<5>; W]> {
        let places = (0..cuts.places()).filter(|k| !cuts.planes(*k).is_empty());
        let asked: Vec<_> = places
            .map(|k| {
                let mut windows = windows(k, &cuts.planes(k));
                windows.iter_mut().for_each(|runs| runs.retain(|run| !run.is_empty()));
                (k, windows)
            })
            .collect();
        let runs =
            asked.iter().flat_map(|(k, windows)| windows.iter().flatten().map(|run| (*k, run)));
        let loans = runs.flat_map(|(k, run)| match run {
            PlaneRun::Planes(window) => self.loans(window, k),
            PlaneRun::Zeros(_) => Vec::new(),
        });
        let mut planes = self.lent(loans.collect()).into_iter();
        let fetched = asked.into_iter().map(|(k, windows)| {
            windows.map(|runs| {
                let pieces = runs.iter().flat_map(|run| match run {
                    PlaneRun::Planes(window) => {
                        planes.by_ref().take(self.loans(window, k).len()).collect()
                    }
                    PlaneRun::Zeros(count) => vec![self.zeros(*count, k)],
                });
                self.joined(pieces.collect())
            })
        });
        fetched.collect()
    }

    /// [`Slabs::fetch`] of one window for every place.
    ///
    /// # Panics
    /// If a window has no planes, or a run leaves the whole.
    pub fn fetch_one(
        &self,
        cuts: &Cuts,
        window: impl Fn(usize, &Range<usize>) -> Vec<PlaneRun>,
    ) -> Vec<Tensor<5>> {
        let fetched = self.fetch(cuts, |k, planes| [window(k, planes)]);
        fetched.into_iter().map(|[window]| window).collect()
    }

    /// Which parts a window is made of at place `k`.
    fn loans(&self, window: &Range<usize>, k: usize) -> Vec<(usize, Loan)> {
        let extent = self.cuts.extent();
        assert!(window.end <= extent, "slabs: window {window:?} of {extent} planes");
        let of_part = |owner: usize| {
            let own = self.cuts.planes(owner);
            let (start, end) = (own.start.max(window.start), own.end.min(window.end));
            (start < end).then(|| {
                let planes = start - own.start..end - own.start;
                (k, Loan { owner, dim: self.dim, planes })
            })
        };
        (0..self.cuts.places()).filter_map(of_part).collect()
    }

    /// The planes of all loans, each at its place.
    fn lent(&self, loans: Vec<(usize, Loan)>) -> Vec<Tensor<5>> {
        if self.cuts.places() == 1 {
            // The serial network.
            let planes = |(_, loan): (usize, Loan)| narrow(self.own(0), loan.dim, loan.planes);
            return loans.into_iter().map(planes).collect();
        }
        let at = |(k, loan)| (self.mesh.device(k).clone(), loan);
        lent(&self.parts, loans.into_iter().map(at).collect())
    }

    fn zeros(&self, count: usize, k: usize) -> Tensor<5> {
        let like = self.some();
        let mut dims = like.dims();
        dims[self.dim] = count;
        Tensor::zeros(dims, (self.mesh.device(k), like.dtype()))
    }

    /// One after the other; equally deep on the tape, however many there are (`travel.rs`, likewise).
    fn joined(&self, pieces: Vec<Tensor<5>>) -> Tensor<5> {
        assert!(!pieces.is_empty(), "slabs: a window without planes");
        let several = pieces.len() > 1;
        match join(pieces, self.dim) {
            joined if several || self.cuts.places() == 1 => joined,
            piece => deepened(piece, JOIN_STEPS),
        }
    }
}
