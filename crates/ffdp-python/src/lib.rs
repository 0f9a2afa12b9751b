//! FFDP in Python: `import ffdp`.
//!
//! A thin layer over the Rust crates: objects of Python become images, settings and transforms, the computing is the
//! library's, with the interpreter released, and what comes of it goes back as NumPy arrays. Read `image.rs` first (axes
//! and world), then `register.rs`. `ffdp.pyi` has the types and what each function does, `docs/python.md` how it is used.
//!
//! Settings have the names of the command line's flags, because they are those flags: keyword arguments become the words
//! of a command line (`flags.rs`), which the command line's own code reads (`ffdp-cli`).

mod apply;
mod arrays;
mod errors;
mod flags;
mod image;
mod image_argument;
mod json;
mod landmarks;
mod observer;
mod predict;
mod register;
mod registration;
mod train;
mod transform;

use pyo3::prelude::*;

/// Registration of 3-D images: finds the deformation that carries one image onto another.
#[pymodule]
fn ffdp(m: &Bound<PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    errors::add_to(m)?;
    m.add_class::<image::Image>()?;
    m.add_class::<transform::Transform>()?;
    m.add_class::<registration::Registration>()?;
    m.add_function(wrap_pyfunction!(register::register, m)?)?;
    m.add_function(wrap_pyfunction!(apply::apply, m)?)?;
    m.add_function(wrap_pyfunction!(train::train, m)?)?;
    m.add_function(wrap_pyfunction!(predict::predict, m)?)
}
