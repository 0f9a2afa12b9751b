//! Order statistics.

/// Percentiles of unordered values, which are reordered in passing: linear interpolation between
/// ranks, numpy's default. `percents` must ascend; NaN counts as larger than everything; NaN
/// throughout when there are no values.
pub(super) fn percentiles<T: Copy + Into<f64>, const K: usize>(
    values: &mut [T],
    percents: [f64; K],
) -> [f64; K] {
    let order = |a: &T, b: &T| -> std::cmp::Ordering {
        let (a, b): (f64, f64) = ((*a).into(), (*b).into());
        a.total_cmp(&b)
    };
    let Some(last) = values.len().checked_sub(1) else { return [f64::NAN; K] };
    // What lies before is known to be no larger: only the rest is searched.
    let mut done = 0;
    percents.map(|percent| {
        let rank = percent / 100.0 * last as f64;
        let low = rank as usize;
        let rest = &mut values[done..];
        let (_, &mut below, above) = rest.select_nth_unstable_by(low - done, order);
        let below: f64 = below.into();
        done = low;
        if rank == low as f64 {
            return below;
        }
        let next = above.iter().copied().min_by(order).map_or(below, Into::into);
        below + rank.fract() * (next - below)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_interpolate_between_ranks() {
        let mut values: Vec<f32> = (0..=200).rev().map(|i| i as f32).collect();
        let all = percentiles(&mut values, [0.0, 1.0, 1.25, 50.0, 99.0, 100.0]);
        assert_eq!(all, [0.0, 2.0, 2.5, 100.0, 198.0, 200.0]);
        let [low, middle] = percentiles(&mut [2.0, 1.0], [1.0, 50.0]);
        assert!((low - 1.01).abs() < 1e-12 && middle == 1.5);
        assert_eq!(percentiles(&mut [7.0], [0.0, 33.0, 100.0]), [7.0; 3]);
        assert!(percentiles(&mut [0f64; 0], [50.0])[0].is_nan());
    }
}
