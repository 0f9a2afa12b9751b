//! Every structure is there, connected and of sensible size.

use super::*;

/// Sizes of the 26-connected pieces of one label, largest first.
fn pieces(labels: &crate::image::LabelMap, id: i32) -> Vec<usize> {
    let size = labels.geometry.size;
    let mut open: Vec<bool> = labels.data.iter().map(|&label| label == id).collect();
    let mut pieces = Vec::new();
    for start in 0..open.len() {
        if !std::mem::take(&mut open[start]) {
            continue;
        }
        let (mut stack, mut count) = (vec![start], 0);
        while let Some(offset) = stack.pop() {
            count += 1;
            let index = labels.geometry.index_of(offset);
            for step in 0..27usize {
                let d = [step % 3, step / 3 % 3, step / 9];
                let n: [usize; 3] = std::array::from_fn(|a| (index[a] + d[a]).wrapping_sub(1));
                if (0..3).all(|a| n[a] < size[a]) {
                    let neighbour = (n[2] * size[1] + n[1]) * size[0] + n[0];
                    if std::mem::take(&mut open[neighbour]) {
                        stack.push(neighbour);
                    }
                }
            }
        }
        pieces.push(count);
    }
    pieces.sort_unstable_by(|a, b| b.cmp(a));
    pieces
}

#[test]
fn every_structure_is_there_and_in_one_piece_or_two() {
    for seed in [0, 1, 2] {
        let labels = subject(&default_size(), seed).expect("valid").labels;
        for structure in Structure::ALL {
            let pieces = pieces(&labels, structure.id());
            let total: usize = pieces.iter().sum();
            assert!(total >= 30, "{} has {total} voxels, seed {seed}", structure.name());
            // Sampling at 3 mm may cut off the last voxels of a thin tail.
            let largest: usize = pieces.iter().take(2).sum();
            let part = largest as f64 / total as f64;
            assert!(part > 0.93, "{}: {pieces:?}, seed {seed}", structure.name());
        }
    }
}

#[test]
fn volumes_are_ordered_as_in_a_brain() {
    let labels = subject(&default_size(), 4).expect("valid").labels;
    let volume = |s: Structure| labels.data.iter().filter(|&&id| id == s.id()).count();
    use Structure::*;
    for (larger, smaller) in [
        (LeftCortex, LeftCerebellarCortex),
        (LeftWhiteMatter, LeftCerebellarWhiteMatter),
        (LeftCerebellarCortex, Brainstem),
        (Brainstem, LeftThalamus),
        (LeftThalamus, LeftPallidum),
        (LeftPutamen, LeftPallidum),
        (LeftHippocampus, LeftAmygdala),
        (LeftLateralVentricle, ThirdVentricle),
    ] {
        assert!(volume(larger) > volume(smaller), "{larger:?} and {smaller:?}");
    }
    for pair in Structure::ALL[..22].chunks(2) {
        let ratio = volume(pair[0]) as f64 / volume(pair[1]) as f64;
        assert!((0.6..1.6).contains(&ratio), "{} left/right: {ratio}", pair[0].name());
    }
}

#[test]
fn ids_and_names_go_both_ways() {
    for (index, structure) in Structure::ALL.into_iter().enumerate() {
        assert_eq!(structure.id(), index as i32 + 1);
        assert_eq!(Structure::from_id(structure.id()), Some(structure));
    }
    assert_eq!(Structure::from_id(0), None);
    assert_eq!(Structure::from_id(-1), None);
    assert_eq!(Structure::from_id(Structure::COUNT as i32 + 1), None);
}
