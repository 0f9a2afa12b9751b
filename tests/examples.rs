//! The examples of a similarity and a method of one's own do what they say, and so does the table of what works.

#[path = "../examples/custom_method/main.rs"]
mod custom_method;
#[path = "../examples/custom_similarity/main.rs"]
mod custom_similarity;

use ffdp::register::Outcome;

#[test]
fn a_similarity_of_ones_own_registers_whole_and_in_shards() {
    let [whole, cut] = [1, 3].map(|shards| custom_similarity::run(shards).expect("good input"));
    assert_eq!(whole.outcome, Outcome::Improved);
    let gain = whole.loss_before - whole.loss_after;
    assert!(gain > 0.05, "losses {} and {}", whole.loss_before, whole.loss_after);
    let fields = [&whole, &cut]
        .map(|found| found.warp.as_ref().expect("a field").to_vec().expect("on the CPU"));
    let off = fields[0].iter().zip(&fields[1]).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
    // f32 sums in another order, over sixty iterations.
    assert!(off < 1e-2, "{off} voxel apart");
}

#[test]
fn a_method_of_ones_own_registers_and_is_reported() {
    let found = custom_method::run().expect("good input");
    assert_eq!(found.outcome, Outcome::Improved);
    assert!(
        found.loss_after < 0.5 * found.loss_before,
        "{} {}",
        found.loss_before,
        found.loss_after
    );
    assert_eq!(found.stages[0].transform, "demons");
    assert_eq!(found.stages[0].levels.len(), 2);
}

#[test]
fn the_table_of_the_documentation_is_what_the_methods_say() {
    let page = include_str!("../docs/registration.md");
    let table = ffdp::register::matrix();
    assert!(page.contains(&table), "docs/registration.md must hold this table:\n{table}");
}
