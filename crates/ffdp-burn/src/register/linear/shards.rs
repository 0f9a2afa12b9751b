//! A level of a linear stage whose images no device holds, or that several share.

use crate::error::Result;
use crate::image::{Affine, Geometry, Physical};
use crate::ops::Outside;
use crate::parallel::{Aligned, ExactMemory, Mesh, Sharded, ShardedAlignment};
use crate::register::comparison::{Alike, index_map, to_physical};
use crate::register::settings::Similarity;

/// Two images on one level, in shards.
pub(in crate::register) struct ShardedPair {
    grids: [Geometry; 2],
    alignment: ShardedAlignment,
    /// While shards come and go.
    _exact: Option<ExactMemory>,
}

impl ShardedPair {
    /// Images on their grids, computed on `mesh` wherever their shards rest.
    pub fn new(
        images: [Sharded; 2],
        grids: [Geometry; 2],
        (similarity, outside): (Similarity, Outside),
        mesh: &Mesh,
        exact: Option<ExactMemory>,
    ) -> Self {
        let rule = (similarity.alignment_loss(), similarity.seen_outside(outside));
        let alignment = ShardedAlignment::new(images, rule, mesh);
        Self { grids, alignment, _exact: exact }
    }
}

impl Alike for ShardedPair {
    fn grids(&self) -> [&Geometry; 2] {
        self.grids.each_ref()
    }

    fn gradient(&self, affine: &Affine<Physical, Physical>) -> Result<Aligned> {
        let map = index_map(self.grids(), affine);
        let (loss, rows) = self.alignment.gradient(map.rows())?;
        Ok((loss, to_physical(self.grids(), &rows)))
    }
}
