//! Volumes in periodic boxes, in shards and on GPUs, against the definition.

use super::*;
use ffdp_kit::testing::gpu_devices;

const VOXEL: [f64; 3] = [1.0, 1.5, 2.0];
const GAP: usize = 3;

/// Voxel `k` of a box of `size` voxels around a volume of `n`: which of its voxels weigh how much.
fn weights(k: usize, n: usize, size: usize, what: Gap) -> Vec<(usize, f64)> {
    let (gap, first) = (size - n, (size - n) / 2);
    let t = match k {
        k if k < first => gap - first + k,
        k if k < first + n => return vec![(k - first, 1.0)],
        k => k - first - n,
    };
    let t = (t + 1) as f64 / (gap + 1) as f64;
    let s = t * t * (3.0 - 2.0 * t);
    match what {
        Gap::Empty => Vec::new(),
        Gap::Blended => vec![(n - 1, 1.0 - s), (0, s)],
    }
}

/// A volume in a box, voxel by voxel.
fn in_box(volume: &[f64], [d, h, w]: [usize; 3], size: [usize; 3], what: Gap) -> Vec<f64> {
    let mut values = Vec::new();
    for z in 0..size[0] {
        for y in 0..size[1] {
            for x in 0..size[2] {
                let mut sum = 0.0;
                for (i, a) in weights(z, d, size[0], what) {
                    for (j, b) in weights(y, h, size[1], what) {
                        for (k, c) in weights(x, w, size[2], what) {
                            sum += a * b * c * volume[(i * h + j) * w + k];
                        }
                    }
                }
                values.push(sum);
            }
        }
    }
    values
}

fn check(label: &str, volume: &Sharded, mesh: &DeviceMesh, tolerance: f64) {
    let layout = volume.layout();
    let padded = PaddedGrid::new(layout, mesh, &Holders::ALONE, VOXEL, GAP).unwrap();
    let (inside, size) = (to_f64(whole(volume)), padded.grid().size());
    for what in [Gap::Blended, Gap::Empty] {
        let around = padded.padded(volume, what).unwrap();
        let expected: Vec<f64> = inside
            .chunks(layout.size().iter().product())
            .flat_map(|volume| in_box(volume, layout.size(), size, what))
            .collect();
        assert_close(&format!("{label} {what:?}"), &to_f64(whole(&around)), &expected, tolerance);
        // What lies inside is the volume to the bit.
        assert_eq!(to_f64(whole(&padded.cropped(&around))), inside, "{label} {what:?}");
    }
}

#[test]
fn borders_blend_across_the_gap_or_end() {
    for layout in layouts(33) {
        for (dtype, tolerance) in PRECISIONS {
            let x = random(1, layout.size(), [-1.0, 1.0], dtype, 100);
            check(&format!("{layout:?}"), &split(&x, &layout), &mesh(&layout), tolerance);
        }
    }
}

#[test]
fn gpus_pad_as_it_is_defined() {
    for (name, device) in gpu_devices() {
        // Rows of all remainders by four, and a plane.
        for size in [[9, 13, 11], [8, 6, 20], [5, 7, 30], [6, 5, 17], [1, 30, 27]] {
            let layout = Layout::balanced(size, Axis::Z, 1).unwrap();
            let mesh = DeviceMesh::new(std::slice::from_ref(&device), 1).unwrap();
            let x = random(1, size, [-1.0, 1.0], DType::F32, 101).to_device(&device);
            let volume = Sharded::new(vec![x], layout);
            check(&format!("{name} {size:?}"), &volume, &mesh, F32_ROUNDING);
        }
    }
}
