//! All parameters of a module in a line, one after the other: so that they travel between devices in one
//! piece.

use burn::Tensor;
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;

use crate::transfer::in_line;

/// The gradients of a module's trainable parameters, in the order of the module. What has none counts as 0.
///
/// They are taken, not lent: on a GPU each that is dropped is an operation too. Dropped together they would come in
/// the order of a hash map, another in every step, and Burn's fusion (0.22.1) would search anew, in every step,
/// for what of these hundreds it can join (81 ms for 153 parameters on the host of an H200).
///
/// # Panics
/// If none is trainable.
pub fn line_of_gradients<M: Module>(module: &M, gradients: GradientsParams) -> Tensor<1> {
    let mut line = GradientLine { gradients, pieces: Vec::new() };
    module.visit(&mut line);
    assert!(!line.pieces.is_empty(), "line_of_gradients: no parameter is trainable");
    Tensor::cat(line.pieces, 0)
}

/// The way back.
pub fn gradients_of_line<M: Module>(module: &M, line: Tensor<1>) -> GradientsParams {
    let mut cut = CutGradients { line, first: 0, gradients: GradientsParams::new() };
    module.visit(&mut cut);
    cut.gradients
}

/// The weights of a module, off the tape.
pub(super) fn line_of_weights<M: Module>(module: &M) -> Tensor<1> {
    let mut line = WeightLine::default();
    module.visit(&mut line);
    Tensor::cat(line.pieces, 0)
}

/// `module` with the weights of a line.
pub(super) fn with_weights<M: Module>(module: M, line: Tensor<1>) -> M {
    module.map(&mut CutWeights { line, first: 0 })
}

struct GradientLine {
    gradients: GradientsParams,
    pieces: Vec<Tensor<1>>,
}

impl ModuleVisitor for GradientLine {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        let weights = parameter.val();
        if weights.is_require_grad() {
            let gradient = self.gradients.remove::<D>(parameter.id);
            self.pieces.push(in_line(gradient.unwrap_or_else(|| weights.inner().zeros_like())));
        }
    }
}

struct CutGradients {
    line: Tensor<1>,
    first: usize,
    gradients: GradientsParams,
}

impl ModuleVisitor for CutGradients {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        let weights = parameter.val();
        if weights.is_require_grad() {
            let gradient = next_piece(&self.line, &mut self.first, weights.dims());
            self.gradients.register(parameter.id, gradient);
        }
    }
}

#[derive(Default)]
struct WeightLine {
    pieces: Vec<Tensor<1>>,
}

impl ModuleVisitor for WeightLine {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        self.pieces.push(in_line(parameter.val().inner()));
    }
}

struct CutWeights {
    line: Tensor<1>,
    first: usize,
}

impl ModuleMapper for CutWeights {
    fn map_float<const D: usize>(&mut self, parameter: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, old, mapper) = parameter.consume();
        let mut weights: Tensor<D> = next_piece(&self.line, &mut self.first, old.dims());
        if old.is_autodiff() {
            weights = weights.autodiff().set_require_grad(old.is_require_grad());
        }
        Param::from_mapped_value(id, weights, mapper)
    }
}

fn next_piece<const D: usize>(line: &Tensor<1>, first: &mut usize, dims: [usize; D]) -> Tensor<D> {
    let values: usize = dims.iter().product();
    let piece = line.clone().narrow(0, *first, values).reshape(dims);
    *first += values;
    piece
}
