//! The GPUs that the suites run on.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use burn::tensor::{Device, Tensor};
#[cfg(feature = "cube")]
use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig, autotune::AutotuneLevel};

/// One device for each GPU backend that was compiled in and finds a device, by name.
///
/// `FFDP_TEST_DEVICES` (for example `wgpu` or `cuda,wgpu`) restricts the choice, and demands that what it names is there;
/// `cuda:0,cuda:1` names GPUs for [`several_gpus`] as well. Without a GPU the list is empty, and tests that need
/// one say that they skip.
///
/// # Panics
/// If a backend that `FFDP_TEST_DEVICES` names is compiled in and finds no device.
pub fn gpu_devices() -> Vec<(&'static str, Device)> {
    static FOUND: OnceLock<(Vec<(&'static str, Device)>, String)> = OnceLock::new();
    let (devices, absent) = FOUND.get_or_init(|| {
        #[cfg(feature = "cube")]
        choose_without_peak_rates();
        let wanted = std::env::var("FFDP_TEST_DEVICES").ok();
        let kind = |w: &str| w.trim().split(':').next().map(str::to_owned);
        let (mut devices, mut absent) = (Vec::new(), String::new());
        for (name, device) in backends() {
            let is_named =
                |wanted: &String| wanted.split(',').any(|w| kind(w).as_deref() == Some(name));
            if wanted.as_ref().is_some_and(|wanted| !is_named(wanted)) {
                continue;
            }
            match device.and_then(|device| {
                works(&device).then_some(device).ok_or("it does not work".to_string())
            }) {
                Ok(device) => devices.push((name, device)),
                Err(reason) => {
                    let wanted = wanted.as_deref().unwrap_or_default();
                    assert!(
                        wanted.is_empty(),
                        "FFDP_TEST_DEVICES={wanted}, but {name} finds no device: {reason}"
                    );
                    absent += &format!("; {reason}");
                }
            }
        }
        (devices, absent)
    });
    if devices.is_empty() {
        skipped(&format!(
            "{NO_GPU}: none is here, or none compiled in (features `wgpu`, `cuda`) and chosen{absent}"
        ));
    }
    devices.clone()
}

/// How the reason begins for which a test skips that a GPU would have run; `.ci/run` looks for it.
const NO_GPU: &str = "no GPU";

/// The device of every GPU backend that was compiled in, or why there is none.
fn backends() -> Vec<(&'static str, Result<Device, String>)> {
    vec![
        #[cfg(feature = "cuda")]
        ("cuda", Ok(Device::cuda(0))),
        #[cfg(feature = "wgpu")]
        ("wgpu", crate::wgpu_device(Default::default()).map_err(|reason| reason.to_string())),
    ]
}

/// Burn measures the peak rates of a device before it chooses among its kernels for a sum or a product, unless it is
/// set to try all of them. Of a driver that computes on the processor that takes minutes. Which kernel wins does not
/// matter here: each is tried once.
#[cfg(feature = "cube")]
fn choose_without_peak_rates() {
    let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
    config.autotune.level = AutotuneLevel::Full;
    (config.autotune.bench.min_samples, config.autotune.bench.max_samples) = (1, 1);
    CubeClRuntimeConfig::try_set(config);
}

/// Whether there is such a device: a backend panics when it is first asked and has none.
fn works(device: &Device) -> bool {
    let probe = || Tensor::<1>::ones([4], device).try_into_vec_as::<f32>();
    matches!(catch_unwind(AssertUnwindSafe(probe)), Ok(Ok(ones)) if ones == [1.0; 4])
}

/// The GPUs that `FFDP_TEST_DEVICES` names by number (`cuda:0,cuda:1`), at least two; otherwise none, and
/// the test says that it skips.
///
/// # Panics
/// If other tests run concurrently with this one: a kernel that one of them loads while GPUs wait for each other hangs
/// both.
pub fn several_gpus() -> Vec<Device> {
    let wanted = std::env::var("FFDP_TEST_DEVICES").unwrap_or_default();
    let numbers = wanted.split(',').filter_map(|name| name.trim().strip_prefix("cuda:"));
    let numbers: Vec<usize> = numbers.filter_map(|number| number.parse().ok()).collect();
    if numbers.len() < 2 {
        skipped("FFDP_TEST_DEVICES names no two GPUs, as cuda:0,cuda:1");
        return Vec::new();
    }
    assert!(is_alone(), "tests on several GPUs must run alone: add `--test-threads 1`");
    #[cfg(feature = "cuda")]
    return numbers.into_iter().map(Device::cuda).collect();
    #[cfg(not(feature = "cuda"))]
    panic!("FFDP_TEST_DEVICES names GPUs, but the feature `cuda` is not compiled in");
}

/// Whether the harness runs one test at a time.
fn is_alone() -> bool {
    let arguments: Vec<String> = std::env::args().collect();
    arguments.iter().any(|argument| argument == "--test-threads=1")
        || arguments.windows(2).any(|pair| pair == ["--test-threads", "1"])
        || std::env::var("RUST_TEST_THREADS").is_ok_and(|threads| threads == "1")
}

/// Says that the test that runs on this thread skips what needs a device. Test harnesses keep that to themselves: its
/// name is also added to the file that `FFDP_SKIPPED_TESTS` names, if it names one, so that somebody can count.
pub fn skipped(reason: &str) {
    eprintln!("skipped: {reason}");
    let Some(file) = std::env::var_os("FFDP_SKIPPED_TESTS") else { return };
    let thread = std::thread::current();
    let line = format!("{}: {reason}\n", thread.name().unwrap_or("a test"));
    let opened = std::fs::OpenOptions::new().create(true).append(true).open(&file);
    let written = opened.and_then(|mut file| file.write_all(line.as_bytes()));
    written.unwrap_or_else(|reason| panic!("{}: {reason}", file.display()));
}
