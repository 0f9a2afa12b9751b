//! What is sent to a CUDA device ahead of its use: on a stream of its own, concurrently with what the device computes
//! and what is read from it.
//!
//! Whoever brings something for later does so within [`bring_ahead`], with the functions that everybody uses: what
//! rests in host memory (`rest.rs`) is then only noted, and sent when all of it is known. It is there after
//! [`UnderWay::wait`]; nothing may be computed from it before.
//!
//! CubeCL (0.11.3) has streams of its own, one for each `StreamId`, but its computations would not wait for another of
//! them: buffers that are allocated one by one (`ExactMemory`) carry no mark of when they were written, and
//! computations that read them too early end in NaN. Sending a second large value there waits for the first. So CubeCL
//! gives the memory, and the driver is asked to copy.

use burn::Tensor;
use burn::tensor::Device;

/// What is sent to a device, and has perhaps not arrived. Waits for it when it is dropped.
#[must_use]
#[derive(Debug)]
pub(super) struct UnderWay {
    #[cfg(feature = "cuda")]
    sent: Option<cuda::Sent>,
}

impl UnderWay {
    /// Until all of it has arrived.
    ///
    /// # Panics
    /// If the driver failed to send it, with its reason.
    pub fn wait(self) {
        #[cfg(feature = "cuda")]
        if let Some(sent) = self.sent {
            sent.wait();
        }
    }
}

/// What `bring` brings to a device, some of which is under way.
pub(super) fn bring_ahead<T>(device: &Device, bring: impl FnOnce() -> T) -> (T, UnderWay) {
    #[cfg(feature = "cuda")]
    {
        let (brought, sent) = cuda::bring_ahead(device, bring);
        (brought, UnderWay { sent })
    }
    #[cfg(not(feature = "cuda"))]
    {
        let _ = device;
        (bring(), UnderWay {})
    }
}

/// Within [`bring_ahead`]: pieces that rest in host memory, joined along `dim` on the device, which they are sent to.
/// None otherwise, or where they are too many lines of memory.
pub(super) fn joined_ahead<const D: usize>(
    pieces: &[Tensor<D>],
    dim: usize,
    device: &Device,
) -> Option<Tensor<D>> {
    #[cfg(feature = "cuda")]
    {
        cuda::joined_ahead(pieces, dim, device)
    }
    #[cfg(not(feature = "cuda"))]
    {
        let _ = (pieces, dim, device);
        None
    }
}

/// `bring` as if it were not within [`bring_ahead`]: for what is computed with at once.
pub(super) fn at_once<T>(bring: impl FnOnce() -> T) -> T {
    #[cfg(feature = "cuda")]
    {
        cuda::noting(None, bring).0
    }
    #[cfg(not(feature = "cuda"))]
    {
        bring()
    }
}

#[cfg(feature = "cuda")]
mod cuda {
    use std::any::Any;
    use std::cell::RefCell;
    use std::collections::HashMap;
    use std::fmt;
    use std::ops::Range;
    use std::rc::Rc;
    use std::sync::Arc;

    use burn::Tensor;
    use burn::backend::{BackendTensor, DispatchTensorKind};
    use burn::tensor::{Bytes, Device};
    use burn_cubecl::CubeBackend;
    use cubecl::cuda::CudaRuntime;
    use cubecl_runtime::runtime::Runtime;
    use cudarc::driver::CudaStream;
    use cudarc::driver::result::memcpy_htod_async;

    use crate::driver::context_of;
    use crate::host::lines_of;
    use crate::joined::cube;

    type Server = <CudaRuntime as Runtime>::Server;

    thread_local! {
        /// What is to be sent, within [`bring_ahead`].
        static NOTED: RefCell<Option<Vec<Order>>> = const { RefCell::new(None) };
        /// For every device the stream that this thread sends on.
        static STREAMS: RefCell<HashMap<usize, Arc<CudaStream>>> = RefCell::default();
    }

    /// One copy.
    pub struct Order {
        bytes: Rc<Bytes>,
        range: Range<usize>,
        /// Address on the device.
        place: u64,
        /// Keeps it.
        _memory: Rc<dyn Any>,
    }

    /// Orders under way; what they read and write is kept for as long.
    pub struct Sent {
        stream: Arc<CudaStream>,
        orders: Vec<Order>,
    }

    impl fmt::Debug for Sent {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Sent").field("orders", &self.orders.len()).finish_non_exhaustive()
        }
    }

    impl Sent {
        pub fn wait(self) {
            let arrived = self.stream.synchronize();
            arrived.unwrap_or_else(|reason| panic!("sending a shard to its device: {reason}"));
        }
    }

    impl Drop for Sent {
        fn drop(&mut self) {
            // What fails here fails again where it is looked at.
            let _ = self.stream.synchronize();
        }
    }

    /// While `bring` runs, what is noted is `notes`; what they are in the end.
    pub fn noting<T>(
        notes: Option<Vec<Order>>,
        bring: impl FnOnce() -> T,
    ) -> (T, Option<Vec<Order>>) {
        struct Before(Option<Vec<Order>>);
        impl Drop for Before {
            fn drop(&mut self) {
                NOTED.set(self.0.take());
            }
        }
        let before = Before(NOTED.replace(notes));
        let brought = bring();
        let notes = NOTED.take();
        drop(before);
        (brought, notes)
    }

    pub fn bring_ahead<T>(device: &Device, bring: impl FnOnce() -> T) -> (T, Option<Sent>) {
        let Some(stream) = stream_to(device) else { return (bring(), None) };
        let (brought, orders) = noting(Some(Vec::new()), bring);
        // Before the first copy: whatever happens to the others, it is waited for.
        let sent = Sent { stream, orders: orders.unwrap_or_default() };
        // Memory is there once the device has come to where it was asked for, and what had it before has gone. A failure
        // shows where numbers are read.
        let _ = device.sync();
        for Order { bytes, range, place, .. } in &sent.orders {
            // SAFETY: `place` is the address of as many bytes of this device, which nobody else uses, or will before
            // the stream was waited for; they and what is copied from live at least as long as `Sent`.
            let begun = unsafe {
                memcpy_htod_async(*place, &bytes[range.clone()], sent.stream.cu_stream())
            };
            begun.unwrap_or_else(|reason| panic!("sending a shard to its device: {reason}"));
        }
        (brought, Some(sent))
    }

    /// None where the device is not CUDA's.
    fn stream_to(device: &Device) -> Option<Arc<CudaStream>> {
        let context = context_of(&cube(device)?)?;
        STREAMS.with_borrow_mut(|streams| match streams.get(&context.ordinal()) {
            Some(stream) => Some(stream.clone()),
            None => {
                let stream = context.new_stream().ok()?;
                Some(streams.entry(context.ordinal()).or_insert(stream).clone())
            }
        })
    }

    pub fn joined_ahead<const D: usize>(
        pieces: &[Tensor<D>],
        dim: usize,
        device: &Device,
    ) -> Option<Tensor<D>> {
        if NOTED.with_borrow(Option::is_none) || device.is_autodiff() {
            return None;
        }
        let (dtype, mut dims) = (pieces[0].dtype(), pieces[0].dims());
        dims[dim] = pieces.iter().map(|piece| piece.dims()[dim]).sum();
        let lines = pieces.iter().map(lines_of).collect::<Option<Vec<_>>>()?;
        // A line, which is dense: CUDA may pad the rows of others.
        let there = Tensor::<1>::empty([dims.iter().product::<usize>()], (device, dtype));
        let DispatchTensorKind::Cube(BackendTensor::Float(lazy)) =
            there.clone().into_dispatch().kind
        else {
            return None;
        };
        let memory = lazy.client.clone().resolve_tensor_float::<CubeBackend>(lazy);
        let memory = memory.client.get_resource::<Server>(memory.handle.clone()).ok()?;
        let (base, memory) = (memory.resource().ptr, Rc::new(memory) as Rc<dyn Any>);
        // In bytes: a row of the result, and how much of it the pieces before have.
        let after = dtype.size() * dims[dim + 1..].iter().product::<usize>();
        let (all, mut first) = (dims[dim] * after, 0);
        for (piece, lines) in pieces.iter().zip(lines) {
            let row = piece.dims()[dim] * after;
            let mut done = 0;
            for line in lines {
                let bytes = Rc::new(line.into_parts().0);
                // Rows that lie in one line are one copy only where they do so over there as well.
                let most = if row == all { bytes.len() } else { row };
                for start in (0..bytes.len()).step_by(most) {
                    let range = start..(start + most).min(bytes.len());
                    let at = done + start;
                    let place = base + (at / row * all + first + at % row) as u64;
                    let (bytes, memory) = (bytes.clone(), memory.clone());
                    let order = Order { bytes, range, place, _memory: memory };
                    NOTED.with_borrow_mut(|notes| {
                        notes.as_mut().expect("notes are taken here").push(order);
                    });
                }
                done += bytes.len();
            }
            first += row;
        }
        Some(there.reshape(dims))
    }
}
