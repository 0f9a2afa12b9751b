//! nets
