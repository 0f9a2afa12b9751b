//! Many pairs in one process, on one device or several. One pair is a cohort of one ([`run_one`]).
//!
//! [`Steps`] is what a command does with a pair; the steps of several pairs run concurrently (`pipeline`). [`Cohort`]
//! takes pairs from a list; `ledger` says how each of them ended, `page` leaves a table and a page over all.

mod ledger;
mod list;
mod page;
mod pipeline;

pub use ledger::Column;
pub use list::{Cohort, Pair, run_one};
pub use page::THUMBNAIL;
pub use pipeline::Steps;
