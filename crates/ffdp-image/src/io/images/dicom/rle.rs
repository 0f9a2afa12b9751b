//! The run length encoding of DICOM: the bytes of all pixels in planes, the most significant first, each packed by
//! PackBits. Source: PS3.5, annex G.

/// Unpacks into pixels of `width` bytes, least significant first; `None` where the parts are not complete.
pub fn unpack(packed: &[u8], width: usize, pixels: &mut [u8]) -> Option<()> {
    let number = |i: usize| {
        let bytes = packed.get(4 * i..4 * i + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
    };
    if number(0)? != width {
        return None;
    }
    for part in 0..width {
        let start = number(part + 1)?;
        let end = if part + 1 < width { number(part + 2)? } else { packed.len() };
        let bytes = packed.get(start..end)?;
        let to = pixels.iter_mut().skip(width - 1 - part).step_by(width);
        unpack_bytes(bytes, to)?;
    }
    Some(())
}

/// Fills all of `to`.
fn unpack_bytes<'a>(
    mut from: &[u8],
    mut to: impl ExactSizeIterator<Item = &'a mut u8>,
) -> Option<()> {
    while to.len() > 0 {
        let (&first, rest) = from.split_first()?;
        match first {
            // So many bytes, and one more.
            0..128 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first) + 1)?;
                bytes.iter().for_each(|byte| to.next().into_iter().for_each(|to| *to = *byte));
                from = rest;
            }
            128 => from = rest,
            // The next byte, so many times less 257.
            _ => {
                let (&byte, rest) = rest.split_first()?;
                to.by_ref().take(257 - usize::from(first)).for_each(|to| *to = byte);
                from = rest;
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_literals_become_planes_of_bytes() {
        // High bytes 1 1 1 2, low bytes 9 8 7 7.
        let mut packed = vec![0; 64];
        (packed[0], packed[4], packed[8]) = (2, 64, 68);
        packed.extend([254, 1, 0, 2, 1, 9, 8, 255, 7, 128]);
        let mut pixels = [0; 8];
        unpack(&packed, 2, &mut pixels).expect("complete");
        assert_eq!(pixels, [9, 1, 8, 1, 7, 1, 7, 2]);
        for end in [0, 63, 66, 70] {
            assert!(unpack(&packed[..end], 2, &mut pixels).is_none(), "{end}");
        }
        assert!(unpack(&packed, 1, &mut pixels).is_none());
    }
}
