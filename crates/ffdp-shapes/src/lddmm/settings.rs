//! Every number of a deformation of shapes that can be chosen.

use ffdp_image::image::{Affine, Physical};
use ffdp_image::{Error, Result};
use serde::{Deserialize, Serialize};

use super::hamiltonian::{Hamiltonian, Metric};
use super::path::Scheme;
use super::start::LinearStart;
use crate::attachment::Attachment;
use crate::kernel::{Decay, Kernel};
use crate::shape::{Shape, spacing};

/// More cells are not needed to steer a few hundred control points.
const ENOUGH_CELLS: usize = 2500;

/// How shapes are deformed onto each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LddmmSettings {
    /// Widths of the deformation's kernel in mm, a sum of one for each: how far a point takes others along. Standard
    /// deviations of gaussians.
    pub sigmas_mm: Vec<f64>,
    /// How the kernel decays. Default: as a gaussian.
    pub decay: Decay,
    /// What is done to the source first, of landmarks by their pairs, of other shapes by their moments. Of
    /// [`match_shapes`](super::match_shapes). Default: nothing.
    pub start: LinearStart,
    /// Classical or normalised kernels.
    pub metric: Metric,
    /// How unlike shapes are.
    pub attachment: Attachment,
    /// Weight of the attachment relative to the energy, see the [module](super). What goes with an attachment is its
    /// [`advised_fidelity`](Attachment::advised_fidelity), by default that of the default attachment.
    pub fidelity: f64,
    /// Distance of control points in mm; 0 takes every point of the shape. Control points carry the momenta.
    pub control_spacing_mm: f64,
    /// Shapes are compared with one point in each cube of this side, in mm; 0 with all of them. The whole source is
    /// carried along.
    pub coarsen_mm: f64,
    /// How paths are integrated.
    pub scheme: Scheme,
    /// Steps from t = 0 to 1.
    pub steps: usize,
    /// Iterations of L-BFGS at most.
    pub iterations: usize,
    /// The search ends when ten iterations have gained less than this part of the cost.
    pub tolerance: f64,
}

impl LddmmSettings {
    /// Settings that go with a target: kernels of a sixth of its diameter, but at most half of its thickness, and of
    /// half of that; control points at three quarters of the narrower one's width; varifolds from its size down to its
    /// edges.
    pub fn advised(target: &Shape) -> Self {
        let thickness = target.thickness().unwrap_or(f64::INFINITY);
        let widest = (target.diameter() / 6.0).min(thickness / 2.0);
        let sigmas_mm = vec![widest, widest / 2.0];
        let coarsen_mm = target.side_for(ENOUGH_CELLS);
        let sigmas = crate::attachment::advised_sigmas(&target.coarsened(coarsen_mm));
        let attachment = Attachment::Varifolds { sigmas_mm: sigmas, oriented: true };
        let fidelity = attachment.advised_fidelity();
        let settings = Self { sigmas_mm, attachment, fidelity, coarsen_mm, ..Self::default() };
        Self { control_spacing_mm: settings.advised_control_spacing_mm(), ..settings }
    }

    /// The distance of control points that goes with the widths, in mm: three quarters of the narrowest one.
    pub fn advised_control_spacing_mm(&self) -> f64 {
        0.75 * self.sigmas_mm.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The same for landmarks: kernels no wider than four times the distance of neighbours, for many landmarks show
    /// more of a deformation than few do (benchmarks/lungs-h200.json), and every landmark has a momentum.
    pub fn for_landmarks(self, target: &Shape) -> Self {
        let most = 4.0 * spacing(&target.points).median;
        let widest = self.sigmas_mm.iter().copied().fold(0.0, f64::max);
        let factor = if 0.0 < most && most < widest { most / widest } else { 1.0 };
        let sigmas_mm = self.sigmas_mm.iter().map(|sigma| factor * sigma).collect();
        Self { sigmas_mm, control_spacing_mm: 0.0, ..self }
    }

    /// Refuses what has no meaning.
    ///
    /// # Errors
    /// [`Error::Invalid`] naming the number.
    pub fn validate(&self) -> Result<()> {
        let refuse = |what: &str, value: &dyn std::fmt::Debug, fix: &str| {
            Err(Error::invalid(what, format_args!("{value:?}"), fix))
        };
        let positive = |v: f64| v > 0.0 && v.is_finite();
        if self.sigmas_mm.is_empty() || !self.sigmas_mm.iter().all(|&s| positive(s)) {
            let what = "the widths of a deformation must be positive (mm)";
            return refuse(what, &self.sigmas_mm, "give at least one");
        }
        if !positive(self.fidelity) {
            let fix = format!("{} goes with the attachment", self.attachment.advised_fidelity());
            return refuse("the fidelity must be positive", &self.fidelity, &fix);
        }
        let spacings = [self.control_spacing_mm, self.coarsen_mm];
        if !spacings.iter().all(|v| *v >= 0.0 && v.is_finite()) {
            let what = "the distance of control points and the side of cubes must not be negative";
            return refuse(what, &spacings, "0 takes every point");
        }
        if self.steps == 0 || self.iterations == 0 {
            let counts = [self.steps, self.iterations];
            return refuse("steps and iterations must be positive", &counts, "try 6 and 100");
        }
        match &self.attachment {
            Attachment::Transport(settings) => settings.validate(),
            _ => Ok(()),
        }
    }

    /// What is done to `source` before it is deformed onto `target`, in RAS mm; `None` without a linear start.
    ///
    /// # Errors
    /// As [`LinearStart::of_pairs`] for landmarks and [`LinearStart::of_moments`] for other shapes;
    /// [`Error::Singular`] for a map without an inverse, by which shapes are carried back.
    pub fn start_map(
        &self,
        source: &Shape,
        target: &Shape,
    ) -> Result<Option<Affine<Physical, Physical>>> {
        let map = match (self.start, &self.attachment) {
            (LinearStart::None, _) => return Ok(None),
            (start, Attachment::Landmarks) => start.of_pairs(&source.points, &target.points)?,
            (start, _) => start.of_moments(source, target)?,
        };
        map.inverse()?;
        Ok(Some(map))
    }

    /// Refuses a linear start where several shapes are deformed, or one onto several.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a start.
    pub fn without_start(&self) -> Result<()> {
        match self.start {
            LinearStart::None => Ok(()),
            start => {
                let because = "it is of one shape that is matched with another";
                let fix = "align the shapes first";
                Err(Error::without_effect(format_args!("start = {start:?}"), because, fix))
            }
        }
    }

    /// What points cost that move.
    pub fn hamiltonian(&self) -> Hamiltonian {
        Hamiltonian { kernel: Kernel::sum_of(self.decay, &self.sigmas_mm), metric: self.metric }
    }
}

impl Default for LddmmSettings {
    /// For structures of a few centimetres.
    fn default() -> Self {
        let attachment = Attachment::Varifolds { sigmas_mm: vec![5.0, 2.5], oriented: true };
        Self {
            sigmas_mm: vec![8.0, 4.0],
            decay: Decay::Gaussian,
            start: LinearStart::None,
            metric: Metric::Classical,
            fidelity: attachment.advised_fidelity(),
            attachment,
            control_spacing_mm: 3.0,
            coarsen_mm: 0.0,
            scheme: Scheme::Rk2,
            steps: 6,
            iterations: 100,
            tolerance: 1e-4,
        }
    }
}
