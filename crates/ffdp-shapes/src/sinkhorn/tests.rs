use burn::tensor::{DType, Device, Tensor};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::tensors::to_tensor;

fn random(count: usize, seed: u64) -> Vec<[f64; 3]> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..count).map(|_| std::array::from_fn(|_| rng.random_range(0.0..1.0))).collect()
}

fn cloud(points: &[[f64; 3]]) -> Tensor<2> {
    to_tensor(points, (&Device::flex(), DType::F64))
}

fn value(a: &Measure, b: &Measure, settings: &SinkhornSettings) -> f64 {
    number(sinkhorn(a, b, settings).unwrap().value).unwrap()
}

/// Small enough that the entropy is none; slow enough that potentials follow.
fn sharp(cost: TransportCost, debias: bool) -> SinkhornSettings {
    SinkhornSettings {
        cost,
        blur: 2e-3,
        scaling: 0.95,
        at_blur: 1,
        debias,
        reach: None,
        multiscale: None,
    }
}

#[test]
fn on_a_line_the_sorted_points_are_matched() {
    let (mut x, mut y) = (random(40, 1), random(40, 2));
    // On a line in space.
    for p in x.iter_mut().chain(&mut y) {
        *p = [p[0], 2.0 * p[0], -2.0 * p[0]];
    }
    let sorted = |p: &[[f64; 3]]| {
        let mut along: Vec<f64> = p.iter().map(|p| 3.0 * p[0]).collect();
        along.sort_by(f64::total_cmp);
        along
    };
    let pairs: Vec<f64> = sorted(&x).iter().zip(sorted(&y)).map(|(a, b)| (a - b).abs()).collect();
    let [a, b] = [&x, &y].map(|p| Measure::uniform(cloud(p)));
    // Potentials of p = 1 follow more slowly, and debiasing leaves more of the blur.
    for (cost, scaling, tolerance, exact) in [
        (TransportCost::Distance, 0.99, 0.08, pairs.iter().sum::<f64>() / 40.0),
        (
            TransportCost::HalfSquare,
            0.95,
            0.02,
            pairs.iter().map(|d| d * d / 2.0).sum::<f64>() / 40.0,
        ),
    ] {
        for debias in [false, true] {
            let settings = SinkhornSettings { scaling, ..sharp(cost, debias) };
            let found = value(&a, &b, &settings);
            assert!((found / exact - 1.0).abs() < tolerance, "{cost:?} {debias}: {found} {exact}");
        }
    }
}

#[test]
fn small_assignments_are_found() {
    // Hungarian by exhaustion over all permutations of six.
    let (x, y) = (random(6, 3), random(6, 4));
    let c = |i: usize, j: usize| (0..3).map(|k| (x[i][k] - y[j][k]).powi(2)).sum::<f64>() / 2.0;
    let mut best = (f64::INFINITY, Vec::new());
    let mut order: Vec<usize> = (0..6).collect();
    permutations(&mut order, 0, &mut |order| {
        let sum: f64 = order.iter().enumerate().map(|(i, &j)| c(i, j)).sum();
        if sum < best.0 {
            best = (sum, order.to_vec());
        }
    });
    let [a, b] = [&x, &y].map(|p| Measure::uniform(cloud(p)));
    let settings = sharp(TransportCost::HalfSquare, false);
    let transport = sinkhorn(&a, &b, &settings).unwrap();
    let found = number(transport.value.clone()).unwrap();
    assert!((found / (best.0 / 6.0) - 1.0).abs() < 1e-3, "{found} {}", best.0 / 6.0);
    let carried = transport.carried(&a, &b, &settings, b.points.clone());
    let carried = carried.try_into_vec_as::<f64>().unwrap();
    for (i, &j) in best.1.iter().enumerate() {
        for k in 0..3 {
            assert!((carried[3 * i + k] - y[j][k]).abs() < 1e-3, "{i} goes to {j}");
        }
    }
}

fn permutations(order: &mut Vec<usize>, from: usize, visit: &mut dyn FnMut(&[usize])) {
    if from == order.len() {
        return visit(order);
    }
    for i in from..order.len() {
        order.swap(from, i);
        permutations(order, from + 1, visit);
        order.swap(from, i);
    }
}

#[test]
fn the_divergence_to_itself_is_nothing_however_blurred() {
    let x = random(30, 5);
    let mut shuffled = x.clone();
    shuffled.shuffle(&mut ChaCha8Rng::seed_from_u64(6));
    let [a, b] = [&x, &shuffled].map(|p| Measure::uniform(cloud(p)));
    for reach in [None, Some(0.5)] {
        let settings = SinkhornSettings { blur: 0.2, reach, ..SinkhornSettings::default() };
        assert!(value(&a, &b, &settings).abs() < 1e-12);
        let biased = SinkhornSettings { debias: false, ..settings };
        assert!(value(&a, &b, &biased).abs() > 1e-4);
    }
}

#[test]
fn a_shift_costs_half_of_its_square() {
    let x = random(50, 7);
    let moved: Vec<_> = x.iter().map(|p| [p[0] + 0.3, p[1], p[2] - 0.4]).collect();
    let [a, b] = [&x, &moved].map(|p| Measure::uniform(cloud(p)));
    let settings = SinkhornSettings { scaling: 0.9, ..SinkhornSettings::default() };
    let found = value(&a, &b, &settings);
    assert!((found - 0.125).abs() < 1e-4, "{found}");
}

/// The largest deviation of the gradient from central differences of the value, as a part of the largest slope.
fn error_of_gradient(settings: &SinkhornSettings) -> f64 {
    let (x, y) = (random(12, 8), random(15, 9));
    let b = Measure::uniform(cloud(&y));
    let points = cloud(&x).autodiff().require_grad();
    let a = Measure { points: points.clone(), ..Measure::uniform(cloud(&x)) };
    let gradients = sinkhorn_divergence(&a, &b, settings).value.backward();
    let gradient = points.grad(&gradients).unwrap().try_into_vec_as::<f64>().unwrap();
    let largest = gradient.iter().fold(0.0_f64, |m, g| m.max(g.abs()));
    let error = |(i, c): (usize, usize)| {
        let shifted = |by: f64| {
            let mut x = x.clone();
            x[i][c] += by;
            value(&Measure::uniform(cloud(&x)), &b, settings)
        };
        let slope = (shifted(1e-4) - shifted(-1e-4)) / 2e-4;
        (slope - gradient[3 * i + c]).abs() / largest
    };
    [(0, 0), (4, 1), (11, 2)].map(error).into_iter().fold(0.0, f64::max)
}

#[test]
fn gradients_are_slopes_of_converged_potentials_also_where_mass_may_vanish() {
    for reach in [None, Some(0.4)] {
        for cost in [TransportCost::HalfSquare, TransportCost::Distance] {
            // The envelope theorem holds at the optimum. Before, the value depends on the points through the updates
            // that are off the tape as well; that part falls with the distance from the optimum.
            let [few, more, converged] = [1, 10, 200].map(|at_blur| {
                let (blur, scaling) = (0.3, 0.8);
                let base = SinkhornSettings::default();
                let settings = SinkhornSettings { cost, blur, reach, scaling, at_blur, ..base };
                error_of_gradient(&settings)
            });
            assert!(few < 0.2, "{reach:?} {cost:?}: {few}");
            assert!(more < few / 5.0, "{reach:?} {cost:?}: {few} {more}");
            // Central differences over 1e-4 have an error of second order.
            assert!(converged < 1e-6, "{reach:?} {cost:?}: {converged}");
        }
    }
}

/// Value and gradient to the first points.
fn slopes(x: &[[f64; 3]], b: &Measure, settings: &SinkhornSettings) -> (Transport, Vec<f64>) {
    let points = cloud(x).autodiff().require_grad();
    let a = Measure { points: points.clone(), ..Measure::uniform(cloud(x)) };
    let transport = sinkhorn(&a, b, settings).unwrap();
    let gradient = points.grad(&transport.value.backward()).unwrap();
    (transport, gradient.try_into_vec_as::<f64>().unwrap())
}

/// The difference as a part of the first.
fn apart(a: &[f64], b: &[f64]) -> f64 {
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|v| v * v).sum::<f64>().sqrt();
    norm(&mut a.iter().zip(b).map(|(a, b)| a - b)) / norm(&mut a.iter().copied())
}

#[test]
fn several_scales_find_what_one_scale_finds() {
    let (x, y) = (random(300, 14), random(250, 15));
    let moved: Vec<_> = y.iter().map(|p| [0.6 * p[0] + 0.2, p[1] + 0.3 * p[0], p[2]]).collect();
    let b = Measure::uniform(cloud(&moved));
    for reach in [None, Some(0.5)] {
        for cost in [TransportCost::HalfSquare, TransportCost::Distance] {
            // Potentials have converged: where they come from does not matter.
            let (blur, at_blur) = (0.15, 150);
            let base = SinkhornSettings { cost, reach, blur, at_blur, ..Default::default() };
            let (one, to_one) = slopes(&x, &b, &base);
            let v = number(one.value).unwrap();
            // Cubes that are smaller and larger than the blur.
            for side in [None, Some(0.3)] {
                let multiscale = Some(Multiscale { side, ..Multiscale::default() });
                let several = SinkhornSettings { multiscale, ..base.clone() };
                let (all, to_all) = slopes(&x, &b, &several);
                let w = number(all.value).unwrap();
                let (value, gradient) = ((w / v - 1.0).abs(), apart(&to_one, &to_all));
                // What is left out, and what convergence leaves.
                let case = format!("{reach:?} {cost:?} {side:?}: {value:.1e} {gradient:.1e}");
                assert!(value < 1e-5 && gradient < 1e-3, "{case}");
                // Potentials belong to the points as they were given.
                let f = all.potentials[0].clone().try_into_vec_as::<f64>().unwrap();
                let g = one.potentials[0].clone().try_into_vec_as::<f64>().unwrap();
                // Those of balanced transport have a constant in common.
                let middle = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
                let centred = |v: &[f64]| v.iter().map(|f| f - middle(v)).collect::<Vec<_>>();
                assert!(apart(&centred(&g), &centred(&f)) < 1e-3, "{case}");
            }
        }
    }
}

#[test]
fn pairs_of_clusters_that_are_left_out_do_not_matter() {
    let (x, y) = (random(2500, 16), random(2000, 17));
    let b = Measure::uniform(cloud(&y));
    for (cost, part) in [(TransportCost::HalfSquare, 0.4), (TransportCost::Distance, 0.7)] {
        let [all, some] = [1e6, 5.0].map(|truncation| {
            let multiscale = Some(Multiscale { side: None, truncation });
            let base = SinkhornSettings::default();
            let (transport, gradient) =
                slopes(&x, &b, &SinkhornSettings { cost, blur: 0.02, multiscale, ..base });
            (number(transport.value).unwrap(), gradient, transport.products)
        });
        let (value, gradient) = ((some.0 / all.0 - 1.0).abs(), apart(&all.1, &some.1));
        let work = some.2 / all.2;
        // exp(-5) of a row's sum, at most; far less, since radii are bounds.
        assert!(
            value < 1e-5 && gradient < 1e-4 && work < part,
            "{cost:?}: {value} {gradient} {work}"
        );
    }
}

#[test]
fn a_long_reach_is_balanced_and_a_short_one_forgets_what_is_far() {
    let (x, y) = (random(20, 10), random(20, 11));
    let [a, b] = [&x, &y].map(|p| Measure::uniform(cloud(p)));
    let base = SinkhornSettings { scaling: 0.9, blur: 0.1, ..SinkhornSettings::default() };
    let balanced = value(&a, &b, &base);
    let long = value(&a, &b, &SinkhornSettings { reach: Some(300.0), ..base.clone() });
    assert!((long / balanced - 1.0).abs() < 1e-3, "{long} {balanced}");
    let far: Vec<_> = y.iter().map(|p| [p[0] + 100.0, p[1], p[2]]).collect();
    let short = SinkhornSettings { reach: Some(0.5), ..base };
    // The way down from a larger diameter leaves other potentials, by less than a thousandth.
    let farther: Vec<_> = y.iter().map(|p| [p[0] + 200.0, p[1], p[2]]).collect();
    let [far, farther] = [far, farther].map(|p| value(&a, &Measure::uniform(cloud(&p)), &short));
    assert!((far / farther - 1.0).abs() < 1e-3, "{far} {farther}");
}

#[test]
fn measures_that_cannot_be_transported_are_refused() {
    let [a, b] = [random(5, 12), random(7, 13)].map(|p| Measure::uniform(cloud(&p)));
    let heavy = Measure { weights: b.weights.clone() * 2.0, ..b.clone() };
    let refused = |a, b, s: &SinkhornSettings| sinkhorn(a, b, s).unwrap_err().to_string();
    let settings = SinkhornSettings::default();
    assert!(refused(&a, &heavy, &settings).contains("equal masses"));
    let reach = SinkhornSettings { reach: Some(1.0), ..settings.clone() };
    assert!(sinkhorn(&a, &heavy, &reach).is_ok());
    let negative = Measure { weights: -a.weights.clone(), ..a.clone() };
    assert!(refused(&negative, &b, &settings).contains("positive"));
    let with = |m| SinkhornSettings { multiscale: Some(m), ..settings.clone() };
    for wrong in [
        SinkhornSettings { blur: 0.0, ..settings.clone() },
        SinkhornSettings { blur: f64::NAN, ..settings.clone() },
        SinkhornSettings { reach: Some(-1.0), ..settings.clone() },
        SinkhornSettings { scaling: 1.0, ..settings.clone() },
        SinkhornSettings { at_blur: 0, ..settings.clone() },
        with(Multiscale { side: Some(0.0), ..Multiscale::default() }),
        with(Multiscale { truncation: f64::NAN, ..Multiscale::default() }),
    ] {
        assert!(sinkhorn(&a, &b, &wrong).is_err(), "{wrong:?}");
    }
}
