//! What a template is, and the maps between it and its images.

use burn::tensor::Device;
use ffdp_burn::ops::Interpolation;
use ffdp_burn::transform::{Composite, Displacement, RoundTrip, Step};
use ffdp_image::error::Result;
use ffdp_image::image::{Geometry, LabelMap, Volume, runs};
use ffdp_image::metrics::dice;
use rayon::prelude::*;

use super::report::{Excluded, MemberReport, RoundReport};
use super::round::{Making, Round, map_file};
use super::survey::Member;
use crate::images::each_ahead;
use crate::store::Store;
use crate::vote::majority;

/// Labels that are voted on at a time, of all images.
const PIECE: usize = 1 << 22;

/// A template.
#[derive(Debug)]
pub struct TemplateResult {
    /// The sharpened average, in the mean scale of the images.
    pub template: Volume,
    /// The mean of the images.
    pub mean: Volume,
    /// Their variance.
    pub variance: Volume,
    /// The label that most images have at each voxel, where some have labels.
    pub labels: Option<LabelMap>,
    /// How the rounds went, the start first.
    pub rounds: Vec<RoundReport>,
    /// The images that take part, in the order of the list.
    pub members: Vec<MemberReport>,
    /// Those that do not.
    pub excluded: Vec<Excluded>,
    device: Device,
    grid: Geometry,
    store: Store,
    /// Where the displacement of each member is kept.
    files: Vec<String>,
}

impl TemplateResult {
    pub(super) fn of(
        making: Making,
        last: Round,
        rounds: Vec<RoundReport>,
        excluded: Vec<Excluded>,
    ) -> Result<Self> {
        let Round { template, mean, variance, maps, report } = last;
        let each = making.members.iter().zip(&maps).map(|(member, map)| {
            let report = MemberReport {
                index: member.index,
                name: member.name.clone(),
                is_used: map.is_used,
                affine: map.affine(),
                deforms: map.deforms,
                dice: None,
            };
            (report, map_file(rounds[rounds.len() - 1].round, member))
        });
        let mut each: Vec<(MemberReport, String)> = each.collect();
        each.sort_by_key(|(report, _)| report.index);
        debug_assert_eq!(report.images.len(), each.len());
        let (members, files) = each.into_iter().unzip();
        let Making { images, device, store, members: of_making, grid, .. } = making;
        let mut result = Self {
            template,
            mean,
            variance,
            labels: None,
            rounds,
            members,
            excluded,
            device,
            grid,
            store,
            files,
        };
        result.vote(images, &of_making)?;
        Ok(result)
    }

    /// The grid of the template.
    pub fn grid(&self) -> &Geometry {
        &self.grid
    }

    /// The displacement of the map from the template to a member, by its place in [`TemplateResult::members`]: it comes
    /// before the affine part. `None` where nothing deforms.
    ///
    /// # Errors
    /// Those of reading the state.
    pub fn displacement(&self, member: usize) -> Result<Option<Displacement>> {
        if !self.members[member].deforms {
            return Ok(None);
        }
        let values = self.store.values(&self.files[member], 0..3 * self.grid.len())?;
        Displacement::from_vec(values, self.grid.clone(), &self.device).map(Some)
    }

    /// The inverse of that displacement on the same grid, and its error.
    ///
    /// # Errors
    /// As [`TemplateResult::displacement`].
    pub fn inverse_displacement(&self, member: usize) -> Result<Option<(Displacement, RoundTrip)>> {
        let Some(displacement) = self.displacement(member)? else { return Ok(None) };
        let alone = |field| Composite::new(vec![Step::Displacement(field)]);
        let map = alone(displacement);
        let inverse = map.inverse()?.to_displacement(&self.grid, &self.device);
        let error = map.round_trip(&alone(inverse.clone()), &self.grid, &self.device)?;
        Ok(Some((inverse, error)))
    }

    /// The map from the template to a member.
    ///
    /// # Errors
    /// As [`TemplateResult::displacement`].
    pub fn transform(&self, member: usize) -> Result<Composite> {
        let displacement = self.displacement(member)?.map(Step::Displacement);
        let affine = Step::Affine(self.members[member].affine);
        Ok(Composite::new(displacement.into_iter().chain([affine]).collect()))
    }

    /// Removes the state from the folder that was named for it: what is asked for maps after that fails.
    ///
    /// # Errors
    /// Those of removing.
    pub fn clear_state(self) -> Result<()> {
        self.store.clear()
    }

    /// Brings the labels of all onto the template, and counts.
    fn vote(&mut self, images: &dyn crate::Images, members: &[Member]) -> Result<()> {
        let has_labels = |report: &&MemberReport| {
            report.is_used
                && members.iter().any(|member| member.index == report.index && member.has_labels)
        };
        let order: Vec<usize> =
            self.members.iter().filter(has_labels).map(|report| report.index).collect();
        if order.is_empty() {
            return Ok(());
        }
        let file = |index: usize| format!("labels/{index}");
        each_ahead(images, &order, |index, subject| {
            let find = |report: &MemberReport| report.index == index;
            let k = self.members.iter().position(find).expect("only members are read");
            let Some(labels) = subject?.labels else { return Ok(()) };
            let map = self.transform(k)?;
            let seen =
                map.warp_labels(&labels, &self.grid, Interpolation::Nearest, &self.device)?;
            self.store.write(&file(index), &(), &[bytemuck::cast_slice(&seen.data)])
        })?;
        let read = |index: usize, range| self.store.values::<i32>(&file(index), range);
        let plane = self.grid.size[0] * self.grid.size[1];
        let mut data = Vec::with_capacity(self.grid.len());
        for planes in runs(&self.grid, (PIECE / order.len()).max(plane)) {
            let range = planes.start * plane..planes.end * plane;
            let of = |&index: &usize| read(index, range.clone());
            let all = order.iter().map(of).collect::<Result<Vec<Vec<i32>>>>()?;
            let voted = |voxel: usize| {
                majority(&mut all.iter().map(|labels| labels[voxel]).collect::<Vec<i32>>())
            };
            data.par_extend((0..range.len()).into_par_iter().map(voted));
        }
        for report in self.members.iter_mut().filter(|report| order.contains(&report.index)) {
            let own = read(report.index, 0..self.grid.len())?;
            report.dice = Some(dice(&data, &own)?.mean()).filter(|dice| !dice.is_nan());
        }
        self.store.remove("labels")?;
        self.labels = Some(LabelMap::new(data, self.grid.clone())?);
        Ok(())
    }
}
