//! GIfTI surfaces: XML with one array of points and one of triangles.
//!
//! Positions are read as they are stored (RAS mm by the standard); the matrix to another space is not applied.

use std::fmt::Write as _;
use std::io::{Read, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use roxmltree::{Document, Node, ParsingOptions};

use super::{Content, Damage};
use crate::shape::{Cells, Position, Shape};

/// An uncompressed array may be so many times as long as the file: zeros compress to a thousandth.
const LARGEST_RATIO: u64 = 1100;

pub fn read(bytes: &[u8]) -> Result<Content, Damage> {
    let xml = |error: &dyn std::fmt::Display| Damage::new("a GIfTI file must be whole XML", error);
    let text = std::str::from_utf8(bytes).map_err(|error| xml(&error))?;
    // GIfTI files name a document type; it is not fetched.
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).map_err(|error| xml(&error))?;
    let triples = |intent: &str| {
        let mut arrays = document.descendants().filter(|node| node.has_tag_name("DataArray"));
        let wanted = arrays.rfind(|node| node.attribute("Intent") == Some(intent));
        wanted.map(|node| Array(node).triples(bytes.len())).transpose()
    };
    let points = triples("NIFTI_INTENT_POINTSET")?
        .ok_or_else(|| Damage::new("there must be an array NIFTI_INTENT_POINTSET", "none"))?;
    let index = |v: f64| (0.0..=u32::MAX.into()).contains(&v).then_some(v as u32);
    let cell = |&[a, b, c]: &Position| Some([index(a)?, index(b)?, index(c)?]);
    let corners = triples("NIFTI_INTENT_TRIANGLE")?.unwrap_or_default();
    let triangles: Option<Vec<[u32; 3]>> = corners.iter().map(cell).collect();
    let triangles =
        triangles.ok_or_else(|| Damage::new("indices must not be negative", "a negative one"))?;
    let cells = if triangles.is_empty() { Cells::None } else { Cells::Triangles(triangles) };
    Ok((points, cells))
}

/// A `DataArray`.
struct Array<'a>(Node<'a, 'a>);

impl Array<'_> {
    fn is(&self, name: &str) -> &str {
        self.0.attribute(name).unwrap_or_default()
    }

    fn dim(&self, name: &str) -> Result<usize, Damage> {
        let value = self.is(name);
        value
            .parse()
            .map_err(|_| Damage::new(format!("{name} must be a number"), format!("{value:?}")))
    }

    fn text(&self) -> &str {
        let data = self.0.children().find(|node| node.has_tag_name("Data"));
        data.and_then(|node| node.text()).unwrap_or_default()
    }

    /// The array as rows of three numbers.
    fn triples(&self, file_bytes: usize) -> Result<Vec<[f64; 3]>, Damage> {
        let intent = self.is("Intent");
        let [rows, width] = [self.dim("Dim0")?, self.dim("Dim1")?];
        if width != 3 {
            return Err(Damage::new(format!("{intent}: Dim1 must be 3"), width));
        }
        let values = self.values(file_bytes)?;
        if rows.checked_mul(3) != Some(values.len()) {
            let rule = format!("{intent}: {rows} rows of 3 numbers are announced");
            return Err(Damage::new(rule, format!("{} numbers", values.len())));
        }
        Ok(match self.is("ArrayIndexingOrder") {
            "ColumnMajorOrder" => {
                (0..rows).map(|i| [0, 1, 2].map(|c| values[c * rows + i])).collect()
            }
            _ => values.as_chunks::<3>().0.to_vec(),
        })
    }

    fn values(&self, file_bytes: usize) -> Result<Vec<f64>, Damage> {
        let packed = || {
            let text: Vec<u8> = self.text().bytes().filter(|b| !b.is_ascii_whitespace()).collect();
            let wrong = |error| Damage::new("data must be base64", error);
            STANDARD.decode(text).map_err(wrong)
        };
        match self.is("Encoding") {
            "ASCII" => {
                let number = |word: &str| {
                    word.parse()
                        .map_err(|_| Damage::new("data must be numbers", format!("{word:?}")))
                };
                self.text().split_whitespace().map(number).collect()
            }
            "Base64Binary" => self.decode(&packed()?),
            "GZipBase64Binary" => {
                let mut bytes = Vec::new();
                let limit = LARGEST_RATIO * file_bytes as u64;
                ZlibDecoder::new(&packed()?[..])
                    .take(limit)
                    .read_to_end(&mut bytes)
                    .map_err(|error| Damage::new("data must be whole zlib streams", error))?;
                self.decode(&bytes)
            }
            other => {
                let rule = "Encoding must be ASCII, Base64Binary or GZipBase64Binary";
                Err(Damage::new(rule, format!("{other:?}")))
            }
        }
    }

    fn decode(&self, bytes: &[u8]) -> Result<Vec<f64>, Damage> {
        let big = self.is("Endian") == "BigEndian";
        fn all<const N: usize>(bytes: &[u8], big: bool, value: fn([u8; N]) -> f64) -> Vec<f64> {
            let in_order = |chunk: &[u8; N]| {
                let mut chunk = *chunk;
                if big {
                    chunk.reverse();
                }
                value(chunk)
            };
            bytes.as_chunks::<N>().0.iter().map(in_order).collect()
        }
        match self.is("DataType") {
            "NIFTI_TYPE_FLOAT32" => Ok(all(bytes, big, |b: [u8; 4]| f32::from_le_bytes(b).into())),
            "NIFTI_TYPE_FLOAT64" => Ok(all(bytes, big, f64::from_le_bytes)),
            "NIFTI_TYPE_INT32" => Ok(all(bytes, big, |b: [u8; 4]| i32::from_le_bytes(b).into())),
            "NIFTI_TYPE_UINT32" => Ok(all(bytes, big, |b: [u8; 4]| u32::from_le_bytes(b).into())),
            other => {
                let rule = "DataType must be FLOAT32, FLOAT64, INT32 or UINT32";
                Err(Damage::new(rule, format!("{other:?}")))
            }
        }
    }
}

pub fn bytes(shape: &Shape) -> Vec<u8> {
    let points = shape.points.as_flattened();
    let points: Vec<u8> = points.iter().flat_map(|v| (*v as f32).to_le_bytes()).collect();
    let corners = shape.triangles().as_flattened();
    let corners: Vec<u8> = corners.iter().flat_map(|i| (*i as i32).to_le_bytes()).collect();
    let mut text = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<GIFTI Version=\"1.0\" NumberOfDataArrays=\"2\">\n",
    );
    // Points are scanner mm; the identity says so.
    let space = "<CoordinateSystemTransformMatrix>\n\
        <DataSpace><![CDATA[NIFTI_XFORM_SCANNER_ANAT]]></DataSpace>\n\
        <TransformedSpace><![CDATA[NIFTI_XFORM_SCANNER_ANAT]]></TransformedSpace>\n\
        <MatrixData>1 0 0 0 0 1 0 0 0 0 1 0 0 0 0 1</MatrixData>\n\
        </CoordinateSystemTransformMatrix>\n";
    let arrays = [
        ("NIFTI_INTENT_POINTSET", "NIFTI_TYPE_FLOAT32", shape.points.len(), points, space),
        ("NIFTI_INTENT_TRIANGLE", "NIFTI_TYPE_INT32", shape.triangles().len(), corners, ""),
    ];
    for (intent, data_type, rows, data, space) in arrays {
        let mut packer = ZlibEncoder::new(Vec::new(), Compression::default());
        let packed = packer.write_all(&data).and_then(|()| packer.finish());
        let data = STANDARD.encode(packed.expect("memory can be written to"));
        write!(
            text,
            "<DataArray Intent=\"{intent}\" DataType=\"{data_type}\" ArrayIndexingOrder=\"RowMajorOrder\" \
             Dimensionality=\"2\" Dim0=\"{rows}\" Dim1=\"3\" Encoding=\"GZipBase64Binary\" \
             Endian=\"LittleEndian\" ExternalFileName=\"\" ExternalFileOffset=\"\">\n\
             {space}<Data>{data}</Data>\n</DataArray>\n"
        )
        .expect("memory");
    }
    text.push_str("</GIFTI>\n");
    text.into_bytes()
}
