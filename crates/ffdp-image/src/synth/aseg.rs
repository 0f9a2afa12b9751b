//! FreeSurfer's subcortical labels (aseg) as tissues of the phantom, for their intensities.
//!
//! Ids: `FreeSurferColorLUT.txt` of FreeSurfer. Sides do not matter here.

use super::structure::Structure::{self, *};

/// The structure whose intensities an aseg label has, `None` for ids that are not in aseg.
pub fn aseg_structure(id: i32) -> Option<Structure> {
    Some(match id {
        // White matter, corpus callosum (250..=255), fornix, optic chiasm.
        2 | 41 | 85 | 250..=255 => LeftWhiteMatter,
        3 | 42 | 19 | 20 | 55 | 56 => LeftCortex,
        // Ventricles (lateral, inferior lateral, 3rd, 4th, 5th) and choroid plexus.
        4 | 5 | 14 | 15 | 31 | 43 | 44 | 63 | 72 => LeftLateralVentricle,
        7 | 46 => LeftCerebellarWhiteMatter,
        8 | 47 => LeftCerebellarCortex,
        9 | 10 | 48 | 49 => LeftThalamus,
        // Caudate and accumbens.
        11 | 50 | 26 | 58 => LeftCaudate,
        12 | 51 => LeftPutamen,
        13 | 52 => LeftPallidum,
        // Brainstem and ventral diencephalon.
        16 | 28 | 60 => Brainstem,
        17 | 53 => LeftHippocampus,
        18 | 54 => LeftAmygdala,
        // Fluid, and vessels.
        24 | 30 | 62 => CerebrospinalFluid,
        // White matter hypointensities look like grey matter.
        77..=79 => LeftCaudate,
        // Hypointensities elsewhere.
        80..=82 => LeftHippocampus,
        _ => return None,
    })
}
