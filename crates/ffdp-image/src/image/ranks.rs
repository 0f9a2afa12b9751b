//! Values by their rank among many, without sorting or copying them: percentiles of large volumes.

use std::sync::Arc;

use rayon::prelude::*;

/// Buckets by the upper half of a value's bits.
const BUCKETS: usize = 1 << 16;

/// Values that a thread counts at a time: four times as many as there are buckets, so that adding these up is little.
const PART: usize = 1 << 18;

/// The finite values of a slice, counted in buckets that follow their order.
pub struct Ranks<'a> {
    values: &'a [f32],
    counts: Counts,
}

impl<'a> Ranks<'a> {
    /// One sweep, on all cores.
    pub fn of(values: &'a [f32]) -> Self {
        let mut counts = Counts::default();
        counts.add(values);
        Self { values, counts }
    }

    /// How many values are finite.
    pub fn count(&self) -> usize {
        self.counts.count()
    }

    /// The values that stand at `ranks` (from 0) in ascending order. Another sweep, for all of them.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn values(&self, ranks: &[usize]) -> Vec<f32> {
        let mut buckets = Buckets::new(&self.counts, ranks.iter().copied());
        buckets.add(self.values);
        ranks.iter().map(|&rank| buckets.value(&self.counts, rank)).collect()
    }
}

/// Finite values that come in parts, counted as those of [`Ranks`]: which bucket a rank lies in. What it
/// is takes the values once more, see [`Buckets`].
pub(crate) struct Counts {
    buckets: Vec<usize>,
    /// Of the values' bits in their order.
    extremes: [u32; 2],
}

impl Default for Counts {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS], extremes: [u32::MAX, 0] }
    }
}

impl Counts {
    /// Counts a part, on all cores.
    pub fn add(&mut self, values: &[f32]) {
        // Each thread goes on with the counts that it has.
        let part = |mut counts: Self, part: &[f32]| {
            counts.add_here(part);
            counts
        };
        let parts = values.par_chunks(PART).fold(Self::default, part);
        self.join(&parts.reduce(Self::default, |mut a, b| {
            a.join(&b);
            a
        }));
    }

    /// Counts a part, on this core.
    pub fn add_here(&mut self, values: &[f32]) {
        let [mut low, mut high] = self.extremes;
        each_run(values, |v, count| {
            if v.is_finite() {
                let v = ordered(v);
                self.buckets[(v >> 16) as usize] += count;
                (low, high) = (low.min(v), high.max(v));
            }
        });
        self.extremes = [low, high];
    }

    /// Adds what was counted elsewhere.
    pub fn join(&mut self, other: &Self) {
        add(&mut self.buckets, &other.buckets);
        let ([low, high], [other_low, other_high]) = (self.extremes, other.extremes);
        self.extremes = [low.min(other_low), high.max(other_high)];
    }

    /// Smallest and largest value.
    ///
    /// # Panics
    /// Without a finite value.
    pub fn extremes(&self) -> [f32; 2] {
        assert!(self.count() > 0, "no value is finite");
        self.extremes.map(value)
    }

    /// How many values were finite.
    pub fn count(&self) -> usize {
        self.buckets.iter().sum()
    }

    /// The bucket of a rank, and how many of that bucket come before it.
    fn place(&self, rank: usize) -> (usize, usize) {
        find(&self.buckets, rank)
    }
}

/// The values of a few buckets, counted one by one: a bucket has as many different ones as there are
/// buckets.
pub(crate) struct Buckets {
    /// Their numbers.
    wanted: Vec<usize>,
    /// Of each bucket there is its place among them, or how many they are.
    places: Arc<[u8]>,
    /// Of each, by the lower half of a value's bits.
    counts: Vec<usize>,
}

impl Buckets {
    /// Those in which the ranks lie, empty.
    pub fn new(counts: &Counts, ranks: impl Iterator<Item = usize>) -> Self {
        let mut wanted: Vec<usize> = ranks.map(|rank| counts.place(rank).0).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let none = u8::try_from(wanted.len()).expect("a few ranks are asked for");
        let mut places = vec![none; BUCKETS];
        wanted.iter().zip(0..).for_each(|(&bucket, place)| places[bucket] = place);
        let counts = vec![0; BUCKETS * wanted.len()];
        Self { wanted, places: places.into(), counts }
    }

    /// The same, in which nothing is counted.
    fn emptied(&self) -> Self {
        let counts = vec![0; self.counts.len()];
        Self { wanted: self.wanted.clone(), places: self.places.clone(), counts }
    }

    /// Counts a part, on all cores.
    pub fn add(&mut self, values: &[f32]) {
        let none = || self.emptied();
        let part = |mut buckets: Self, part: &[f32]| {
            buckets.add_here(part);
            buckets
        };
        let here = values.par_chunks(PART).fold(none, part).reduce(none, |mut a, b| {
            a.join(&b);
            a
        });
        self.join(&here);
    }

    /// Counts a part, on this core.
    pub fn add_here(&mut self, values: &[f32]) {
        // What is not finite is in no bucket that has a rank.
        each_run(values, |v, count| {
            let v = ordered(v);
            let place = usize::from(self.places[(v >> 16) as usize]);
            if place < self.wanted.len() {
                self.counts[BUCKETS * place + (v & 0xffff) as usize] += count;
            }
        });
    }

    /// Adds what was counted elsewhere of the same buckets.
    pub fn join(&mut self, other: &Self) {
        add(&mut self.counts, &other.counts);
    }

    /// The value at a rank that was asked for, once all parts were counted.
    ///
    /// # Panics
    /// If it was not asked for, or other values were counted than before.
    pub fn value(&self, counts: &Counts, rank: usize) -> f32 {
        let (bucket, left) = counts.place(rank);
        self.at(bucket, left)
    }

    /// The value before which so many of a bucket come.
    fn at(&self, bucket: usize, left: usize) -> f32 {
        let place = self.wanted.binary_search(&bucket).expect("the rank was asked for");
        let (low, _) = find(&self.counts[BUCKETS * place..BUCKETS * (place + 1)], left);
        value((bucket << 16 | low) as u32)
    }
}

/// The ranks around a percentile of so many values, numpy's default definition.
pub(crate) fn ranks_around(count: usize, percent: f64) -> [usize; 2] {
    let below = (percent / 100.0 * (count - 1) as f64) as usize;
    [below, (below + 1).min(count - 1)]
}

/// A percentile of so many values, from the finite ones at the ranks around it.
pub(crate) fn between(count: usize, values: [f32; 2], percent: f64) -> f64 {
    let rank = percent / 100.0 * (count - 1) as f64;
    let [below, above] = values.map(f64::from);
    below + (above - below) * rank.fract()
}

fn add(all: &mut [usize], here: &[usize]) {
    all.iter_mut().zip(here).for_each(|(all, here)| *all += here);
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

/// Consecutive values that are counted as one where all are the same, as in a background.
const RUN: usize = 16;

/// Each value, and how often it comes.
fn each_run(values: &[f32], mut count: impl FnMut(f32, usize)) {
    let (runs, rest) = values.as_chunks::<RUN>();
    for run in runs {
        let first = run[0].to_bits();
        match run.iter().fold(0, |other, v| other | (v.to_bits() ^ first)) {
            0 => count(run[0], RUN),
            _ => run.iter().for_each(|&v| count(v, 1)),
        }
    }
    rest.iter().for_each(|&v| count(v, 1));
}

/// An integer that orders as the values do: negative ones are turned around.
fn ordered(value: f32) -> u32 {
    let bits = value.to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

/// The way back.
fn value(ordered: u32) -> f32 {
    f32::from_bits(if ordered >> 31 == 1 { ordered & !(1 << 31) } else { !ordered })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ffdp_kit::testing::normal;

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
        // A bucket of more than is gathered, with two values in it.
        let many = |k: usize| if k.is_multiple_of(3) { 0.5 } else { 0.5f32.next_up() };
        values.extend((0..2 * PART).map(many));
        let ranks = Ranks::of(&values);
        let mut sorted: Vec<f32> = values.iter().copied().filter(|v| v.is_finite()).collect();
        sorted.sort_unstable_by(f32::total_cmp);
        assert_eq!(ranks.count(), sorted.len());
        let last = sorted.len() - 1;
        let first_half = sorted.partition_point(|v| *v < 0.5);
        let asked = [
            last,
            0,
            1,
            17,
            last / 100,
            last / 2,
            last / 2 + 1,
            last - 1,
            last,
            first_half,
            first_half + 2 * PART / 3 - 5,
            first_half + 2 * PART / 3 + 5,
        ];
        for (rank, value) in asked.into_iter().zip(ranks.values(&asked)) {
            assert_eq!(value.to_bits(), sorted[rank].to_bits(), "{rank}");
        }
        assert_eq!(Ranks::of(&[]).count(), 0);
    }
}
