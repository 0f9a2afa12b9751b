//! Burn's `DataLoader` over pairs: one item is one direction of one pair.
//!
//! Burn's own loader shuffles with a generator whose state no checkpoint keeps. Here the order of
//! an epoch is a function of the run's seed and the epoch's number alone, so a resumed run sees
//! exactly what an uninterrupted one would have seen.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::data::dataset::DatasetError;
use burn::tensor::{Device, Tensor};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::{Pair, Sample, Training};

/// One step's input. Tensors are `[1, 1, D, H, W]`.
pub struct Item {
    pub moving: Tensor<5>,
    pub fixed: Tensor<5>,
    pub pair: Pair,
    /// Where to draw the result, in validation.
    pub picture: Option<PathBuf>,
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
    device: Device,
    epoch: AtomicUsize,
    range: (usize, usize),
}

impl Loader {
    /// Training items, starting with epoch `epoch` (from 1).
    pub fn training(training: &Training, seed: u64, epoch: usize, device: &Device) -> Self {
        let items = match training {
            Training::Subjects(subjects) => subjects.len() / 2 * 2,
            Training::Pairs(pairs) => pairs.len() * 2,
        };
        let order = Order::Shuffled { training: Arc::new(training.clone()), seed };
        Self::new(order, device, epoch, (0, items))
    }

    /// Validation items, starting with epoch `epoch` (from 1).
    pub fn validation(pairs: &[Pair], pictures: PathBuf, epoch: usize, device: &Device) -> Self {
        let order = Order::Listed { pairs: Arc::new(pairs.to_vec()), pictures };
        Self::new(order, device, epoch, (0, pairs.len()))
    }

    fn new(order: Order, device: &Device, epoch: usize, range: (usize, usize)) -> Self {
        Self { order, device: device.clone(), epoch: AtomicUsize::new(epoch), range }
    }

    fn pairs(&self, epoch: usize) -> Vec<Pair> {
        match &self.order {
            Order::Listed { pairs, .. } => pairs.to_vec(),
            Order::Shuffled { training, seed } => {
                let mut random = ChaCha8Rng::seed_from_u64(seed ^ ((epoch as u64) << 32));
                let pairs = match &**training {
                    Training::Pairs(pairs) => pairs.clone(),
                    Training::Subjects(subjects) => {
                        let mut subjects = subjects.clone();
                        subjects.shuffle(&mut random);
                        let pair = |two: &[Arc<Sample>]| Pair {
                            moving: two[0].clone(),
                            fixed: two[1].clone(),
                        };
                        subjects.chunks_exact(2).map(pair).collect()
                    }
                };
                let mut both: Vec<Pair> =
                    pairs.iter().flat_map(|pair| [pair.clone(), pair.swapped()]).collect();
                both.shuffle(&mut random);
                both
            }
        }
    }

    fn item(&self, pair: Pair, picture: Option<PathBuf>) -> Item {
        Item {
            moving: pair.moving.image.to_tensor(&self.device),
            fixed: pair.fixed.image.to_tensor(&self.device),
            pair,
            picture,
        }
    }
}

impl DataLoader<Item> for Loader {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<Item> + 'a> {
        let epoch = self.epoch.fetch_add(1, Ordering::SeqCst);
        if let Order::Shuffled { seed, .. } = &self.order {
            // Stochastic depth draws on the device: repeatable epoch by epoch too.
            self.device.seed(seed.wrapping_add(epoch as u64));
        }
        let picture = match &self.order {
            Order::Listed { pictures, .. } => Some(pictures.join(format!("epoch-{epoch:03}.png"))),
            Order::Shuffled { .. } => None,
        };
        let (start, end) = self.range;
        let pairs: Vec<Pair> =
            self.pairs(epoch).into_iter().skip(start).take(end - start).collect();
        Box::new(Iter { loader: self, pairs, picture, next: 0 })
    }

    fn num_items(&self) -> usize {
        self.range.1 - self.range.0
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<Item>> {
        let epoch = self.epoch.load(Ordering::SeqCst);
        Arc::new(Self::new(self.order.clone(), device, epoch, self.range))
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<Item>> {
        let epoch = self.epoch.load(Ordering::SeqCst);
        let range = (self.range.0 + start, (self.range.0 + end).min(self.range.1));
        Arc::new(Self::new(self.order.clone(), &self.device, epoch, range))
    }
}

struct Iter<'a> {
    loader: &'a Loader,
    pairs: Vec<Pair>,
    picture: Option<PathBuf>,
    next: usize,
}

impl Iterator for Iter<'_> {
    type Item = Result<Item, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        let pair = self.pairs.get(self.next)?.clone();
        self.next += 1;
        Some(Ok(self.loader.item(pair, self.picture.take())))
    }
}

impl DataLoaderIterator<Item> for Iter<'_> {
    fn progress(&self) -> Progress {
        Progress::new(self.next, self.pairs.len(), Some("pairs".into()))
    }
}
