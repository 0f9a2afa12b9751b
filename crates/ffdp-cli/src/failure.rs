//! What ends a command: a message, a help text, and whose fault it is.

use std::path::Path;

use ffdp_image::Error;

/// Exit codes.
const USER: u8 = 1;
const OURS: u8 = 2;
const RESULT: u8 = 3;

/// A failure as it is shown to the user.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
#[cfg_attr(not(feature = "mpi"), allow(dead_code, reason = "one process has no others"))]
pub struct Failure {
    message: String,
    help: Option<String>,
    /// As a process exits with it.
    code: u8,
    /// Whether all processes of a run know of it.
    of_all: bool,
    /// Whether results of other inputs or settings are in the way.
    outdated: bool,
}

impl Failure {
    /// A request that cannot be worked with.
    pub fn user(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            help: Some(help.into()),
            code: USER,
            of_all: false,
            outdated: false,
        }
    }

    /// Results of other inputs or settings that must not be replaced unasked.
    pub fn outdated(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { outdated: true, ..Self::user(message, help) }
    }

    /// Whether there are results, of other inputs or settings.
    pub fn is_outdated(&self) -> bool {
        self.outdated
    }

    /// Something that must not happen.
    pub fn defect(message: impl Into<String>) -> Self {
        let help = Some("please report this".to_string());
        Self { message: message.into(), help, code: OURS, of_all: false, outdated: false }
    }

    /// A result that failed, though all went well.
    pub fn result(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { code: RESULT, ..Self::user(message, help) }
    }

    /// The text that says how to mend it.
    pub fn help_text(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// The same failure, with the user's file that it is about.
    pub fn about(mut self, path: &Path) -> Self {
        self.message = format!("{}: {}", path.display(), self.message);
        self
    }

    /// Whether all processes of a run have it, and not this one alone.
    #[cfg(feature = "mpi")]
    pub fn is_of_all(&self) -> bool {
        self.of_all
    }

    /// The same failure, with the process in which it happened.
    #[cfg(feature = "mpi")]
    pub fn on_rank(mut self, name: &str) -> Self {
        self.message = format!("{name}: {}", self.message);
        self
    }

    /// The same failure with another way out.
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// 1 for the user's fault, 2 for ours or the device's, 3 for a result that failed.
    pub fn exit_code(&self) -> u8 {
        self.code
    }
}

/// The library's errors carry the way out in their message; here it becomes the help text.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let ours = matches!(error, Error::Device { .. } | Error::LostRank { .. });
        let of_all = matches!(error, Error::OnRank { .. });
        let (message, help) = match error {
            Error::Invalid { what, value, fix } => (format!("{what}, got {value}"), Some(fix)),
            Error::Nifti { path, what, value, fix } | Error::File { path, what, value, fix } => {
                (format!("{}: {what}, got {value}", path.display()), Some(fix))
            }
            Error::NonFinite { what, nan, infinite, first } => (
                format!(
                    "{what} holds {nan} NaN and {infinite} infinite voxels, the first at voxel \
                     (x, y, z) = {first:?}"
                ),
                Some("repair the image, or set such voxels to zero: --nan-policy zero".to_string()),
            ),
            Error::NoOverlap { fixed_box_mm, moving_box_mm, overlap_percent, required_percent } => {
                (
                    format!(
                        "fixed and moving overlap by {overlap_percent:.2} % of the smaller image, at \
                     least {required_percent} % is needed: fixed spans {fixed_box_mm:.1?} mm, \
                     moving spans {moving_box_mm:.1?} mm (RAS, low and high corner)"
                    ),
                    Some(
                        "check the headers with ffdp info; if they are right, let the stages find the \
                     images (leave --aligned out; --search for any orientation), or start from a transform (--initial)"
                            .to_string(),
                    ),
                )
            }
            Error::InFile { path, source } => return Self::from(*source).about(&path),
            other => split(&other.to_string()),
        };
        let code = if ours { OURS } else { USER };
        Self { message, help, code, of_all, outdated: false }
    }
}

/// Messages of the library end in "; what to do".
fn split(message: &str) -> (String, Option<String>) {
    match message.rsplit_once("; ") {
        Some((what, fix)) => (what.to_string(), Some(fix.to_string())),
        None => (message.to_string(), None),
    }
}

/// A result whose error is shown to the user.
pub type Result<T, E = Failure> = std::result::Result<T, E>;
