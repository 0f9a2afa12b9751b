//! Shapes drawn from several sides: a small rasteriser with a depth buffer.

use ffdp_shapes::{Cells, Position, Shape};
use ffdp_train::pictures::{Canvas, Rgb};

/// From where a shape is seen: the axes that run to the right and up; what lies against their cross product is far.
#[derive(Clone, Copy)]
pub struct View {
    /// Who looks.
    pub name: &'static str,
    right: Position,
    up: Position,
}

/// From the front, the left and above, in RAS.
pub const VIEWS: [View; 3] = [
    View { name: "from the front", right: [-1.0, 0.0, 0.0], up: [0.0, 0.0, 1.0] },
    View { name: "from the left", right: [0.0, -1.0, 0.0], up: [0.0, 0.0, 1.0] },
    View { name: "from above", right: [1.0, 0.0, 0.0], up: [0.0, 1.0, 0.0] },
];

/// Each pixel is the mean of so many by so many.
const FINER: usize = 2;

/// Pixels around the shape, and pixels of a point of a cloud or of the width of a curve.
const MARGIN: f64 = 10.0;
const DOT: f64 = 2.2;

/// A shape with a colour for every point; the box says what is in the picture.
pub fn draw(
    shape: &Shape,
    colours: &[Rgb],
    bounds: [Position; 2],
    view: View,
    size: usize,
) -> Canvas {
    let mut picture = Picture::new(bounds, view, size * FINER);
    let placed: Vec<Position> = shape.points.iter().map(|&p| picture.place(p)).collect();
    match &shape.cells {
        Cells::Triangles(triangles) => {
            for t in triangles {
                let corners = t.map(|i| placed[i as usize]);
                picture.triangle(corners, t.map(|i| colours[i as usize]));
            }
        }
        Cells::Edges(edges) => {
            for e in edges {
                picture.line(e.map(|i| placed[i as usize]), e.map(|i| colours[i as usize]));
            }
        }
        Cells::None => {
            placed.iter().zip(colours).for_each(|(&p, &colour)| picture.dot(p, colour));
        }
    }
    picture.smaller()
}

struct Picture {
    canvas: Canvas,
    depth: Vec<f64>,
    axes: [Position; 3],
    centre: Position,
    scale: f64,
}

fn dot(a: Position, b: Position) -> f64 {
    (0..3).map(|c| a[c] * b[c]).sum()
}

impl Picture {
    fn new([low, high]: [Position; 2], View { right, up, .. }: View, size: usize) -> Self {
        let towards = [
            right[1] * up[2] - right[2] * up[1],
            right[2] * up[0] - right[0] * up[2],
            right[0] * up[1] - right[1] * up[0],
        ];
        let axes = [right, up, towards];
        let centre = std::array::from_fn(|c| (low[c] + high[c]) / 2.0);
        let extent =
            |axis: Position| (0..3).map(|c| (axis[c] * (high[c] - low[c])).abs()).sum::<f64>();
        let [wide, tall] = [extent(right), extent(up)];
        // A single point has no extent.
        let scale = match wide.max(tall) {
            0.0 => 1.0,
            extent => (size as f64 - 2.0 * MARGIN) / extent,
        };
        let pixels = |mm: f64| ((mm * scale + 2.0 * MARGIN) as usize).next_multiple_of(FINER);
        let (width, height) = (pixels(wide), pixels(tall));
        let canvas = Canvas::new(width, height, [255; 3]);
        Self { depth: vec![f64::NEG_INFINITY; width * height], canvas, axes, centre, scale }
    }

    /// Pixels to the right and down, and the height above the middle towards the viewer, in pixels.
    fn place(&self, p: Position) -> Position {
        let offset = std::array::from_fn(|c| p[c] - self.centre[c]);
        let [x, y, z] = self.axes.map(|axis| dot(axis, offset) * self.scale);
        [self.canvas.width as f64 / 2.0 + x, self.canvas.height as f64 / 2.0 - y, z]
    }

    fn put(&mut self, x: usize, y: usize, z: f64, colour: Rgb) {
        let at = y * self.canvas.width + x;
        if z > self.depth[at] {
            self.depth[at] = z;
            self.canvas.pixels[at] = colour;
        }
    }

    /// The pixels whose middle may lie in a range.
    fn pixels(low: f64, high: f64, count: usize) -> std::ops::Range<usize> {
        let first = (low - 0.5).ceil().max(0.0) as usize;
        let last = (high - 0.5).floor();
        if last < 0.0 { 0..0 } else { first..(last as usize + 1).min(count) }
    }

    /// Shaded by the angle to the viewer, colours mixed between the corners.
    fn triangle(&mut self, [a, b, c]: [Position; 3], colours: [Rgb; 3]) {
        let area = (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]);
        if area == 0.0 {
            return;
        }
        let slope = |k: usize| {
            let (u, v) = (if k == 0 { 1 } else { 0 }, 2);
            ((b[u] - a[u]) * (c[v] - a[v]) - (b[v] - a[v]) * (c[u] - a[u])) / area
        };
        // The height falls so much a pixel to the right, and rises so much down; light comes from the viewer's upper left.
        let steep = [slope(0), slope(1)];
        let length = (steep[0] * steep[0] + steep[1] * steep[1] + 1.0).sqrt();
        let lit = (1.0 + 0.35 * (steep[1] - steep[0]).clamp(-1.5, 1.5)) / length;
        let light = 0.35 + 0.65 * lit.clamp(0.0, 1.0);
        let range = |k: usize| {
            let values = [a[k], b[k], c[k]];
            let low = values.iter().copied().fold(f64::INFINITY, f64::min);
            (low, values.iter().copied().fold(f64::NEG_INFINITY, f64::max))
        };
        let ((left, right), (top, bottom)) = (range(0), range(1));
        for y in Self::pixels(top, bottom, self.canvas.height) {
            for x in Self::pixels(left, right, self.canvas.width) {
                let (px, py) = (x as f64 + 0.5, y as f64 + 0.5);
                let part = |p: Position, q: Position| {
                    ((q[0] - p[0]) * (py - p[1]) - (q[1] - p[1]) * (px - p[0])) / area
                };
                let w = [part(b, c), part(c, a), part(a, b)];
                if w.iter().any(|&w| w < 0.0) {
                    continue;
                }
                let z = w[0] * a[2] + w[1] * b[2] + w[2] * c[2];
                let mixed = |k: usize| (0..3).map(|i| w[i] * f64::from(colours[i][k])).sum::<f64>();
                self.put(x, y, z, [0, 1, 2].map(|k| (mixed(k) * light) as u8));
            }
        }
    }

    fn dot(&mut self, p: Position, colour: Rgb) {
        let r = DOT * FINER as f64;
        for y in Self::pixels(p[1] - r, p[1] + r, self.canvas.height) {
            for x in Self::pixels(p[0] - r, p[0] + r, self.canvas.width) {
                let away = (x as f64 + 0.5 - p[0]).hypot(y as f64 + 0.5 - p[1]);
                if away <= r {
                    self.put(x, y, p[2] - away, colour);
                }
            }
        }
    }

    fn line(&mut self, [a, b]: [Position; 2], [from, to]: [Rgb; 2]) {
        let steps = ((b[0] - a[0]).abs().max((b[1] - a[1]).abs()).ceil() as usize).max(1);
        for step in 0..=steps {
            let t = step as f64 / steps as f64;
            let p = std::array::from_fn(|c| a[c] + t * (b[c] - a[c]));
            let mixed = |k: usize| (1.0 - t) * f64::from(from[k]) + t * f64::from(to[k]);
            self.dot(p, [0, 1, 2].map(|k| mixed(k) as u8));
        }
    }

    fn smaller(self) -> Canvas {
        let [width, height] = [self.canvas.width / FINER, self.canvas.height / FINER];
        let mut small = Canvas::new(width, height, [0; 3]);
        for y in 0..height {
            for x in 0..width {
                let mut sums = [0_usize; 3];
                for at in 0..FINER * FINER {
                    let (u, v) = (FINER * x + at % FINER, FINER * y + at / FINER);
                    let pixel = self.canvas.pixels[v * self.canvas.width + u];
                    (0..3).for_each(|k| sums[k] += usize::from(pixel[k]));
                }
                small.pixels[y * width + x] = sums.map(|sum| (sum / (FINER * FINER)) as u8);
            }
        }
        small
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_near_side_hides_the_far_one() {
        let near = Shape::sphere(1.0, 3);
        let far_x = |p: &Position| [p[0], p[1] - 5.0, p[2]];
        let far = near.with_points(near.points.iter().map(far_x).collect()).unwrap();
        let both = Shape::joined(&[&near, &far]).unwrap();
        let mut colours = vec![[255, 0, 0]; near.points.len()];
        colours.extend(vec![[0, 0, 255]; near.points.len()]);
        let bounds = both.bounds();
        // The front is where y is large.
        let canvas = draw(&both, &colours, bounds, VIEWS[0], 100);
        let middle = canvas.pixels[canvas.height / 2 * canvas.width + canvas.width / 2];
        assert!(middle[0] > 150 && middle[2] == 0, "{middle:?}");
        assert_eq!(canvas.pixels[0], [255; 3]);
        assert!(canvas.width.abs_diff(100) <= 2 && canvas.height.abs_diff(100) <= 2);
    }
}
