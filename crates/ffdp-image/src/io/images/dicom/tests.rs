//! Files are built element by element here; those of other programs are in `tests/golden_formats.rs`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::io::images::{DataType, header, read_volume, read_volumes};

const CT: &str = "1.2.840.10008.5.1.4.1.1.2";
const EXPLICIT: &str = "1.2.840.10008.1.2.1";

/// Three columns and two rows of signed 16 bits.
#[derive(Clone)]
struct Plane {
    syntax: &'static str,
    texts: Vec<((u16, u16), &'static str, String)>,
    shorts: Vec<((u16, u16), u16)>,
    pixels: Vec<i16>,
}

/// A plane at a height.
fn plane(z: f64) -> Plane {
    Plane {
        syntax: EXPLICIT,
        texts: vec![
            ((0x0008, 0x103e), "LO", "a series".into()),
            ((0x0020, 0x000e), "UI", "1.2.9".into()),
            ((0x0020, 0x0032), "DS", format!("1\\-2\\{z}")),
            ((0x0020, 0x0037), "DS", "1\\0\\0\\0\\1\\0".into()),
            ((0x0028, 0x0004), "CS", "MONOCHROME2".into()),
            ((0x0028, 0x0030), "DS", "2\\0.5".into()),
        ],
        shorts: vec![
            ((0x0028, 0x0002), 1),
            ((0x0028, 0x0010), 2),
            ((0x0028, 0x0011), 3),
            ((0x0028, 0x0100), 16),
            ((0x0028, 0x0101), 16),
            ((0x0028, 0x0102), 15),
            ((0x0028, 0x0103), 1),
        ],
        pixels: (0..6).map(|k| k - 3 + 10 * z as i16).collect(),
    }
}

impl Plane {
    fn with_text(mut self, tag: (u16, u16), text: &str) -> Self {
        self.texts.retain(|(known, _, _)| *known != tag);
        self.texts.push((tag, "DS", text.to_string()));
        self
    }

    fn with_short(mut self, tag: (u16, u16), value: u16) -> Self {
        self.shorts.retain(|(known, _)| *known != tag);
        self.shorts.push((tag, value));
        self
    }

    fn without(mut self, tag: (u16, u16)) -> Self {
        self.texts.retain(|(known, _, _)| *known != tag);
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; 128];
        bytes.extend(b"DICM");
        element(&mut bytes, (2, 2), "UI", CT.as_bytes());
        element(&mut bytes, (2, 0x10), "UI", self.syntax.as_bytes());
        for (tag, kind, text) in &self.texts {
            element(&mut bytes, *tag, kind, text.as_bytes());
        }
        for (tag, value) in &self.shorts {
            element(&mut bytes, *tag, "US", &value.to_le_bytes());
        }
        let pixels: Vec<u8> = self.pixels.iter().flat_map(|v| v.to_le_bytes()).collect();
        bytes.extend([0xe0, 0x7f, 0x10, 0, b'O', b'W', 0, 0]);
        bytes.extend((pixels.len() as u32).to_le_bytes());
        bytes.extend(pixels);
        bytes
    }
}

/// One of a short length, padded as the format asks for.
fn element(bytes: &mut Vec<u8>, (group, number): (u16, u16), kind: &str, value: &[u8]) {
    bytes.extend(group.to_le_bytes());
    bytes.extend(number.to_le_bytes());
    bytes.extend(kind.as_bytes());
    bytes.extend(((value.len() + value.len() % 2) as u16).to_le_bytes());
    bytes.extend(value);
    bytes.extend(vec![0; value.len() % 2]);
}

struct Folder(tempfile::TempDir);

impl Folder {
    /// Of planes, named in the order in which they are given.
    fn of(planes: &[Plane]) -> Self {
        let folder = Self(tempfile::tempdir().expect("temporary"));
        for (k, plane) in planes.iter().enumerate() {
            fs::write(folder.file(k), plane.bytes()).expect("writable");
        }
        folder
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn file(&self, k: usize) -> PathBuf {
        self.path().join(format!("IM{k}"))
    }

    fn message(&self) -> String {
        let text = read_volume(self.path()).expect_err("refused").to_string();
        assert!(text.starts_with(&self.path().display().to_string()), "{text}");
        text
    }
}

#[test]
fn planes_lie_in_the_order_of_their_positions() {
    let folder = Folder::of(&[plane(7.0), plane(3.0), plane(5.0)]);
    fs::write(folder.path().join("notes.txt"), "no DICOM").expect("writable");
    let volume = read_volume(folder.path()).expect("sound");
    assert_eq!(volume.geometry.size, [3, 2, 3]);
    assert_eq!(volume.geometry.spacing_mm, [0.5, 2.0, 2.0]);
    assert_eq!(volume.geometry.origin_mm, [-1.0, 2.0, 3.0]);
    assert_eq!(volume.geometry.axis_codes(), "LPS");
    let expected = [3.0, 5.0, 7.0].map(|z| plane(z).pixels).concat();
    assert_eq!(volume.data, expected.iter().map(|v| f32::from(*v)).collect::<Vec<_>>());
    let found = header(folder.path()).expect("sound");
    assert_eq!((found.data_type, &*found.description), (DataType::I16, "a series"));
    assert_eq!(found.warnings, ["1 files of the folder are no planes; they are ignored"]);
}

#[test]
fn gaps_and_planes_at_one_place_are_named() {
    for (heights, parts) in [
        (&[0.0, 2.0, 4.0, 8.0, 10.0][..], ["2.0000 mm", "4.0000 mm between IM2 and IM3"]),
        (&[0.0, 2.0, 2.0, 4.0], ["one of each volume: 2", "1 at the place of IM0"]),
    ] {
        let planes: Vec<Plane> = heights.iter().map(|z| plane(*z)).collect();
        let text = Folder::of(&planes).message();
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
    // Off the line, as no tilt of a gantry is.
    let mut planes = [0.0, 2.0, 4.0].map(plane);
    planes[1] = planes[1].clone().with_text((0x20, 0x32), "3\\-2\\2");
    let text = Folder::of(&planes).message();
    assert!(text.contains("IM1 is 2.0000 mm away"), "{text}");
    // Such a tilt is a shear.
    let tilted = [0.0, 2.0, 4.0].map(|z| plane(z).with_text((0x20, 0x32), &format!("1\\{z}\\{z}")));
    let volume = read_volume(Folder::of(&tilted).path()).expect("sound");
    assert_eq!(volume.geometry.voxel_to_mm().rows()[1], [0.0, -2.0, -2.0, 0.0]);
}

/// Two planes at each of three times, the second time first.
fn timed(number: impl Fn(i32, i32) -> ((u16, u16), i32)) -> Vec<Plane> {
    let planes = [1, 2, 0].into_iter().flat_map(|time| [2, 0].map(|z| (time, z)));
    let planes = planes.map(|(time, z)| {
        let (tag, number) = number(time, z);
        let mut plane = plane(f64::from(z)).with_text(tag, &number.to_string());
        plane.pixels.iter_mut().for_each(|v| *v += 100 * time as i16);
        plane.with_text((0x18, 0x80), "2500")
    });
    planes.collect()
}

#[test]
fn several_planes_at_a_place_are_volumes() {
    let at_time = |time: i16, z: i16| (0..6).map(move |k| f32::from(k - 3 + 10 * z + 100 * time));
    let expected: Vec<Vec<f32>> =
        (0..3).map(|time| at_time(time, 0).chain(at_time(time, 2)).collect()).collect();
    for number in [
        // TemporalPositionIdentifier, AcquisitionNumber, and planes numbered as they came, interleaved.
        |time: i32, _: i32| ((0x20, 0x100), time + 1),
        |time: i32, _: i32| ((0x20, 0x12), 10 * time),
        |time: i32, z: i32| ((0x20, 0x13), 2 * time + i32::from(z == 0)),
    ] {
        let folder = Folder::of(&timed(number));
        let found = header(folder.path()).expect("sound");
        assert_eq!((&*found.dims, found.time_step_seconds), (&[3, 2, 2, 3][..], 2.5));
        let volumes = read_volumes(folder.path()).expect("sound");
        assert_eq!(volumes[0].geometry.spacing_mm, [0.5, 2.0, 2.0]);
        let data: Vec<Vec<f32>> = volumes.into_iter().map(|volume| volume.data).collect();
        assert_eq!(data, expected);
    }
}

#[test]
fn volumes_without_an_order_or_of_several_kinds_are_refused() {
    let by_time = |time: i32, _: i32| ((0x20, 0x100), time);
    let first = |change: &dyn Fn(Plane) -> Plane| {
        let mut planes = timed(by_time);
        planes[0] = change(planes[0].clone());
        Folder::of(&planes).message()
    };
    let unordered = Folder::of(&timed(|_, _| ((0x20, 0x13), 1))).message();
    assert!(unordered.contains("InstanceNumber must order"), "{unordered}");
    let echo = first(&|plane| plane.with_text((0x18, 0x81), "30"));
    assert!(echo.contains("of one kind") && echo.contains("TE 30 ms"), "{echo}");
    let moved = first(&|plane| plane.with_text((0x20, 0x32), "1\\0\\2"));
    assert!(moved.contains("2.0000 mm away"), "{moved}");
    let missing = Folder::of(&timed(by_time)[1..]).message();
    assert!(missing.contains("one of each volume: 3, got 2 at"), "{missing}");
    let same = timed(by_time).into_iter().map(|plane| plane.with_text((8, 0x18), "1.2.9.1"));
    let same = Folder::of(&same.collect::<Vec<_>>()).message();
    assert!(same.contains("each plane must be there once"), "{same}");
}

#[test]
fn several_series_in_a_folder_are_listed() {
    let other = plane(4.0).with_text((0x20, 0xe), "1.2.10").with_text((8, 0x103e), "scout");
    let text = Folder::of(&[plane(0.0), plane(2.0), other]).message();
    for part in ["one series", "\"scout\" of 1 files (1.2.10)", "\"a series\" of 2 files (1.2.9)"] {
        assert!(text.contains(part), "{text}");
    }
    for odd in [
        plane(4.0).with_text((0x20, 0x37), "0\\1\\0\\0\\0\\1"),
        plane(4.0).with_text((0x28, 0x30), "2\\0.6"),
        plane(4.0).with_short((0x28, 0x103), 0),
    ] {
        let text = Folder::of(&[plane(0.0), plane(2.0), odd]).message();
        assert!(
            text.contains("one size, type, spacing") && text.contains("another in IM2"),
            "{text}"
        );
    }
}

#[test]
fn what_is_no_grey_plane_in_space_is_refused() {
    let position = (0x20, 0x32);
    for (odd, expected) in [
        (plane(0.0).with_short((0x28, 2), 3), "the image must be grey, got 3 values a pixel"),
        (plane(0.0).with_text((0x28, 4), "PALETTE COLOR"), "PALETTE COLOR"),
        (plane(0.0).with_text((0x28, 8), "12"), "one frame, got 12 frames"),
        (plane(0.0).without(position), "ImagePositionPatient must be three numbers"),
        (plane(0.0).with_text(position, "1\\nan\\3"), "ImagePositionPatient must be three numbers"),
        (plane(0.0).without((0x20, 0x37)), "ImageOrientationPatient must be six numbers"),
        (plane(0.0).without((0x28, 0x30)), "PixelSpacing must be two numbers"),
        (plane(0.0).with_text((0x28, 0x30), "0\\1"), "spacing"),
        (plane(0.0).with_short((0x28, 0x100), 12), "8, 16 or 32 bits"),
        (plane(0.0).with_short((0x28, 0x101), 17), "8, 16 or 32 bits"),
        (plane(0.0).with_short((0x28, 0x11), 0), "0 x 2 pixels"),
        (plane(0.0).with_short((0x28, 0x11), 60_000), "the pixels must have 240000 bytes"),
        (
            Plane { syntax: "1.2.840.10008.1.2.4.90", ..plane(0.0) },
            "1.2.840.10008.1.2.4.90; unpack",
        ),
        (Plane { syntax: "1.2.840.10008.1.2.2", ..plane(0.0) }, "little endian"),
    ] {
        let folder = Folder::of(&[odd]);
        let text = header(folder.file(0)).expect_err(expected).to_string();
        assert!(text.contains("IM0") && text.contains(expected), "{text}");
    }
}

#[test]
fn bits_around_a_value_do_not_count() {
    // Twelve bits from the fourth on, with a sign; those below and above are of overlays.
    let mut odd = plane(0.0).with_short((0x28, 0x101), 8).with_short((0x28, 0x102), 11);
    odd.pixels = vec![0x7fff, -1, 0x7008, 0x0801, 0x000f, 0x0010];
    let volume = read_volume(Folder::of(&[odd]).file(0)).expect("sound");
    assert_eq!(volume.data, [-1.0, -1.0, 0.0, -128.0, 0.0, 1.0]);
}

#[test]
fn planes_with_scales_of_their_own_become_floats() {
    let slope = |z: f64| plane(z).with_text((0x28, 0x1053), &format!("{}", 1.0 + z));
    let folder = Folder::of(&[0.0, 1.0].map(|z| slope(z).with_text((0x28, 0x1052), "0.5")));
    let found = header(folder.path()).expect("sound");
    assert_eq!((found.data_type, found.slope, found.intercept), (DataType::F32, 1.0, 0.0));
    let volume = read_volume(folder.path()).expect("sound");
    let expected =
        |k: usize| (k as f32 % 6.0 - 3.0 + 10.0 * (k / 6) as f32) * (1.0 + (k / 6) as f32) + 0.5;
    assert_eq!(volume.data, (0..12).map(expected).collect::<Vec<_>>());
}

#[test]
fn damaged_files_are_refused_before_anything_is_allocated() {
    let folder = Folder::of(&[plane(0.0)]);
    let bytes = plane(0.0).bytes();
    let refused = |bytes: &[u8]| {
        fs::write(folder.file(0), bytes).expect("writable");
        header(folder.file(0)).expect_err("damaged").to_string()
    };
    for end in (132..bytes.len()).step_by(3) {
        let text = refused(&bytes[..end]);
        assert!(text.contains("IM0"), "{end}: {text}");
    }
    // A value of 4 GiB, and sequences without an end.
    let mut long = bytes[..132].to_vec();
    long.extend([8, 0, 0, 0, b'U', b'T', 0, 0, 0xfe, 0xff, 0xff, 0xff]);
    assert!(refused(&long).contains("4294967294 bytes"));
    let mut deep = bytes[..132].to_vec();
    for _ in 0..100 {
        deep.extend([8, 0, 0, 1, b'S', b'Q', 0, 0, 0xff, 0xff, 0xff, 0xff]);
        deep.extend([0xfe, 0xff, 0, 0xe0, 0xff, 0xff, 0xff, 0xff]);
    }
    assert!(refused(&deep).contains("at most 32 levels"));
}
