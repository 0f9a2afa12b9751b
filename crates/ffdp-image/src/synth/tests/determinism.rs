//! The same seed, the same bits.

use super::*;

fn bits(subject: &Subject) -> (Vec<u32>, Vec<i32>) {
    (subject.image.data.iter().map(|v| v.to_bits()).collect(), subject.labels.data.clone())
}

pub(super) fn on_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.expect("a thread pool").install(work)
}

#[test]
fn same_seed_gives_the_same_bits_on_any_number_of_threads() {
    let settings = PhantomSettings::with_size([33, 40, 29]);
    let draw = |threads| on_threads(threads, || pair(&settings, 11).expect("valid"));
    let (one, three) = (draw(1), draw(3));
    assert_eq!(bits(&one.fixed), bits(&three.fixed));
    assert_eq!(bits(&one.moving), bits(&three.moving));
    let to_bits = |u: &[f32]| u.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert_eq!(to_bits(&one.displacement), to_bits(&three.displacement));
    assert_eq!(to_bits(&one.inverse_displacement), to_bits(&three.inverse_displacement));
}

#[test]
fn other_seeds_give_other_subjects_and_a_pair_holds_its_subject() {
    let settings = PhantomSettings::with_size([32; 3]);
    let (a, b) = (subject(&settings, 1).expect("valid"), subject(&settings, 2).expect("valid"));
    assert_ne!(a.labels.data, b.labels.data);
    assert_ne!(bits(&a).0, bits(&b).0);
    let pair = pair(&settings, 1).expect("valid");
    assert_eq!(bits(&pair.moving), bits(&a));
    assert_eq!(pair.fixed.labels.geometry, a.labels.geometry);
}
