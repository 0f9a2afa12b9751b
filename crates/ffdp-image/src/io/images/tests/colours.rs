//! Pictures in colour become luminance, with a warning.

use png::BitDepth::{self, Eight, Sixteen, Two};
use png::ColorType::{self, Grayscale, GrayscaleAlpha, Indexed, Rgb, Rgba};

use super::planes_of_files::{GREY, Page, png, tiff};
use super::*;
use crate::io::images::{PlaneReader, header, read_labels, read_stored_at, read_volume};

const COLOURS: &str = "luminance, 0.299 R + 0.587 G + 0.114 B";
const ALPHA: &str = "transparency, which is ignored";

/// Asserts values, their type, and the warnings besides that of a missing spacing.
fn assert_grey(path: &Path, data_type: DataType, values: &[u16], warnings: &[&str]) {
    let found = header(path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(found.data_type, data_type, "{path:?}");
    assert_eq!(found.warnings.len(), 1 + warnings.len(), "{path:?}: {:?}", found.warnings);
    for (text, part) in found.warnings[1..].iter().zip(warnings) {
        assert!(text.contains(part), "{path:?}: {text}");
    }
    let expected: Vec<f32> = values.iter().map(|value| f32::from(*value)).collect();
    assert_eq!(read_volume(path).expect("sound").data, expected, "{path:?}");
}

/// Writes a PNG of one row; palette and transparency where they are not empty.
fn row(
    path: &Path,
    width: u32,
    (color, depth): (ColorType, BitDepth),
    data: &[u8],
    [palette, transparency]: [&'static [u8]; 2],
) {
    let mut encoder = png::Encoder::new(fs::File::create(path).expect("writable"), width, 1);
    encoder.set_color(color);
    encoder.set_depth(depth);
    if !palette.is_empty() {
        encoder.set_palette(palette);
    }
    if !transparency.is_empty() {
        encoder.set_trns(transparency);
    }
    let mut writer = encoder.write_header().expect("a header");
    writer.write_image_data(data).expect("pixels");
}

fn big_endian(values: &[u16]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_be_bytes()).collect()
}

#[test]
fn colour_pictures_become_luminance_with_a_warning() {
    use DataType::{U8, U16};
    let folder = Folder::new();
    // The last is 28.5.
    let rgb = [255, 0, 0, 0, 255, 0, 0, 0, 255, 10, 20, 30, 0, 0, 250];
    let path = folder.path("rgb.png");
    row(&path, 5, (Rgb, Eight), &rgb, [&[], &[]]);
    assert_grey(&path, U8, &[76, 150, 29, 18, 29], &[COLOURS]);
    let rgb = big_endian(&[65535, 0, 0, 1000, 2000, 3000, 65535, 65535, 65535]);
    row(&path, 3, (Rgb, Sixteen), &rgb, [&[], &[]]);
    assert_grey(&path, U16, &[19595, 1815, 65535], &[COLOURS]);
    row(&path, 2, (Rgba, Eight), &[255, 0, 0, 0, 10, 20, 30, 255], [&[], &[]]);
    assert_grey(&path, U8, &[76, 18], &[COLOURS, ALPHA]);
    row(&path, 1, (Rgba, Sixteen), &big_endian(&[1000, 2000, 3000, 0]), [&[], &[]]);
    assert_grey(&path, U16, &[1815], &[COLOURS, ALPHA]);
}

#[test]
fn palettes_become_the_luminance_of_their_colours() {
    let folder = Folder::new();
    let path = folder.path("palette.png");
    let palette = &[255, 0, 0, 10, 20, 30, 0, 0, 255];
    row(&path, 3, (Indexed, Eight), &[2, 0, 1], [palette, &[]]);
    assert_grey(&path, DataType::U8, &[29, 76, 18], &[COLOURS]);
    // Two bits a pixel; the palette has no fourth colour, and transparency for one.
    row(&path, 5, (Indexed, Two), &[0b01_00_11_10, 0b01_000000], [palette, &[0]]);
    assert_grey(&path, DataType::U8, &[18, 76, 0, 29, 18], &[COLOURS, ALPHA]);
    row(&path, 2, (Indexed, Eight), &[1, 0], [&[7, 7, 7, 200, 200, 200], &[]]);
    assert_grey(&path, DataType::U8, &[200, 7], &[]);
}

#[test]
fn transparency_of_grey_pictures_is_ignored_with_a_warning() {
    let folder = Folder::new();
    let path = folder.path("alpha.png");
    row(&path, 2, (GrayscaleAlpha, Eight), &[9, 0, 200, 255], [&[], &[]]);
    assert_grey(&path, DataType::U8, &[9, 200], &[ALPHA]);
    row(&path, 2, (GrayscaleAlpha, Sixteen), &big_endian(&[300, 0, 70, 9]), [&[], &[]]);
    assert_grey(&path, DataType::U16, &[300, 70], &[ALPHA]);
    row(&path, 2, (Grayscale, Eight), &[9, 200], [&[], &[0, 9]]);
    assert_grey(&path, DataType::U8, &[9, 200], &[ALPHA]);
}

#[test]
fn pages_in_colour_become_luminance_with_a_warning() {
    let folder = Folder::new();
    let write = |pages: &[Page]| folder.file("a.tif", &tiff("", pages));
    let size = [2, 1];
    let rgb = Page { size, samples: 3, pixels: &[255, 0, 0, 10, 20, 30], ..GREY };
    assert_grey(&write(&[rgb]), DataType::U8, &[76, 18], &[COLOURS]);
    let rgba = Page { size, samples: 4, pixels: &[255, 0, 0, 0, 10, 20, 30, 255], ..GREY };
    assert_grey(&write(&[rgba]), DataType::U8, &[76, 18], &[COLOURS, ALPHA]);
    let wide: Vec<u8> =
        [65535u16, 0, 0, 1000, 2000, 3000].iter().flat_map(|value| value.to_le_bytes()).collect();
    let wide = Page { size, samples: 3, bits: 16, pixels: &wide, ..GREY };
    assert_grey(&write(&[wide]), DataType::U16, &[19595, 1815], &[COLOURS]);
    // A page in colour after a grey one.
    let grey = Page { size, pixels: &[5, 6], ..GREY };
    let rgb = Page { size, samples: 3, pixels: &[255, 0, 0, 10, 20, 30], ..GREY };
    assert_grey(&write(&[grey, rgb]), DataType::U8, &[5, 6, 76, 18], &[COLOURS]);
}

#[test]
fn a_page_with_a_palette_is_refused_with_a_way_out_that_is_read() {
    let folder = Folder::new();
    let mut bytes = tiff("", &[Page { size: [2, 1], pixels: &[1, 0], ..GREY }]);
    // PhotometricInterpretation, one short: grey becomes a palette.
    let (grey, palette) = ([6, 1, 3, 0, 1, 0, 0, 0, 1, 0], [6, 1, 3, 0, 1, 0, 0, 0, 3, 0]);
    let tag = bytes.windows(10).position(|bytes| bytes == grey).expect("the tag");
    bytes[tag..tag + 10].copy_from_slice(&palette);
    let path = folder.file("a.tif", &bytes);
    let text = read_volume(&path).expect_err("refused").to_string();
    for part in ["a.tif", "got a palette", "convert IN.tif OUT.png"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    assert_eq!(header(&path).expect_err("refused").to_string(), text);
    // What ImageMagick makes of it.
    let path = folder.path("a.png");
    row(&path, 2, (Indexed, Eight), &[1, 0], [&[255, 0, 0, 10, 20, 30], &[]]);
    assert_grey(&path, DataType::U8, &[18, 76], &[COLOURS]);
}

#[test]
fn a_folder_may_have_planes_in_grey_and_in_colour() {
    let folder = Folder::new();
    png(folder.0.path(), "s1.png", [3, 2], Grayscale);
    png(folder.0.path(), "s2.png", [3, 2], Rgb);
    assert_grey(folder.0.path(), DataType::U8, &[7; 12], &[COLOURS]);
}

#[test]
fn colours_are_no_labels() {
    let folder = Folder::new();
    let path = png(folder.0.path(), "labels.png", [3, 2], Rgb);
    let text = message(&path, read_labels(&path));
    assert!(text.contains("labels must be one integer a voxel, got colours"), "{text}");
    let planes = PlaneReader::open(&path, None).expect("an image");
    assert_eq!(message(&path, planes.with_labels().map(|(_, ids)| ids)), text);
    assert_eq!(read_stored_at(&path, 0).expect("an image of integers").data, [7; 6]);
}
