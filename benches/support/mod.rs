//! Pieces of the benches: arguments, cases, timing, memory, report.

mod args;
mod backend;
mod cases;
mod copy;
mod inputs;
mod measure;
mod memory;
mod report;

pub use args::Args;
pub use backend::Backend;
pub use cases::{Case, Pass, Variant, cases};
pub use measure::{Bench, Limits, Row};
pub use memory::Counting;
pub use report::Report;
