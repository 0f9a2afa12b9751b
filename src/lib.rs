#![doc = include_str!("../README.md")]

pub use ffdp_burn::{baseline, losses, transform};
pub use ffdp_image::{Error, Result, error, image, io, metrics, synth};
pub use ffdp_kit as kit;
pub use ffdp_nets as nets;
pub use ffdp_optim as optim;
pub use ffdp_register as register;
pub use ffdp_shapes as shapes;

/// The fused operations: those of registration (`ffdp-burn`) and the layers of networks (`ffdp-nets`).
pub mod ops {
    pub use ffdp_burn::ops::*;
    pub use ffdp_kit::dense_zeros;
    pub use ffdp_nets::ops::*;
}

/// Problems larger than one device: images and fields in shards (`ffdp-parallel`), activations in slabs (`ffdp-nets`).
pub mod parallel {
    #[cfg(feature = "mpi")]
    pub use ffdp_mpi::{MpiRanks, SILENCE};
    pub use ffdp_nets::activations::{PlaneRun, Slabs};
    pub use ffdp_parallel::*;
}

/// The names that most programs need.
pub mod prelude {
    pub use ffdp_burn::prelude::*;
    pub use ffdp_nets::{Resolution, TransMorph, TransMorphConfig, Variant};
}

/// The programs of the guide: its pages are tests of the documentation.
#[cfg(doctest)]
mod guide {
    macro_rules! pages {
        ($($name:ident $page:literal)*) => {
            $(
                #[doc = include_str!(concat!("../docs/", $page, ".md"))]
                mod $name {}
            )*
        };
    }
    pages! {
        register_in_rust "register-in-rust"
        own_loss "own-loss"
        own_op "own-op"
        own_method "own-method"
        own_model "own-model"
        kernel_products "kernel-products"
    }
}
