//! `--loss`: every built-in similarity, by its name or, in a file, by the table that a stage of a registration has.

use ffdp_burn::losses::similarities::{LnccSettings, Similarity};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// The names.
#[cfg(feature = "cli")]
pub fn parser() -> impl clap::builder::TypedValueParser<Value = Similarity> {
    use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
    let all = Similarity::built_in().into_iter();
    let names = all.map(|(similarity, about)| PossibleValue::new(similarity.name()).help(about));
    PossibleValuesParser::new(names).map(|name| named(&name).expect("the parser knows the names"))
}

/// A similarity as it is trained where only its name is given: LNCC is that of TransMorph.
fn named(name: &str) -> Option<Similarity> {
    match Similarity::named(name)? {
        Similarity::Lncc(_) => Some(Similarity::Lncc(LnccSettings::transmorph())),
        other => Some(other),
    }
}

/// A name, which is all that files of earlier versions have, or a table.
pub fn read<'de, D: Deserializer<'de>>(file: D) -> Result<Similarity, D::Error> {
    match toml::Value::deserialize(file)? {
        toml::Value::String(name) => named(&name).ok_or_else(|| {
            let all = Similarity::built_in().map(|(similarity, _)| similarity.name());
            D::Error::custom(format!("unknown loss `{name}`, expected one of {}", all.join(", ")))
        }),
        table => table.try_into().map_err(D::Error::custom),
    }
}
