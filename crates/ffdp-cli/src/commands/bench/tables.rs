//! Tables as the FFDP paper prints them: accuracy (figure 5a) and efficiency (table 5), in Markdown.

use std::fmt::Write;

use super::results::Row;

/// The method that times and costs are set against.
pub const REFERENCE: &str = "greedy";

const DEFINITIONS: &str = "\
Means over the pairs, ± their standard deviation (n - 1). Dice: mean over the labels; a label that the \
map has lost counts as 0. InvDice: the same, each label weighted by the inverse of its volume in the \
fixed map (the paper prints an InvDice without its formula; this is a reading of it). HD90: the larger \
of the two directions' mean of the smallest 90 % of the surface distances, mean over the labels. Folds: \
voxels of which one of nine difference stencils of the map folds. SDlogJ: deviation of ln det J.
Time: from the images in host memory to the warped image in host memory, without reading, measuring and \
writing; iterations: the part of it that the levels took. CPU: processor time of all threads, of rows computed on a CPU. Memory: the most that is held at \
a time, on a GPU of its memory, on a CPU of the process. GB-hours: memory (10^9 bytes) times time.
";

/// Rows of one table line: those of a method at a resolution on a device.
pub struct Group<'a> {
    pub spacing_mm: f64,
    pub method: &'a str,
    pub device: &'a str,
    pub rows: Vec<&'a Row>,
}

/// The rows by resolution (coarse to fine), then as methods first appear.
pub fn groups(rows: &[Row]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group> = Vec::new();
    for row in rows {
        let Row { spacing_mm, method, device, .. } = row;
        let found = groups.iter_mut().find(|group| {
            group.spacing_mm == *spacing_mm && group.method == method && group.device == device
        });
        match found {
            Some(group) => group.rows.push(row),
            None => {
                groups.push(Group { spacing_mm: *spacing_mm, method, device, rows: vec![row] });
            }
        }
    }
    groups.sort_by(|a, b| b.spacing_mm.total_cmp(&a.spacing_mm));
    groups
}

/// Both tables, with what they mean.
pub fn markdown(rows: &[Row]) -> String {
    let groups = groups(rows);
    format!("{}\n{}\n{DEFINITIONS}", accuracy(&groups), efficiency(&groups))
}

fn accuracy(groups: &[Group]) -> String {
    let mut text = "\
| resolution | method | device | pairs | Dice | InvDice | HD90 cum. (mm) | folds (%) | SDlogJ |
|---|---|---|---|---|---|---|---|---|
"
    .to_string();
    for group in groups {
        let _ = writeln!(
            text,
            "| {} mm | {} | {} | {} | {} | {} | {} | {} | {} |",
            group.spacing_mm,
            group.method,
            group.device,
            group.rows.len(),
            group.spread(3, |row| Some(row.dice)),
            group.spread(3, |row| Some(row.inverse_volume_dice)),
            group.spread(3, |row| row.hd90_cumulative_mm),
            group.spread(4, |row| row.fold_fraction.map(|fraction| 100.0 * fraction)),
            group.spread(3, |row| row.sd_log_jacobian),
        );
    }
    text
}

fn efficiency(groups: &[Group]) -> String {
    let mut text = format!(
        "\
| resolution | method | device | Dice | time (s) | iterations (s) | CPU (s) | memory (GB) | GB-hours (10^-3) | time, {REFERENCE} = 1 | GB-hours, {REFERENCE} = 1 |
|---|---|---|---|---|---|---|---|---|---|---|
"
    );
    for group in groups {
        let reference = groups.iter().find(|other| {
            other.method == REFERENCE
                && other.spacing_mm == group.spacing_mm
                && other.device == group.device
        });
        let ratio = |of: fn(&Row) -> Option<f64>| {
            let (mine, reference) = (group.mean(of), reference.and_then(|other| other.mean(of)));
            mine.zip(reference).map_or("-".into(), |(a, b)| format!("{:.2}", a / b))
        };
        let cost = |of: fn(&Row) -> Option<f64>| group.mean(of).map_or("-".into(), significant);
        let _ = writeln!(
            text,
            "| {} mm | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            group.spacing_mm,
            group.method,
            group.device,
            group.spread(3, |row| Some(row.dice)),
            cost(|row| row.seconds),
            cost(|row| row.iteration_seconds),
            cost(|row| row.cpu_seconds),
            cost(|row| row.peak_memory_bytes.map(|bytes| bytes as f64 / 1e9)),
            cost(|row| row.gb_hours.map(|cost| 1e3 * cost)),
            ratio(|row| row.seconds),
            ratio(|row| row.gb_hours),
        );
    }
    text
}

impl Group<'_> {
    /// Mean over the pairs that have a value.
    pub fn mean(&self, of: impl Fn(&Row) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.rows.iter().filter_map(|row| of(row)).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }

    /// Mean and, of several pairs, standard deviation; a dash where there is no value.
    fn spread(&self, decimals: usize, of: impl Fn(&Row) -> Option<f64>) -> String {
        let values: Vec<f64> = self.rows.iter().filter_map(|row| of(row)).collect();
        let Some(mean) = self.mean(&of) else { return "-".to_string() };
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        match values.len() {
            1 => format!("{mean:.decimals$}"),
            n => format!("{mean:.decimals$} ± {:.decimals$}", (squares / (n - 1) as f64).sqrt()),
        }
    }
}

/// Three digits that count.
fn significant(value: f64) -> String {
    let before = if value.abs() >= 1.0 { value.abs().log10() as usize + 1 } else { 1 };
    let zeros = if value != 0.0 { (-value.abs().log10()).floor().max(0.0) as usize } else { 0 };
    let decimals = if value.abs() >= 1.0 { 3usize.saturating_sub(before) } else { 3 + zeros };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::row;
    use super::*;

    #[test]
    fn lines_are_means_over_pairs_coarse_to_fine() {
        let mut rows = vec![
            row("a to b", 0.5, "greedy", 0.75),
            row("a to b", 1.0, "greedy", 0.5),
            row("c to d", 1.0, "greedy", 0.75),
            row("a to b", 1.0, "SyN", 0.5),
        ];
        rows[3].seconds = Some(7.2);
        let text = markdown(&rows);
        let lines: Vec<&str> = text.lines().collect();
        // sqrt(2) / 8 = 0.177.
        let expected =
            "| 1 mm | greedy | cpu | 2 | 0.625 ± 0.177 | 0.312 ± 0.088 | 0.500 ± 0.000 | - | - |";
        assert_eq!(lines[2], expected);
        assert!(lines[3].starts_with("| 1 mm | SyN | cpu | 1 | 0.500 |"), "{text}");
        assert!(lines[4].starts_with("| 0.5 mm | greedy | cpu | 1 |"), "{text}");
        let syn = lines.iter().rev().find(|line| line.contains("| SyN | cpu |")).expect("a line");
        assert!(syn.ends_with("| 7.20 | 1.50 | - | 2.00 | 2.00 | 2.00 | 1.00 |"), "{syn}");
    }

    #[test]
    fn numbers_have_three_digits_that_count() {
        for (value, text) in [
            (1234.5, "1234"),
            (123.4, "123"),
            (12.345, "12.3"),
            (1.0, "1.00"),
            (0.5, "0.500"),
            (0.01234, "0.0123"),
            (0.0, "0.000"),
        ] {
            assert_eq!(significant(value), text);
        }
    }
}
