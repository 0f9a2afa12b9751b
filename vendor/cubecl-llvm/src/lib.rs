//! A stand-in for `cubecl-llvm`, without LLVM.
//!
//! `cubecl-cuda` 0.11.3 always depends on `cubecl-llvm`, whose build script downloads an LLVM
//! bundle from outside the package registries. This project generates CUDA C++ and compiles it
//! with NVRTC at run time (CubeCL's feature `cuda-cpp`), so LLVM is never called. This crate
//! offers the names that `cubecl-cuda` mentions, and refuses to compile a kernel.
//!
//! It is used through `[patch.crates-io]` and therefore only inside this workspace.

use cubecl_core::ir::nvidia::SmArch;
use cubecl_core::prelude::KernelDefinition;
use cubecl_environment::backtrace::BackTrace;
use cubecl_server::compiler::{CompilationError, Compiler};
use cubecl_server::kernel::BufferIOAttr;

/// PTX versions. NVRTC chooses its own, so none is ever named.
pub mod nvptx {
    pub mod ptx_version {
        use std::fmt;

        /// A PTX version for a driver; has no value here.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum PtxVersion {}

        impl PtxVersion {
            /// Always `None`: only the LLVM generator needs a version.
            pub fn for_driver(_driver: i32) -> Option<Self> {
                None
            }
        }

        impl fmt::Display for PtxVersion {
            fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
                match *self {}
            }
        }
    }
}

/// Device properties as the LLVM generator would narrow them.
pub mod shared {
    pub mod lowered_features {
        use cubecl_core::ir::DeviceProperties;

        /// The GPU target of the LLVM generator.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum GpuTarget {
            Nvptx,
        }

        /// Leaves the properties as they are: nothing is lowered here.
        pub fn restrict_features(_props: &mut DeviceProperties, _target: GpuTarget) {}
    }
}

/// The target of the LLVM generator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LlvmTarget {
    #[default]
    Nvptx,
}

/// Refuses every kernel; see the crate documentation.
#[derive(Clone, Debug, Default)]
pub struct PlironCompiler {
    pub target: LlvmTarget,
}

/// The fields that `cubecl-cuda` fills in.
#[derive(Clone, Debug, Default)]
pub struct PlironOptions {
    pub arch: Option<()>,
    pub sm_arch: Option<SmArch>,
    pub ptx_version: Option<nvptx::ptx_version::PtxVersion>,
    pub grid_constants: bool,
    /// `cubecl-cuda` ends its literal with `..Default::default()`, which wants one more field.
    pub unused: (),
}

/// A compiled PTX module; never made here.
#[derive(Clone, Debug)]
pub struct NvptxModule {
    pub ptx: Vec<core::ffi::c_char>,
    pub entrypoint: String,
    pub ir: String,
    pub shared_memory_size: usize,
    pub io: Vec<BufferIOAttr>,
}

/// What the LLVM generator would return; never made here.
#[derive(Clone)]
pub enum PlironArtifact {
    NvptxCode(NvptxModule),
    Other,
}

impl core::fmt::Display for PlironArtifact {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NvptxCode(module) => f.write_str(&module.ir),
            Self::Other => f.write_str("no artifact"),
        }
    }
}

impl Compiler for PlironCompiler {
    type Representation = PlironArtifact;
    type CompilationOptions = PlironOptions;

    fn compile(
        &mut self,
        _kernel: KernelDefinition,
        _options: &Self::CompilationOptions,
    ) -> Result<Self::Representation, CompilationError> {
        Err(CompilationError::Generic {
            reason: "this build has no LLVM: enable cubecl's feature `cuda-cpp`, so that kernels \
                     are compiled by NVRTC"
                .into(),
            backtrace: BackTrace::capture(),
        })
    }

    fn extension(&self) -> &'static str {
        "ll"
    }

    fn lang_tag(&self) -> &'static str {
        "llvm"
    }
}
