//! An image from one format to another, a piece at a time, its values as they are stored.

use std::path::Path;

use super::data_type::{DataType, Endian};
use super::displacement::{copy_displacement, is_displacement};
use super::header::Header;
use super::new_image::{Kind, NewImage};
use super::open::open;
use super::read::{Selection, for_each_chunk};
use super::sink::{Sink, format_of};
use super::source::Source;
use crate::error::Result;

/// Writes the image of one file into another, whose name says the format; of several volumes all, or the one asked
/// for. Voxels keep their type and values; scaled ones become float32 where the format holds no scale. A displacement
/// stays one, its vectors as the new format has them: it is read whole. Of images, only a piece is in memory at a time.
///
/// # Errors
/// Those of reading and writing; [`Error::Invalid`](crate::Error::Invalid) for several volumes in a format of one.
pub fn convert(
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    volume: Option<usize>,
) -> Result<Header> {
    let (from, to) = (from.as_ref(), to.as_ref());
    let (mut source, mut header) = open(from)?;
    if is_displacement(&header) && volume.is_none() {
        drop(source);
        copy_displacement(from, to)?;
        return Ok(header);
    }
    let count = header.volumes();
    let (first, volumes) = match volume {
        Some(_) if count > 1 => (Selection { volume, z: None }.resolve(&header, from)?.0, 1),
        _ => (0, count),
    };
    let scale = [header.slope, header.intercept];
    let mut image = NewImage {
        volumes,
        time_step_seconds: header.time_step_seconds,
        scale,
        ..NewImage::new(&header.geometry, header.data_type, Kind::of_intent(header.intent_code))
    };
    let keeps_scale = scale == [1.0, 0.0] || format_of(to)?.holds().scale;
    if !keeps_scale {
        (image.data_type, image.scale) = (DataType::F32, [1.0, 0.0]);
    }
    let mut sink = Sink::create(to, &image)?;
    let total = volumes * header.geometry.len();
    match keeps_scale {
        true => copy_stored(&mut source, &header, first, total, &mut sink)?,
        false => copy_scaled(&mut source, &header, first, total, &mut sink)?,
    }
    source.finish(header.vox_offset + header.data_bytes())?;
    sink.commit()?;
    header.dims.truncate(if volumes == 1 { 3 } else { header.dims.len() });
    Ok(header)
}

/// Values that a copy reads and writes at a time.
const PIECE: usize = 1 << 20;

/// Copies `count` values from number `first` on as they are stored, but least significant byte first: f64 would round
/// integers of 64 bits.
fn copy_stored(
    source: &mut Source,
    header: &Header,
    first: u64,
    count: usize,
    sink: &mut Sink,
) -> Result<()> {
    let width = header.data_type.bytes();
    source.skip_to(header.vox_offset + first * width as u64)?;
    let mut bytes = vec![0; PIECE * width];
    let mut left = count;
    while left > 0 {
        let now = left.min(PIECE);
        let bytes = &mut bytes[..now * width];
        source.read_exact(bytes)?;
        if header.endian == Endian::Big {
            bytes.chunks_exact_mut(width).for_each(<[u8]>::reverse);
        }
        sink.append(now, |out| out.write_all(bytes))?;
        left -= now;
    }
    Ok(())
}

/// Copies `count` values from number `first` on as float32, scaled.
fn copy_scaled(
    source: &mut Source,
    header: &Header,
    first: u64,
    count: usize,
    sink: &mut Sink,
) -> Result<()> {
    let mut bytes = Vec::new();
    let mut failure = Ok(());
    for_each_chunk(source, header, first, count, |values| {
        bytes.clear();
        values.iter().for_each(|v| bytes.extend_from_slice(&(*v as f32).to_le_bytes()));
        if failure.is_ok() {
            failure = sink.append(values.len(), |out| out.write_all(&bytes));
        }
    })?;
    failure
}
