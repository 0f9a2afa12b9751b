//! Every number of transport that can be chosen.

use ffdp_image::{Error, Result};
use serde::{Deserialize, Serialize};

/// The cost of moving a unit of mass by a distance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TransportCost {
    /// `r`: p = 1.
    Distance,
    /// `r^2 / 2`: p = 2.
    #[default]
    HalfSquare,
}

impl TransportCost {
    pub(super) fn p(self) -> f64 {
        match self {
            Self::Distance => 1.0,
            Self::HalfSquare => 2.0,
        }
    }
}

/// How transport is computed. Lengths are in the unit of the points.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SinkhornSettings {
    /// The cost.
    pub cost: TransportCost,
    /// Details below this length are blurred.
    pub blur: f64,
    /// Mass is rather destroyed than carried further; none keeps all mass (balanced transport).
    pub reach: Option<f64>,
    /// Ratio of two successive lengths on the way from the diameter down to the blur, between 0 and 1; larger is slower
    /// and more precise.
    pub scaling: f64,
    /// Updates at the blur itself, 1 at least. Potentials lag behind on the way down: more updates, or a larger scaling,
    /// bring the value and its gradient closer to those of converged potentials. The gradient is exact for those alone: in
    /// the tests it is wrong by up to 10 % with 1, 0.1 % with 10, 1e-8 with 200.
    pub at_blur: usize,
    /// Subtracts what the entropy adds: the divergence of a measure to itself is 0.
    pub debias: bool,
    /// Clusters of points for large lengths, and pairs of clusters left out for small ones; none sums over all pairs.
    pub multiscale: Option<Multiscale>,
}

impl Default for SinkhornSettings {
    /// GeomLoss's values, for points in a box of size 1.
    fn default() -> Self {
        Self {
            cost: TransportCost::HalfSquare,
            blur: 0.05,
            reach: None,
            scaling: 0.5,
            at_blur: 1,
            debias: true,
            multiscale: None,
        }
    }
}

/// Transport of clusters first. The points of each cube of a grid stand as one while the blur is larger than the cube.
/// Then each point sees only the clusters that can receive its mass (Feydy 2020, section 3.3).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Multiscale {
    /// Side of the cubes, in the unit of the points. None chooses it so that `N` points fill about `N^(2/3)` cubes.
    pub side: Option<f64>,
    /// Pairs of clusters are left out where their part of a row's sum is estimated to be below `exp(-truncation)`. 5 is
    /// GeomLoss's value.
    pub truncation: f64,
}

impl Default for Multiscale {
    fn default() -> Self {
        Self { side: None, truncation: 5.0 }
    }
}

impl SinkhornSettings {
    /// Refuses what has no meaning.
    ///
    /// # Errors
    /// [`Error::Invalid`] for lengths and a truncation that are not positive, a scaling outside 0..1, and no updates at
    /// the blur.
    pub fn validate(&self) -> Result<()> {
        let positive = |value: f64| value > 0.0 && value.is_finite();
        let refuse = |what: &str, value: f64, fix: &str| Err(Error::invalid(what, value, fix));
        match self {
            Self { blur, .. } if !positive(*blur) => {
                refuse("the blur must be positive", *blur, "try a hundredth of the size")
            }
            Self { reach: Some(reach), .. } if !positive(*reach) => {
                refuse("the reach must be positive", *reach, "leave it out to keep all mass")
            }
            Self { scaling, .. } if !(*scaling > 0.0 && *scaling < 1.0) => {
                refuse("the scaling must lie between 0 and 1", *scaling, "try 0.5, or 0.9")
            }
            Self { at_blur: 0, .. } => {
                Err(Error::invalid("updates at the blur must be positive", 0, "try 1, or 50"))
            }
            Self { multiscale: Some(Multiscale { side: Some(side), .. }), .. }
                if !positive(*side) =>
            {
                refuse("the side of clusters must be positive", *side, "leave it out")
            }
            Self { multiscale: Some(Multiscale { truncation, .. }), .. }
                if !positive(*truncation) =>
            {
                refuse("the truncation must be positive", *truncation, "try 5")
            }
            _ => Ok(()),
        }
    }
}
