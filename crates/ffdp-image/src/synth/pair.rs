//! Two images of one subject, one of them deformed by a known warp.

use super::intensities::sample_intensities;
use super::phantom::PhantomSettings;
use super::random::Stream;
use super::subject::{Subject, subject, warped_anatomy};
use super::warp::Diffeomorphism;
use crate::Result;

/// A registration problem with its answer.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The moving subject seen through the known warp, with noise of its own.
    pub fixed: Subject,
    /// The subject of the same seed.
    pub moving: Subject,
    /// The answer u: `moving(p + u(p))` is `fixed(p)` but for noise. `[3, D, H, W]`, components
    /// (x, y, z), voxels.
    pub displacement: Vec<f32>,
    /// The inverse answer: `fixed(p + w(p))` is `moving(p)`. Same layout.
    pub inverse_displacement: Vec<f32>,
}

/// The pair of a seed, as different as two subjects are: the known warp has sqrt(2) times the
/// amplitude of a subject's. Tissue statistics are the same, texture, bias and noise are
/// independent; `fixed_modality` makes it a pair across modalities.
///
/// # Errors
/// Settings that do not validate; the warp must still be valid at sqrt(2) times its amplitude.
pub fn pair(settings: &PhantomSettings, seed: u64) -> Result<Pair> {
    let moving = subject(settings, seed)?;
    let own = Diffeomorphism::random(&settings.warp, seed)?;
    let between = settings.warp.scaled(std::f64::consts::SQRT_2);
    let known = Diffeomorphism::of_stream(&between, seed, Stream::KnownWarp)?;
    let geometry = settings.geometry()?;
    let displacement = known.displacement_voxels(&geometry);
    let inverse_displacement = known.inverse_displacement_voxels(&geometry);
    let labels = warped_anatomy(geometry, |p| own.apply(known.apply(p)))?;
    let modality = settings.fixed_modality.unwrap_or(settings.modality);
    let settings = PhantomSettings { modality, ..settings.clone() };
    // Far from the seeds of neighbouring subjects.
    let noise_seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let image = sample_intensities(&labels, &settings, noise_seed)?;
    Ok(Pair { fixed: Subject { image, labels }, moving, displacement, inverse_displacement })
}
