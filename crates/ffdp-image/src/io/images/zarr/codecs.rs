//! How a chunk is packed, and how it is unpacked to exactly the bytes that it must have.

use std::io;

use crc32c::crc32c;
use flate2::read::{MultiGzDecoder, ZlibDecoder};

use super::super::data_type::Endian;
use super::blosc;
use super::unpack::{exactly, unpack_zstd};

/// A step from a chunk to the bytes in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Codec {
    /// Axis `i` of what is stored is this one of the chunk's.
    Transpose(Vec<usize>),
    Bytes(Endian),
    Packed(Compressor),
    /// Four bytes at the end.
    Checksum,
}

/// Compressors of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compressor {
    Gzip,
    Zlib,
    Zstd,
    Blosc,
}

impl Compressor {
    /// By the name that Zarr 2 and 3 give it.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "gzip" => Self::Gzip,
            "zlib" | "numcodecs.zlib" => Self::Zlib,
            "zstd" | "numcodecs.zstd" => Self::Zstd,
            "blosc" | "numcodecs.blosc" => Self::Blosc,
            _ => return None,
        })
    }

    /// Unpacks what must be `expected` bytes.
    fn unpack(self, packed: &[u8], expected: usize) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip => exactly(&mut MultiGzDecoder::new(packed), expected),
            Self::Zlib => exactly(&mut ZlibDecoder::new(packed), expected),
            Self::Zstd => unpack_zstd(packed, expected),
            Self::Blosc => blosc::unpack(packed, expected),
        }
    }
}

/// A chunk of `expected` bytes, values of `width` bytes least significant first, still in the order of its last
/// transposition.
pub fn decode(
    codecs: &[Codec],
    packed: Vec<u8>,
    expected: usize,
    width: usize,
) -> io::Result<Vec<u8>> {
    let mut bytes = packed;
    let checksums =
        |codecs: &[Codec]| codecs.iter().filter(|codec| matches!(codec, Codec::Checksum)).count();
    for (i, codec) in codecs.iter().enumerate().rev() {
        match codec {
            Codec::Checksum => {
                let (content, sum) = bytes
                    .split_last_chunk::<4>()
                    .ok_or_else(|| io::Error::other("the chunk is shorter than its checksum"))?;
                if crc32c(content) != u32::from_le_bytes(*sum) {
                    return Err(io::Error::other("the checksum does not match"));
                }
                bytes.truncate(bytes.len() - 4);
            }
            Codec::Packed(compressor) => {
                // What is packed twice has a length that is not known; nobody does so.
                let packed_before = codecs[..i].iter().any(|c| matches!(c, Codec::Packed(_)));
                if packed_before {
                    return Err(io::Error::other("chunks that are packed twice are not read"));
                }
                bytes = compressor.unpack(&bytes, expected + 4 * checksums(&codecs[..i]))?;
            }
            Codec::Bytes(Endian::Big) => {
                bytes.chunks_exact_mut(width).for_each(<[u8]>::reverse);
            }
            Codec::Bytes(Endian::Little) | Codec::Transpose(_) => {}
        }
    }
    match bytes.len() == expected {
        true => Ok(bytes),
        false => Err(io::Error::other(format!(
            "{} bytes are there, the chunk has {expected}",
            bytes.len()
        ))),
    }
}

/// Steps in memory, in values, along the axes of a chunk after [`decode`].
pub fn strides(codecs: &[Codec], chunk: &[usize]) -> Vec<usize> {
    // Where each axis of what is stored lies in the chunk.
    let mut stored: Vec<usize> = (0..chunk.len()).collect();
    for codec in codecs {
        if let Codec::Transpose(order) = codec {
            stored = order.iter().map(|&axis| stored[axis]).collect();
        }
    }
    let mut strides = vec![0; chunk.len()];
    let mut step = 1;
    for &axis in stored.iter().rev() {
        strides[axis] = step;
        step *= chunk[axis];
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_standard() {
        // RFC 3720, appendix B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    }

    #[test]
    fn a_transposed_chunk_has_its_strides() {
        let order = |order: &[usize]| Codec::Transpose(order.to_vec());
        assert_eq!(strides(&[], &[2, 3, 4]), [12, 4, 1]);
        assert_eq!(strides(&[order(&[2, 1, 0])], &[2, 3, 4]), [1, 2, 6]);
        // Stored as [4, 2, 3] of axes 2, 0, 1.
        assert_eq!(strides(&[order(&[2, 0, 1])], &[2, 3, 4]), [3, 1, 6]);
    }
}
