//! Times a debiased Sinkhorn divergence with its gradient, over all pairs and on several scales: two clouds uniform in a
//! cube of size 1, the second one squeezed and shifted, f32, scaling 0.5, one update at the blur.
//!
//! ```text
//! cargo bench -p ffdp-shapes --bench sinkhorn -- --size 2e4                       the CPU
//! cargo bench -p ffdp-shapes --bench sinkhorn --features cuda -- --device cuda    a GPU
//! ```
//! `--blur 0.02` sets another blur, `--cost distance` p = 1, `--surface` puts the points on spheres; `single` or `multi`
//! chooses one row. Seconds: `first`, on a GPU, is a run of the same size that compiles the kernels, which depend on the
//! size; then `value`, `gradient`, and `both`, of another run. `times` is `both` in times of one kernel product (gaussian,
//! D = E = 3) of as many points, `products` the work in reductions of the matrix of all pairs; `CPU s` the processor time
//! of all threads (Linux).

#[path = "../../../benches/support/backend.rs"]
mod backend;

use std::time::Instant;

use backend::Backend;
use burn::tensor::{Device, Distribution, Tensor};
use clap::{Parser, ValueEnum};
use ffdp_shapes::sinkhorn::{Measure, Multiscale, SinkhornSettings, TransportCost, sinkhorn};
use ffdp_shapes::{Kernel, kernel_product};

/// Pairs of a product that is timed on the CPU: of more, it is of some rows, and its time that of all in proportion.
const PAIRS_ON_CPU: f64 = 1e9;

/// What is measured.
#[derive(Parser)]
pub struct Arguments {
    /// Only these rows.
    rows: Vec<Row>,
    /// Where to run; a GPU must have been compiled in.
    #[arg(long, value_enum, default_value_t = Backend::Cpu)]
    device: Backend,
    /// Numbers of points.
    #[arg(long, value_delimiter = ',', default_value = "2e4")]
    size: Vec<f64>,
    /// The blur.
    #[arg(long, default_value_t = 0.01)]
    blur: f64,
    /// Cost of moving a unit of mass.
    #[arg(long, value_enum, default_value_t = Cost::HalfSquare)]
    cost: Cost,
    /// Points on spheres, not in cubes.
    #[arg(long)]
    surface: bool,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

/// How the work is divided.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Row {
    /// Over all pairs.
    Single,
    /// On several scales.
    Multi,
}

/// `--cost`
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Cost {
    /// p = 2.
    HalfSquare,
    /// p = 1.
    Distance,
}

impl Arguments {
    fn wants(&self, row: Row) -> bool {
        self.rows.is_empty() || self.rows.contains(&row)
    }

    fn cost(&self) -> TransportCost {
        match self.cost {
            Cost::HalfSquare => TransportCost::HalfSquare,
            Cost::Distance => TransportCost::Distance,
        }
    }
}

/// Two clouds of `count` points.
fn clouds(count: usize, surface: bool, device: &Device) -> [Tensor<2>; 2] {
    device.seed(1);
    let cloud = || match surface {
        false => Tensor::<2>::random([count, 3], Distribution::Uniform(0.0, 1.0), device),
        true => {
            let x = Tensor::<2>::random([count, 3], Distribution::Normal(0.0, 1.0), device);
            let norm = x.clone().square().sum_dim(1).sqrt();
            x / norm * 0.5 + 0.5
        }
    };
    let squeezed = |x: Tensor<2>| {
        let factors = Tensor::<2>::from_data([[0.7, 1.0, 1.1]], device);
        x * factors + 0.1
    };
    [cloud(), squeezed(cloud())]
}

/// Seconds of processor time of this process; none where it is not known.
fn processor_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // After the name in brackets; user and system time are fields 14 and 15, in hundredths.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |k: usize| fields.get(k)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / 100.0)
}

/// What a run took and found.
struct Timing {
    value_seconds: f64,
    gradient_seconds: f64,
    products: f64,
    value: f32,
    gradient: Vec<f32>,
}

/// The divergence of two clouds and its gradient to the points of the first.
fn run(x: &Tensor<2>, y: &Tensor<2>, settings: &SinkhornSettings) -> Timing {
    let x = x.clone().detach().require_grad();
    let (a, b) = (Measure::uniform(x.clone()), Measure::uniform(y.clone()));
    let start = Instant::now();
    let transport = sinkhorn(&a, &b, settings).expect("measures of equal mass");
    // Read: a device has finished what it was given.
    let value = transport.value.clone().into_scalar::<f32>();
    let value_seconds = start.elapsed().as_secs_f64();
    let gradient = x.grad(&transport.value.backward()).expect("the points want one").into_data();
    Timing {
        value_seconds,
        gradient_seconds: start.elapsed().as_secs_f64() - value_seconds,
        products: transport.products,
        value,
        gradient: gradient.try_to_vec::<f32>().expect("f32"),
    }
}

/// Seconds of one kernel product of two clouds, the fastest of three.
fn product_seconds(x: &Tensor<2>, y: &Tensor<2>, blur: f64, compiled: bool) -> f64 {
    let [x, y] = [x, y].map(|points| points.clone().inner());
    let count = x.dims()[0];
    let rows = if compiled { count } else { count.min((PAIRS_ON_CPU / count as f64) as usize) };
    let part = x.narrow(0, 0, rows);
    let kernel = Kernel::gaussian(blur);
    let once = || {
        let start = Instant::now();
        let sums = kernel_product(&kernel, part.clone(), y.clone(), y.clone());
        sums.sum().into_scalar::<f32>();
        start.elapsed().as_secs_f64()
    };
    once();
    let fastest = (0..3).map(|_| once()).fold(f64::INFINITY, f64::min);
    fastest * count as f64 / rows as f64
}

fn main() {
    let arguments = Arguments::parse();
    let backend = arguments.device;
    let device = backend.device(0).unwrap_or_else(|reason| panic!("{reason}")).autodiff();
    let (cost, compiled) = (arguments.cost(), backend != Backend::Cpu);
    let Arguments { blur, surface, .. } = arguments;
    println!("debiased Sinkhorn divergence with gradient, blur {blur}, {cost:?}, {backend:?}");
    println!(
        "{:6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7} {:>9} {:>9} {:>14}",
        "", "N = M", "first", "value", "gradient", "both", "times", "CPU s", "products", "value"
    );
    for count in &arguments.size {
        let [x, y] = clouds(*count as usize, surface, &device);
        let product = product_seconds(&x, &y, blur, compiled);
        let mut gradients = Vec::new();
        for (row, multiscale) in [(Row::Single, None), (Row::Multi, Some(Multiscale::default()))] {
            if !arguments.wants(row) {
                continue;
            }
            let settings =
                SinkhornSettings { blur, cost, multiscale, ..SinkhornSettings::default() };
            let first = match compiled {
                true => {
                    let first = run(&x, &y, &settings);
                    format!("{:.3}", first.value_seconds + first.gradient_seconds)
                }
                false => "-".to_string(),
            };
            let used = processor_seconds();
            let found = run(&x, &y, &settings);
            let used = processor_seconds().zip(used).map_or(f64::NAN, |(now, then)| now - then);
            let Timing { value_seconds, gradient_seconds, products, value, gradient } = found;
            let both = value_seconds + gradient_seconds;
            println!(
                "{:6} {count:>9} {first:>9} {value_seconds:>9.3} {gradient_seconds:>9.3} {both:>9.3} {:>7.1} \
                 {used:>9.2} {products:>9.3} {value:>14.7}",
                format!("{row:?}").to_lowercase(),
                both / product
            );
            gradients.push(gradient);
        }
        println!("one product {product:.4} s");
        if let [single, multi] = &gradients[..] {
            let norm =
                |v: &mut dyn Iterator<Item = f32>| v.map(|v| f64::from(v).powi(2)).sum::<f64>();
            let apart = norm(&mut single.iter().zip(multi).map(|(a, b)| a - b));
            let part = (apart / norm(&mut single.iter().copied())).sqrt();
            println!("gradients differ by {part:.1e} of their norm");
        }
    }
}
