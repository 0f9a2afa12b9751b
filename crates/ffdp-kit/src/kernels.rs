//! Kernels that a later run finds compiled.
//!
//! A GPU's kernels are compiled when they are first used, in every process anew: some 60 for a registration, 110 for
//! a training. CubeCL (0.11.3) can keep what it compiled, and which of several kernels it found the fastest, in a file
//! that processes share, if that is set before the first device is opened.

use cubecl::config::cache::CacheConfig;
use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};

/// Compiled kernels stay on disk from now on: in the user's cache directory (`~/.cache/cubecl` on Linux), unless a
/// `cubecl.toml` names another than CubeCL's default. They belong to one build of the program and one kind of device; where
/// nothing can be written, kernels are compiled as without. In this workspace they are files (`vendor/turso`), with the real `turso`
/// a data base.
///
/// Call it before the first GPU is opened: what is read by then stays.
pub fn keep_kernels() {
    let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
    config.compilation.cache = true;
    // CubeCL's default is the `target` directory of a Cargo project above the current directory.
    if matches!(config.environment.path, CacheConfig::Target) {
        config.environment.path = CacheConfig::Global;
    }
    CubeClRuntimeConfig::try_set(config);
}

/// Whether [`keep_kernels`] was called in time, or a `cubecl.toml` asks for the same.
pub(crate) fn are_kept() -> bool {
    CubeClRuntimeConfig::get().compilation.cache
}
