//! What is asked of CUDA's driver directly, bypassing CubeCL, where the memory of a device is short.

#[cfg(feature = "cuda")]
pub(super) use cuda::{context_of, keep_freed};

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

        // What else a file, the environment or the program has set stays.
        let mut config = CubeClRuntimeConfig::get().as_ref().clone();
        config.memory.cuda.allocator = CudaAllocator::Async;
        *CubeClRuntimeConfig::storage().lock() = Some(std::sync::Arc::new(config));
    }
}

#[cfg(feature = "cuda")]
mod cuda {
    use std::sync::Arc;

    use burn::backend::CubeDevice;
    use cudarc::driver::CudaContext;
    use cudarc::driver::result::device::get_default_mem_pool;
    use cudarc::driver::result::mem_pool::{set_attribute, trim_to};
    use cudarc::driver::sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;

    /// The context of a CUDA device, which is CubeCL's as well; none of others.
    pub fn context_of(device: &CubeDevice) -> Option<Arc<CudaContext>> {
        let CubeDevice::Cuda(device) = device else { return None };
        CudaContext::new(device.index).ok()
    }

    /// Of memory that is allocated in order ([`order_allocations`](crate::memory::order_allocations)) the driver keeps what is
    /// freed, and gives it away again in other sizes, as long as all of it is not more than `most` bytes; what is beyond
    /// it takes back whenever a stream is waited for.
    pub fn keep_freed(device: &CubeDevice, most: u64) {
        let Some(context) = context_of(device) else { return };
        let mut threshold = most;
        // SAFETY: the pool is the default one of a device that is there, and the attribute is a number of 64 bits.
        let set = unsafe {
            get_default_mem_pool(context.cu_device()).and_then(|pool| {
                let threshold = (&raw mut threshold).cast();
                set_attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, threshold)?;
                trim_to(pool, usize::try_from(most).unwrap_or(usize::MAX))
            })
        };
        // A device without such pools goes on without.
        let _ = set;
    }
}
