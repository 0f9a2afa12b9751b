//! Times of layers: forward and backward apart, the device synchronised between them.

use std::time::Instant;

use burn::tensor::{Device, Tensor};
use serde::Serialize;

/// Runs before those that count.
const WARM_UP: usize = 2;
/// Runs behind a median.
const RUNS: usize = 5;

/// One row of the table.
#[derive(Debug, Serialize)]
pub struct Row {
    name: String,
    count: usize,
    first_s: f64,
    forward_ms: f64,
    backward_ms: f64,
}

/// Rows as they come.
pub struct Table {
    device: Device,
    rows: Vec<Row>,
}

impl Table {
    /// An empty table.
    pub fn new(title: &str, device: &Device) -> Self {
        println!("\n{title}");
        println!(
            "{:<44} {:>5} {:>10} {:>10} {:>10} {:>8}",
            "layer", "times", "forward", "backward", "ms", "first s"
        );
        Self { device: device.clone(), rows: Vec::new() }
    }

    /// Times `layer`, of which the network has `count`, on a tracked `input`.
    pub fn add<const D: usize, const E: usize>(
        &mut self,
        name: &str,
        count: usize,
        input: Tensor<D>,
        layer: impl Fn(Tensor<D>) -> Tensor<E>,
    ) {
        let mut times: Vec<[f64; 2]> = Vec::new();
        for _ in 0..WARM_UP + RUNS {
            let start = self.now();
            let output = layer(input.clone());
            let middle = self.now();
            let gradients = output.backward();
            let end = self.now();
            drop(gradients);
            times.push([middle - start, end - middle].map(|d| d.as_secs_f64() * 1e3));
        }
        let median = |pass: usize| {
            let mut times: Vec<f64> = times[WARM_UP..].iter().map(|t| t[pass]).collect();
            times.sort_by(f64::total_cmp);
            times[RUNS / 2]
        };
        let [forward_ms, backward_ms] = [median(0), median(1)];
        let total = count as f64 * (forward_ms + backward_ms);
        let first_s = (times[0][0] + times[0][1]) / 1e3;
        println!(
            "{name:<44} {count:>5} {forward_ms:>10.2} {backward_ms:>10.2} {total:>10.2} \
             {first_s:>8.1}"
        );
        self.rows.push(Row { name: name.into(), count, first_s, forward_ms, backward_ms });
    }

    /// Prints the sum.
    pub fn finish(self) -> Vec<Row> {
        let total = |pass: fn(&Row) -> f64| {
            self.rows.iter().map(|row| row.count as f64 * pass(row)).sum::<f64>()
        };
        let (forward, backward) = (total(|row| row.forward_ms), total(|row| row.backward_ms));
        let name = "sum, times their number";
        println!("{name:<50} {forward:>10.2} {backward:>10.2} {:>10.2}", forward + backward);
        self.rows
    }

    fn now(&self) -> Instant {
        self.device.sync().expect("the device executes what it was given");
        Instant::now()
    }
}
