//! Information of two whole images that control points deform, in two sweeps: neither the displacement nor the warped
//! image is in memory ([`bspline_votes`]). Where a dense field has some twenty passes over the images, and as many
//! operations for the host to begin, this has four. Or by whole votes and the differences of single control points
//! ([`bspline_differences`]), as Ikeda et al. have it.

use std::sync::Arc;

use burn::Tensor;
use burn::tensor::Device;
use ffdp_burn::losses::SimilarityLoss;
use ffdp_burn::ops::{
    ControlGrid, DeformMethod, DeformOptions, DifferencesOptions, HistogramOptions, Information,
    ParzenKernel, Penalties, VotesImages, VotesOptions, bspline_differences, bspline_votes,
    bspline_votes_pull_back,
};

use super::compare::Comparison;
use super::{ShardedImages, Team};
use crate::device_mesh::DeviceMesh;

/// Two images of one channel, each in one piece on one device, and the information that is asked for.
pub struct DirectPair {
    images: VotesImages,
    options: VotesOptions,
    similarity: Arc<dyn SimilarityLoss>,
    information: Information,
    /// By how many voxels control points are displaced, where differences are asked for.
    differences: Option<f64>,
}

impl DirectPair {
    /// `None` for other images, measures and penalties, and, without `differences`, on the CPU: there the passes cost
    /// nothing, and sampling once more for the gradient does.
    pub(super) fn of(
        images: &ShardedImages,
        comparison: &Comparison,
        options: &DeformOptions,
        mesh: &DeviceMesh,
        team: &Team,
        differences: Option<f64>,
    ) -> Option<Self> {
        let is_cpu = *mesh.device(0) == Device::flex();
        let alone = !team.fixed.are_several() && !team.moving.are_several();
        if !alone || (is_cpu && differences.is_none()) {
            return None;
        }
        Self::anywhere(images, comparison, options, mesh, differences)
    }

    /// The same on any device.
    pub(super) fn anywhere(
        images: &ShardedImages,
        comparison: &Comparison,
        options: &DeformOptions,
        mesh: &DeviceMesh,
        differences: Option<f64>,
    ) -> Option<Self> {
        let (mut histogram, information) = comparison.similarity.measure()?.information()?;
        if differences.is_some() {
            let kernel = ParzenKernel::Delta;
            histogram = HistogramOptions { kernel, ..histogram };
        }
        let ShardedImages { fixed, moving, affine, masked, landmarks } = images;
        let here = |image: &super::Sharded| {
            let shards = image.shards();
            let single = shards.len() == 1 && shards[0].dims()[..2] == [1, 1];
            (single && shards[0].device() == *mesh.device(0)).then(|| shards[0].clone())
        };
        let has_gradient = histogram.kernel == ParzenKernel::BSpline3 || differences.is_some();
        let plain = has_gradient
            && landmarks.is_none()
            && *masked == [false; 2]
            && options.method == DeformMethod::Greedy
            && options.penalties == Penalties::default();
        if !plain || mesh.count() != 1 {
            return None;
        }
        let (fixed, moving) = (here(fixed)?, here(moving)?);
        let [_, _, d, h, w] = fixed.dims();
        // A displacement has no effect along an axis of one voxel.
        let moves = [w, h, d].map(|voxels| voxels > 1);
        let along_moving_axes =
            |row: [f64; 3]| [0, 1, 2].map(|axis| if moves[axis] { row[axis] } else { 0.0 });
        let displacement_scale = options.displacement_scale.map(along_moving_axes);
        Some(Self {
            images: VotesImages { fixed, moving, affine: affine.clone() },
            options: VotesOptions { histogram, displacement_scale, ..VotesOptions::default() },
            similarity: comparison.similarity.clone(),
            information,
            differences,
        })
    }

    /// The loss `[1]` of coefficients in voxels of the fixed image, and its gradient.
    pub(super) fn evaluate(
        &self,
        coefficients: Tensor<5>,
        control: &ControlGrid,
    ) -> (Tensor<1>, Tensor<5>) {
        let Self { images, options, similarity, .. } = self;
        if let Some(step) = self.differences {
            let Self { information, .. } = *self;
            let by = DifferencesOptions { votes: options, information, step_voxels: step };
            return bspline_differences(images, coefficients, control, by);
        }
        let votes = bspline_votes(images, coefficients.clone(), control, options);
        let dims = votes.dims();
        let sums: Tensor<1> = votes.flatten(0, 2);
        let one = Tensor::ones([1], (&sums.device(), sums.dtype()));
        let slope = similarity.slope(&sums, &one).reshape(dims);
        let gradient = bspline_votes_pull_back(images, coefficients, control, slope, options);
        (similarity.finish(sums, one), gradient)
    }
}
