//! Normalised gradient fields as a similarity (Haber and Modersitzki 2006).

use burn::Tensor;
use serde::{Deserialize, Serialize};

use crate::losses::similarity::scaled_features;
use crate::losses::{Pair, SimilarityLoss};
use crate::ops::{normalized_gradient, sum_of_all};
use ffdp_image::error::{Error, Result};

/// What is made of the normalised gradients `m`, `f` of a voxel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NgfTerm {
    /// `1 - (m . f)^2`: edges are brought onto edges.
    #[default]
    Inner,
    /// `|m x f|^2 = |m|^2 |f|^2 - (m . f)^2`: edges do not cross. It is 0 too where an edge of one image lies in a flat
    /// region of the other, so that it needs images that overlap well.
    Cross,
}

/// The mean over voxels of how little the edges of both images run in parallel; see
/// [`normalized_gradient`](crate::ops::normalized_gradient()). In 0..1. Of every channel of the images alone, with
/// slopes in intensity per voxel along each axis: a pair does not know the size of its voxels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ngf {
    /// The edge parameter `eta` in intensity per voxel, positive.
    pub edge: f64,
    /// What is made of the gradients.
    pub term: NgfTerm,
}

impl Default for Ngf {
    fn default() -> Self {
        NgfSettings::default().similarity()
    }
}

impl Ngf {
    /// Those of every channel, `[N C, 3, D, H, W]`.
    fn normals(&self, image: &Tensor<5>) -> Tensor<5> {
        let [n, c, d, h, w] = image.dims();
        normalized_gradient(image.clone().reshape([n * c, 1, d, h, w]), [1.0; 3], self.edge)
    }
}

impl SimilarityLoss for Ngf {
    /// `sum u (m . f)^2` or `sum u |m x f|^2`.
    fn partial(&self, pair: &Pair) -> Tensor<1> {
        let (moved, fixed) = (self.normals(&pair.moved), self.normals(&pair.fixed));
        let dot = |a: &Tensor<5>, b: &Tensor<5>| (a.clone() * b.clone()).sum_dim(1);
        let inner = dot(&moved, &fixed).square();
        let terms = match self.term {
            NgfTerm::Inner => inner,
            NgfTerm::Cross => dot(&moved, &moved) * dot(&fixed, &fixed) - inner,
        };
        match &pair.weights {
            None => sum_of_all(terms),
            Some(weights) => {
                let apart = terms.dims();
                sum_of_all(terms * weights.clone().reshape(apart))
            }
        }
    }

    fn finish(&self, total: Tensor<1>, count: Tensor<1>) -> Tensor<1> {
        let mean = total / count;
        match self.term {
            NgfTerm::Inner => mean.neg().add_scalar(1.0),
            NgfTerm::Cross => mean,
        }
    }

    /// The tensors `m m^T`, which do not know from dark to bright, by their six entries:
    /// `|m m^T - f f^T|^2 / 2 = (|m|^4 + |f|^4) / 2 - (m . f)^2`, of edges well above the noise `1 - (m . f)^2`. The term
    /// `cross` has none.
    fn features(&self, image: &Tensor<5>, weight: f64) -> Option<Tensor<5>> {
        if self.term == NgfTerm::Cross {
            return None;
        }
        let [n, c, d, h, w] = image.dims();
        let normals = self.normals(image);
        let entry = |i: usize, j: usize| {
            let entry = normals.clone().narrow(1, i, 1) * normals.clone().narrow(1, j, 1);
            // Off the diagonal there are two.
            if i == j { entry } else { entry.mul_scalar(std::f64::consts::SQRT_2) }
        };
        let entries = [(0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2)].map(|(i, j)| entry(i, j));
        let all = Tensor::cat(entries.to_vec(), 1).reshape([n, 6 * c, d, h, w]);
        Some(scaled_features(all, weight / (2 * c) as f64))
    }

    fn reach_voxels(&self) -> usize {
        1
    }

    fn is_mean(&self) -> bool {
        true
    }

    fn usual_gain(&self) -> f64 {
        0.07
    }
}

/// Settings of the normalised gradient fields.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NgfSettings {
    /// Slopes well below it are noise, in intensity per voxel of images scaled to 0..1; above 0, at most 1. Default 0.02.
    pub edge: f64,
    /// What is made of the gradients of both images. Default `inner`, which brings edges onto edges.
    pub term: NgfTerm,
}

impl Default for NgfSettings {
    fn default() -> Self {
        Self { edge: 0.02, term: NgfTerm::Inner }
    }
}

impl NgfSettings {
    pub(super) fn similarity(self) -> Ngf {
        Ngf { edge: self.edge, term: self.term }
    }

    pub(super) fn validate(self) -> Result<()> {
        // NaN lies in no range.
        if (1e-6..=1.0).contains(&self.edge) {
            return Ok(());
        }
        let what = "the edge parameter of NGF must be within 1e-6..1";
        Err(Error::invalid(what, self.edge, "0.02 is the usual one"))
    }
}
