//! The labels of a real pair of brains, where they are present.
