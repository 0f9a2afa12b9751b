//! Transforms of OME-Zarr 0.6: written and read again, and as the specification describes those of others.

use serde_json::{Value, json};

use super::*;
use crate::io::images::{header, write_displacement};

/// Positions in mm after a few matrices and a displacement in f32.
const CLOSE_MM: f64 = 1e-4;

/// Oblique, anisotropic, not at the origin.
fn oblique(size: [usize; 3]) -> Geometry {
    let (sin, cos) = 0.3f64.sin_cos();
    let direction = [[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, -1.0]];
    let grid = Geometry::new(size, [1.5, 2.0, 3.0]).and_then(|grid| grid.with_direction(direction));
    grid.and_then(|grid| grid.with_origin([10.0, -20.0, 30.0])).expect("a grid")
}

fn shear() -> Affine<Physical, Physical> {
    Affine::from_rows([[1.1, 0.2, 0.0, 5.0], [0.0, 0.9, -0.1, -6.0], [0.05, 0.0, 1.0, 7.0]])
}

/// The same vector everywhere, in voxels.
fn constant(geometry: Geometry, vector: [f32; 3]) -> TransformPart {
    let values = vector.iter().flat_map(|v| vec![*v; geometry.len()]).collect();
    TransformPart::Displacement { values, geometry }
}

/// Where parts lead a point, their displacements being the same everywhere.
fn mapped(parts: &[TransformPart], point: [f64; 3]) -> [f64; 3] {
    parts.iter().fold(point, |p, part| match part {
        TransformPart::Affine(map) => map.apply(p),
        TransformPart::Displacement { values, geometry } => {
            let voxel = [0, 1, 2].map(|i| f64::from(values[i * geometry.len()]));
            let vector = geometry.voxel_to_mm().apply_vector(voxel);
            std::array::from_fn(|i| p[i] + vector[i])
        }
        TransformPart::Bspline { .. } => panic!("none is written"),
    })
}

fn assert_same_map(case: &str, ours: &[TransformPart], expected: impl Fn([f64; 3]) -> [f64; 3]) {
    for point in [[0.0, 0.0, 0.0], [10.0, -20.0, 30.0], [-4.0, 50.0, 3.0]] {
        let (ours, expected) = (mapped(ours, point), expected(point));
        let distance = ours.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(distance < CLOSE_MM, "{case}: {ours:?} {expected:?}");
    }
}

fn metadata_of(folder: &Path) -> Value {
    serde_json::from_slice(&fs::read(folder.join("zarr.json")).expect("there")).expect("JSON")
}

/// A group with these metadata under `ome`.
fn store(folder: &Folder, name: &str, ome: Value) -> PathBuf {
    let path = folder.path(name);
    fs::create_dir_all(&path).expect("a folder");
    let group = json!({"zarr_format": 3, "node_type": "group", "attributes": {"ome": ome}});
    fs::write(path.join("zarr.json"), group.to_string()).expect("writable");
    path
}

fn axes(unit: &str) -> Value {
    let axis = |name: &str| json!({"name": name, "type": "space", "unit": unit});
    json!([axis("z"), axis("y"), axis("x")])
}

#[test]
fn chains_come_back_as_they_were() {
    let folder = Folder::new();
    let path = folder.path("chain.zarr");
    let field = constant(oblique([5, 4, 3]), [0.5, -1.0, 2.0]);
    let matrix = TransformPart::Affine(shear());
    // A single displacement is an image as well.
    write_composite(&path, std::slice::from_ref(&field)).expect("writable");
    assert_eq!(header(&path).expect("an image").format.name(), "OME-Zarr 0.6");
    assert_eq!(read_transform_file(&path).expect("readable"), std::slice::from_ref(&field));
    // A matrix that follows stays apart, to the roundings of two products.
    write_composite(&path, &[field.clone(), matrix.clone()]).expect("writable");
    let read = read_transform_file(&path).expect("readable");
    let [first, TransformPart::Affine(last)] = read.as_slice() else {
        panic!("{} parts", read.len())
    };
    assert_eq!(first, &field);
    assert_maps("the matrix of a chain", last, *shear().rows());
    assert!(is_deforming(&path).expect("readable"));
    // Others name the array of the finest level.
    let text = fs::read_to_string(path.join("zarr.json")).expect("there");
    fs::write(path.join("zarr.json"), text.replace("-0.zarr", "-0.zarr/0")).expect("writable");
    assert_eq!(read_transform_file(&path).expect("readable"), read);
    // Through affine maps a grid moves: the map is the same.
    let parts =
        [matrix.clone(), field, matrix.clone(), constant(oblique([2, 3, 4]), [-1.0, 0.0, 0.25])];
    write_composite(&path, &parts).expect("writable");
    let read = read_transform_file(&path).expect("readable");
    assert_same_map("two of each", &read, |point| mapped(&parts, point));
    write_affine(&path, &shear()).expect("writable");
    assert_maps("a matrix alone", &affine(&path), *shear().rows());
    assert!(!is_deforming(&path).expect("readable"));
    assert_eq!(transform_files(&path).expect("one"), [path.join("zarr.json")]);
    let image = header(&path).expect_err("it holds no image").to_string();
    assert!(image.contains("-t"), "{image}");
    // Nothing of the chain before is left.
    assert!(!path.join("coordinateTransformations").exists());
}

#[test]
fn matrices_follow_the_axes_of_the_file() {
    let folder = Folder::new();
    let path = folder.path("affine.zarr");
    // 1, 2, 3 mm to the right, the front and the top; LPS turns the first two.
    let map =
        Affine::from_rows([[1.0, 0.5, 0.0, 1.0], [0.0, 1.0, 0.0, 2.0], [0.25, 0.0, 1.0, 3.0]]);
    write_affine(&path, &map).expect("writable");
    let ome = &metadata_of(&path)["attributes"]["ome"];
    let step = &ome["coordinateTransformations"][0];
    assert_eq!(ome["version"], "0.6");
    assert_eq!((&step["type"], &step["input"]["name"]), (&json!("affine"), &json!("fixed")));
    let expected = json!([[1.0, 0.0, -0.25, 3.0], [0.0, 1.0, 0.0, -2.0], [0.0, 0.5, 1.0, -1.0]]);
    assert_eq!(step["affine"], expected);
    assert_eq!(ome["coordinateSystems"][1]["axes"][2]["orientation"]["value"], "right-to-left");
}

#[test]
fn transforms_of_others_are_read_by_their_units_and_systems() {
    let folder = Folder::new();
    let steps = json!([
        {"type": "scale", "scale": [2.0, 1.0, 1.0]},
        {"type": "mapAxis", "mapAxis": [0, 2, 1]},
        {"type": "translation", "translation": [1.0, 2.0, 3.0]}]);
    let sequence = |input: Value, output: Value| json!({"type": "sequence", "input": input, "output": output, "transformations": steps});
    // z' = 2 z + 1, y' = x + 2, x' = y + 3 in LPS; LPS is RAS with the signs of x and y turned.
    let expected =
        |shift: f64| move |[x, y, z]: [f64; 3]| [y - 3.0 * shift, x - 2.0 * shift, 2.0 * z + shift];
    let named = |name: &str| json!({"name": name});
    let alone = sequence(named("a"), named("b"));
    let path = store(
        &folder,
        "alone.zarr",
        json!({"version": "0.6", "coordinateTransformations": [alone]}),
    );
    assert_same_map("alone", &read_transform_file(&path).expect("readable"), expected(1.0));
    // In micrometres the shift is a thousandth. A bijection is read by its way forward.
    let systems = json!([{"name": "a", "axes": axes("micrometer")}, {"name": "b", "axes": axes("micrometer")}]);
    let both = json!({"type": "bijection", "input": named("a"), "output": named("b"),
        "forward": {"type": "sequence", "transformations": steps},
        "inverse": {"type": "identity"}});
    let scene = json!({"coordinateSystems": systems, "coordinateTransformations": [both]});
    let path = store(&folder, "scene.zarr", json!({"version": "0.6", "scene": scene}));
    assert_same_map("micrometres", &read_transform_file(&path).expect("readable"), expected(1e-3));
    // The systems of two images below, one in micrometres: z' in mm is a thousandth of what it was.
    let image = |name: &str, unit: &str| {
        let systems = json!([{"name": "physical", "axes": axes(unit)}]);
        store(
            &folder,
            name,
            json!({"version": "0.6", "multiscales": [{"coordinateSystems": systems}]}),
        );
    };
    image("images.zarr/fixed", "micrometer");
    image("images.zarr/moving", "millimeter");
    let end = |path: &str| json!({"path": path, "name": "physical"});
    let identity = json!({"type": "identity", "input": end("fixed"), "output": end("moving")});
    let scene = json!({"coordinateTransformations": [identity]});
    let path = store(&folder, "images.zarr", json!({"version": "0.6", "scene": scene}));
    let thousand = |point: [f64; 3]| point.map(|v| 1000.0 * v);
    assert_same_map("two images", &read_transform_file(&path).expect("readable"), thousand);
    // An image that says where it belongs.
    let shift = json!({"type": "translation", "translation": [0.0, 0.0, 4.0], "input": named("a"), "output": named("b")});
    let systems = json!([{"name": "a", "axes": axes("millimeter")}, {"name": "b", "axes": axes("millimeter")}]);
    let image = json!({"coordinateSystems": systems, "coordinateTransformations": [shift]});
    let path = store(&folder, "image.zarr", json!({"version": "0.6", "multiscales": [image]}));
    let left = |[x, y, z]: [f64; 3]| [x - 4.0, y, z];
    assert_same_map("an image", &read_transform_file(&path).expect("readable"), left);
}

#[test]
fn fields_are_read_by_the_units_and_the_order_of_their_axes() {
    let folder = Folder::new();
    // Two levels: more than 64 voxels along x.
    let grid = Geometry::new([70, 4, 3], [1.0, 2.0, 3.0]).expect("a grid");
    let TransformPart::Displacement { values, .. } = constant(grid.clone(), [0.5, -1.0, 2.0])
    else {
        unreachable!("a displacement")
    };
    let path = folder.path("warp.zarr");
    write_displacement(&path, &values, &grid).expect("writable");
    let written = metadata_of(&path);
    let image = &written["attributes"]["ome"]["multiscales"][0];
    assert_eq!(image["coordinateTransformations"][0]["type"], "displacements");
    assert_eq!(image["coordinateSystems"][0]["axes"][0]["discrete"], true);
    assert_eq!(image["datasets"].as_array().expect("levels").len(), 2);
    // Half as many voxels of twice the size: half the displacement in voxels, (0.5 / 2, -1 / 1.33, 2 / 1.5) as sizes are.
    let coarse = read_transform_file(folder.path("warp.zarr#1")).expect("readable");
    let fine = read_transform_file(&path).expect("readable");
    assert_same_map("the coarse level", &coarse, |point| mapped(&fine, point));
    // The same numbers in micrometres are a thousandth of the grid, with the same displacements in voxels.
    let text = written.to_string().replace("millimeter", "micrometer");
    let mut small: Value = serde_json::from_str(&text).expect("JSON");
    small["attributes"].as_object_mut().expect("an object").remove("ffdp");
    fs::write(path.join("zarr.json"), small.to_string()).expect("writable");
    let read = read_transform_file(&path).expect("readable");
    let [TransformPart::Displacement { values: same, geometry }] = read.as_slice() else {
        panic!()
    };
    assert!((geometry.spacing_mm[2] - 3e-3).abs() < 1e-12, "{:?}", geometry.spacing_mm);
    let near = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-6;
    assert!(same.iter().zip(&values).all(near));
    // Components follow the axes: with z and x exchanged, so are they.
    let exchanged =
        text.replace(r#""name":"z""#, r#""name":"_""#).replace(r#""name":"x""#, r#""name":"z""#);
    fs::write(path.join("zarr.json"), exchanged.replace(r#""name":"_""#, r#""name":"x""#))
        .expect("writable");
    let read = read_transform_file(&path).expect("readable");
    let [TransformPart::Displacement { values: turned, geometry }] = read.as_slice() else {
        panic!()
    };
    let n = geometry.len();
    assert_eq!(geometry.size, [3, 4, 70]);
    assert!(near((&turned[0], &2.0)) && near((&turned[n], &-1.0)) && near((&turned[2 * n], &0.5)));
}

#[test]
fn odd_transforms_are_refused_by_name() {
    let folder = Folder::new();
    let refused = |ome: Value| {
        let path = store(&folder, "odd.zarr", ome);
        read_transform_file(&path).expect_err("must be refused").to_string()
    };
    let one = |step: Value| json!({"version": "0.6", "coordinateTransformations": [step]});
    let identity = json!({"type": "identity"});
    let two = json!({"version": "0.6", "coordinateTransformations": [identity, identity]});
    assert!(refused(two).contains("holds one transform"));
    let outside = one(json!({"type": "displacements", "path": "../warp.zarr"}));
    assert!(refused(outside).contains("below the folder"));
    let flat = one(json!({"type": "affine", "affine": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]}));
    assert!(refused(flat).contains("three axes"));
    assert!(refused(one(json!({"type": "coordinates", "path": "warp"}))).contains("coordinates"));
    let channel = json!([{"name": "c", "type": "channel"}, {"name": "y", "type": "space"}, {"name": "x", "type": "space"}]);
    let mut of_channels = one(json!({"type": "identity", "input": {"name": "a"}}));
    of_channels["coordinateSystems"] = json!([{"name": "a", "axes": channel}]);
    assert!(refused(of_channels).contains("three axes of space"));
    let grid = oblique([4, 4, 4]);
    let spline = TransformPart::Bspline { coefficients: vec![0.0; 3 * grid.len()], geometry: grid };
    let error =
        write_composite(folder.path("spline.zarr"), &[spline]).expect_err("must be refused");
    assert!(error.to_string().contains("B-spline"), "{error}");
    assert!(!folder.path("spline.zarr").exists());
}
