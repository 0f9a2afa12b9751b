//! The container of Blosc 1: blocks, each shuffled and packed, as its `README_CHUNK_FORMAT` describes.
//!
//! Unpacked are BloscLZ (the block format of FastLZ, level 2), LZ4, zlib and Zstandard, with bytes or bits shuffled;
//! packed is with LZ4 and bytes shuffled.

use std::io;

use flate2::read::ZlibDecoder;

use super::unpack::{exactly, unpack_zstd};

const HEADER: usize = 16;
const SHUFFLED: u8 = 1;
const COPIED: u8 = 2;
const BIT_SHUFFLED: u8 = 4;
const NOT_SPLIT: u8 = 16;
/// Blocks of wider values are never split.
const MOST_SPLITS: usize = 16;
/// Nor are those that would fall into shorter parts.
const SHORTEST_PART: usize = 128;

/// Bytes of a block that we pack: its values and their packed form stay in the cache.
const BLOCK: usize = 1 << 17;
const LZ4: u8 = 1;

fn bad(what: impl ToString) -> io::Error {
    io::Error::other(format!("blosc: {}", what.to_string()))
}

/// A number of 4 bytes that is a length or position.
fn number(bytes: &[u8], at: usize) -> io::Result<usize> {
    let four = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    four.map(|four| u32::from_le_bytes(*four) as usize).ok_or_else(|| bad("the chunk is truncated"))
}

/// Unpacks a chunk that must be `expected` bytes.
pub fn unpack(packed: &[u8], expected: usize) -> io::Result<Vec<u8>> {
    let (size, block, whole) = (number(packed, 4)?, number(packed, 8)?, number(packed, 12)?);
    let [flags, width] = [packed[2], packed[3]];
    if size != expected || whole > packed.len() || width == 0 {
        return Err(bad(format!("{size} bytes of width {width} are there, {expected} expected")));
    }
    let packed = &packed[..whole];
    if flags & COPIED != 0 {
        let content = packed.get(HEADER..HEADER + size);
        return content.map(<[u8]>::to_vec).ok_or_else(|| bad("the chunk is truncated"));
    }
    if size == 0 {
        return Ok(Vec::new());
    }
    if block == 0 || block > size {
        return Err(bad(format!("blocks of {block} bytes")));
    }
    let width = usize::from(width);
    let mut bytes = vec![0; size];
    for (i, out) in bytes.chunks_mut(block).enumerate() {
        let start = number(packed, HEADER + 4 * i)?;
        // The last, shorter block is one part.
        let split = flags & NOT_SPLIT == 0
            && width <= MOST_SPLITS
            && block / width >= SHORTEST_PART
            && out.len() == block;
        let parts = if split { width } else { 1 };
        if out.len() % parts != 0 {
            return Err(bad(format!("a block of {} bytes in {parts} parts", out.len())));
        }
        unpack_block(packed, start, flags >> 5, parts, out)?;
        if flags & SHUFFLED != 0 && width > 1 {
            let shuffled = out.to_vec();
            unshuffle(&shuffled, width, out);
        } else if flags & BIT_SHUFFLED != 0 {
            let shuffled = out.to_vec();
            unshuffle_bits(&shuffled, width, out);
        }
    }
    Ok(bytes)
}

fn unpack_block(
    packed: &[u8],
    mut at: usize,
    format: u8,
    parts: usize,
    out: &mut [u8],
) -> io::Result<()> {
    let length = out.len() / parts;
    for out in out.chunks_mut(length) {
        let size = number(packed, at)?;
        let content = packed.get(at + 4..).and_then(|rest| rest.get(..size));
        let content = content.ok_or_else(|| bad("the chunk is truncated"))?;
        at += 4 + size;
        if size == length {
            out.copy_from_slice(content);
            continue;
        }
        match format {
            0 => unpack_blosclz(content, out)?,
            LZ4 => {
                let count = lz4_flex::block::decompress_into(content, out).map_err(bad)?;
                if count != length {
                    return Err(bad(format!("{count} of {length} bytes of a block")));
                }
            }
            3 => out.copy_from_slice(&exactly(&mut ZlibDecoder::new(content), length)?),
            4 => out.copy_from_slice(&unpack_zstd(content, length)?),
            2 => return Err(bad("Snappy is not read; write it anew with another cname")),
            other => return Err(bad(format!("compressor {other} is not known"))),
        }
    }
    Ok(())
}

/// FastLZ, level 2: runs of literals, and matches of 3 bytes or more up to 8191 + 65535 bytes back.
fn unpack_blosclz(packed: &[u8], out: &mut [u8]) -> io::Result<()> {
    const NEAR: usize = 8191;
    let truncated = || bad("the chunk is truncated");
    let mut input = packed.iter().copied();
    let mut next = || input.next().map(usize::from);
    let mut done = 0;
    // The first byte holds the format in its upper bits.
    let mut control = next().ok_or_else(truncated)? & 31;
    loop {
        if control < 32 {
            for _ in 0..=control {
                let byte = next().ok_or_else(truncated)?;
                *out.get_mut(done).ok_or_else(|| bad("a block is longer than it says"))? =
                    byte as u8;
                done += 1;
            }
        } else {
            let mut length = (control >> 5) + 2;
            if control >> 5 == 7 {
                loop {
                    let more = next().ok_or_else(truncated)?;
                    length += more;
                    if more != 255 {
                        break;
                    }
                }
            }
            let low = next().ok_or_else(truncated)?;
            let mut distance = ((control & 31) << 8) + low + 1;
            if control & 31 == 31 && low == 255 {
                let (high, low) = (next().ok_or_else(truncated)?, next().ok_or_else(truncated)?);
                distance = NEAR + 1 + (high << 8) + low;
            }
            if distance > done || done + length > out.len() {
                return Err(bad("a match leaves the block"));
            }
            for _ in 0..length {
                out[done] = out[done - distance];
                done += 1;
            }
        }
        match next() {
            Some(byte) => control = byte,
            None if done == out.len() => return Ok(()),
            None => return Err(truncated()),
        }
    }
}

/// From all first bytes, all second bytes, .. to values; what is no whole value stays as it is.
fn unshuffle(shuffled: &[u8], width: usize, out: &mut [u8]) {
    let count = shuffled.len() / width;
    for (k, plane) in shuffled.chunks_exact(count.max(1)).take(width).enumerate() {
        for (value, byte) in out.chunks_exact_mut(width).zip(plane) {
            value[k] = *byte;
        }
    }
    let rest = count * width;
    out[rest..].copy_from_slice(&shuffled[rest..]);
}

/// The same for bits: bit `b` of byte `k` of all values together; only whole eights of values are shuffled.
fn unshuffle_bits(shuffled: &[u8], width: usize, out: &mut [u8]) {
    let count = shuffled.len() / width / 8 * 8;
    let row = count / 8;
    out[..count * width].fill(0);
    for (r, bits) in shuffled[..count * width].chunks_exact(row.max(1)).enumerate() {
        let (byte, bit) = (r / 8, r % 8);
        for (group, bits) in bits.iter().enumerate() {
            for i in 0..8 {
                out[(8 * group + i) * width + byte] |= (bits >> i & 1) << bit;
            }
        }
    }
    let rest = count * width;
    out[rest..].copy_from_slice(&shuffled[rest..]);
}

fn shuffle(values: &[u8], width: usize, out: &mut [u8]) {
    let count = values.len() / width;
    for (k, plane) in out.chunks_exact_mut(count.max(1)).take(width).enumerate() {
        for (value, byte) in values.chunks_exact(width).zip(plane) {
            *byte = value[k];
        }
    }
    let rest = count * width;
    out[rest..].copy_from_slice(&values[rest..]);
}

/// Packs values of `width` bytes: bytes shuffled, LZ4.
pub fn pack(values: &[u8], width: usize) -> Vec<u8> {
    let block = BLOCK.min(values.len()).max(1);
    let blocks = values.len().div_ceil(block);
    let mut packed = vec![0; HEADER + 4 * blocks];
    let (mut shuffled, mut room) = (vec![0; block], Vec::new());
    room.resize(lz4_flex::block::get_maximum_output_size(block), 0);
    for (i, values) in values.chunks(block).enumerate() {
        let start = packed.len() as u32;
        packed[HEADER + 4 * i..][..4].copy_from_slice(&start.to_le_bytes());
        let shuffled = &mut shuffled[..values.len()];
        shuffle(values, width, shuffled);
        let size = lz4_flex::block::compress_into(shuffled, &mut room).expect("there is room");
        let content = if size < values.len() { &room[..size] } else { &*shuffled };
        packed.extend_from_slice(&(content.len() as u32).to_le_bytes());
        packed.extend_from_slice(content);
    }
    let flags = SHUFFLED | NOT_SPLIT | LZ4 << 5;
    packed[..4].copy_from_slice(&[2, 1, flags, width as u8]);
    for (at, number) in [(4, values.len()), (8, block), (12, packed.len())] {
        packed[at..at + 4].copy_from_slice(&(number as u32).to_le_bytes());
    }
    packed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_back() {
        for (count, width) in [(1, 1), (3, 4), (1000, 2), (70_000, 4), (40_000, 8), (131_072, 1)] {
            let smooth: Vec<u8> = (0..count * width).map(|i| (i / 300) as u8).collect();
            let noise: Vec<u8> = (0..count * width)
                .map(|i| ((i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8)
                .collect();
            for values in [smooth, noise] {
                let packed = pack(&values, width);
                assert!(unpack(&packed, values.len()).unwrap() == values, "{count} of {width}");
                assert!(unpack(&packed, values.len() + 1).is_err());
                for cut in [0, 3, 15, 17, packed.len() / 2, packed.len() - 1] {
                    assert!(unpack(&packed[..cut], values.len()).is_err(), "cut at {cut}");
                }
            }
        }
    }

    #[test]
    fn the_formula_of_a_fast_lz_match_is_kept() {
        // Literals a, b, c; 9 + 5 more bytes from 3 back; a literal d.
        let packed = [2, b'a', b'b', b'c', 7 << 5, 5, 2, 0, b'd'];
        let mut out = [0; 18];
        unpack_blosclz(&packed, &mut out).unwrap();
        assert_eq!(&out, b"abcabcabcabcabcabd".first_chunk::<18>().unwrap());
    }
}
