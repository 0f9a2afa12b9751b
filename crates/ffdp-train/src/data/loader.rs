//! Burn's `DataLoader` over pairs: one item is one direction of one pair.
//!
//! Burn's own loader shuffles with a generator whose state no checkpoint keeps. Here everything
//! random in an epoch is a function of the run's seed and the epoch's number alone, so a resumed run
//! sees exactly what an uninterrupted one would have seen.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::data::dataset::DatasetError;
use burn::tensor::Device;

use super::order::{self, Task};
use super::prefetch::Queue;
use super::{Dataset, OnDevice, Pair, Preparation, Prepared, Tensors, Training};
use crate::settings::Settings;

/// One step's input.
pub struct Item {
    /// The image that is deformed.
    pub moving: Tensors,
    /// The image that stays.
    pub fixed: Tensors,
    /// Both on the host, with their labels.
    pub pair: Prepared,
    /// Where to draw the result, in validation.
    pub picture: Option<PathBuf>,
    /// Seconds from the request to here: waiting for the threads that prepare, and copying.
    pub waited: f64,
}

/// What a loader goes through.
#[derive(Clone)]
enum Order {
    /// Training: shuffled, both directions.
    Shuffled { training: Arc<Training>, seed: u64 },
    /// Validation: as listed, one direction; the first pair of an epoch is drawn in this folder.
    Listed { pairs: Arc<Vec<Pair>>, pictures: PathBuf },
}

/// A data loader of single pairs.
pub struct Loader {
    order: Order,
    preparation: Arc<Preparation>,
    threads: usize,
    /// The pairs of a step go to these in turn.
    places: Vec<Arc<OnDevice>>,
    batch: usize,
    epoch: AtomicUsize,
    range: Range<usize>,
}

impl Loader {
    /// Training items, starting with epoch `epoch` (from 1). Of the pairs of a step each device has its
    /// share, in turn.
    pub fn training(
        dataset: &Dataset,
        settings: &Settings,
        epoch: usize,
        devices: &[Device],
    ) -> Self {
        let training = Arc::new(dataset.training.clone());
        let range = 0..training.steps_per_epoch();
        let order = Order::Shuffled { training, seed: settings.seed };
        Self::new(order, dataset, settings, epoch, devices, range)
    }

    /// Validation items, starting with epoch `epoch` (from 1).
    pub fn validation(
        dataset: &Dataset,
        settings: &Settings,
        pictures: PathBuf,
        epoch: usize,
        device: &Device,
    ) -> Self {
        let pairs = Arc::new(dataset.validation.clone());
        let range = 0..pairs.len();
        let (order, devices) = (Order::Listed { pairs, pictures }, std::slice::from_ref(device));
        Self::new(order, dataset, settings, epoch, devices, range)
    }

    fn new(
        order: Order,
        dataset: &Dataset,
        settings: &Settings,
        epoch: usize,
        devices: &[Device],
        range: Range<usize>,
    ) -> Self {
        let trains_labels = settings.dice_weight > 0.0;
        let room_bytes = settings.cache_mib << 20;
        let place = |device| Arc::new(OnDevice::new(device, trains_labels, room_bytes));
        Self {
            order,
            preparation: dataset.preparation.clone(),
            threads: settings.workers,
            places: devices.iter().map(place).collect(),
            batch: settings.batch,
            epoch: AtomicUsize::new(epoch),
            range,
        }
    }

    fn with(&self, places: Vec<Arc<OnDevice>>, range: Range<usize>) -> Self {
        Self {
            order: self.order.clone(),
            preparation: self.preparation.clone(),
            threads: self.threads,
            places,
            batch: self.batch,
            epoch: AtomicUsize::new(self.epoch.load(Ordering::SeqCst)),
            range,
        }
    }

    /// Seeds every device, each with another number; a device that occurs twice has the first. Burn's CPU
    /// has one generator for the whole process.
    fn seed(&self, seed: u64) {
        let mut known: Vec<Device> = Vec::new();
        for (place, k) in self.places.iter().zip(0u64..) {
            let device = place.device().clone().inner();
            if !known.contains(&device) {
                device.seed(seed.wrapping_add(k << 32));
                known.push(device);
            }
        }
    }

    fn tasks(&self, epoch: usize) -> Vec<Task> {
        let tasks = match &self.order {
            Order::Listed { pairs, .. } => {
                pairs.iter().map(|pair| Task { pair: pair.clone(), draw: None }).collect()
            }
            Order::Shuffled { training, seed } => {
                order::epoch(training, &self.preparation.augmentation, *seed, epoch)
            }
        };
        tasks.into_iter().skip(self.range.start).take(self.range.len()).collect()
    }
}

impl DataLoader<Item> for Loader {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<Item> + 'a> {
        let epoch = self.epoch.fetch_add(1, Ordering::SeqCst);
        if let Order::Shuffled { seed, .. } = &self.order {
            // Stochastic depth draws on the device: repeatable epoch by epoch too.
            self.seed(seed.wrapping_add(epoch as u64));
        }
        let picture = match &self.order {
            Order::Listed { pictures, .. } => Some(pictures.join(format!("epoch-{epoch:03}.png"))),
            Order::Shuffled { .. } => None,
        };
        let tasks = self.tasks(epoch);
        let queue = Queue::start(&self.preparation, &tasks, self.threads);
        let (places, batch) = (&self.places, self.batch);
        Box::new(Iter { places, batch, queue, picture, done: 0, total: tasks.len() })
    }

    fn num_items(&self) -> usize {
        self.range.len()
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<Item>> {
        let place = match &self.places[..] {
            [place] if place.device() == device => place.clone(),
            _ => Arc::new(self.places[0].on(device)),
        };
        Arc::new(self.with(vec![place], self.range.clone()))
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<Item>> {
        let first = self.range.start;
        let range = first + start..(first + end).min(self.range.end);
        Arc::new(self.with(self.places.clone(), range))
    }
}

struct Iter<'a> {
    places: &'a [Arc<OnDevice>],
    batch: usize,
    queue: Queue,
    picture: Option<PathBuf>,
    done: usize,
    total: usize,
}

impl Iterator for Iter<'_> {
    type Item = Result<Item, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done == self.total {
            return None;
        }
        let place = &self.places[self.done % self.batch % self.places.len()];
        self.done += 1;
        let asked = Instant::now();
        let item = self.queue.next().map(|pair| {
            let [moving, fixed] = place.pair(&pair);
            let waited = asked.elapsed().as_secs_f64();
            Item { moving, fixed, pair, picture: self.picture.take(), waited }
        });
        Some(item.map_err(DatasetError::new))
    }
}

impl DataLoaderIterator<Item> for Iter<'_> {
    fn progress(&self) -> Progress {
        Progress::new(self.done, self.total, Some("pairs".into()))
    }
}
