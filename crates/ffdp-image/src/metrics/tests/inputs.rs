//! The inputs of `scripts/golden/metrics.py`, bit by bit.

use crate::image::{Geometry, LabelMap};

/// Numbers of 24 bits.
pub struct Lcg(pub u32);

impl Lcg {
    pub fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0 >> 8
    }
}

pub fn grid(size: [usize; 3], spacing: [f64; 3]) -> Geometry {
    Geometry::new(size, spacing).expect("valid")
}

/// Labels 0..3, every voxel on its own.
pub fn noise_labels(geometry: Geometry, seed: u32) -> LabelMap {
    let mut draw = Lcg(seed);
    let data = (0..geometry.len()).map(|_| (draw.next() >> 22) as i32).collect();
    LabelMap::new(data, geometry).expect("one label per voxel")
}

/// Solids, plates, single voxels, some along the border.
pub fn shape_labels(geometry: Geometry, s: i64) -> LabelMap {
    let last = geometry.size.map(|n| n as i64 - 1);
    let label = |offset: usize| {
        let [x, y, z] = geometry.index_of(offset).map(|i| i as i64);
        let square = |v: i64| v * v;
        let ellipsoid =
            square(x - 11 - 2 * s) * 2 + square(y - 9 - s) * 3 + square(z - 8 + s) * 4 < 150;
        let corners = [[last[0], 0, 0], [0, last[1], last[2]], [last[0], 0, last[2]], [0, 0, 0]];
        let mut label = 0;
        for (holds, id) in [
            (ellipsoid, 1),
            (x < 3 + s, 2),
            (x == 20 && y == 3 + 4 * s && z == 5, 3),
            (x > 19 && y > 14 + s && z > 13, 4),
            (x > 8 && x < 14 && y == 8 + s && (z - 8).abs() < 3, 5),
            (x == 17 && y == 17 && z == 2, 6 + s as i32),
        ] {
            label = if holds { id } else { label };
        }
        corners.iter().position(|&corner| corner == [x, y, z]).map_or(label, |k| 8 + k as i32)
    };
    let data = (0..geometry.len()).map(label).collect();
    LabelMap::new(data, geometry).expect("one label per voxel")
}

/// `[3, D, H, W]` in -amplitude..amplitude.
pub fn field(size: [usize; 3], seed: u32, amplitude: f32) -> Vec<f32> {
    let mut draw = Lcg(seed);
    let count = 3 * size.iter().product::<usize>();
    let scaled = |v: u32| (v as f32 - 8_388_608.0) / 8_388_608.0 * amplitude;
    (0..count).map(|_| scaled(draw.next())).collect()
}

/// `[3, D, H, W]` in sixteenths times `amplitude`: a triangle wave along a diagonal.
pub fn smooth_field(size: [usize; 3], amplitude: f32) -> Vec<f32> {
    let [nx, ny, nz] = size;
    let wave = |c: usize, x: usize, y: usize, z: usize| {
        let phase = (x * (1 + c) + 2 * y + 3 * z + 5 * c) % 32;
        ((phase as f32 - 16.0).abs() - 8.0) / 16.0 * amplitude
    };
    let mut values = Vec::with_capacity(3 * nx * ny * nz);
    for c in 0..3 {
        for z in 0..nz {
            for y in 0..ny {
                values.extend((0..nx).map(|x| wave(c, x, y, z)));
            }
        }
    }
    values
}

/// Two related images in 0..1.
pub fn images(size: [usize; 3]) -> [Vec<f32>; 2] {
    let (mut a, mut b) = (Lcg(11), Lcg(12));
    let pairs: Vec<[u32; 2]> =
        (0..size.iter().product()).map(|_| [a.next() >> 16, b.next() >> 16]).collect();
    let fixed = pairs.iter().map(|&[a, _]| a as f32 / 256.0).collect();
    [fixed, pairs.iter().map(|&[a, b]| (256 - a + b) as f32 / 512.0).collect()]
}

/// Continuous voxel indices in quarters, and others an eighth of the way to random ones.
pub fn landmarks(size: [usize; 3], count: usize, seed: u32) -> [Vec<[f64; 3]>; 2] {
    let draw = |seed: u32| -> Vec<[f64; 3]> {
        let mut draw = Lcg(seed);
        let mut coordinate = |n: usize| f64::from(draw.next() % (4 * (n as u32 - 1) + 1)) / 4.0;
        (0..count).map(|_| size.map(&mut coordinate)).collect()
    };
    let (fixed, far) = (draw(seed), draw(seed + 1));
    let toward = |(p, q): (&[f64; 3], &[f64; 3])| [0, 1, 2].map(|i| p[i] + (q[i] - p[i]) / 8.0);
    let moving = fixed.iter().zip(&far).map(toward).collect();
    [fixed, moving]
}
