//! Gzip on all cores: blocks are compressed apart and joined into one ordinary member.
//!
//! Format: RFC 1951 and 1952. A block ends with a sync flush, which aligns it to a byte, so that
//! the next one can follow; a last, empty block closes the stream. A block that would hardly shrink, as those of
//! displacements do, is stored as it is: compressing it takes most of the time and gains some percent.

use std::io::{self, Write};
use std::thread;

use flate2::{Compress, Compression, Crc, FlushCompress};
use rayon::prelude::*;

/// Bytes compressed at a time: long enough that the dictionaries lost between blocks do not show
/// in the size.
const BLOCK: usize = 1 << 20;
/// Blocks collected before they are compressed together.
const BLOCKS: usize = 8;
/// Pieces of a block that are compressed to see whether the whole is worth it, and their length.
const SAMPLES: usize = 4;
const SAMPLE: usize = 1 << 14;
/// To what part of their length they have to shrink.
const WORTH: f64 = 0.9;
/// Most bytes that a stored block of deflate holds.
const STORED: usize = 0xffff;

/// Magic, deflate, no flags, no time, no extra flags, unknown system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
/// A final deflate block with fixed codes and nothing in it.
const LAST_BLOCK: [u8; 2] = [3, 0];

/// Compresses what is written to it; call [`ParallelGzip::finish`] at the end.
pub struct ParallelGzip<W: Write> {
    inner: W,
    level: Compression,
    pending: Vec<u8>,
    /// Blocks that are compressed; they are written while the next ones are compressed.
    packed: Vec<Vec<u8>>,
    crc: Crc,
}

impl<W: Write + Send> ParallelGzip<W> {
    /// A stream into `inner`, whose header is written at once.
    ///
    /// # Errors
    /// Those of `inner`.
    pub fn new(mut inner: W, level: Compression) -> io::Result<Self> {
        inner.write_all(&HEADER)?;
        Ok(Self { inner, level, pending: Vec::new(), packed: Vec::new(), crc: Crc::new() })
    }

    /// Writes what is left, the end and the checksum; gives `inner` back.
    ///
    /// # Errors
    /// Those of `inner`.
    pub fn finish(mut self) -> io::Result<W> {
        self.compress_pending()?;
        self.write_packed()?;
        self.inner.write_all(&LAST_BLOCK)?;
        self.inner.write_all(&self.crc.sum().to_le_bytes())?;
        // The length modulo 2^32, as the format has it.
        self.inner.write_all(&self.crc.amount().to_le_bytes())?;
        Ok(self.inner)
    }

    fn compress_pending(&mut self) -> io::Result<()> {
        let compressor = || Compress::new(self.level, false);
        let blocks = self.pending.par_chunks(BLOCK);
        let blocks = blocks.map_init(compressor, |compressor, block| {
            let mut crc = Crc::new();
            crc.update(block);
            (pack(block, compressor), crc)
        });
        let (inner, packed) = (&mut self.inner, std::mem::take(&mut self.packed));
        let (written, blocks) = thread::scope(|scope| {
            let written = (!packed.is_empty()).then(|| scope.spawn(|| write_all(inner, &packed)));
            let blocks: Vec<_> = blocks.collect();
            (written.map(|thread| thread.join().expect("writers do not panic")), blocks)
        });
        written.transpose()?;
        for (bytes, crc) in blocks {
            self.packed.push(bytes?);
            self.crc.combine(&crc);
        }
        self.pending.clear();
        Ok(())
    }

    fn write_packed(&mut self) -> io::Result<()> {
        write_all(&mut self.inner, &std::mem::take(&mut self.packed))
    }
}

fn write_all(to: &mut impl Write, blocks: &[Vec<u8>]) -> io::Result<()> {
    blocks.iter().try_for_each(|block| to.write_all(block))
}

impl<W: Write + Send> Write for ParallelGzip<W> {
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
        self.write_packed()?;
        self.inner.flush()
    }
}

/// What a sync flush ends with: an empty stored block.
const FLUSHED: [u8; 4] = [0, 0, 0xff, 0xff];

/// One block as a deflate stream that is not closed.
fn pack(block: &[u8], compressor: &mut Compress) -> io::Result<Vec<u8>> {
    if block.len() > 2 * SAMPLES * SAMPLE {
        let apart = block.len() / SAMPLES;
        let samples = (0..SAMPLES).flat_map(|k| &block[k * apart..][..SAMPLE]);
        let samples: Vec<u8> = samples.copied().collect();
        if deflated(&samples, compressor)?.len() as f64 > WORTH * samples.len() as f64 {
            return Ok(stored(block));
        }
    }
    deflated(block, compressor)
}

/// Compressed, to a sync flush.
///
/// It has room for all of it from the start: given less, and called again with more, miniz_oxide (0.9.1) may end a
/// flush whose last bytes it still holds.
fn deflated(block: &[u8], compressor: &mut Compress) -> io::Result<Vec<u8>> {
    compressor.reset();
    // What does not shrink is stored, with a few bytes for each 64 kB at most.
    let mut bytes = Vec::with_capacity(block.len() + block.len() / 8 + 1024);
    compressor.compress_vec(block, &mut bytes, FlushCompress::Sync)?;
    let whole = compressor.total_in() == block.len() as u64 && bytes.ends_with(&FLUSHED);
    match whole && bytes.len() < bytes.capacity() {
        true => Ok(bytes),
        false => Err(io::Error::other("gzip: deflate did not finish a block")),
    }
}

/// As it is: before each piece a byte that says so, its length, and that with all bits turned.
fn stored(block: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(block.len() + 5 * block.len().div_ceil(STORED));
    for piece in block.chunks(STORED) {
        let length = piece.len() as u16;
        bytes.push(0);
        bytes.extend(length.to_le_bytes());
        bytes.extend((!length).to_le_bytes());
        bytes.extend_from_slice(piece);
    }
    bytes
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
    fn what_hardly_shrinks_is_stored() {
        // Bytes of which one in four is noise shrink; when three are, they hardly do.
        let noise = |i: usize| (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (i as u64) << 7;
        let noise = |i: usize| (noise(i).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 56) as u8;
        for (noisy, shrinks) in [(1, true), (3, true), (4, false)] {
            let byte = |i: usize| if i % 4 < noisy { noise(i) } else { 7 };
            let data: Vec<u8> = (0..2 * BLOCK + 70_000).map(byte).collect();
            let whole = compressed(&[&data]);
            let mut back = Vec::new();
            GzDecoder::new(whole.as_slice()).read_to_end(&mut back).expect("sound");
            assert!(back == data, "{noisy}");
            // The last block is too short for samples.
            let least = data.len() as f64 * if shrinks { 0.0 } else { 1.0 };
            let most = data.len() as f64 * if shrinks { 0.9 } else { 1.001 };
            assert!((least..most).contains(&(whole.len() as f64)), "{noisy}: {}", whole.len());
        }
    }

    #[test]
    fn what_shrinks_to_half_comes_back() {
        // With room for half a block, three in a hundred of these lengths lose their ends.
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
