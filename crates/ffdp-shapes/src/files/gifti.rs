//! GIfTI surfaces: XML with one array of points and one of triangles.
//!
//! Positions are read as they are stored (RAS mm by the standard); the matrix to another space is not applied. Data may
//! lie in another file of the same folder.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::path::{Component, Path};
use std::str::Utf8Error;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use flate2::write::ZlibEncoder;
use roxmltree::{Document, Node, ParsingOptions};

use super::{Content, Damage, is_gzip};
use crate::shape::{Cells, Position, Shape};

/// An uncompressed array may be so many times as long as the file: zeros compress to a thousandth.
const LARGEST_RATIO: u64 = 1100;

/// Reads a file that lies in `folder`.
pub fn read(bytes: &[u8], folder: &Path) -> Result<Content, Damage> {
    let xml = |error: &dyn std::fmt::Display| Damage::new("a GIfTI file must be whole XML", error);
    let text = &*decoded(bytes).map_err(|error| xml(&error))?;
    // GIfTI files name a document type; it is not fetched.
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).map_err(|error| xml(&error))?;
    let triples = |intent: &str| {
        let mut arrays = document.descendants().filter(|node| node.has_tag_name("DataArray"));
        let wanted = arrays.rfind(|node| node.attribute("Intent") == Some(intent));
        wanted.map(|node| Array { node, folder }.triples(bytes.len())).transpose()
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

/// The text of a file in UTF-8, or in the Latin-1 that its first line may name.
fn decoded(bytes: &[u8]) -> Result<Cow<'_, str>, Utf8Error> {
    let start = bytes[..bytes.len().min(200)].to_ascii_lowercase();
    let latin = [&b"iso-8859-1"[..], b"latin1", b"windows-1252"];
    let is_latin = |name: &&[u8]| start.windows(name.len()).any(|part| part == *name);
    match std::str::from_utf8(bytes) {
        Err(_) if latin.iter().any(is_latin) => Ok(bytes.iter().map(|&b| char::from(b)).collect()),
        text => text.map(Cow::Borrowed),
    }
}

/// A `DataArray` of a file in a folder.
struct Array<'a> {
    node: Node<'a, 'a>,
    folder: &'a Path,
}

/// Bytes of a value, and what they are as a number.
type Decoder = (usize, fn(&[u8; 8]) -> f64);

impl Array<'_> {
    fn is(&self, name: &str) -> &str {
        self.node.attribute(name).unwrap_or_default()
    }

    fn dim(&self, name: &str) -> Result<usize, Damage> {
        let value = self.is(name);
        value
            .parse()
            .map_err(|_| Damage::new(format!("{name} must be a number"), format!("{value:?}")))
    }

    fn text(&self) -> &str {
        let data = self.node.children().find(|node| node.has_tag_name("Data"));
        data.and_then(|node| node.text()).unwrap_or_default()
    }

    /// The array as rows of three numbers.
    fn triples(&self, file_bytes: usize) -> Result<Vec<[f64; 3]>, Damage> {
        let intent = self.is("Intent");
        let [rows, width] = [self.dim("Dim0")?, self.dim("Dim1")?];
        if width != 3 {
            return Err(Damage::new(format!("{intent}: Dim1 must be 3"), width));
        }
        let values = self.values(file_bytes, rows)?;
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

    fn values(&self, file_bytes: usize, rows: usize) -> Result<Vec<f64>, Damage> {
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
                let packed = packed()?;
                // Some programs write gzip where the format has zlib.
                let stream: Box<dyn Read> = match is_gzip(&packed) {
                    true => Box::new(MultiGzDecoder::new(&packed[..])),
                    false => Box::new(ZlibDecoder::new(&packed[..])),
                };
                let mut bytes = Vec::new();
                let limit = LARGEST_RATIO * file_bytes as u64;
                stream
                    .take(limit)
                    .read_to_end(&mut bytes)
                    .map_err(|error| Damage::new("data must be whole zlib streams", error))?;
                self.decode(&bytes)
            }
            "ExternalFileBinary" => self.decode(&self.external(rows)?),
            other => {
                let rule =
                    "Encoding must be ASCII, Base64Binary, GZipBase64Binary or ExternalFileBinary";
                Err(Damage::new(rule, format!("{other:?}")))
            }
        }
    }

    /// Three numbers a row from the file that the array names, which must lie in the same folder.
    fn external(&self, rows: usize) -> Result<Vec<u8>, Damage> {
        let name = self.is("ExternalFileName");
        let mut parts = Path::new(name).components();
        if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
            let rule = "ExternalFileName must be a file of the same folder";
            return Err(Damage::new(rule, format!("{name:?}")));
        }
        let wrong = |reason: &dyn std::fmt::Display| {
            Damage::new(format!("the data of {} lie in {name}", self.is("Intent")), reason)
        };
        let bytes = std::fs::read(self.folder.join(name)).map_err(|error| wrong(&error))?;
        let start = self.dim("ExternalFileOffset")?;
        let length = self.decoder()?.0.checked_mul(3).and_then(|row| row.checked_mul(rows));
        let data = length.and_then(|length| bytes.get(start..)?.get(..length));
        data.map(<[u8]>::to_vec).ok_or_else(|| wrong(&format!("{} bytes", bytes.len())))
    }

    fn decode(&self, bytes: &[u8]) -> Result<Vec<f64>, Damage> {
        let (size, decode) = self.decoder()?;
        // The standard has BigEndian, pycortex GIFTI_ENDIAN_BIG.
        let big = self.is("Endian").to_lowercase().contains("big");
        let number = |chunk: &[u8]| {
            let mut ordered = [0; 8];
            ordered[..size].copy_from_slice(chunk);
            if big {
                ordered[..size].reverse();
            }
            decode(&ordered)
        };
        Ok(bytes.chunks_exact(size).map(number).collect())
    }
    /// Bytes of a number, and what it is by its bytes, the lowest first.
    fn decoder(&self) -> Result<Decoder, Damage> {
        macro_rules! number {
            ($type:ty) => {
                Ok((size_of::<$type>(), |b| {
                    <$type>::from_le_bytes(*b.first_chunk().expect("eight bytes")) as f64
                }))
            };
        }
        match self.is("DataType") {
            "NIFTI_TYPE_FLOAT32" => number!(f32),
            "NIFTI_TYPE_FLOAT64" => number!(f64),
            "NIFTI_TYPE_UINT8" => number!(u8),
            "NIFTI_TYPE_INT16" => number!(i16),
            "NIFTI_TYPE_UINT16" => number!(u16),
            "NIFTI_TYPE_INT32" => number!(i32),
            "NIFTI_TYPE_UINT32" => number!(u32),
            "NIFTI_TYPE_INT64" => number!(i64),
            "NIFTI_TYPE_UINT64" => number!(u64),
            other => {
                let rule = "DataType must be FLOAT32, FLOAT64 or an integer";
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
