//! Training steps that several GPUs share: the steps of `ffdp train` themselves, one pair a GPU or a part of
//! every pair. Images are noise: nothing is learnt, and the work does not depend on them.

use std::sync::Arc;
use std::time::Instant;

use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLrScheduler;
use burn::tensor::{Device, Distribution, Tensor};
use burn::train::Learner;
use ffdp::image::{Geometry, LabelMap, Volume};
use ffdp::losses::similarities::{LnccSettings, MiSettings, Similarity};
use ffdp::nets::NetworkConfig;
use ffdp_train::AmsGrad;
use ffdp_train::data::{Item, OnDevice, Prepared, Sample};
use ffdp_train::model::Registration;
use ffdp_train::objective::{Objective, Terms};
use ffdp_train::schedule::Polynomial;
use ffdp_train::settings::Settings;
use ffdp_train::team::{Learners, Share};
use serde::Serialize;

use super::training::{Case, LABELS};

/// The figures of one case.
#[derive(Debug, Serialize)]
pub struct SharedFigures {
    /// A step of the optimiser, whose numbers are read every eighth time as in a training.
    pub step_s: f64,
    /// The same from each reading to the next.
    pub between_readings_s: Vec<f64>,
    /// The same as the first over the pairs of the step.
    pub pair_s: f64,
    /// Of each GPU, once.
    pub reserved_gb: Vec<Option<f64>>,
}

/// Steps before those that count.
const WARM_UP: usize = 3;
/// Steps between two readings.
const READ_EVERY: usize = 8;
const CACHE_BYTES: usize = 8 << 30;

fn noise(size: [usize; 3], name: &str) -> Arc<Sample> {
    let [d, h, w] = size;
    let geometry = Geometry::new([w, h, d], [1.0; 3]).expect("a grid");
    let count = d * h * w;
    let values = |high| {
        let even = Distribution::Uniform(0.0, high);
        let values = Tensor::<1>::random([count], even, &Device::flex());
        values.try_into_vec_as::<f32>().expect("on the host")
    };
    let labels = values(f64::from(LABELS)).into_iter().map(|value| value as i32).collect();
    let labels = LabelMap::new(labels, geometry.clone()).expect("as many labels");
    let image = Volume::new(values(1.0), geometry).expect("as many values");
    Arc::new(Sample::new(name.into(), image, Some(labels)))
}

/// Steps of `case` on `devices`, which do not track gradients; a device that occurs several times, next to one
/// another, has as many parts of the volume.
///
/// # Errors
/// What cannot be computed in parts.
pub fn measure(
    case: &Case,
    size: [usize; 3],
    devices: &[Device],
    share: Share,
    steps: usize,
) -> Result<SharedFigures, String> {
    let settings = Settings {
        loss: match case.mutual_information {
            true => Similarity::Mi(MiSettings::default()),
            false => Similarity::Lncc(LnccSettings::transmorph()),
        },
        smoothness: Some(1.0),
        dice_weight: if case.dice { 1.0 } else { 0.0 },
        ..Settings::default()
    };
    let tracking: Vec<Device> = devices.iter().map(|device| device.clone().autodiff()).collect();
    let config = NetworkConfig::from(case.config(size).with_drop_path(0.0));
    let model = Registration::new(config.init(&tracking[0]), Objective::new(&settings, None));
    let optimizer = AmsGrad::with_epsilon(1e-8).init();
    let schedule = ModuleLrScheduler::new(Polynomial::new(1e-4, steps, 1000));
    let mut learners =
        Learners::new(Learner::new(model, optimizer, schedule), tracking.clone(), share);

    let samples = [noise(size, "moving"), noise(size, "fixed")];
    let places = if share == Share::Pairs { &tracking[..] } else { &tracking[..1] };
    let stores: Vec<OnDevice> =
        places.iter().map(|device| OnDevice::new(device, case.dice, CACHE_BYTES)).collect();
    let pairs = stores.len();
    let items = || -> Vec<Item> {
        let item = |store: &OnDevice| Item {
            moving: store.tensors(&samples[0]),
            fixed: store.tensors(&samples[1]),
            pair: Prepared { moving: samples[0].clone(), fixed: samples[1].clone(), changes: None },
            picture: None,
            waited: 0.0,
        };
        stores.iter().map(item).collect()
    };
    let (step_s, between) = timed(&mut learners, items, devices, steps)?;
    let mut gpus = devices.to_vec();
    gpus.dedup();
    let reserved =
        |device: &Device| device.memory_pool_usage().map(|usage| usage.bytes_reserved as f64 / 1e9);
    let reserved_gb = gpus.iter().map(reserved).collect();
    gpus.iter().for_each(Device::memory_cleanup);
    let pair_s = step_s / pairs as f64;
    Ok(SharedFigures { step_s, between_readings_s: between, pair_s, reserved_gb })
}

/// Seconds of a step, and between the readings of the losses.
fn timed(
    learners: &mut Learners,
    items: impl Fn() -> Vec<Item>,
    devices: &[Device],
    steps: usize,
) -> Result<(f64, Vec<f64>), String> {
    let (mut unread, mut between) = (Vec::new(), Vec::new());
    let (mut started, mut last, mut since) = (Instant::now(), Instant::now(), 0);
    for step in 0..WARM_UP + steps {
        let computed = learners.step(items()).map_err(|error| error.to_string())?;
        let pairs_of_step = computed.len();
        unread.extend(computed.into_iter().map(|computed| computed.terms));
        since += 1;
        let warm = step + 1 == WARM_UP;
        if warm || step + 1 == WARM_UP + steps || unread.len() >= READ_EVERY * pairs_of_step {
            Terms::read_all(std::mem::take(&mut unread));
            between.push(last.elapsed().as_secs_f64() / f64::from(since));
            (last, since) = (Instant::now(), 0);
        }
        if warm {
            devices.iter().try_for_each(Device::sync).map_err(|error| error.to_string())?;
            between.clear();
            (started, last) = (Instant::now(), Instant::now());
        }
    }
    devices.iter().try_for_each(Device::sync).map_err(|error| error.to_string())?;
    Ok((started.elapsed().as_secs_f64() / steps as f64, between))
}
