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
        let mut left = rank;
        let found = self.counts.iter().position(|&count| {
            let here = left < count;
            left -= if here { 0 } else { count };
            here
        });
        let found = found.expect("the rank is below the count");
        let in_bucket = |v: &f32| v.is_finite() && bucket(*v) == found;
        let mut bucket: Vec<f32> = self.values.par_iter().copied().filter(in_bucket).collect();
        *bucket.select_nth_unstable_by(left, f32::total_cmp).1
    }
}

/// The upper bits of an integer that orders as the values do: negative ones are turned around.
fn bucket(value: f32) -> usize {
    let bits = value.to_bits();
    let ordered = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    (ordered >> 16) as usize
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
