use burn::tensor::{DType, Device, Tensor};
use ffdp_image::image::Affine;

use super::*;
use crate::shape::Position;
use crate::tensors::{number, to_tensor};

/// Central differences of f64 with a step of 1e-5 leave ten digits of slopes.
const SLOPE: f64 = 1e-6;

fn attachments() -> Vec<Attachment> {
    let sigmas_mm = vec![0.8, 0.4];
    let transport = SinkhornSettings { blur: 0.4, at_blur: 150, ..SinkhornSettings::default() };
    vec![
        Attachment::Landmarks,
        Attachment::Currents { sigmas_mm: sigmas_mm.clone() },
        Attachment::Varifolds { sigmas_mm: sigmas_mm.clone(), oriented: true },
        Attachment::Varifolds { sigmas_mm, oriented: false },
        Attachment::Transport(transport),
    ]
}

fn moved(shape: &Shape, x: f64) -> Shape {
    let linear = [[1.1, 0.1, 0.0], [0.0, 0.9, 0.0], [0.0, 0.2, 1.0]];
    shape.transformed(&Affine::from_parts(linear, [x, 0.1, 0.0]))
}

fn curve() -> Shape {
    let point = |i: i32| {
        let t = f64::from(i) * 0.3;
        [t.cos(), t.sin(), 0.1 * t]
    };
    Shape::curve((0..15).map(point).collect(), false).unwrap()
}

#[test]
fn equal_shapes_differ_by_nothing_and_others_by_more_the_farther_they_are() {
    let device = Device::flex();
    let place = (&device, DType::F64);
    for shape in [Shape::sphere(1.0, 2), curve()] {
        for attachment in attachments() {
            let of = |x: f64| {
                let target = moved(&shape, x);
                let comparison = attachment.between(&shape, &target, place).unwrap();
                let same = number(comparison.loss(to_tensor(&target.points, place))).unwrap();
                [same, number(comparison.loss(to_tensor(&shape.points, place))).unwrap()]
            };
            let [[same, near], [_, far]] = [of(0.2), of(0.6)];
            // Sinkhorn's potentials of both parts stop on the way by the same amount.
            assert!(same.abs() < 1e-9, "{attachment:?}: {same}");
            assert!(0.0 < near && near < far, "{attachment:?}: {near} {far}");
        }
    }
}

#[test]
fn gradients_are_those_of_finite_differences() {
    let device = Device::flex();
    let place = (&device, DType::F64);
    for shape in [Shape::sphere(1.0, 1), curve()] {
        // Transport has its own test, in `sinkhorn`.
        for attachment in attachments().into_iter().take(4) {
            let comparison = attachment.between(&shape, &moved(&shape, 0.4), place).unwrap();
            let value =
                |points: &[Position]| number(comparison.loss(to_tensor(points, place))).unwrap();
            let x = to_tensor(&shape.points, place).autodiff().require_grad();
            let gradients = comparison.loss(x.clone()).backward();
            let gradient = x.grad(&gradients).unwrap().try_into_vec_as::<f64>().unwrap();
            let largest = gradient.iter().fold(0.0_f64, |m, g| m.max(g.abs()));
            for i in [0, 3, 5] {
                for c in 0..3 {
                    let shifted = |by: f64| {
                        let mut points = shape.points.clone();
                        points[i][c] += by;
                        value(&points)
                    };
                    let slope = (shifted(1e-5) - shifted(-1e-5)) / 2e-5;
                    let error = (slope - gradient[3 * i + c]).abs();
                    assert!(error < SLOPE * largest, "{attachment:?} {i} {c}: {slope} {error}");
                }
            }
        }
    }
}

#[test]
fn opposite_normals_cancel_in_currents_only() {
    let device = Device::flex();
    let place = (&device, DType::F64);
    let sphere = Shape::sphere(1.0, 2);
    let mut turned = sphere.clone();
    if let Cells::Triangles(t) = &mut turned.cells {
        t.iter_mut().for_each(|t| t.swap(1, 2));
    }
    let loss = |attachment: &Attachment| {
        let comparison = attachment.between(&sphere, &turned, place).unwrap();
        number(comparison.loss(to_tensor(&sphere.points, place))).unwrap()
    };
    let sigmas_mm = vec![0.5];
    let current = loss(&Attachment::Currents { sigmas_mm: sigmas_mm.clone() });
    let varifold = loss(&Attachment::Varifolds { sigmas_mm: sigmas_mm.clone(), oriented: false });
    assert!(current > 1.0 && varifold.abs() < 1e-9, "{current} {varifold}");
    // Two sheets, to and fro, are no current.
    let both = Shape::joined(&[&sphere, &turned]).unwrap();
    let comparison = Attachment::Currents { sigmas_mm }.between(&both, &sphere, place).unwrap();
    let own = number(comparison.loss(to_tensor(&both.points, place))).unwrap();
    assert!((own - number(comparison.target.own.clone()).unwrap()).abs() < 1e-9, "{own}");
}

#[test]
fn a_current_equals_the_double_sum() {
    let device = Device::flex();
    let place = (&device, DType::F64);
    let (a, b) = (Shape::sphere(1.0, 1), moved(&Shape::sphere(1.0, 1), 0.3));
    let sigma = 0.6;
    let product = |a: &Shape, b: &Shape| {
        let mut sum = 0.0;
        for (x, n) in a.cell_centres().into_iter().zip(a.cell_directions()) {
            for (y, m) in b.cell_centres().into_iter().zip(b.cell_directions()) {
                let r = crate::shape::norm(crate::shape::sub(x, y));
                sum += (-r * r / (2.0 * sigma * sigma)).exp() * crate::shape::dot(n, m);
            }
        }
        sum
    };
    let expected = product(&a, &a) - 2.0 * product(&a, &b) + product(&b, &b);
    let attachment = Attachment::Currents { sigmas_mm: vec![sigma] };
    let comparison = attachment.between(&a, &b, place).unwrap();
    let loss = number(comparison.loss(to_tensor(&a.points, place))).unwrap();
    assert!((loss / expected - 1.0).abs() < 1e-12, "{loss} {expected}");
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let device = Device::flex();
    let place = (&device, DType::F64);
    let sphere = Shape::sphere(1.0, 0);
    let cloud = Shape::cloud(sphere.points.clone()).unwrap();
    let currents = |sigmas_mm: Vec<f64>| Attachment::Currents { sigmas_mm };
    let flat = Shape::mesh(vec![[0.0; 3]; 3], vec![[0, 1, 2]]).unwrap();
    let cases = [
        (Attachment::Landmarks, &sphere, Shape::sphere(1.0, 1), "one to one"),
        (currents(vec![1.0]), &cloud, cloud.clone(), "curves or surfaces"),
        (currents(vec![1.0]), &cloud, sphere.clone(), "one kind"),
        (currents(vec![]), &sphere, sphere.clone(), "positive"),
        (currents(vec![-1.0]), &sphere, sphere.clone(), "positive"),
        (currents(vec![1.0]), &sphere, flat, "area"),
    ];
    for (attachment, a, b, part) in cases {
        let message = attachment.between(a, &b, place).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn clouds_are_compared_as_measures() {
    let device = Device::flex();
    let place = (&device, DType::F64);
    let cloud = Shape::cloud(Shape::sphere(1.0, 1).points).unwrap();
    let attachment = Attachment::Varifolds { sigmas_mm: vec![0.5], oriented: true };
    let comparison = attachment.between(&cloud, &moved(&cloud, 0.3), place).unwrap();
    let x: Tensor<2> = to_tensor(&cloud.points, place);
    assert!(number(comparison.loss(x)).unwrap() > 0.0);
}
