//! What is damaged, or cannot be meant.

use super::*;

#[test]
fn damaged_chunks_are_refused_with_their_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = sound(folder.path());
    let shard = path.join("0/c/1/0/0");
    let whole = fs::read(&shard).expect("there");
    for cut in [0, 1, 10, whole.len() / 2, whole.len() - 21, whole.len() - 1] {
        fs::write(&shard, &whole[..cut]).expect("writable");
        let text = message(read_volume(&path));
        assert!(text.contains("damaged"), "{cut}: {text}");
        // What lies elsewhere can be read.
        assert!(read_slab(&path, 0..32).is_ok());
    }
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let mut refused = 0;
    for _ in 0..200 {
        let mut bytes = whole.clone();
        let at = rng.random_range(0..bytes.len());
        bytes[at] ^= 1 << rng.random_range(0..8);
        fs::write(&shard, &bytes).expect("writable");
        // Blosc has no checksum: what it cannot notice is read, never with a panic.
        refused += usize::from(read_volume(&path).is_err());
    }
    assert!(refused > 0);
}

#[test]
fn metadata_that_cannot_be_meant_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = sound(folder.path());
    let (group, array) = (path.join("zarr.json"), path.join("0/zarr.json"));
    let read = |file: &Path| -> Value {
        serde_json::from_slice(&fs::read(file).expect("there")).expect("JSON")
    };
    let (group_json, array_json) = (read(&group), read(&array));
    let huge = 1u64 << 40;
    let multiscale = "/attributes/ome/multiscales/0";
    let cases = [
        (
            &group,
            format!("{multiscale}/axes"),
            json!([{"name": "a", "type": "channel"}]),
            "axes must be",
        ),
        (&group, format!("{multiscale}/axes/1/name"), json!("z"), "axes must be"),
        (&group, format!("{multiscale}/datasets"), json!([]), "at least one level"),
        (&group, format!("{multiscale}/datasets/0/path"), json!("../other"), "lies in the folder"),
        (
            &group,
            format!("{multiscale}/datasets/0/coordinateTransformations/0/scale"),
            json!([1, 2]),
            "3 axes",
        ),
        (
            &group,
            format!("{multiscale}/datasets/0/coordinateTransformations/0/scale/0"),
            json!(-1),
            "spacing",
        ),
        (&group, "/attributes/ome/multiscales".to_string(), json!(null), "must hold an image"),
        (&array, "/shape".to_string(), json!([huge, huge, huge]), "addressable"),
        (&array, "/shape".to_string(), json!([20, 20]), "axes"),
        (&array, "/shape".to_string(), json!([0, 20, 20]), "positive sizes"),
        (&array, "/data_type".to_string(), json!("complex64"), "integers or floats"),
        (&array, "/chunk_grid/name".to_string(), json!("rectilinear"), "regular"),
        (&array, "/codecs/0/configuration/chunk_shape".to_string(), json!([3, 20, 20]), "divide"),
        (&array, "/codecs/0/configuration/codecs/1/name".to_string(), json!("lzma"), "codec"),
        (&array, "/codecs/0/configuration/index_codecs".to_string(), json!([]), "index"),
        (&array, "/fill_value".to_string(), json!("none"), "fill_value"),
        (&array, "/zarr_format".to_string(), json!(4), "zarr_format"),
    ];
    for (file, pointer, value, word) in cases {
        let mut json = if file == &group { group_json.clone() } else { array_json.clone() };
        *json.pointer_mut(&pointer).unwrap_or_else(|| panic!("{pointer}")) = value.clone();
        write_text(file, &json);
        let text = message(read_volume(&path));
        assert!(text.contains(word), "{pointer} {value}: {text}");
        write_text(&group, &group_json);
        write_text(&array, &array_json);
    }
    // Sizes that can be addressed and do not fit are found before anything is allocated, empty as the file is.
    let mut json = array_json.clone();
    json["shape"] = json!([1u64 << 20, 1u64 << 14, 1u64 << 14]);
    write_text(&array, &json);
    let text = message(read_volume(&path));
    assert!(text.contains("bytes"), "{text}");
    write(&array, b"{\"zarr_format\": 3");
    assert!(message(read_volume(&path)).contains("must be JSON"));
    let empty = folder.path().join("empty.zarr");
    fs::create_dir(&empty).expect("a folder");
    assert!(message(read_volume(&empty)).contains("must be an OME-Zarr"));
    assert!(message(read_volume(folder.path().join("none.zarr"))).contains("none.zarr"));
}

#[test]
fn mutated_metadata_never_panic() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = sound(folder.path());
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    let files = [path.join("zarr.json"), path.join("0/zarr.json")];
    let texts = files.each_ref().map(|file| fs::read(file).expect("there"));
    let words: [&[u8]; 8] =
        [b"0", b"-1", b"99999999999999999999", b"null", b"[]", b"{}", b"\"x\"", b"1e400"];
    let mut read = 0;
    for _ in 0..600 {
        let k = rng.random_range(0..2);
        let mut text = texts[k].clone();
        // A number, or any place, is replaced.
        let digits: Vec<usize> = (0..text.len()).filter(|i| text[*i].is_ascii_digit()).collect();
        let at = match rng.random_bool(0.7) {
            true => digits[rng.random_range(0..digits.len())],
            false => rng.random_range(0..text.len()),
        };
        let word = words[rng.random_range(0..words.len())];
        text.splice(at..at + 1, word.iter().copied());
        fs::write(&files[k], &text).expect("writable");
        read += usize::from(read_volume(&path).is_ok());
        fs::write(&files[k], &texts[k]).expect("writable");
    }
    assert!(read > 10, "{read}: otherwise only JSON itself was tested");
}

#[test]
fn an_array_of_which_no_chunk_is_found_is_refused_with_the_path_and_the_other_separator() {
    let folder = tempfile::tempdir().expect("a folder");
    let voxels: Vec<u8> = (0..24).collect();
    let nested = json!({"dimension_separator": "/"});
    for (metadata, name) in [(&json!({}), "0.0.0"), (&nested, "0/0/0")] {
        let path = one_chunk(folder.path(), metadata, Some((name, &voxels)));
        assert_eq!(read_volume(path).expect("sound").data[23], 23.0);
    }
    let first =
        |name: &str| format!("as {}", folder.path().join("one.zarr/0").join(name).display());
    for (metadata, name, looked_for, other) in [
        (&json!({}), "0/0/0", "0.0.0", "chunks named with '/'"),
        (&nested, "0.0.0", "0/0/0", "chunks named with '.'"),
    ] {
        let path = one_chunk(folder.path(), metadata, Some((name, &voxels)));
        let text = message(read_volume(&path));
        assert!(text.contains(&first(looked_for)) && text.contains(other), "{text}");
        assert_eq!(message(header(&path)), text);
        let text = message(read_volume(one_chunk(folder.path(), metadata, None)));
        assert!(text.contains(&first(looked_for)) && text.contains("no chunk at all"), "{text}");
    }
    // Chunks that are not there have the fill value where any is.
    let halves = json!({"chunks": [1, 3, 4], "fill_value": 9});
    let path = one_chunk(folder.path(), &halves, Some(("1.0.0", &voxels[..12])));
    assert_eq!(read_volume(path).expect("sparse").data[..13], [&[9.0; 12][..], &[0.0]].concat());
    // An image of zeros that we write is one.
    let path = folder.path().join("zeros.zarr");
    let zeros = Volume::new(vec![0.0; 64 * 64 * 70], oblique([64, 64, 70])).expect("fits");
    write_volume(&path, &zeros).expect("writable");
    assert_eq!(read_volume(&path).expect("readable"), zeros);
}
