//! The labels of the phantom.

/// A labelled structure of the phantom; the discriminant is its label id (0 is background).
///
/// Left is `x < 0` of RAS+ space. The ids are consecutive, so that a label map is one-hot encoded
/// with [`Structure::COUNT`] channels plus background.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)] // the variants say what they are
pub enum Structure {
    LeftWhiteMatter = 1,
    RightWhiteMatter,
    LeftCortex,
    RightCortex,
    LeftLateralVentricle,
    RightLateralVentricle,
    LeftThalamus,
    RightThalamus,
    LeftCaudate,
    RightCaudate,
    LeftPutamen,
    RightPutamen,
    LeftPallidum,
    RightPallidum,
    LeftHippocampus,
    RightHippocampus,
    LeftAmygdala,
    RightAmygdala,
    LeftCerebellarCortex,
    RightCerebellarCortex,
    LeftCerebellarWhiteMatter,
    RightCerebellarWhiteMatter,
    Brainstem,
    ThirdVentricle,
    CerebrospinalFluid,
}

use Structure::*;

impl Structure {
    /// Every structure, ordered by id.
    pub const ALL: [Structure; 25] = [
        LeftWhiteMatter,
        RightWhiteMatter,
        LeftCortex,
        RightCortex,
        LeftLateralVentricle,
        RightLateralVentricle,
        LeftThalamus,
        RightThalamus,
        LeftCaudate,
        RightCaudate,
        LeftPutamen,
        RightPutamen,
        LeftPallidum,
        RightPallidum,
        LeftHippocampus,
        RightHippocampus,
        LeftAmygdala,
        RightAmygdala,
        LeftCerebellarCortex,
        RightCerebellarCortex,
        LeftCerebellarWhiteMatter,
        RightCerebellarWhiteMatter,
        Brainstem,
        ThirdVentricle,
        CerebrospinalFluid,
    ];

    /// Number of structures, background not counted.
    pub const COUNT: usize = Self::ALL.len();

    /// The label id, from 1.
    pub fn id(self) -> i32 {
        self as u8 as i32
    }

    /// The structure of a label id; `None` for background and unknown ids.
    pub fn from_id(id: i32) -> Option<Self> {
        usize::try_from(id).ok()?.checked_sub(1).and_then(|index| Self::ALL.get(index)).copied()
    }

    /// Readable name, for tables and legends.
    pub fn name(self) -> &'static str {
        match self {
            LeftWhiteMatter => "left white matter",
            RightWhiteMatter => "right white matter",
            LeftCortex => "left cortex",
            RightCortex => "right cortex",
            LeftLateralVentricle => "left lateral ventricle",
            RightLateralVentricle => "right lateral ventricle",
            LeftThalamus => "left thalamus",
            RightThalamus => "right thalamus",
            LeftCaudate => "left caudate",
            RightCaudate => "right caudate",
            LeftPutamen => "left putamen",
            RightPutamen => "right putamen",
            LeftPallidum => "left pallidum",
            RightPallidum => "right pallidum",
            LeftHippocampus => "left hippocampus",
            RightHippocampus => "right hippocampus",
            LeftAmygdala => "left amygdala",
            RightAmygdala => "right amygdala",
            LeftCerebellarCortex => "left cerebellar cortex",
            RightCerebellarCortex => "right cerebellar cortex",
            LeftCerebellarWhiteMatter => "left cerebellar white matter",
            RightCerebellarWhiteMatter => "right cerebellar white matter",
            Brainstem => "brainstem",
            ThirdVentricle => "third ventricle",
            CerebrospinalFluid => "cerebrospinal fluid",
        }
    }

    /// The structure on the side of `x` (mm, right positive), given the left one of a pair.
    pub(crate) fn on_side_of(self, x: f64) -> Self {
        if x < 0.0 { self } else { Self::ALL[self as usize] }
    }
}
