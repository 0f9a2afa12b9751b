//! Deflate without matches, for bytes in which nothing comes again: Huffman codes of the bytes alone.
//!
//! Mantissas of floats are noise. A search for matches in them finds next to nothing and takes nearly all of the time.

use std::array;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Bytes that have codes of their own: few enough that these follow what changes, many enough to pay for their header.
const PART: usize = 1 << 15;
/// The bytes and the end of a part.
const SYMBOLS: usize = 257;
const END: usize = 256;
/// Bits of a code, at most (RFC 1951).
const LONGEST: u8 = 15;
/// What a part has beside its codes: type and counts, lengths of 19 codes of lengths, and a length each of the symbols
/// and of two distances.
const HEADER_BITS: usize = 3 + 14 + 19 * 3 + (SYMBOLS + 2) * 4;

/// Blocks that are not the last ones, and an empty stored one, which ends at a whole byte.
pub(super) fn deflate(bytes: &[u8]) -> Vec<u8> {
    let parts: Vec<(&[u8], Codes)> =
        bytes.chunks(PART).map(|part| (part, Codes::of(&counts(part)))).collect();
    let bits: usize = parts.iter().map(|(_, codes)| codes.bits).sum();
    let mut out = Bits::with_room_for(bits);
    for (part, codes) in &parts {
        codes.write_header(&mut out);
        // Three codes and what is left of a byte fit into 64 bits.
        for bytes in part.chunks(3) {
            bytes.iter().for_each(|&byte| out.hold(codes.codes[usize::from(byte)]));
            out.put();
        }
        out.hold(codes.codes[END]);
        out.put();
    }
    out.flushed()
}

/// Bits that [`deflate`] would take for these bytes, with codes of their own.
pub(super) fn bits(bytes: &[u8]) -> usize {
    Codes::of(&counts(bytes)).bits
}

fn counts(bytes: &[u8]) -> [u32; SYMBOLS] {
    // Equal bytes often follow each other: four tables, so that one count need not wait for the last one.
    let mut tables = [[0u32; 256]; 4];
    for four in bytes.chunks(4) {
        for (table, &byte) in tables.iter_mut().zip(four) {
            table[usize::from(byte)] += 1;
        }
    }
    array::from_fn(|symbol| match symbol {
        END => 1,
        byte => tables.iter().map(|table| table[byte]).sum(),
    })
}

/// A code: its bits, the first one lowest, and how many they are.
#[derive(Clone, Copy, Default)]
struct Code {
    bits: u16,
    length: u8,
}

struct Codes {
    codes: [Code; SYMBOLS],
    /// Of the part, with its header.
    bits: usize,
}

impl Codes {
    fn of(counts: &[u32; SYMBOLS]) -> Self {
        let lengths = lengths(counts);
        let codes = canonical(&lengths);
        let of_symbols = counts.iter().zip(&lengths);
        let bits = of_symbols.map(|(&count, &length)| count as usize * usize::from(length));
        Self { codes, bits: HEADER_BITS + bits.sum::<usize>() }
    }

    /// That of a block with codes of its own. Lengths are written with four bits each, without runs.
    fn write_header(&self, out: &mut Bits) {
        let mut write = |bits: u16, length: u8| {
            out.hold(Code { bits, length });
            out.put();
        };
        // Not the last block; its own codes; 257 symbols, 2 distances, 19 lengths of codes of lengths.
        write(0, 1);
        write(2, 2);
        write(0, 5);
        write(1, 5);
        write(15, 4);
        // Those of the runs come first, and do not occur.
        (0..19).for_each(|place| write(if place < 3 { 0 } else { 4 }, 3));
        let distances = [1, 1];
        for length in self.codes.iter().map(|code| code.length).chain(distances) {
            write(reversed(length.into(), 4), 4);
        }
    }
}

/// Lengths of Huffman codes, at most [`LONGEST`]; 0 for what does not occur.
fn lengths(counts: &[u32; SYMBOLS]) -> [u8; SYMBOLS] {
    let mut counts = *counts;
    loop {
        let lengths = unlimited(&counts);
        if lengths.iter().all(|&length| length <= LONGEST) {
            return lengths;
        }
        // Flatter: what is rare gains.
        counts.iter_mut().filter(|count| **count > 0).for_each(|count| *count = *count / 2 + 1);
    }
}

/// Lengths of Huffman codes: the two rarest become one, until one is left.
fn unlimited(counts: &[u32; SYMBOLS]) -> [u8; SYMBOLS] {
    let there = (0..SYMBOLS).filter(|&symbol| counts[symbol] > 0);
    let mut heap: BinaryHeap<_> =
        there.map(|symbol| Reverse((u64::from(counts[symbol]), symbol))).collect();
    let mut above = vec![0; 2 * SYMBOLS];
    let mut node = SYMBOLS;
    while let (Some(Reverse(a)), Some(Reverse(b))) = (heap.pop(), heap.pop()) {
        (above[a.1], above[b.1]) = (node, node);
        heap.push(Reverse((a.0 + b.0, node)));
        node += 1;
    }
    let mut depth = vec![0u8; node];
    // A node stands above those of smaller numbers.
    for below in (0..node - 1).rev().filter(|&node| above[node] > 0) {
        depth[below] = depth[above[below]] + 1;
    }
    array::from_fn(|symbol| depth[symbol])
}

/// The codes of some lengths, in the order of the symbols (RFC 1951, 3.2.2).
fn canonical(lengths: &[u8; SYMBOLS]) -> [Code; SYMBOLS] {
    let mut codes = [Code::default(); SYMBOLS];
    let mut next = 0u16;
    for length in 1..=LONGEST {
        next <<= 1;
        for symbol in (0..SYMBOLS).filter(|&symbol| lengths[symbol] == length) {
            codes[symbol] = Code { bits: reversed(next, length), length };
            next += 1;
        }
    }
    codes
}

/// Codes are written from their highest bit on, everything else from the lowest.
fn reversed(bits: u16, length: u8) -> u16 {
    bits.reverse_bits() >> (16 - length)
}

/// Bits in bytes, the lowest ones first.
struct Bits {
    bytes: Vec<u8>,
    /// Whole bytes written.
    length: usize,
    held: u64,
    count: u32,
}

impl Bits {
    fn with_room_for(bits: usize) -> Self {
        // Eight bytes are written at a time, and a flush follows.
        Self { bytes: vec![0; bits / 8 + 16], length: 0, held: 0, count: 0 }
    }

    /// Not more than 64 bits before they are [`put`](Self::put), with up to 7 that were left.
    fn hold(&mut self, Code { bits, length }: Code) {
        self.held |= u64::from(bits) << self.count;
        self.count += u32::from(length);
    }

    fn put(&mut self) {
        self.bytes[self.length..self.length + 8].copy_from_slice(&self.held.to_le_bytes());
        self.length += (self.count / 8) as usize;
        self.held >>= self.count / 8 * 8;
        self.count %= 8;
    }

    /// All bytes, and an empty stored block.
    fn flushed(mut self) -> Vec<u8> {
        self.hold(Code { bits: 0, length: 3 });
        self.count = self.count.next_multiple_of(8);
        self.put();
        self.bytes.truncate(self.length);
        self.bytes.extend(super::FLUSHED);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_symbols_keep_to_the_longest_code() {
        // Counts of Fibonacci make one code a bit longer than the other.
        let mut counts = [0u32; SYMBOLS];
        let mut pair = (1, 1);
        for count in &mut counts[..30] {
            *count = pair.0;
            pair = (pair.1, pair.0 + pair.1);
        }
        counts[END] = 1;
        assert!(unlimited(&counts).iter().any(|&length| length > LONGEST));
        let lengths = lengths(&counts);
        let used = lengths.iter().filter(|&&length| length > 0);
        let all: f64 = used.map(|&length| 0.5f64.powi(length.into())).sum();
        assert_eq!(all, 1.0, "a complete code");
        assert!(lengths.iter().all(|&length| length <= LONGEST));
        assert!((0..SYMBOLS).all(|symbol| (lengths[symbol] > 0) == (counts[symbol] > 0)));
    }
}
