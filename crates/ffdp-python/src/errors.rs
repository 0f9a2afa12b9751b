//! What goes wrong, as exceptions with the words of the command line: `ffdp.Error`, and kinds of it that are also
//! Python's own.

use ffdp_cli::Failure;
use ffdp_image::Error;
use pyo3::exceptions::{
    PyException, PyMemoryError, PyOSError, PyRuntimeError, PyTypeError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

/// What ends a function of this module.
#[derive(Debug)]
pub enum Refusal {
    /// Of the library.
    Library(Error),
    /// Of what the command line reads.
    Command(Failure),
    /// Of Python itself: an interrupt, an exception of the caller's function, a value of another type.
    Python(PyErr),
}

/// A result whose error becomes an exception.
pub type Result<T, E = Refusal> = std::result::Result<T, E>;

impl Refusal {
    /// A value of a type that has no meaning there.
    pub fn type_of(what: impl Into<String>) -> Self {
        Self::Python(PyTypeError::new_err(what.into()))
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::Command(failure)
    }
}

impl From<PyErr> for Refusal {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<Refusal> for PyErr {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Python(error) => error,
            Refusal::Library(error) => exception(kind_of(&error), &error.into()),
            Refusal::Command(failure) => {
                /// Of a defect or a device; every other failure is the caller's.
                const OURS: u8 = 2;
                let is_ours = failure.exit_code() == OURS;
                exception(if is_ours { Kind::Device } else { Kind::Input }, &failure)
            }
        }
    }
}

/// The kinds of `ffdp.Error`, in the order of [`Kinds`].
#[derive(Clone, Copy)]
enum Kind {
    Input,
    File,
    Memory,
    Device,
}

fn kind_of(error: &Error) -> Kind {
    match error {
        Error::Io { .. } => Kind::File,
        Error::TooLarge { .. } => Kind::Memory,
        Error::Device { .. } | Error::LostRank { .. } | Error::OnRank { .. } => Kind::Device,
        Error::InFile { source, .. } => kind_of(source),
        _ => Kind::Input,
    }
}

/// As the command line prints it; the second line is also the attribute `help`.
fn exception(kind: Kind, failure: &Failure) -> PyErr {
    Python::attach(|py| {
        let made = || -> PyResult<PyErr> {
            let help = failure.help_text();
            let text = match help {
                Some(help) => format!("{failure}\nhelp: {help}"),
                None => failure.to_string(),
            };
            let value = kinds(py)?.1[kind as usize].bind(py).call1((text,))?;
            value.setattr("help", help)?;
            Ok(PyErr::from_value(value))
        };
        made().unwrap_or_else(|error| error)
    })
}

/// `ffdp.Error`, and its kinds.
type Kinds = (Py<PyType>, [Py<PyType>; 4]);

fn kinds(py: Python<'_>) -> PyResult<&Kinds> {
    static KINDS: PyOnceLock<Kinds> = PyOnceLock::new();
    KINDS.get_or_try_init(py, || {
        let new = |name: &str, doc: &str, bases: &[Bound<PyType>]| -> PyResult<Py<PyType>> {
            let members = PyDict::new(py);
            members.set_item("__module__", "ffdp")?;
            members.set_item("__doc__", doc)?;
            members.set_item("help", py.None())?;
            let class = py.get_type::<PyType>();
            let made = class.call1((name, PyTuple::new(py, bases)?, members))?;
            Ok(made.cast_into::<PyType>()?.unbind())
        };
        let doc = "What ffdp refuses, or what failed. The attribute help says what to do about it, or is None.";
        let root = new("Error", doc, &[py.get_type::<PyException>()])?;
        let kind = |name, doc, also| new(name, doc, &[root.bind(py).clone(), also]);
        let all = [
            kind("InputError", "An image, a file or a setting cannot be used.", py.get_type::<PyValueError>())?,
            kind("FileError", "A file could not be read or written.", py.get_type::<PyOSError>())?,
            kind("OutOfMemoryError", "Memory or disk do not suffice; found out before the work.", py.get_type::<PyMemoryError>())?,
            kind("DeviceError", "A device failed, or something that must not happen did.", py.get_type::<PyRuntimeError>())?,
        ];
        Ok((root, all))
    })
}

/// Adds the exceptions to the module.
pub fn add_to(m: &Bound<PyModule>) -> PyResult<()> {
    let (root, all) = kinds(m.py())?;
    for class in std::iter::once(root).chain(all) {
        let class = class.bind(m.py());
        m.add(class.name()?, class)?;
    }
    Ok(())
}
