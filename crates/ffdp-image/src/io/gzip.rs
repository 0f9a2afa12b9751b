//! Gzip on all cores: blocks are compressed apart and joined into one ordinary member.
//!
//! Format: RFC 1951 and 1952. A block ends with a sync flush, which aligns it to a byte, so that
//! the next one can follow; a last, empty block closes the stream.

use std::io::{self, Write};

use flate2::{Compress, Compression, Crc, FlushCompress};
use rayon::prelude::*;

/// Bytes compressed at a time: long enough that the dictionaries lost between blocks do not show
/// in the size.
const BLOCK: usize = 1 << 20;
/// Blocks collected before they are compressed together.
const BLOCKS: usize = 16;

/// Magic, deflate, no flags, no time, no extra flags, unknown system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
/// A final deflate block with fixed codes and nothing in it.
const LAST_BLOCK: [u8; 2] = [3, 0];

/// Compresses what is written to it; call [`ParallelGzip::finish`] at the end.
pub struct ParallelGzip<W: Write> {
    inner: W,
    level: Compression,
    pending: Vec<u8>,
    crc: Crc,
}

impl<W: Write> ParallelGzip<W> {
    /// A stream into `inner`, whose header is written at once.
    ///
    /// # Errors
    /// Those of `inner`.
    pub fn new(mut inner: W, level: Compression) -> io::Result<Self> {
        inner.write_all(&HEADER)?;
        Ok(Self { inner, level, pending: Vec::new(), crc: Crc::new() })
    }

    /// Writes what is left, the end and the checksum; gives `inner` back.
    ///
    /// # Errors
    /// Those of `inner`.
    pub fn finish(mut self) -> io::Result<W> {
        self.compress_pending()?;
        self.inner.write_all(&LAST_BLOCK)?;
        self.inner.write_all(&self.crc.sum().to_le_bytes())?;
        // The length modulo 2^32, as the format has it.
        self.inner.write_all(&self.crc.amount().to_le_bytes())?;
        Ok(self.inner)
    }

    fn compress_pending(&mut self) -> io::Result<()> {
        let level = self.level;
        let blocks: Vec<io::Result<(Vec<u8>, Crc)>> =
            self.pending.par_chunks(BLOCK).map(|block| deflate(block, level)).collect();
        for block in blocks {
            let (bytes, crc) = block?;
            self.inner.write_all(&bytes)?;
            self.crc.combine(&crc);
        }
        self.pending.clear();
        Ok(())
    }
}

impl<W: Write> Write for ParallelGzip<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pending.extend_from_slice(bytes);
        if self.pending.len() >= BLOCK * BLOCKS {
            self.compress_pending()?;
        }
        Ok(bytes.len())
    }

    /// Compresses and hands on what is pending; blocks become shorter by it.
    fn flush(&mut self) -> io::Result<()> {
        self.compress_pending()?;
        self.inner.flush()
    }
}

/// What a sync flush ends with: an empty stored block.
const FLUSHED: [u8; 4] = [0, 0, 0xff, 0xff];

/// One block as a deflate stream that is not closed, and its checksum.
///
/// It has room for all of it from the start: given less, and called again with more, miniz_oxide (0.9.1) may end a
/// flush whose last bytes it still holds.
fn deflate(block: &[u8], level: Compression) -> io::Result<(Vec<u8>, Crc)> {
    let mut crc = Crc::new();
    crc.update(block);
    let mut compressor = Compress::new(level, false);
    // What does not shrink is stored, with a few bytes for each 64 kB at most.
    let mut bytes = Vec::with_capacity(block.len() + block.len() / 8 + 1024);
    compressor.compress_vec(block, &mut bytes, FlushCompress::Sync)?;
    let whole = compressor.total_in() == block.len() as u64 && bytes.ends_with(&FLUSHED);
    match whole && bytes.len() < bytes.capacity() {
        true => Ok((bytes, crc)),
        false => Err(io::Error::other("gzip: deflate did not finish a block")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::bufread::GzDecoder;

    use super::*;

    fn compressed(parts: &[&[u8]]) -> Vec<u8> {
        let mut stream = ParallelGzip::new(Vec::new(), Compression::fast()).unwrap();
        parts.iter().for_each(|part| stream.write_all(part).unwrap());
        stream.finish().unwrap()
    }

    #[test]
    fn every_length_comes_back_as_one_member() {
        // Noise does not shrink, zeros vanish; lengths around a block and around a batch.
        let noise: Vec<u8> = (0..BLOCK * BLOCKS + 77)
            .map(|i| ((i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8)
            .collect();
        for length in [0, 1, 1000, BLOCK - 1, BLOCK, BLOCK + 1, noise.len()] {
            for data in [&noise[..length], &vec![0; length][..]] {
                let whole = compressed(&[data]);
                let mut decoder = GzDecoder::new(whole.as_slice());
                let mut back = Vec::new();
                // Checks the checksum and the length too.
                decoder.read_to_end(&mut back).unwrap();
                assert!(back == data, "{length} bytes");
                assert!(decoder.into_inner().is_empty(), "nothing follows the member");
            }
        }
    }

    #[test]
    fn what_shrinks_to_half_comes_back() {
        // Where the room for a block was half of it, three in a hundred of these lengths lost their ends.
        let mixed = |i: usize| {
            let noise = (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let noise = (noise ^ (noise >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            if i % 4 < 2 { 0 } else { (noise >> 56) as u8 }
        };
        let data: Vec<u8> = (0..400_000).map(mixed).collect();
        for length in (20_000..data.len()).step_by(1001) {
            let whole = compressed(&[&data[..length]]);
            let mut back = Vec::new();
            GzDecoder::new(whole.as_slice()).read_to_end(&mut back).expect("sound");
            assert!(back == data[..length], "{length} bytes");
        }
    }

    #[test]
    fn the_bytes_do_not_depend_on_how_they_are_written() {
        let data: Vec<u8> = (0..3 * BLOCK).map(|i| (i / 100) as u8).collect();
        let at_once = compressed(&[&data]);
        let parts: Vec<&[u8]> = data.chunks(70_001).collect();
        assert!(compressed(&parts) == at_once);
        assert!(at_once.len() < data.len() / 20, "compresses: {}", at_once.len());
    }
}
