//! Voxels that are not finite.

use std::ops::Range;

use rayon::prelude::*;

use super::NonFiniteVoxels;
use ffdp_image::error::Result;
use ffdp_image::image::{Geometry, MovedLabels, OneOf, Planes, check_finite};

/// A volume whose NaN and infinite voxels are treated as asked, where they are read.
pub(super) struct Finite<'a> {
    planes: OneOf<'a>,
    name: String,
    policy: NonFiniteVoxels,
    /// Planes that were read before.
    known: Vec<bool>,
    /// Voxels that were set to 0.
    pub replaced: usize,
    values: Vec<f32>,
}

impl<'a> Finite<'a> {
    pub fn new(planes: OneOf<'a>, name: String, policy: NonFiniteVoxels) -> Self {
        let known = vec![false; planes.geometry().size[2]];
        Self { planes, name, policy, known, replaced: 0, values: Vec::new() }
    }

    /// Says what was replaced.
    pub fn warning(self) -> Option<String> {
        let (name, count) = (self.name, self.replaced);
        (count > 0).then(|| format!("{name}: {count} NaN or infinite voxels were set to 0"))
    }
}

impl Planes for Finite<'_> {
    fn geometry(&self) -> &Geometry {
        self.planes.geometry()
    }

    fn read(&mut self, z: Range<usize>) -> Result<&[f32]> {
        /// Values that a core looks at at a time.
        const PART: usize = 1 << 16;
        let finite = |part: &[f32]| part.iter().all(|value| value.is_finite());
        if self.planes.read(z.clone())?.par_chunks(PART).all(finite) {
            return self.planes.read(z);
        }
        if self.policy == NonFiniteVoxels::Refused {
            check_finite(&self.name, &mut self.planes)?;
        }
        self.values = self.planes.read(z.clone())?.to_vec();
        let plane = self.values.len() / z.len();
        for (values, z) in self.values.chunks_mut(plane).zip(z) {
            let odd = values.iter_mut().filter(|value| !value.is_finite());
            let count = odd.map(|value| *value = 0.0).count();
            self.replaced += if self.known[z] { 0 } else { count };
            self.known[z] = true;
        }
        Ok(&self.values)
    }

    fn labels(&self) -> &MovedLabels {
        self.planes.labels()
    }
}
