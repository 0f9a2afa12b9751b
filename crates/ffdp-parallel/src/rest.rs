//! Host memory as the place where shards rest while their device works on others.
//!
//! Burn's own way there (0.22.1) is lazy: what `to_device` gives on the host is a promise that keeps the
//! memory of the device until somebody looks at it, and beyond. And its way back copies what something else
//! holds as well, into memory that the driver has to copy once more. Here values are read at once, into pinned
//! memory where the device has it (CUDA), and are shared from then on: a shard, or some of its planes, goes
//! back to the device straight from where it rests.
//!
//! Every thread has a stream of its own for what it sends and computes, with pools whose pages are as large as the largest
//! buffer so far. [`ExactMemory`] gives every buffer an allocation of its own size instead: what a device holds is then
//! what is in use. Only what is sent ahead uses another stream (`ahead.rs`).

use burn::Tensor;
use burn::tensor::Device;

#[cfg(feature = "cube")]
use super::joined::cube;
use super::transfer::to_device;

/// The tensor to where it rests: read at once if that is host memory, otherwise as any other that travels.
///
/// Waits for its device; one that is in the middle of sums with others must not be asked, for those might not
/// have received the sum.
pub fn put_away(tensor: Tensor<5>, device: &Device) -> Tensor<5> {
    #[cfg(feature = "cube")]
    if gpu::is_read(&tensor.device(), device) {
        let dims = tensor.dims();
        let line = tensor.reshape([dims.into_iter().product::<usize>()]);
        return gpu::read(line, device).reshape(dims);
    }
    to_device(tensor, device)
}

/// A tensor in host memory from which it goes to `device` without a further copy; itself on a device.
pub fn park(tensor: Tensor<5>, device: &Device) -> Tensor<5> {
    #[cfg(feature = "cube")]
    {
        gpu::park(tensor, device)
    }
    #[cfg(not(feature = "cube"))]
    {
        let _ = device;
        tensor
    }
}

/// While it lives, buffers of a device that the thread asks for are allocated one by one, to the byte, and the
/// driver has them back when they are free.
///
/// Asking it takes a part of a millisecond, less after [`order_allocations`](crate::memory::order_allocations): this is for
/// shards that come and go, whose transfers take longer. (CubeCL's keeping of free buffers for the next of the same
/// size took more memory than pages do: 40 GB for 32 with 700^3 voxels on a GPU, because the sizes of an iteration
/// differ by a few planes. The driver makes other sizes of what is free.)
#[must_use]
#[derive(Debug)]
pub struct ExactMemory {
    #[cfg(feature = "cube")]
    device: Option<burn::backend::CubeDevice>,
    // Modes belong to the stream of a thread.
    _thread: std::marker::PhantomData<*const ()>,
}

impl ExactMemory {
    /// On a device, where all buffers are planned to take `planned` bytes: up to there the driver keeps what is freed, for
    /// others of any size. On the CPU nothing changes.
    pub fn on(device: &Device, planned: u64) -> Self {
        #[cfg(feature = "cube")]
        let device = cube(device);
        #[cfg(feature = "cube")]
        if let Some(device) = &device {
            gpu::begin_exact(device, planned);
        }
        #[cfg(not(feature = "cube"))]
        let _ = (device, planned);
        Self {
            #[cfg(feature = "cube")]
            device,
            _thread: std::marker::PhantomData,
        }
    }
}

impl Drop for ExactMemory {
    fn drop(&mut self) {
        #[cfg(feature = "cube")]
        if let Some(device) = &self.device {
            gpu::end_exact(device);
        }
    }
}

/// Waits until a device has done what it was given, and gives back what is no longer used.
pub(super) fn settle(device: &Device) {
    // A failure shows where numbers are read.
    let _ = device.sync();
    // Free memory goes back when the stream that had it asks for more.
    drop(Tensor::<1>::from_floats([0.0], device));
}

#[cfg(feature = "cube")]
mod gpu {
    use burn::Tensor;
    use burn::backend::fusion::client::GlobalFusionClient;
    use burn::backend::{BackendTensor, CubeDevice, DispatchTensorKind};
    use burn::tensor::{Bytes, Device, TensorData};
    use burn_cubecl::CubeBackend;
    use burn_cubecl::fusion::FusionCubeRuntime;
    use burn_cubecl::kernel::into_contiguous;
    use cubecl::MemoryAllocationMode;
    use cubecl::future::block_on;
    use cubecl::server::CopyDescriptor;

    use super::cube;
    #[cfg(feature = "cuda")]
    use crate::driver::keep_freed;
    use crate::host::is_host;

    /// Bytes that are read at a time where that takes memory of the device.
    const WINDOW: usize = 4 << 20;

    /// Whether the way from one to the other is that of [`read`].
    pub fn is_read(from: &Device, to: &Device) -> bool {
        !from.is_autodiff() && cube(from).is_some() && is_host(to)
    }

    /// The values, in host memory.
    pub fn read(line: Tensor<1>, host: &Device) -> Tensor<1> {
        let (shape, dtype) = (line.shape(), line.dtype());
        let DispatchTensorKind::Cube(BackendTensor::Float(lazy)) = line.into_dispatch().kind else {
            unreachable!("it lies on a GPU, off the tape")
        };
        let client = lazy.client.clone();
        let tensor = into_contiguous(client.resolve_tensor_float::<CubeBackend>(lazy));
        let (client, size) = (tensor.client.clone(), tensor.elem_size());
        let binding = tensor.handle.clone().binding();
        let strides = tensor.meta.strides().clone();
        let read = |descriptor| {
            let bytes = block_on(client.read_one_tensor_async(descriptor));
            bytes.unwrap_or_else(|reason| panic!("reading a shard back: {reason:?}"))
        };
        let bytes = match client.has_device_transport() {
            true => read(CopyDescriptor::new(binding, shape.clone(), strides, size)),
            // Without NCCL's kind of device (wgpu) what is read is a window to a buffer of the device's pools.
            false => {
                let (base, held) = (binding.offset_start.unwrap_or(0), binding.size);
                let total = shape.num_elements() * size;
                let mut all: Vec<u8> = Vec::with_capacity(total);
                for first in (0..total).step_by(WINDOW) {
                    let end = (first + WINDOW).min(total);
                    let mut part = binding.clone();
                    part.offset_start = Some(base + first as u64);
                    part.offset_end = Some(held - (base + end as u64));
                    let line = [end - first].into();
                    all.extend_from_slice(&read(CopyDescriptor::new(part, line, [1].into(), 1)));
                }
                Bytes::from_bytes_vec(all)
            }
        };
        drop(tensor);
        let data = TensorData::from_bytes(bytes.shared(), shape, dtype);
        Tensor::from_data(data, (host, dtype))
    }

    pub fn park(tensor: Tensor<5>, device: &Device) -> Tensor<5> {
        let (host, dtype) = (tensor.device(), tensor.dtype());
        let Some(there) = cube(device).filter(|_| is_host(&host)) else { return tensor };
        let mut data = tensor.into_data();
        if there.client().has_device_transport() {
            device.staging(std::iter::once(&mut data));
        }
        let (bytes, shape, _) = data.into_parts();
        Tensor::from_data(TensorData::from_bytes(bytes.shared(), shape, dtype), (&host, dtype))
    }

    pub fn begin_exact(device: &CubeDevice, planned: u64) {
        set_mode(device, MemoryAllocationMode::Dedicated);
        #[cfg(feature = "cuda")]
        keep_freed(device, planned);
        #[cfg(not(feature = "cuda"))]
        let _ = planned;
    }

    pub fn end_exact(device: &CubeDevice) {
        set_mode(device, MemoryAllocationMode::Auto);
        #[cfg(feature = "cuda")]
        keep_freed(device, 0);
    }

    /// How buffers are allocated on the stream of this thread, from what it asks for next on.
    fn set_mode(device: &CubeDevice, mode: MemoryAllocationMode) {
        // Not what waits in Burn's queue.
        GlobalFusionClient::<FusionCubeRuntime>::load(device).sync(|| ());
        // SAFETY: the mode is that of the stream of this thread (the guard cannot leave it), and each mode that is
        // begun is ended by one `Auto`.
        unsafe { device.client().allocation_mode(mode) };
    }
}
