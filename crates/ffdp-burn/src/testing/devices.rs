//! The GPUs that the suites run on.

use burn::tensor::Device;

/// One device for each GPU backend that was compiled in, by name.
///
/// `FFDP_TEST_DEVICES` (for example `wgpu` or `cuda,wgpu`) restricts the choice where a backend is
/// compiled in but the machine lacks it. Without a GPU backend the list is empty, and tests that
/// need one say that they skip.
pub fn gpu_devices() -> Vec<(&'static str, Device)> {
    let wanted = std::env::var("FFDP_TEST_DEVICES").ok();
    let mut devices: Vec<(&'static str, Device)> = Vec::new();
    #[cfg(feature = "cuda")]
    devices.push(("cuda", Device::cuda(0)));
    #[cfg(feature = "wgpu")]
    devices.push(("wgpu", Device::wgpu(Default::default())));
    if let Some(wanted) = wanted {
        devices.retain(|(name, _)| wanted.split(',').any(|w| w.trim() == *name));
    }
    if devices.is_empty() {
        eprintln!("skipped: no GPU backend compiled in and chosen (features `wgpu`, `cuda`)");
    }
    devices
}
