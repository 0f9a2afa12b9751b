//! Weights that were trained in PyTorch, as a run that `ffdp predict` takes.
//!
//! A checkpoint of TransMorph (`state_dict`, saved as safetensors by `scripts/safetensors_of.py`) is
//! read by the names in `keys.rs`, and written as a folder like that of a training. Burn's own reader
//! of `.pth` files (burn-store) is not used: its features would build all of Burn anew.

mod keys;
#[cfg(test)]
pub(crate) mod tests;
mod weights;

use std::fs;
use std::path::Path;

use burn::config::Config;
use burn::module::Module;
use burn::tensor::Device;
use ffdp_image::io::write_text;
use ffdp_image::{Error, Result};
use ffdp_nets::{Deformation, Network, NetworkConfig, TransMorph};
use safetensors::SafeTensors;

use crate::checkpoint::save_weights;
use crate::folder::RunFolder;
use crate::input::InputGrid;
use crate::model::Registration;
use crate::objective::Objective;
use crate::settings::Settings;
use crate::settings::file::to_toml;

/// The epoch under which imported weights are kept.
const EPOCH: usize = 1;

/// `network` with the weights of a file.
///
/// # Errors
/// A file that is no safetensors file, tensors that are missing, have another shape or are left over.
pub fn load(path: &Path, network: TransMorph) -> Result<TransMorph> {
    let bytes = fs::read(path).map_err(|error| Error::io(path, "read", error))?;
    let tensors = SafeTensors::deserialize(&bytes).map_err(|reason| {
        let fix = "convert a .pth file with scripts/safetensors_of.py";
        Error::file(path, "weights must be a safetensors file", reason, fix)
    })?;
    let mut loader = weights::Loader::new(&tensors);
    let network = network.map(&mut loader);
    loader.finish().map_err(|(what, value)| {
        let fix = "check --variant, --resolution and --size against the model";
        Error::file(path, what, value, fix)
    })?;
    Ok(network)
}

/// Writes a folder that predicts with the weights of `path`: a network for images of `settings.size`
/// whose axes run as `axes` says.
///
/// # Errors
/// As [`load`]; a folder that holds a run or cannot be written.
pub fn import(path: &Path, settings: &Settings, input: &InputGrid, out: &Path) -> Result<()> {
    let folder = RunFolder::new(out);
    if folder.settings().exists() {
        let fix = "choose another folder";
        return Err(Error::invalid(
            "--output must name a folder without a run in it",
            out.display(),
            fix,
        ));
    }
    settings.validate()?;
    let Some(size) = input.size else {
        let what = "--size: the size the network was trained at is needed";
        return Err(Error::invalid(what, "none", "for example 160x192x224"));
    };
    let transmorph = settings.transmorph(size);
    let network = load(path, transmorph.init(&Device::flex()))?;
    let network = Network { alignment: None, deformation: Deformation::TransMorph(network) };
    let config = NetworkConfig::from(transmorph);
    folder.create()?;
    let model = Registration::new(network, Objective::new(settings, None));
    save_weights(&folder, EPOCH, model)?;
    let file = folder.network();
    config.save(&file).map_err(|error| Error::io(&file, "write", error))?;
    input.save(&folder.input())?;
    let heading = format!("# Weights of {}, imported.\n\n", path.display());
    // Last: a folder with settings is a whole one.
    write_text(&folder.settings(), &format!("{heading}{}", to_toml(settings)))
}
