//! MATLAB level 4 files as ITK writes them: two named columns of numbers.
//!
//! Each matrix is a header of five 32-bit integers (type, rows, columns, 0 for real, bytes of the
//! name), its name with a final zero, and its numbers. The type is the decimal number `MOPT`: `M` 0
//! little-endian, 1 big-endian; `P` 0 double, 1 single; `O` and `T` 0. The first matrix is named after
//! the transform and holds its parameters, the second, `fixed`, the fixed parameters.
//! Source: "MAT-File Format", The MathWorks, appendix on level 4.

use std::io::Write;
use std::path::Path;

use super::parts::ItkTransform;
use crate::error::{Error, Result};
use crate::io::write_atomically;

const BIG_ENDIAN: u32 = 1000;
const SINGLE: u32 = 10;
const LONGEST_NAME: usize = 256;

const TRUNCATED: &str = "it is truncated or damaged: copy or write it again";

/// Whether the first number of a file, read as little-endian, is the type of a real full matrix.
pub(super) fn is_type(first: u32) -> bool {
    let known = |first: u32, endian: u32| [0, SINGLE].iter().any(|p| first == endian + p);
    known(first, 0) || known(first.swap_bytes(), BIG_ENDIAN)
}

/// The one transform of a file.
pub(super) fn read(path: &Path, bytes: &[u8]) -> Result<ItkTransform> {
    let mut rest = Reader { path, bytes, big_endian: false };
    let (name, parameters) = rest.matrix()?;
    let (fixed_name, fixed_parameters) = rest.matrix()?;
    if fixed_name != "fixed" || !rest.bytes.is_empty() {
        let what = "a transform in a .mat file is its parameters and `fixed`, and nothing else";
        let value = format!("{name:?}, {fixed_name:?} and {} bytes more", rest.bytes.len());
        let fix = "save it from ANTs or ITK; MATLAB's own workspaces are no transforms";
        return Err(Error::file(path, what, value, fix));
    }
    Ok(ItkTransform { name, parameters, fixed_parameters })
}

/// What is left of a file.
struct Reader<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    big_endian: bool,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let Some((taken, rest)) = self.bytes.split_at_checked(count) else {
            let what = format!("the file must go on for {count} bytes");
            return Err(Error::file(self.path, &what, format!("{}", self.bytes.len()), TRUNCATED));
        };
        self.bytes = rest;
        Ok(taken)
    }

    fn integer(&mut self) -> Result<u32> {
        let bytes = self.take(4)?.try_into().expect("four were taken");
        Ok(if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn matrix(&mut self) -> Result<(String, Vec<f64>)> {
        self.big_endian = false;
        let first = self.integer()?;
        self.big_endian = first.swap_bytes() / BIG_ENDIAN == 1 && first > 9999;
        let kind = if self.big_endian { first.swap_bytes() } else { first };
        if !is_type(first) {
            let what = "a matrix must be real, full, of double or single precision";
            return Err(Error::file(self.path, what, format!("type {kind}"), TRUNCATED));
        }
        let [rows, columns, imaginary, name_bytes] =
            [self.integer()?, self.integer()?, self.integer()?, self.integer()?];
        let wrong = |what: &str, value: String| Error::file(self.path, what, value, TRUNCATED);
        if imaginary != 0 {
            return Err(wrong("a matrix must be real", format!("imaginary flag {imaginary}")));
        }
        if name_bytes as usize > LONGEST_NAME {
            return Err(wrong("a name has at most 256 bytes", name_bytes.to_string()));
        }
        let name = self.take(name_bytes as usize)?;
        let name = String::from_utf8_lossy(name).trim_end_matches('\0').to_string();
        Ok((name, self.numbers(u64::from(rows) * u64::from(columns), kind % 100 == SINGLE)?))
    }

    fn numbers(&mut self, count: u64, single: bool) -> Result<Vec<f64>> {
        let width: usize = if single { 4 } else { 8 };
        // Compared with what is there before anything is allocated.
        let bytes = usize::try_from(count).ok().and_then(|n| n.checked_mul(width));
        let bytes = self.take(bytes.unwrap_or(usize::MAX))?;
        let in_order = |bytes: &[u8]| {
            let mut little = bytes.to_vec();
            if self.big_endian {
                little.reverse();
            }
            little
        };
        let number = |bytes: &[u8]| match <[u8; 8]>::try_from(in_order(bytes)) {
            Ok(double) => f64::from_le_bytes(double),
            Err(single) => f64::from(f32::from_le_bytes(single.try_into().expect("of width 4"))),
        };
        Ok(bytes.chunks_exact(width).map(number).collect())
    }
}

/// Writes a transform as ITK does: little-endian, double.
pub(super) fn write(path: &Path, transform: &ItkTransform) -> Result<()> {
    let matrices =
        [(transform.name.as_str(), &transform.parameters), ("fixed", &transform.fixed_parameters)];
    write_atomically(path, |file| {
        for (name, numbers) in matrices {
            for number in [0, numbers.len(), 1, 0, name.len() + 1] {
                file.write_all(&(number as u32).to_le_bytes())?;
            }
            file.write_all(name.as_bytes())?;
            file.write_all(&[0])?;
            for number in numbers {
                file.write_all(&number.to_le_bytes())?;
            }
        }
        Ok(())
    })
}
