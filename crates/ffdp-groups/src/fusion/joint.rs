//! Joint label fusion (Wang, Suh, Das, Pluta, Craige, Yushkevich, PAMI 2013): atlases that are wrong in the same way share a
//! weight.
//!
//! ```text
//! M(i, j) = [ sum over y in the patch of |T(y) - F_i(y)| |T(y) - F_j(y)| ]^beta
//! w = (M + alpha I)^-1 1 / (1^T (M + alpha I)^-1 1)
//! label = argmax over l of the sum of w_i where atlas i has l
//! ```
//! `T` the target, `F_i` atlas `i` on it, both in patches of zero mean and unit norm. `M` estimates how often two atlases
//! err together. `F_i` is the patch around the voxel in the search window that is most like that of the target, and the
//! label is the one in its middle. Where all atlases agree over the whole window there is nothing to weigh.

use ffdp_image::error::{Error, Result};
use rayon::prelude::*;

use super::settings::JointSettings;

/// Planes of the target and of all atlases.
pub(super) struct Block<'a> {
    /// Size (x, y, z) of all of them.
    pub size: [usize; 3],
    pub target: &'a [f32],
    pub images: Vec<Vec<f32>>,
    pub labels: Vec<Vec<i32>>,
}

/// The label of each voxel of some planes of a block, and how many of them were weighed.
///
/// # Errors
/// [`Error::Invalid`] where the weights cannot be found, which intensities that are not finite lead to.
pub(super) fn joint(
    block: &Block,
    planes: std::ops::Range<usize>,
    settings: JointSettings,
) -> Result<(Vec<i32>, usize)> {
    let [nx, ny, _] = block.size;
    let agreed = block.agreed(settings.search_radius);
    let label = |offset: usize| match agreed[offset] {
        Some(label) => Ok((label, 0)),
        None => Ok((block.weighed(offset, settings)?, 1)),
    };
    let range = planes.start * nx * ny..planes.end * nx * ny;
    let found = range.into_par_iter().with_min_len(64).map(label);
    let found = found.collect::<Result<Vec<(i32, usize)>>>()?;
    let weighed = found.iter().map(|(_, weighed)| weighed).sum();
    Ok((found.into_iter().map(|(label, _)| label).collect(), weighed))
}

impl Block<'_> {
    /// The label that all atlases have everywhere in the window around a voxel.
    fn agreed(&self, radius: usize) -> Vec<Option<i32>> {
        let count = self.target.len();
        let at = |offset: usize| {
            let first = self.labels[0][offset];
            self.labels.iter().all(|labels| labels[offset] == first).then_some(first)
        };
        let mut agreed: Vec<Option<i32>> = (0..count).into_par_iter().map(at).collect();
        // A window along each axis after the other.
        let [nx, ny, _] = self.size;
        for (axis, step) in [1, nx, nx * ny].into_iter().enumerate() {
            let along = |offset: usize| {
                let here = offset / step % self.size[axis];
                let first = here - here.min(radius);
                let last = (here + radius).min(self.size[axis] - 1);
                let start = offset - (here - first) * step;
                let label = agreed[offset]?;
                let mut others = (0..=last - first).map(|k| agreed[start + k * step]);
                others.all(|other| other == Some(label)).then_some(label)
            };
            agreed = (0..count).into_par_iter().map(along).collect();
        }
        agreed
    }

    /// The label with the largest sum of weights.
    fn weighed(&self, offset: usize, settings: JointSettings) -> Result<i32> {
        let [nx, ny, _] = self.size;
        let voxel = [offset % nx, offset / nx % ny, offset / nx / ny];
        let target = self.patch(self.target, voxel, settings.patch_radius);
        let best = self.images.iter().zip(&self.labels);
        let best = best.map(|(image, labels)| self.best(image, labels, voxel, &target, settings));
        let (differences, labels): (Vec<Vec<f32>>, Vec<i32>) = best.unzip();
        let weights = weights(&differences, settings).ok_or_else(|| {
            let fix = "check that the images are finite, or give a larger alpha";
            Error::invalid("weights of joint fusion must exist", voxel, fix)
        })?;
        let mut sums: Vec<(i32, f64)> = Vec::new();
        for (label, weight) in labels.into_iter().zip(weights) {
            match sums.iter_mut().find(|(known, _)| *known == label) {
                Some((_, sum)) => *sum += weight,
                None => sums.push((label, weight)),
            }
        }
        sums.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        Ok(sums[0].0)
    }

    /// The absolute difference from the target of the most similar patch of an atlas in the window, and its label.
    fn best(
        &self,
        image: &[f32],
        labels: &[i32],
        voxel: [usize; 3],
        target: &[f32],
        JointSettings { patch_radius, search_radius, .. }: JointSettings,
    ) -> (Vec<f32>, i32) {
        let [nx, ny, _] = self.size;
        let range = |axis: usize| {
            voxel[axis].saturating_sub(search_radius)
                ..(voxel[axis] + search_radius + 1).min(self.size[axis])
        };
        let mut best: Option<(f32, usize, Vec<f32>, i32)> = None;
        for z in range(2) {
            for y in range(1) {
                for x in range(0) {
                    let patch = self.patch(image, [x, y, z], patch_radius);
                    let pairs = patch.iter().zip(target);
                    let distance: f32 = pairs.map(|(a, b)| (a - b) * (a - b)).sum();
                    // Of patches that are as similar, the nearest.
                    let away: usize =
                        [x, y, z].iter().zip(voxel).map(|(a, b)| a.abs_diff(b).pow(2)).sum();
                    let is_better = best.as_ref().is_none_or(|(least, nearest, ..)| {
                        distance < *least || (distance == *least && away < *nearest)
                    });
                    if is_better {
                        best = Some((distance, away, patch, labels[(z * ny + y) * nx + x]));
                    }
                }
            }
        }
        let (.., patch, label) = best.expect("the voxel itself is in its window");
        let differences = patch.iter().zip(target).map(|(a, b)| (a - b).abs()).collect();
        (differences, label)
    }

    /// The cube around a voxel, in zero mean and unit norm; beyond the grid the values at its border. Zero where it is
    /// constant.
    fn patch(&self, image: &[f32], voxel: [usize; 3], radius: usize) -> Vec<f32> {
        let [nx, ny, _] = self.size;
        let side = 2 * radius + 1;
        let clamp = |axis: usize, k: usize| {
            (voxel[axis] + k).saturating_sub(radius).min(self.size[axis] - 1)
        };
        let mut patch = Vec::with_capacity(side * side * side);
        for z in 0..side {
            for y in 0..side {
                let row = (clamp(2, z) * ny + clamp(1, y)) * nx;
                patch.extend((0..side).map(|x| image[row + clamp(0, x)]));
            }
        }
        let count = patch.len() as f32;
        let mean = patch.iter().sum::<f32>() / count;
        let squares = patch.iter().map(|v| (v - mean) * (v - mean)).sum::<f32>();
        let scale = if squares > 0.0 { squares.sqrt().recip() } else { 0.0 };
        patch.iter_mut().for_each(|v| *v = (*v - mean) * scale);
        patch
    }
}

/// The weights of atlases with these absolute differences; they sum to 1. `None` where there are none.
fn weights(
    differences: &[Vec<f32>],
    JointSettings { alpha, beta, .. }: JointSettings,
) -> Option<Vec<f64>> {
    let n = differences.len();
    let mut matrix = vec![vec![0.0; n + 1]; n];
    for i in 0..n {
        for j in 0..=i {
            let pairs = differences[i].iter().zip(&differences[j]);
            let both: f64 = pairs.map(|(a, b)| f64::from(a * b)).sum();
            matrix[i][j] = both.powf(beta);
            matrix[j][i] = matrix[i][j];
        }
        matrix[i][i] += alpha;
    }
    matrix.iter_mut().for_each(|row| row[n] = 1.0);
    let solved = solve(matrix)?;
    let sum: f64 = solved.iter().sum();
    let weights: Vec<f64> = solved.into_iter().map(|w| w / sum).collect();
    weights.iter().all(|w| w.is_finite()).then_some(weights)
}

/// The solution of a system whose right side is the last column, by elimination with pivots.
fn solve(mut rows: Vec<Vec<f64>>) -> Option<Vec<f64>> {
    let n = rows.len();
    for column in 0..n {
        let largest =
            |&a: &usize, &b: &usize| rows[a][column].abs().total_cmp(&rows[b][column].abs());
        let pivot = (column..n).max_by(largest)?;
        rows.swap(column, pivot);
        let (above, below) = rows.split_at_mut(column + 1);
        let pivot = &above[column];
        if pivot[column] == 0.0 || !pivot[column].is_finite() {
            return None;
        }
        for row in below {
            let factor = row[column] / pivot[column];
            row[column..].iter_mut().zip(&pivot[column..]).for_each(|(v, p)| *v -= factor * p);
        }
    }
    let mut solution = vec![0.0; n];
    for k in (0..n).rev() {
        let known: f64 = (k + 1..n).map(|j| rows[k][j] * solution[j]).sum();
        solution[k] = (rows[k][n] - known) / rows[k][k];
    }
    Some(solution)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAPER: JointSettings =
        JointSettings { alpha: 0.1, beta: 2.0, patch_radius: 1, search_radius: 1 };

    #[test]
    fn weights_sum_to_one_and_repeated_atlases_share_one() {
        let (a, b) = (vec![1.0, 0.0, 0.5], vec![0.0, 1.0, 0.5]);
        let alone = weights(&[a.clone(), b.clone()], PAPER).expect("regular");
        assert!((alone[0] - 0.5).abs() < 1e-12 && (alone[1] - 0.5).abs() < 1e-12, "{alone:?}");
        let twice = weights(&[a.clone(), a.clone(), b], PAPER).expect("regular");
        assert!((twice.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{twice:?}");
        assert!((twice[0] - twice[1]).abs() < 1e-12 && twice[2] > 1.8 * twice[0], "{twice:?}");
        // By hand, of one that differs twice as much.
        let worse: Vec<f32> = a.iter().map(|v| 2.0 * v).collect();
        let found = weights(&[a, worse], PAPER).expect("regular");
        let (m11, m12, m22) = (1.25f64.powi(2) + 0.1, 2.5f64.powi(2), 5.0f64.powi(2) + 0.1);
        let expected = (m22 - m12) / (m11 + m22 - 2.0 * m12);
        assert!((found[0] - expected).abs() < 1e-9, "{found:?} {expected}");
    }

    #[test]
    fn the_atlas_that_looks_like_the_target_wins_against_more_that_do_not() {
        // An edge at x = 4 in the target and in one atlas, at x = 6 in two others.
        let size = [10, 6, 6];
        let image = |edge: usize| -> Vec<f32> {
            (0..360)
                .map(|k| if k % 10 < edge { 1.0 } else { 5.0 + (k % 7) as f32 * 0.01 })
                .collect()
        };
        let labels =
            |edge: usize| -> Vec<i32> { (0..360).map(|k| i32::from(k % 10 >= edge)).collect() };
        let target = image(4);
        let block = Block {
            size,
            target: &target,
            images: vec![image(4), image(6), image(6)],
            labels: vec![labels(4), labels(6), labels(6)],
        };
        let near = JointSettings { search_radius: 0, ..PAPER };
        let (found, weighed) = joint(&block, 1..5, near).expect("finite");
        assert_eq!(found, labels(4)[60..300]);
        assert!(weighed > 0 && weighed < found.len(), "{weighed}");
        // With a window the edges are found where they are.
        let shifted = Block { images: vec![image(5); 3], labels: vec![labels(5); 3], ..block };
        let (found, _) = joint(&shifted, 0..6, PAPER).expect("finite");
        assert_eq!(found, labels(4));
    }
}
