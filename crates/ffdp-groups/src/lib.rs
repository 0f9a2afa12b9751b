//! Groups of images: an unbiased template of a cohort (`template/`), and the volumes of a series brought into one place
//! (`series/`). Both are lists of registrations of [`ffdp_register`].

pub mod series;
pub mod template;
