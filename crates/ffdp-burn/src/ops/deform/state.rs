//! What the iterations change, as a backend has it.

// Fields have the symbols of `adam`, also those of the type that is derived for the fused backend; a state is moved a
// few times an iteration.
#![allow(missing_docs, clippy::large_enum_variant)]

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, ExtensionType};

/// A field and the moments of its gradient, as a backend has them: see [`AdamOps`](crate::ops::adam::AdamOps).
#[derive(ExtensionType)]
#[extension_type(fusion: cfg(feature = "cube"))]
pub struct FieldState<B: Backend> {
    pub field: FloatTensor<B>,
    pub mean: FloatTensor<B>,
    pub square: FloatTensor<B>,
    pub power: FloatTensor<B>,
}

/// Those of all fields of a [`DeformMethod`](super::DeformMethod).
#[derive(ExtensionType)]
#[extension_type(fusion: cfg(feature = "cube"))]
pub enum FieldStates<B: Backend> {
    /// A displacement or a velocity.
    One(#[extension_type] FieldState<B>),
    /// The halves of SyN.
    Two(#[extension_type] FieldState<B>, #[extension_type] FieldState<B>),
}

impl<B: Backend> FieldStates<B> {
    pub(super) fn new(mut states: Vec<FieldState<B>>) -> Self {
        let last = states.pop().expect("a method has a field");
        match states.pop() {
            None => Self::One(last),
            Some(first) => Self::Two(first, last),
        }
    }

    pub(super) fn into_vec(self) -> Vec<FieldState<B>> {
        match self {
            Self::One(state) => vec![state],
            Self::Two(first, last) => vec![first, last],
        }
    }
}
