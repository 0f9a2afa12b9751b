//! The bytes of a file, compressed or not, with every length checked.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use flate2::bufread::{MultiGzDecoder, ZlibDecoder};

use super::refuse::reject;
use crate::error::{Error, Result};

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Deflate spends at least two bits on 258 bytes, so no file unpacks to more than this many times
/// its size. Bounds what a header can make us allocate.
const LARGEST_EXPANSION: u64 = 1032;

const DAMAGED: &str = "it is damaged: copy or download it again";

/// An open image whose voxels come as one stream of bytes, x fastest; files are read forward.
pub(super) struct Source {
    path: PathBuf,
    stream: Stream,
    file_bytes: u64,
    /// Uncompressed bytes read so far.
    position: u64,
}

enum Stream {
    Plain(File),
    /// Gzip or zlib.
    Compressed(Box<dyn Read + Send>),
    /// Wherever they are asked for.
    Decoded(Box<dyn Decoded>),
}

/// Voxels that are decoded where they are asked for, as chunks or planes; least significant byte first.
pub(super) trait Decoded: Send {
    /// The bytes from a position of the stream on: as many as lie together, `most` at most.
    ///
    /// # Errors
    /// Those of reading.
    fn bytes_at(&mut self, position: u64, most: usize) -> Result<&[u8]>;
}

/// How the voxels of a file are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    Plain,
    Gzip,
    Zlib,
}

/// The file of a pair that has the other end, existing if any is: `.img` or `.img.gz` next to `.hdr` or
/// `.hdr.gz`, and the other way round. `None` where the name does not end in `own`.
fn counterpart(path: &Path, own: &str, other: &str) -> Option<PathBuf> {
    let ends_in = |path: &Path, end: &str| {
        path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(end))
    };
    let plain = if ends_in(path, "gz") { path.with_extension("") } else { path.to_path_buf() };
    if !ends_in(&plain, own) {
        return None;
    }
    let ends = [other.to_string(), format!("{other}.gz"), other.to_uppercase()];
    let mut names = ends.iter().map(|end| plain.with_extension(end));
    Some(names.find(|name| name.exists()).unwrap_or_else(|| plain.with_extension(other)))
}

/// The other file where an image is a pair: `.img` next to `.hdr`, or the other way round.
pub fn other_of_pair(path: &Path) -> Option<PathBuf> {
    counterpart(path, "hdr", "img").or_else(|| counterpart(path, "img", "hdr"))
}

impl Source {
    /// The file with the header: of a pair, `.hdr`, whichever is named.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_file(&counterpart(path, "img", "hdr").unwrap_or_else(|| path.to_path_buf()))
    }

    /// Goes on at the beginning of the file of a pair that has the voxels.
    pub fn go_on_in_image(&mut self) -> Result<()> {
        let Some(image) = counterpart(&self.path, "hdr", "img") else {
            let value = "the header of a .hdr/.img pair".to_string();
            let what = "the name of such a file must end in .hdr";
            let fix = "rename it, or convert the pair to one .nii file";
            return Err(reject(&self.path, what, value, fix));
        };
        *self = Self::open_file(&image)?;
        Ok(())
    }

    /// This very file.
    pub fn open_file(path: &Path) -> Result<Self> {
        let failed = |action| move |source| Error::io(path, action, source);
        let mut file = File::open(path).map_err(failed("open"))?;
        let file_bytes = file.metadata().map_err(failed("read"))?.len();
        let mut start = [0; 2];
        let known = read_up_to(&mut file, &mut start).map_err(failed("read"))?;
        file.rewind().map_err(failed("read"))?;
        let packing = match known == 2 && start == GZIP_MAGIC {
            true => Packing::Gzip,
            false => Packing::Plain,
        };
        Ok(Self::of_file(path, file, file_bytes, packing))
    }

    /// A file that goes on at the first byte of what is packed.
    pub fn of_file(path: &Path, file: File, file_bytes: u64, packing: Packing) -> Self {
        let buffered = |file| BufReader::with_capacity(1 << 18, file);
        let stream = match packing {
            Packing::Plain => Stream::Plain(file),
            Packing::Gzip => Stream::Compressed(Box::new(MultiGzDecoder::new(buffered(file)))),
            Packing::Zlib => Stream::Compressed(Box::new(ZlibDecoder::new(buffered(file)))),
        };
        Self { path: path.to_path_buf(), stream, file_bytes, position: 0 }
    }

    /// A file from a byte on.
    pub fn of_part(path: &Path, start: u64, packing: Packing) -> Result<Self> {
        let failed = |source| Error::io(path, "open", source);
        let mut file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        file.seek(SeekFrom::Start(start)).map_err(failed)?;
        Ok(Self::of_file(path, file, length, packing))
    }

    /// Voxels that are decoded.
    pub fn decoded(path: &Path, voxels: impl Decoded + 'static) -> Self {
        let stream = Stream::Decoded(Box::new(voxels));
        Self { path: path.to_path_buf(), stream, file_bytes: 0, position: 0 }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Compares the length that the header asks for with that of the file, before anything of
    /// that length is allocated. Exact for plain files, an upper bound for compressed ones. Bytes that follow the voxels
    /// are a warning; of a compressed file they show by the length at its end, that of its last member.
    pub fn check_length(&self, vox_offset: u64, data: u64) -> Result<Option<String>> {
        let needed = vox_offset.saturating_add(data);
        let there = self.file_bytes;
        let demand = format!("the header asks for {needed} bytes ({data} of voxels)");
        match &self.stream {
            Stream::Plain(_) if there < needed => {
                let what = format!("the file is truncated: {demand}");
                Err(reject(&self.path, &what, format!("{there}"), DAMAGED))
            }
            Stream::Plain(_) if there > needed => Ok(Some(trailing(there - needed))),
            Stream::Compressed(_) if needed > there.saturating_mul(LARGEST_EXPANSION) => {
                let what = format!("the compressed file cannot hold the voxels: {demand}");
                Err(reject(&self.path, &what, format!("a file of {there} bytes"), DAMAGED))
            }
            Stream::Compressed(_) => {
                let unpacked = self.last_length().filter(|length| *length > needed);
                Ok(unpacked.map(|length| trailing(length - needed)))
            }
            _ => Ok(None),
        }
    }

    /// What the last four bytes of a gzip file say: the length of its last member, modulo 2^32. `None` where it is no
    /// such file, or the length cannot be distinguished from one that is 2^32 larger.
    fn last_length(&self) -> Option<u64> {
        let mut file = File::open(&self.path).ok()?;
        let mut start = [0; 2];
        file.read_exact(&mut start).ok()?;
        let could_be_larger = self.file_bytes > u64::from(u32::MAX) / LARGEST_EXPANSION;
        if start != GZIP_MAGIC || could_be_larger && self.file_bytes > u64::from(u32::MAX) {
            return None;
        }
        file.seek(SeekFrom::End(-4)).ok()?;
        let mut length = [0; 4];
        file.read_exact(&mut length).ok()?;
        Some(u32::from_le_bytes(length).into())
    }

    /// Whether what lies before the position can be read without opening the file once more.
    pub fn goes_back(&self) -> bool {
        !matches!(self.stream, Stream::Compressed(_))
    }

    /// Goes to an uncompressed position; of a compressed file, forward.
    pub fn skip_to(&mut self, position: u64) -> Result<()> {
        match &mut self.stream {
            Stream::Decoded(_) => self.position = position,
            Stream::Plain(file) => {
                let moved = file.seek(SeekFrom::Start(position));
                moved.map_err(|source| Error::io(&self.path, "read", source))?;
                self.position = position;
            }
            Stream::Compressed(decoder) => {
                let distance =
                    position.checked_sub(self.position).expect("streams are read forward");
                let skipped = io::copy(&mut decoder.by_ref().take(distance), &mut io::sink())
                    .map_err(|source| self.failed(source))?;
                self.position += skipped;
                if skipped < distance {
                    return Err(self.truncated(position));
                }
            }
        }
        Ok(())
    }

    /// Fills `buffer`.
    pub fn read_exact(&mut self, buffer: &mut [u8]) -> Result<()> {
        let end = self.position + buffer.len() as u64;
        match self.read_some(buffer)? {
            known if known == buffer.len() => Ok(()),
            _ => Err(self.truncated(end)),
        }
    }

    /// The next `most` bytes, or the first of them that lie together in memory; of a file they are read into `buffer`.
    pub fn next<'a>(&'a mut self, most: usize, buffer: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        if !matches!(self.stream, Stream::Decoded(_)) {
            buffer.resize(most, 0);
            self.read_exact(buffer)?;
            return Ok(buffer);
        }
        let Stream::Decoded(voxels) = &mut self.stream else { unreachable!("just seen") };
        let bytes = voxels.bytes_at(self.position, most)?;
        self.position += bytes.len() as u64;
        Ok(bytes)
    }

    /// Reads a compressed file to its end, so that its last checksum is compared; `end` is where
    /// the header says it is. Plain files have been measured already.
    pub fn finish(mut self, end: u64) -> Result<()> {
        if self.goes_back() {
            return Ok(());
        }
        self.skip_to(end)?;
        let Stream::Compressed(decoder) = &mut self.stream else { return Ok(()) };
        let rest = io::copy(decoder, &mut io::sink());
        rest.map(drop).map_err(|source| self.failed(source))
    }

    /// Fills `buffer` as far as there is anything.
    pub fn read_some(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let known = match &mut self.stream {
            Stream::Plain(file) => read_up_to(file, buffer),
            Stream::Compressed(decoder) => read_up_to(decoder, buffer),
            Stream::Decoded(voxels) => {
                let (mut position, mut rest) = (self.position, &mut *buffer);
                while !rest.is_empty() {
                    let bytes = voxels.bytes_at(position, rest.len())?;
                    let (now, later) = rest.split_at_mut(bytes.len());
                    now.copy_from_slice(bytes);
                    (rest, position) = (later, position + now.len() as u64);
                }
                Ok(buffer.len())
            }
        };
        let known = known.map_err(|source| self.failed(source))?;
        self.position += known as u64;
        Ok(known)
    }

    fn failed(&self, source: io::Error) -> Error {
        let corrupt = matches!(
            source.kind(),
            ErrorKind::InvalidInput | ErrorKind::InvalidData | ErrorKind::UnexpectedEof
        );
        if self.goes_back() || !corrupt {
            return Error::io(&self.path, "read", source);
        }
        let at = self.position;
        let (what, fix) = match source.kind() {
            ErrorKind::UnexpectedEof => ("the gzip stream must be complete", DAMAGED),
            _ => (
                "the gzip stream must be sound, with matching checksums and nothing after it",
                DAMAGED,
            ),
        };
        let value = format!("\"{source}\" after {at} uncompressed bytes");
        reject(&self.path, what, value, fix)
    }

    fn truncated(&self, wanted: u64) -> Error {
        let what = format!("the file is truncated: the header asks for at least {wanted} bytes");
        reject(&self.path, &what, format!("{}", self.position), DAMAGED)
    }
}

fn trailing(bytes: u64) -> String {
    format!("{bytes} bytes follow the last voxel; they are ignored")
}

/// Fills `buffer` as far as the stream goes.
fn read_up_to(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut known = 0;
    while known < buffer.len() {
        match reader.read(&mut buffer[known..]) {
            Ok(0) => break,
            Ok(n) => known += n,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(known)
}
