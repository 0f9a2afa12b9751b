//! Host memory as the place where shards rest while their device works on others.
//!
//! Burn's own way there (0.22.1) is lazy: what `to_device` gives on the host is a promise that keeps the
//! memory of the device until somebody looks at it, and beyond. And its way back copies what something else
//! holds as well, into memory that the driver has to copy once more. Here values are read at once, into pinned
//! memory where the device has it (CUDA), and are shared from then on: a shard, or some of its planes, goes
//! back to the device straight from where it rests.
//!
//! Burn sends values to the device on the caller's stream, and computes on another; each has pools of its own,
//! whose pages are as large as the largest buffer so far. [`ExactMemory`] gives every buffer an allocation of its
//! own size instead: what a device holds is then what is in use.

use burn::Tensor;
use burn::tensor::Device;

use super::ahead::joined_ahead;
#[cfg(feature = "cube")]
use super::joined::cube;
use super::transfer::to_device;

/// The tensor, which may be some planes of another, on a device, from where it rests in host memory; none where
/// that is not the way.
pub(super) fn wake<const D: usize>(tensor: &Tensor<D>, device: &Device) -> Option<Tensor<D>> {
    if let Some(sent) = joined_ahead(std::slice::from_ref(tensor), 0, device) {
        return Some(sent);
    }
    #[cfg(feature = "cube")]
    {
        gpu::wake(tensor, device)
    }
    #[cfg(not(feature = "cube"))]
    {
        let _ = (tensor, device);
        None
    }
}

/// What a tensor in host memory holds, in lines of memory one after the other; none of others, or if they are too many.
#[cfg(feature = "cuda")]
pub(super) fn lines_at_rest<const D: usize>(
    tensor: &Tensor<D>,
) -> Option<Vec<burn::tensor::Bytes>> {
    let lines = gpu::resting_lines(tensor)?;
    Some(lines.into_iter().map(|line| line.into_parts().0).collect())
}

/// The tensor to where it rests: read at once if that is host memory, otherwise as any other that travels.
///
/// Waits for its device; one that is in the middle of sums with others must not be asked, for those might not
/// have been told of the sum.
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
pub(crate) fn park(tensor: Tensor<5>, device: &Device) -> Tensor<5> {
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
/// Asking it takes a part of a millisecond, less after [`order_allocations`](super::order_allocations): this is for
/// shards that come and go, whose journeys take longer. (CubeCL's keeping of free buffers for the next of the same size
/// took more memory than pages do: 40 GB for 32 with 700^3 voxels on a GPU, because the sizes of an iteration differ by
/// a few planes. The driver makes other sizes of what is free.)
#[must_use]
#[derive(Debug)]
pub struct ExactMemory {
    #[cfg(feature = "cube")]
    device: Option<burn::backend::CubeDevice>,
    // Modes belong to the streams of a thread.
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
    use burn::backend::{BackendTensor, CubeDevice, DispatchDevice, DispatchTensorKind};
    use burn::tensor::{Bytes, DType, Device, TensorData};
    use burn_cubecl::CubeBackend;
    use burn_cubecl::fusion::FusionCubeRuntime;
    use burn_cubecl::kernel::into_contiguous;
    use cubecl::MemoryAllocationMode;
    use cubecl::future::block_on;
    use cubecl::server::CopyDescriptor;

    use super::cube;
    #[cfg(feature = "cuda")]
    use crate::parallel::driver::keep_freed;

    /// Bytes that are read at a time where that takes memory of the device.
    const WINDOW: usize = 4 << 20;
    /// Lines that are sent one by one; more are copied together first.
    const MOST_LINES: usize = 16;

    fn is_host(device: &Device) -> bool {
        matches!(device.as_dispatch(), DispatchDevice::Flex(_))
    }

    /// Whether the way from one to the other is that of [`read`].
    pub fn is_read(from: &Device, to: &Device) -> bool {
        !from.is_autodiff() && cube(from).is_some() && is_host(to)
    }

    pub fn wake<const D: usize>(tensor: &Tensor<D>, device: &Device) -> Option<Tensor<D>> {
        let (dtype, dims) = (tensor.dtype(), tensor.dims());
        cube(device)?;
        // Those of several lines are joined over there.
        let line = |line: TensorData| Tensor::<1>::from_data(line, (device, dtype));
        let mut lines: Vec<_> = resting_lines(tensor)?.into_iter().map(line).collect();
        let line = if lines.len() == 1 { lines.remove(0) } else { Tensor::cat(lines, 0) };
        Some(line.reshape(dims))
    }

    /// What a tensor in host memory holds, in lines of memory one after the other, not copied where it was [`read`]; none if
    /// they are too many. Planes of one channel lie in a line, those of several in one each.
    pub fn resting_lines<const D: usize>(tensor: &Tensor<D>) -> Option<Vec<TensorData>> {
        let home = tensor.device();
        if home.is_autodiff() || !is_host(&home) {
            return None;
        }
        let mut parts = vec![tensor.clone()];
        for (dim, &count) in tensor.dims().iter().enumerate() {
            if lies_in_line(parts[0].clone()) {
                break;
            }
            let each = |part: Tensor<D>| (0..count).map(move |i| part.clone().narrow(dim, i, 1));
            parts = parts.into_iter().flat_map(each).collect();
            if parts.len() > MOST_LINES {
                return None;
            }
        }
        parts.into_iter().map(resting).collect()
    }

    fn lies_in_line<const D: usize>(tensor: Tensor<D>) -> bool {
        match tensor.into_dispatch().kind {
            DispatchTensorKind::Flex(BackendTensor::Float(tensor)) => {
                tensor.layout().is_contiguous()
            }
            _ => false,
        }
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

    /// What a tensor in host memory holds, in a line; not copied where it was [`read`].
    fn resting<const D: usize>(tensor: Tensor<D>) -> Option<TensorData> {
        let (count, dtype) = (tensor.shape().num_elements(), tensor.dtype());
        let DispatchTensorKind::Flex(BackendTensor::Float(tensor)) = tensor.into_dispatch().kind
        else {
            return None;
        };
        if !tensor.layout().is_contiguous() || !matches!(dtype, DType::F32 | DType::BF16) {
            return None;
        }
        let size = dtype.size();
        let first = tensor.layout().start_offset() * size;
        let end = first + count * size;
        // Of others there is no view.
        let bytes = tensor.data_arc().view(first, end).ok()?;
        Some(TensorData::from_bytes(bytes, [count], dtype))
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

    /// How buffers are allocated on the stream of this thread and on that of its computations.
    fn set_mode(device: &CubeDevice, mode: MemoryAllocationMode) {
        let set = move |device: &CubeDevice| {
            // SAFETY: the mode is that of a stream of this thread alone (the guard cannot leave it), and each
            // mode that is begun is ended by one `Auto`.
            unsafe { device.client().allocation_mode(mode) };
        };
        let there = device.clone();
        GlobalFusionClient::<FusionCubeRuntime>::load(device).sync(move || set(&there));
        set(device);
    }
}

#[cfg(all(test, feature = "cube"))]
mod tests {
    use burn::tensor::Distribution;

    use super::*;
    use crate::testing::{gpu_devices, to_f64};

    /// What rests shares its memory with what is sent from it; planes of three channels are three lines of it.
    #[test]
    fn planes_of_channels_wake_from_where_they_rest() {
        for (name, device) in gpu_devices() {
            let noise = Distribution::Uniform(-1.0, 1.0);
            let there = Tensor::<5>::random([1, 3, 9, 4, 5], noise, &device);
            let resting = put_away(there.clone(), &Device::flex());
            let all = to_f64(there);
            for (planes, first) in [(9, 0), (4, 2), (1, 8)] {
                let part = resting.clone().narrow(2, first, planes);
                let woken = wake(&part, &device).unwrap_or_else(|| panic!("{name}: it rests"));
                let channel = |c: usize| &all[(c * 9 + first) * 20..(c * 9 + first + planes) * 20];
                assert_eq!(to_f64(woken), [channel(0), channel(1), channel(2)].concat(), "{name}");
            }
            // Rows of all planes are too many lines, and a tensor of the device does not rest.
            assert!(wake(&resting.narrow(3, 1, 2), &device).is_none(), "{name}");
            assert!(wake(&Tensor::<1>::zeros([4], &device), &device).is_none(), "{name}");
        }
    }
}
