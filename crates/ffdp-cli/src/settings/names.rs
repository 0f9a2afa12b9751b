//! The words for transforms and metrics, and those of ANTs and elastix for them.

use ffdp_register::{Similarity, Stage};

use crate::words::{Other, Words};

/// What a registration may end with: all methods that work on levels.
pub(super) fn transforms() -> Words {
    let ends =
        Stage::built_in().into_iter().filter(|(stage, _)| !matches!(stage, Stage::Moments(_)));
    Words::new(ends.map(|(stage, about)| (stage.name(), about)), &OTHER_TRANSFORMS)
}

/// What ANTs and elastix call transforms, in lower case.
const OTHER_TRANSFORMS: [Other; 14] = [
    Other::same("bspline", "ffd"),
    Other::same("b-spline", "ffd"),
    Other::same("bsplinetransform", "ffd"),
    Other::same("eulertransform", "rigid"),
    Other::same("similaritytransform", "similarity"),
    Other::same("affinetransform", "affine"),
    Other::near("translation", "rigid"),
    Other::near("translationtransform", "rigid"),
    Other::near("bsplinesyn", "syn"),
    Other::near("exponential", "svf"),
    Other::near("timevaryingvelocityfield", "svf"),
    Other::near("gaussiandisplacementfield", "greedy"),
    Other::near("demons", "greedy"),
    Other::near("claire", "gnk"),
];

/// What may be maximised.
pub(super) fn metrics() -> Words {
    let all = Similarity::built_in().map(|(similarity, about)| (similarity.name(), about));
    Words::new(all, &OTHER_METRICS)
}

/// What a discrete search may compare.
pub(super) fn features() -> Words {
    let all =
        Similarity::built_in().into_iter().filter(|(one, _)| one.feature_channels(1).is_some());
    Words::new(all.map(|(similarity, about)| (similarity.name(), about)), &OTHER_FEATURES)
}

const OTHER_FEATURES: [Other; 2] =
    [Other::same("intensity", "mse"), Other::same("mind-ssc", "mind")];

/// What ANTs and elastix call measures, in lower case. ANTs' CC is that of a window.
const OTHER_METRICS: [Other; 12] = [
    Other::same("cc", "lncc"),
    Other::same("meansquares", "mse"),
    Other::same("advancedmeansquares", "mse"),
    Other::same("ssd", "mse"),
    Other::same("mattes", "mi"),
    Other::same("advancedmattesmutualinformation", "mi"),
    Other::same("normalizedmutualinformation", "nmi"),
    Other::near("ncc", "lncc"),
    Other::near("gc", "lncc"),
    Other::near("globalcorrelation", "lncc"),
    Other::near("advancednormalizedcorrelation", "lncc"),
    Other::near("demons", "mse"),
];

/// The word here for one of ANTs or elastix that a file has in its place.
pub(super) fn word_of_others(message: &str) -> Option<&'static str> {
    let unknown = message.split_once("unknown variant `")?.1.split('`').next()?.to_lowercase();
    OTHER_TRANSFORMS.iter().chain(&OTHER_METRICS).find_map(|other| other.meaning(&unknown))
}

/// Whether the built-in stage with this name moves the image as a whole.
pub(super) fn is_linear(name: &str) -> bool {
    Stage::built_in().iter().any(|(stage, _)| stage.name() == name && stage.is_linear())
}
