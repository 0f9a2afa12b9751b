//! A forward pass in pieces that can be computed without each other: so that processes which compile kernels
//! each have some of them.
//!
//! Every network marks its pieces where it computes them, so that no second list can miss one.

use burn::tensor::Tensor;

/// What is computed of a pass.
#[derive(Default)]
pub struct Pieces<'a> {
    some: Option<Share<'a>>,
    count: usize,
    taken: usize,
}

/// Every piece whose number leaves the rest `which` when it is divided by `of`.
struct Share<'a> {
    which: usize,
    of: usize,
    each: &'a mut dyn FnMut(Tensor<5>),
}

impl<'a> Pieces<'a> {
    /// All of them, one after the other: the pass as it is.
    pub fn all() -> Self {
        Self::default()
    }

    /// Of every `of` pieces that with the number `which`, counted from 0. Each goes from zeros, and `each` has its output;
    /// the result of the pass means nothing.
    pub fn some(which: usize, of: usize, each: &'a mut dyn FnMut(Tensor<5>)) -> Self {
        Self { some: Some(Share { which, of, each }), count: 0, taken: 0 }
    }

    /// The pieces so far, computed or not.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Those of them that were computed.
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Counts the next piece, and says whether it is computed.
    pub fn takes_next(&mut self) -> bool {
        let number = self.count;
        let takes = self.some.as_ref().is_none_or(|some| number % some.of == some.which);
        self.count += 1;
        self.taken += usize::from(takes);
        takes
    }

    /// The piece that makes a tensor of the shape `shape` of `x`. Where it is not computed, or is by itself, zeros, which
    /// track gradients on a device that does.
    ///
    /// # Panics
    /// If the piece makes another shape.
    pub fn compute(
        &mut self,
        x: Tensor<5>,
        shape: [usize; 5],
        piece: impl FnOnce(Tensor<5>) -> Tensor<5>,
    ) -> Tensor<5> {
        let (number, device) = (self.count, x.device());
        // What several pieces begin with would be on the tape of each, and the first one's gradient would take it from there.
        let x = if self.some.is_none() || x.is_require_grad() { x } else { x.detach() };
        let made = self.takes_next().then(|| {
            let made = piece(x);
            assert_eq!(made.dims(), shape, "piece {number} of a network makes another shape");
            made
        });
        let Some(some) = &mut self.some else { return made.expect("all are computed") };
        if let Some(made) = made {
            (some.each)(made);
        }
        let zeros = Tensor::zeros(shape, &device);
        if device.is_autodiff() { zeros.require_grad() } else { zeros }
    }
}
