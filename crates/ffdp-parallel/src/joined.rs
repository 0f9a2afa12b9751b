//! Devices that form sums among themselves.

use burn::tensor::Device;

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

/// Waits until all that was recorded for the devices is on its way: launched, though not done.
pub(super) fn launch(devices: &[Device]) {
    #[cfg(feature = "cube")]
    gpu::launch(devices);
    #[cfg(not(feature = "cube"))]
    let _ = devices;
}

/// Each device once, in order.
pub(super) fn distinct(devices: &[Device]) -> Vec<Device> {
    let mut found: Vec<Device> = Vec::new();
    for device in devices {
        if !found.contains(device) {
            found.push(device.clone());
        }
    }
    found
}

#[cfg(feature = "cube")]
mod gpu {
    use std::thread;

    use burn::backend::CubeDevice;
    use burn::backend::fusion::client::GlobalFusionClient;
    use burn::tensor::Device;
    use burn_cubecl::fusion::FusionCubeRuntime;

    use super::cube;

    pub fn launch(devices: &[Device]) {
        let devices: Vec<_> = devices.iter().filter_map(cube).collect();
        // From Burn's queue, of this thread's stream, to CubeCL's. All of it, before the first is waited for.
        for device in &devices {
            GlobalFusionClient::<FusionCubeRuntime>::load(device).sync(|| ());
        }
        // And from there to the device, all at once: who joins a sum for the first time waits for the others.
        // A failure shows where numbers are read.
        let launched = |device: &CubeDevice| drop(device.client().exclusive(|| ()));
        let Some((first, others)) = devices.split_first() else { return };
        thread::scope(|scope| {
            for device in others {
                scope.spawn(move || launched(device));
            }
            launched(first);
        });
    }
}
