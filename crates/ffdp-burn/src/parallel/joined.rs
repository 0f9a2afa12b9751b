//! Devices that form sums among themselves.

use burn::tensor::Device;

/// Whether these are several devices whose sums are formed without the host: CUDA's, with NCCL.
pub(super) fn are_joined(devices: &[Device]) -> bool {
    distinct(devices).len() > 1 && devices.iter().all(has_collectives)
}

#[cfg(feature = "cube")]
fn has_collectives(device: &Device) -> bool {
    use burn::backend::DispatchDevice;
    match device.as_dispatch() {
        DispatchDevice::Cube(device) => device.client().has_device_transport(),
        // The tape has its own ways.
        _ => false,
    }
}

#[cfg(not(feature = "cube"))]
fn has_collectives(_device: &Device) -> bool {
    false
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
