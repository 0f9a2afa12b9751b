pub use ffdp_burn::*;
