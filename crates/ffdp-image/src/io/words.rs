//! Words that are nearly those that are known.

/// The known word that a mistyped one most likely stands for: the nearest that differs by case, blanks, hyphens or a few
/// letters (one in words of five to seven letters, two in longer ones). Short words are too near to others.
pub fn closest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |word: &str| word.trim().to_lowercase().replace([' ', '-', '.'], "_");
    let written = plain(word);
    let distances = known.into_iter().filter_map(|name| {
        let other = plain(name);
        let allowed = match written.chars().count().max(other.chars().count()) {
            ..5 => 0,
            5..8 => 1,
            8.. => 2,
        };
        let distance = edits(&written, &other);
        (distance <= allowed).then_some((distance, name))
    });
    distances.min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

/// Letters that must be put in, left out, changed, or swapped with the next one.
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = changed.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_errors_find_the_word_that_was_meant() {
        let known = ["fixed", "moving", "fixed_labels", "moving_labels", "mask", "warp", "part"];
        for (word, meant) in [
            ("fixed_lables", Some("fixed_labels")),
            ("Fixed Labels", Some("fixed_labels")),
            ("moving-labels", Some("moving_labels")),
            ("movin", Some("moving")),
            ("masks", Some("mask")),
            ("fxied", Some("fixed")),
            // Other words, as lists of people have them.
            ("task", None),
            ("site", None),
            ("age", None),
            ("session", None),
            ("", None),
        ] {
            assert_eq!(closest(word, known), meant, "{word}");
        }
    }
}
