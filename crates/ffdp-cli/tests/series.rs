//! Series with known motion.
