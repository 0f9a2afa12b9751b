//! Many pairs in one process, on one device or several. One pair is a cohort of one.
//!
//! [`pipeline`] runs the steps of the pairs beside each other; [`Ledger`] says how each of them ended, and leaves a table and a
//! page over all.

mod ledger;
mod page;
mod pipeline;

pub use ledger::{Column, Ledger};
pub use pipeline::{Steps, run};
