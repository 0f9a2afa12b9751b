//! Planes that parts of a volume lend to other places, and their gradients on the way back.
//!
//! ```text
//! forward     lenders ── planes, all at once ──> borrowers, which compute
//! backward    borrowers put gradients of planes away;   lenders <── all at once ── and add them to their own
//! ```
//! Sending waits for both ends (`transfer.rs`), so that what a layer lends travels together: there and back a
//! layer waits twice, whatever the number of places. A lender's gradient is put together in place. By the tape
//! alone each plane's would be a volume of zeros with that plane in it, and a sum.
//!
//! For this the gradients bypass the tape ([`OffTape`]): it reaches a lender after all that borrow from it,
//! because they are deeper. Lenders of the same volume should be equally deep, since the first that is reached
//! calls in what is there for all of them.

use std::any::Any;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use burn::Tensor;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::tensor::{DType, Device, Shape, Slice};
#[cfg(feature = "cube")]
use burn_cubecl::CubeBackend;

use super::sharded::narrow;
use super::travel::send_all;
use ffdp_kit::vjp::{OffTape, record_look, record_owner};

/// Both ends of what is lent.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait LendingOps: Backend {
    /// `x` as the lender of number `owner`.
    #[fusion(dtype = x, shape = x)]
    fn lend(x: FloatTensor<Self>, returns: Returns, owner: usize) -> FloatTensor<Self>;

    /// `planes` that a lender `x` gave, wherever they are now.
    #[fusion(dtype = planes, shape = { let _ = x; planes.clone() })]
    fn borrow(
        x: FloatTensor<Self>,
        planes: FloatTensor<Self>,
        returns: Returns,
        loan: Loan,
    ) -> FloatTensor<Self>;
}

/// `loans` of `parts`, each on its device. Differentiable.
///
/// # Panics
/// If a part that lends is not there.
pub fn lent(parts: &[Option<Tensor<5>>], loans: Vec<(Device, Loan)>) -> Vec<Tensor<5>> {
    let part_of = |loan: &Loan| parts[loan.owner].clone().expect("planes are those of a part");
    let planes = loans.iter().map(|(device, loan)| {
        let planes = narrow(part_of(loan).detach(), loan.dim, loan.planes.clone());
        (planes.into_dispatch(), device.as_dispatch().clone())
    });
    let arrived = send_all::<Dispatch>(planes.collect()).into_iter().map(Tensor::from_dispatch);
    if !parts.iter().flatten().any(|part| part.device().is_autodiff()) {
        return arrived.collect();
    }
    let returns = Returns::default();
    let lend = |(owner, part): (usize, &Option<Tensor<5>>)| {
        let part = part.clone()?.into_dispatch();
        Some(<Dispatch as LendingOps>::lend(part, returns.clone(), owner))
    };
    let lenders: Vec<_> = parts.iter().enumerate().map(lend).collect();
    let borrowed = arrived.zip(loans).map(|(planes, (_, loan))| {
        let lender = lenders[loan.owner].clone().expect("planes are those of a part");
        let (planes, returns) = (planes.into_dispatch(), returns.clone());
        Tensor::from_dispatch(<Dispatch as LendingOps>::borrow(lender, planes, returns, loan))
    });
    borrowed.collect()
}

/// Which planes of which lender.
#[derive(Clone, Debug)]
pub struct Loan {
    /// The lender's number.
    pub owner: usize,
    /// Of five axes.
    pub dim: usize,
    /// In the lender's count.
    pub planes: Range<usize>,
}

/// Gradients that were put away. Empty but in a backward pass.
#[derive(Clone, Debug, Default)]
pub struct Returns(Arc<Mutex<Option<Box<dyn Any + Send>>>>);

/// One of them.
struct Letter<B: Backend> {
    loan: Loan,
    grad: FloatTensor<B>,
    /// Where the lender is.
    home: B::Device,
}

impl Returns {
    fn with<B: Backend, T>(&self, act: impl FnOnce(&mut Vec<Letter<B>>) -> T) -> T {
        let mut held = self.0.lock().expect("no holder panics");
        let letters = held.get_or_insert_with(|| Box::new(Vec::<Letter<B>>::new()));
        act(letters.downcast_mut().expect("a volume stays on its backend"))
    }

    /// What there is for a lender; all of it, for all lenders, is at home then.
    fn called_in<B: Backend>(&self, owner: usize) -> Vec<Letter<B>> {
        self.with::<B, _>(|letters| {
            let all = std::mem::take(letters);
            let (marks, grads): (Vec<_>, Vec<_>) = all
                .into_iter()
                .map(|Letter { loan, grad, home }| ((loan, home.clone()), (grad, home)))
                .unzip();
            let at_home = send_all::<B>(grads).into_iter().zip(marks);
            let at_home = at_home.map(|(grad, (loan, home))| Letter { loan, grad, home });
            let (mine, others) = at_home.partition(|letter| letter.loan.owner == owner);
            *letters = others;
            mine
        })
    }
}

#[derive(Clone, Copy, Debug)]
struct Lending;

/// Who gets gradients back.
#[derive(Clone, Debug)]
struct Lender<B: Backend> {
    owner: usize,
    shape: Shape,
    device: B::Device,
    dtype: DType,
}

impl<B: Backend> OffTape<B> for Lending {
    type Look = (Returns, Loan, B::Device);
    type Owned = (Returns, Lender<B>);

    fn put((returns, loan, home): Self::Look, grad: FloatTensor<B>) {
        returns.with::<B, _>(|letters| letters.push(Letter { loan, grad, home }));
    }

    fn take((returns, Lender { owner, shape, device, dtype }): Self::Owned) -> FloatTensor<B> {
        let mut letters = returns.called_in::<B>(owner);
        let whole = letters.iter().position(|letter| letter.grad.shape() == shape);
        let sum = match whole {
            Some(whole) => letters.swap_remove(whole).grad,
            None => {
                let line = Shape::from([shape.num_elements()]);
                B::float_zeros(line, &device, dtype.into())
            }
        };
        let sum = letters.into_iter().fold(sum, |sum, letter| {
            let cast = match letter.grad.dtype() == dtype {
                true => letter.grad,
                false => B::float_cast(letter.grad, dtype.into()),
            };
            added::<B>(sum, cast, &letter.loan, &shape)
        });
        B::float_reshape(sum, shape)
    }
}

/// `sum`, of `shape` in any form, with `grad` added to the planes of a loan. In place where nobody else has it.
fn added<B: Backend>(
    sum: FloatTensor<B>,
    grad: FloatTensor<B>,
    loan: &Loan,
    shape: &Shape,
) -> FloatTensor<B> {
    let rows: usize = shape[..loan.dim].iter().product();
    let values = shape.num_elements() / rows;
    let plane = values / shape[loan.dim];
    let part = loan.planes.start * plane..loan.planes.end * plane;
    let sum = B::float_reshape(sum, Shape::from([rows, values]));
    let grad = B::float_reshape(grad, Shape::from([rows, part.len()]));
    if part.len() == values {
        return B::float_add(sum, grad);
    }
    let part = [Slice::from(..), Slice::from(part)];
    let there = B::float_slice(sum.clone(), &part);
    B::float_slice_assign(sum, &part, B::float_add(there, grad))
}

/// Off the tape.
macro_rules! without_tape {
    ($backend:ty) => {
        impl LendingOps for $backend {
            fn lend(x: FloatTensor<Self>, _: Returns, _: usize) -> FloatTensor<Self> {
                x
            }

            fn borrow(
                _: FloatTensor<Self>,
                planes: FloatTensor<Self>,
                _: Returns,
                _: Loan,
            ) -> FloatTensor<Self> {
                planes
            }
        }
    };
}

without_tape!(Flex);
#[cfg(feature = "cube")]
without_tape!(CubeBackend);

impl<B: Backend, C: CheckpointStrategy> LendingOps for Autodiff<B, C> {
    fn lend(x: FloatTensor<Self>, returns: Returns, owner: usize) -> FloatTensor<Self> {
        let lender = Lender { owner, shape: x.shape(), device: x.device(), dtype: x.dtype() };
        record_owner::<B, C, _>(Lending, x, (returns, lender))
    }

    fn borrow(
        x: FloatTensor<Self>,
        planes: FloatTensor<Self>,
        returns: Returns,
        loan: Loan,
    ) -> FloatTensor<Self> {
        let look = (returns, loan, x.device());
        record_look::<B, C, _>(Lending, x, planes.into_primitive(), look)
    }
}
