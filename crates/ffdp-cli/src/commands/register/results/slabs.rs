//! A result that is never whole in memory: what is measured leaves run of planes by run of planes, by all processes at the
//! same time.

use std::path::Path;
use std::sync::Mutex;

use ffdp_image::Result;
use ffdp_image::image::Planes;
use ffdp_image::metrics::{
    FieldPlanes, JacobianReport, Overlap, OverlapCounts, SimilarityMeasures,
};
use ffdp_register::Registration;
use ffdp_register::result::MovingPlanes;

use crate::commands::register::inputs::{Inputs, Labels};
use crate::in_parallel::lock;
use crate::result::{ResultObserver, ResultPlanes, ResultRequest, When};

/// A result with the images that are read for it.
pub struct SlabPlanes<'a> {
    /// Where the run began.
    pub placed: Registration,
    pub found: &'a Registration,
    pub inputs: Mutex<&'a mut Inputs>,
    pub request: ResultRequest,
}

impl ResultPlanes for SlabPlanes<'_> {
    const IN_PARALLEL: bool = false;

    fn similarity(&self, observer: &dyn ResultObserver) -> Result<[SimilarityMeasures; 2]> {
        let mut inputs = lock(&self.inputs);
        let Inputs { fixed, moving, .. } = &mut **inputs;
        let (fixed, moving) = (fixed.image.planes(), moving.image.planes());
        let beyond = self.request.beyond(moving)?;
        let mut of = |when, result: &Registration| {
            result.similarity(fixed, MovingPlanes { planes: &mut *moving, beyond }, |shown| {
                observer.image(when, shown)
            })
        };
        Ok([of(When::Before, &self.placed)?, of(When::After, self.found)?])
    }

    fn overlap(&self, observer: &dyn ResultObserver) -> Result<Option<Overlap>> {
        let mut inputs = lock(&self.inputs);
        let Inputs { fixed, moving, label_ids, .. } = &mut **inputs;
        // Each process has its part in what is shown.
        let Some((moving, ids)) = moving.labels.as_mut().and_then(Labels::planes) else {
            return Ok(None);
        };
        let mut fixed = fixed.labels.as_mut().and_then(Labels::planes).map(|(fixed, _)| fixed);
        let compares = fixed.is_some();
        let mut of = |when, result: &Registration| {
            let fixed = fixed.as_mut().map(|fixed| &mut **fixed as &mut dyn Planes);
            result.label_overlap(moving, fixed, |shown| observer.labels(when, shown))
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
