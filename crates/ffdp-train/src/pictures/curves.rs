//! Learning curves from the journal.

use ffdp_image::Result;

use super::canvas::{Canvas, Rgb};
use super::scale::{Scale, round_step};
use crate::folder::RunFolder;
use crate::journal::{self, Record, number};

const PAPER: Rgb = [255, 255, 255];
const INK: Rgb = [40, 40, 40];
const RULE: Rgb = [225, 225, 225];
const STEPS: Rgb = [190, 205, 225];
const TRAINING: Rgb = [30, 90, 180];
const VALIDATION: Rgb = [215, 95, 20];
const REFERENCE: Rgb = [130, 130, 130];
const SIZE: [usize; 2] = [1200, 480];

/// One line of a chart.
struct Curve {
    name: &'static str,
    points: Vec<[f64; 2]>,
    color: Rgb,
    width: usize,
}

/// A chart within a canvas.
struct Chart {
    left: usize,
    width: usize,
    title: String,
    curves: Vec<Curve>,
}

/// Draws `pictures/learning-curves.png`: the loss by step and epoch, and Dice on the validation
/// pairs with the held-out pairs' before and after.
///
/// # Errors
/// A journal that cannot be read or a picture that cannot be written.
pub fn draw(folder: &RunFolder, similarity: &str, mean_dice: Option<[f64; 2]>) -> Result<()> {
    let records = journal::read(&folder.journal())?;
    let has = |record: &Record, key: &str, value: &str| record.get(key).is_some_and(|v| v == value);
    let of = |kind: &'static str, split: &'static str| {
        records.iter().filter(move |r| has(r, "kind", kind) && has(r, "split", split))
    };
    let steps = of("step", "train").map(|r| number(r, "step")).fold(1.0, f64::max);
    let by_step = |r: &Record| number(r, "epoch") - 1.0 + number(r, "step") / steps;
    let curve = |name, kind, split, key: &'static str, color, width| {
        let x = |r: &Record| if kind == "step" { by_step(r) } else { number(r, "epoch") };
        let points = of(kind, split).map(|r| [x(r), number(r, key)]);
        let points = points.filter(|point| point[1].is_finite()).collect();
        Curve { name, points, color, width }
    };
    let epochs = of("epoch", "train").map(|r| number(r, "epoch")).fold(1.0, f64::max);
    let level = |name, value: f64| {
        let points = vec![[0.0, value], [epochs, value]];
        Curve { name, points, color: REFERENCE, width: 1 }
    };
    let mut canvas = Canvas::new(SIZE[0], SIZE[1], PAPER);
    let mut dice = vec![curve("validation", "epoch", "valid", "dice", VALIDATION, 3)];
    if let Some([before, after]) = mean_dice {
        dice.push(level("evaluated pairs, before", before));
        dice.push(level("evaluated pairs, after", after));
    }
    let loss = vec![
        curve("training steps", "step", "train", "loss", STEPS, 1),
        curve("training", "epoch", "train", "loss", TRAINING, 3),
        curve("validation", "epoch", "valid", "loss", VALIDATION, 3),
    ];
    let half = SIZE[0] / 2;
    let name = format!("loss ({similarity})");
    for (index, (title, curves)) in
        [(name, loss), ("mean Dice".into(), dice)].into_iter().enumerate()
    {
        Chart { left: index * half, width: half, title, curves }.draw(&mut canvas, epochs);
    }
    canvas.save(&folder.pictures().join("learning-curves.png"))
}

impl Chart {
    fn draw(&self, canvas: &mut Canvas, epochs: f64) {
        // Room for six characters, such as -0.705, and a space.
        let (left, right) = (self.left + 100, self.left + self.width - 24);
        let (top, bottom) = (72, canvas.height - 56);
        canvas.text(left, 16, &self.title, 3, INK);
        let values = || self.curves.iter().flat_map(|curve| &curve.points).map(|point| point[1]);
        let (low, high) =
            values().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        if low > high {
            canvas.text(left, (top + bottom) / 2, "no values (no labels)", 2, INK);
            return;
        }
        let step = round_step((high - low).max(1e-6) / 5.0);
        let (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
        let [x, y] = [
            Scale::new([0.0, epochs], [left as f64, right as f64]),
            Scale::new([low, high], [bottom as f64, top as f64]),
        ];
        let decimals = (-step.log10().floor()).max(0.0) as usize;
        for i in 0..=((high - low) / step).round() as usize {
            let value = low + i as f64 * step;
            canvas.line([left as f64, y.place(value)], [right as f64, y.place(value)], 1, RULE);
            let text = format!("{value:.decimals$}");
            let start = left.saturating_sub(10 + Canvas::text_width(&text, 2));
            canvas.text(start, y.place(value) as usize - 7, &text, 2, INK);
        }
        let every = round_step(epochs / 8.0).max(1.0);
        for i in 0..=(epochs / every) as usize {
            let epoch = i as f64 * every;
            let text = format!("{epoch}");
            let start = x.place(epoch) as usize - Canvas::text_width(&text, 2) / 2;
            canvas.text(start, bottom + 10, &text, 2, INK);
        }
        canvas.text((left + right) / 2 - 36, bottom + 32, "epoch", 2, INK);
        canvas.line([left as f64, bottom as f64], [right as f64, bottom as f64], 1, INK);
        for curve in &self.curves {
            let place = |point: [f64; 2]| [x.place(point[0]), y.place(point[1])];
            for two in curve.points.windows(2) {
                canvas.line(place(two[0]), place(two[1]), curve.width, curve.color);
            }
            if let [only] = curve.points[..] {
                canvas.line(place(only), place(only), 7, curve.color);
            }
        }
        let mut start = left;
        for curve in &self.curves {
            canvas.fill(start, 52, 14, 4, curve.color);
            canvas.text(start + 20, 50, curve.name, 1, INK);
            start += 20 + Canvas::text_width(curve.name, 1) + 20;
        }
    }
}
