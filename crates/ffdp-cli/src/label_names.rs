//! `--label-names`: what labels are called, from the tables that people have.

use std::collections::BTreeMap;
use std::path::Path;

use ffdp_image::Error;
use ffdp_image::io::csv_line;
use ffdp_image::metrics::{LabelOverlap, Overlap};
use serde::{Serialize, Serializer};

use crate::failure::{Failure, Result};

/// Names of labels by their number; none where no table was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelNames(BTreeMap<i32, String>);

/// What the columns of a table with a head are called, in lower case.
const NUMBERS: [&str; 6] = ["id", "index", "label", "labelid", "value", "number"];
const NAMES: [&str; 5] = ["name", "structure", "labelname", "region", "abbreviation"];

impl LabelNames {
    /// Reads a table: CSV or TSV (with a head that names a column id, index or label and one name, or with these two columns),
    /// ITK-SNAP's label description, or FreeSurfer's colour table. Lines that begin with `#` are comments.
    ///
    /// # Errors
    /// A file that cannot be read, without any label, with a line that is none, or with two names for a label.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, "read", e))?;
        Self::parse(&text).map_err(|reason| {
            Failure::user(
                format!("{}: {reason}", path.display()),
                "give a CSV with the columns id,name, ITK-SNAP's label description or FreeSurfer's colour table",
            )
        })
    }

    /// The names in a file, where there is one.
    ///
    /// # Errors
    /// As [`LabelNames::read`].
    pub fn of(path: Option<&Path>) -> Result<Self> {
        path.map(Self::read).transpose().map(Option::unwrap_or_default)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let (mut names, mut columns) = (BTreeMap::new(), [0, 1]);
        let lines = text.trim_start_matches('\u{feff}').lines().enumerate();
        let lines = lines.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
        for (index, (number, line)) in lines.enumerate() {
            let fields = fields(line);
            if index == 0 && fields[0].parse::<i32>().is_err() {
                columns = head(&fields)?;
                continue;
            }
            let [id, name] = columns.map(|column| fields.get(column));
            let id = id.and_then(|id| id.parse::<i32>().ok());
            // ITK-SNAP: six numbers before the name.
            let name = if fields.len() == 8 && columns == [0, 1] { fields.last() } else { name };
            let (Some(id), Some(name)) = (id, name.filter(|name| !name.is_empty())) else {
                return Err(format!("line {} has no number and name: {line:?}", number + 1));
            };
            if let Some(other) = names.insert(id, name.clone()).filter(|other| other != name) {
                return Err(format!("label {id} is called {other:?} and {name:?}"));
            }
        }
        if names.is_empty() { Err("there is no label".to_string()) } else { Ok(Self(names)) }
    }

    /// What a label is called.
    pub fn get(&self, id: i32) -> Option<&str> {
        self.0.get(&id).map(String::as_str)
    }

    /// For people: the name, else the number.
    pub fn shown(&self, id: i32) -> String {
        self.get(id).map_or_else(|| id.to_string(), str::to_string)
    }

    /// Puts a `name` next to every `id` of the list `labels` in JSON.
    pub fn write_into(&self, json: &mut serde_json::Value) {
        let labels = json.get_mut("labels").and_then(serde_json::Value::as_array_mut);
        for label in labels.into_iter().flatten().filter_map(serde_json::Value::as_object_mut) {
            let id = label.get("id").and_then(serde_json::Value::as_i64);
            if let Some(name) = id.and_then(|id| self.get(id as i32)) {
                label.insert("name".to_string(), name.into());
            }
        }
    }
}

/// The fields of a line: between tabs or commas, else between blanks; quotes hold together what is between them.
fn fields(line: &str) -> Vec<String> {
    let separator = ['\t', ','].into_iter().find(|c| line.contains(*c) && !quotes_all(line, *c));
    let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
    for c in line.trim_end().chars() {
        let ends = !quoted && separator.map_or(c.is_whitespace(), |separator| c == separator);
        match (c, ends) {
            ('"', _) => quoted = !quoted,
            (_, true) => fields.push(std::mem::take(&mut field)),
            _ => field.push(c),
        }
    }
    fields.push(field);
    // Columns of blanks are aligned by several of them.
    fields.retain(|field| separator.is_some() || !field.is_empty());
    fields.into_iter().map(|field| field.trim().to_string()).collect()
}

/// Whether a character is only between quotes.
fn quotes_all(line: &str, c: char) -> bool {
    line.split('"').step_by(2).all(|outside| !outside.contains(c))
}

/// The columns of the number and of the name.
fn head(fields: &[String]) -> Result<[usize; 2], String> {
    let column = |known: &[&str]| {
        let found = |name: &&str| fields.iter().position(|field| field.to_lowercase() == **name);
        known.iter().find_map(found)
    };
    match (column(&NUMBERS), column(&NAMES)) {
        (Some(id), Some(name)) => Ok([id, name]),
        _ => Err(format!("the first line {fields:?} names no columns id and name")),
    }
}

/// The overlap of labels with their names.
#[derive(Debug)]
pub struct NamedOverlap {
    pub overlap: Overlap,
    pub names: LabelNames,
}

impl std::ops::Deref for NamedOverlap {
    type Target = Overlap;

    fn deref(&self) -> &Overlap {
        &self.overlap
    }
}

impl Serialize for NamedOverlap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut json = serde_json::to_value(&self.overlap).map_err(serde::ser::Error::custom)?;
        self.names.write_into(&mut json);
        json.serialize(serializer)
    }
}

impl NamedOverlap {
    /// `labels.csv`.
    pub fn csv(&self) -> String {
        let line = |label: &LabelOverlap| {
            let voxels = Some(label.fixed_voxels as f64);
            let measures = [voxels, label.before, label.after, label.hd95_after_mm];
            LabelLine { keys: [], id: label.id, name: self.names.get(label.id), measures }
        };
        let measures = ["fixed_voxels", "dice_before", "dice", "hd95_mm"];
        label_table([], measures, self.overlap.labels.iter().map(line))
    }
}

/// What is measured of one label.
pub struct LabelLine<'a, const KEYS: usize, const MEASURES: usize> {
    /// Of what, where a table has several results.
    pub keys: [String; KEYS],
    pub id: i32,
    pub name: Option<&'a str>,
    /// An empty field where there is nothing to measure.
    pub measures: [Option<f64>; MEASURES],
}

/// `labels.csv`, a line for each label: keys, `id`, `name`, measures. `dice` and distances are those of the result, those
/// of the start end in `_before`.
pub fn label_table<'a, const KEYS: usize, const MEASURES: usize>(
    keys: [&str; KEYS],
    measures: [&str; MEASURES],
    lines: impl IntoIterator<Item = LabelLine<'a, KEYS, MEASURES>>,
) -> String {
    let mut text = csv_line([&keys[..], &["id", "name"], &measures].concat());
    for LabelLine { keys, id, name, measures } in lines {
        let own = [id.to_string(), name.unwrap_or_default().to_string()];
        let measures = measures.map(|value| value.map_or(String::new(), |v| v.to_string()));
        text += &csv_line([&keys[..], &own, &measures].concat());
    }
    text
}

#[cfg(test)]
mod tests {
    use ffdp_image::metrics::BeforeAfter;

    use super::*;

    fn parsed(text: &str) -> Vec<(i32, String)> {
        LabelNames::parse(text).expect(text).0.into_iter().collect()
    }

    #[test]
    fn tables_of_other_programs_name_labels() {
        let expected = [(10, "Left-Thalamus".to_string()), (17, "Hippocampus, left".to_string())];
        for text in [
            "id,name\n10,Left-Thalamus\n17,\"Hippocampus, left\"\n",
            "\u{feff}name,id,volume\nLeft-Thalamus,10,7\n\"Hippocampus, left\",17,8\n",
            "10,Left-Thalamus\r\n17,\"Hippocampus, left\"\r\n",
            "index\tname\tcolor\n10\tLeft-Thalamus\t#00760e\n17\tHippocampus, left\t#dcd814\n",
            "# ITK-SnAP Label Description File\n   10    0  118   14        1  1  1    \"Left-Thalamus\"\n   \
             17  220  216   20        1  1  1    \"Hippocampus, left\"\n",
        ] {
            assert_eq!(parsed(text), expected, "{text}");
        }
        let freesurfer =
            "#No. Label Name:      R   G   B   A\n\n10  Left-Thalamus     0   118 14  0\n";
        assert_eq!(parsed(freesurfer), expected[..1]);
    }

    #[test]
    fn dice_of_the_result_has_one_name_in_all_tables_of_labels() {
        let label = |id, after| LabelOverlap {
            id,
            fixed_voxels: 8,
            before: Some(0.5),
            after,
            hd95_after_mm: None,
        };
        let both = |value| BeforeAfter { before: value, after: value };
        let overlap = Overlap {
            mean: both(0.5),
            inverse_volume_mean: both(0.5),
            surfaces: None,
            labels: vec![label(17, Some(0.75)), label(20, None)],
        };
        let names = LabelNames::parse("17,\"Hippocampus, left\"\n").expect("a table");
        let expected = "id,name,fixed_voxels,dice_before,dice,hd95_mm\n\
                        17,\"Hippocampus, left\",8,0.5,0.75,\n20,,8,0.5,,\n";
        assert_eq!(NamedOverlap { overlap, names }.csv(), expected);
        let line =
            LabelLine { keys: ["a to b".into()], id: 17, name: Some("x"), measures: [Some(0.75)] };
        let table = label_table(["pair"], ["dice"], [line]);
        assert_eq!(table, "pair,id,name,dice\na to b,17,x,0.75\n");
    }

    #[test]
    fn tables_that_are_none_are_refused_with_the_line() {
        for (text, word) in [
            ("", "no label"),
            ("# only a comment\n", "no label"),
            ("a,b\n1,x\n", "id and name"),
            ("1,a\n1,b\n", "\"a\" and \"b\""),
            ("1,a\nx,b\n", "line 2"),
            ("1\n", "line 1"),
        ] {
            let reason = LabelNames::parse(text).expect_err(text);
            assert!(reason.contains(word), "{text}: {reason}");
        }
    }
}
