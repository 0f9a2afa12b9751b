//! Accuracy against time, and against memory: a point for each method and resolution.

use super::results::Row;
use super::tables::{Group, groups};
use crate::report::scatter::{Series, scatter};

/// Dice over seconds; `None` without a timed row.
pub fn accuracy_over_time(rows: &[Row]) -> Option<String> {
    plot(rows, "time (s)", |row| row.seconds)
}

/// Dice over peak memory; `None` without a measured row.
pub fn accuracy_over_memory(rows: &[Row]) -> Option<String> {
    plot(rows, "peak memory (GB)", |row| row.peak_memory_bytes.map(|bytes| bytes as f64 / 1e9))
}

/// Dice over seconds of methods that were ended sooner, then of the whole run: means of the pairs; `None` without such rows.
pub fn dice_over_time(rows: &[Row]) -> Option<String> {
    let mut series: Vec<Series> = Vec::new();
    for group in groups(rows) {
        let steps = group.rows.iter().map(|row| row.curve.len()).min().unwrap_or(0);
        let mut points: Vec<(f64, f64, String)> = Vec::new();
        for step in 0..=steps {
            let at = |row: &Row| row.curve.get(step).filter(|_| step < steps).copied();
            let seconds = group.mean(|row| at(row).map(|point| point.seconds).or(row.seconds));
            let dice = group.mean(|row| Some(at(row).map_or(row.dice, |point| point.dice)));
            points
                .extend(seconds.filter(|s| *s > 0.0).zip(dice).map(|(s, d)| (s, d, String::new())));
        }
        if steps > 0 {
            let name = format!("{}, {} mm", series_name(&group), group.spacing_mm);
            series.push(Series { name, points });
        }
    }
    scatter(&series, "time (s)", "mean Dice")
}

fn plot(rows: &[Row], name: &str, cost: fn(&Row) -> Option<f64>) -> Option<String> {
    let mut series: Vec<Series> = Vec::new();
    for group in groups(rows) {
        // A logarithmic axis has no zero.
        let Some(x) = group.mean(cost).filter(|cost| *cost > 0.0) else { continue };
        let Some(y) = group.mean(|row| Some(row.dice)) else { continue };
        let point = (x, y, format!("{} mm", group.spacing_mm));
        let name = series_name(&group);
        match series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => series.push(Series { name, points: vec![point] }),
        }
    }
    scatter(&series, name, "mean Dice")
}

fn series_name(group: &Group) -> String {
    format!("{} ({})", group.method, group.device)
}

#[cfg(test)]
mod tests {
    use super::super::results::CurvePoint;
    use super::super::results::tests::row;
    use super::*;

    #[test]
    fn a_method_is_a_line_over_resolutions() {
        let mut rows = vec![
            row("a to b", 1.0, "greedy", 0.5),
            row("a to b", 0.5, "greedy", 0.75),
            row("a to b", 1.0, "identity", 0.25),
        ];
        rows[2].seconds = None;
        let svg = accuracy_over_time(&rows).expect("two points");
        assert_eq!(svg.matches("<polyline").count(), 1, "{svg}");
        assert!(svg.contains("0.5 mm") && svg.contains("greedy (cpu)"), "{svg}");
        assert!(!svg.contains("identity"), "what costs nothing has no place");
        rows.iter_mut().for_each(|row| row.peak_memory_bytes = None);
        assert!(accuracy_over_memory(&rows).is_none());
    }

    #[test]
    fn a_run_that_was_ended_sooner_is_a_line_over_time() {
        let mut rows = vec![row("a to b", 1.0, "greedy", 0.75), row("a to b", 1.0, "svf", 0.5)];
        assert!(dice_over_time(&rows).is_none());
        rows[0].curve =
            [(0.5, 0.25), (1.0, 0.5)].map(|(seconds, dice)| CurvePoint { seconds, dice }).into();
        let svg = dice_over_time(&rows).expect("a curve");
        assert_eq!(svg.matches("<polyline").count(), 1, "{svg}");
        // Two points, the whole run, and the name of the line.
        assert_eq!(svg.matches("<circle").count(), 4, "{svg}");
        assert!(svg.contains("greedy (cpu), 1 mm"), "{svg}");
    }
}
