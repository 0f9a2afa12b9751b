//! What is asked of CUDA's driver beside CubeCL, where the memory of a device is short.

#[cfg(feature = "cuda")]
use std::sync::Arc;

#[cfg(feature = "cuda")]
use burn::backend::CubeDevice;
#[cfg(feature = "cuda")]
use burn::tensor::Device;
#[cfg(feature = "cuda")]
use cudarc::driver::CudaContext;
#[cfg(feature = "cuda")]
use cudarc::driver::result::device::get_default_mem_pool;
#[cfg(feature = "cuda")]
use cudarc::driver::result::mem_pool;
#[cfg(feature = "cuda")]
use cudarc::driver::sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;

#[cfg(feature = "cuda")]
use super::joined::cube;

/// Has CubeCL allocate and free memory of CUDA devices in the order of the work on them. Otherwise all of that work, and all
/// that is being sent, is waited for whenever a buffer is freed: where shards rest in host memory, nothing is then
/// sent ahead.
///
/// Call it before the first GPU is opened: devices that are open keep their way. Without CUDA it changes nothing.
pub fn order_allocations() {
    #[cfg(feature = "cube")]
    {
        use cubecl::config::memory::CudaAllocator;
        use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};

        // What a file, the environment or the program has set stays.
        let mut config = CubeClRuntimeConfig::get().as_ref().clone();
        config.memory.cuda.allocator = CudaAllocator::Async;
        *CubeClRuntimeConfig::storage().lock() = Some(std::sync::Arc::new(config));
    }
}

/// The context of a CUDA device, which is CubeCL's as well; none of others.
#[cfg(feature = "cuda")]
pub(super) fn context_of(device: &Device) -> Option<Arc<CudaContext>> {
    let Some(CubeDevice::Cuda(device)) = cube(device) else { return None };
    CudaContext::new(device.index).ok()
}

/// Of memory that is allocated in order ([`order_allocations`]) the driver keeps what is freed, and gives it away again
/// in other sizes, as long as all of it is not more than `most` bytes; what is beyond it takes back whenever a stream is
/// waited for.
#[cfg(feature = "cuda")]
pub(super) fn keep_freed(device: &CubeDevice, mut most: u64) {
    let CubeDevice::Cuda(device) = device else { return };
    let Ok(context) = CudaContext::new(device.index) else { return };
    let kept = most;
    // SAFETY: the pool is the default one of a device that is there, and the attribute is a number of 64 bits.
    let set = unsafe {
        get_default_mem_pool(context.cu_device()).and_then(|pool| {
            let most = (&raw mut most).cast();
            mem_pool::set_attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, most)?;
            mem_pool::trim_to(pool, usize::try_from(kept).unwrap_or(usize::MAX))
        })
    };
    // A device without such pools goes on without.
    let _ = set;
}
