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
    let losses = || stage.levels.iter().flat_map(|level| level.losses.iter().copied());
    let ranges = [[0.0, losses().count() as f64], extent(losses())?];
    let (frame, mut svg) = chart(ranges, &Names::of_loss(unit));
    let mut start = 0;
    for (index, level) in stage.levels.iter().enumerate() {
        let name = format!("shrink {}", level.shrink);
        frame.level(&mut svg, index, start, &level.losses, &name);
        start += level.losses.len();
    }
    svg.push_str("</svg>");
    Some(svg)
}

/// One curve of positive values, by their logarithm to base 10; `unit` names it.
pub fn logarithmic(values: &[f64], unit: &str) -> Option<String> {
    let logs: Vec<f64> = values.iter().filter(|v| **v > 0.0).map(|v| v.log10()).collect();
    let ranges = [[0.0, logs.len() as f64], extent(logs.iter().copied())?];
    let (frame, mut svg) = chart(ranges, &Names::of_loss(unit));
    frame.level(&mut svg, 0, 0, &logs, "");
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
    let range = extent(curves.iter().flat_map(|curve| curve.values.iter().copied()))?;
    let count = curves.iter().map(|curve| curve.values.len()).max().unwrap_or(0);
    let names = Names { axes: ["volume", quantity], about: &format!("{quantity} over volumes") };
    let (frame, mut svg) = chart([[0.0, (count - 1).max(1) as f64], range], &names);
    for volume in marked {
        frame.border(&mut svg, *volume as f64, 0.0);
    }
    for (index, curve) in curves.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let values = curve.values.iter().enumerate().map(|(k, v)| (k as f64, *v));
        let _ = write!(
            svg,
            "<polyline style=\"stroke:{colour}\" points=\"{}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" style=\"fill:{colour}\">{}</text>",
            frame.points(values).join(" "),
            MARGIN[0] + 90.0 * index as f64,
            MARGIN[1] - 10.0,
            curve.name
        );
    }
    svg.push_str("</svg>");
    Some(svg)
}

/// The names of the axes, along x and y, and that of the picture for those who do not see it.
struct Names<'a> {
    axes: [&'a str; 2],
    about: &'a str,
}

impl<'a> Names<'a> {
    fn of_loss(unit: &'a str) -> Self {
        Self { axes: ["iteration", unit], about: "Loss over iterations" }
    }
}

/// A chart of these ranges, along x and y, without its curves and its end.
fn chart(ranges: [[f64; 2]; 2], Names { axes, about }: &Names) -> (Frame, String) {
    let frame = Frame::new([WIDTH, HEIGHT], MARGIN, ranges);
    let mut svg = format!(
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"{about}\" xmlns=\"http://www.w3.org/2000/svg\">"
    );
    let ticks: Vec<[f64; 2]> = frame.x.ticks().into_iter().map(|tick| [tick; 2]).collect();
    frame.draw(&mut svg, &ticks, Marks::Below, *axes);
    (frame, svg)
}

/// What is around curves, and where values lie in it.
pub(super) struct Frame {
    pub x: Scale,
    pub y: Scale,
    /// Left, top, right, bottom.
    corners: [f64; 4],
    height: f64,
}

/// What marks values along x: lines through the frame, or short ones below it.
pub(super) enum Marks {
    Through,
    Below,
}

impl Frame {
    /// A frame with so much space around it, of values in these ranges along x and y.
    pub fn new([width, height]: [f64; 2], margin: [f64; 4], [x, y]: [[f64; 2]; 2]) -> Self {
        let [left, top, right, bottom] = margin;
        let (right, bottom) = (width - right, height - bottom);
        let (x, y) = (Scale::new(x, [left, right]), Scale::new(y, [bottom, top]));
        Self { x, y, corners: [left, top, right, bottom], height }
    }

    /// Lines with numbers, those along x where values of `x` lie and what is written there, and the names of the axes.
    pub fn draw(&self, svg: &mut String, ticks: &[[f64; 2]], marks: Marks, names: [&str; 2]) {
        let [left, top, right, bottom] = self.corners;
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
        let (class, from, to) = match marks {
            Marks::Through => ("rule", top, bottom),
            Marks::Below => ("tick", bottom, bottom + 4.0),
        };
        for [tick, value] in ticks {
            let (x, text) = (self.x.place(*tick), number(*value));
            let _ = write!(
                svg,
                "<line class=\"{class}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{from}\" y2=\"{to:.1}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
                bottom + 16.0
            );
        }
        let ([x_name, y_name], middle, side) = (names, (left + right) / 2.0, (top + bottom) / 2.0);
        let _ = write!(
            svg,
            "<line class=\"axis\" x1=\"{left}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\"/>\
             <text class=\"name\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{x_name}\
             </text><text class=\"name\" transform=\"translate(13 {side:.1}) rotate(-90)\" \
             text-anchor=\"middle\">{y_name}</text>",
            self.height - 6.0
        );
    }

    /// Where values (x, y) lie, as the points of a line.
    pub fn points(&self, values: impl Iterator<Item = (f64, f64)>) -> Vec<String> {
        let point = |(x, y)| format!("{:.1},{:.1}", self.x.place(x), self.y.place(y));
        values.map(point).collect()
    }

    /// A line at `x` that rises so far beyond the top.
    fn border(&self, svg: &mut String, x: f64, rise: f64) {
        let [_, top, _, bottom] = self.corners;
        let (x, from) = (self.x.place(x), top - rise);
        let _ = write!(
            svg,
            "<line class=\"border\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{from:.1}\" y2=\"{bottom}\"/>"
        );
    }

    /// The curve of a level, with its name above and a line where it begins.
    fn level(&self, svg: &mut String, index: usize, start: usize, losses: &[f64], name: &str) {
        if losses.is_empty() {
            return;
        }
        let values = losses.iter().enumerate().map(|(i, loss)| ((start + i) as f64 + 0.5, *loss));
        let points = self.points(values);
        let middle = start as f64 + losses.len() as f64 / 2.0;
        if index > 0 {
            self.border(svg, start as f64, 10.0);
        }
        let _ = write!(
            svg,
            "<text class=\"level\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name}\
             </text><polyline points=\"{}\"/>",
            self.x.place(middle),
            self.corners[1] - 10.0,
            points.join(" ")
        );
        if let [point] = &points[..] {
            let (x, y) = point.split_once(',').unwrap_or_default();
            let _ = write!(svg, "<circle cx=\"{x}\" cy=\"{y}\" r=\"2.5\"/>");
        }
    }
}

/// The range of values with some air; a constant gets a range of its own. `None` without a value.
pub(super) fn extent(values: impl Iterator<Item = f64>) -> Option<[f64; 2]> {
    let wider = |[low, high]: [f64; 2], [l, h]: [f64; 2]| [low.min(l), high.max(h)];
    let [low, high] = values.map(|value| [value; 2]).reduce(wider)?;
    let air = match high > low {
        true => 0.05 * (high - low),
        false => 0.05 * low.abs().max(1e-6),
    };
    Some([low - air, high + air])
}

/// Without the noise of the last digits.
fn number(value: f64) -> String {
    let text = format!("{value:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    let text = if text == "-0" { "0" } else { text };
    text.replace('-', "\u{2212}")
}

/// The points of all lines of a picture.
#[cfg(test)]
pub(super) fn points_of(svg: &str) -> Vec<(f64, f64)> {
    let lines = svg.split("points=\"").skip(1);
    let points = lines.flat_map(|rest| rest.split('"').next().unwrap_or("").split(' '));
    let numbers = points.filter_map(|point| point.split_once(','));
    numbers.map(|(x, y)| (x.parse().expect("a number"), y.parse().expect("a number"))).collect()
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
        let points = points_of(&svg);
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
