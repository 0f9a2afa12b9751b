//! A series: the volumes of a 4-D image, each registered to one image.
//!
//! Without a fixed image that is the series itself, and what is found is the motion of the head: rigid, by the squared
//! difference ([`motion_settings`]), onto the mean of the volumes. With one it is any registration. Volumes are read one
//! after the other, start from what was found for their neighbours, and are registered in parallel on the cores of a CPU;
//! what is made of the fixed image is made once.
//!
//! Read `register.rs` first (the passes), then `pass.rs` (one pass over the volumes); `volumes.rs` reads them,
//! `motion.rs` has the six numbers of a motion, `result.rs` what comes of it, `files.rs` how that is written and read.
//!
//! ```
//! use ffdp_groups::series::{RegisterSeries, SeriesImage};
//! # use ffdp_image::image::Volume;
//! # use ffdp_image::synth::{PhantomSettings, pair};
//! # let image = pair(&PhantomSettings::with_size([24; 3]), 7)?.fixed.image;
//! # let volumes = vec![image.clone(), image.clone(), image];
//!
//! let images = SeriesImage::of(&volumes)?; // a file: SeriesImage::open("bold.nii.gz")?
//! let found = RegisterSeries::new(&images).run()?;
//! for volume in &found.volumes {
//!     assert!(volume.framewise_displacement_mm < 0.1);
//! }
//! # Ok::<(), ffdp_image::Error>(())
//! ```

mod files;
mod mean;
mod motion;
mod pass;
mod register;
mod result;
mod settings;
mod volumes;

pub use files::{REFERENCE, SeriesTransforms, TRANSFORMS, is_series_transform};
pub use motion::{HEAD_RADIUS_MM, RigidMotion};
pub use pass::{SeriesObserver, SeriesProgress, SilentSeries};
pub use register::RegisterSeries;
pub use result::{Onto, SeriesRegistration, SeriesVerdict, VolumeResult};
pub use settings::{Reference, motion_settings};
pub use volumes::{SeriesImage, VolumeReader};
