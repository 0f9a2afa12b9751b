//! Ranks that are threads: what they fetch and add up, and a greedy level that ends where the serial one ends.

use std::ops::Range;
use std::sync::Arc;
use std::thread;

use super::deform::{
    F64_ITERATIONS, FIELD_VOXELS, MEASURE, largest_difference, masked_balls, measures, options,
    phantoms, serial, start, starts, with_masks,
};
use super::*;
use ffdp_burn::ops::{DeformImages, DeformOptions, LnccOptions, Measure};
use ffdp_image::error::{Error, Result};

/// Runs `each` as every one of `count` ranks.
pub(super) fn in_ranks<T: Send>(count: usize, each: impl Fn(Arc<dyn Ranks>) -> T + Sync) -> Vec<T> {
    let each = &each;
    thread::scope(|scope| {
        let ranks = Threads::new(count).into_iter();
        let threads: Vec<_> =
            ranks.map(|ranks| scope.spawn(move || each(Arc::new(ranks)))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it did not panic")).collect()
    })
}

/// Rank `rank` has so many shards of a layout.
pub(super) fn shards_of(shards: &[usize], rank: usize) -> Range<usize> {
    let first = shards[..rank].iter().sum();
    first..first + shards[rank]
}

/// The planes of every rank that has so many shards of a layout.
pub(super) fn cuts_of(layout: &Layout, shards: &[usize]) -> Cuts {
    let end = |rank: usize| layout.planes(shards_of(shards, rank).end - 1).end;
    Cuts::from_ends(std::iter::once(0).chain((0..shards.len()).map(end)).collect())
}

/// The part of a rank.
pub(super) fn part(whole: &Tensor<5>, layout: &Layout, shards: Range<usize>) -> Sharded {
    let parts = split(whole, layout).into_shards();
    Sharded::new(parts[shards.clone()].to_vec(), layout.part(shards))
}

#[test]
fn what_a_rank_fetches_is_what_the_others_hold() {
    for (seed, axis) in AXES.into_iter().enumerate() {
        let mut size = [4, 5, 6];
        size[axis.dim() - 2] = 17;
        let image = random(2, size, [-1.0, 1.0], DType::F32, 40 + seed as u64);
        let layout = Layout::uneven(size, axis, &[3, 1, 6, 2, 5]).unwrap();
        // Rank 1 has one plane; what is wanted lies on all, on one, on none of the own planes.
        let shards = [1, 1, 3];
        let cuts = cuts_of(&layout, &shards);
        for wanted in [[0..17, 2..5, 3..11], [9..12, 0..2, 16..17], [0..3, 0..0, 1..4]] {
            let found = in_ranks(3, |ranks| {
                let own = part(&image, &layout, shards_of(&shards, ranks.rank()));
                let holders = Holders::new(ranks, cuts.clone());
                let fetched = holders.fetch(&own, &wanted).unwrap()?;
                Some((fetched.layout().held(), bits(fetched.gather(&Device::flex()))))
            });
            for (wanted, found) in wanted.into_iter().zip(found) {
                let Some((held, found)) = found else {
                    assert!(wanted.is_empty());
                    continue;
                };
                assert_eq!(held, wanted, "{axis:?}");
                let expected = image.clone().narrow(axis.dim(), wanted.start, wanted.len());
                assert_eq!(found, bits(expected), "{axis:?} {wanted:?}");
            }
        }
    }
}

#[test]
fn numbers_are_combined_in_the_order_of_the_ranks() {
    let found = in_ranks(4, |ranks| {
        let rank = ranks.rank() as f64;
        let holders = Holders::new(ranks.clone(), Cuts::balanced(8, 1, 4));
        let value = tensor(&[0.1 + rank, -rank], [2], &Device::flex(), DType::F64);
        let of = |how| to_f64(holders.combine(value.clone(), how).unwrap());
        let bounds =
            DisplacementBounds([[-rank, 1.0], [rank, rank + 1.0], [f64::NEG_INFINITY, 2.0]]);
        let bounds = holders.union(bounds).unwrap();
        let received = ranks.broadcast(vec![ranks.rank() as u8 + 7; 3]).unwrap();
        ([of(Reduction::Sum), of(Reduction::Max), of(Reduction::Min)], bounds, received)
    });
    for ([sum, max, min], bounds, received) in found {
        assert_eq!(sum, [((0.1 + 1.1) + 2.1) + 3.1, -6.0]);
        assert_eq!(max, [3.1, 0.0]);
        assert_eq!(min, [0.1, -3.0]);
        let expected = [[-3.0, 1.0], [0.0, 4.0], [f64::NEG_INFINITY, 2.0]];
        assert_eq!(bounds, DisplacementBounds(expected));
        assert_eq!(received, [7; 3]);
    }
}

/// Measures and field of ranks with so many shards each, in two calls.
fn on_ranks(
    images: &DeformImages,
    [fixed, moving]: [&Layout; 2],
    shards: &[usize],
    options: &DeformOptions,
    iterations: usize,
) -> [Vec<f64>; 2] {
    let parts = in_ranks(shards.len(), |ranks| -> Result<_> {
        let mine = shards_of(shards, ranks.rank());
        let own = starts(images, options).into_iter();
        let own = own.map(|field| part(&field, fixed, mine.clone())).collect();
        let (both, masked) = with_masks(images);
        let (cut, moving_part) = match moving.count() {
            1 => (None, Sharded::whole(both[1].clone())),
            _ => (Some(cuts_of(moving, shards)), part(&both[1], moving, mine.clone())),
        };
        let team = Team::new(&ranks, cuts_of(fixed, shards), cut);
        let images = ShardedImages {
            fixed: part(&both[0], fixed, mine.clone()),
            moving: moving_part,
            affine: images.affine.clone(),
            masked,
            landmarks: None,
        };
        let state = ShardedState::new(own);
        let mesh = DeviceMesh::new(&[Device::flex()], mine.len())?;
        let by = DeformCriterion { similarity: options.measure.into(), options };
        let mut deform = ShardedDeform::in_team(images, state, by, &mesh, team)?;
        let first = iterations / 3;
        let mut losses = to_f64(deform.iterate(first)?);
        losses.extend(to_f64(deform.iterate(iterations - first)?));
        losses.extend(to_f64(deform.loss()?));
        let fields = deform.into_state().fields.into_iter();
        Ok((losses, fields.map(Sharded::into_shards).collect::<Vec<_>>()))
    });
    let parts: Vec<_> = parts.into_iter().map(|part| part.expect("nobody is lost")).collect();
    for (losses, _) in &parts {
        assert_eq!(*losses, parts[0].0, "all ranks receive the same");
    }
    let mut losses = parts[0].0.clone();
    losses.pop();
    let of = |i: usize| {
        let all = parts.iter().flat_map(|(_, fields)| fields[i].clone()).collect();
        whole(&Sharded::new(all, fixed.clone()))
    };
    [losses, to_f64(Tensor::cat((0..parts[0].1.len()).map(of).collect(), 0))]
}

#[test]
fn iterations_of_ranks_are_the_serial_ones_but_for_rounding() {
    let plain = phantoms([14, 13, 17], DType::F64);
    let size = [17, 13, 14];
    let all = measures().into_iter().flat_map(|measure| [(measure, false), (measure, true)]);
    for (i, (measure, masked)) in all.enumerate() {
        let images = masked_balls(&plain, [masked; 2]);
        let options = options(measure);
        let [measures, field] = serial(&images, &options, 10);
        // Shards thicker than what they look at, single planes, a rank between others that look past it: each with every
        // measure, half of them with masks and the other half without.
        for (j, (axis, cuts, shards)) in [
            (Axis::Z, &[9, 8][..], &[1, 1][..]),
            (Axis::Y, &[6, 7], &[1, 1]),
            (Axis::Z, &[8, 1, 8], &[1, 1, 1]),
            (Axis::Z, &[1, 5, 1, 2, 8], &[1, 3, 1]),
            (Axis::Z, &[3, 1, 1, 1, 1, 1, 2, 7], &[2, 2, 3, 1]),
        ]
        .into_iter()
        .enumerate()
        {
            if (i / 2 + i + j) % 2 == 1 {
                continue;
            }
            let fixed = Layout::uneven(size, axis, cuts).unwrap();
            let moving = Layout::balanced(size, axis, cuts.len()).unwrap();
            let [got, found] = on_ranks(&images, [&fixed, &moving], shards, &options, 10);
            let label = format!("{measure:?}, masks {masked}, {axis:?} {cuts:?} on {shards:?}");
            let error = assert_close(&label, &found, &field, F64_ITERATIONS);
            assert_close(&label, &got, &measures, F64_ITERATIONS);
            println!("deform on ranks, {label}: {error:.1e}");
        }
    }
}

#[test]
fn thirty_iterations_of_ranks_end_where_the_serial_ones_do() {
    let images = phantoms([18, 20, 28], DType::F32);
    let size = [28, 20, 18];
    for (i, measure) in measures().into_iter().enumerate() {
        let options = options(measure);
        let [measures, field] = serial(&images, &options, 30);
        for (j, (cuts, shards)) in [
            (&[15, 13][..], &[1, 1][..]),
            (&[11, 7, 10], &[1, 1, 1]),
            (&[9, 2, 5, 5, 7], &[1, 2, 1, 1]),
        ]
        .into_iter()
        .enumerate()
        {
            let fixed = Layout::uneven(size, Axis::Z, cuts).unwrap();
            // The moving image is cut elsewhere, or held by every rank, in turn.
            let parts = [cuts.len(), 1][(i + j) % 2];
            let moving = Layout::balanced(size, Axis::Z, parts).unwrap();
            let [got, found] = on_ranks(&images, [&fixed, &moving], shards, &options, 30);
            let error = largest_difference(&found, &field);
            let label = format!("{measure:?} {cuts:?} on {shards:?}, {parts}");
            println!("deform on ranks, {label}: {error:.1e} voxel");
            assert!(error <= FIELD_VOXELS, "{label}: {error:.1e} voxel");
            assert_close(&label, &got, &measures, MEASURE);
        }
    }
}

#[test]
fn a_rank_that_ends_is_named_to_the_others() {
    let images = phantoms([14, 13, 17], DType::F32);
    let options = options(Measure::Lncc(LnccOptions::default()));
    let layout = Layout::balanced([17, 13, 14], Axis::Z, 3).unwrap();
    let found = in_ranks(3, |ranks| {
        let me = ranks.rank();
        let team = Team::new(&ranks, cuts_of(&layout, &[1; 3]), Some(cuts_of(&layout, &[1; 3])));
        let own = |image: &Tensor<5>| part(image, &layout, me..me + 1);
        let images = ShardedImages {
            fixed: own(&images.fixed),
            moving: own(&images.moving),
            affine: images.affine.clone(),
            masked: [false; 2],
            landmarks: None,
        };
        let state = ShardedState::new(vec![own(&start(&phantoms([14, 13, 17], DType::F32).fixed))]);
        let mesh = DeviceMesh::one(&Device::flex());
        let by = DeformCriterion { similarity: options.measure.into(), options: &options };
        let mut deform = ShardedDeform::in_team(images, state, by, &mesh, team).unwrap();
        deform.iterate(2).unwrap();
        drop(ranks);
        // Rank 1 goes home.
        if me == 1 { None } else { deform.iterate(2).err().map(|error| error.to_string()) }
    });
    for me in [0, 2] {
        let error = found[me].as_ref().expect("it cannot go on alone");
        assert!(error.contains("rank 1 of 3"), "{error}");
    }
    assert!(found[1].is_none());
}

#[test]
fn what_one_rank_cannot_do_none_begins() {
    let refused = |ranks: &Arc<dyn Ranks>| {
        Err::<(), _>(Error::invalid("it must be 3", ranks.rank(), "use 3"))
    };
    let some = in_ranks(3, |ranks| {
        let mine = if ranks.rank() == 0 { Ok(()) } else { refused(&ranks) };
        agree(ranks.as_ref(), mine).expect_err("two have failed").to_string()
    });
    for error in some {
        assert!(error.contains("rank 1 of 3") && error.contains("got 1; use 3"), "{error}");
    }
    let all = in_ranks(2, |ranks| agree(ranks.as_ref(), refused(&ranks)).expect_err("all failed"));
    assert!(all.iter().all(|error| error.to_string().starts_with("every rank: ")), "{all:?}");
    let fine = in_ranks(2, |ranks| {
        agree::<_, Error>(ranks.as_ref(), Ok(ranks.rank())).expect("nobody failed")
    });
    assert_eq!(fine, [0, 1]);
}

#[test]
fn all_combinations_on_ranks_are_the_serial_ones_but_for_rounding() {
    let plain = phantoms([14, 13, 17], DType::F64);
    // In turn.
    let places = [(&[9, 8][..], &[1, 1][..]), (&[3, 4, 2, 8], &[2, 1, 1])];
    for (i, (content, images)) in super::deform::contents(&plain).into_iter().enumerate() {
        for (j, (name, variant)) in super::deform::variants().into_iter().enumerate() {
            // A mean with windows, one without, and a table.
            for (k, measure) in measures()[..3].iter().enumerate() {
                // Every pair of them: that all three go together, shards of one process show.
                if (i + j + k) % 3 > 0 {
                    continue;
                }
                let options = DeformOptions { measure: *measure, ..variant };
                let [losses, field] = serial(&images, &options, 3);
                let (cuts, shards) = places[(j + k) % 2];
                let layout = Layout::uneven([17, 13, 14], Axis::Z, cuts).unwrap();
                let [got, found] = on_ranks(&images, [&layout; 2], shards, &options, 3);
                let label = format!("{name}, {measure:?}, {content}, {cuts:?} on {shards:?}");
                assert_close(&label, &got, &losses, F64_ITERATIONS);
                assert_close(&label, &found, &field, F64_ITERATIONS);
            }
        }
    }
}
