//! Shards with planes on either side, which go on at the other end of the volume.
//!
//! ```text
//! block k = planes start - below .. end + above, modulo the extent
//! ```
//! An operation that looks no farther makes the same of a block, without its surroundings, as of the whole.

use std::ops::Range;

use burn::Tensor;

use super::PeriodicGrid;
use crate::sharded::{Sharded, join, narrow};
use ffdp_image::error::Result;

impl PeriodicGrid {
    /// Every shard with `below` and `above` planes more, in any number: they may go around several times. All that
    /// travels between devices does so at once.
    pub(super) fn around(
        &self,
        volume: &Sharded,
        [below, above]: [usize; 2],
    ) -> Result<Vec<Tensor<5>>> {
        let extent = self.layout.extent();
        let fetched = self.fetched(volume, [below, above])?;
        // Runs of planes inside the volume, in order, by shard.
        let runs: Vec<Vec<Range<usize>>> = self
            .layout
            .all_planes()
            .map(|planes| {
                let start = planes.start as isize - below as isize;
                runs(start, planes.len() + below + above, extent)
            })
            .collect();
        let mut pieces: Vec<Vec<Option<Tensor<5>>>> =
            runs.iter().map(|runs| vec![None; runs.len()]).collect();
        for part in &fetched {
            let held = part.layout().held();
            let mut places = Vec::new();
            let mut asked = Vec::new();
            for (k, runs) in runs.iter().enumerate() {
                for (i, run) in runs.iter().enumerate() {
                    if pieces[k][i].is_none() && held.start <= run.start && run.end <= held.end {
                        places.push((k, i));
                        asked.push((run.clone(), volume.shards()[k].device()));
                    }
                }
            }
            for ((k, i), piece) in places.into_iter().zip(part.windows(asked)) {
                pieces[k][i] = Some(piece);
            }
        }
        let dim = self.layout.axis().dim();
        let block = |pieces: Vec<Option<Tensor<5>>>| {
            let pieces = pieces.into_iter().map(|piece| piece.expect("its planes were fetched"));
            join(pieces.collect(), dim)
        };
        Ok(pieces.into_iter().map(block).collect())
    }

    /// [`around`](Self::around), through an operation that keeps the extents, without the surroundings of the result.
    pub(super) fn through_around(
        &self,
        volume: &Sharded,
        width: usize,
        operation: impl Fn(Tensor<5>) -> Tensor<5>,
    ) -> Result<Sharded> {
        let dim = self.layout.axis().dim();
        let blocks = self.around(volume, [width; 2])?.into_iter().zip(self.layout.all_planes());
        let shards = blocks
            .map(|(block, planes)| narrow(operation(block), dim, width..width + planes.len()));
        Ok(Sharded::new(shards.collect(), self.layout.clone()))
    }

    /// What this rank's blocks are made of: its planes with those next to them, and those at the ends of the volume
    /// that they go on with.
    fn fetched(&self, volume: &Sharded, [below, above]: [usize; 2]) -> Result<Vec<Sharded>> {
        let Some((_, cuts)) = self.holders.team() else { return Ok(vec![volume.clone()]) };
        let extent = self.layout.extent();
        let wanted = (0..cuts.places()).map(|rank| {
            let Range { start, end } = cuts.planes(rank);
            if end - start + below + above >= extent {
                return [0..extent, 0..0, 0..0];
            }
            [
                start.saturating_sub(below)..(end + above).min(extent),
                extent - below.saturating_sub(start)..extent,
                0..(end + above).saturating_sub(extent),
            ]
        });
        let wanted: Vec<[Range<usize>; 3]> = wanted.collect();
        let mut found = Vec::new();
        for part in 0..3 {
            let wanted: Vec<_> = wanted.iter().map(|parts| parts[part].clone()).collect();
            found.extend(self.holders.fetch(volume, &wanted)?);
        }
        Ok(found)
    }
}

/// `count` planes from `start` on, modulo `extent`, in runs.
fn runs(start: isize, count: usize, extent: usize) -> Vec<Range<usize>> {
    let mut first = start.rem_euclid(extent as isize) as usize;
    let mut left = count;
    let mut runs = Vec::new();
    while left > 0 {
        let end = (first + left).min(extent);
        left -= end - first;
        runs.push(first..end);
        first = 0;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_go_around_the_period() {
        assert_eq!(runs(2, 3, 7), std::slice::from_ref(&(2..5)));
        assert_eq!(runs(-2, 4, 7), [5..7, 0..2]);
        assert_eq!(runs(5, 4, 7), [5..7, 0..2]);
        assert_eq!(runs(-3, 8, 2), [1..2, 0..2, 0..2, 0..2, 0..1]);
    }
}
