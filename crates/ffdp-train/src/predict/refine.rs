//! Instance optimisation: the registration engine goes on from a predicted field.

use burn::tensor::Device;
use ffdp_burn::transform::Displacement;
use ffdp_image::Result;
use ffdp_image::image::{Affine, Physical, Volume};
use ffdp_register::{
    Checkpoint, GreedySettings, LevelSettings, Observer, Register, Registration,
    Settings as Engine, Stage,
};

use crate::settings::Settings;

/// At most `iterations` of the greedy method at the fixed image's full resolution, from `start` (on
/// its grid, before `placed`), with the similarity that was trained.
///
/// # Errors
/// As [`Register::run`].
pub fn refine(
    [fixed, moving]: [&Volume; 2],
    start: Displacement,
    placed: Affine<Physical, Physical>,
    iterations: usize,
    recipe: &Settings,
    device: &Device,
    observer: &mut dyn Observer,
) -> Result<Registration> {
    let levels = vec![LevelSettings { shrink: 1.0, iterations }];
    let greedy =
        GreedySettings { levels, similarity: recipe.loss.clone(), ..GreedySettings::default() };
    let settings = Engine { stages: vec![Stage::Greedy(greedy)], ..Engine::default() };
    let reached = Checkpoint {
        stages: Vec::new(),
        affine: placed,
        found: vec![start.into()],
        levels: Vec::new(),
        carried: Vec::new(),
    };
    let registration = Register::new(fixed, moving).initial(placed).settings(&settings);
    registration.on(device).observer(observer).resume(reached).run()
}
