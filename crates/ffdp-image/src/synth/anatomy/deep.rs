//! Ventricles, deep grey nuclei, hippocampus and amygdala.

use super::implicit::{Ellipsoid, Point, tube_distance};
use crate::synth::structure::Structure::{self, *};

/// Lateral ventricle: frontal horn, body, atrium.
const VENTRICLE: [(Point, f64); 5] = [
    ([8.0, 29.0, 5.0], 4.8),
    ([8.5, 12.0, 15.0], 6.0),
    ([10.5, -12.0, 20.5], 5.8),
    ([16.0, -30.0, 18.0], 6.2),
    ([24.0, -42.0, 10.0], 7.4),
];
const OCCIPITAL_HORN: [(Point, f64); 2] = [([24.0, -42.0, 10.0], 6.2), ([23.0, -62.0, 8.0], 3.8)];
const TEMPORAL_HORN: [(Point, f64); 3] =
    [([24.0, -42.0, 10.0], 6.2), ([35.0, -32.0, -6.0], 4.4), ([35.0, -10.0, -17.0], 3.6)];
const CAUDATE_TAIL: [(Point, f64); 4] = [
    ([13.0, 18.0, 3.0], 7.4),
    ([15.0, 8.0, 12.0], 6.6),
    ([19.5, -10.0, 20.0], 5.2),
    ([25.0, -26.0, 19.0], 4.0),
];
const HIPPOCAMPUS: [(Point, f64); 4] = [
    ([27.0, -13.0, -20.0], 7.0),
    ([28.5, -24.0, -15.0], 6.4),
    ([28.0, -34.0, -8.0], 5.6),
    ([22.0, -41.0, -1.0], 4.6),
];

/// The deep structures of one side, mirrored.
#[derive(Clone, Debug)]
pub struct DeepNuclei {
    third_ventricle: Ellipsoid,
    thalamus: Ellipsoid,
    putamen: Ellipsoid,
    pallidum: Ellipsoid,
    amygdala: Ellipsoid,
}

impl DeepNuclei {
    pub fn new() -> Self {
        Self {
            third_ventricle: Ellipsoid::new([0.0, -9.0, -1.0], [4.2, 18.0, 12.0]),
            thalamus: Ellipsoid::new([13.0, -19.0, 6.5], [9.6, 16.0, 10.5]).turned(0.0, 24.0),
            putamen: Ellipsoid::new([27.5, 2.0, 1.0], [7.0, 19.5, 13.0]).turned(0.0, 12.0),
            pallidum: Ellipsoid::new([20.5, -3.0, -1.0], [6.0, 11.5, 9.0]).turned(0.0, 20.0),
            amygdala: Ellipsoid::new([24.0, 0.0, -20.0], [9.0, 9.0, 9.0]),
        }
    }

    /// The structure at the mirrored point `m`, as the left one of its pair.
    pub fn structure(&self, m: Point) -> Option<Structure> {
        // All of it lies in this box; most of the head does not.
        let [x, y, z] = m;
        if x > 46.0 || !(-72.0..46.0).contains(&y) || !(-36.0..34.0).contains(&z) {
            return None;
        }
        if self.third_ventricle.distance(m) < 0.0 {
            return Some(ThirdVentricle);
        }
        if tube_distance(m, &CAUDATE_TAIL) < 0.0 {
            return Some(LeftCaudate);
        }
        if self.thalamus.distance(m) < 0.0 {
            return Some(LeftThalamus);
        }
        if tube_distance(m, &HIPPOCAMPUS) < 0.0 {
            return Some(LeftHippocampus);
        }
        if self.amygdala.distance(m) < 0.0 {
            return Some(LeftAmygdala);
        }
        // The septum keeps the two ventricles apart.
        let ventricle = tube_distance(m, &VENTRICLE)
            .min(tube_distance(m, &OCCIPITAL_HORN))
            .min(tube_distance(m, &TEMPORAL_HORN));
        if ventricle.max(0.8 - x) < 0.0 {
            return Some(LeftLateralVentricle);
        }
        if self.pallidum.distance(m) < 0.0 {
            return Some(LeftPallidum);
        }
        (self.putamen.distance(m) < 0.0).then_some(LeftPutamen)
    }
}
