//! A coarser grid of the same subject: what a scanner with larger voxels sees.

use rayon::prelude::*;

/// Means over blocks of `factor`^3 voxels.
///
/// `slices` are whole slices of `nx` x `ny` voxels; sizes are multiples of the factor.
///
/// # Panics
/// When they are not.
pub fn coarsen_image(slices: &[f32], [nx, ny]: [usize; 2], factor: usize) -> Vec<f32> {
    let scale = 1.0 / (factor * factor * factor) as f64;
    blocks(slices, [nx, ny], factor, |block| {
        (block.iter().map(|&v| f64::from(v)).sum::<f64>() * scale) as f32
    })
}

/// The most frequent label of each block of `factor`^3 voxels; of equals the lowest.
///
/// # Panics
/// As [`coarsen_image`].
pub fn coarsen_labels(slices: &[i32], [nx, ny]: [usize; 2], factor: usize) -> Vec<i32> {
    blocks(slices, [nx, ny], factor, |block| {
        block.sort_unstable();
        let runs = block.chunk_by(|a, b| a == b);
        // Of equals `max_by_key` takes the last, so the runs go backwards.
        runs.rev().max_by_key(|run| run.len()).map_or(0, |run| run[0])
    })
}

fn blocks<T: Copy + Send + Sync>(
    slices: &[T],
    [nx, ny]: [usize; 2],
    factor: usize,
    reduce: impl Fn(&mut [T]) -> T + Sync,
) -> Vec<T> {
    let nz = slices.len() / (nx * ny);
    assert!(
        factor > 0 && [nx, ny, nz].iter().all(|n| n % factor == 0),
        "coarsen: sizes {:?} must be multiples of the factor {factor}",
        [nx, ny, nz]
    );
    let row = |row: usize| {
        let (y, z) = (row % (ny / factor) * factor, row / (ny / factor) * factor);
        let lines: Vec<&[T]> = (z..z + factor)
            .flat_map(|z| (y..y + factor).map(move |y| &slices[(z * ny + y) * nx..][..nx]))
            .collect();
        let mut block = Vec::with_capacity(factor * factor * factor);
        let mut at = |x: usize| {
            block.clear();
            lines.iter().for_each(|line| block.extend_from_slice(&line[x..x + factor]));
            reduce(&mut block)
        };
        (0..nx).step_by(factor).map(&mut at).collect::<Vec<T>>()
    };
    (0..ny / factor * (nz / factor)).into_par_iter().flat_map_iter(row).collect()
}
