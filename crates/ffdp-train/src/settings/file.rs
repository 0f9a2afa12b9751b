//! The settings as a file, `settings.toml`.

use std::path::Path;

use ffdp_image::Result;
use ffdp_image::io::read_toml;
use toml::Table;

use super::Settings;

/// The settings in a file.
///
/// # Errors
/// A file that cannot be read, with the line of the first entry that is not understood.
pub fn read(path: &Path) -> Result<Settings> {
    read_toml(path, "entries have the names of the settings.toml of a run")
}

/// The settings as the text of a file.
pub fn to_toml(settings: &Settings) -> String {
    toml::to_string_pretty(settings).expect("settings are plain values")
}

/// The settings by name.
pub fn table(settings: &Settings) -> Table {
    Table::try_from(settings).expect("settings are plain values")
}
