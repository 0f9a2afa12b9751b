//! The measures against independent implementations: see `scripts/golden/metrics.py`.

mod fields;
mod images;
mod inputs;
mod labels;
mod real_labels;

use serde_json::Value;

use super::*;

/// The values that the script wrote.
fn golden() -> Value {
    serde_json::from_str(include_str!("golden.json")).expect("the script writes JSON")
}

/// The number at a JSON pointer.
fn number(golden: &Value, pointer: &str) -> f64 {
    let value = golden.pointer(pointer).and_then(Value::as_f64);
    value.unwrap_or_else(|| panic!("no number at {pointer}"))
}

/// The three numbers at a JSON pointer.
fn triple(golden: &Value, pointer: &str) -> [f64; 3] {
    [0, 1, 2].map(|i| number(golden, &format!("{pointer}/{i}")))
}

fn size_of(golden: &Value) -> [usize; 3] {
    triple(golden, "/size").map(|n| n as usize)
}

/// Demands that numbers agree to a part of the golden one's magnitude (at least of 1).
fn assert_agrees(what: &str, ours: f64, golden: f64, tolerance: f64) {
    let difference = (ours - golden).abs();
    assert!(difference <= tolerance * golden.abs().max(1.0), "{what}: {ours}, golden {golden}");
}
