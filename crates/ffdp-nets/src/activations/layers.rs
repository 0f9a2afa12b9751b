//! Layers on parts: each equals the layer on the whole, to the rounding of sums in another order.
//!
//! With one place each is the serial layer on that tensor.

use std::ops::Range;

use burn::Tensor;

use ffdp_parallel::{Cuts, DeviceMesh, parts::narrow};

use super::{PlaneRun, Slabs};
use crate::ops::{
    InstanceNormOptions, Precision, conv3d_between, conv3d_with, instance_norm,
    instance_norm_in_parts, mean_pool,
};

impl Slabs {
    /// [`conv3d_with`] of an odd kernel with the padding that keeps the size; `weight(place)` are the
    /// weights on the place's device. The planes around a part are joined to it while they are read, and
    /// not kept. Differentiable.
    ///
    /// # Panics
    /// As the serial operation.
    pub fn conv3d(&self, weight: impl Fn(usize) -> Tensor<5>, precision: Precision) -> Self {
        if self.cuts.places() == 1 {
            return self.clone().map(|k, x| {
                let weight = weight(k);
                let padding = [weight.dims()[2] / 2; 3];
                conv3d_with(x, weight, padding, precision)
            });
        }
        let extent = self.cuts.extent();
        let weights: Vec<Option<Tensor<5>>> = self
            .parts
            .iter()
            .enumerate()
            .map(|(k, part)| part.as_ref().map(|_| weight(k)))
            .collect();
        let weight = |k: usize| weights[k].clone().expect("one for each that has planes");
        let windows = self.fetch(&self.cuts, |k, planes| {
            let reach = weight(k).dims()[2] / 2;
            let below = planes.start.saturating_sub(reach)..planes.start;
            let above = planes.end..(planes.end + reach).min(extent);
            let [less, more] = [&below, &above].map(|there| PlaneRun::Zeros(reach - there.len()));
            let [below, own, above] = [below, planes.clone(), above].map(PlaneRun::Planes);
            [vec![less, below], vec![own], vec![above, more]]
        });
        self.made_of(&self.cuts, windows, |k, _, [low, own, high]| {
            conv3d_between(own, [low, high], weight(k), self.dim, precision)
        })
    }

    /// [`instance_norm()`] with the moments of the whole. Differentiable.
    ///
    /// # Panics
    /// As the serial operation.
    pub fn instance_norm(self, options: &InstanceNormOptions) -> Self {
        let Self { parts, cuts, dim, mesh } = self;
        let parts = parts.into_iter().flatten();
        let mut parts = match cuts.places() {
            1 => parts.map(|x| instance_norm(x, options)).collect(),
            _ => instance_norm_in_parts(parts.collect(), options, |numbers| {
                of_all(numbers, &cuts, &mesh)
            }),
        }
        .into_iter();
        let next = |_, _| parts.next().expect("one for each that has planes");
        Self::build(&cuts, &mesh, dim, next)
    }

    /// [`mean_pool()`], the result cut as `cuts`. Differentiable.
    ///
    /// # Panics
    /// If the cuts are not those of half the planes, rounded up.
    pub fn mean_pool(&self, cuts: &Cuts) -> Self {
        let (extent, half) = (self.cuts.extent(), cuts.extent());
        assert!(half == extent.div_ceil(2), "mean_pool: cuts of {half} planes for {extent}");
        // y(i) looks at 2 i - 1..=2 i + 1. A part begins with an even plane, as the whole does.
        let looks = |planes: &Range<usize>| {
            (2 * planes.start).saturating_sub(2)..(2 * planes.end).min(extent)
        };
        self.through(
            cuts,
            |planes| vec![PlaneRun::Planes(looks(planes))],
            |_, planes, window| {
                let first = planes.start - looks(&planes).start / 2;
                narrow(mean_pool(window), self.dim, first..first + planes.len())
            },
        )
    }

    /// Two planes to one: `layer(place, planes 2 a..2 b)` for the planes `a..b` of `cuts`; the last plane may
    /// be missing. Differentiable.
    ///
    /// # Panics
    /// If the layer does not halve the planes, rounding up.
    pub fn in_pairs(
        &self,
        cuts: &Cuts,
        mut layer: impl FnMut(usize, Tensor<5>) -> Tensor<5>,
    ) -> Self {
        let extent = self.cuts.extent();
        let pairs = |planes: &Range<usize>| 2 * planes.start..(2 * planes.end).min(extent);
        self.through(
            cuts,
            |planes| vec![PlaneRun::Planes(pairs(planes))],
            |k, _, pairs| layer(k, pairs),
        )
    }

    /// `layer(place, planes, runs of this volume)` for the planes of `cuts`, which `runs(planes)` are looked at
    /// for. All that travels does so before the first place computes. Differentiable.
    ///
    /// # Panics
    /// If the layer gives another number of planes.
    pub fn through(
        &self,
        cuts: &Cuts,
        runs: impl Fn(&Range<usize>) -> Vec<PlaneRun>,
        layer: impl FnMut(usize, Range<usize>, Tensor<5>) -> Tensor<5>,
    ) -> Self {
        let fetched = self.fetch_one(cuts, |_, planes| runs(planes));
        self.made_of(cuts, fetched, layer)
    }

    /// `layer(place, planes, what it has fetched)` for the planes of `cuts`.
    ///
    /// # Panics
    /// If the layer gives another number of planes.
    pub fn made_of<T>(
        &self,
        cuts: &Cuts,
        fetched: Vec<T>,
        mut layer: impl FnMut(usize, Range<usize>, T) -> Tensor<5>,
    ) -> Self {
        let mut fetched = fetched.into_iter();
        Self::build(cuts, &self.mesh, self.dim, |k, planes| {
            layer(k, planes, fetched.next().expect("one for each that has planes"))
        })
    }

    /// The planes of a grid of half the resolution that linear interpolation by two looks at for `planes`,
    /// all of which are then right: `y(2 i)` and `y(2 i + 1)` look at `i` and at the plane before or behind.
    pub fn halved(planes: &Range<usize>, extent: usize) -> Range<usize> {
        (planes.start.div_ceil(2)).saturating_sub(1)..(planes.end / 2 + 1).min(extent)
    }

    /// Doubles the resolution by `double`, which looks one plane to either side at most; the result cut as
    /// `cuts`. Differentiable.
    ///
    /// # Panics
    /// If the cuts are not those of twice the planes.
    pub fn doubled(&self, cuts: &Cuts, mut double: impl FnMut(Tensor<5>) -> Tensor<5>) -> Self {
        let (extent, twice) = (self.cuts.extent(), cuts.extent());
        assert!(twice == 2 * extent, "upsample: cuts of {twice} planes for {extent} doubled");
        let looks = |planes: &Range<usize>| Self::halved(planes, extent);
        self.through(
            cuts,
            |planes| vec![PlaneRun::Planes(looks(planes))],
            |_, planes, window| {
                let first = planes.start - 2 * looks(&planes).start;
                narrow(double(window), self.dim, first..first + planes.len())
            },
        )
    }

    /// `planes` of the whole and one more on either side where there are any: what a kernel of 3 looks at.
    pub fn widened(planes: &Range<usize>, extent: usize) -> Range<usize> {
        planes.start.saturating_sub(1)..(planes.end + 1).min(extent)
    }
}

/// `[1, a, b]` of every place that has planes of `cuts` to `[K, a, b]` of all of them, at every such place.
/// Differentiable.
fn of_all(numbers: Vec<Tensor<3>>, cuts: &Cuts, mesh: &DeviceMesh) -> Vec<Tensor<3>> {
    let all = numbers.len();
    let before = |k: usize| (0..k).filter(|place| !cuts.planes(*place).is_empty()).count();
    let cuts = Cuts::from_ends((0..=cuts.places()).map(before).collect());
    let mut numbers = numbers.into_iter().map(|numbers| numbers.unsqueeze_dims::<5>(&[1, 2]));
    let next = |_, _| numbers.next().expect("one for each that has planes");
    let volume = Slabs::build(&cuts, mesh, 0, next);
    let fetched = volume.fetch_one(&cuts, |_, _| vec![PlaneRun::Planes(0..all)]);
    fetched.into_iter().map(|numbers| numbers.squeeze_dims(&[1, 2])).collect()
}
