//! Structures of two labelled brains matched to each other; skipped where `../shared/data` is not.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use burn::tensor::{DType, Device};
use ffdp_image::image::LabelMap;
use ffdp_image::io::images::read_labels;
use ffdp_image::io::{LandmarkSpace, read_landmarks};
use ffdp_shapes::attachment::{Attachment, advised_sigmas};
use ffdp_shapes::lddmm::{Iteration, LddmmSettings, match_shapes};
use ffdp_shapes::shape::{self_intersections, surface_distance};
use ffdp_shapes::{Shape, SurfaceSettings, label_surfaces};

/// A mean surface distance that a third of a voxel of the label maps explains.
const LARGEST_MEAN_MM: f64 = 0.3;

fn data(name: &str) -> Option<PathBuf> {
    let path =
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data")).join(name);
    path.exists().then_some(path)
}

/// The surfaces of a label in both brains, their largest parts.
fn pair(label: i32) -> Option<[Shape; 2]> {
    let read = |name| Some(read_labels(data(name)?).expect("a label map"));
    let maps: [LabelMap; 2] = [
        read("voxelmorph/test_scan_seg.nii.gz")?,
        read("learn2reg-tutorials2019/subject_1_seg.nii.gz")?,
    ];
    let surface = |map: &LabelMap| {
        let surfaces = label_surfaces(map, &[label], &SurfaceSettings::default());
        surfaces.expect("the label is there").remove(0).largest_component()
    };
    Some([surface(&maps[0]), surface(&maps[1])])
}

/// As `ffdp shape register` chooses them.
fn attachments(target: &Shape, coarsen_mm: f64) -> [(&'static str, Attachment); 3] {
    let sigmas_mm = advised_sigmas(&target.coarsened(coarsen_mm));
    [
        ("varifolds", Attachment::Varifolds { sigmas_mm: sigmas_mm.clone(), oriented: true }),
        ("transport", Attachment::transport(&sigmas_mm)),
        ("currents", Attachment::Currents { sigmas_mm }),
    ]
}

/// The surfaces of an anatomical structure on the other's, by three comparisons.
fn matched(name: &str, label: i32) {
    let Some([source, target]) = pair(label) else {
        return eprintln!("skipped: no shared/data");
    };
    let advised = LddmmSettings::advised(&target);
    for (how, attachment) in attachments(&target, advised.coarsen_mm) {
        let fidelity = attachment.advised_fidelity();
        let settings = LddmmSettings { attachment, fidelity, ..advised.clone() };
        let begin = Instant::now();
        let go_on = &mut |_: &Iteration| ControlFlow::Continue(());
        let place = (&Device::flex(), DType::F32);
        let found = match_shapes([&source, &target], &settings, place, None, go_on).unwrap();
        let [before, after] = [&source, &found.shape].map(|s| surface_distance(s, &target));
        let crossings = [&source, &found.shape].map(self_intersections);
        println!(
            "{name} by {how}: {} and {} triangles, {} control points, mean {:.3} -> {:.3} mm, 95 % {:.2} -> {:.2}, \
             largest {:.2} -> {:.2}, {} iterations in {:.1} s, self-intersections {crossings:?}",
            source.cells.len(),
            target.cells.len(),
            found.flow.saved().momenta.len(),
            before.mean,
            after.mean,
            before.p95,
            after.p95,
            before.max,
            after.max,
            found.costs.len() - 1,
            begin.elapsed().as_secs_f64()
        );
        assert!(before.mean > 2.0 * LARGEST_MEAN_MM, "{name}: nothing to match");
        assert!(after.mean < LARGEST_MEAN_MM, "{name} by {how}: {after:?}");
        assert_eq!(crossings[1], crossings[0], "{name} by {how}");
    }
}

#[test]
#[ignore = "a minute or two of processor time for each comparison"]
fn a_hippocampus_is_matched() {
    matched("left hippocampus", 17);
}

#[test]
#[ignore = "a minute or two of processor time for each comparison"]
fn a_thalamus_is_matched() {
    matched("left thalamus", 10);
}

/// Half of a lung's landmarks guide a deformation of space, the other half says how good it is there.
#[test]
fn landmarks_of_a_lung_guide_the_others() {
    let read = |name| {
        let path = data(name)?;
        Some(read_landmarks(path, &LandmarkSpace::Ras).expect("landmarks"))
    };
    let names = ["0000", "0001"].map(|k| format!("lung/l2r_LungCT_0001_{k}_landmarks.csv"));
    let (Some(fixed), Some(moving)) = (read(&names[0]), read(&names[1])) else {
        return eprintln!("skipped: no shared/data");
    };
    // Voxel indices of 1.75 x 1.25 x 1.75 mm.
    let mm = |points: Vec<[f64; 3]>| {
        points.into_iter().map(|[x, y, z]| [1.75 * x, 1.25 * y, 1.75 * z]).collect::<Vec<_>>()
    };
    let (fixed, moving) = (mm(fixed), mm(moving));
    let half = |points: &[[f64; 3]], rest: usize| {
        Shape::cloud(points.iter().skip(rest).step_by(2).copied().collect()).unwrap()
    };
    let settings = LddmmSettings {
        sigmas_mm: vec![60.0, 25.0],
        attachment: Attachment::Landmarks,
        control_spacing_mm: 0.0,
        fidelity: 1000.0,
        ..LddmmSettings::default()
    };
    let go_on = &mut |_: &Iteration| ControlFlow::Continue(());
    let place = (&Device::flex(), DType::F32);
    let (guides, goals) = (half(&fixed, 0), half(&moving, 0));
    let found = match_shapes([&guides, &goals], &settings, place, None, go_on).unwrap();
    let (held, goal) = (half(&fixed, 1).points, half(&moving, 1).points);
    let error = |a: &[[f64; 3]]| {
        let apart = |(a, b): (&[f64; 3], &[f64; 3])| {
            (0..3).map(|c| (a[c] - b[c]).powi(2)).sum::<f64>().sqrt()
        };
        a.iter().zip(&goal).map(apart).sum::<f64>() / a.len() as f64
    };
    let [before, after] = [error(&held), error(&found.flow.map_points(&held).unwrap())];
    println!(
        "lung 1: {} landmarks guide {} others, TRE {before:.2} -> {after:.2} mm",
        guides.points.len(),
        held.len()
    );
    // Half of what their neighbours explain.
    assert!(after < 0.5 * before, "{before} {after}");
}
