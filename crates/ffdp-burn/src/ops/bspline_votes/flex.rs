//! The fused histogram on the CPU: the three operations that it is made of.

use burn::backend::Flex;
use burn::backend::tensor::FloatTensor;

use super::{BsplineVotesOps, VotesPlan};
use crate::ops::bspline::BsplineOps;
use crate::ops::grid_sample::GridSampleOps;
use crate::ops::joint_histogram::JointHistogramOps;

impl BsplineVotesOps for Flex {
    fn bspline_votes_3d(
        fixed: FloatTensor<Self>,
        moving: FloatTensor<Self>,
        affine: FloatTensor<Self>,
        coefficients: FloatTensor<Self>,
        plan: VotesPlan,
    ) -> FloatTensor<Self> {
        let field = Self::bspline_3d(coefficients, plan.lattice);
        let moved = Self::grid_sample_3d(moving, affine, field, plan.sampling);
        Self::joint_histogram_3d(moved, fixed.clone(), fixed, plan.binning)
    }

    fn bspline_votes_3d_backward(
        fixed: FloatTensor<Self>,
        moving: FloatTensor<Self>,
        affine: FloatTensor<Self>,
        coefficients: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        plan: VotesPlan,
    ) -> FloatTensor<Self> {
        let field = Self::bspline_3d(coefficients, plan.lattice);
        let (image, map, u) = (moving.clone(), affine.clone(), field.clone());
        let moved = Self::grid_sample_3d(image, map, u, plan.sampling);
        let (to_moved, _) = Self::joint_histogram_3d_backward(
            moved,
            fixed.clone(),
            fixed,
            grad,
            plan.binning,
            [true, false],
        );
        let needs = [false, false, true];
        let (_, _, to_field) =
            Self::grid_sample_3d_backward(moving, affine, field, to_moved, plan.sampling, needs);
        Self::bspline_3d_backward(to_field, plan.lattice)
    }
}
