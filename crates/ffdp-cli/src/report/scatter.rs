//! Points with names over a logarithmic axis, as a picture that stands alone (SVG).

use std::fmt::Write;

use ffdp_train::pictures::Scale;

use super::charts::{Frame, Marks, extent};
use super::colours::COLOURS;

const WIDTH: f64 = 780.0;
const HEIGHT: f64 = 400.0;
/// Left, top, right, bottom of what is around the points.
const MARGIN: [f64; 4] = [62.0, 16.0, 290.0, 48.0];
/// From the right end of the axis to the names of the series: space for the text next to a point.
const TEXT_WIDTH: f64 = 55.0;
const STYLE: &str = "text{font:12px sans-serif;fill:#333}.rule{stroke:#e3e6ea}.axis{stroke:#9aa5b1}\
                     .at{font-size:10px}\
                     polyline{fill:none;stroke-width:1.4;opacity:.6}";

/// Points of one colour, joined in their order.
pub struct Series {
    pub name: String,
    /// x (above 0), y, and what is written next to the point.
    pub points: Vec<(f64, f64, String)>,
}

/// The picture; `None` without a point.
pub fn scatter(series: &[Series], x_name: &str, y_name: &str) -> Option<String> {
    let points = || series.iter().flat_map(|series| &series.points);
    let ranges = [extent(points().map(|at| at.0.log10()))?, extent(points().map(|at| at.1))?];
    let frame = Frame::new([WIDTH, HEIGHT], MARGIN, ranges);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\" \
         xmlns=\"http://www.w3.org/2000/svg\"><title>{y_name} over {x_name}</title>\
         <style>{STYLE}</style><rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>"
    );
    let ticks: Vec<[f64; 2]> =
        logarithmic_ticks(&frame.x).into_iter().map(|value| [value.log10(), value]).collect();
    frame.draw(&mut svg, &ticks, Marks::Through, [x_name, y_name]);
    for (index, series) in series.iter().enumerate() {
        draw(&mut svg, series, COLOURS[index % COLOURS.len()], index, &frame);
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

/// 1, 2 and 5 times the powers of ten in the range of logarithms; powers alone where it is wide.
fn logarithmic_ticks(x: &Scale) -> Vec<f64> {
    let [from, to] = x.values();
    let steps: &[f64] = if to - from > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let powers = from.floor() as i32..=to.ceil() as i32;
    let values = powers.flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
    values.filter(|value| (from..=to).contains(&value.log10())).collect()
}

fn draw(svg: &mut String, series: &Series, colour: &str, index: usize, frame: &Frame) {
    let values = || series.points.iter().map(|(x, y, _)| (x.log10(), *y));
    let line = frame.points(values()).join(" ");
    let _ = write!(svg, "<polyline points=\"{line}\" stroke=\"{colour}\"/>");
    for ((x, y), (.., text)) in values().zip(&series.points) {
        let (x, y) = (frame.x.place(x), frame.y.place(y));
        let _ = write!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>\
             <text class=\"at\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            x + 6.0,
            y - 5.0,
            escaped(text)
        );
    }
    let (left, row) = (WIDTH - MARGIN[2] + TEXT_WIDTH, MARGIN[1] + 14.0 + 19.0 * index as f64);
    let _ = write!(
        svg,
        "<circle cx=\"{left:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"{colour}\"/>\
         <text x=\"{:.1}\" y=\"{row:.1}\">{}</text>",
        row - 4.0,
        left + 10.0,
        escaped(&series.name)
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_lie_inside_and_better_is_higher() {
        let point = |x: f64, y: f64| (x, y, format!("{x} <s>"));
        let series = [
            Series { name: "one & two".into(), points: vec![point(0.5, 0.8), point(700.0, 0.9)] },
            Series { name: "three".into(), points: vec![point(20.0, 0.7)] },
        ];
        let svg = scatter(&series, "time (s)", "Dice").expect("three points");
        assert!(svg.contains("one &amp; two") && svg.contains("20 &lt;s>"), "{svg}");
        let places = super::super::charts::points_of(&svg);
        let [first, second, third] = places[..] else { panic!("{svg}") };
        assert!(first.0 < third.0 && third.0 < second.0, "more time lies to the right");
        assert!(second.1 < first.1 && first.1 < third.1, "better lies higher");
        for (x, y) in places {
            assert!((MARGIN[0]..=WIDTH - MARGIN[2]).contains(&x), "{x}");
            assert!((MARGIN[1]..=HEIGHT - MARGIN[3]).contains(&y), "{y}");
        }
        assert!(scatter(&[], "x", "y").is_none());
    }

    #[test]
    fn logarithmic_ticks_are_round() {
        let ticks = |values| logarithmic_ticks(&Scale::new(values, [0.0, 1.0]));
        assert_eq!(ticks([0.0, 1.0]), [1.0, 2.0, 5.0, 10.0]);
        assert_eq!(ticks([-0.5, 3.5]), [1.0, 10.0, 100.0, 1000.0]);
    }
}
