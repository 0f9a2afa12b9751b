//! Images of any size through a chain of transforms, a run of planes at a time: of the image and of displacement fields in
//! files only those planes are there that these planes of the result look at.

use std::ops::Range;
use std::path::Path;

use burn::Tensor;
use burn::tensor::Device;

use crate::ring::HeldPlanes;
use ffdp_burn::transform::{Composite, Displacement, GridMap, Step, read_transform};
use ffdp_image::error::Result;
use ffdp_image::image::{Geometry, MovedLabels, Planes, upload, upload_each};
use ffdp_image::io::images::DisplacementReader;
use ffdp_image::io::{open_displacement, transform_files};

/// Displacement fields of more voxels stay in their files: 100 MB.
const LARGE: usize = 1 << 23;

/// A map from points of the fixed to points of the moving image, as a [`Composite`] is one, of which displacement fields
/// may stay in their files.
#[derive(Default)]
pub struct PlaneChain {
    links: Vec<Link>,
}

enum Link {
    Read(Composite),
    Stored(Box<Stored>),
}

/// A displacement field in a file.
struct Stored {
    field: DisplacementReader,
    held: HeldPlanes,
}

impl PlaneChain {
    /// This map first, then `next`.
    pub fn then(mut self, next: Composite) -> Self {
        self.links.push(Link::Read(next));
        self
    }

    /// This map first, then the displacement field in a file.
    pub fn then_stored(mut self, field: DisplacementReader) -> Self {
        self.links.push(Link::Stored(Box::new(Stored { field, held: HeldPlanes::default() })));
        self
    }

    /// This map first, then the transform in a file or a result folder: a large displacement field stays there, anything else is read onto
    /// `device`.
    ///
    /// # Errors
    /// As [`read_transform`].
    pub fn then_file(self, path: &Path, device: &Device) -> Result<Self> {
        transform_files(path)?.iter().try_fold(self, |map, file| {
            match open_displacement(file)?.filter(|field| field.geometry().len() > LARGE) {
                Some(field) => Ok(map.then_stored(field)),
                None => Ok(map.then(read_transform(file, device)?)),
            }
        })
    }

    /// The grid of the first step, if that is a displacement.
    pub fn first_grid(&self) -> Option<&Geometry> {
        match self.links.first()? {
            Link::Stored(stored) => Some(stored.field.geometry()),
            Link::Read(map) => map.first_grid(),
        }
    }

    /// The map at the voxels of the planes `z` of a grid, best asked for in ascending order.
    ///
    /// # Errors
    /// [`Error::Invalid`](ffdp_image::Error::Invalid) when the range is empty or leaves the grid, those of reading, and
    /// [`Error::Device`](ffdp_image::Error::Device) when what it reaches cannot be read back.
    pub fn on_planes(
        &mut self,
        grid: &Geometry,
        z: Range<usize>,
        device: &Device,
    ) -> Result<GridMap> {
        let slab = slab_of(grid, &z)?;
        let mut map = Composite::default().on_grid(&slab, device);
        for (k, link) in self.links.iter_mut().enumerate() {
            map = match link {
                Link::Read(steps) => map.then(steps),
                Link::Stored(stored) => {
                    let own = k == 0 && stored.field.geometry() == grid;
                    let window = if own { z.clone() } else { stored.reached(&map)? };
                    let step = Step::Displacement(stored.on(window, own, device)?);
                    map.then(&Composite::new(vec![step]))
                }
            };
        }
        Ok(map)
    }
}

impl Stored {
    /// The planes that are read at the points of a map; beyond the grid, those at its border.
    fn reached(&self, map: &GridMap) -> Result<Range<usize>> {
        let (grid, planes) = (self.field.geometry(), map.planes_of(self.field.geometry())?);
        let first = planes.start.min(grid.size[2] - 1);
        Ok(first..planes.end.max(first + 1))
    }

    /// The field on some planes, and on the neighbouring ones that exist, unless `only` these are wanted.
    fn on(&mut self, window: Range<usize>, only: bool, device: &Device) -> Result<Displacement> {
        let Self { field, held } = self;
        let grid = field.geometry().clone();
        let [_, h, w] = grid.dims();
        let mut read =
            |z: Range<usize>| Ok(upload(field.read(z.clone())?, [1, 3, z.len(), h, w], device));
        let (planes, values) = match only {
            true => (window.clone(), read(window)?),
            false => held.hold(window, device, read)?,
        };
        Displacement::new(values, slab_of(&grid, &planes)?)
    }
}

/// An image that is read where maps lead.
pub struct SeenImage<'a> {
    planes: &'a mut dyn Planes,
    held: HeldPlanes,
}

impl<'a> SeenImage<'a> {
    /// Nothing is read yet.
    pub fn new(planes: &'a mut dyn Planes) -> Self {
        Self { planes, held: HeldPlanes::default() }
    }

    /// What its values stand for where they are labels.
    pub fn labels(&self) -> &MovedLabels {
        self.planes.labels()
    }

    /// What a map sees of the image: its planes `[1, 1, n, H, W]` on the map's device, and their grid; `None` where the map
    /// leads past it.
    ///
    /// # Errors
    /// Those of reading, and [`Error::Device`](ffdp_image::Error::Device) when what the map reaches cannot be read back.
    pub fn through(&mut self, map: &GridMap) -> Result<Option<(Tensor<5>, Geometry)>> {
        let grid = self.planes.geometry().clone();
        let window = map.planes_of(&grid)?;
        if window.is_empty() {
            return Ok(None);
        }
        let Self { planes, held } = self;
        let ([_, h, w], device) = (grid.dims(), map.device());
        let read = |z: Range<usize>| {
            let dims = [1, 1, z.len(), h, w];
            Ok(upload_each(planes.read(z)?, |value| value, dims, device))
        };
        let (z, values) = held.hold(window, device, read)?;
        Ok(Some((values, slab_of(&grid, &z)?)))
    }
}

/// The planes `z` of a grid.
fn slab_of(grid: &Geometry, z: &Range<usize>) -> Result<Geometry> {
    let [x, y, _] = grid.size;
    grid.cropped([0, 0, z.start], [x, y, z.len()])
}
