//! Adam of a sharded gradient.

use super::*;
use ffdp_burn::ops::{self, AdamOptions, MomentStorage, Moments};

#[test]
fn steps_are_those_of_the_whole() {
    for (layout, seed) in layouts(10).iter().zip(0..) {
        for floor in [0.0, 0.1] {
            for (dtype, tolerance) in PRECISIONS {
                let options = AdamOptions { gradient_floor: floor, ..AdamOptions::default() };
                let (mut parts, mut all) = (ShardedMoments::default(), Moments::default());
                for step in 0..3 {
                    // Much weaker at one end, as where an image is empty.
                    let gradient = random(3, layout.size(), [-1.0, 1.0], dtype, 10 * seed + step);
                    let ramp = random(1, layout.size(), [0.0, 1.0], dtype, seed).powf_scalar(9.0);
                    let gradient = gradient * ramp;
                    let sharded = adam(split(&gradient, layout), &mut parts, &options);
                    let serial = ops::adam(gradient, &mut all, &options);
                    let label = format!("{layout:?} floor {floor} {dtype:?} step {step}");
                    let [actual, expected] =
                        [whole(&sharded.direction), serial.direction].map(to_f64);
                    assert_close(&label, &actual, &expected, tolerance);
                    let expected = to_f64(serial.longest);
                    for longest in sharded.longest {
                        assert_close(&label, &to_f64(longest), &expected, tolerance);
                    }
                }
            }
        }
    }
}

#[test]
fn a_mesh_of_one_takes_the_serial_step() {
    let layout = Layout::balanced([7, 6, 5], Axis::Z, 1).unwrap();
    let storage = MomentStorage::Bf16;
    let options = AdamOptions { gradient_floor: 0.1, storage, ..AdamOptions::default() };
    let (mut parts, mut all) = (ShardedMoments::default(), Moments::default());
    for seed in 0..3 {
        let gradient = random(3, layout.size(), [-1.0, 1.0], DType::F32, seed);
        let sharded = adam(split(&gradient, &layout), &mut parts, &options);
        let serial = ops::adam(gradient, &mut all, &options);
        assert_eq!(bits(whole(&sharded.direction)), bits(serial.direction));
        assert_eq!(bits(sharded.longest[0].clone()), bits(serial.longest));
    }
}

#[test]
#[should_panic(expected = "positive second decay")]
fn a_floor_without_memory_is_refused() {
    let layout = Layout::balanced([7, 6, 5], Axis::Z, 2).unwrap();
    let options = AdamOptions { beta: [0.9, 0.0], gradient_floor: 0.1, ..AdamOptions::default() };
    let gradient = random(3, layout.size(), [-1.0, 1.0], DType::F32, 1);
    adam(split(&gradient, &layout), &mut ShardedMoments::default(), &options);
}
