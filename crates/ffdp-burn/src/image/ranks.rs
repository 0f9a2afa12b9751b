//! Values by their rank among many, without sorting or copying them: percentiles of large volumes.

use rayon::prelude::*;

/// Buckets by the upper half of a value's bits.
const BUCKETS: usize = 1 << 16;

/// Values that a thread counts at a time.
const PART: usize = 1 << 20;

/// The finite values of a slice, counted in buckets that follow their order.
pub(crate) struct Ranks<'a> {
    values: &'a [f32],
    counts: Vec<usize>,
}

impl<'a> Ranks<'a> {
    /// One sweep, on all cores.
    pub fn of(values: &'a [f32]) -> Self {
        let count = |part: &[f32]| {
            let mut counts = vec![0; BUCKETS];
            part.iter().filter(|v| v.is_finite()).for_each(|&v| counts[bucket(v)] += 1);
            counts
        };
        let add = |mut a: Vec<usize>, b: Vec<usize>| {
            a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
            a
        };
        let counts = values.par_chunks(PART).map(count).reduce(|| vec![0; BUCKETS], add);
        Self { values, counts }
    }

    /// How many values are finite.
    pub fn count(&self) -> usize {
        self.counts.iter().sum()
    }

    /// The value that stands at `rank` (from 0) in ascending order. Another sweep.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn value(&self, rank: usize) -> f32 {
        let (found, left) = find(&self.counts, rank);
        let in_bucket = |v: &f32| v.is_finite() && bucket(*v) == found;
        let mut bucket: Vec<f32> = self.values.par_iter().copied().filter(in_bucket).collect();
        *bucket.select_nth_unstable_by(left, f32::total_cmp).1
    }
}

/// Finite values that come in parts, counted as those of [`Ranks`]: which bucket a rank lies in. What it
/// is takes the values once more, see [`Buckets`].
pub(super) struct Counts(Vec<usize>);

impl Default for Counts {
    fn default() -> Self {
        Self(vec![0; BUCKETS])
    }
}

impl Counts {
    /// Counts a part, on all cores.
    pub fn add(&mut self, values: &[f32]) {
        let here = Ranks::of(values).counts;
        self.0.iter_mut().zip(here).for_each(|(all, here)| *all += here);
    }

    /// How many values were finite.
    pub fn count(&self) -> usize {
        self.0.iter().sum()
    }

    /// The bucket of a rank, and how many of that bucket come before it.
    fn place(&self, rank: usize) -> (usize, usize) {
        find(&self.0, rank)
    }
}

/// The values of a few buckets, counted one by one: a bucket has as many different ones as there are
/// buckets.
pub(super) struct Buckets {
    /// Their numbers.
    wanted: Vec<usize>,
    /// By the lower half of a value's bits.
    counts: Vec<Vec<usize>>,
}

impl Buckets {
    /// Those in which the ranks lie.
    pub fn new(counts: &Counts, ranks: impl Iterator<Item = usize>) -> Self {
        let mut wanted: Vec<usize> = ranks.map(|rank| counts.place(rank).0).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let counts = vec![vec![0; BUCKETS]; wanted.len()];
        Self { wanted, counts }
    }

    /// Counts a part.
    pub fn add(&mut self, values: &[f32]) {
        let Self { wanted, counts } = self;
        counts.par_iter_mut().zip(&*wanted).for_each(|(counts, &wanted)| {
            let finite = values.iter().filter(|v| v.is_finite());
            let within = finite.map(|&v| ordered(v)).filter(|v| (v >> 16) as usize == wanted);
            within.for_each(|v| counts[(v & 0xffff) as usize] += 1);
        });
    }

    /// The value at a rank that was asked for, once all parts were counted.
    ///
    /// # Panics
    /// If it was not asked for, or other values were counted than before.
    pub fn value(&self, counts: &Counts, rank: usize) -> f32 {
        let (bucket, left) = counts.place(rank);
        let place = self.wanted.binary_search(&bucket).expect("the rank was asked for");
        let (low, _) = find(&self.counts[place], left);
        let ordered = (bucket << 16 | low) as u32;
        f32::from_bits(if ordered >> 31 == 1 { ordered & !(1 << 31) } else { !ordered })
    }
}

/// The entry in which the value at `rank` is counted, and how many of that entry come before it.
fn find(counts: &[usize], rank: usize) -> (usize, usize) {
    let mut left = rank;
    let found = counts.iter().position(|&count| {
        let here = left < count;
        left -= if here { 0 } else { count };
        here
    });
    (found.expect("the rank is below the count"), left)
}

/// The upper bits of [`ordered`].
fn bucket(value: f32) -> usize {
    (ordered(value) >> 16) as usize
}

/// An integer that orders as the values do: negative ones are turned around.
fn ordered(value: f32) -> u32 {
    let bits = value.to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::normal;

    #[test]
    fn ranks_are_those_of_the_sorted_values() {
        let mut values: Vec<f32> = normal(3 * PART / 2, 5).iter().map(|&v| v as f32).collect();
        for (i, odd) in [f32::NAN, f32::INFINITY, -0.0, 0.0, 1e-40, -1e-40, f32::MAX, f32::MIN]
            .into_iter()
            .enumerate()
        {
            values[1000 * i] = odd;
        }
        values[20_000..60_000].fill(0.25);
        let ranks = Ranks::of(&values);
        let mut sorted: Vec<f32> = values.iter().copied().filter(|v| v.is_finite()).collect();
        sorted.sort_unstable_by(f32::total_cmp);
        assert_eq!(ranks.count(), sorted.len());
        let last = sorted.len() - 1;
        for rank in [0, 1, 17, last / 100, last / 2, last / 2 + 1, last - 1, last] {
            assert_eq!(ranks.value(rank).to_bits(), sorted[rank].to_bits(), "{rank}");
        }
        assert_eq!(Ranks::of(&[]).count(), 0);
    }
}
