//! Which adapters of wgpu count: those of Vulkan, Metal, DirectX 12 and WebGPU.
//!
//! Where a machine has none of them, wgpu (30.0) falls back to OpenGL. Kernels compute wrong values there without an
//! error: with Mesa's llvmpipe 22.3 the cubic splines are off by more than their largest value, and other kernels were
//! seen to wait without end. So a device of OpenGL is refused where it is opened ([`wgpu_device`]) and where a kernel is
//! launched on it.

use std::error::Error;
use std::fmt;
use std::sync::OnceLock;

use burn::backend::CubeDevice;
use burn::tensor::{Device, DeviceKind};
use cubecl::device::{WgpuBackend, WgpuDevice, WgpuDeviceKind};
use cubecl::future::block_on;
use cubecl::wgpu::wgpu::{Backend, Backends, Instance, InstanceDescriptor};
use cubecl::wgpu::{AutoGraphicsApi, GraphicsApi};

/// The graphics APIs that count, best first.
const APIS: [WgpuBackend; 4] =
    [WgpuBackend::Vulkan, WgpuBackend::Metal, WgpuBackend::Dx12, WgpuBackend::WebGpu];

/// What to do without an adapter that counts.
const FIX: &str = "install a Vulkan driver, that of the GPU's maker or one for the processor (Debian and Ubuntu: \
                   mesa-vulkan-drivers), or compute on the CPU";

/// That there is no adapter that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoAdapter {
    /// What was asked for.
    pub kind: DeviceKind,
    /// The adapters of OpenGL, which do not count.
    pub refused: Vec<String>,
}

impl NoAdapter {
    /// What was found.
    pub fn found(&self) -> String {
        let kind = match &self.kind {
            DeviceKind::DefaultDevice => String::new(),
            kind => format!(" {kind:?}"),
        };
        let none = format!("wgpu finds no adapter{kind} of Vulkan, Metal, DirectX 12 or WebGPU");
        match self.refused.join(", ") {
            names if names.is_empty() => none,
            names => {
                format!("{none}, only of OpenGL ({names}), where kernels compute wrong values")
            }
        }
    }

    /// What to do.
    pub fn fix(&self) -> &'static str {
        FIX
    }
}

impl fmt::Display for NoAdapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {FIX}", self.found())
    }
}

impl Error for NoAdapter {}

/// The device of wgpu of this kind, on an adapter that counts: what `Device::wgpu` gives where that has one, and
/// otherwise the first of another API. It is not opened yet.
///
/// # Errors
/// [`NoAdapter`] where there is none.
pub fn wgpu_device(kind: DeviceKind) -> Result<Device, NoAdapter> {
    let wanted = CubeDevice::Wgpu(WgpuDevice::new(runtime_kind(&kind)));
    // One that was set up by the program: it knows what it took.
    let is_given = matches!(kind, DeviceKind::Existing(_));
    if is_given || automatic_counts() && wanted.clone().on(WgpuBackend::Auto).is_ok() {
        return Ok(Device::from(wanted));
    }
    let pinned = APIS.into_iter().find_map(|api| wanted.clone().on(api).ok());
    pinned.map(Device::from).ok_or_else(|| NoAdapter { kind, refused: adapters_of_opengl() })
}

/// Asserts that a kernel may run on the device. One that the program has set up itself is not looked at.
///
/// # Panics
/// On OpenGL.
pub(crate) fn assert_counts(device: &CubeDevice) {
    let CubeDevice::Wgpu(device) = device else { return };
    static AUTOMATIC: OnceLock<bool> = OnceLock::new();
    let counts = match (device.backend, &device.kind) {
        (WgpuBackend::Gl, _) => false,
        (WgpuBackend::Auto, WgpuDeviceKind::Existing(_)) => true,
        (WgpuBackend::Auto, _) => *AUTOMATIC.get_or_init(automatic_counts),
        _ => true,
    };
    assert!(
        counts,
        "{device:?} is an adapter of OpenGL, where kernels compute wrong values; {FIX}"
    );
}

/// Whether the API that wgpu chooses by itself counts.
fn automatic_counts() -> bool {
    AutoGraphicsApi::backend() != Backend::Gl
}

fn runtime_kind(kind: &DeviceKind) -> WgpuDeviceKind {
    match *kind {
        DeviceKind::DiscreteGpu(index) => WgpuDeviceKind::DiscreteGpu(index),
        DeviceKind::IntegratedGpu(index) => WgpuDeviceKind::IntegratedGpu(index),
        DeviceKind::VirtualGpu(index) => WgpuDeviceKind::VirtualGpu(index),
        DeviceKind::Cpu => WgpuDeviceKind::Cpu,
        DeviceKind::DefaultDevice => WgpuDeviceKind::DefaultDevice,
        DeviceKind::Existing(id) => WgpuDeviceKind::Existing(id),
    }
}

/// Their names. Of OpenGL alone: with Vulkan's loader, instances must not come and go on several threads.
fn adapters_of_opengl() -> Vec<String> {
    let instance = Instance::new(InstanceDescriptor {
        backends: Backends::GL,
        ..InstanceDescriptor::new_without_display_handle()
    });
    let adapters = block_on(instance.enumerate_adapters(Backends::GL));
    adapters.iter().map(|adapter| adapter.get_info().name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_with_opengl_alone_is_said_so_with_what_to_install() {
        let none = NoAdapter { kind: DeviceKind::DefaultDevice, refused: Vec::new() };
        assert!(!none.to_string().contains("OpenGL"), "{none}");
        let refused = vec!["llvmpipe (LLVM 15.0.6, 256 bits)".to_string()];
        let only = NoAdapter { kind: DeviceKind::DiscreteGpu(1), refused };
        for word in ["DiscreteGpu(1)", "Vulkan", "OpenGL (llvmpipe", "mesa-vulkan-drivers"] {
            assert!(only.to_string().contains(word), "{word}: {only}");
        }
    }

    #[test]
    fn no_device_of_opengl_is_given_or_used() {
        let on = |api| CubeDevice::Wgpu(WgpuDevice::default().on(api));
        let refused = std::panic::catch_unwind(|| assert_counts(&on(WgpuBackend::Gl)));
        let refused = refused.expect_err("kernels would compute wrong values");
        let message = refused.downcast_ref::<String>().expect("a message");
        assert!(message.contains("OpenGL") && message.contains("install"), "{message}");
        assert_counts(&on(WgpuBackend::Vulkan));
        // Whatever this machine has; what wgpu chooses by itself, as for a program that says `Device::wgpu`.
        let automatic = std::panic::catch_unwind(|| assert_counts(&on(WgpuBackend::Auto)));
        assert_eq!(automatic.is_ok(), automatic_counts());
        let has_one = APIS.into_iter().any(|api| on(WgpuBackend::Auto).on(api).is_ok());
        let found = wgpu_device(DeviceKind::DefaultDevice);
        assert_eq!(found.is_ok(), has_one, "{found:?}");
        let absent =
            wgpu_device(DeviceKind::DiscreteGpu(99)).expect_err("no machine has a hundred");
        assert_eq!(absent.kind, DeviceKind::DiscreteGpu(99));
    }
}
