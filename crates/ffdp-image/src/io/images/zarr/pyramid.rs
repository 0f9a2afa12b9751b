//! The next level of a pyramid: two planes become one of half the size.

use rayon::prelude::*;

use super::super::data_type::{DataType, Endian};

/// How eight voxels become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    Mean,
    /// The most frequent value, of equally frequent ones the first.
    Most,
}

/// Half of each size, rounded up: the last voxel of an odd one stands for itself.
pub fn halved(size: [usize; 3]) -> [usize; 3] {
    size.map(|n| n.div_ceil(2))
}

/// One or two planes of `[x, y]` values of a type, as one of half the size.
pub fn pooled(
    planes: &[&[u8]],
    [nx, ny]: [usize; 2],
    data_type: DataType,
    pooling: Pooling,
) -> Vec<u8> {
    let width = data_type.bytes();
    let [hx, hy, _] = halved([nx, ny, 1]);
    let mut out = vec![0; hx * hy * width];
    out.par_chunks_mut(hx * width).enumerate().for_each(|(y, out)| {
        let rows =
            planes.iter().flat_map(|plane| (2 * y..(2 * y + 2).min(ny)).map(move |y| (plane, y)));
        let rows: Vec<Vec<f64>> = rows
            .map(|(plane, y)| {
                let mut values = Vec::with_capacity(nx);
                let row = &plane[y * nx * width..(y + 1) * nx * width];
                data_type.decode(Endian::Little, row, &mut values);
                values
            })
            .collect();
        let mut block = Vec::with_capacity(8);
        for (x, out) in out.chunks_exact_mut(width).enumerate() {
            block.clear();
            rows.iter().for_each(|row| block.extend_from_slice(&row[2 * x..(2 * x + 2).min(nx)]));
            let value = match pooling {
                Pooling::Mean => block.iter().sum::<f64>() / block.len() as f64,
                Pooling::Most => most(&block),
            };
            data_type.encode(value, out);
        }
    });
    out
}

fn most(values: &[f64]) -> f64 {
    let count = |value: f64| values.iter().filter(|other| **other == value).count();
    let first = values.first().copied().unwrap_or(0.0);
    let better = |best: (f64, usize), value: &f64| {
        let count = count(*value);
        if count > best.1 { (*value, count) } else { best }
    };
    values.iter().fold((first, count(first)), better).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_become_their_mean_or_most_frequent_value() {
        let planes: [&[u8]; 2] = [&[1, 1, 9, 2, 3, 9], &[5, 5, 4, 5, 5, 4]];
        assert_eq!(pooled(&planes, [3, 2], DataType::U8, Pooling::Most), [5, 9]);
        // (1 + 1 + 2 + 3 + 4 * 5) / 8 = 3.375, (9 + 9 + 4 + 4) / 4 = 6.5.
        assert_eq!(pooled(&planes, [3, 2], DataType::U8, Pooling::Mean), [3, 7]);
        assert_eq!(pooled(&planes[..1], [3, 2], DataType::U8, Pooling::Mean), [2, 9]);
    }
}
