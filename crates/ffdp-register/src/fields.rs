//! What methods of fields have found, on the grid of a level, in as many shards as the level has.

use std::sync::Arc;

use burn::tensor::{DType, Device};

use super::checkpoint::SavedField;
use super::pair::read_through;
use super::parametric::Parametric;
use super::places::{ImagePlaces, Places};
use super::processes::Processes;
use ffdp_burn::ops::Padding;
use ffdp_burn::transform::{Displacement, map_vectors};
use ffdp_image::error::Result;
use ffdp_image::image::{Affine, Geometry, index_affine, index_linear};
use ffdp_kit::TensorPlace;
use ffdp_parallel::{Axis, DeviceMesh, Layout, Sharded, hosts::Holders, memory::put_away};

/// Vectors in voxels of a grid: a displacement, two halves of one, or a velocity.
#[derive(Clone, Debug)]
pub(super) struct Fields {
    /// `[1, 3, D, H, W]` each; of several processes, the part of this one.
    pub parts: Vec<Sharded>,
    pub geometry: Geometry,
    /// Where shards are computed.
    pub work: DeviceMesh,
    /// Who else has a part of them.
    pub holders: Holders,
    /// What the first of them is exactly, as a displacement; on all ranks.
    pub exact: Option<Arc<dyn Parametric>>,
}

impl Fields {
    /// A displacement in one piece.
    pub fn whole(displacement: Displacement) -> Self {
        let geometry = displacement.geometry().clone();
        let part = Sharded::whole(displacement.into_field());
        let (work, holders) = (part.mesh(), Holders::ALONE);
        Self { work, parts: vec![part], geometry, holders, exact: None }
    }

    /// For a checkpoint; no field is copied. The parameters of one that is known exactly come last, on a grid of their own.
    pub fn saved(&self) -> Vec<SavedField> {
        let saved = |part: &Sharded| SavedField::new(part.clone(), self.geometry.clone());
        let exact = self.exact.as_ref().and_then(|exact| exact.saved());
        self.parts.iter().map(saved).chain(exact).collect()
    }

    /// From a checkpoint, to be computed on `home`: in one piece there, or where they lie; parameters are read by
    /// `restore`. `None` of none.
    ///
    /// # Errors
    /// Those of `restore`.
    pub fn restored(
        mut saved: Vec<SavedField>,
        home: &Device,
        whole: bool,
        restore: impl Fn(&SavedField) -> Result<Arc<dyn Parametric>>,
    ) -> Result<Option<Self>> {
        let Some(first) = saved.first() else { return Ok(None) };
        let geometry = first.geometry().clone();
        let exact = saved.pop_if(|last| *last.geometry() != geometry);
        let exact = exact.map(|saved| restore(&saved)).transpose()?;
        let part = |field: SavedField| match whole {
            true => Sharded::whole(field.values.gather(home)),
            false => field.values,
        };
        let parts = saved.into_iter().map(part).collect();
        let (work, holders) = (DeviceMesh::one(home), Holders::ALONE);
        Ok(Some(Self { parts, geometry, work, holders, exact }))
    }

    /// Each of its fields in one piece, on the first device; of one process.
    pub fn gathered(&self) -> Result<Vec<Displacement>> {
        let home = self.work.device(0);
        let whole = |part: &Sharded| Displacement::new(part.gather(home), self.geometry.clone());
        self.parts.iter().map(whole).collect()
    }

    /// Other fields on the same grid, in the same shards.
    pub fn with(&self, parts: Vec<Sharded>) -> Self {
        Self { parts, exact: None, ..self.clone() }
    }

    fn layout(&self) -> &Layout {
        self.parts[0].layout()
    }

    /// The same, off the device, in parts no larger than the image of a shard of `level`. (Pinned memory comes in pages
    /// of the largest buffer so far. Of pages as large as a whole displacement the shards of the next level would fill
    /// three quarters; of pages as large as a half their images would fill the same.)
    pub fn in_host_memory(self, level: &Layout) -> Result<Self> {
        let (size, host) = (self.layout().size(), Device::flex());
        let [rows, of_level] = [size, level.size()].map(|[_, h, w]| h * w);
        // A vector takes as much as three intensities.
        let planes = (level.thickest() * of_level / (3 * rows)).max(1);
        let layout = Layout::balanced(size, Axis::Z, size[0].div_ceil(planes))?;
        let Self { parts, work, .. } = &self;
        let parts = parts.iter().map(|field| {
            let part = |planes| put_away(field.window(planes, work.device(0)), &host);
            Sharded::new(layout.all_planes().map(part).collect(), layout.clone())
        });
        let parts = parts.collect();
        Ok(Self { parts, ..self })
    }

    /// What is known exactly, in one piece on `home`.
    pub fn of_start(exact: Arc<dyn Parametric>, grid: &Geometry, home: &Device) -> Result<Self> {
        Self::of_exact(exact, grid, &Places::whole(home, [grid.dims(); 2])?)
    }

    /// What is known exactly, where `places` say.
    pub fn of_exact(exact: Arc<dyn Parametric>, to: &Geometry, places: &Places) -> Result<Self> {
        let ImagePlaces { layout, work, rest } = &places.fixed;
        let shard = |k: usize| {
            let like = TensorPlace::new(work.device(k), DType::F32);
            let field = exact.planes(to, layout.planes(k), &like)?;
            Ok(put_away(field, rest.device(k)))
        };
        let shards = (0..layout.count()).map(shard).collect::<Result<_>>()?;
        Ok(Self {
            parts: vec![Sharded::new(shards, layout.clone())],
            geometry: to.clone(),
            work: work.clone(),
            holders: places.team.fixed.clone(),
            exact: Some(exact),
        })
    }

    /// The same motion on another grid, a shard at a time; beyond the border, that at the border. What is
    /// known exactly is evaluated there.
    pub fn resampled(self, to: &Geometry, places: &Places) -> Result<Self> {
        let ImagePlaces { layout, work, rest } = &places.fixed;
        let stays = self.parts[0].mesh().devices() == rest.devices();
        if self.geometry == *to && self.layout() == layout && stays {
            return Ok(self);
        }
        if let Some(exact) = self.exact {
            return Self::of_exact(exact, to, places);
        }
        let Self { parts, geometry, holders, .. } = self;
        let matrix = index_linear(&geometry, to);
        let map = index_affine(to, &geometry, &Affine::identity());
        let keep = |k: usize, vectors| put_away(map_vectors(vectors, &matrix), rest.device(k));
        let moved = parts
            .into_iter()
            .map(|field| read_through(&field, &holders, &map, places, Padding::Border, keep));
        let parts = moved.collect::<Result<_>>()?;
        let (work, holders) = (work.clone(), places.team.fixed.clone());
        Ok(Self { parts, geometry: to.clone(), work, holders, exact: None })
    }

    /// All of it on rank 0, in one piece; nothing on the others.
    pub fn on_first(self, processes: &Processes) -> Result<Option<Self>> {
        let planes = 0..self.layout().extent();
        let home = self.work.device(0).clone();
        let whole = |field: &Sharded| {
            let field = processes.to_first(field, &self.holders, planes.clone())?;
            Ok(field.map(|field| Sharded::whole(field.gather(&home))))
        };
        let parts = self.parts.iter().map(whole).collect::<Result<Vec<_>>>()?;
        let parts: Option<Vec<_>> = parts.into_iter().collect();
        let (work, holders) = (DeviceMesh::one(&home), Holders::ALONE);
        let Self { geometry, exact, .. } = self;
        Ok(parts.map(|parts| Self { parts, geometry, work, holders, exact }))
    }

    /// What rank 0 has in one piece, on all ranks: `count` fields on a grid.
    pub fn of_first(
        processes: &Processes,
        mine: Option<Self>,
        count: usize,
        geometry: &Geometry,
        home: &Device,
    ) -> Result<Self> {
        let mut mine = mine.map(|fields| fields.parts.into_iter());
        let field = |_| {
            let mine = mine.as_mut().and_then(Iterator::next).map(|part| part.gather(home));
            processes.field_of_first(mine, geometry.dims(), home).map(Sharded::whole)
        };
        let parts = (0..count).map(field).collect::<Result<_>>()?;
        let (work, holders) = (DeviceMesh::one(home), Holders::ALONE);
        Ok(Self { parts, geometry: geometry.clone(), work, holders, exact: None })
    }
}
