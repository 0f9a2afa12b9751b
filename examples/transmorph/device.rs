//! `--device`: from its name to a Burn device.

use burn::tensor::Device;
use ffdp_image::{Error, Result};

/// The device called `cpu`, `cuda`, `cuda:N` or `wgpu`.
///
/// # Errors
/// Another name, or a GPU that this build has no code for.
pub fn parse(name: &str) -> Result<Device> {
    #[cfg(feature = "persistence")]
    ffdp_kit::keep_kernels();
    let (kind, index) = match name.split_once(':') {
        Some((kind, index)) => (kind, index.parse::<usize>().ok()),
        None => (name, Some(0)),
    };
    match (kind, index) {
        ("cpu", _) if name == "cpu" => Ok(Device::flex()),
        ("cuda", Some(index)) => cuda(index),
        ("wgpu", _) if name == "wgpu" => wgpu(),
        _ => Err(Error::invalid(
            "--device must be cpu, cuda, cuda:N or wgpu",
            name,
            "for example --device cuda:0",
        )),
    }
}

#[cfg(feature = "cuda")]
fn cuda(index: usize) -> Result<Device> {
    Ok(Device::cuda(index))
}

#[cfg(not(feature = "cuda"))]
fn cuda(index: usize) -> Result<Device> {
    Err(missing("cuda", format!("cuda:{index}")))
}

#[cfg(feature = "wgpu")]
fn wgpu() -> Result<Device> {
    let none = |reason: ffdp_kit::NoAdapter| Error::invalid(reason.found(), "wgpu", reason.fix());
    ffdp_kit::wgpu_device(Default::default()).map_err(none)
}

#[cfg(not(feature = "wgpu"))]
fn wgpu() -> Result<Device> {
    Err(missing("wgpu", "wgpu".into()))
}

#[cfg(not(all(feature = "cuda", feature = "wgpu")))]
fn missing(feature: &str, device: String) -> Error {
    Error::invalid(
        format!("--device: this program was built without {feature}"),
        device,
        format!("run: cargo run --release --features {feature} --example transmorph -- ..."),
    )
}
