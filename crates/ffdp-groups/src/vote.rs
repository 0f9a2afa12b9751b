//! One label of several.

/// The label that most have; of those that as many have, the smallest. The order of `labels` is lost.
///
/// # Panics
/// If there are none.
pub(crate) fn majority(labels: &mut [i32]) -> i32 {
    labels.sort_unstable();
    let mut best = (labels[0], 0);
    for run in labels.chunk_by(|a, b| a == b) {
        if run.len() > best.1 {
            best = (run[0], run.len());
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_win_and_ties_go_to_the_smallest() {
        assert_eq!(majority(&mut [3]), 3);
        assert_eq!(majority(&mut [7, 2, 7, 2, 7]), 7);
        assert_eq!(majority(&mut [7, 2, 2, 7]), 2);
        assert_eq!(majority(&mut [5, 0, 0, 5, 0]), 0);
    }
}
