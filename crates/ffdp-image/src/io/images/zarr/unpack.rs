//! Streams that unpack to a number of bytes that is known.

use std::io::{self, Read};

/// One Zstandard frame of `expected` bytes.
pub(super) fn unpack_zstd(packed: &[u8], expected: usize) -> io::Result<Vec<u8>> {
    let decoder = ruzstd::decoding::StreamingDecoder::new(packed).map_err(io::Error::other)?;
    exactly(&mut { decoder }, expected)
}

/// All that a stream has, which must be so many bytes.
pub(super) fn exactly(stream: &mut dyn Read, expected: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(expected);
    stream.take(expected as u64 + 1).read_to_end(&mut bytes)?;
    match bytes.len() == expected {
        true => Ok(bytes),
        false => Err(io::Error::other(format!(
            "{} bytes are there, the chunk has {expected}",
            if bytes.len() > expected { "more".to_string() } else { bytes.len().to_string() }
        ))),
    }
}
