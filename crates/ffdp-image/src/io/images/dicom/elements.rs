//! The elements of a DICOM file, as far as an image needs them: where each lies, and the short values.
//!
//! Source: DICOM PS3.5 (data structures and encoding) and PS3.10 (the file), 2024. A length is compared with that of
//! the file before anything is read by it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use super::DAMAGED;
use crate::error::{Error, Result};

/// Group and element.
pub type Tag = (u16, u16);

pub const PIXEL_DATA: Tag = (0x7fe0, 0x0010);
const TRANSFER_SYNTAX: Tag = (0x0002, 0x0010);
const ITEM: Tag = (0xfffe, 0xe000);
const ITEM_END: Tag = (0xfffe, 0xe00d);
const SEQUENCE_END: Tag = (0xfffe, 0xe0dd);

/// The length that is not said.
const UNDEFINED: u32 = u32::MAX;
/// Longer values are skipped: what is needed are names and a few numbers.
const LONGEST_VALUE: u32 = 1 << 12;
/// Sequences in sequences.
const DEEPEST: usize = 32;
/// Where the first element begins: after the preamble and `DICM`.
const FIRST: u64 = 132;

const IMPLICIT: &str = "1.2.840.10008.1.2";
const DEFLATED: &str = "1.2.840.10008.1.2.1.99";
const BIG_ENDIAN: &str = "1.2.840.10008.1.2.2";

/// What a file has before its pixels, and where those begin.
pub struct Elements {
    values: BTreeMap<Tag, Vec<u8>>,
    pub transfer_syntax: String,
    /// Position and length of the pixels; no length where they are packed in fragments.
    pub pixels: Option<(u64, Option<u64>)>,
}

/// Where reading is.
struct Walk<'a> {
    path: &'a Path,
    file: BufReader<File>,
    length: u64,
    position: u64,
}

/// How elements are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Explicit,
    Implicit,
}

impl Elements {
    /// Those of a file, up to its pixels.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::File`] where it is damaged or of an encoding that is not read.
    pub fn of(path: &Path) -> Result<Self> {
        let mut walk = Walk::new(path)?;
        let mut elements =
            Self { values: BTreeMap::new(), transfer_syntax: String::new(), pixels: None };
        let mut encoding = Encoding::Explicit;
        let mut is_meta = true;
        while walk.position + 8 <= walk.length {
            let tag = walk.tag()?;
            if is_meta && tag.0 != 2 {
                is_meta = false;
                elements.transfer_syntax = elements.text(TRANSFER_SYNTAX).unwrap_or_default();
                encoding = elements.encoding(path)?;
            }
            let (kind, length) = walk.value(tag, encoding)?;
            if tag == PIXEL_DATA {
                let length = (length != UNDEFINED).then_some(u64::from(length));
                walk.check(length.unwrap_or(0))?;
                elements.pixels = Some((walk.position, length));
                break;
            }
            match length {
                // What has no known type is implicit inside.
                UNDEFINED if &kind == b"UN" => walk.skip_items(Encoding::Implicit, 0)?,
                UNDEFINED => walk.skip_items(encoding, 0)?,
                0..=LONGEST_VALUE => {
                    let mut value = vec![0; length as usize];
                    walk.read(&mut value)?;
                    elements.values.insert(tag, value);
                }
                _ => walk.skip(length.into())?,
            }
        }
        Ok(elements)
    }

    fn encoding(&self, path: &Path) -> Result<Encoding> {
        match self.transfer_syntax.as_str() {
            IMPLICIT => Ok(Encoding::Implicit),
            other @ (DEFLATED | BIG_ENDIAN) => Err(super::refuse_syntax(path, other)),
            _ => Ok(Encoding::Explicit),
        }
    }

    /// A text, without its padding.
    pub fn text(&self, tag: Tag) -> Option<String> {
        let text = String::from_utf8_lossy(self.values.get(&tag)?);
        Some(text.trim_matches([' ', '\0']).to_string()).filter(|text| !text.is_empty())
    }

    /// Decimal numbers.
    pub fn numbers(&self, tag: Tag) -> Option<Vec<f64>> {
        let text = self.text(tag)?;
        let number = |word: &str| word.trim().parse::<f64>().ok().filter(|n| n.is_finite());
        text.split('\\').map(number).collect()
    }

    /// So many decimal numbers.
    pub fn exactly<const N: usize>(&self, tag: Tag) -> Option<[f64; N]> {
        self.numbers(tag)?.try_into().ok()
    }

    /// An unsigned number of 16 bits.
    pub fn short(&self, tag: Tag) -> Option<u16> {
        self.values.get(&tag)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
    }
}

/// The packed parts of the pixels that begin at a position, joined: there is one frame.
///
/// # Errors
/// As [`Elements::of`].
pub fn fragments(path: &Path, position: u64) -> Result<Vec<u8>> {
    let mut walk = Walk::new(path)?;
    walk.skip(position - FIRST)?;
    let mut joined = Vec::new();
    // The first item is a table of offsets, which one frame does not need.
    for part in 0.. {
        let tag = walk.tag()?;
        let length = walk.number()?;
        match tag {
            SEQUENCE_END => break,
            ITEM if part > 0 => {
                walk.check(length.into())?;
                let start = joined.len();
                joined.resize(start + length as usize, 0);
                walk.read(&mut joined[start..])?;
            }
            ITEM => walk.skip(length.into())?,
            other => return Err(walk.damaged(&format!("an item, not {}", hex(other)))),
        }
    }
    Ok(joined)
}

impl<'a> Walk<'a> {
    fn new(path: &'a Path) -> Result<Self> {
        let file = File::open(path).map_err(|source| Error::io(path, "open", source))?;
        let length = file.metadata().map_err(|source| Error::io(path, "read", source))?.len();
        let mut walk = Self { path, file: BufReader::new(file), length, position: 0 };
        walk.skip(FIRST)?;
        Ok(walk)
    }

    fn damaged(&self, what: &str) -> Error {
        let what = format!("the file must have {what} at byte {}", self.position);
        let value = format!("a file of {} bytes", self.length);
        Error::file(self.path, &what, value, DAMAGED)
    }

    /// Demands that the file has so many more bytes.
    fn check(&self, bytes: u64) -> Result<()> {
        match self.position.checked_add(bytes).is_some_and(|end| end <= self.length) {
            true => Ok(()),
            false => Err(self.damaged(&format!("{bytes} bytes"))),
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.check(bytes.len() as u64)?;
        self.file.read_exact(bytes).map_err(|source| Error::io(self.path, "read", source))?;
        self.position += bytes.len() as u64;
        Ok(())
    }

    fn skip(&mut self, bytes: u64) -> Result<()> {
        self.check(bytes)?;
        self.position += bytes;
        let moved = self.file.seek(SeekFrom::Start(self.position));
        moved.map(drop).map_err(|source| Error::io(self.path, "read", source))
    }

    fn short(&mut self) -> Result<u16> {
        let mut bytes = [0; 2];
        self.read(&mut bytes)?;
        Ok(u16::from_le_bytes(bytes))
    }

    fn number(&mut self) -> Result<u32> {
        let mut bytes = [0; 4];
        self.read(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn tag(&mut self) -> Result<Tag> {
        Ok((self.short()?, self.short()?))
    }

    /// Kind and length of the value that follows; what has no defined length is a list of items.
    fn value(&mut self, tag: Tag, encoding: Encoding) -> Result<([u8; 2], u32)> {
        let mut kind = *b"UN";
        if encoding == Encoding::Implicit {
            return Ok((kind, self.number()?));
        }
        self.read(&mut kind)?;
        match &kind {
            b"OB" | b"OD" | b"OF" | b"OL" | b"OV" | b"OW" | b"SQ" | b"SV" | b"UC" | b"UN"
            | b"UR" | b"UT" | b"UV" => {
                self.short()?;
                Ok((kind, self.number()?))
            }
            [b'A'..=b'Z', b'A'..=b'Z'] => Ok((kind, self.short()?.into())),
            _ => Err(self.damaged(&format!("the type of element {}", hex(tag)))),
        }
    }

    /// Goes on behind a list of items that ends with a mark.
    fn skip_items(&mut self, encoding: Encoding, depth: usize) -> Result<()> {
        if depth > DEEPEST {
            return Err(self.damaged(&format!("sequences of at most {DEEPEST} levels")));
        }
        loop {
            let tag = self.tag()?;
            match (tag, self.number()?) {
                (SEQUENCE_END, _) => return Ok(()),
                (ITEM, UNDEFINED) => self.skip_elements(encoding, depth)?,
                (ITEM, length) => self.skip(length.into())?,
                (other, _) => return Err(self.damaged(&format!("an item, not {}", hex(other)))),
            }
        }
    }

    /// Goes on behind the elements of an item that ends with a mark.
    fn skip_elements(&mut self, encoding: Encoding, depth: usize) -> Result<()> {
        loop {
            let tag = self.tag()?;
            if tag == ITEM_END {
                self.number()?;
                return Ok(());
            }
            match self.value(tag, encoding)? {
                (kind, UNDEFINED) if &kind == b"UN" => {
                    self.skip_items(Encoding::Implicit, depth + 1)?;
                }
                (_, UNDEFINED) => self.skip_items(encoding, depth + 1)?,
                (_, length) => self.skip(length.into())?,
            }
        }
    }
}

fn hex((group, element): Tag) -> String {
    format!("({group:04x},{element:04x})")
}
