//! Errors with the file that they are about.

use std::path::Path;

use ffdp_burn::Error;

/// An error with the file it is about.
pub fn in_file(path: &Path) -> impl Fn(Error) -> Error {
    let path = path.to_path_buf();
    move |source| Error::InFile { path: path.clone(), source: Box::new(source) }
}
