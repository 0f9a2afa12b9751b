//! Shards through the public API: a registration in virtual shards ends where the whole one does, and
//! holds no more memory than the planner says.

use std::alloc::{GlobalAlloc, Layout as Memory, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::tensor::{Device, Tensor, TensorData};
use ffdp::image::Geometry;
use ffdp::ops::{DeformOptions, LnccOptions, Measure};
use ffdp::parallel::{
    Axis, DeviceMesh, Layout, Sharded,
    deform::{ShardedImages, ShardedState, deform},
    planner::{DeformProblem, DeviceMemory, plan},
};

/// Counts the bytes in use.
struct Counter;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

unsafe impl GlobalAlloc for Counter {
    unsafe fn alloc(&self, memory: Memory) -> *mut u8 {
        let now = NOW.fetch_add(memory.size(), Ordering::Relaxed) + memory.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        unsafe { System.alloc(memory) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, memory: Memory) {
        NOW.fetch_sub(memory.size(), Ordering::Relaxed);
        unsafe { System.dealloc(pointer, memory) }
    }
}

#[global_allocator]
static COUNTER: Counter = Counter;

const SIZE: [usize; 3] = [120, 30, 32];

fn options() -> DeformOptions {
    DeformOptions::greedy(Measure::Lncc(LnccOptions::default()))
}

/// A slab of a smooth image that exists only as a formula.
fn slab(planes: std::ops::Range<usize>, shift: f32, device: &Device) -> Tensor<5> {
    let [_, h, w] = SIZE;
    let value = |z: usize, y: usize, x: usize| {
        let wave = |p: usize, length: f32| ((p as f32 + shift) / length).sin();
        0.5 + 0.5 * wave(z, 3.1) * wave(y, 4.3) * wave(x, 3.7)
    };
    let rows = planes.clone().flat_map(|z| (0..h).map(move |y| (z, y)));
    let values: Vec<f32> = rows.flat_map(|(z, y)| (0..w).map(move |x| value(z, y, x))).collect();
    Tensor::from_data(TensorData::new(values, [1, 1, planes.len(), h, w]), device)
}

/// The displacement after some iterations, and the bytes in use at the worst moment.
fn register(layout: &Layout, iterations: usize) -> (Vec<f32>, usize) {
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let device = Device::flex();
    let mesh = DeviceMesh::new(std::slice::from_ref(&device), layout.count()).unwrap();
    let image =
        |shift| Sharded::build(layout, &mesh, |planes, device| Ok(slab(planes, shift, device)));
    let geometry = Geometry::new([SIZE[2], SIZE[1], SIZE[0]], [1.0; 3]).unwrap();
    let identity = geometry.voxel_to_mm().rows().concat();
    let affine = Tensor::from_data(TensorData::new(identity, [1, 3, 4]).convert::<f32>(), &device);
    let (fixed, moving) = (image(0.0).unwrap(), image(0.8).unwrap());
    let images = ShardedImages { fixed, moving, affine, masked: [false; 2], landmarks: None };
    let displacement = Sharded::build(layout, &mesh, |planes, device| {
        Ok(Tensor::zeros([1, 3, planes.len(), SIZE[1], SIZE[2]], device))
    });
    let displacement = displacement.unwrap();
    let state = ShardedState::new(vec![displacement]);
    let (_, state) = deform(&images, state, &options(), iterations).unwrap();
    let peak = PEAK.load(Ordering::Relaxed) - before;
    (state.fields[0].gather(&device).try_into_vec_as().unwrap(), peak)
}

/// What operations of the CPU allocate within themselves, in bytes a voxel of a shard with all that its
/// gradient looks at: Adam copies the moments, smoothing copies its input, LNCC holds the planes of its
/// windows in f64.
const WITHIN_AN_OPERATION: usize = 60;

#[test]
fn virtual_shards_register_as_the_whole_within_the_planned_memory() {
    let problem = DeformProblem::plain([SIZE; 2], Axis::Z, options());
    let (whole, _) = register(&Layout::balanced(SIZE, Axis::Z, 1).unwrap(), 4);
    assert!(whole.iter().any(|u| u.abs() > 0.4), "four steps of a quarter of a voxel");
    let mut fewer = usize::MAX;
    for shards in [3, 8] {
        let layout = Layout::balanced(SIZE, Axis::Z, shards).unwrap();
        let (field, peak) = register(&layout, 4);
        let error = field.iter().zip(&whole).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
        assert!(error < 1e-3, "{shards} shards: {error} voxel");
        // So small a largest buffer that the planner finds so many shards necessary.
        let memory = DeviceMemory { bytes: u64::MAX, largest_buffer: block(shards) };
        let plan = plan(&problem, 1, memory).unwrap();
        assert_eq!(plan.layout.count(), shards);
        let voxels: usize = SIZE.iter().product();
        let [used, planned] = [peak, plan.device_bytes as usize].map(|n| n as f64 / voxels as f64);
        println!(
            "{shards} shards: {used:.1} bytes a voxel, planned {planned:.1}; {error:.1e} voxel"
        );
        let within = WITHIN_AN_OPERATION * seen(shards);
        assert!(peak <= plan.device_bytes as usize + within, "{shards} shards: {peak} bytes");
        // The model is no wild overestimate either.
        assert!(peak >= plan.device_bytes as usize / 2, "{shards} shards: {peak} bytes");
        assert!(peak < fewer, "{shards} shards: {peak} bytes, as many as with fewer");
        fewer = peak;
    }
}

/// Bytes of a field of the thickest of so many shards, with the halo of its smoothing.
fn block(shards: usize) -> u64 {
    let [d, h, w] = SIZE;
    ((d.div_ceil(shards) + 2 * 3) * h * w * 12) as u64
}

/// Voxels of the thickest of so many shards with all that its gradient looks at: windows 6 planes far, and
/// smoothing 3.
fn seen(shards: usize) -> usize {
    let [d, h, w] = SIZE;
    (d.div_ceil(shards) + 2 * 9).min(d) * h * w
}
