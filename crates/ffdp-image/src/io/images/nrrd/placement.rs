//! Where the axes of a NRRD lie: those of space among them, and their placement in RAS mm as ITK reads it.

use std::path::Path;

use super::super::text_header::refuse;
use super::super::units::unit_in_mm;
use super::field;
use crate::error::{Error, Result};
use crate::image::{Affine, Geometry};
use crate::io::lps::LPS_SIGNS;

/// What the axes of a file are.
pub struct Axes {
    /// Sizes along the axes of space.
    pub size: Vec<usize>,
    /// Another axis, as that of a vector's components: its size, and whether it is the fastest.
    pub other: Option<(usize, bool)>,
    /// Whether the other axis has colours.
    pub is_colour: bool,
    /// Millimetres in the unit of the first axis, which is that of vectors too.
    pub unit_mm: f64,
    /// The numbers of the axes of space.
    space: Vec<usize>,
}

impl Axes {
    /// Those that the header names: an axis without a direction, or of a kind that is not space, is another one.
    pub fn of(path: &Path, text: &str) -> Result<Self> {
        let sizes = field(text, "sizes").unwrap_or("");
        let dims: Option<Vec<usize>> =
            sizes.split_whitespace().map(|n| n.parse().ok().filter(|n| *n > 0)).collect();
        let what =
            "the image must have 1 to 3 axes of space, and one of vectors or volumes at most";
        let wrong = || refuse(path, what, format!("sizes {sizes}"));
        let dims = dims.filter(|dims| (1..=4).contains(&dims.len())).ok_or_else(wrong)?;
        let directions = field(text, "space directions").map(words);
        let kinds: Vec<String> = field(text, "kinds")
            .map(|kinds| kinds.split_whitespace().map(str::to_lowercase).collect())
            .unwrap_or_default();
        let is_space = |axis: &usize| {
            let has_direction = directions.as_ref().is_none_or(|d| d.get(*axis) != Some(&"none"));
            let kind = kinds.get(*axis).map_or("domain", String::as_str);
            has_direction && ["domain", "space", "???", "none"].contains(&kind)
        };
        let mut space: Vec<usize> = (0..dims.len()).filter(is_space).collect();
        if space.len() == 4 {
            space.pop();
        }
        let others: Vec<usize> = (0..dims.len()).filter(|axis| !space.contains(axis)).collect();
        let other = match others[..] {
            [] => None,
            [axis] if axis == 0 || axis + 1 == dims.len() => Some((dims[axis], axis == 0)),
            _ => return Err(wrong()),
        };
        if space.is_empty() {
            return Err(wrong());
        }
        let size = space.iter().map(|axis| dims[*axis]).collect();
        let is_colour = kinds.iter().any(|kind| kind.ends_with("-color"));
        let unit = match directions {
            Some(_) => quoted(field(text, "space units").unwrap_or("")).first().copied(),
            None => quoted(field(text, "units").unwrap_or("")).get(space[0]).copied(),
        };
        let unit_mm = unit.and_then(unit_in_mm).unwrap_or(1.0);
        Ok(Self { size, other, is_colour, unit_mm, space })
    }

    /// The numbers of a field for each axis of space; `None` for an axis that has none.
    fn numbers(&self, text: &str, name: &str) -> Vec<Option<f64>> {
        let words: Vec<&str> =
            field(text, name).map_or(Vec::new(), |v| v.split_whitespace().collect());
        let number = |axis: &usize| words.get(*axis)?.parse().ok().filter(|n: &f64| n.is_finite());
        self.space.iter().map(number).collect()
    }

    /// The placement, and what is unusual about it.
    pub fn geometry(&self, path: &Path, text: &str) -> Result<(Geometry, Vec<String>)> {
        let mut warnings = Vec::new();
        let AxesInSpace { columns, origin, signs } = match field(text, "space directions") {
            Some(directions) => self.by_directions(path, text, directions, &mut warnings)?,
            None => self.by_spacings(path, text, &mut warnings)?,
        };
        let size = std::array::from_fn(|i| self.size.get(i).copied().unwrap_or(1));
        let columns = completed(columns);
        let rows = std::array::from_fn(|i| {
            let [x, y, z] = [0, 1, 2].map(|j| signs[i] * columns[j][i]);
            [x, y, z, signs[i] * origin[i]]
        });
        let geometry =
            Geometry::from_affine(size, Affine::from_rows(rows)).map_err(Error::in_file(path))?;
        Ok((geometry, warnings))
    }

    fn by_directions(
        &self,
        path: &Path,
        text: &str,
        directions: &str,
        warnings: &mut Vec<String>,
    ) -> Result<AxesInSpace> {
        let signs = signs(path, text, warnings)?;
        let words = words(directions);
        let columns: Option<Vec<[f64; 3]>> =
            self.space.iter().map(|axis| words.get(*axis).and_then(|word| vector(word))).collect();
        let origin = vector(field(text, "space origin").unwrap_or("(0,0,0)"));
        let (Some(mut columns), Some(mut origin)) = (columns, origin) else {
            let what = "space directions and origin must be vectors of 2 or 3 numbers, one for each axis of space";
            return Err(refuse(path, what, directions));
        };
        // The units are those of the space, one for each of its axes.
        let units = quoted(field(text, "space units").unwrap_or(""));
        for i in 0..3 {
            let mm = units.get(i).map_or(1.0, |unit| millimetres(unit, warnings));
            columns.iter_mut().for_each(|column| column[i] *= mm);
            origin[i] *= mm;
        }
        Ok(AxesInSpace { columns, origin, signs })
    }

    /// As ITK: along the axes of LPS, with the first voxel where `axis mins` says, which is its border unless centres are
    /// at nodes.
    fn by_spacings(
        &self,
        path: &Path,
        text: &str,
        warnings: &mut Vec<String>,
    ) -> Result<AxesInSpace> {
        let signs =
            if field(text, "space").is_some() { signs(path, text, warnings)? } else { LPS_SIGNS };
        let of = |name: &str, other: &str| match field(text, name) {
            Some(_) => self.numbers(text, name),
            None => self.numbers(text, other),
        };
        let spacings = self.numbers(text, "spacings");
        let (mins, maxs) = (of("axis mins", "axismins"), of("axis maxs", "axismaxs"));
        let centres = field(text, "centerings").or_else(|| field(text, "centers")).unwrap_or("");
        let centres: Vec<&str> = centres.split_whitespace().collect();
        let units = quoted(field(text, "units").unwrap_or(""));
        let (mut columns, mut origin) = (Vec::new(), [0.0; 3]);
        let all_have_mins = mins.iter().all(Option::is_some);
        for i in 0..self.size.len() {
            let axis = self.space[i];
            let is_node = centres.get(axis) == Some(&"node");
            let intervals = if is_node { self.size[i].max(2) - 1 } else { self.size[i] } as f64;
            let measured = mins[i].zip(maxs[i]).map(|(min, max)| (max - min) / intervals);
            let mm = units.get(axis).map_or(1.0, |unit| millimetres(unit, warnings));
            let spacing = spacings[i].or(measured).unwrap_or(1.0) * mm;
            let mut column = [0.0; 3];
            column[i] = spacing;
            columns.push(column);
            if let Some(min) = mins[i].filter(|_| all_have_mins) {
                origin[i] = min * mm + if is_node { 0.0 } else { spacing / 2.0 };
            }
        }
        Ok(AxesInSpace { columns, origin, signs })
    }
}

/// Axes and their origin in the space of a file.
struct AxesInSpace {
    /// Of each axis the step from one voxel to the next.
    columns: Vec<[f64; 3]>,
    origin: [f64; 3],
    /// What turns the space to RAS.
    signs: [f64; 3],
}

/// Signs that turn a space to RAS. ITK takes a space without a name, and those that name no patient, as LPS.
fn signs(path: &Path, text: &str, warnings: &mut Vec<String>) -> Result<[f64; 3]> {
    let space = field(text, "space").unwrap_or("");
    Ok(match space.to_lowercase().as_str() {
        "right-anterior-superior" | "ras" => [1.0, 1.0, 1.0],
        "left-posterior-superior" | "lps" => LPS_SIGNS,
        "left-anterior-superior" | "las" => [-1.0, 1.0, 1.0],
        "" | "scanner-xyz" | "3d-right-handed" | "3d-left-handed" => {
            let name = if space.is_empty() { "none" } else { space };
            warnings
                .push(format!("space is {name}; taken as left-posterior-superior, as ITK does"));
            LPS_SIGNS
        }
        _ => {
            let what = "the space must be right-anterior-superior, left-posterior-superior or left-anterior-superior";
            return Err(refuse(path, what, format!("{space:?}")));
        }
    })
}

fn millimetres(unit: &str, warnings: &mut Vec<String>) -> f64 {
    let mm = unit_in_mm(unit);
    let warning = match mm {
        Some(1.0) => return 1.0,
        None if unit.is_empty() || unit == "???" => return 1.0,
        Some(_) => format!("lengths are in {unit}; converted to millimetres"),
        None => format!("unit of length {unit:?} is unknown; taken as millimetres"),
    };
    if !warnings.contains(&warning) {
        warnings.push(warning);
    }
    mm.unwrap_or(1.0)
}

/// Vectors and `none`; blanks may stand inside the parentheses.
fn words(directions: &str) -> Vec<&str> {
    let (mut words, mut rest) = (Vec::new(), directions.trim());
    while !rest.is_empty() {
        let end = match rest.starts_with('(') {
            true => rest.find(')').map_or(rest.len(), |at| at + 1),
            false => rest.find([' ', '(']).unwrap_or(rest.len()),
        };
        words.push(rest[..end].trim());
        rest = rest[end..].trim_start();
    }
    words
}

/// Words in quotes.
fn quoted(text: &str) -> Vec<&str> {
    text.split('"').skip(1).step_by(2).collect()
}

/// Numbers of a vector `(a,b,c)`, or `(a,b)` in a plane.
fn vector(text: &str) -> Option<[f64; 3]> {
    let inner = text.trim().strip_prefix('(')?.strip_suffix(')')?;
    let numbers: Option<Vec<f64>> = inner.split(',').map(|n| n.trim().parse().ok()).collect();
    let mut numbers = numbers.filter(|numbers| [2, 3].contains(&numbers.len()))?;
    numbers.resize(3, 0.0);
    numbers.try_into().ok()
}

/// Three columns: those that miss stand at right angles to the others, 1 mm long.
fn completed(columns: Vec<[f64; 3]>) -> [[f64; 3]; 3] {
    let cross = |a: [f64; 3], b: [f64; 3]| -> [f64; 3] {
        let c: [f64; 3] = std::array::from_fn(|i| {
            let (j, k) = ((i + 1) % 3, (i + 2) % 3);
            a[j] * b[k] - a[k] * b[j]
        });
        let length = c.iter().map(|v| v * v).sum::<f64>().sqrt();
        c.map(|v| v / length)
    };
    match columns[..] {
        [a, b, c] => [a, b, c],
        [a, b] => [a, b, cross(a, b)],
        [a] => {
            // The axis that is farthest from it.
            let least = (0..3).min_by(|i, j| a[*i].abs().total_cmp(&a[*j].abs())).expect("three");
            let unit = std::array::from_fn(|i| if i == least { 1.0 } else { 0.0 });
            let c = cross(a, unit);
            [a, cross(c, a), c]
        }
        _ => unreachable!("one to three axes of space"),
    }
}
