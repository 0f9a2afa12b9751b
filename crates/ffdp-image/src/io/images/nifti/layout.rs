//! Byte positions of both header versions: the only place that knows them.

use super::super::data_type::Endian;
use super::super::header::Format;

/// Version of the file format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// NIfTI-1: 348-byte header, sizes up to 32767, geometry in f32.
    One,
    /// NIfTI-2: 540-byte header, 64-bit sizes, geometry in f64.
    Two,
}

/// Size of the larger header.
pub(super) const LARGEST_HEADER: usize = 540;

const MAGIC_ONE: &[u8; 4] = b"n+1\0";
const MAGIC_PAIR: &[u8; 4] = b"ni1\0";
// The line ends show damage by transfers in text mode.
const MAGIC_TWO: &[u8; 8] = b"n+2\0\r\n\x1a\n";
const MAGIC_PAIR_TWO: &[u8; 8] = b"ni2\0\r\n\x1a\n";

impl Version {
    /// The format of a file of this version.
    pub const fn format(self) -> Format {
        match self {
            Version::One => Format::named("NIfTI-1"),
            Version::Two => Format::named("NIfTI-2"),
        }
    }

    /// Size of the header in bytes.
    pub const fn header_bytes(self) -> usize {
        match self {
            Version::One => 348,
            Version::Two => LARGEST_HEADER,
        }
    }

    /// First possible byte of voxel data: header and the four bytes of the extension flag.
    pub const fn first_data_byte(self) -> usize {
        self.header_bytes() + 4
    }
}

/// Whether the first number of a file is the size of a header, in either byte order.
pub(super) fn is_header_size(first: [u8; 4]) -> bool {
    let sizes = [Version::One, Version::Two].map(|version| version.header_bytes() as u32);
    sizes.contains(&u32::from_le_bytes(first)) || sizes.contains(&u32::from_be_bytes(first))
}

/// Why bytes are no header of a NIfTI file.
#[derive(Debug, PartialEq, Eq)]
pub enum NotNifti {
    /// Fewer bytes than a header has.
    Truncated,
    /// The first number is no known header size in either byte order.
    Size([u8; 4]),
    /// The magic bytes are unknown; Analyze 7.5 files have none.
    Magic(Vec<u8>),
}

/// A header as stored, every number widened, nothing interpreted.
#[derive(Debug, Clone, PartialEq)]
pub struct RawHeader {
    /// Whether the voxels are in a file of their own (`.hdr/.img`).
    pub pair: bool,
    pub version: Version,
    pub endian: Endian,
    pub dim: [i64; 8],
    pub intent_parameters: [f64; 3],
    pub intent_code: i32,
    pub intent_name: String,
    pub datatype: i16,
    pub bitpix: i16,
    pub pixdim: [f64; 8],
    pub vox_offset: f64,
    pub scl_slope: f64,
    pub scl_inter: f64,
    pub xyzt_units: i32,
    pub description: String,
    pub qform_code: i32,
    pub sform_code: i32,
    /// Quaternion b, c, d.
    pub quatern: [f64; 3],
    pub qoffset: [f64; 3],
    pub srow: [[f64; 4]; 3],
}

/// Byte positions, NIfTI-1 | NIfTI-2 (f = f32 or f64, i = i16 or i64).
struct Positions {
    magic: usize,
    datatype: usize,
    bitpix: usize,
    dim: usize,
    intent_parameters: usize,
    pixdim: usize,
    vox_offset: usize,
    scl_slope: usize,
    description: usize,
    qform_code: usize,
    quatern: usize,
    qoffset: usize,
    srow: usize,
    xyzt_units: usize,
    intent_code: usize,
    intent_name: usize,
}

const ONE: Positions = Positions {
    magic: 344,
    datatype: 70,
    bitpix: 72,
    dim: 40,
    intent_parameters: 56,
    pixdim: 76,
    vox_offset: 108,
    scl_slope: 112,
    description: 148,
    qform_code: 252,
    quatern: 256,
    qoffset: 268,
    srow: 280,
    xyzt_units: 123,
    intent_code: 68,
    intent_name: 328,
};

const TWO: Positions = Positions {
    magic: 4,
    datatype: 12,
    bitpix: 14,
    dim: 16,
    intent_parameters: 80,
    pixdim: 104,
    vox_offset: 168,
    scl_slope: 176,
    description: 240,
    qform_code: 344,
    quatern: 352,
    qoffset: 376,
    srow: 400,
    xyzt_units: 500,
    intent_code: 504,
    intent_name: 508,
};

const DESCRIPTION_BYTES: usize = 80;
const INTENT_NAME_BYTES: usize = 16;

impl RawHeader {
    /// Reads the header at the start of `bytes` (as many of the first 540 as the file has).
    pub fn parse(bytes: &[u8]) -> Result<Self, NotNifti> {
        let size: [u8; 4] =
            bytes.get(..4).and_then(|b| b.try_into().ok()).ok_or(NotNifti::Truncated)?;
        let (version, endian) = match (u32::from_le_bytes(size), u32::from_be_bytes(size)) {
            (348, _) => (Version::One, Endian::Little),
            (_, 348) => (Version::One, Endian::Big),
            (540, _) => (Version::Two, Endian::Little),
            (_, 540) => (Version::Two, Endian::Big),
            _ => return Err(NotNifti::Size(size)),
        };
        let bytes = bytes.get(..version.header_bytes()).ok_or(NotNifti::Truncated)?;
        let pair = match version {
            Version::One => Self::is_pair(&bytes[344..348], MAGIC_ONE, MAGIC_PAIR)?,
            Version::Two => Self::is_pair(&bytes[4..12], MAGIC_TWO, MAGIC_PAIR_TWO)?,
        };
        Ok(Self::read(&Fields { bytes, version, endian }, pair))
    }

    fn is_pair(magic: &[u8], single: &[u8], pair: &[u8]) -> Result<bool, NotNifti> {
        match magic {
            m if m == single => Ok(false),
            m if m == pair => Ok(true),
            m => Err(NotNifti::Magic(m.to_vec())),
        }
    }

    fn read(fields: &Fields, pair: bool) -> Self {
        let at = fields.version.positions();
        let (float, int) = (fields.version.float_bytes(), fields.version.dim_bytes());
        let code = fields.version.code_bytes();
        Self {
            pair,
            version: fields.version,
            endian: fields.endian,
            dim: std::array::from_fn(|i| fields.int(at.dim + i * int, int)),
            intent_parameters: fields.floats(at.intent_parameters),
            intent_code: fields.int(at.intent_code, code) as i32,
            intent_name: fields.text(at.intent_name, INTENT_NAME_BYTES),
            datatype: fields.int(at.datatype, 2) as i16,
            bitpix: fields.int(at.bitpix, 2) as i16,
            pixdim: fields.floats(at.pixdim),
            vox_offset: match fields.version {
                Version::One => fields.float(at.vox_offset),
                Version::Two => fields.int(at.vox_offset, 8) as f64,
            },
            scl_slope: fields.float(at.scl_slope),
            scl_inter: fields.float(at.scl_slope + float),
            xyzt_units: match fields.version {
                Version::One => i32::from(fields.bytes[at.xyzt_units]),
                Version::Two => fields.int(at.xyzt_units, 4) as i32,
            },
            description: fields.text(at.description, DESCRIPTION_BYTES),
            qform_code: fields.int(at.qform_code, code) as i32,
            sform_code: fields.int(at.qform_code + code, code) as i32,
            quatern: fields.floats(at.quatern),
            qoffset: fields.floats(at.qoffset),
            srow: std::array::from_fn(|i| fields.floats(at.srow + i * 4 * float)),
        }
    }

    /// The bytes up to the first data byte: header and an empty extension flag.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (version, at) = (self.version, self.version.positions());
        let (float, int, code) = (version.float_bytes(), version.dim_bytes(), version.code_bytes());
        let mut out =
            FieldsMut { bytes: vec![0; version.first_data_byte()], version, endian: self.endian };
        out.put_int(0, 4, version.header_bytes() as i64);
        let magic: &[u8] = match version {
            Version::One => MAGIC_ONE,
            Version::Two => MAGIC_TWO,
        };
        out.bytes[at.magic..at.magic + magic.len()].copy_from_slice(magic);
        for (i, &size) in self.dim.iter().enumerate() {
            out.put_int(at.dim + i * int, int, size);
        }
        out.put_floats(at.intent_parameters, &self.intent_parameters);
        out.put_int(at.intent_code, code, self.intent_code.into());
        out.put_text(at.intent_name, INTENT_NAME_BYTES, &self.intent_name);
        out.put_int(at.datatype, 2, self.datatype.into());
        out.put_int(at.bitpix, 2, self.bitpix.into());
        out.put_floats(at.pixdim, &self.pixdim);
        match version {
            Version::One => out.put_floats(at.vox_offset, &[self.vox_offset]),
            Version::Two => out.put_int(at.vox_offset, 8, self.vox_offset as i64),
        }
        out.put_floats(at.scl_slope, &[self.scl_slope, self.scl_inter]);
        match version {
            Version::One => out.bytes[at.xyzt_units] = self.xyzt_units as u8,
            Version::Two => out.put_int(at.xyzt_units, 4, self.xyzt_units.into()),
        }
        out.put_text(at.description, DESCRIPTION_BYTES, &self.description);
        out.put_int(at.qform_code, code, self.qform_code.into());
        out.put_int(at.qform_code + code, code, self.sform_code.into());
        out.put_floats(at.quatern, &self.quatern);
        out.put_floats(at.qoffset, &self.qoffset);
        for (i, row) in self.srow.iter().enumerate() {
            out.put_floats(at.srow + i * 4 * float, row);
        }
        out.bytes
    }
}

impl Version {
    const fn positions(self) -> &'static Positions {
        match self {
            Version::One => &ONE,
            Version::Two => &TWO,
        }
    }

    const fn float_bytes(self) -> usize {
        match self {
            Version::One => 4,
            Version::Two => 8,
        }
    }

    const fn dim_bytes(self) -> usize {
        match self {
            Version::One => 2,
            Version::Two => 8,
        }
    }

    /// Width of the qform, sform and intent codes.
    const fn code_bytes(self) -> usize {
        match self {
            Version::One => 2,
            Version::Two => 4,
        }
    }
}

struct Fields<'a> {
    bytes: &'a [u8],
    version: Version,
    endian: Endian,
}

impl Fields<'_> {
    /// The number of `N` bytes at `at`, least significant byte first.
    fn little<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut number: [u8; N] = std::array::from_fn(|i| self.bytes[at + i]);
        if self.endian == Endian::Big {
            number.reverse();
        }
        number
    }

    fn int(&self, at: usize, bytes: usize) -> i64 {
        match bytes {
            2 => i16::from_le_bytes(self.little(at)).into(),
            4 => i32::from_le_bytes(self.little(at)).into(),
            _ => i64::from_le_bytes(self.little(at)),
        }
    }

    fn float(&self, at: usize) -> f64 {
        match self.version {
            Version::One => f32::from_le_bytes(self.little(at)).into(),
            Version::Two => f64::from_le_bytes(self.little(at)),
        }
    }

    fn floats<const N: usize>(&self, at: usize) -> [f64; N] {
        std::array::from_fn(|i| self.float(at + i * self.version.float_bytes()))
    }

    /// Text up to the first zero byte.
    fn text(&self, at: usize, bytes: usize) -> String {
        let field = &self.bytes[at..at + bytes];
        let end = field.iter().position(|&b| b == 0).unwrap_or(bytes);
        String::from_utf8_lossy(&field[..end]).into_owned()
    }
}

struct FieldsMut {
    bytes: Vec<u8>,
    version: Version,
    endian: Endian,
}

impl FieldsMut {
    fn put<const N: usize>(&mut self, at: usize, mut little: [u8; N]) {
        if self.endian == Endian::Big {
            little.reverse();
        }
        self.bytes[at..at + N].copy_from_slice(&little);
    }

    fn put_int(&mut self, at: usize, bytes: usize, value: i64) {
        match bytes {
            2 => self.put(at, (value as i16).to_le_bytes()),
            4 => self.put(at, (value as i32).to_le_bytes()),
            _ => self.put(at, value.to_le_bytes()),
        }
    }

    fn put_floats(&mut self, at: usize, values: &[f64]) {
        for (i, &value) in values.iter().enumerate() {
            match self.version {
                Version::One => self.put(at + 4 * i, (value as f32).to_le_bytes()),
                Version::Two => self.put(at + 8 * i, value.to_le_bytes()),
            }
        }
    }

    /// Text cut to leave room for the closing zero byte.
    fn put_text(&mut self, at: usize, bytes: usize, text: &str) {
        let mut end = text.len().min(bytes - 1);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.bytes[at..at + end].copy_from_slice(&text.as_bytes()[..end]);
    }
}
