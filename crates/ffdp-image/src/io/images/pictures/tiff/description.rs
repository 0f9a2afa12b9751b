//! What the text of a TIFF says of its pages.
//!
//! Sources: OME-TIFF specification 6 with the OME schema 2016-06 (sizes of voxels are in micrometres unless a unit is
//! given; `DimensionOrder` from the fastest axis on), and what ImageJ 1.54 writes: lines `name=value`, channels
//! fastest, then slices, then frames.

use std::collections::{BTreeSet, HashMap};

use roxmltree::{Document, Node};

use super::super::super::units::unit_in_mm;

/// What pages are, and where.
#[derive(Debug, PartialEq)]
pub struct Description {
    /// What kind of TIFF it is.
    pub name: &'static str,
    /// Planes, channels, times.
    pub sizes: [usize; 3],
    /// The page of each plane: planes fastest, then times, then channels.
    pub pages: Vec<usize>,
    pub spacing_mm: Option<[f64; 3]>,
    pub warnings: Vec<String>,
}

/// A rule that was broken, and the value.
type Refusal = (String, String);

/// Axes other than x and y.
const AXES: &str = "ZCT";

impl Description {
    /// That of a file of so many pages, whose pixels have so many samples; `resolution` has pixels for a unit.
    pub fn of(
        text: &str,
        resolution: [Option<f64>; 2],
        pages: usize,
        samples: usize,
    ) -> Result<Self, Refusal> {
        if text.contains("<OME") {
            return of_ome(text, pages, samples);
        }
        if text.starts_with("ImageJ=") {
            return of_imagej(text, resolution, pages);
        }
        let (sizes, pages) = ([pages, 1, 1], (0..pages).collect());
        Ok(Self { name: "TIFF", sizes, pages, spacing_mm: None, warnings: Vec::new() })
    }
}

/// The number of a plane in an order of axes, the fastest first, from its indices along Z, C and T.
fn place(order: &str, sizes: [usize; 3], indices: [usize; 3]) -> usize {
    let axes = order.chars().rev().filter_map(|axis| AXES.find(axis));
    axes.fold(0, |place, axis| place * sizes[axis] + indices[axis])
}

/// The indices along Z, C and T of the plane with a number.
fn indices(order: &str, sizes: [usize; 3], mut place: usize) -> [usize; 3] {
    let mut indices = [0; 3];
    for axis in order.chars().filter_map(|axis| AXES.find(axis)) {
        indices[axis] = place % sizes[axis];
        place /= sizes[axis];
    }
    indices
}

/// The order of volumes here: planes, then times, then channels.
const OURS: &str = "ZTC";

fn check_count(sizes: [usize; 3], pages: usize, is_enough: bool) -> Result<usize, Refusal> {
    let [z, c, t] = sizes;
    let count = z.checked_mul(c).and_then(|n| n.checked_mul(t));
    match count.filter(|&n| n > 0 && (n == pages || is_enough && n < pages)) {
        Some(count) => Ok(count),
        None => {
            let what = format!("the text asks for {z} planes of {c} channels at {t} times");
            Err((what, format!("{pages} pages")))
        }
    }
}

fn of_imagej(
    text: &str,
    resolution: [Option<f64>; 2],
    pages: usize,
) -> Result<Description, Refusal> {
    let fields: HashMap<&str, &str> =
        text.lines().filter_map(|line| line.trim().split_once('=')).collect();
    let number = |name: &str| fields.get(name).map(|n| n.parse::<usize>());
    let mut sizes = [1; 3];
    for (size, name) in sizes.iter_mut().zip(["slices", "channels", "frames"]) {
        match number(name) {
            Some(Ok(n)) => *size = n,
            Some(Err(_)) => return Err((format!("{name} must be a number"), fields[name].into())),
            None => {}
        }
    }
    // Without axes, images are planes; ImageJ writes one page for stacks beyond 4 GB, which then lie behind it.
    if sizes == [1; 3] {
        sizes[0] = number("images").and_then(Result::ok).unwrap_or(pages);
    }
    let count = check_count(sizes, pages, false)?;
    let page = |k: usize| place("CZT", sizes, indices(OURS, sizes, k));
    let unit = fields.get("unit").map(|unit| unit.replace("\\u00B5", "\u{b5}"));
    let mut warnings = Vec::new();
    let mm = unit.as_deref().and_then(unit_in_mm);
    let spacing_mm = match (mm, resolution) {
        (Some(mm), [Some(x), Some(y)]) => {
            let depth = fields.get("spacing").and_then(|depth| depth.parse::<f64>().ok());
            if depth.is_none() && sizes[0] > 1 {
                let text =
                    "the file does not say how far planes are apart; taken as the width of a pixel";
                warnings.push(text.to_string());
            }
            // Stacks that were turned over have a negative one, which ImageJ ignores.
            Some([mm / x, mm / y, depth.map_or(mm / x, |depth| depth.abs() * mm)])
        }
        _ => None,
    };
    let pages = (0..count).map(page).collect();
    Ok(Description { name: "TIFF (ImageJ)", sizes, pages, spacing_mm, warnings })
}

fn of_ome(text: &str, pages: usize, samples: usize) -> Result<Description, Refusal> {
    let document = Document::parse(text)
        .map_err(|error| ("the text of an OME-TIFF must be XML".to_string(), error.to_string()))?;
    let named =
        |name: &'static str| document.descendants().filter(move |n| n.tag_name().name() == name);
    let Some(pixels) = named("Pixels").next() else {
        let what = "an OME-TIFF must describe its pixels itself, not in another file";
        return Err((what.to_string(), "no Pixels".to_string()));
    };
    let mut sizes = [1; 3];
    for (size, name) in sizes.iter_mut().zip(["SizeZ", "SizeC", "SizeT"]) {
        let value = pixels.attribute(name).unwrap_or("none");
        let known = value.parse::<usize>().ok().filter(|n| *n > 0);
        *size = known.ok_or_else(|| (format!("{name} must be a positive number"), value.into()))?;
    }
    // The samples of a pixel count as channels there.
    if sizes[1] % samples == 0 {
        sizes[1] /= samples;
    }
    let order = pixels.attribute("DimensionOrder").unwrap_or("XYZCT");
    let is_order = order.len() == 5 && "XYZCT".chars().all(|axis| order.contains(axis));
    if !is_order {
        return Err(("DimensionOrder must have X, Y, Z, C and T".to_string(), order.to_string()));
    }
    let mut warnings = Vec::new();
    let images = named("Image").count();
    if images > 1 {
        warnings.push(format!("the first of {images} images is read"));
    }
    // As many planes as pages, before anything is allocated by their number.
    let count = check_count(sizes, pages, images > 1)?;
    let pages = pages_of_planes(pixels, order, sizes, count, pages)?;
    let spacing_mm = spacing(pixels, sizes[0], &mut warnings);
    Ok(Description { name: "OME-TIFF", sizes, pages, spacing_mm, warnings })
}

/// The page of each plane, by the elements `TiffData`; without any, pages are in order.
fn pages_of_planes(
    pixels: Node,
    order: &str,
    sizes: [usize; 3],
    count: usize,
    pages: usize,
) -> Result<Vec<usize>, Refusal> {
    let data: Vec<Node> =
        pixels.children().filter(|node| node.tag_name().name() == "TiffData").collect();
    let mut found: Vec<Option<usize>> = vec![None; count];
    let file = |node: &Node| {
        let uuid = node.children().find(|node| node.tag_name().name() == "UUID")?;
        uuid.attribute("FileName").map(str::to_string)
    };
    let files: BTreeSet<String> = data.iter().filter_map(file).collect();
    if files.len() > 1 {
        let what = "all planes must be in this file";
        return Err((what.to_string(), format!("planes in {} files", files.len())));
    }
    for node in &data {
        let number = |name: &str| match node.attribute(name).map(|n| n.parse::<usize>()) {
            None => Ok(None),
            Some(Ok(n)) => Ok(Some(n)),
            Some(Err(_)) => {
                let value = node.attribute(name).unwrap_or("").to_string();
                Err((format!("{name} of TiffData must be a number"), value))
            }
        };
        let [z, c, t] = [number("FirstZ")?, number("FirstC")?, number("FirstT")?];
        let first = [z, c, t].map(|n| n.unwrap_or(0));
        let ifd = number("IFD")?;
        let usual = if ifd.is_some() || data.len() > 1 { 1 } else { count };
        let planes = number("PlaneCount")?.unwrap_or(usual);
        let outside = || {
            ("TiffData must name planes and pages that are there".to_string(), {
                format!("{planes} planes from {first:?} on, page {}", ifd.unwrap_or(0))
            })
        };
        if first.iter().zip(sizes).any(|(first, size)| *first >= size) {
            return Err(outside());
        }
        let (start, page) = (place(order, sizes, first), ifd.unwrap_or(0));
        let is_inside =
            |start: usize, all: usize| start.checked_add(planes).is_some_and(|end| end <= all);
        if !is_inside(start, count) || !is_inside(page, pages) {
            return Err(outside());
        }
        (0..planes).for_each(|k| found[start + k] = Some(page + k));
    }
    if data.is_empty() {
        found = (0..count).map(Some).collect();
    }
    let page = |k: usize| found[place(order, sizes, indices(OURS, sizes, k))];
    let in_order: Option<Vec<usize>> = (0..count).map(page).collect();
    in_order.ok_or_else(|| {
        let missing = found.iter().filter(|page| page.is_none()).count();
        ("every plane must have a page".to_string(), format!("{missing} of {count} without"))
    })
}

/// Spacings in mm; `None` where x or y has none.
fn spacing(pixels: Node, planes: usize, warnings: &mut Vec<String>) -> Option<[f64; 3]> {
    let mut along = |axis: &str| {
        let value = pixels.attribute(format!("PhysicalSize{axis}").as_str())?;
        let value = value.parse::<f64>().ok().filter(|size| size.is_finite() && *size > 0.0)?;
        let unit = pixels.attribute(format!("PhysicalSize{axis}Unit").as_str());
        let unit = unit.unwrap_or("\u{b5}m");
        match unit_in_mm(unit) {
            Some(mm) => Some(value * mm),
            None => {
                warnings.push(format!("unit {unit:?} of PhysicalSize{axis} is no length"));
                None
            }
        }
    };
    let (x, y, z) = (along("X")?, along("Y")?, along("Z"));
    if z.is_none() && planes > 1 {
        let text =
            "PhysicalSizeZ is missing; planes are taken to be as far apart as pixels are wide";
        warnings.push(text.to_string());
    }
    Some([x, y, z.unwrap_or(x)])
}
