//! The plan of a run: every level with its memory, what is there, and what to change.

use std::fmt::Write;
use std::path::Path;

use ffdp_image::Error;
use ffdp_image::image::Geometry;
use ffdp_image::io::available_memory_bytes;
use ffdp_image::io::images::header;
use ffdp_parallel::{DeviceMesh, planner::page_bytes};
use ffdp_register::{
    Content, Placement, Settings, Stage,
    pyramid::{finest_spacing_mm, level_geometry},
};
use serde::Serialize;

use super::model::{
    Voxels, channel_bytes, device_bytes, host_bytes, results_bytes, slab_level_bytes, slabs_bytes,
};
use crate::device::DeviceChoice;
use crate::disk::Forecast;
use crate::failure::Result;
use crate::json::to_json;
use crate::printer::print_to_stdout;
use crate::settings::deforms;

/// The grids of a problem, and what else of it takes memory.
pub struct Sizes {
    pub fixed: Geometry,
    pub moving: Geometry,
    /// Channels that are compared, and which of both has a mask.
    pub content: Content,
    /// Whether labels are warped and compared.
    pub labels: bool,
}

impl Sizes {
    /// From the headers of two files.
    pub fn of_files(fixed: &Path, moving: &Path, labels: bool) -> Result<Self> {
        Ok(Self::of_grids([header(fixed)?.geometry, header(moving)?.geometry], labels))
    }

    /// Of images on such grids.
    pub fn of_grids([fixed, moving]: [Geometry; 2], labels: bool) -> Self {
        Self { fixed, moving, content: Content::PLAIN, labels }
    }
}

/// How the images of a run are held.
pub enum Held<'a> {
    /// All of them in host memory.
    Whole,
    /// Slab by slab, and computed there.
    Slabs(&'a Placement),
}

/// What a run needs.
#[derive(Debug, Serialize)]
pub struct Plan {
    pub levels: Vec<LevelPlan>,
    /// Host memory while the result is measured and written; null slab by slab, where the levels count it.
    pub results_host_bytes: Option<u64>,
    /// The largest of all.
    pub host_peak_bytes: u64,
    /// Free host memory; null where the system does not say.
    pub host_available_bytes: Option<u64>,
    /// The largest of all; null on the CPU.
    pub device_peak_bytes: Option<u64>,
    /// Free memory of the device; null on the CPU, where the driver does not say, and as long as it was
    /// not asked.
    pub device_available_bytes: Option<u64>,
    /// Disk space that the results are expected to take.
    pub disk_bytes: u64,
    /// The same with a checkpoint, at most.
    pub disk_bytes_at_most: u64,
}

/// What a level needs.
#[derive(Debug, Serialize)]
pub struct LevelPlan {
    pub stage: &'static str,
    pub shrink: f64,
    /// Of the fixed image, in voxels.
    pub size: [usize; 3],
    /// Parts into which it is cut, and those of them that rest in host memory.
    pub shards: usize,
    pub shards_at_rest: usize,
    pub host_bytes: u64,
    pub device_bytes: Option<u64>,
}

/// A level of a stage, as far as headers show.
struct OnLevel<'a> {
    stage: &'a Stage,
    shrink: f64,
    grids: [Geometry; 2],
    voxels: Voxels,
}

/// All levels of all stages.
struct Levels<'a>(Vec<OnLevel<'a>>);

impl<'a> Levels<'a> {
    fn new(settings: &'a Settings, sizes: &Sizes) -> Self {
        let full = [&sizes.fixed, &sizes.moving];
        let [fixed, moving] = full.map(|grid| grid.len() as u64);
        let finest_mm = finest_spacing_mm(&sizes.fixed);
        let least = settings.minimum_axis_voxels;
        let of_stage = |stage: &'a Stage| {
            stage.levels().iter().map(move |level| {
                let shrink = level.shrink;
                let grids = full.map(|grid| {
                    level_geometry(grid, shrink * finest_mm, least).unwrap_or_else(|_| grid.clone())
                });
                let [level, moving_level] = grids.each_ref().map(|grid| grid.len() as u64);
                OnLevel {
                    stage,
                    shrink,
                    grids,
                    voxels: Voxels { fixed, moving, level, moving_level },
                }
            })
        };
        Self(settings.stages.iter().flat_map(of_stage).collect())
    }

    /// The voxels that a result is made of.
    fn last(&self, sizes: &Sizes) -> Voxels {
        let [fixed, moving] = [&sizes.fixed, &sizes.moving].map(|grid| grid.len() as u64);
        let none = Voxels { fixed, moving, level: 0, moving_level: 0 };
        self.0.last().map_or(none, |level| level.voxels)
    }
}

impl Held<'_> {
    fn level(&self, level: &OnLevel, sizes: &Sizes, device: DeviceChoice) -> Result<LevelPlan> {
        let OnLevel { stage, shrink, grids, voxels } = level;
        let per_voxel = stage.host_bytes_per_voxel();
        let more = sizes.content.channels as u64 - 1;
        let planned = LevelPlan {
            stage: stage.name(),
            shrink: *shrink,
            size: grids[0].size,
            shards: 1,
            shards_at_rest: 0,
            host_bytes: host_bytes(*voxels, per_voxel, device)
                + more * channel_bytes(*voxels, device),
            device_bytes: None,
        };
        let on_device = device != DeviceChoice::Cpu;
        let Self::Slabs(placement) = self else {
            let of_level = stage.device_bytes(grids.each_ref(), sizes.content).ok();
            let of_level = of_level.filter(|_| on_device);
            let device_bytes = of_level.map(|bytes| device_bytes(*voxels, sizes.content, bytes));
            return Ok(LevelPlan { device_bytes, ..planned });
        };
        let taken = stage.takes(placement, grids.each_ref(), sizes.content)?;
        let on_host = match (device, taken.shards) {
            (DeviceChoice::Cpu, 1) => slab_level_bytes(*voxels, per_voxel, more),
            (DeviceChoice::Cpu, _) => taken.device_bytes,
            _ => 0,
        };
        let held = taken.host_bytes + on_host;
        Ok(LevelPlan {
            shards: taken.shards,
            shards_at_rest: taken.at_rest,
            host_bytes: slabs_bytes(held, [&sizes.fixed, &sizes.moving], device),
            device_bytes: on_device.then_some(taken.device_bytes),
            ..planned
        })
    }
}

impl Plan {
    /// The plan of valid settings on a device, whose results take so much of the disk.
    ///
    /// # Errors
    /// Where a device cannot hold a shard at work, or all shards of a method that keeps them there.
    pub fn new(
        settings: &Settings,
        sizes: &Sizes,
        held: Held,
        device: DeviceChoice,
        disk: Forecast,
    ) -> Result<Self> {
        let settings = &settings.for_images(&sizes.fixed);
        let all = Levels::new(settings, sizes);
        let level = |level| held.level(level, sizes, device);
        let levels = all.0.iter().map(level).collect::<Result<Vec<_>>>()?;
        let results_host_bytes = match held {
            Held::Whole => {
                let has = [deforms(settings), sizes.labels];
                Some(results_bytes(all.last(sizes), has, device))
            }
            Held::Slabs(_) => None,
        };
        let host = levels.iter().map(|level| level.host_bytes).max().unwrap_or(0);
        Ok(Self {
            host_peak_bytes: host.max(results_host_bytes.unwrap_or(0)),
            results_host_bytes,
            host_available_bytes: available_memory_bytes(),
            device_peak_bytes: levels.iter().filter_map(|level| level.device_bytes).max(),
            device_available_bytes: None,
            disk_bytes: disk.expected,
            disk_bytes_at_most: disk.most,
            levels,
        })
    }

    /// Demands that every level has room on each of several devices, of which the fullest has so much free: with what is
    /// kept for others, since a device that has none left keeps the others waiting.
    ///
    /// # Errors
    /// When a level does not fit, with the figures.
    pub fn check_mesh(
        settings: &Settings,
        sizes: &Sizes,
        mesh: &DeviceMesh,
        free_bytes: u64,
    ) -> Result<()> {
        let placement = Placement::DeviceMesh(mesh.clone());
        for OnLevel { stage, grids, .. } in &Levels::new(settings, sizes).0 {
            let taken = stage.takes(&placement, grids.each_ref(), sizes.content)?;
            page_bytes(taken.device_bytes, free_bytes)?;
        }
        Ok(())
    }

    /// With what the device has left now.
    pub fn asking(self, device: DeviceChoice) -> Self {
        Self { device_available_bytes: device.free_memory_bytes(), ..self }
    }

    /// # Errors
    /// When the host's memory is too small, with what to change.
    pub fn check_memory(&self) -> Result<()> {
        match self.host_available_bytes {
            Some(available_bytes) if self.host_peak_bytes > available_bytes => {
                let percent = 100.0 * (available_bytes as f64 / self.host_peak_bytes as f64);
                Err(Error::TooLarge {
                    what: "the registration".to_string(),
                    needed_bytes: self.host_peak_bytes,
                    available_bytes,
                    fix: match self.results_host_bytes {
                        Some(_) => format!(
                            "register with --slabs, which holds parts of the images, crop or \
                             resample the fixed image to at most {percent:.0} % of its voxels, \
                             close other programs, or use a machine with more memory (ffdp plan \
                             shows every level)"
                        ),
                        None => {
                            "give more of the device with --device-memory, store the moments in \
                                 bf16, or end at a coarser level with --shrink (--plan shows every \
                                 level)"
                                .to_string()
                        }
                    },
                }
                .into())
            }
            _ => Ok(()),
        }
    }

    /// Of a run that is not cut into shards, with so much memory of the device free, if it says.
    ///
    /// # Errors
    /// When the memory of the device is too small, with what to change.
    pub fn check_device_memory(&self, available_bytes: Option<u64>) -> Result<()> {
        match (self.device_peak_bytes, available_bytes) {
            (Some(needed_bytes), Some(available_bytes)) if needed_bytes > available_bytes => {
                let gb = available_bytes as f64 / 1e9;
                let percent = 100.0 * (available_bytes as f64 / needed_bytes as f64);
                Err(Error::TooLarge {
                    what: "the registration on the device".to_string(),
                    needed_bytes,
                    available_bytes,
                    fix: format!(
                        "cut greedy stages into parts with --device-memory {gb:.1}, crop or resample \
                         the fixed image to at most {percent:.0} % of its voxels, end other programs \
                         on the device, or use another one"
                    ),
                }
                .into())
            }
            _ => Ok(()),
        }
    }

    /// A line.
    pub fn in_short(&self) -> String {
        let on_device = |bytes| format!(" and {} of the device's", gigabytes(bytes));
        let device = self.device_peak_bytes.map_or(String::new(), on_device);
        format!("takes about {} of host memory{device}", gigabytes(self.host_peak_bytes))
    }

    /// To stdout, for people or as JSON.
    pub fn print(&self, json: bool) -> Result<()> {
        if json {
            return print_to_stdout(&to_json(self)?);
        }
        print_to_stdout(&self.text())
    }

    fn text(&self) -> String {
        let mut text =
            String::from("stage       shrink  size             host memory  device memory\n");
        for level in &self.levels {
            let [x, y, z] = level.size;
            let device = level.device_bytes.map_or("-".to_string(), gigabytes);
            let cuts = match (level.shards, level.shards_at_rest) {
                (1, 0) => String::new(),
                (shards, 0) => format!("  {shards} shards"),
                (shards, at_rest) => format!("  {shards} shards, {at_rest} of them in host memory"),
            };
            let _ = writeln!(
                text,
                "{:<12}{:<8}{:<17}{:>11}  {device:>13}{cuts}",
                level.stage,
                (100.0 * level.shrink).round() / 100.0,
                format!("{x} x {y} x {z}"),
                gigabytes(level.host_bytes),
            );
        }
        if let Some(bytes) = self.results_host_bytes {
            let _ = writeln!(text, "{:<37}{:>11}", "results", gigabytes(bytes));
        }
        let available = match self.host_available_bytes {
            Some(bytes) => format!("{} are available", gigabytes(bytes)),
            None => "the system does not say how much is available".to_string(),
        };
        let _ = writeln!(
            text,
            "host memory at the peak: {}; {available}",
            gigabytes(self.host_peak_bytes)
        );
        if let Some(bytes) = self.device_peak_bytes {
            let available = match self.device_available_bytes {
                Some(bytes) => format!("{} are free", gigabytes(bytes)),
                None => "the driver does not say how much is free".to_string(),
            };
            let _ = writeln!(text, "device memory at the peak: {}; {available}", gigabytes(bytes));
        }
        let [about, most] = [self.disk_bytes, self.disk_bytes_at_most].map(gigabytes);
        let _ = writeln!(text, "disk: about {about}, at most {most}");
        if self.check_memory().is_err() {
            text.push_str("this does not fit: crop or resample the fixed image\n");
        }
        if self.check_device_memory(self.device_available_bytes).is_err() {
            text.push_str(
                "this does not fit into the device: give --device-memory, or crop or resample the \
                 fixed image\n",
            );
        }
        text
    }
}

fn gigabytes(bytes: u64) -> String {
    format!("{:.2} GB", bytes as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    fn sizes(grid: impl Fn() -> Geometry) -> Sizes {
        Sizes { fixed: grid(), moving: grid(), content: Content::PLAIN, labels: false }
    }

    /// A pair of 64^3 voxels on the first CUDA device, whatever this machine has.
    fn plan() -> Plan {
        let grid = || Geometry::new([64; 3], [3.0; 3]).expect("valid");
        let sizes = sizes(grid);
        let (settings, disk) = (Settings::default(), Forecast::of_images(0, 0));
        Plan::new(&settings, &sizes, Held::Whole, DeviceChoice::Cuda(0), disk).expect("a plan")
    }

    fn message(checked: Result<()>) -> String {
        let failure = checked.expect_err("it does not fit");
        format!("{failure}, {}", failure.help_text().unwrap_or_default())
    }

    #[test]
    fn a_plan_that_would_fill_several_devices_is_refused_with_the_figures() {
        // Two places of a processor, as two GPUs of 80 GB would be: the head of the FFDP paper.
        let grid = || Geometry::new([1760, 1760, 1278], [0.1; 3]).expect("valid");
        let sizes = sizes(grid);
        let mesh = DeviceMesh::of(vec![Device::flex(); 16]);
        let settings = Settings::default();
        let check = |gb: f64| {
            let free = (gb * 1e9) as u64;
            Plan::check_mesh(&settings, &sizes, &mesh, free)
        };
        let text = message(check(85.0));
        for word in ["85.0 GB", "are kept for the driver", "more devices"] {
            assert!(text.contains(word), "no {word:?} in {text}");
        }
        check(1000.0).expect("there is room for all");
    }

    #[test]
    fn what_does_not_fit_is_refused_with_both_numbers_and_a_way_out() {
        let plan = plan();
        let needed = plan.device_peak_bytes.expect("it is no CPU");
        plan.check_device_memory(Some(needed)).expect("it just fits");
        plan.check_device_memory(None).expect("nobody knows");
        let text = message(plan.check_device_memory(Some(needed / 4)));
        let small = Plan { device_available_bytes: Some(needed / 4), ..self::plan() };
        let numbers = [needed.to_string(), (needed / 4).to_string()];
        for word in ["--device-memory", "25 %", "device", &numbers[0], &numbers[1]] {
            assert!(text.contains(word), "no {word:?} in {text}");
        }
        assert!(small.text().contains("does not fit into the device"), "{}", small.text());
        let host = Plan { host_available_bytes: Some(plan.host_peak_bytes - 1), ..plan };
        let text = message(host.check_memory());
        assert!(text.contains(&host.host_peak_bytes.to_string()), "{text}");
        assert!(text.contains("--slabs"), "{text}");
        let text = message(Plan { results_host_bytes: None, ..host }.check_memory());
        assert!(text.contains("--shrink") && !text.contains("crop"), "{text}");
    }
}
