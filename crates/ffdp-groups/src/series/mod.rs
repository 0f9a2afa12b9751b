//! A series: the volumes of a 4-D image, each registered to one reference.
