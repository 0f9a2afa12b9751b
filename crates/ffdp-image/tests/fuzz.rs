//! The reader of images against mutated files: the target of `fuzz/` with a seeded loop, so that it
//! runs with a stable compiler. `FFDP_FUZZ_ITERATIONS` makes it longer, `FFDP_FUZZ_SEED` another.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

#[path = "../../../fuzz/nifti.rs"]
mod nifti;

/// A few seconds on one core.
const ITERATIONS: usize = 4000;

/// Numbers at which sizes, offsets and types change their meaning.
const EDGES: [i64; 13] =
    [0, 1, -1, 2, 7, 8, 348, 352, 540, i16::MAX as i64, i32::MAX as i64, i64::MAX, i64::MIN];

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn seeds() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/nifti");
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).expect("the corpus is there").flatten().map(|e| e.path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("readable")).collect()
}

/// One change: a bit, a byte, a number of 1 to 8 bytes, a piece left out, doubled or from another
/// file, or the end cut off.
fn mutate(bytes: &mut Vec<u8>, other: &[u8], rng: &mut ChaCha8Rng) {
    if bytes.is_empty() {
        return;
    }
    // Headers are where meaning is: half of the changes go there.
    let reach = if rng.random_bool(0.5) { bytes.len().min(352) } else { bytes.len() };
    let at = rng.random_range(0..reach);
    let length = rng.random_range(1..=16).min(bytes.len() - at);
    match rng.random_range(0..8) {
        0 => bytes[at] ^= 1 << rng.random_range(0..8),
        1 => bytes[at] = rng.random(),
        2 | 3 => {
            let value = EDGES[rng.random_range(0..EDGES.len())];
            let width = [1, 2, 4, 8][rng.random_range(0..4)].min(bytes.len() - at);
            let little = value.to_le_bytes();
            for (i, byte) in bytes[at..at + width].iter_mut().enumerate() {
                *byte = little[i];
            }
            if rng.random_bool(0.3) {
                bytes[at..at + width].reverse();
            }
        }
        4 => {
            let float = [f32::NAN, f32::INFINITY, -1.0, 1e30, 1e-30][rng.random_range(0..5)];
            let width = 4.min(bytes.len() - at);
            bytes[at..at + width].copy_from_slice(&float.to_le_bytes()[..width]);
        }
        5 => bytes.truncate(at),
        6 => drop(bytes.drain(at..at + length)),
        _ => {
            let from = rng.random_range(0..other.len().max(1)).min(other.len());
            let piece = &other[from..(from + length).min(other.len())];
            bytes.splice(at..at, piece.iter().copied());
        }
    }
}

/// The files of the other formats, of which each is an image by itself.
fn files_of_formats() -> Vec<PathBuf> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/formats");
    let mut files = Vec::new();
    let mut folders = vec![golden];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("they are committed").flatten() {
            match entry.path() {
                path if path.is_dir() => folders.push(path),
                path if path.extension().is_some_and(|end| end != "json") => files.push(path),
                _ => {}
            }
        }
    }
    files.sort();
    files
}

#[test]
fn mutated_files_of_other_formats_are_refused_or_read_consistently() {
    let files = files_of_formats();
    assert!(files.len() > 30, "the golden files are complete");
    let folder = tempfile::tempdir().expect("a folder");
    let (iterations, seed) =
        (number("FFDP_FUZZ_ITERATIONS", ITERATIONS), number("FFDP_FUZZ_SEED", 1));
    let mut read = 0;
    for iteration in 0..iterations {
        let mut rng = ChaCha8Rng::seed_from_u64(seed as u64);
        rng.set_stream(1 << 32 | iteration as u64);
        let [file, other] = [0, 1].map(|_| &files[rng.random_range(0..files.len())]);
        let [mut bytes, other] = [file, other].map(|path| fs::read(path).expect("readable"));
        let inside = unpacked(&bytes);
        let is_inside = inside.is_some();
        bytes = inside.unwrap_or(bytes);
        for _ in 0..rng.random_range(1..=4) {
            mutate(&mut bytes, &other, &mut rng);
        }
        let path = folder.path().join(file.file_name().expect("a file"));
        fs::write(&path, if is_inside { packed(&bytes) } else { bytes }).expect("writable");
        match std::panic::catch_unwind(|| nifti::read_in_every_way(&path)) {
            Ok(is_read) => read += usize::from(is_read),
            Err(_) => panic!("iteration {iteration}, of {}, failed", file.display()),
        }
    }
    println!("{iterations} files, {read} of them still sound");
    assert!(read > iterations / 50 && read < iterations, "{read} of {iterations}");
}

fn unpacked(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    MultiGzDecoder::new(bytes).read_to_end(&mut plain).ok().map(|_| plain)
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("into memory");
    encoder.finish().expect("into memory")
}

#[test]
fn mutated_files_are_refused_or_read_consistently() {
    let seeds = seeds();
    assert!(seeds.len() > 15, "the corpus is complete");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("input.nii");
    let (iterations, seed) =
        (number("FFDP_FUZZ_ITERATIONS", ITERATIONS), number("FFDP_FUZZ_SEED", 1));
    let mut read = 0;
    for iteration in 0..iterations {
        // A generator per iteration: a failure can be repeated alone.
        let mut rng = ChaCha8Rng::seed_from_u64(seed as u64);
        rng.set_stream(iteration as u64);
        let [seed, other] = [0, 1].map(|_| &seeds[rng.random_range(0..seeds.len())]);
        // Of compressed seeds, sometimes what is inside is changed.
        let inside = unpacked(seed).filter(|_| rng.random_bool(0.5));
        let is_inside = inside.is_some();
        let mut bytes = inside.unwrap_or_else(|| seed.clone());
        for _ in 0..rng.random_range(1..=4) {
            mutate(&mut bytes, other, &mut rng);
        }
        fs::write(&path, if is_inside { packed(&bytes) } else { bytes }).expect("writable");
        let result = std::panic::catch_unwind(|| nifti::read_in_every_way(&path));
        match result {
            Ok(true) => read += 1,
            Ok(false) => {}
            Err(_) => {
                let kept = std::env::temp_dir().join(format!("ffdp_fuzz_{iteration}.nii"));
                fs::copy(&path, &kept).expect("copied");
                panic!("iteration {iteration} failed; its file is {}", kept.display());
            }
        }
    }
    println!("{iterations} files, {read} of them still sound");
    // Otherwise nothing but the first check would be tested.
    assert!(read > iterations / 50 && read < iterations, "{read} of {iterations}");
}
