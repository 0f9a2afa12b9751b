//! The page of a matching of shapes: the surfaces before and after, coloured by their distance to the target.

use ffdp_shapes::shape::{SurfaceDistance, surface_distance};
use ffdp_shapes::{Position, Shape, ShapeTree};
use ffdp_train::pictures::Rgb;
use ffdp_train::report::{document, tile};
use maud::{Markup, PreEscaped, html};

use super::charts;
use super::colours::diverging;
use super::html::{STYLE, TO_LOOK_AT, notes};
use super::surface::{VIEWS, draw};

/// Pixels of a picture's longer side.
const SIZE: usize = 300;

/// Of shapes without a distance.
const PLAIN: Rgb = [198, 204, 214];

/// What is reported of a matching.
pub struct ShapeReport<'a> {
    /// What was matched to what.
    pub title: String,
    /// The source before, and after.
    pub shapes: [&'a Shape; 2],
    /// What it was deformed to.
    pub target: &'a Shape,
    /// The cost before every iteration and at the end.
    pub costs: &'a [f64],
    /// Names and values of what was measured.
    pub measures: Vec<(String, String)>,
    /// What the user should look at.
    pub warnings: &'a [String],
    /// The settings, as their file.
    pub settings: String,
}

/// Blue where the shapes agree, over white, to red at `most` millimetres and beyond.
fn colours(shape: &Shape, target: &Shape, most: f64) -> Vec<Rgb> {
    let tree = ShapeTree::new(target);
    let colour = |&p: &Position| diverging(2.0 * tree.nearest(p).distance_mm / most - 1.0);
    shape.points.iter().map(colour).collect()
}

/// The page.
pub fn page(report: &ShapeReport) -> String {
    let distances = report.shapes.map(|shape| surface_distance(shape, report.target));
    let [before, after] = distances;
    let better = after.mean < before.mean;
    let content = html! {
        header {
            p.kicker { "Registration of shapes" }
            h1 { (report.title) }
            p.meta {
                @if better { span.verdict.good { "Aligned" } }
                @else { span.verdict.bad { "Not aligned" } }
                " · ffdp " (env!("CARGO_PKG_VERSION"))
            }
        }
        div.headlines {
            (distance("mean distance", before.mean, after.mean))
            (distance("95th percentile", before.p95, after.p95))
            (distance("largest distance", before.max, after.max))
        }
        (notes(TO_LOOK_AT, report.warnings))
        (pictures(report, &before))
        @if let Some(curve) = charts::logarithmic(report.costs, "log10 cost") {
            h2 { "Convergence" }
            (PreEscaped(curve))
        }
        h2 { "Measures" }
        table.text { tbody {
            @for (name, value) in &report.measures { tr { th { (name) } td { (value) } } }
        } }
        details { summary { "Settings" } pre { (report.settings) } }
    };
    document(&format!("Shapes: {}", report.title), STYLE, &content)
}

fn distance(name: &str, before: f64, after: f64) -> Markup {
    tile(name, &format!("{after:.3} mm"), &format!("before {before:.3} mm"))
}

fn pictures(report: &ShapeReport, before: &SurfaceDistance) -> Markup {
    let most = before.p95.max(f64::MIN_POSITIVE);
    let [source, matched] = report.shapes;
    let plain = vec![PLAIN; report.target.points.len()];
    let rows = [
        ("before", source, colours(source, report.target, most)),
        ("after", matched, colours(matched, report.target, most)),
        ("target", report.target, plain),
    ];
    let bounds = [source, matched, report.target].map(Shape::bounds);
    let corner = |k: usize, pick: fn(f64, f64) -> f64| -> Position {
        std::array::from_fn(|c| bounds.iter().map(|b| b[k][c]).reduce(pick).expect("three"))
    };
    let bounds = [corner(0, f64::min), corner(1, f64::max)];
    let drawn = rows.map(|(name, shape, colours)| {
        (name, VIEWS.map(|view| draw(shape, &colours, bounds, view, SIZE).data_url()))
    });
    html! {
        h2 { "Surfaces" }
        figure {
            table.slices {
                thead { tr { th {} @for view in &VIEWS { th { (view.name) } } } }
                tbody { @for (name, urls) in &drawn { tr {
                    th { (name) }
                    @for url in urls { td { img src=(url) alt=(name); } }
                } } }
            }
            figcaption {
                "Coloured by the distance to the target: blue 0, white " (format!("{:.2}", most / 2.0))
                ", red " (format!("{most:.2}")) " mm and more."
            }
        }
    }
}
