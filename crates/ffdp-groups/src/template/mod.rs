//! An unbiased template: the mean shape and the mean intensities of a cohort.
