//! The bandwidth of a copy, read and write counted: what every row is measured against.

use std::time::Instant;

use burn::tensor::{Device, Distribution, Tensor};

/// Bytes copied at a time; far beyond any cache.
const BYTES: usize = 1 << 28;

/// Median of so many copies.
const RUNS: usize = 9;

/// GB/s of the main memory, all threads copying.
pub fn cpu() -> f64 {
    let source = vec![1u8; BYTES];
    let mut target = vec![0u8; BYTES];
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let chunk = BYTES.div_ceil(threads);
    bandwidth(|| {
        std::thread::scope(|scope| {
            for (target, source) in target.chunks_mut(chunk).zip(source.chunks(chunk)) {
                scope.spawn(|| target.copy_from_slice(source));
            }
        });
        std::hint::black_box(&target);
    })
}

/// GB/s of the device's memory, by `y = x + 1`: one element read and one written.
pub fn gpu(device: &Device) -> Result<f64, String> {
    let x: Tensor<1> = Tensor::random([BYTES / 4], Distribution::Default, device);
    let sync = || device.sync().map_err(|error| format!("the device does not answer: {error:?}"));
    sync()?;
    Ok(bandwidth(|| {
        let y = x.clone().add_scalar(1.0);
        sync().expect("the device answered before");
        drop(y);
    }))
}

fn bandwidth(mut copy: impl FnMut()) -> f64 {
    copy();
    let mut seconds: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            copy();
            start.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    2.0 * BYTES as f64 / seconds[RUNS / 2] / 1e9
}
