//! What tensors in host memory hold, as it lies there.

use burn::Tensor;
use burn::backend::{BackendTensor, DispatchDevice, DispatchTensorKind};
use burn::tensor::{DType, Device, TensorData};

/// Lines that are sent one by one; more are copied together first.
const MOST_LINES: usize = 16;

pub(super) fn is_host(device: &Device) -> bool {
    matches!(device.as_dispatch(), DispatchDevice::Flex(_))
}

/// What a tensor in host memory holds, in lines of memory one after the other, not copied where it was read from a device
/// (`rest.rs`). None of other tensors, or if they are too many: planes of one channel lie in a line, those of several in one
/// each.
pub(super) fn lines_of<const D: usize>(tensor: &Tensor<D>) -> Option<Vec<TensorData>> {
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
    parts.into_iter().map(line_of).collect()
}

fn lies_in_line<const D: usize>(tensor: Tensor<D>) -> bool {
    match tensor.into_dispatch().kind {
        DispatchTensorKind::Flex(BackendTensor::Float(tensor)) => tensor.layout().is_contiguous(),
        _ => false,
    }
}

/// What lies in one line.
fn line_of<const D: usize>(tensor: Tensor<D>) -> Option<TensorData> {
    let (count, dtype) = (tensor.shape().num_elements(), tensor.dtype());
    let DispatchTensorKind::Flex(BackendTensor::Float(tensor)) = tensor.into_dispatch().kind else {
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
