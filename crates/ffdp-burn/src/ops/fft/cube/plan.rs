//! How a cube transforms its lines: its units, and the stages by their radices.

use burn_cubecl::tensor::CubeTensor;

use super::super::{Direction, radices, smooth_size};

/// Stages of the longest line: 2^13.
const STAGES: usize = 13;

/// Complex numbers that a unit holds.
const EACH: usize = 16;

/// Complex numbers that a cube holds where that gives it enough lines, and at most.
const HELD: usize = 4096;
const MOST_HELD: usize = 8192;

/// Lines that a cube transforms together at most: the numbers of one transaction of memory; and if lines are long.
const LINES: usize = 32;
const LONG_LINES: usize = 16;

/// Shared memory has an unused word (of each line) after so many: what a stage writes, numbers apart by powers of two,
/// then meets different banks.
pub(super) const GAP: u32 = 8;

/// Where numbers stand in a cube.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Plan {
    /// Numbers of a line.
    pub n: u32,
    /// Lines of a cube: a power of two.
    pub lines: u32,
    /// Units of a cube: a power of two, not fewer than lines.
    pub units: u32,
    /// The lengths of the transforms, stage by stage; 0 beyond the last.
    radices: [u32; STAGES],
    /// Whether lines are rows: neighbouring units have neighbouring numbers of a line, not neighbouring lines.
    pub rows: bool,
    pub inverse: bool,
}

impl Plan {
    pub fn stages(self) -> u32 {
        self.radices.iter().filter(|&&radix| radix > 0).count() as u32
    }

    pub fn last(self) -> u32 {
        self.stages() - 1
    }

    pub fn radix(self, stage: u32) -> u32 {
        self.radices[stage as usize]
    }

    /// The product of the radices before a stage.
    pub fn done(self, stage: u32) -> u32 {
        self.radices[..stage as usize].iter().product()
    }

    /// Transforms of a stage in a line.
    pub fn each(self, stage: u32) -> u32 {
        self.n / self.radix(stage)
    }

    /// And in a cube.
    pub fn count(self, stage: u32) -> u32 {
        self.each(stage) * self.lines
    }

    /// Rounds of all units over `count` pieces of work.
    pub fn rounds(self, count: u32) -> u32 {
        count.div_ceil(self.units)
    }

    /// Numbers of a unit.
    pub fn values(self) -> u32 {
        let of = |stage| self.rounds(self.count(stage)) * self.radix(stage);
        (0..self.stages()).map(of).max().unwrap_or(1)
    }

    /// Words of a line in shared memory.
    pub fn padded(self) -> u32 {
        self.n + self.n / GAP
    }

    pub fn words(self) -> u32 {
        self.padded() * self.lines
    }
}

/// What a transform along an axis of `n` takes on the device of `like`.
pub(super) fn plan(like: &CubeTensor, n: usize, rows: bool, direction: Direction) -> Plan {
    let found = radices(n).unwrap_or_else(|| {
        panic!(
            "fft: on a GPU the length of an axis must be a product of 2, 3, 5 and 7, got {n}; \
             pad it to {}, or transform on the CPU",
            smooth_size(n)
        )
    });
    let hardware = &like.client.properties().hardware;
    // Both parts of a line, with the gaps.
    let fitting = hardware.max_shared_memory_size / (8 * (n + n / GAP as usize));
    let most = fitting.min(MOST_HELD / n);
    assert!(
        most > 0,
        "fft: an axis of {n} is longer than shared memory, or {MOST_HELD}; transform on the CPU"
    );
    let wanted = if rows { HELD / n } else { (HELD / n).max(LONG_LINES) };
    let wanted = wanted.clamp(1, LINES).min(most);
    // The powers of two that are not larger.
    let lines = 1usize << wanted.ilog2();
    let units = (n * lines).div_ceil(EACH).next_power_of_two().max(lines);
    let units = units.max(32).min(1 << (hardware.max_units_per_cube as usize).ilog2());
    let mut radices = [0; STAGES];
    radices[0] = 1;
    radices.iter_mut().zip(&found).for_each(|(to, from)| *to = *from as u32);
    Plan {
        n: n as u32,
        lines: lines as u32,
        units: units as u32,
        radices,
        rows,
        inverse: direction == Direction::Inverse,
    }
}
