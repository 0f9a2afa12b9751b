//! How many cubes a launch has along x, y and z, within what every GPU offers: 65535 along an axis.

use cubecl::prelude::CubeCount;

/// Cubes along an axis of a launch that every GPU offers.
pub const CUBES_ALONG_AXIS: usize = 65535;

/// At least `cubes` cubes, in lines of 65535 along y; those of the last line beyond them have nothing to do. A kernel
/// numbers them by `CUBE_POS_Y * CUBE_COUNT_X + CUBE_POS_X`.
pub fn lines_of_cubes(cubes: usize) -> CubeCount {
    let [along, lines] = cubes_in_lines(cubes);
    CubeCount::Static(along, lines, 1)
}

/// The cubes of a line and the lines of [`lines_of_cubes`], for launches that use a third axis.
pub fn cubes_in_lines(cubes: usize) -> [u32; 2] {
    [cubes.min(CUBES_ALONG_AXIS) as u32, cubes.div_ceil(CUBES_ALONG_AXIS) as u32]
}

/// A grid of so many cubes along x, y, z.
///
/// # Panics
/// If it exceeds [`CUBES_ALONG_AXIS`] along an axis, naming `op`.
pub fn grid_of_cubes(op: &str, counts: [usize; 3]) -> CubeCount {
    assert!(
        are_few(counts),
        "{op}: {counts:?} cubes, more than {CUBES_ALONG_AXIS} along an axis; split the batch"
    );
    launched(counts.map(|count| count as u32))
}

/// Blocks of so many voxels along (x, y, z) that cover `batch` volumes of (d, h, w) voxels; the batch lies along z.
///
/// # Panics
/// If they exceed [`CUBES_ALONG_AXIS`] along an axis, naming `op`.
pub fn blocks(op: &str, batch: usize, [d, h, w]: [usize; 3], block: [u32; 3]) -> [u32; 3] {
    let [along_x, along_y, along_z] = block.map(|voxels| voxels as usize);
    let counts = [w.div_ceil(along_x), h.div_ceil(along_y), batch * d.div_ceil(along_z)];
    assert!(
        are_few(counts),
        "{op}: {batch} volumes of {d}x{h}x{w} voxels need {counts:?} cubes, more than {CUBES_ALONG_AXIS} along an axis; \
         split the batch"
    );
    counts.map(|count| count as u32)
}

/// The counts along x, y, z as a launch takes them.
pub fn launched([x, y, z]: [u32; 3]) -> CubeCount {
    CubeCount::Static(x, y, z)
}

fn are_few(counts: [usize; 3]) -> bool {
    counts.iter().all(|count| *count <= CUBES_ALONG_AXIS)
}
