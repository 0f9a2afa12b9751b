//! Formats of pages and pictures, and volumes of FreeSurfer: what they refuse, and what they say.

use super::*;
use crate::image::Volume;
use crate::io::images::{header, read_volume, write_volume};

/// A page of a little-endian TIFF: width, height, bits, sample format, and the pixels.
pub struct Page<'a> {
    pub size: [u32; 2],
    pub bits: u16,
    pub format: u16,
    pub samples: u16,
    pub pixels: &'a [u8],
}

const PIXELS: [u8; 6] = [1, 2, 3, 4, 5, 6];
pub const GREY: Page = Page { size: [3, 2], bits: 8, format: 1, samples: 1, pixels: &PIXELS };

/// A raw TIFF of one strip a page, with a text on the first.
pub fn tiff(text: &str, pages: &[Page]) -> Vec<u8> {
    let mut bytes = b"II*\0".to_vec();
    let text = format!("{text}\0");
    let mut next = 8 + text.len() as u32;
    bytes.extend(next.to_le_bytes());
    bytes.extend(text.as_bytes());
    for (k, page) in pages.iter().enumerate() {
        let is_first = k == 0 && text.len() > 4;
        let photometric = if page.samples >= 3 { 2 } else { 1 };
        let mut tags = vec![
            (256u16, 4u16, 1u32, page.size[0]),
            (257, 4, 1, page.size[1]),
            (258, 3, 1, page.bits.into()),
            (259, 3, 1, 1),
            (262, 3, 1, photometric),
            (270, 2, text.len() as u32, 8),
            (273, 4, 1, 0),
            (277, 3, 1, page.samples.into()),
            (278, 4, 1, page.size[1]),
            (279, 4, 1, page.pixels.len() as u32),
            (339, 3, 1, page.format.into()),
        ];
        tags.retain(|tag| tag.0 != 270 || is_first);
        let data = next + 2 + 12 * tags.len() as u32 + 4;
        next = data + page.pixels.len() as u32;
        bytes.extend((tags.len() as u16).to_le_bytes());
        for (tag, kind, count, value) in tags {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(kind.to_le_bytes());
            bytes.extend(count.to_le_bytes());
            bytes.extend(if tag == 273 { data } else { value }.to_le_bytes());
        }
        bytes.extend(if k + 1 < pages.len() { next } else { 0 }.to_le_bytes());
        bytes.extend(page.pixels);
    }
    bytes
}

fn ome(attributes: &str, data: &str) -> String {
    format!(
        "<?xml version=\"1.0\"?><OME xmlns=\"http://www.openmicroscopy.org/Schemas/OME/2016-06\"><Image ID=\"Image:0\">\
         <Pixels ID=\"Pixels:0\" {attributes}>{data}</Pixels></Image></OME>"
    )
}

const SIZES: &str = "SizeX=\"3\" SizeY=\"2\" SizeZ=\"2\" SizeC=\"1\" SizeT=\"1\"";

fn message(path: &Path) -> String {
    read_volume(path).expect_err("refused").to_string()
}

#[test]
fn pages_of_other_kinds_or_that_differ_are_refused() {
    let folder = Folder::new();
    let zeros = [0; 72];
    for (pages, parts) in [
        (vec![Page { samples: 3, bits: 32, pixels: &zeros, ..GREY }], ["must be grey", "RGB(32)"]),
        (
            vec![Page { bits: 16, format: 3, pixels: &zeros[..12], ..GREY }],
            ["must be grey", "Gray(16)"],
        ),
        (vec![GREY, Page { size: [2, 3], ..GREY }], ["like the first", "in page 1"]),
        (vec![GREY, Page { format: 2, ..GREY }], ["like the first", "I8"]),
        (
            vec![Page { size: [60_000, 60_000], ..GREY }],
            ["cannot have the pixels", "60000 x 60000"],
        ),
        (vec![Page { size: [0, 2], ..GREY }], ["", ""]),
        (vec![Page { pixels: &PIXELS[..3], ..GREY }], ["", ""]),
    ] {
        let path = folder.file("a.tif", &tiff("", &pages));
        let text = message(&path);
        assert!(text.contains("a.tif") && parts.iter().all(|part| text.contains(part)), "{text}");
    }
    let whole = tiff("", &[GREY, GREY]);
    for end in 4..whole.len() {
        message(&folder.file("a.tif", &whole[..end]));
    }
}

#[test]
fn a_text_in_latin_1_is_no_damage() {
    let folder = Folder::new();
    let mut bytes = tiff("made by a microscope, 2 #m a pixel", &[GREY]);
    let at = bytes.iter().position(|byte| *byte == b'#').unwrap();
    bytes[at] = 0xb5;
    assert_eq!(read_volume(folder.file("a.tif", &bytes)).expect("sound").data[5], 6.0);
}

#[test]
fn the_text_of_an_ome_tiff_says_where_planes_are_or_is_refused() {
    let folder = Folder::new();
    let second: Vec<u8> = PIXELS.map(|v| 10 * v).to_vec();
    let read = |text: &str| {
        let pages = [GREY, Page { pixels: &second, ..GREY }];
        folder.file("a.ome.tif", &tiff(text, &pages))
    };
    let turned = "<TiffData IFD=\"1\" FirstZ=\"0\"/><TiffData IFD=\"0\" FirstZ=\"1\"/>";
    let volume = read_volume(read(&ome(SIZES, turned))).expect("sound");
    assert_eq!((volume.data[0], volume.data[6]), (10.0, 1.0));
    let unmeasured = header(read(&ome(SIZES, ""))).expect("sound");
    assert!(unmeasured.warnings[0].contains("1 mm is taken"), "{:?}", unmeasured.warnings);
    // Micrometres without a unit, and a depth that is missing.
    let sized =
        format!("{SIZES} PhysicalSizeX=\"500\" PhysicalSizeY=\"0.25\" PhysicalSizeYUnit=\"mm\"");
    let sized = header(read(&ome(&sized, ""))).expect("sound");
    assert_eq!(sized.geometry.spacing_mm, [0.5, 0.25, 0.5]);
    assert!(sized.warnings[0].contains("PhysicalSizeZ is missing"), "{:?}", sized.warnings);
    let more = SIZES.replace("SizeZ=\"2\"", "SizeZ=\"3\"");
    let huge = SIZES.replace("\"1\"", "\"18446744073709551615\"");
    let two_files = "<TiffData><UUID FileName=\"a.tif\"/></TiffData><TiffData><UUID FileName=\"b.tif\"/></TiffData>";
    for (text, expected) in [
        (ome(&more, ""), "3 planes of 1 channels at 1 times, got 2 pages"),
        (ome(&huge, ""), "got 2 pages"),
        (
            ome(&SIZES.replace("SizeZ=\"2\"", "SizeZ=\"-2\""), ""),
            "SizeZ must be a positive number, got -2",
        ),
        (ome(&format!("{SIZES} DimensionOrder=\"XYZ\""), ""), "DimensionOrder"),
        (ome(SIZES, "<TiffData IFD=\"0\"/>"), "1 of 2 without"),
        (ome(SIZES, "<TiffData IFD=\"2\"/>"), "pages that are there"),
        (ome(SIZES, "<TiffData FirstZ=\"2\"/>"), "pages that are there"),
        (
            ome(SIZES, "<TiffData PlaneCount=\"18446744073709551615\" FirstZ=\"1\"/>"),
            "pages that are there",
        ),
        (ome(SIZES, two_files), "planes in 2 files"),
        ("<OME><BinaryOnly MetadataFile=\"a.ome\"/></OME>".to_string(), "no Pixels"),
        ("<OME><Image".to_string(), "must be XML"),
        (
            "ImageJ=1.54\nimages=9\nslices=9\n".to_string(),
            "9 planes of 1 channels at 1 times, got 2 pages",
        ),
        ("ImageJ=1.54\nimages=9\n".to_string(), "got 2 pages"),
        ("ImageJ=1.54\nchannels=x\n".to_string(), "channels must be a number"),
    ] {
        let text = message(&read(&text));
        assert!(text.contains("a.ome.tif") && text.contains(expected), "{text}");
    }
}

pub fn png(folder: &Path, name: &str, size: [u32; 2], color: png::ColorType) -> PathBuf {
    let path = folder.join(name);
    let mut encoder =
        png::Encoder::new(fs::File::create(&path).expect("writable"), size[0], size[1]);
    encoder.set_color(color);
    let mut writer = encoder.write_header().expect("a header");
    let bytes = (size[0] * size[1]) as usize * color.samples();
    writer.write_image_data(&vec![7; bytes]).expect("pixels");
    path
}

#[test]
fn folders_of_planes_that_are_not_one_series_are_refused_by_name() {
    use png::ColorType::Grayscale;
    for (files, parts) in [
        (
            &[("a1.png", [3, 2]), ("a2.png", [2, 3])][..],
            ["like a1.png, 3 x 2", "2 x 3 U8 in a2.png"],
        ),
        (
            &[("a1.png", [3, 2]), ("a2.png", [3, 2]), ("a4.png", [3, 2])],
            ["equal steps", "a4.png after a2.png"],
        ),
        (&[("a1.png", [3, 2]), ("b2.png", [3, 2])], ["one series", "2: a*.png, b*.png"]),
        (&[("a01.png", [3, 2]), ("a1.png", [3, 2])], ["equal steps", "a1.png after a01.png"]),
        (&[("a.png", [3, 2]), ("a1.png", [3, 2])], ["must have numbers", "a.png"]),
    ] {
        let folder = Folder::new();
        files.iter().for_each(|(name, size)| drop(png(folder.0.path(), name, *size, Grayscale)));
        let text = message(folder.0.path());
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
    let folder = Folder::new();
    png(folder.0.path(), "s1.png", [3, 2], Grayscale);
    folder.file("s2.tif", &tiff("", &[GREY]));
    let text = message(folder.0.path());
    assert!(text.contains("of one format") && text.contains("2: .png, .tif"), "{text}");
    // Of other files there is a warning; every second plane is a series too.
    fs::remove_file(folder.path("s2.tif")).unwrap();
    png(folder.0.path(), "s3.png", [3, 2], Grayscale);
    folder.file("notes.txt", b"");
    let found = header(folder.0.path()).expect("sound");
    assert_eq!(found.dims, [3, 2, 2]);
    assert!(found.warnings[1].contains("1 other files"), "{:?}", found.warnings);
    let whole = fs::read(png(folder.0.path(), "a.png", [40, 30], Grayscale)).unwrap();
    for end in 8..whole.len() - 12 {
        message(&folder.file("a.png", &whole[..end]));
    }
}

#[test]
fn folders_of_tiffs_have_one_page_a_plane() {
    let folder = Folder::new();
    folder.file("p001.tif", &tiff("", &[GREY]));
    folder.file("p002.tiff", &tiff("", &[GREY]));
    assert!(message(folder.0.path()).contains("one series"), "ends differ");
    fs::rename(folder.path("p002.tiff"), folder.path("p002.tif")).unwrap();
    assert_eq!(
        read_volume(folder.0.path()).expect("sound").data,
        [PIXELS, PIXELS].concat().iter().map(|v| f32::from(*v)).collect::<Vec<_>>()
    );
    folder.file("p003.tif", &tiff("", &[GREY, GREY]));
    let text = message(folder.0.path());
    assert!(text.contains("p003.tif") && text.contains("one page, got 2"), "{text}");
}

/// A header of FreeSurfer with sizes, a type, and whether it has a placement; then voxels.
fn mgh(sizes: [i32; 4], data_type: i32, is_placed: bool, voxels: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    [1].iter()
        .chain(&sizes)
        .chain(&[data_type, 0])
        .for_each(|n: &i32| bytes.extend(n.to_be_bytes()));
    bytes.extend(i16::from(is_placed).to_be_bytes());
    // Spacing, then the directions of x, y and z, then the centre.
    let placement: [f32; 15] =
        [2.0, 3.0, 4.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 10.0, 20.0, 30.0];
    placement.iter().for_each(|v| bytes.extend(v.to_be_bytes()));
    bytes.resize(284, 0);
    bytes.extend(voxels);
    bytes
}

#[test]
fn volumes_of_freesurfer_are_placed_by_their_centre_or_refused() {
    let folder = Folder::new();
    let voxels: Vec<u8> = (0..24).collect();
    let path = folder.file("a.mgh", &mgh([4, 3, 2, 1], 0, true, &voxels));
    let volume = read_volume(&path).expect("sound");
    assert_eq!(volume.data[23], 23.0);
    assert_eq!(volume.geometry.spacing_mm, [2.0, 3.0, 4.0]);
    assert_eq!(volume.geometry.origin_mm, [10.0 - 4.0, 20.0 - 4.5, 30.0 - 4.0]);
    let unplaced = header(folder.file("a.mgh", &mgh([4, 3, 2, 1], 0, false, &voxels))).unwrap();
    assert_eq!(unplaced.geometry.axis_codes(), "LIA");
    assert!(unplaced.warnings[0].contains("no placement"), "{:?}", unplaced.warnings);
    let i = i32::MAX;
    for (bytes, expected) in [
        (mgh([4, 3, 3, 1], 0, true, &voxels), "truncated"),
        (mgh([4, 3, 0, 1], 0, true, &voxels), "must be positive, got [4, 3, 0, 1]"),
        (mgh([-4, 3, 2, 1], 0, true, &voxels), "must be positive"),
        (mgh([i, i, i, i], 0, true, &voxels), "addressable"),
        (mgh([4, 3, 2, 1], 7, true, &voxels), "got 7; convert it to NIfTI: mri_convert"),
        (vec![0; 100], "284 bytes, got 100"),
        (vec![9; 400], "the version of the format must be 1"),
    ] {
        let text = message(&folder.file("a.mgh", &bytes));
        assert!(text.contains("a.mgh") && text.contains(expected), "{text}");
    }
    // Packed, and the checksum at the end counts.
    let packed = gzip(&mgh([4, 3, 2, 1], 0, true, &voxels));
    assert_eq!(read_volume(folder.file("a.mgz", &packed)).expect("sound").data[23], 23.0);
    let mut damaged = packed.clone();
    let at = damaged.len() - 6;
    damaged[at] ^= 1;
    assert!(message(&folder.file("a.mgz", &damaged)).contains("gzip"));
}

#[test]
fn a_metaimage_in_two_files_is_written_and_replaces_nothing_else() {
    let folder = Folder::new();
    let volume = Volume::new((0..24).map(|v| v as f32).collect(), sheared([4, 3, 2])).unwrap();
    let rigid =
        Volume::new(volume.data.clone(), Geometry::new([4, 3, 2], [1.0, 2.0, 3.0]).unwrap());
    let volume = rigid.unwrap();
    for _ in 0..2 {
        write_volume(folder.path("a.mhd"), &volume).expect("its own voxels are replaced");
        assert_eq!(read_volume(folder.path("a.mhd")).unwrap(), volume);
        assert_eq!(fs::read(folder.path("a.raw")).unwrap().len(), 96);
    }
    let names = crate::io::images::files(folder.path("a.mhd")).unwrap();
    assert_eq!(names, [folder.path("a.mhd"), folder.path("a.raw")]);
    folder.file("b.raw", b"of a microscope");
    let text = write_volume(folder.path("b.mhd"), &volume).unwrap_err().to_string();
    assert!(text.contains("b.raw") && text.contains("must not be there yet"), "{text}");
    assert_eq!(fs::read(folder.path("b.raw")).unwrap(), b"of a microscope");
    assert!(!folder.path("b.mhd").exists());
}
