//! The GPUs that the suites run on.

use std::io::Write;

use burn::tensor::Device;

/// One device for each GPU backend that was compiled in, by name.
///
/// `FFDP_TEST_DEVICES` (for example `wgpu` or `cuda,wgpu`) restricts the choice where a backend is
/// compiled in but the machine lacks it; `cuda:0,cuda:1` names GPUs for [`several_gpus`] as well. Without a
/// GPU backend the list is empty, and tests that need one say that they skip.
pub fn gpu_devices() -> Vec<(&'static str, Device)> {
    let wanted = std::env::var("FFDP_TEST_DEVICES").ok();
    let mut devices: Vec<(&'static str, Device)> = Vec::new();
    #[cfg(feature = "cuda")]
    devices.push(("cuda", Device::cuda(0)));
    #[cfg(feature = "wgpu")]
    devices.push(("wgpu", Device::wgpu(Default::default())));
    if let Some(wanted) = wanted {
        let kind = |w: &str| w.trim().split(':').next().map(str::to_owned);
        devices.retain(|(name, _)| wanted.split(',').any(|w| kind(w).as_deref() == Some(*name)));
    }
    if devices.is_empty() {
        skipped("no GPU backend compiled in and chosen (features `wgpu`, `cuda`)");
    }
    devices
}

/// The GPUs that `FFDP_TEST_DEVICES` names by number (`cuda:0,cuda:1`), at least two; otherwise none, and
/// the test says that it skips.
pub fn several_gpus() -> Vec<Device> {
    let wanted = std::env::var("FFDP_TEST_DEVICES").unwrap_or_default();
    let numbers = wanted.split(',').filter_map(|name| name.trim().strip_prefix("cuda:"));
    let numbers: Vec<usize> = numbers.filter_map(|number| number.parse().ok()).collect();
    if numbers.len() < 2 {
        skipped("FFDP_TEST_DEVICES names no two GPUs, as cuda:0,cuda:1");
        return Vec::new();
    }
    #[cfg(feature = "cuda")]
    return numbers.into_iter().map(Device::cuda).collect();
    #[cfg(not(feature = "cuda"))]
    panic!("FFDP_TEST_DEVICES names GPUs, but the feature `cuda` is not compiled in");
}

/// Says that the test that runs on this thread skips what needs a device. Test harnesses keep that to themselves: its
/// name is also added to the file that `FFDP_SKIPPED_TESTS` names, if it names one, so that somebody can count.
fn skipped(reason: &str) {
    eprintln!("skipped: {reason}");
    let Some(file) = std::env::var_os("FFDP_SKIPPED_TESTS") else { return };
    let thread = std::thread::current();
    let line = format!("{}: {reason}\n", thread.name().unwrap_or("a test"));
    let opened = std::fs::OpenOptions::new().create(true).append(true).open(&file);
    let written = opened.and_then(|mut file| file.write_all(line.as_bytes()));
    written.unwrap_or_else(|reason| panic!("{}: {reason}", file.display()));
}
