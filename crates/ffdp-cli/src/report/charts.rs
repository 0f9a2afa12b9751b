//! Curves as SVG: the loss of a stage over its iterations.

use std::fmt::Write;

use ffdp_register::report::StageReport;
use ffdp_train::pictures::Scale;

use super::colours::COLOURS;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 230.0;
/// Left, top, right, bottom of what is around the curves.
const MARGIN: [f64; 4] = [66.0, 26.0, 14.0, 42.0];

/// The losses of a stage, level after level; `unit` names the loss. A level without iterations is
/// left out; a stage without any has no curve.
pub fn convergence(stage: &StageReport, unit: &str) -> Option<String> {
    let losses = || stage.levels.iter().flat_map(|level| &level.losses);
    let count = losses().count();
    let low = losses().copied().fold(f64::INFINITY, f64::min);
    let high = losses().copied().fold(f64::NEG_INFINITY, f64::max);
    if count == 0 {
        return None;
    }
    let axes = Axes {
        x: Scale::new([0.0, count as f64], [MARGIN[0], WIDTH - MARGIN[2]]),
        y: Scale::new(widened(low, high), [HEIGHT - MARGIN[3], MARGIN[1]]),
    };
    let mut svg = axes.frame(&Names::of_loss(unit));
    let mut start = 0;
    for (index, level) in stage.levels.iter().enumerate() {
        let name = format!("shrink {}", level.shrink);
        axes.level(&mut svg, index, start, &level.losses, &name);
        start += level.losses.len();
    }
    svg.push_str("</svg>");
    Some(svg)
}

/// One curve of positive values, by their logarithm to base 10; `unit` names it.
pub fn logarithmic(values: &[f64], unit: &str) -> Option<String> {
    let logs: Vec<f64> = values.iter().filter(|v| **v > 0.0).map(|v| v.log10()).collect();
    let low = logs.iter().copied().fold(f64::INFINITY, f64::min);
    let high = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if logs.is_empty() {
        return None;
    }
    let axes = Axes {
        x: Scale::new([0.0, logs.len() as f64], [MARGIN[0], WIDTH - MARGIN[2]]),
        y: Scale::new(widened(low, high), [HEIGHT - MARGIN[3], MARGIN[1]]),
    };
    let mut svg = axes.frame(&Names::of_loss(unit));
    axes.level(&mut svg, 0, 0, &logs, "");
    svg.push_str("</svg>");
    Some(svg)
}

/// Values over the volumes of a series.
pub struct Curve<'a> {
    pub name: &'a str,
    pub values: &'a [f64],
}

/// Curves of different colours over the numbers of volumes, with their names above; `quantity` names the values. Lines
/// are where volumes are to be looked at. `None` without a value.
pub fn over_volumes(curves: &[Curve], quantity: &str, marked: &[usize]) -> Option<String> {
    let values = || curves.iter().flat_map(|curve| curve.values);
    let low = values().copied().fold(f64::INFINITY, f64::min);
    let high = values().copied().fold(f64::NEG_INFINITY, f64::max);
    let count = curves.iter().map(|curve| curve.values.len()).max().filter(|count| *count > 0)?;
    let axes = Axes {
        x: Scale::new([0.0, (count - 1).max(1) as f64], [MARGIN[0], WIDTH - MARGIN[2]]),
        y: Scale::new(widened(low, high), [HEIGHT - MARGIN[3], MARGIN[1]]),
    };
    let names = Names { x: "volume", y: quantity, about: &format!("{quantity} over volumes") };
    let mut svg = axes.frame(&names);
    let (top, bottom) = (MARGIN[1], HEIGHT - MARGIN[3]);
    for volume in marked {
        let x = axes.x.place(*volume as f64);
        let _ = write!(
            svg,
            "<line class=\"border\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>"
        );
    }
    for (index, curve) in curves.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let place = |(k, v): (usize, &f64)| {
            format!("{:.1},{:.1}", axes.x.place(k as f64), axes.y.place(*v))
        };
        let points: Vec<String> = curve.values.iter().enumerate().map(place).collect();
        let _ = write!(
            svg,
            "<polyline style=\"stroke:{colour}\" points=\"{}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" style=\"fill:{colour}\">{}</text>",
            points.join(" "),
            MARGIN[0] + 90.0 * index as f64,
            top - 10.0,
            curve.name
        );
    }
    svg.push_str("</svg>");
    Some(svg)
}

/// The names of the axes, and that of the picture for those who do not see it.
struct Names<'a> {
    x: &'a str,
    y: &'a str,
    about: &'a str,
}

impl<'a> Names<'a> {
    fn of_loss(unit: &'a str) -> Self {
        Self { x: "iteration", y: unit, about: "Loss over iterations" }
    }
}

struct Axes {
    x: Scale,
    y: Scale,
}

impl Axes {
    /// The opening tag, lines with numbers, and the names of the axes.
    fn frame(&self, &Names { x: x_name, y: y_name, about }: &Names) -> String {
        let mut svg = format!(
            "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
             aria-label=\"{about}\" xmlns=\"http://www.w3.org/2000/svg\">"
        );
        let (left, right) = (MARGIN[0], WIDTH - MARGIN[2]);
        let bottom = HEIGHT - MARGIN[3];
        for tick in self.y.ticks() {
            let (y, text) = (self.y.place(tick), number(tick));
            let _ = write!(
                svg,
                "<line class=\"rule\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
                left - 7.0,
                y + 3.5
            );
        }
        for tick in self.x.ticks() {
            let (x, text) = (self.x.place(tick), number(tick));
            let _ = write!(
                svg,
                "<line class=\"tick\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{:.1}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
                bottom + 4.0,
                bottom + 16.0
            );
        }
        let (middle, side) = ((left + right) / 2.0, (MARGIN[1] + bottom) / 2.0);
        let _ = write!(
            svg,
            "<line class=\"axis\" x1=\"{left}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\"/>\
             <text class=\"name\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{x_name}\
             </text><text class=\"name\" transform=\"translate(13 {side:.1}) rotate(-90)\" \
             text-anchor=\"middle\">{y_name}</text>",
            HEIGHT - 6.0
        );
        svg
    }

    /// The curve of a level, with its name above and a line where it begins.
    fn level(&self, svg: &mut String, index: usize, start: usize, losses: &[f64], name: &str) {
        if losses.is_empty() {
            return;
        }
        let place = |i: usize| (start + i) as f64 + 0.5;
        let points: Vec<String> = losses
            .iter()
            .enumerate()
            .map(|(i, &loss)| format!("{:.1},{:.1}", self.x.place(place(i)), self.y.place(loss)))
            .collect();
        let (begin, end) =
            (self.x.place(start as f64), self.x.place((start + losses.len()) as f64));
        let (top, bottom) = (MARGIN[1], HEIGHT - MARGIN[3]);
        if index > 0 {
            let _ = write!(
                svg,
                "<line class=\"border\" x1=\"{begin:.1}\" x2=\"{begin:.1}\" y1=\"{:.1}\" \
                 y2=\"{bottom}\"/>",
                top - 10.0
            );
        }
        let _ = write!(
            svg,
            "<text class=\"level\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name}\
             </text><polyline points=\"{}\"/>",
            (begin + end) / 2.0,
            top - 10.0,
            points.join(" ")
        );
        if let ([point], 1) = (&points[..], losses.len()) {
            let (x, y) = point.split_once(',').unwrap_or_default();
            let _ = write!(svg, "<circle cx=\"{x}\" cy=\"{y}\" r=\"2.5\"/>");
        }
    }
}

/// The range with some air; a constant gets a range of its own.
pub(super) fn widened(low: f64, high: f64) -> [f64; 2] {
    let air = match high > low {
        true => 0.05 * (high - low),
        false => 0.05 * low.abs().max(1e-6),
    };
    [low - air, high + air]
}

/// Without the noise of the last digits.
pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    let text = if text == "-0" { "0" } else { text };
    text.replace('-', "\u{2212}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ffdp_register::report::{LevelReport, Stop};

    fn stage(losses: &[&[f64]]) -> StageReport {
        let level = |losses: &&[f64]| LevelReport {
            shrink: 2.0,
            size: [8; 3],
            losses: losses.to_vec(),
            stop: Stop::Converged,
            seconds: 1.0,
            newton: Vec::new(),
        };
        let levels = losses.iter().map(level).collect();
        StageReport {
            transform: "greedy",
            levels,
            loss_after: 0.1,
            undone: None,
            margin: None,
            seconds: 2.0,
        }
    }

    #[test]
    fn every_loss_is_a_point_inside_the_frame() {
        let svg = convergence(&stage(&[&[0.9, 0.5, 0.45], &[], &[0.6, 0.5]]), "loss").expect("two");
        let points: Vec<(f64, f64)> = svg
            .split("points=\"")
            .skip(1)
            .flat_map(|rest| rest.split('"').next().unwrap_or("").split(' '))
            .filter_map(|point| point.split_once(','))
            .map(|(x, y)| (x.parse().expect("a number"), y.parse().expect("a number")))
            .collect();
        assert_eq!(points.len(), 5, "{svg}");
        assert!(points.is_sorted_by(|a, b| a.0 < b.0), "time goes to the right");
        assert!(points[0].1 < points[2].1, "a lower loss is further down");
        let [left, top, right, bottom] = MARGIN;
        for (x, y) in points {
            assert!((left..=WIDTH - right).contains(&x) && (top..=HEIGHT - bottom).contains(&y));
        }
    }

    #[test]
    fn curves_over_volumes_have_their_names_and_lines_where_to_look() {
        let curve = |name, values| Curve { name, values };
        let curves = [curve("x", &[0.0, 1.0, -1.0][..]), curve("y", &[0.5, 0.5, 0.5][..])];
        let svg = over_volumes(&curves, "mm", &[1]).expect("three volumes");
        assert_eq!(svg.matches("<polyline").count(), 2, "{svg}");
        assert_eq!(svg.matches("class=\"border\"").count(), 1, "{svg}");
        assert!(svg.contains(">x</text>") && svg.contains(">volume</text>"), "{svg}");
        assert!(over_volumes(&[curve("x", &[])], "mm", &[]).is_none());
    }

    #[test]
    fn constant_and_missing_losses_are_drawn_or_not() {
        assert!(convergence(&stage(&[]), "loss").is_none());
        let flat = convergence(&stage(&[&[0.5, 0.5]]), "loss").expect("a curve");
        assert!(!flat.contains("NaN"), "{flat}");
    }
}
