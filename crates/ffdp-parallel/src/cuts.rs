//! Which planes a place has: of activations, of images that several processes hold.

use std::ops::Range;

use super::layout::Layout;

/// The planes of every place: place `k` has `ends[k]..ends[k + 1]`, maybe none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cuts {
    ends: Vec<usize>,
}

impl Cuts {
    /// Places that share `extent` planes as equally as multiples of `unit` allow.
    ///
    /// # Panics
    /// If there is no place, or `extent` is not a positive multiple of `unit`.
    pub fn balanced(extent: usize, unit: usize, places: usize) -> Self {
        assert!(
            places > 0 && extent > 0 && unit > 0 && extent.is_multiple_of(unit),
            "cuts: {extent} planes in units of {unit} for {places} places"
        );
        let units = extent / unit;
        // To the nearest, so that no place has more than its share and a unit.
        let end = |k: usize| (2 * k * units + places) / (2 * places) * unit;
        Self { ends: (0..=places).map(end).collect() }
    }

    /// Those of a layout, one place a shard.
    pub fn of(layout: &Layout) -> Self {
        let ends = layout.all_planes().map(|planes| planes.end);
        Self { ends: std::iter::once(0).chain(ends).collect() }
    }

    /// By their ends, the first of which is 0.
    ///
    /// # Panics
    /// If they do not rise.
    pub fn from_ends(ends: Vec<usize>) -> Self {
        let sound =
            ends.len() > 1 && ends[0] == 0 && ends.windows(2).all(|pair| pair[0] <= pair[1]);
        assert!(sound, "cuts: ends must begin with 0 and rise, got {ends:?}");
        Self { ends }
    }

    /// The same places on a grid with `1 / stride` of the planes.
    pub fn at(&self, stride: usize) -> Self {
        let ends = self.ends.iter().map(|end| (2 * end + stride) / (2 * stride));
        Self { ends: ends.collect() }
    }

    /// The planes of place `k`.
    pub fn planes(&self, k: usize) -> Range<usize> {
        self.ends[k]..self.ends[k + 1]
    }

    /// Places, with and without planes.
    pub fn places(&self) -> usize {
        self.ends.len() - 1
    }

    /// All planes.
    pub fn extent(&self) -> usize {
        self.ends[self.places()]
    }
}
