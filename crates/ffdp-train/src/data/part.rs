//! What the lines of a list are used for.

use ffdp_image::Result;
use ffdp_image::io::FileRow;

/// What an image or a pair is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// To train with.
    Train,
    /// To choose the best epoch with.
    Validation,
    /// To measure the result with.
    Test,
}

impl Part {
    /// What a line is used for, by its column `part`; training where it is not said.
    ///
    /// # Errors
    /// Another word.
    pub fn of(row: &FileRow) -> Result<Self> {
        match row.text("part") {
            None | Some("train") => Ok(Self::Train),
            Some("validation") => Ok(Self::Validation),
            Some("test") => Ok(Self::Test),
            Some(_) => {
                let what = "part must be train, validation or test";
                Err(row.error(what, "leave it empty for train"))
            }
        }
    }
}
