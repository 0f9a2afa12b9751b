//! Instance optimisation: the registration engine goes on from a predicted field.

use burn::tensor::Device;
use ffdp_burn::transform::Displacement;
use ffdp_image::Result;
use ffdp_image::image::{Affine, Physical, Volume};
use ffdp_register::{
    LevelSettings, Observer, Register, Registration, Settings as Engine, Stage,
    checkpoint::Checkpoint, methods::GreedySettings,
};

use crate::settings::Settings;

/// Where the engine goes on from, and how long.
#[derive(Clone, Debug)]
pub struct Refinement {
    /// On the fixed image's grid, before the placement.
    pub displacement: Displacement,
    /// How the moving image was laid onto the fixed one.
    pub placed: Affine<Physical, Physical>,
    /// At most.
    pub iterations: usize,
}

/// Iterations of the greedy method at the fixed image's full resolution, with the similarity that was trained.
///
/// # Errors
/// As [`Register::run`].
pub fn refine(
    [fixed, moving]: [&Volume; 2],
    from: Refinement,
    recipe: &Settings,
    device: &Device,
    observer: &mut dyn Observer,
) -> Result<Registration> {
    let Refinement { displacement, placed, iterations } = from;
    let levels = vec![LevelSettings { shrink: 1.0, iterations }];
    let greedy =
        GreedySettings { levels, similarity: recipe.loss.clone(), ..GreedySettings::default() };
    let settings = Engine { stages: vec![Stage::Greedy(greedy)], ..Engine::default() };
    let reached = Checkpoint {
        stages: Vec::new(),
        affine: placed,
        found: vec![displacement.into()],
        levels: Vec::new(),
        carried: Vec::new(),
    };
    let registration = Register::new(fixed, moving).initial(placed).settings(&settings);
    registration.on(device).observer(observer).resume(reached).run()
}
