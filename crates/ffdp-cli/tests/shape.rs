//! `ffdp shape` in a process.

#[allow(dead_code)] // shared with the other commands' tests
mod support;

use burn::tensor::Device;
use ffdp_burn::transform::{Composite, Step, write_transform};
use ffdp_image::image::{Affine, Geometry, LabelMap, Physical, Volume};
use ffdp_image::io::images::{read_volume, write_labels, write_volume};
use ffdp_shapes::Shape;
use ffdp_shapes::files::write_shape;
use ffdp_shapes::lddmm::{Direction, Flow, LinearStart};
use serde_json::{Value, json};
use support::{Folder, ffdp};

/// An ellipsoid of label 3 in a map of 28^3 voxels, `long` voxels along x.
fn ellipsoid(folder: &Folder, name: &str, long: f64) -> String {
    let grid = Geometry::new([28; 3], [1.0; 3]).unwrap();
    let label = |offset: usize| {
        let [x, y, z] = grid.index_of(offset).map(|v| v as f64 - 13.5);
        3 * i32::from((x / long).powi(2) + (y / 6.0).powi(2) + (z / 6.0).powi(2) < 1.0)
    };
    let labels = (0..grid.len()).map(label).collect();
    let path = folder.path(name);
    write_labels(&path, &LabelMap::new(labels, grid).unwrap()).unwrap();
    path
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn surfaces_are_made_converted_compared_matched_and_applied() {
    let folder = Folder::new();
    let (fixed, moving) =
        (ellipsoid(&folder, "a.nii.gz", 10.0), ellipsoid(&folder, "b.nii.gz", 7.0));
    let (vtk, ply) = (folder.path("a.vtk"), folder.path("a.ply"));
    ffdp(&["shape", "convert", "-i", &format!("{fixed}:3"), "-o", &vtk]).succeeded();
    ffdp(&["shape", "convert", "-i", &vtk, "-o", &ply, "--largest"]).succeeded();
    let same = ffdp(&["shape", "distance", "-f", &ply, "-m", &format!("{fixed}:3"), "--json"]);
    same.succeeded();
    // Files hold f32.
    assert!(json(&same.stdout)["distance_mm"]["max"].as_f64().unwrap() < 1e-5);

    let out = folder.path("run");
    let source = format!("{moving}:3");
    let arguments = ["shape", "register", "-f", &ply, "-m", &source, "-o", &out, "-i", "30"];
    let device = ["--device", "cpu", "-r", &fixed];
    let run = ffdp(&[&arguments[..], &device].concat());
    run.succeeded();
    for name in ["matched.vtk", "flow.json", "settings.toml", "metrics.json", "report.html"] {
        assert!(folder.has(&format!("run/{name}")), "{name}");
    }
    assert!(!folder.has("run/momenta.json"));
    let metrics = json(&std::fs::read_to_string(folder.path("run/metrics.json")).unwrap());
    let mean = |when: &str| metrics["distance_mm"][when]["mean"].as_f64().unwrap();
    assert!(mean("before") > 0.7 && mean("after") < 0.2, "{metrics:#}");
    assert_eq!(metrics["self_intersections"]["after"], 0);
    // The grid that the flow carries along changes its volumes, and does not fold.
    assert_eq!(metrics["carried_grid"]["voxels"], 0);
    let det = &metrics["carried_grid"]["jacobian_central"];
    let (least, most) = (det["min"].as_f64().unwrap(), det["max"].as_f64().unwrap());
    assert!(0.0 < least && least < 0.99 && most > 1.01, "{det}");

    // The image's labels follow.
    let (warp, moved) = (folder.path("run/warp.nii.gz"), folder.path("moved.nii.gz"));
    let apply = ["apply", "-i", &moving, "-r", &fixed, "-t", &warp, "-o", &moved];
    ffdp(&[&apply[..], &["--interpolation", "nearest"]].concat()).succeeded();
    let carried = format!("{moved}:3");
    let apart = ffdp(&["shape", "distance", "-f", &ply, "-m", &carried, "--json"]);
    apart.succeeded();
    assert!(json(&apart.stdout)["distance_mm"]["mean"].as_f64().unwrap() < 0.4, "{}", apart.stdout);

    // With the settings of a run, and from where it was interrupted.
    let settings = folder.path("run/settings.toml");
    let flow = json(&std::fs::read_to_string(folder.path("run/flow.json")).unwrap());
    let kept = json!({ "start": null, "momenta": flow["momenta"] });
    std::fs::write(folder.path("run/momenta.json"), kept.to_string()).unwrap();
    let again = ["-i", "2", "--settings", &settings, "--resume", "--device", "cpu", "-q"];
    let run = ffdp(&[&arguments[..8], &again].concat());
    run.succeeded();
    let more = json(&std::fs::read_to_string(folder.path("run/metrics.json")).unwrap());
    let (last, first) = (metrics["costs"].as_array().unwrap().last().unwrap(), &more["costs"][0]);
    assert!(
        (first.as_f64().unwrap() / last.as_f64().unwrap() - 1.0).abs() < 1e-2,
        "{first} {last}"
    );
}

/// A deformation of two points near the middle of a grid of 24^3 voxels of 1 mm.
const FLOW: &str = r#"{"sigmas_mm": [6.0], "metric": "classical", "scheme": "rk2", "steps": 8,
    "control_points_mm": [[11.0, 12.0, 10.0], [15.0, 9.0, 12.0]], "momenta": [[2.0, -1.0, 0.5], [0.0, 1.5, 1.0]]}"#;

#[test]
fn a_flow_is_a_step_of_a_chain() {
    let flow = Flow::from_saved(serde_json::from_str(FLOW).unwrap()).unwrap();
    let turn =
        Affine::from_rows([[0.9, -0.2, 0.0, 3.0], [0.2, 0.9, 0.1, -2.0], [0.0, 0.0, 1.0, 0.5]]);
    let steps = vec![Step::Affine(turn), Step::Map(flow.as_map(Direction::Back))];
    let chain = Composite::new(steps);
    // Points: one after the other, and back.
    let points = [[10.0, 11.0, 12.0], [3.0, 20.0, 8.0], [90.0, -40.0, 2.0]];
    let mapped = chain.map_points(&points).unwrap();
    let expected = flow.map_points_back(&points.map(|p| turn.apply(p))).unwrap();
    let back = chain.inverse().unwrap().map_points(&mapped).unwrap();
    let apart = |a: &[[f64; 3]], b: &[[f64; 3]]| {
        let pairs = a.as_flattened().iter().zip(b.as_flattened());
        pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
    };
    assert!(apart(&mapped, &expected) < 1e-12, "{mapped:?} {expected:?}");
    assert!(apart(&mapped, &points.map(|p| turn.apply(p))) > 0.5, "nothing moved");
    // The way back is integrated by itself: an error of second order in the step.
    assert!(apart(&back, &points) < 1e-2, "{back:?}");

    // An image that is linear in mm has at each voxel the value of the point that the voxel is mapped to.
    let grid = Geometry::new([24; 3], [1.0; 3]).unwrap();
    let wide = Geometry::new([50; 3], [1.0; 3]).and_then(|g| g.with_origin([-12.0; 3])).unwrap();
    let value = |[x, y, z]: [f64; 3]| 20.0 + 0.5 * x - 0.3 * y + 0.2 * z;
    let at =
        |grid: &Geometry, i: usize| grid.voxel_to_mm().apply(grid.index_of(i).map(|v| v as f64));
    let image = (0..wide.len()).map(|i| value(at(&wide, i)) as f32).collect();
    let image = Volume::new(image, wide).unwrap();
    let voxels: Vec<[f64; 3]> = (0..grid.len()).map(|i| at(&grid, i)).collect();
    let expected: Vec<f64> = chain.map_points(&voxels).unwrap().into_iter().map(value).collect();
    let check = |warped: &Volume| {
        let pairs = warped.data.iter().zip(&expected);
        let error = pairs.map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
        assert!(error < 1e-4, "{error}");
    };
    check(&chain.warp(&image, &grid, &Device::flex()).unwrap());

    // The same by the command line: as a chain, and as one displacement.
    let folder = Folder::new();
    let [flow, affine, moving, reference, warp, moved] = [
        "flow.json",
        "turn.txt",
        "moving.nii.gz",
        "reference.nii.gz",
        "warp.nii.gz",
        "moved.nii.gz",
    ]
    .map(|name| folder.path(name));
    std::fs::write(&flow, FLOW).unwrap();
    write_transform(&affine, &Composite::new(vec![Step::Affine(turn)])).unwrap();
    write_volume(&moving, &image).unwrap();
    write_volume(&reference, &Volume::new(vec![0.0; grid.len()], grid).unwrap()).unwrap();
    let chain = ["-r", &reference, "-t", &affine, "-t", &flow];
    let apply = ["apply", "-i", &moving, "-o", &moved];
    ffdp(&[&apply[..], &chain].concat()).succeeded();
    check(&read_volume(&moved).unwrap());
    ffdp(&[&["compose", "-o", &warp][..], &chain].concat()).succeeded();
    ffdp(&[&apply[..], &["-r", &reference, "-t", &warp]].concat()).succeeded();
    check(&read_volume(&moved).unwrap());

    let wrong = folder.path("wrong.json");
    std::fs::write(&wrong, "{}").unwrap();
    let refused = ffdp(&["apply", "-i", &moving, "-o", &moved, "-r", &reference, "-t", &wrong]);
    assert!(refused.code == 1 && refused.stderr.contains("flow.json"), "{}", refused.stderr);
}

#[test]
fn a_linear_start_is_a_part_of_what_is_written() {
    let folder = Folder::new();
    let source: Vec<[f64; 3]> = (0..12)
        .map(|k| f64::from(k) * 0.9)
        .map(|t| [20.0 * t.cos(), 12.0 * t.sin(), 2.0 * t])
        .collect();
    let (s, c) = 0.8f64.sin_cos();
    let turn: Affine<Physical, Physical> =
        Affine::from_rows([[c, -s, 0.0, 40.0], [s, c, 0.0, -9.0], [0.0, 0.0, 1.0, 5.0]]);
    let bent = |p: &[f64; 3]| turn.apply([p[0], p[1], p[2] + 0.005 * p[0] * p[0]]);
    let target: Vec<[f64; 3]> = source.iter().map(bent).collect();
    let [moving, fixed] = [("s.csv", &source), ("t.csv", &target)].map(|(name, points)| {
        write_shape(folder.path(name), &Shape::cloud(points.clone()).unwrap()).unwrap();
        folder.path(name)
    });
    let run = |out: &str, more: &[&str]| {
        let base = ["shape", "register", "-f", &fixed, "-m", &moving, "-o", out, "--device", "cpu"];
        ffdp(&[&base[..], &["-i", "40", "-s", "15"], more].concat()).succeeded();
        let read = |name: &str| std::fs::read_to_string(format!("{out}/{name}")).unwrap();
        (json(&read("metrics.json")), json(&read("flow.json")), read("report.html"))
    };
    let (metrics, flow, report) = run(&folder.path("rigid"), &["--start", "rigid"]);
    let mean = |when: &str| metrics["distance_mm"][when]["mean"].as_f64().unwrap();
    // The bend alone is up to 2 mm; what is left is a twentieth of it.
    assert!(mean("before") > 10.0 && mean("after") < 0.1, "{metrics:#}");
    assert!(report.contains("linear start") && metrics["start"].is_array(), "{metrics:#}");
    assert_eq!(flow["start"], metrics["start"]);
    let flow = Flow::from_saved(serde_json::from_value(flow).unwrap()).unwrap();
    let far = flow.map_points(&source).unwrap();
    let apart = far.as_flattened().iter().zip(target.as_flattened());
    let apart = apart.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(apart < 0.3, "{apart}");

    // Of a file as of a flag, which goes before it.
    let settings = folder.path("rigid/settings.toml");
    let (again, ..) = run(&folder.path("again"), &["--settings", &settings]);
    assert_eq!(again["start"], metrics["start"]);
    let (none, flow, report) =
        run(&folder.path("none"), &["--settings", &settings, "--start", "none"]);
    assert!(none["start"].is_null() && flow["start"].is_null(), "{none:#}");
    assert!(!report.contains("linear start"));
    let refused = ffdp(&[
        "shape",
        "atlas",
        &fixed,
        &moving,
        "-o",
        &folder.path("atlas"),
        "--settings",
        &settings,
        "--device",
        "cpu",
    ]);
    assert!(refused.code == 1 && refused.stderr.contains("align the shapes"), "{}", refused.stderr);
}

/// A small mirrored source, whose linear start changes volumes by a factor of -700.
#[test]
fn what_follows_a_linear_start_is_that_of_the_aligned_source() {
    let folder = Folder::new();
    let helix = (0..12).map(|k| f64::from(k) * 0.9);
    let target: Vec<[f64; 3]> = helix.map(|t| [20.0 * t.cos(), 12.0 * t.sin(), 2.0 * t]).collect();
    let bent = |p: &[f64; 3]| [-0.1 * p[0], 0.1 * p[1], 0.14 * (p[2] + 0.005 * p[0] * p[0])];
    let source: Vec<[f64; 3]> = target.iter().map(bent).collect();
    let start = LinearStart::Affine.of_pairs(&source, &target).unwrap();
    assert!(start.determinant() < -500.0, "{start:?}");
    let write = |name: &str, points: Vec<[f64; 3]>| {
        write_shape(folder.path(name), &Shape::cloud(points).unwrap()).unwrap();
        folder.path(name)
    };
    let aligned = write("a.csv", source.iter().map(|&p| start.apply(p)).collect());
    let (moving, fixed) = (write("s.csv", source), write("t.csv", target));
    let register = |moving: &str, out: &str, more: &[&str]| {
        let base = ["shape", "register", "-f", &fixed, "-m", moving, "-o", out, "--device", "cpu"];
        ffdp(&[&base[..], &["-i", "20", "-s", "30"], more].concat())
    };
    let read = |name: &str| json(&std::fs::read_to_string(folder.path(name)).unwrap());
    let affine = ["--start", "affine"];
    let out = folder.path("start");
    register(&moving, &out, &affine).succeeded();
    register(&aligned, &folder.path("by_hand"), &[]).succeeded();
    register(&moving, &folder.path("none"), &[]).succeeded();
    let [found, by_hand, none] =
        ["start", "by_hand", "none"].map(|f| read(&format!("{f}/metrics.json")));

    // Files hold the aligned points in f64: what differs is rounding.
    let same = |a: &Value, b: &Value| {
        let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
        assert!((a - b).abs() < 1e-3 * b.abs(), "{a} {b}: {found:#} {by_hand:#}");
    };
    for part in ["min", "median", "max"] {
        let [a, b] = [&found, &by_hand].map(|m| &m["carried_grid"]["jacobian_central"][part]);
        same(a, b);
    }
    assert_eq!(found["carried_grid"]["voxels"], 0);
    same(&found["distance_mm"]["aligned"]["mean"], &by_hand["distance_mm"]["before"]["mean"]);
    same(&found["distance_mm"]["before"]["mean"], &none["distance_mm"]["before"]["mean"]);
    same(&found["attachment"]["aligned"], &by_hand["attachment"]["before"]);
    assert!(found["attachment"]["before"].is_null(), "{found:#}");
    assert!(by_hand["distance_mm"]["aligned"].is_null(), "{by_hand:#}");
    // A width of 30 mm goes with the target of 49 mm, and not with the source of 5 mm.
    assert_eq!(found["warnings"], json!([]));
    let warned = none["warnings"][0].as_str().unwrap();
    assert!(warned.contains("moves only as a whole"), "{warned}");

    // An interrupted run goes on from its own start only.
    let flow = read("start/flow.json");
    let kept = json!({ "start": flow["start"], "momenta": flow["momenta"] }).to_string();
    std::fs::write(folder.path("start/momenta.json"), &kept).unwrap();
    for more in [&[][..], &["--start", "rigid"]] {
        let refused = register(&moving, &out, &[&["--resume"], more].concat());
        assert_eq!(refused.code, 1, "{more:?}: {}", refused.stderr);
        for word in ["momenta.json", "linear start", "--resume"] {
            assert!(refused.stderr.contains(word), "no {word:?} in {}", refused.stderr);
        }
        let text = std::fs::read_to_string(folder.path("start/momenta.json")).unwrap();
        assert_eq!(text, kept, "{more:?}");
    }
    register(&moving, &out, &["--resume", "--start", "affine"]).succeeded();
    let again = read("start/metrics.json");
    same(&again["costs"][0], found["costs"].as_array().unwrap().last().unwrap());
}

#[test]
fn a_cohort_has_a_mean_shape() {
    let folder = Folder::new();
    let members = [6.0, 10.0].map(|long| {
        let map = ellipsoid(&folder, &format!("{long}.nii.gz"), long);
        format!("{map}:3")
    });
    let out = folder.path("atlas");
    let atlas =
        ["shape", "atlas", &members[0], &members[1], "-o", &out, "-i", "25", "--device", "cpu"];
    ffdp(&atlas).succeeded();
    for name in ["template.vtk", "member_1.vtk", "member_2.vtk", "flow_2.json", "metrics.json"] {
        assert!(folder.has(&format!("atlas/{name}")), "{name}");
    }
    let metrics = json(&std::fs::read_to_string(folder.path("atlas/metrics.json")).unwrap());
    for member in metrics["distance_mm"].as_array().unwrap() {
        assert!(member["mean"].as_f64().unwrap() < 0.4, "{metrics:#}");
    }
}

#[test]
fn what_is_no_shape_is_refused_with_a_way_out() {
    let folder = Folder::new();
    let map = ellipsoid(&folder, "a.nii.gz", 8.0);
    let damaged = folder.path("a.ply");
    std::fs::write(&damaged, "ply\nformat ascii 1.0\nelement vertex 9\nend_header\n").unwrap();
    let out = folder.path("o.ply");
    let labelled = |label: &str| format!("{map}:{label}");
    for (input, part) in [
        (map.clone(), "which label"),
        (labelled("4"), "one of [3]"),
        (labelled("x"), "integers"),
        (damaged, "a.ply"),
        (folder.path("missing.vtk"), "missing.vtk"),
        (folder.path("a.xyz"), ".ply"),
    ] {
        let run = ffdp(&["shape", "convert", "-i", &input, "-o", &out]);
        assert!(run.code == 1 && run.stderr.contains(part), "{input}: {}", run.stderr);
        assert!(!folder.has("o.ply"));
    }
}

#[test]
fn several_scales_are_of_transport_alone() {
    let folder = Folder::new();
    let (fixed, moving) =
        (ellipsoid(&folder, "a.nii.gz", 8.0), ellipsoid(&folder, "b.nii.gz", 7.0));
    let (fixed, moving) = (format!("{fixed}:3"), format!("{moving}:3"));
    let register = |out: &str, more: &[&str]| {
        let arguments = ["shape", "register", "-f", &fixed, "-m", &moving, "-o", out, "-i", "1"];
        ffdp(&[&arguments[..], &["--device", "cpu", "--multiscale"], more].concat())
    };
    let out = folder.path("run");
    let refused = register(&out, &["-a", "currents"]);
    assert!(refused.code == 1 && refused.stderr.contains("-a transport"), "{}", refused.stderr);
    assert!(!folder.has("run"));
    register(&out, &["-a", "transport"]).succeeded();
    let settings = folder.path("run/settings.toml");
    let text = std::fs::read_to_string(&settings).unwrap();
    assert!(text.contains("[attachment.multiscale]"), "{text}");
    // Of a file that knows them, its own stay.
    std::fs::write(&settings, text.replace("truncation = 5.0", "truncation = 7.0")).unwrap();
    register(&folder.path("again"), &["--settings", &settings]).succeeded();
    let text = std::fs::read_to_string(folder.path("again/settings.toml")).unwrap();
    assert!(text.contains("truncation = 7.0"), "{text}");
}

#[test]
fn a_file_of_one_entry_leaves_the_others_to_the_target() {
    let folder = Folder::new();
    let (fixed, moving) =
        (ellipsoid(&folder, "a.nii.gz", 8.0), ellipsoid(&folder, "b.nii.gz", 7.0));
    let (fixed, moving) = (format!("{fixed}:3"), format!("{moving}:3"));
    let written = |out: &str, more: &[&str]| -> toml::Table {
        let out = folder.path(out);
        let arguments = ["shape", "register", "-f", &fixed, "-m", &moving, "-o", &out, "-i", "1"];
        ffdp(&[&arguments[..], &["--device", "cpu", "-q"], more].concat()).succeeded();
        std::fs::read_to_string(format!("{out}/settings.toml")).unwrap().parse().unwrap()
    };
    let file = folder.path("steps.toml");
    std::fs::write(&file, "steps = 3").unwrap();
    for (i, more) in [&["-a", "currents"][..], &[]].into_iter().enumerate() {
        let mut without = written(&format!("without_{i}"), more);
        let with = written(&format!("with_{i}"), &[more, &["--settings", &file]].concat());
        assert_eq!(without.insert("steps".into(), 3.into()), Some(6.into()));
        assert_eq!(with, without, "{more:?}");
    }
    // Blur and fidelity are those of the comparison, whichever chose it.
    std::fs::write(&file, "[attachment]\nkind = \"transport\"").unwrap();
    let with = written("transport", &["--settings", &file]);
    assert_eq!(with, written("by_flag", &["-a", "transport"]));
    // Control points go with the widths.
    std::fs::write(&file, "sigmas_mm = [2.0]").unwrap();
    for (out, more) in [("file", ["--settings", file.as_str()]), ("flag", ["--sigma", "2"])] {
        assert_eq!(written(out, &more)["control_spacing_mm"].as_float(), Some(1.5));
    }
}

#[test]
fn flags_that_a_comparison_does_not_look_at_are_refused() {
    let folder = Folder::new();
    let file = |name: &str, text: &str| {
        std::fs::write(folder.path(name), text).unwrap();
        folder.path(name)
    };
    let fixed = file("a.csv", "x,y,z\n1,2,3\n9,2,3\n");
    let moving = file("b.csv", "x,y,z\n4,2,3\n9,5,3\n");
    let (out, settings) = (folder.path("out"), folder.path("run/settings.toml"));
    let run = |out: &str, more: &[&str]| {
        let base = ["shape", "register", "-f", &fixed, "-m", &moving, "-o", out, "-i", "1"];
        ffdp(&[&base[..], &["--device", "cpu"], more].concat())
    };
    run(&folder.path("run"), &[]).succeeded();
    for (more, words) in [
        (&["--data-sigma", "5"][..], ["--data-sigma 5", "point for point"]),
        (&["--coarsen", "2"], ["--coarsen 2", "point for point"]),
        (&["-a", "transport", "--data-sigma", "5,2"], ["--data-sigma 5,2", "one blur"]),
        (&["--settings", &settings, "--data-sigma", "5"], ["--data-sigma 5", "--attachment"]),
        (&["-q", "-v"], ["--quiet", "--verbose"]),
    ] {
        let run = run(&out, more);
        assert_eq!(run.code, 1, "{more:?}: {}", run.stderr);
        for word in words {
            assert!(run.stderr.contains(word), "{more:?}: no {word:?} in {}", run.stderr);
        }
        assert!(!folder.has("out"), "{more:?}");
    }
    let points = folder.path("c.csv");
    let largest = ffdp(&["shape", "convert", "-i", &fixed, "-o", &points, "--largest"]);
    assert!(largest.code == 1 && largest.stderr.contains("--largest"), "{}", largest.stderr);
}

#[test]
fn a_single_point_needs_widths_and_torn_landmarks_are_named() {
    let folder = Folder::new();
    let file = |name: &str, text: &str| {
        std::fs::write(folder.path(name), text).unwrap();
        folder.path(name)
    };
    let (one, other) = (file("a.csv", "x,y,z\n1,2,3\n"), file("b.csv", "x,y,z\n4,2,3\n"));
    let out = folder.path("out");
    let register = |fixed: &str, moving: &str, more: &[&str]| {
        let device = ["-o", &out, "--device", "cpu", "-i", "20"];
        ffdp(&[&["shape", "register", "-f", fixed, "-m", moving], &device[..], more].concat())
    };
    let run = register(&one, &other, &[]);
    assert!(run.code == 1 && run.stderr.contains("the target is a single point"), "{}", run.stderr);
    assert!(run.stderr.contains("--sigma"), "{}", run.stderr);
    register(&one, &other, &["-s", "10"]).succeeded();
    let run = register(&one, &other, &["-s", "10", "-a", "transport"]);
    assert!(run.code == 1 && run.stderr.contains("--data-sigma"), "{}", run.stderr);
    let same = file("same.csv", "x,y,z\n1,2,3\n1,2,3\n");
    let run = register(&same, &same, &[]);
    assert!(run.stderr.contains("all 2 points of the target are the same"), "{}", run.stderr);

    let source = file("s.csv", "x,y,z\n0,0,0\n9,0,0\n0,0,0\n");
    let target = file("t.csv", "x,y,z\n1,0,0\n9,0,0\n1,0,4\n");
    let run = register(&target, &source, &[]);
    run.succeeded();
    let words =
        "landmarks 1 and 3 of the source are one point, and must go to points 4.00 mm apart";
    assert!(run.stderr.contains(words), "{}", run.stderr);
}
