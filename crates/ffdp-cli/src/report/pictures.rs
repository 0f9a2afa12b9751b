//! The slices as figures: one row per plane, one column per view.

use maud::{Markup, PreEscaped, html};
use rayon::prelude::*;

use super::colours::{FOLD, diverging};
use super::slices::{Pictures, View};

/// Runs where the page is shown.
const OVERLAY: &str = include_str!("overlay.js");

/// Planes with the directions at the left, right, top and bottom of their pictures.
const PLANES: [(&str, [&str; 4]); 3] = [
    ("axial", ["L", "R", "A", "P"]),
    ("coronal", ["L", "R", "S", "I"]),
    ("sagittal", ["P", "A", "S", "I"]),
];

/// All figures.
pub fn figures(pictures: &Pictures) -> Markup {
    let images = figure(
        pictures,
        "Images",
        &[
            (View::Fixed, "fixed"),
            (View::Moving, "moving, as its header places it"),
            (View::Warped, "moving, registered"),
        ],
        html! {},
    );
    let checks = figure(
        pictures,
        "Checkerboard of fixed and moving",
        &[(View::ChecksBefore, "before"), (View::ChecksAfter, "after")],
        html! { "Edges that run on from square to square are aligned." },
    );
    let differences = figure(
        pictures,
        "Absolute difference",
        &[(View::DifferenceBefore, "before"), (View::DifferenceAfter, "after")],
        html! { "Intensities of each image scaled to 0\u{2013}1; black is no difference, white 1." },
    );
    let marks = pictures.has_marks.then(|| {
        figure(
            pictures,
            "Borders of labels, landmarks",
            &[(View::MarksBefore, "before"), (View::MarksAfter, "after")],
            html! {
                "On the fixed image: " span.fixed-mark { "■" } " of the fixed image, " span.moving-mark { "■" }
                " of the moving image, white borders of both. Lines join landmarks that correspond, of those near the plane."
            },
        )
    });
    html! {
        section {
            h2 { "Slices" }
            p.note {
                "Planes through the " (pictures.centre) " of the fixed image, in its physical space; "
                "L left, R right, A front, P back, S head, I feet."
            }
            (images)
            (overlay(pictures))
            @if let Some(marks) = marks { (marks) }
            div.pair { (checks) (differences) }
            (deformation(pictures))
            // Once all pictures are there.
            script { (PreEscaped(OVERLAY)) }
        }
    }
}

/// The deformed grid, the change of volume, and control points where there are some.
fn deformation(pictures: &Pictures) -> Markup {
    let mut views =
        vec![(View::Grid, "warped grid"), (View::LogJacobian, "change of volume, ln det J")];
    if pictures.has_controls {
        views.push((View::Controls, "control points on the fixed image"));
    }
    figure(
        pictures,
        "Deformation",
        &views,
        html! {
            "The grid is regular in the moving image. "
            @if pictures.has_controls {
                "Control points lie regularly on the fixed image and are drawn where the displacement carries them. "
            }
            (legend(pictures.log_jacobian_range))
        },
    )
}

/// By what the script finds a picture.
fn picture_id(view: View, plane: usize) -> String {
    format!("{view:?}-{plane}").to_lowercase()
}

/// The fixed and the moving image over each other, filled and moved by a script: without one it stays hidden.
fn overlay(pictures: &Pictures) -> Markup {
    let planes = PLANES.iter().enumerate().map(|(index, (plane, _))| {
        let canvas = pictures.get(index, View::Fixed);
        (plane, canvas.width, canvas.height)
    });
    html! {
        figure.overlay hidden {
            p.title { "Fixed image under the moving one" }
            p.controls {
                label { "fixed " input type="range" min="0" max="100" value="50"; " moving" }
                label { input type="checkbox"; " blink" }
                label { input type="checkbox"; " as its header places it" }
            }
            div.row {
                @for (plane, width, height) in planes {
                    div.slice {
                        img.under alt={ "fixed image, " (plane) " plane" } width=(width) height=(height);
                        img.over alt={ "moving image over it, " (plane) " plane" } width=(width) height=(height);
                    }
                }
            }
        }
    }
}

fn figure(pictures: &Pictures, title: &str, views: &[(View, &str)], caption: Markup) -> Markup {
    // Compressing takes the time.
    let shown: Vec<_> = (0..PLANES.len())
        .flat_map(|plane| views.iter().map(move |(view, _)| (plane, *view)))
        .collect();
    let urls = shown.par_iter().map(|&(plane, view)| pictures.get(plane, view).data_url());
    let mut urls = urls.collect::<Vec<String>>().into_iter();
    let mut rows = Vec::with_capacity(PLANES.len());
    for (index, (plane, directions)) in PLANES.into_iter().enumerate() {
        let mut cells = Vec::with_capacity(views.len());
        for &(view, name) in views {
            let canvas = pictures.get(index, view);
            let url = urls.next().expect("one for every view of every plane");
            let alt = format!("{title}: {name}, {plane} plane");
            let (width, height) = (canvas.width, canvas.height);
            let light = view == View::LogJacobian;
            cells.push(html! {
                td { div.slice.light[light] {
                    img id=(picture_id(view, index)) src=(url) alt=(alt) width=(width) height=(height);
                    @for (place, text) in ["left", "right", "top", "bottom"].iter().zip(directions) {
                        span class=(place) aria-hidden="true" { (text) }
                    }
                } }
            });
        }
        rows.push(html! { tr { th scope="row" { (plane) } @for cell in cells { (cell) } } });
    }
    html! {
        figure {
            table.slices {
                caption { (title) }
                thead { tr { th {} @for (_, name) in views { th scope="col" { (name) } } } }
                tbody { @for row in rows { (row) } }
            }
            figcaption { (caption) }
        }
    }
}

/// The colours of ln det J from `-range` to `range`, with what they mean.
fn legend(range: f64) -> Markup {
    const STEPS: usize = 9;
    let stops: Vec<String> = (0..STEPS)
        .map(|i| {
            let t = i as f64 / (STEPS - 1) as f64;
            let [r, g, b] = diverging(2.0 * t - 1.0);
            format!("<stop offset=\"{:.1}%\" stop-color=\"rgb({r},{g},{b})\"/>", 100.0 * t)
        })
        .collect();
    let ticks: Vec<String> = [-range, -range / 2.0, 0.0, range / 2.0, range]
        .map(|value| {
            let x = 20.0 + 260.0 * (value + range) / (2.0 * range);
            let text = format!("{value:+.2}").replace('-', "\u{2212}").replace("+0.00", "0");
            format!(
                "<text x=\"{x:.0}\" y=\"31\" text-anchor=\"middle\">{text}</text>\
                 <text class=\"dim\" x=\"{x:.0}\" y=\"45\" text-anchor=\"middle\">\u{00d7}{:.2}</text>",
                value.exp()
            )
        })
        .to_vec();
    let [r, g, b] = FOLD;
    let svg = format!(
        "<svg class=\"legend\" viewBox=\"0 0 390 50\" role=\"img\" aria-label=\"Colours of ln det J \
         from {:.1} to {range:.1}\" xmlns=\"http://www.w3.org/2000/svg\"><defs>\
         <linearGradient id=\"volume\">{}</linearGradient></defs>\
         <rect x=\"20\" y=\"4\" width=\"260\" height=\"12\" fill=\"url(#volume)\"/>{}\
         <rect x=\"310\" y=\"4\" width=\"14\" height=\"12\" fill=\"rgb({r},{g},{b})\"/>\
         <text x=\"330\" y=\"14\">folded</text></svg>",
        -range,
        stops.join(""),
        ticks.join("")
    );
    html! { (PreEscaped(svg)) }
}
