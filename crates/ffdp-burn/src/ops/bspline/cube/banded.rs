//! Banded matrices along an axis: what comes from control points to the same control points, or from points of their
//! cells. Several fields are read at once, and several sums of their products are written.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use ffdp_kit::cubes::lines_of_cubes;
use ffdp_kit::launch::{UNITS, address, buffer, empty};

/// What a pass does to each line: row `k` of a matrix begins at element `step k - before` of a line, and has `window`
/// entries. Term `[from, to]` multiplies field `from` of the input and is added to field `to` of the output; every term
/// has a matrix of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pass {
    pub window: u32,
    pub step: u32,
    pub before: u32,
    pub terms: &'static [[u32; 2]],
}

impl Pass {
    fn fields(&self, side: usize) -> u32 {
        self.terms.iter().map(|term| term[side] + 1).max().unwrap_or(0)
    }

    fn term(&self, term: u32, side: usize) -> usize {
        self.terms[term as usize][side] as usize
    }
}

/// The lines of an axis: elements before, elements after, and how far apart they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub input: usize,
    pub output: usize,
    pub stride: usize,
}

/// `elements` of a field of the output; `table` the first entry of this pass, term by term and row by row.
#[cube(launch_unchecked, address_type = "dynamic")]
fn banded_kernel(
    input: &[f32],
    tables: &[f32],
    output: &mut [f32],
    elements: usize,
    input_elements: usize,
    table: usize,
    input_len: usize,
    output_len: usize,
    stride: usize,
    #[comptime] pass: Pass,
) {
    let at = (CUBE_POS_Y as usize * CUBE_COUNT_X as usize + CUBE_POS_X as usize)
        * CUBE_DIM_X as usize
        + UNIT_POS_X as usize;
    if at >= elements {
        terminate!();
    }
    let row = at / stride % output_len;
    let line = at / (stride * output_len) * input_len * stride + at % stride;
    let mut sums = Array::<f32>::new(comptime!(pass.fields(1) as usize));
    #[unroll]
    for to in 0..comptime!(pass.fields(1)) {
        sums[to as usize] = 0.0f32;
    }
    #[unroll]
    for k in 0..comptime!(pass.window) {
        let place = row * comptime!(pass.step as usize) + k as usize;
        if place >= comptime!(pass.before as usize)
            && place < input_len + comptime!(pass.before as usize)
        {
            let source = line + (place - comptime!(pass.before as usize)) * stride;
            let mut values = Array::<f32>::new(comptime!(pass.fields(0) as usize));
            #[unroll]
            for from in 0..comptime!(pass.fields(0)) {
                values[from as usize] = input[source + from as usize * input_elements];
            }
            #[unroll]
            for term in 0..comptime!(pass.terms.len() as u32) {
                let entry = (term as usize * output_len + row) * comptime!(pass.window as usize)
                    + k as usize;
                let from = comptime!(pass.term(term, 0));
                let to = comptime!(pass.term(term, 1));
                sums[to] += tables[table + entry] * values[from];
            }
        }
    }
    #[unroll]
    for to in 0..comptime!(pass.fields(1)) {
        output[at + to as usize * elements] = sums[to as usize];
    }
}

/// One of several tables that lie in one tensor.
#[derive(Clone, Copy)]
pub(crate) struct Table<'a> {
    pub tables: &'a CubeTensor,
    /// Its first entry.
    pub start: usize,
}

/// The pass over all lines of fields of `input_elements` elements; the table as in [`banded_kernel`].
pub(crate) fn banded(
    input: &CubeTensor,
    input_elements: usize,
    Table { tables, start }: Table,
    line: Line,
    pass: Pass,
) -> CubeTensor {
    let elements = input_elements / line.input * line.output;
    let output = empty(input, [pass.fields(1) as usize * elements]);
    let cubes = elements.div_ceil(UNITS as usize);
    unsafe {
        banded_kernel::launch_unchecked(
            &input.client,
            lines_of_cubes(cubes),
            CubeDim::new_1d(UNITS),
            address(&[input, &output]),
            buffer(input),
            buffer(tables),
            buffer(&output),
            elements,
            input_elements,
            start,
            line.input,
            line.output,
            line.stride,
            pass,
        );
    }
    output
}
