//! Sums over the windows of a volume: along z by planes that come and go, then along y and x of one row.

use ffdp_kit::window::weigh;

/// One plane of f64 for each quantity.
pub(super) type Planes = Vec<Vec<f64>>;

/// Weighted sums over a window along an axis.
pub(super) struct Filter {
    pub weights: Vec<f64>,
    /// Whether all weights are 1; others add up to 1.
    pub is_box: bool,
}

impl Filter {
    pub fn window(&self) -> usize {
        self.weights.len()
    }

    pub fn radius(&self) -> usize {
        self.weights.len() / 2
    }

    /// What the weights along an axis add up to.
    fn gain(&self) -> f64 {
        if self.is_box { self.weights.len() as f64 } else { 1.0 }
    }
}

/// Sums along z of each quantity, and its value beyond the image.
pub(super) struct Sums {
    pub planes: Planes,
    pub beyond: Vec<f64>,
    width: usize,
    /// A row along y of sums, and what lies around it along x.
    padded: Vec<f64>,
    outside: Vec<f64>,
}

impl Sums {
    /// Nothing yet, of planes of an image of extent (D, H, W).
    pub fn new(beyond: Vec<f64>, [_, h, w]: [usize; 3], filter: &Filter) -> Self {
        Self {
            planes: vec![vec![0.0; h * w]; beyond.len()],
            beyond,
            width: w,
            padded: vec![0.0; w + 2 * filter.radius()],
            outside: vec![0.0; w],
        }
    }

    pub fn clear(&mut self) {
        self.planes.iter_mut().for_each(|plane| plane.fill(0.0));
    }

    /// Sets `means` to those of the windows of row `y`.
    pub fn means(&mut self, y: usize, filter: &Filter, means: &mut [Vec<f64>]) {
        let Self { planes, beyond, width, padded, outside } = self;
        let (r, w, gain) = (filter.radius(), *width, filter.gain());
        let height = planes[0].len() / w;
        let scale = 1.0 / gain.powi(3);
        for ((plane, beyond), mean) in planes.iter().zip(&*beyond).zip(means) {
            outside.fill(beyond * gain);
            let row = |j: usize| match (y + j).checked_sub(r) {
                Some(y) if y < height => &plane[y * w..][..w],
                _ => &outside[..],
            };
            padded.fill(beyond * gain * gain);
            weigh(&filter.weights, row, &mut padded[r..r + w]);
            weigh(&filter.weights, |j| &padded[j..], mean);
            mean.iter_mut().for_each(|mean| *mean *= scale);
        }
    }
}
