//! `--device`: where the kernels run.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::OnceLock;

use burn::tensor::{Device, Tensor};

use crate::failure::{Failure, Result};

/// A device by name. All names are known, but only those compiled in can be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The processor.
    Cpu,
    /// The CUDA device with this number.
    Cuda(usize),
    /// The default device of wgpu (Vulkan, Metal, DirectX 12, WebGPU).
    Wgpu,
}

/// The environment's choice for commands without `--device`.
const VARIABLE: &str = "FFDP_DEVICE";

/// What was found, once somebody asked.
static FASTEST: OnceLock<DeviceChoice> = OnceLock::new();

impl DeviceChoice {
    /// What `--device` is where nobody gives it: [`DeviceChoice::best`].
    pub const AUTO: &str = "auto";

    /// The device that `FFDP_DEVICE` names, or the fastest of those that were compiled in and are there: a CUDA device, a
    /// GPU of wgpu, the processor. A driver of wgpu that computes on the processor (llvmpipe) is taken only by its name:
    /// the kernels for the processor are faster.
    pub fn best() -> Self {
        Self::of_environment().ok().flatten().unwrap_or_else(|| *FASTEST.get_or_init(Self::fastest))
    }

    fn fastest() -> Self {
        match () {
            () if cuda_devices().is_some_and(|count| count > 0) => Self::Cuda(0),
            () if has_gpu_of_wgpu() => Self::Wgpu,
            () => Self::Cpu,
        }
    }

    /// What to say where the processor was taken because no GPU was there, though one could be used.
    pub fn fallback() -> Option<&'static str> {
        let could = cfg!(any(feature = "cuda", feature = "wgpu"));
        let took = FASTEST.get() == Some(&Self::Cpu);
        (could && took).then_some("no GPU was found: computing on the processor (--device cpu)")
    }

    /// The one that `FFDP_DEVICE` names.
    ///
    /// # Errors
    /// If there is no such device in this build.
    pub fn of_environment() -> Result<Option<Self>> {
        let Some(name) = std::env::var_os(VARIABLE) else { return Ok(None) };
        let name = name.to_string_lossy();
        if name == Self::AUTO {
            return Ok(None);
        }
        name.parse().map(Some).map_err(|reason| {
            Failure::user(
                format!("the variable {VARIABLE} is {name:?}: {reason}"),
                "unset it, or set it to cpu",
            )
        })
    }

    /// That of one of several processes of a host, of which so many come before it: the next GPU for each, and the
    /// first again after the last.
    pub fn of_process(self, before: usize) -> Self {
        match self {
            Self::Cuda(first) => Self::Cuda(in_turn(first, before, cuda_devices())),
            other => other,
        }
    }

    /// Opens the device for a run that does not fit into its memory; what runs before in this process has none open.
    ///
    /// # Errors
    /// As [`DeviceChoice::open`].
    pub fn open_short_of_memory(self) -> Result<Device> {
        configure();
        ffdp_parallel::memory::order_allocations();
        self.open()
    }

    /// Opens the device and runs a first operation on it.
    ///
    /// # Errors
    /// When the device is not there or does not work, with what the driver said on stderr.
    pub fn open(self) -> Result<Device> {
        configure();
        let device = match self {
            Self::Cpu => Device::flex(),
            #[cfg(feature = "cuda")]
            Self::Cuda(_) if !has_cuda_driver() => {
                return Err(Failure::user(
                    format!("the device {self} could not be opened: there is no CUDA driver"),
                    "install NVIDIA's driver, or use --device cpu",
                ));
            }
            #[cfg(feature = "cuda")]
            Self::Cuda(index) => Device::cuda(index),
            #[cfg(feature = "wgpu")]
            Self::Wgpu => open_wgpu()?,
            #[allow(unreachable_patterns)] // with every feature, nothing is left
            other => unreachable!("{other} was refused when the command line was read"),
        };
        // Backends panic when a driver is missing. No sum: Burn would first measure the device's peak
        // rates to choose between its ways to add.
        let probe = || Tensor::<1>::ones([4], &device).try_into_vec_as::<f32>();
        match catch_unwind(AssertUnwindSafe(probe)) {
            Ok(Ok(ones)) if ones == [1.0; 4] => Ok(device),
            _ => Err(Failure::user(
                format!("the device {self} could not be opened"),
                "check the driver and the device number, or use --device cpu",
            )),
        }
    }

    /// Memory of the device that is free now; `None` for the processor, whose memory is the host's,
    /// and where the driver does not say.
    pub fn free_memory_bytes(self) -> Option<u64> {
        #[cfg(feature = "cuda")]
        if let Self::Cuda(index) = self {
            return free_memory_of_cuda(index);
        }
        None
    }
}

/// Settings of GPUs, given before the first is opened; later they have no effect.
fn configure() {
    #[cfg(feature = "persistence")]
    ffdp_kit::keep_kernels();
}

/// An adapter on which kernels compute what they should.
#[cfg(feature = "wgpu")]
fn open_wgpu() -> Result<Device> {
    let found = ffdp_kit::wgpu_device(Default::default());
    found.map_err(|none| {
        let message = format!("the device wgpu could not be opened: {}", none.found());
        Failure::user(message, format!("{}: --device cpu", none.fix()))
    })
}

/// Whether wgpu finds a GPU.
fn has_gpu_of_wgpu() -> bool {
    #[cfg(feature = "wgpu")]
    {
        use burn::tensor::DeviceKind::{DiscreteGpu, IntegratedGpu, VirtualGpu};
        let mut kinds = [DiscreteGpu(0), IntegratedGpu(0), VirtualGpu(0)].into_iter();
        kinds.any(|kind| ffdp_kit::wgpu_device(kind).is_ok())
    }
    #[cfg(not(feature = "wgpu"))]
    false
}

/// GPU `first + before` of `count`, counted in a ring; `first` where it is not known how many there are, or where
/// there is no such GPU.
fn in_turn(first: usize, before: usize, count: Option<usize>) -> usize {
    match count {
        Some(count) if first < count => (first + before) % count,
        _ => first,
    }
}

/// The GPUs that this process sees.
fn cuda_devices() -> Option<usize> {
    #[cfg(feature = "cuda")]
    if has_cuda_driver() {
        return usize::try_from(cudarc::driver::CudaContext::device_count().ok()?).ok();
    }
    None
}

/// The context is CubeCL's as well, and held no longer than the question takes.
#[cfg(feature = "cuda")]
fn free_memory_of_cuda(index: usize) -> Option<u64> {
    if !has_cuda_driver() {
        return None;
    }
    let context = cudarc::driver::CudaContext::new(index).ok()?;
    let (free, _) = context.mem_get_info().ok()?;
    Some(free as u64)
}

/// Whether there is a library of a CUDA driver: without, the first call of it panics.
#[cfg(feature = "cuda")]
fn has_cuda_driver() -> bool {
    // SAFETY: it only tries to load the library.
    unsafe { cudarc::driver::sys::is_culib_present() }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
            Self::Wgpu => f.write_str("wgpu"),
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let choice =
            match name.split_once(':') {
                None if name == Self::AUTO => return Ok(Self::best()),
                None if name == "cpu" => Self::Cpu,
                None if name == "cuda" => Self::Cuda(0),
                // Vulkan is what wgpu drives on Linux and Windows.
                None if name == "wgpu" || name == "vulkan" => Self::Wgpu,
                Some(("cuda", index)) => Self::Cuda(index.parse().map_err(|_| {
                    format!("the number of a CUDA device is 0, 1, .., got {index:?}")
                })?),
                _ => return Err(format!("unknown device; this ffdp has {}", compiled_in())),
            };
        let available = match choice {
            Self::Cpu => true,
            Self::Cuda(_) => cfg!(feature = "cuda"),
            Self::Wgpu => cfg!(feature = "wgpu"),
        };
        if available {
            return Ok(choice);
        }
        let feature = if choice == Self::Wgpu { "wgpu" } else { "cuda" };
        Err(format!(
            "this ffdp was built without it and has {}; build it with --features {feature}",
            compiled_in()
        ))
    }
}

fn compiled_in() -> String {
    let mut names = vec!["cpu"];
    if cfg!(feature = "cuda") {
        names.push("cuda");
    }
    if cfg!(feature = "wgpu") {
        names.push("wgpu");
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_or_refused_with_what_is_there() {
        assert_eq!("cpu".parse(), Ok(DeviceChoice::Cpu));
        for name in ["gpu", "cpu:1", "cuda:x", "", "cuda:-1"] {
            assert!(name.parse::<DeviceChoice>().is_err(), "{name}");
        }
        let message = "gpu".parse::<DeviceChoice>().expect_err("unknown");
        assert!(message.contains("cpu"), "{message}");
        let wgpu = "wgpu".parse::<DeviceChoice>();
        assert_eq!(wgpu.is_ok(), cfg!(feature = "wgpu"), "{wgpu:?}");
        assert_eq!("vulkan".parse::<DeviceChoice>().is_ok(), wgpu.is_ok());
        let cuda = "cuda:3".parse::<DeviceChoice>();
        assert_eq!(cuda == Ok(DeviceChoice::Cuda(3)), cfg!(feature = "cuda"), "{cuda:?}");
    }

    #[test]
    fn processes_of_a_host_take_its_gpus_in_turn() {
        let of_four = |first| [0, 1, 2, 3, 4].map(|before| in_turn(first, before, Some(4)));
        assert_eq!(of_four(0), [0, 1, 2, 3, 0]);
        assert_eq!(of_four(2), [2, 3, 0, 1, 2]);
        // One that a launcher has chosen; none; a number that opening it will refuse.
        assert_eq!(in_turn(0, 3, Some(1)), 0);
        assert_eq!(in_turn(0, 3, None), 0);
        assert_eq!(in_turn(7, 1, Some(4)), 7);
        assert_eq!(DeviceChoice::Cpu.of_process(3), DeviceChoice::Cpu);
    }

    #[test]
    fn the_best_device_can_be_asked_for_by_its_name() {
        let best = DeviceChoice::best();
        assert_eq!(best.to_string().parse(), Ok(best));
        assert_eq!(DeviceChoice::AUTO.parse(), Ok(best));
    }

    /// Mesa's llvmpipe computes on the processor, six times slower than the processor itself.
    #[cfg(feature = "wgpu")]
    #[test]
    fn a_driver_that_computes_on_the_processor_is_not_taken_by_itself() {
        // Says that it needs a driver where there is none.
        if ffdp_kit::testing::gpu_devices().is_empty() {
            return;
        }
        let there = |path: &str| std::path::Path::new(path).exists();
        let hardware = there("/dev/dri/renderD128") || there("/dev/nvidia0");
        if cfg!(target_os = "linux") && !hardware {
            assert_eq!(DeviceChoice::fastest(), DeviceChoice::Cpu);
        }
    }
}
