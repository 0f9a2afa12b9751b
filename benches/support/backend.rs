//! Where to run.

use burn::tensor::Device;
use clap::ValueEnum;

/// The backends that a binary may have.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// burn-flex.
    Cpu,
    /// NVIDIA GPUs (feature `cuda`).
    Cuda,
    /// Vulkan, Metal or WebGPU (feature `wgpu`).
    Wgpu,
}

impl Backend {
    /// Its device number `index`.
    pub fn device(self, index: usize) -> Result<Device, String> {
        let _ = index;
        match self {
            Self::Cpu => Ok(Device::flex()),
            #[cfg(feature = "cuda")]
            Self::Cuda => Ok(Device::cuda(index)),
            #[cfg(feature = "wgpu")]
            Self::Wgpu => {
                let kind = match index {
                    0 => Default::default(),
                    index => burn::tensor::DeviceKind::DiscreteGpu(index),
                };
                ffdp_kit::wgpu_device(kind).map_err(|none| none.to_string())
            }
            #[allow(unreachable_patterns)]
            missing => {
                let name = format!("{missing:?}").to_lowercase();
                Err(format!(
                    "this binary was built without {name}: build it with `--features {name}`"
                ))
            }
        }
    }
}
