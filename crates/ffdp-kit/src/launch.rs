//! Shared pieces of the CubeCL launches: buffers, the 3-D grid of cubes, the sum of partials.

// The macros of CubeCL make items of their own, without documentation.
#![allow(missing_docs)]

use std::cell::RefCell;
use std::collections::VecDeque;

use burn::tensor::{DType, Shape, StreamId};
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::settings::Dim3;
use cubecl::ir::{ElemType, FloatKind};
use cubecl::prelude::*;

use crate::cubes::{blocks, launched, lines_of_cubes};

/// Units of a cube along x, y, z: whole warps along x for coalesced access, and a block that is
/// compact in space, so that neighbouring samples share cache lines.
pub const CUBE: Dim3 = Dim3::new_3d(32, 4, 2);

/// The extent of a volume in a kernel, in tensor order.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub struct Extent {
    /// Depth, along z.
    pub d: u32,
    /// Height, along y.
    pub h: u32,
    /// Width, along x.
    pub w: u32,
}

/// The launch argument for an [`Extent`].
pub fn extent([d, h, w]: [usize; 3]) -> ExtentLaunch {
    ExtentLaunch::new(d as u32, h as u32, w as u32)
}

/// Extents (D, H, W) of a tensor `[N, C, D, H, W]`.
pub fn size(tensor: &CubeTensor) -> [usize; 3] {
    let shape = tensor.meta.shape();
    [shape[2], shape[3], shape[4]]
}

/// One unit a voxel: cubes along x, along y, and along z times `batch`.
///
/// # Panics
/// If the grid exceeds what every GPU offers (65535 cubes along an axis).
pub fn cubes(op: &str, batch: usize, size: [usize; 3]) -> CubeCount {
    launched(blocks(op, batch, size, [CUBE.x, CUBE.y, CUBE.z]))
}

/// A new contiguous tensor on the device of `like`, of the same type, not initialised.
pub fn empty(like: &CubeTensor, shape: impl Into<Shape>) -> CubeTensor {
    let (client, device) = (like.client.clone(), like.device.clone());
    empty_device_contiguous_dtype(client, device, shape.into(), like.dtype)
}

/// [`empty`] in single precision, whatever `like` is stored in.
pub fn empty_f32(like: &CubeTensor, shape: impl Into<Shape>) -> CubeTensor {
    let (client, device) = (like.client.clone(), like.device.clone());
    empty_device_contiguous_dtype(client, device, shape.into(), DType::F32)
}

/// An image as kernels read it: contiguous, in single or half precision. `op` is named in messages.
///
/// # Panics
/// For other types, and for those that the device does not know.
pub fn readable(op: &str, image: CubeTensor) -> CubeTensor {
    let dtype = image.dtype;
    assert!(
        matches!(dtype, DType::F32 | DType::F16 | DType::BF16),
        "{op}: the GPU kernels read images of f32, f16 or bf16, got {dtype:?}"
    );
    let known = image.client.properties().supports_type(kind(&image));
    assert!(known, "{op}: this device knows no {dtype:?}; convert the image to f32");
    burn_cubecl::kernel::into_contiguous(image)
}

/// What a kernel that reads `image` is compiled for.
pub fn kind(image: &CubeTensor) -> ElemType {
    ElemType::Float(match image.dtype {
        DType::F16 => FloatKind::F16,
        DType::BF16 => FloatKind::BF16,
        _ => FloatKind::F32,
    })
}

/// A new contiguous tensor of zeros on the device of `like`.
pub fn zeros(like: &CubeTensor, shape: impl Into<Shape>) -> CubeTensor {
    use burn::backend::ops::FloatTensorOps;
    // Burn may pad the rows of a new tensor of several axes (CUDA); one of one axis is dense.
    let shape: Shape = shape.into();
    let (line, dtype) = ([shape.num_elements()].into(), like.dtype.into());
    let zeros = burn_cubecl::CubeBackend::float_zeros(line, &like.device, dtype);
    CubeTensor::new_contiguous(zeros.client, zeros.device, shape, zeros.handle, zeros.dtype)
}

/// The tensor, or a copy where something else holds its memory.
pub fn writable(tensor: CubeTensor) -> CubeTensor {
    let tensor = burn_cubecl::kernel::into_contiguous(tensor);
    if tensor.can_mut() {
        return tensor;
    }
    // Burn may pad the rows of a copy of several axes (CUDA); one of one axis is dense.
    let shape = tensor.meta.shape().clone();
    let shaped = |tensor: CubeTensor, shape| {
        CubeTensor::new_contiguous(tensor.client, tensor.device, shape, tensor.handle, tensor.dtype)
    };
    let line = shaped(tensor, [shape.num_elements()].into());
    shaped(line.copy(), shape)
}

/// Constants on a device, as they were asked for.
struct Constants {
    bits: Vec<u32>,
    tensor: CubeTensor,
}

/// Constants that a thread keeps on its devices, at most, and numbers of one that is kept.
const KEPT: usize = 64;
const KEPT_NUMBERS: usize = 1 << 14;

thread_local! {
    /// The last ones used last.
    static CONSTANTS: RefCell<VecDeque<Constants>> = const { RefCell::new(VecDeque::new()) };
}

/// A few constants on the device of `like`, not to be written to. An iteration asks for the same weights and tables as
/// the one before: they stay there, for a copy takes longer than a small kernel.
pub fn upload(like: &CubeTensor, values: &[f32]) -> CubeTensor {
    if values.len() > KEPT_NUMBERS {
        return copied(like, values);
    }
    let is_same = |kept: &Constants| {
        let bits = || values.iter().map(|value| value.to_bits());
        let there = (&kept.tensor.device, kept.tensor.dtype) == (&like.device, like.dtype);
        // Another stream would not always wait until they have arrived.
        let in_order = kept.tensor.handle.stream == StreamId::current();
        there && in_order && kept.bits.len() == values.len() && bits().eq(kept.bits.iter().copied())
    };
    CONSTANTS.with_borrow_mut(|all| {
        let found = all.iter().position(is_same).and_then(|at| all.remove(at));
        let constants = found.unwrap_or_else(|| {
            let bits = values.iter().map(|value| value.to_bits()).collect();
            Constants { bits, tensor: copied(like, values) }
        });
        let tensor = constants.tensor.clone();
        all.push_back(constants);
        if all.len() > KEPT {
            all.pop_front();
        }
        tensor
    })
}

fn copied(like: &CubeTensor, values: &[f32]) -> CubeTensor {
    let handle = like.client.create_from_slice(f32::as_bytes(values));
    let (client, device) = (like.client.clone(), like.device.clone());
    CubeTensor::new_contiguous(client, device, [values.len()].into(), handle, like.dtype)
}

/// The elements of a contiguous tensor as a kernel argument.
///
/// # Panics
/// On a device of OpenGL, where kernels compute wrong values.
pub fn buffer(tensor: &CubeTensor) -> BufferArg {
    #[cfg(feature = "wgpu")]
    crate::adapters::assert_counts(&tensor.device);
    tensor.clone().into_buffer_arg()
}

/// The width of indices that reaches every element of all the tensors.
pub fn address(tensors: &[&CubeTensor]) -> AddressType {
    tensors.iter().map(|t| t.required_address_type()).max().unwrap_or_default()
}

/// [`address`] for kernels that read around anywhere: 64 bits where the device has them. A compiler cannot know
/// whether the sum of two indices of 32 bits overflows, and computes every address anew; those of 64 bits
/// share what they have in common, and a constant distance costs nothing.
pub fn wide_address(tensors: &[&CubeTensor]) -> AddressType {
    match tensors[0].client.properties().supports_address(AddressType::U64) {
        true => AddressType::U64,
        false => address(tensors),
    }
}

/// Asserts single precision, the only type of most kernels.
///
/// # Panics
/// Otherwise, naming the op and the type.
pub fn assert_f32(op: &str, tensors: &[&CubeTensor]) {
    for tensor in tensors {
        let dtype = tensor.dtype;
        assert!(dtype == DType::F32, "{op}: the GPU kernels take f32 tensors, got {dtype:?}");
    }
}

/// Units of a cube in the reductions; [`CUBE`] and the tiles of the ops have as many.
pub const UNITS: u32 = 256;

/// The sum of `value` over the [`UNITS`] units of a cube, in a fixed order; every unit gets it.
#[cube]
pub fn sum_over_cube(value: f32) -> f32 {
    let mut tree = Shared::<[f32]>::new_slice(256usize);
    sum_in_tree(&mut tree, value)
}

/// [`sum_over_cube()`] in shared memory of the caller, [`UNITS`] values, for kernels with many sums.
#[cube]
pub fn sum_in_tree(tree: &mut Shared<[f32]>, value: f32) -> f32 {
    sync_cube();
    tree[UNIT_POS as usize] = value;
    sync_cube();
    let mut stride = 128u32;
    while stride > 0 {
        if UNIT_POS < stride {
            let other = tree[(UNIT_POS + stride) as usize];
            tree[UNIT_POS as usize] += other;
        }
        sync_cube();
        stride /= 2;
    }
    tree[0]
}

/// Vectors that one cube goes through sooner than a second launch begins.
const FOR_ONE_CUBE: usize = 16 * UNITS as usize;

/// How many cubes share `vectors`, a stripe each: as many as give every unit one, and `most` at most. Few vectors are
/// those of one cube, so that nothing has to be joined by a second launch.
pub fn stripes(vectors: usize, most: usize) -> usize {
    match vectors {
        0..=FOR_ONE_CUBE => 1,
        _ => vectors.div_ceil(UNITS as usize).min(most),
    }
}

/// How many values of a unit [`sums_over_cube()`] sums at once.
pub const SUMS: u32 = 8;

/// The sums over a cube's [`UNITS`] units of `values[first..first + SUMS]`, of which those from `end` on count as zero:
/// unit `i` gets the sum of `values[first + i]`, units from [`SUMS`] on get zero. Three barriers in all, where
/// [`sum_in_tree()`] has ten for every sum. `room` has 9 x 256 numbers.
#[cube]
pub fn sums_over_cube(
    room: &mut Shared<[f32]>,
    values: &Array<f32>,
    #[comptime] first: u32,
    #[comptime] end: u32,
) -> f32 {
    sync_cube();
    #[unroll]
    for i in 0..SUMS {
        let mut value = 0.0f32;
        if comptime!(first + i < end) {
            value = values[comptime!((first + i) as usize)];
        }
        room[(i * UNITS + UNIT_POS) as usize] = value;
    }
    sync_cube();
    let (i, lane) = (UNIT_POS / 32, UNIT_POS % 32);
    let mut part = 0.0f32;
    #[unroll]
    for j in 0..8u32 {
        part += room[(i * UNITS + j * 32 + lane) as usize];
    }
    let parts = SUMS * UNITS;
    room[(parts + lane * SUMS + i) as usize] = part;
    sync_cube();
    let mut sum = 0.0f32;
    if UNIT_POS < SUMS {
        for lane in 0..32u32 {
            sum += room[(parts + lane * SUMS + UNIT_POS) as usize];
        }
    }
    sum
}

/// The largest of the `value`s of a cube's [`UNITS`] units; every unit gets it.
#[cube]
pub fn max_over_cube(value: f32) -> f32 {
    let mut tree = Shared::<[f32]>::new_slice(256usize);
    tree[UNIT_POS as usize] = value;
    sync_cube();
    let mut stride = 128u32;
    while stride > 0 {
        if UNIT_POS < stride {
            let other = tree[(UNIT_POS + stride) as usize];
            tree[UNIT_POS as usize] = max(tree[UNIT_POS as usize], other);
        }
        sync_cube();
        stride /= 2;
    }
    tree[0]
}

/// `output[row] = scale * sum_k partials[row, k]`, one cube a row, in a fixed order.
#[cube(launch_unchecked, address_type = "dynamic")]
fn sum_rows_kernel(partials: &[f32], output: &mut [f32], rows: usize, columns: u32, scale: f32) {
    let row = CUBE_POS_Y as usize * CUBE_COUNT_X as usize + CUBE_POS_X as usize;
    if row >= rows {
        terminate!();
    }
    let mut sum = 0.0f32;
    // Kahan: a row may hold a million partials of mixed size.
    let mut lost = 0.0f32;
    let mut k = UNIT_POS;
    while k < columns {
        let term = partials[row * columns as usize + k as usize] - lost;
        let next = sum + term;
        lost = (next - sum) - term;
        sum = next;
        k += UNITS;
    }
    let total = sum_over_cube(sum);
    if UNIT_POS == 0 {
        output[row] = scale * total;
    }
}

/// Sums each row of `partials` `[rows, columns]` into `[rows]`, deterministically.
pub fn sum_rows(partials: &CubeTensor, rows: usize, columns: usize, scale: f32) -> CubeTensor {
    let output = empty(partials, [rows]);
    unsafe {
        sum_rows_kernel::launch_unchecked(
            &partials.client,
            lines_of_cubes(rows),
            CubeDim::new_1d(UNITS),
            address(&[partials]),
            buffer(partials),
            buffer(&output),
            rows,
            columns as u32,
            scale,
        );
    }
    output
}

/// `output[i] = sum_k partials[k][i]`; `lines` units share an element.
#[cube(launch_unchecked, address_type = "dynamic")]
fn sum_columns_kernel(
    partials: &[f32],
    output: &mut [f32],
    elements: usize,
    columns: u32,
    #[comptime] lines: u32,
) {
    let lanes = comptime!(UNITS / lines);
    let (line, lane) = (UNIT_POS / lanes, UNIT_POS % lanes);
    let at = (CUBE_POS_Y as usize * CUBE_COUNT_X as usize + CUBE_POS_X as usize)
        * comptime!(lanes as usize)
        + lane as usize;
    let mut sum = 0.0f32;
    if at < elements {
        // Kahan: hundreds of partials of mixed sign.
        let mut lost = 0.0f32;
        let mut k = line;
        while k < columns {
            let term = partials[k as usize * elements + at] - lost;
            let next = sum + term;
            lost = (next - sum) - term;
            sum = next;
            k += lines;
        }
    }
    let mut sums = Shared::<[f32]>::new_slice(256usize);
    sums[UNIT_POS as usize] = sum;
    sync_cube();
    if line == 0 && at < elements {
        #[unroll]
        for other in 1..lines {
            sum += sums[(UNIT_POS + comptime!(other * lanes)) as usize];
        }
        output[at] = sum;
    }
}

/// Elements from which a unit each is enough for [`sum_columns`].
const MANY_ELEMENTS: usize = 1 << 16;

/// Sums the columns of `partials` `[columns, ..]` into `output`, deterministically; few columns of
/// many elements, where [`sum_rows`] is for many of few.
pub fn sum_columns(partials: &CubeTensor, columns: usize, output: CubeTensor) -> CubeTensor {
    let elements = output.meta.shape().num_elements();
    let lines = if elements < MANY_ELEMENTS { 16 } else { 1 };
    let cubes = (elements * lines).div_ceil(UNITS as usize);
    unsafe {
        sum_columns_kernel::launch_unchecked(
            &partials.client,
            lines_of_cubes(cubes),
            CubeDim::new_1d(UNITS),
            address(&[partials]),
            buffer(partials),
            buffer(&output),
            elements,
            columns as u32,
            lines as u32,
        );
    }
    output
}
