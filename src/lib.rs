#![doc = include_str!("../README.md")]

pub use ffdp_burn::{baseline, losses, transform};
pub use ffdp_groups as groups;
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

/// What a registration takes: images and their files, settings, the run, transforms, losses and operations.
pub mod prelude {
    pub use ffdp_burn::losses::{
        Lncc, MutualInformation, SimilarityLoss, bending_energy, diffusion, jacobian_penalty,
        label_dice_loss, soft_dice,
    };
    pub use ffdp_burn::ops::{
        GaussianOptions, GridSampleOptions, LabelDiceOptions, LnccOptions, MindOptions, compose,
        exp, gaussian, grid_sample, jacobian, lncc, mind, mse, warp,
    };
    pub use ffdp_burn::transform::{
        Composite, Displacement, Step, read_transform, resample, write_transform,
    };
    pub use ffdp_image::image::{Geometry, LabelMap, Volume};
    pub use ffdp_image::io::images::{read_labels, read_volume, write_labels, write_volume};
    pub use ffdp_image::io::{read_landmarks, write_landmarks};
    pub use ffdp_image::{Error, Result};
    pub use ffdp_nets::{Resolution, TransMorph, TransMorphConfig, Variant};
    pub use ffdp_parallel::DeviceMesh;
    pub use ffdp_register::methods::{
        DiscreteSettings, FfdSettings, GnkSettings, GreedySettings, SvfSettings, SynSettings,
    };
    pub use ffdp_register::report::Outcome;
    pub use ffdp_register::{
        LevelSettings, Observer, Placement, Preset, Problem, Register, Registration, Settings,
        Silent, Similarity, Source, Stage,
    };
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
        templates "templates"
        atlases "atlases"
        series "series"
        own_loss "own-loss"
        own_op "own-op"
        own_method "own-method"
        own_model "own-model"
        kernel_products "kernel-products"
    }
}
