//! A chain evaluated a few planes at a time, its displacement fields and the image in files, against the whole.

use super::*;
use ffdp_burn::ops::{GaussianOptions, Interpolation, gaussian};
use ffdp_burn::transform::{Composite, Displacement, Step};
use ffdp_image::error::Result;
use ffdp_image::image::{Affine, Geometry, Physical, Planes, Volume};
use ffdp_image::io::images::{DisplacementReader, write_displacement};

/// Counts the planes that are read.
struct Counted<'a>(&'a mut Volume, usize);

impl Planes for Counted<'_> {
    fn geometry(&self) -> &Geometry {
        self.0.geometry()
    }

    fn read(&mut self, z: std::ops::Range<usize>) -> Result<&[f32]> {
        self.1 += z.len();
        self.0.read(z)
    }
}

fn smooth(channels: usize, grid: &Geometry, seed: u64) -> Tensor<5> {
    let noise = random(channels, grid.dims(), [-1.0, 1.0], DType::F32, seed);
    gaussian(noise.narrow(0, 0, 1), &GaussianOptions::isotropic(1.5))
}

fn displacement(grid: &Geometry, voxels: f64, seed: u64) -> Displacement {
    let field = smooth(3, grid, seed).mul_scalar(voxels);
    Displacement::new(field, grid.clone()).expect("it fits")
}

/// A turn about x by so many degrees, and a shift.
fn turn(degrees: f64, shift: [f64; 3]) -> Affine<Physical, Physical> {
    let (sin, cos) = degrees.to_radians().sin_cos();
    let [x, y, z] = shift;
    Affine::from_rows([[1.0, 0.0, 0.0, x], [0.0, cos, -sin, y], [0.0, sin, cos, z]])
}

#[test]
fn a_few_planes_at_a_time_are_the_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let grid = Geometry::new([20, 17, 23], [1.0, 1.25, 0.875]).expect("valid");
    let coarse = Geometry::new([12, 11, 14], [1.875, 2.0, 1.75]).expect("valid");
    let mut image = Geometry::new([18, 21, 19], [1.1, 1.0, 1.05]).expect("valid");
    image.origin_mm = [0.7, -1.3, 0.4];
    let mut moving = Volume::from_tensor(smooth(1, &image, 3), image.clone()).expect("it fits");
    let fields = [displacement(&grid, 6.0, 4), displacement(&coarse, 3.0, 5)];
    let paths = ["own.nii", "coarse.nii.gz"].map(|name| folder.path().join(name));
    for (field, path) in fields.iter().zip(&paths) {
        write_displacement(path, &field.to_vec().expect("read"), field.geometry()).expect("it");
    }
    let step = |k: usize| Step::Displacement(fields[k].clone());
    let affine = |map| Composite::new(vec![Step::Affine(map)]);
    let stored = |k: usize| DisplacementReader::open(&paths[k]).expect("written");
    let device = Device::flex();
    // Little turned, a quarter turn (every plane looks at all of the image), past the image for some planes.
    for map in
        [turn(7.0, [0.5, 1.0, -0.7]), turn(90.0, [0.0, 20.0, 1.0]), turn(0.0, [0.0, 0.0, 11.0])]
    {
        let whole = Composite::new(vec![step(0), Step::Affine(map), step(1)]);
        let expected = whole.on_grid(&grid, &device);
        let mut chain =
            PlaneChain::default().then_stored(stored(0)).then(affine(map)).then_stored(stored(1));
        assert_eq!(chain.first_grid(), Some(&grid));
        let mut seen = SeenImage::new(&mut moving);
        for how in [Interpolation::Linear, Interpolation::Nearest] {
            let values = expected.sample(smooth(1, &image, 3), &image, how);
            for planes in [1, 4] {
                for first in (0..23).step_by(planes) {
                    let z = first..(first + planes).min(23);
                    let map = chain.on_planes(&grid, z.clone(), &device).expect("readable");
                    let part = match seen.through(&map).expect("readable") {
                        Some((image, grid)) => to_f64(map.sample(image, &grid, how)),
                        None => vec![0.0; z.len() * 20 * 17],
                    };
                    let whole = to_f64(values.clone().narrow(2, z.start, z.len()));
                    let apart = part.iter().zip(&whole).map(|(a, b)| (a - b).abs());
                    match how {
                        // Positions near 20 are rounded to 1e-6 of a voxel; an image changes by up to 1 a voxel.
                        Interpolation::Linear => {
                            assert!(apart.fold(0.0, f64::max) < 2e-5, "{z:?}");
                        }
                        // In the middle between two voxels the other one may be the nearest.
                        _ => assert!(apart.filter(|d| *d > 1e-6).count() <= 1, "{z:?}"),
                    }
                }
            }
        }
    }
    // Planes are read once, where the next ones look at them as well.
    let mut chain = PlaneChain::default().then_stored(stored(0));
    let mut counted = Counted(&mut moving, 0);
    let mut seen = SeenImage::new(&mut counted);
    for z in 0..23 {
        let map = chain.on_planes(&grid, z..z + 1, &device).expect("readable");
        seen.through(&map).expect("readable");
    }
    drop(seen);
    assert!(counted.1 <= 19, "{} planes of 19 were read", counted.1);
}

#[test]
fn a_small_file_is_read_and_an_affine_map_knows_what_it_reaches() {
    let folder = tempfile::tempdir().expect("a folder");
    let grid = Geometry::new([8, 9, 10], [1.0; 3]).expect("valid");
    let path = folder.path().join("affine.txt");
    let map = turn(0.0, [0.0, 0.0, 3.0]);
    ffdp_image::io::write_affine(&path, &map).expect("writable");
    let device = Device::flex();
    let mut chain = PlaneChain::default().then_file(&path, &device).expect("readable");
    assert_eq!(chain.first_grid(), None);
    let reach = |chain: &mut PlaneChain, z| {
        let map = chain.on_planes(&grid, z, &device).expect("readable");
        map.planes_of(&grid).expect("known")
    };
    // Planes 5 and 6, and what lies between them and the next; one more on either side.
    assert_eq!(reach(&mut chain, 2..4), 4..9);
    assert_eq!(reach(&mut chain, 9..10), 10..10);
    assert!(chain.on_planes(&grid, 9..11, &device).is_err());
}
