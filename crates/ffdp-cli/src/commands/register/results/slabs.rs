//! A result that is never whole in memory: what is measured leaves run of planes by run of planes, by all processes at the
//! same time.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use ffdp_image::Result;
use ffdp_image::image::Planes;
use ffdp_image::metrics::{
    FieldPlanes, JacobianReport, Overlap, OverlapCounts, SimilarityMeasures,
};
use ffdp_register::Registration;

use crate::commands::register::inputs::{Inputs, Labels};
use crate::result::{ResultFiles, ResultPlanes, ResultRequest, When};

/// A result with the images that are read for it.
pub struct SlabPlanes<'a> {
    placed: Registration,
    found: &'a Registration,
    inputs: Mutex<&'a mut Inputs>,
    request: ResultRequest,
}

impl<'a> SlabPlanes<'a> {
    /// # Errors
    /// Those of the start.
    pub fn new(
        found: &'a Registration,
        inputs: &'a mut Inputs,
        request: ResultRequest,
    ) -> Result<Self> {
        Ok(Self { placed: found.before()?, found, inputs: Mutex::new(inputs), request })
    }
}

impl ResultPlanes for SlabPlanes<'_> {
    const IN_PARALLEL: bool = false;

    fn similarity(&self, files: &ResultFiles) -> Result<[SimilarityMeasures; 2]> {
        let mut inputs = self.inputs.lock().unwrap_or_else(PoisonError::into_inner);
        let Inputs { fixed, moving, .. } = &mut **inputs;
        let (fixed, moving) = (fixed.image.planes(), moving.image.planes());
        let beyond = self.request.beyond(moving)?;
        let mut of = |when, result: &Registration| {
            result.similarity(fixed, (&mut *moving, beyond), |shown| files.image(when, shown))
        };
        Ok([of(When::Before, &self.placed)?, of(When::After, self.found)?])
    }

    fn overlap(&self, files: &ResultFiles) -> Result<Option<Overlap>> {
        let mut inputs = self.inputs.lock().unwrap_or_else(PoisonError::into_inner);
        let Inputs { fixed, moving, label_ids, .. } = &mut **inputs;
        // Each process has its part in what is shown.
        let Some((moving, ids)) = moving.labels.as_mut().and_then(Labels::planes) else {
            return Ok(None);
        };
        let mut fixed = fixed.labels.as_mut().and_then(Labels::planes).map(|(fixed, _)| fixed);
        let compares = fixed.is_some();
        let mut of = |when, result: &Registration| {
            let fixed = fixed.as_mut().map(|fixed| &mut **fixed as &mut dyn Planes);
            result.label_overlap(moving, fixed, |shown| files.labels(when, shown))
        };
        let before = if compares { of(When::Before, &self.placed)? } else { None };
        let after = of(When::After, self.found)?;
        let scores = |counts: OverlapCounts| {
            let scores = match &*label_ids {
                Some(asked) => counts.dice_of(asked),
                None => counts.dice(),
            };
            scores.counting_lost(ids)
        };
        let scores = before.zip(after).map(|(before, after)| [scores(before), scores(after)]);
        // Surfaces are measured on whole maps.
        Ok(scores.map(|scores| Overlap::new(&scores, None)))
    }

    fn jacobian(
        &self,
        each: impl FnMut(&FieldPlanes) -> Result<()> + Send,
    ) -> Result<JacobianReport> {
        self.found.jacobian(each)
    }

    fn write_displacements(&self, [warp, inverse]: [&Path; 2]) -> Result<()> {
        let found = &self.found;
        found.warp.as_ref().map_or(Ok(()), |displacement| displacement.write(warp))?;
        let back = found.inverse.as_ref().filter(|_| self.request.inverse);
        back.map_or(Ok(()), |displacement| displacement.write(inverse))
    }
}
