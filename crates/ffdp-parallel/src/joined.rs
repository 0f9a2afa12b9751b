//! Devices that form sums among themselves.

use std::any::Any;
use std::fmt::Debug;

use burn::Tensor;
use burn::tensor::Device;

use super::on_each_device::{distinct, on_each_device};
use ffdp_image::error::Result;

/// Whether these are several devices whose sums are formed without the host: CUDA's, with NCCL.
pub(super) fn are_joined(devices: &[Device]) -> bool {
    distinct(devices).len() > 1 && devices.iter().all(has_collectives)
}

#[cfg(feature = "cube")]
fn has_collectives(device: &Device) -> bool {
    // The tape has its own ways.
    !device.is_autodiff() && cube(device).is_some_and(|gpu| gpu.client().has_device_transport())
}

#[cfg(not(feature = "cube"))]
fn has_collectives(_device: &Device) -> bool {
    false
}

/// The GPU, with or without a tape; none for the CPU.
#[cfg(feature = "cube")]
pub(super) fn cube(device: &Device) -> Option<burn::backend::CubeDevice> {
    match device.clone().inner().as_dispatch() {
        burn::backend::DispatchDevice::Cube(device) => Some(device.clone()),
        _ => None,
    }
}

/// Waits until all that was recorded for the devices, each of them once, is on its way: launched, though not done. At the
/// same time for all of them: who joins a sum for the first time waits for the others.
pub(super) fn launch(devices: &[Device]) {
    #[cfg(feature = "cube")]
    on_each_device(devices, vec![(); devices.len()], |k, ()| gpu::launch(&devices[k]));
    #[cfg(not(feature = "cube"))]
    let _ = devices;
}

/// [`launch`], and [`check`] of what is to be summed.
///
/// # Errors
/// As [`check`].
pub(super) fn launch_checked(parts: &[Tensor<1>]) -> Result<()> {
    let devices = distinct(&parts.iter().map(Tensor::device).collect::<Vec<_>>());
    let here =
        |device: &Device| parts.iter().filter(|part| part.device() == *device).cloned().collect();
    let of_devices: Vec<Vec<Tensor<1>>> = devices.iter().map(here).collect();
    let checked = on_each_device(&devices, of_devices, |k, parts| {
        launch(&devices[k..=k]);
        parts.into_iter().try_for_each(|part| check(&part.into_dispatch()))
    });
    checked.into_iter().collect()
}

/// Demands that what other devices will wait for was launched; the tensor of a backend, or of none of those of GPUs.
/// Where memory has run out, CubeCL (0.11.3) skips all that depends on the buffer that could not be had, sums and
/// transfers as well, and leaves the others waiting for it.
///
/// # Errors
/// [`Error::Device`](ffdp_image::Error::Device) with the device and what CubeCL says.
pub(super) fn check<T: Any>(tensor: &T) -> Result<()> {
    #[cfg(feature = "cube")]
    gpu::check(tensor)?;
    #[cfg(not(feature = "cube"))]
    let _ = tensor;
    Ok(())
}

/// Something to wait for: that a device has done what it was given before.
pub(super) type Fence = Box<dyn FnOnce() + Send>;

/// A fence on each GPU, after all that it was given so far on the stream of this thread.
pub(super) fn fences(devices: &[Device]) -> Vec<Fence> {
    #[cfg(feature = "cube")]
    return devices.iter().filter_map(gpu::fence).collect();
    #[cfg(not(feature = "cube"))]
    {
        let _ = devices;
        Vec::new()
    }
}

/// A device as messages name it.
pub(super) fn name_of<D: Debug + 'static>(device: &D) -> String {
    #[cfg(feature = "cube")]
    if let Some(name) = gpu::name_of(device) {
        return name;
    }
    match (device as &dyn Any).downcast_ref::<Device>() {
        Some(device) => format!("{:?}", device.as_dispatch()),
        None => format!("{device:?}"),
    }
}

#[cfg(feature = "cube")]
mod gpu {
    use std::any::Any;

    use burn::backend::fusion::FusionTensor;
    use burn::backend::fusion::client::GlobalFusionClient;
    use burn::backend::{
        BackendTensor, CubeDevice, DispatchDevice, DispatchTensor, DispatchTensorKind,
    };
    use burn::tensor::Device;
    use burn_cubecl::CubeBackend;
    use burn_cubecl::fusion::FusionCubeRuntime;
    use burn_cubecl::tensor::CubeTensor;
    use cubecl::future::block_on;

    use super::{Fence, cube};
    use ffdp_image::error::{Error, Result};

    type Lazy = FusionTensor<FusionCubeRuntime>;

    pub fn check(tensor: &dyn Any) -> Result<()> {
        let Some(tensor) = launched(tensor) else { return Ok(()) };
        let checked = tensor.client.check([&tensor.handle]);
        let action =
            || format!("computing on {} what other devices wait for", name(&tensor.device));
        checked.map_err(|reason| Error::device(action(), reason))
    }

    /// The buffer of a tensor on a GPU, of one of the backends that know GPUs.
    fn launched(tensor: &dyn Any) -> Option<CubeTensor> {
        let of = |lazy: &Lazy| {
            let client = lazy.client.clone();
            client.resolve_tensor_float::<CubeBackend>(lazy.clone())
        };
        if let Some(tensor) = tensor.downcast_ref::<CubeTensor>() {
            return Some(tensor.clone());
        }
        if let Some(lazy) = tensor.downcast_ref::<Lazy>() {
            return Some(of(lazy));
        }
        match &tensor.downcast_ref::<DispatchTensor>()?.kind {
            DispatchTensorKind::Cube(BackendTensor::Float(lazy)) => Some(of(lazy)),
            DispatchTensorKind::Cube(BackendTensor::Int(lazy)) => {
                let client = lazy.client.clone();
                Some(client.resolve_tensor_int::<CubeBackend>(lazy.clone()))
            }
            _ => None,
        }
    }

    pub fn fence(device: &Device) -> Option<Fence> {
        let done = cube(device)?.client().sync();
        // A failure shows where numbers are read.
        Some(Box::new(move || drop(block_on(done))))
    }

    /// Of Burn's kinds of devices, as the command line names them.
    pub fn name_of(device: &dyn Any) -> Option<String> {
        if let Some(device) = device.downcast_ref::<Device>() {
            return cube(device).map(|device| name(&device));
        }
        match device.downcast_ref::<DispatchDevice>() {
            Some(DispatchDevice::Cube(device)) => Some(name(device)),
            Some(_) => None,
            None => device.downcast_ref::<CubeDevice>().map(name),
        }
    }

    fn name(device: &CubeDevice) -> String {
        match device {
            CubeDevice::Cuda(device) => format!("cuda:{}", device.index),
            other => format!("{other:?}"),
        }
    }

    pub fn launch(device: &Device) {
        let Some(device) = cube(device) else { return };
        // From Burn's queue, of this thread's stream, to CubeCL's, and from there to the device. A failure shows where
        // numbers are read.
        GlobalFusionClient::<FusionCubeRuntime>::load(&device).sync(|| ());
        drop(device.client().exclusive(|| ()));
    }
}

#[cfg(all(test, feature = "cube"))]
mod tests {
    use burn::backend::{CubeDevice, DispatchDevice};

    use super::*;
    use ffdp_kit::testing::{gpu_devices, to_f64};

    #[test]
    fn what_a_device_had_no_memory_for_is_found_before_others_wait_for_it() {
        for (name, device) in gpu_devices() {
            let sound = Tensor::<1>::ones([8], &device) + 1.0;
            assert!(launch_checked(std::slice::from_ref(&sound)).is_ok(), "{name}");
            assert_eq!(to_f64(sound), vec![2.0; 8], "{name}: it is still there");
            // More than any GPU has, and what is computed of it.
            let lost = Tensor::<1>::zeros([1usize << 42], &device).narrow(0, 0, 8) * 2.0;
            let error = launch_checked(std::slice::from_ref(&lost)).expect_err(name).to_string();
            assert!(error.contains(&name_of(&device)), "{name}: {error}");
            // The device goes on with what has nothing to do with it.
            let sound = Tensor::<1>::ones([8], &device) * 3.0;
            assert!(launch_checked(std::slice::from_ref(&sound)).is_ok(), "{name}");
        }
    }

    #[test]
    fn devices_are_called_by_the_names_of_the_command_line() {
        let cuda = CubeDevice::Cuda(cubecl::device::CudaDevice::new(3));
        assert_eq!(name_of(&cuda), "cuda:3");
        assert_eq!(name_of(&DispatchDevice::Cube(cuda)), "cuda:3");
        assert_eq!(name_of(&Device::flex()), name_of(Device::flex().as_dispatch()));
    }
}
