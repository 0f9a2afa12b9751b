//! The central slice of what a registration had and what it made of it, to look at.

use std::fs;
use std::path::Path;

use burn::tensor::Tensor;
use ffdp::parallel::Sharded;
use ffdp::{Error, Result};

use super::iterate::numbers;

/// Pixels of the longer edge of a picture, at most twice as many.
const EDGE: usize = 700;
/// Brightness of intensity 1.
const WHITE: f64 = 255.0;

/// The slice of an image half way along z, `[1, 1, 1, H, W]`, on the device of its first shard.
pub fn middle(image: &Sharded) -> Tensor<5> {
    let plane = image.dims()[2] / 2;
    image.window(plane..plane + 1, image.mesh().device(0))
}

/// Writes a slice as `name.pgm`, every so many pixels of it.
pub fn write(folder: &Path, name: &str, plane: Tensor<5>) -> Result<()> {
    let [.., h, w] = plane.dims();
    let values = numbers(plane.flatten::<1>(0, 4))?;
    let step = (h.max(w) / EDGE).max(1);
    let rows = (0..h).step_by(step).map(|y| &values[y * w..(y + 1) * w]);
    let pixel = |value: &f64| (value * WHITE).clamp(0.0, WHITE) as u8;
    let pixels: Vec<u8> = rows.flat_map(|row| row.iter().step_by(step).map(pixel)).collect();
    let mut file = format!("P5 {} {} 255\n", w.div_ceil(step), h.div_ceil(step)).into_bytes();
    file.extend(pixels);
    let path = folder.join(format!("{name}.pgm"));
    fs::write(&path, file).map_err(|reason| Error::device("writing a picture", reason))
}
