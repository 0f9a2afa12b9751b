//! Times kernel products, their gradients, and log-sum-exp: gaussian, D = E = 3, N = M, f32, points uniform in a cube.
//!
//! ```text
//! cargo bench -p ffdp-shapes --bench products                                        the CPU: 1e3, 1e4
//! cargo bench -p ffdp-shapes --bench products --features cuda -- --device cuda       1e4, 1e5, 1e6
//! ```
//! `--size 2e4,1e5` sets other sizes; other arguments choose rows by their names. `ms` is the median; short rows are queued ten at a time, as `products.py`, the same in CUDA C++, PyTorch and KeOps,
//! does. `dense` is the product from Burn's own operations, which stores the matrix of all pairs; on a GPU only by name.

#[path = "../../../benches/support/backend.rs"]
mod backend;
#[path = "../../../benches/support/memory.rs"]
mod memory;

use std::time::Instant;

use backend::Backend;
use burn::tensor::{Device, Distribution, Tensor};
use clap::Parser;
use ffdp_shapes::{Formula, Kernel};

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

/// `exp(-r^2 / s^2)` of the paper.
const WIDTH: f64 = 0.1;
/// Runs behind a median, at most.
const RUNS: usize = 15;
/// Seconds that they may take together.
const SECONDS: f64 = 6.0;
/// Pairs below which runs are queued.
const SHORT: f64 = 1e9;
/// Pairs that a dense product may store.
const DENSE: f64 = 2e8;

struct Row {
    name: &'static str,
    formula: Formula,
    /// Of the tensors below, in the order of the variables.
    tensors: Vec<usize>,
    log: bool,
}

/// Variables by number: x, y, b, the width, e and v (gradients to results and to gradients), h, epsilon.
fn rows() -> Vec<Row> {
    let kernel = Kernel::gaussian_of_width(WIDTH);
    let sum = |name, formula: Formula, tensors: &[usize]| Row {
        name,
        formula,
        tensors: tensors.to_vec(),
        log: false,
    };
    let forward = kernel.formula(3, 3);
    let to_x = forward.gradient(&[0]);
    let soft = Formula::new(|v| {
        let (x, y, h, p) = (v.rows(3), v.columns(3), v.columns(1), v.parameters(1));
        h.at(0) - (&x * &p.at(0) - &y * &p.at(0)).norm2()
    });
    vec![
        sum("forward", forward.clone(), &[0, 1, 2, 3]),
        sum("gradient to x", to_x.clone(), &[0, 1, 2, 3, 4]),
        sum("gradient to y", forward.gradient(&[1]), &[0, 1, 2, 3, 4]),
        sum("gradient of gradient, to x", to_x.gradient(&[0]), &[0, 1, 2, 3, 4, 5]),
        sum("gradient of gradient, to x and e", to_x.gradient(&[0, 4]), &[0, 1, 2, 3, 4, 5]),
        sum("gradient of gradient, to y and b", to_x.gradient(&[1, 2]), &[0, 1, 2, 3, 4, 5]),
        Row { name: "log-sum-exp", formula: soft, tensors: vec![0, 1, 6, 7], log: true },
    ]
}

fn tensors(n: usize, device: &Device) -> Vec<Tensor<2>> {
    let points = |d| Tensor::<2>::random([n, d], Distribution::Uniform(0.0, 1.0), device);
    let number = |value: f64| Tensor::<2>::full([1, 1], value, device);
    let vectors = || Tensor::<2>::random([n, 3], Distribution::Normal(0.0, 1.0), device);
    vec![
        points(3),
        points(3),
        vectors(),
        number(WIDTH / 2f64.sqrt()),
        vectors(),
        vectors(),
        points(1),
        number(1.0 / WIDTH),
    ]
}

/// Milliseconds of a call, and bytes beyond the inputs.
fn measure(device: &Device, pairs: f64, run: impl Fn() -> Tensor<2>) -> (f64, u64) {
    let sync = || device.sync().expect("the device executes what it was given");
    drop(run());
    sync();
    let extra = memory::peak_of(device, || {
        let result = run();
        sync();
        drop(result);
    });
    let queued = if pairs < SHORT { 10 } else { 1 };
    let mut times = Vec::new();
    let begin = Instant::now();
    while times.len() < 3 || (times.len() < RUNS && begin.elapsed().as_secs_f64() < SECONDS) {
        let start = Instant::now();
        let results: Vec<Tensor<2>> = (0..queued).map(|_| run()).collect();
        sync();
        times.push(start.elapsed().as_secs_f64() / queued as f64);
        drop(results);
    }
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2] * 1e3, extra)
}

/// The product from Burn's operations.
fn dense(t: &[Tensor<2>]) -> Tensor<2> {
    let squares = |t: &Tensor<2>| t.clone().powi_scalar(2).sum_dim(1);
    let cross = t[0].clone().matmul(t[1].clone().transpose());
    let r2 = squares(&t[0]) + squares(&t[1]).transpose() - cross.mul_scalar(2.0);
    r2.mul_scalar(-1.0 / (WIDTH * WIDTH)).exp().matmul(t[2].clone())
}

/// What is measured.
#[derive(Parser)]
pub struct Arguments {
    /// Only rows whose name contains one of these texts.
    filters: Vec<String>,
    /// Where to run; a GPU must have been compiled in.
    #[arg(long, value_enum, default_value_t = Backend::Cpu)]
    device: Backend,
    /// Numbers of points [CPU: 1e3,1e4; GPU: 1e4,1e5,1e6]
    #[arg(long, value_delimiter = ',')]
    size: Vec<f64>,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Arguments {
    fn sizes(&self) -> Vec<usize> {
        match (&self.size[..], self.device) {
            ([], Backend::Cpu) => vec![1000, 10_000],
            ([], _) => vec![10_000, 100_000, 1_000_000],
            (given, _) => given.iter().map(|size| *size as usize).collect(),
        }
    }
}

fn main() {
    let arguments = Arguments::parse();
    let (sizes, filters) = (arguments.sizes(), &arguments.filters);
    let device = arguments.device.device(0).unwrap_or_else(|reason| panic!("{reason}"));
    println!("kernel products, gaussian of width {WIDTH}, D = E = 3, f32, {:?}", arguments.device);
    println!(
        "{:34} {:>9} {:>12} {:>10} {:>10} {:>10}",
        "", "N = M", "ms", "Gpairs/s", "of fwd", "extra MB"
    );
    for n in sizes {
        let all = tensors(n, &device);
        let pairs = (n as f64).powi(2);
        let mut forward = f64::NAN;
        let line = |name: &str, ms: f64, forward: f64, extra: u64| {
            let (speed, of) = (pairs / ms / 1e6, ms / forward);
            let extra = extra as f64 / 1e6;
            println!("{name:34} {n:>9} {ms:>12.3} {speed:>10.1} {of:>10.2} {extra:>10.1}");
        };
        let wanted = |name: &str| filters.is_empty() || filters.iter().any(|f| name.contains(f));
        for row in rows().into_iter().filter(|row| wanted(row.name)) {
            let tensors: Vec<Tensor<2>> = row.tensors.iter().map(|k| all[*k].clone()).collect();
            // Gradients to columns run over the rows: their tensors are as many.
            let (ms, extra) = measure(&device, pairs, || match row.log {
                true => row.formula.log_sum_exp(&tensors),
                false => row.formula.sum(&tensors),
            });
            if row.name == "forward" {
                forward = ms;
            }
            line(row.name, ms, forward, extra);
        }
        // On a GPU Burn first tries kernels for the matrix, a minute and more: there it is asked for by name.
        let asked = filters.iter().any(|filter| "dense".contains(filter.as_str()));
        if pairs <= DENSE && (asked || filters.is_empty() && arguments.device == Backend::Cpu) {
            let (ms, extra) = measure(&device, pairs, || dense(&all));
            line("dense, of Burn's operations", ms, forward, extra);
        }
    }
}
