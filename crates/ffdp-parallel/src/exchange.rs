//! What devices give each other in every iteration, ordered on the devices themselves: the host waits
//! for none of them.
//!
//! CubeCL (0.11.3) moves data between GPUs through NCCL, on another stream than that of a device's
//! computations. A tensor that travels alone (`Tensor::to_device`) is not ordered with everything that the
//! computations do: it may be written where they still read what was there before, and be overwritten
//! before it was read; `transfer.rs` therefore waits for whole devices. A sum over devices (`all_reduce`)
//! has no such gap. Its buffer belongs to the computations, the sum begins after what was enqueued
//! before it, and what is enqueued after `resolve` begins after the sum:
//! ```text
//! computations of each device  ->  sum, in place, on all devices  ->  computations of each device
//! ```
//! So all that travels here travels as a sum, to which each device adds what it has to say, and zeros
//! where others speak; `x + 0` is `x`. It doubles the bytes of planes that two devices give each other,
//! which are a small part of a shard. Between the two arrows a device goes on with what does not need the sum ([`Swap`]).
//!
//! **Nothing else is recorded while a sum is on its way to its devices** (`joined::launch`, before it and after it).
//! On each device a sum runs until the others have joined it, and loading a kernel waits for the sums that run: one
//! that is used for the first time in front of a sum on one device, or behind it on another, would wait for a sum
//! that waits for it. For the same reason the sum itself must not need a kernel: what is summed belongs to nobody
//! else and need not be copied. Sums of several groups of devices follow
//! each other in the same order on every device.
//!
//! **What comes after a sum may be used for the first time as well**, and be loaded while the sum is under way.
//! That is a deadlock as well: both threads load, one device runs the sum, and the other has not begun it. So the host
//! does wait for the first sums of a process, and for those that a [`WaitForSums`] sees: the first iterations of a
//! problem, and those in which it exchanges as many planes for the first time.
//!
//! **A device that cannot join a sum is found before the others begin it**: where memory has run out on one of them, none
//! begins ([`launch_checked`]). NCCL allocates memory of its own when a group of devices, or a way to send among them, is
//! used for the first time: that happens before their memory is given away ([`connect`]). What still does not proceed ends
//! the process (`watch.rs`).

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use burn::Tensor;
use burn::tensor::Device;
use burn::tensor::distributed::{CollectiveTensor, ReduceOperation, all_reduce};

use super::joined::{are_joined, launch, launch_checked};
use super::on_each_device::distinct;
use super::transfer::{in_line, to_device};
use super::watch::{Ticket, watched};
use ffdp_image::error::Result;

/// How values are combined, element by element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// The largest.
    Max,
    /// The smallest.
    Min,
}

impl Reduction {
    pub(super) fn combine<const D: usize>(self, a: Tensor<D>, b: Tensor<D>) -> Tensor<D> {
        match self {
            Self::Sum => a + b,
            Self::Max => a.max_pair(b),
            Self::Min => a.min_pair(b),
        }
    }
}

/// The first sums of a process, which the host waits for: those of some ten iterations, or of 64 steps of a training.
const FIRST_SUMS: usize = 64;

static SUMS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static CAREFUL: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, this thread waits for every sum.
#[must_use]
pub(super) struct WaitForSums {
    before: bool,
    // Of one thread.
    _here: PhantomData<*const ()>,
}

impl WaitForSums {
    /// From here on, if `so`.
    pub fn when(so: bool) -> Self {
        let before = CAREFUL.get();
        CAREFUL.set(before || so);
        Self { before, _here: PhantomData }
    }
}

impl Drop for WaitForSums {
    fn drop(&mut self) {
        CAREFUL.set(self.before);
    }
}

/// The numbers of elements of sums for which NCCL may choose another way.
const WAYS: [usize; 3] = [1, 1 << 16, 1 << 22];

/// Has joined devices form their first sums, once in a process: for these NCCL connects them and allocates its own
/// memory, before theirs is full of shards.
///
/// # Errors
/// [`Error::Device`](ffdp_image::Error::Device) where one cannot.
pub(super) fn connect(devices: &[Device]) -> Result<()> {
    static CONNECTED: Mutex<Vec<Vec<Device>>> = Mutex::new(Vec::new());
    let places: Vec<Device> = distinct(devices).into_iter().map(Device::inner).collect();
    let mut connected = CONNECTED.lock().unwrap_or_else(PoisonError::into_inner);
    if !are_joined(&places) || connected.contains(&places) {
        return Ok(());
    }
    let _waiting = WaitForSums::when(true);
    // Those of all, and of neighbours, which swap planes.
    let neighbours = places.windows(2).filter(|_| places.len() > 2);
    for group in std::iter::once(&places[..]).chain(neighbours) {
        for values in WAYS {
            let zeros = group.iter().map(|place| Tensor::zeros([values], place));
            drop(sums(zeros.collect())?);
        }
    }
    places.iter().for_each(Device::memory_cleanup);
    connected.push(places);
    Ok(())
}

/// A sum on its way.
pub(super) struct Sum {
    /// One on each device.
    parts: Vec<CollectiveTensor<1>>,
    devices: Vec<Device>,
    ticket: Ticket,
}

impl Sum {
    /// On each device, for what is enqueued from now on.
    fn resolve(self) -> Vec<Tensor<1>> {
        let sums = self.parts.into_iter().map(CollectiveTensor::resolve).collect();
        self.ticket.ends_after(&self.devices);
        sums
    }
}

/// Of each group of tensors of one size, on different devices, the sum on each of these; launched in this order. Formed in
/// place: nobody else has the tensors.
///
/// # Errors
/// [`Error::Device`](ffdp_image::Error::Device) where one of them was not computed.
fn launch_sums(groups: Vec<Vec<Tensor<1>>>) -> Result<Vec<Sum>> {
    let first = SUMS.fetch_add(groups.len(), Ordering::Relaxed) < FIRST_SUMS;
    if !first && !CAREFUL.get() {
        return begin_sums(groups);
    }
    // Each before the next is launched.
    let waited_for = |group| {
        let sum = begin_sums(vec![group])?.remove(0);
        sum.parts.iter().for_each(|part| drop(part.clone().resolve()));
        // A failure shows where numbers are read.
        sum.devices.iter().for_each(|device| drop(device.sync()));
        Ok(sum)
    };
    groups.into_iter().map(waited_for).collect()
}

/// [`launch_sums`], without waiting for any.
fn begin_sums(groups: Vec<Vec<Tensor<1>>>) -> Result<Vec<Sum>> {
    let devices_of = |group: &Vec<Tensor<1>>| group.iter().map(Tensor::device).collect();
    let devices: Vec<Vec<Device>> = groups.iter().map(devices_of).collect();
    let tickets: Vec<Ticket> = devices.iter().map(|devices| watched("a sum", devices)).collect();
    launch_checked(&groups.concat())?;
    let all = distinct(&devices.concat());
    let begin = |((group, devices), ticket): ((Vec<Tensor<1>>, Vec<Device>), Ticket)| {
        let sum = |part| all_reduce(part, ReduceOperation::Sum, devices.clone());
        Sum { parts: group.into_iter().map(sum).collect(), devices, ticket }
    };
    let begun = groups.into_iter().zip(devices).zip(tickets).map(begin).collect();
    launch(&all);
    Ok(begun)
}

/// The sum of tensors that others may have as well, for what is enqueued from now on.
fn sums(group: Vec<Tensor<1>>) -> Result<Vec<Tensor<1>>> {
    let group = group.into_iter().map(|part| part.mul_scalar(1.0)).collect();
    Ok(launch_sums(vec![group])?.remove(0).resolve())
}

/// Planes on their way between two devices, while these do something else.
pub(super) enum Swap {
    /// They had to be waited for.
    Done(Vec<[Tensor<5>; 2]>),
    /// The sums, each with the pairs that it brings.
    Launched(Vec<(Sum, Vec<Swapped>)>),
}

/// One of the pairs that a sum brings.
pub(super) struct Swapped {
    /// Its place among all pairs.
    place: usize,
    shapes: [[usize; 5]; 2],
}

impl Swap {
    /// Sends each tensor of a pair to the device of the other; these differ. What travels between the same two devices
    /// does so in one sum.
    ///
    /// # Errors
    /// [`Error::Device`](ffdp_image::Error::Device) where one of them was not computed.
    pub fn begin(pairs: Vec<[Tensor<5>; 2]>) -> Result<Self> {
        let ends = |pair: &[Tensor<5>; 2]| pair.each_ref().map(Tensor::device);
        if !pairs.iter().all(|pair| are_joined(&ends(pair))) {
            let across = |[a, b]: [Tensor<5>; 2]| {
                let [here, there] = [a.device(), b.device()];
                [to_device(b, &here), to_device(a, &there)]
            };
            return Ok(Self::Done(pairs.into_iter().map(across).collect()));
        }
        let mut groups: Vec<Together> = Vec::new();
        for (place, pair) in pairs.into_iter().enumerate() {
            let swapped = Swapped { place, shapes: pair.each_ref().map(Tensor::dims) };
            let goes_along = |group: &&mut Together| {
                let like = &group.pairs[0];
                ends(like) == ends(&pair) && like[0].dtype() == pair[0].dtype()
            };
            match groups.iter_mut().find(goes_along) {
                Some(group) => {
                    group.pairs.push(pair);
                    group.swapped.push(swapped);
                }
                None => groups.push(Together { pairs: vec![pair], swapped: vec![swapped] }),
            }
        }
        // Every other pair along a row of devices has no device in common with the next; those of each type are in a row.
        let dtype = |group: &Together| group.pairs[0][0].dtype();
        let is_odd = |i: usize| {
            groups[..i].iter().filter(|before| dtype(before) == dtype(&groups[i])).count() % 2 == 1
        };
        let odd: Vec<bool> = (0..groups.len()).map(is_odd).collect();
        let mut groups: Vec<(bool, Together)> = odd.into_iter().zip(groups).collect();
        groups.sort_by_key(|(is_odd, _)| *is_odd);
        let (sums, swapped): (Vec<_>, Vec<_>) = groups
            .into_iter()
            .map(|(_, Together { pairs, swapped })| (side_by_side(pairs), swapped))
            .unzip();
        Ok(Self::Launched(launch_sums(sums)?.into_iter().zip(swapped).collect()))
    }

    /// For each pair the second tensor on the device of the first, and the first on that of the second.
    pub fn finish(self) -> Vec<[Tensor<5>; 2]> {
        let sums = match self {
            Self::Done(pairs) => return pairs,
            Self::Launched(sums) => sums,
        };
        let mut pairs = Vec::new();
        for (sum, swapped) in sums {
            let [here, there] = <[_; 2]>::try_from(sum.resolve()).expect("a pair gives two sums");
            let mut first = 0;
            for Swapped { place, shapes } in swapped {
                let [a, b] = shapes.map(|dims| dims.into_iter().product::<usize>());
                let part = |sum: &Tensor<1>, first: usize, dims: [usize; 5]| {
                    sum.clone().narrow(0, first, dims.into_iter().product()).reshape(dims)
                };
                let [of_a, of_b] = shapes;
                pairs.push((place, [part(&here, first + a, of_b), part(&there, first, of_a)]));
                first += a + b;
            }
        }
        pairs.sort_by_key(|(place, _)| *place);
        pairs.into_iter().map(|(_, pair)| pair).collect()
    }
}

/// Pairs that travel between the same two devices.
struct Together {
    pairs: Vec<[Tensor<5>; 2]>,
    swapped: Vec<Swapped>,
}

/// The values of all pairs, one after the other, on each of the two devices, as far as it has them; zeros for the others.
fn side_by_side(pairs: Vec<[Tensor<5>; 2]>) -> Vec<Tensor<1>> {
    let mut sides = [Vec::new(), Vec::new()];
    for [a, b] in pairs {
        let [a, b] = [a, b].map(in_line);
        let zeros = |like: &Tensor<1>, on: &Tensor<1>| {
            Tensor::zeros([like.dims()[0]], (&on.device(), on.dtype()))
        };
        let (of_a, of_b) = (zeros(&a, &b), zeros(&b, &a));
        sides[0].extend([a, of_b]);
        sides[1].extend([of_a, b]);
    }
    sides.map(|side| Tensor::cat(side, 0)).into()
}

/// The values of all shards combined, for every shard on its own device; their devices are joined.
///
/// # Errors
/// [`Error::Device`](ffdp_image::Error::Device) where some were not computed.
pub(super) fn combine<const D: usize>(
    values: Vec<Tensor<D>>,
    reduction: Reduction,
) -> Result<Vec<Tensor<D>>> {
    let devices: Vec<Device> = values.iter().map(Tensor::device).collect();
    let places = distinct(&devices);
    let dims = values[0].dims();
    let parts: Vec<Tensor<1>> = places
        .iter()
        .map(|device| {
            let here = values.iter().filter(|value| value.device() == *device).cloned();
            let here = here.reduce(|a, b| reduction.combine(a, b));
            here.expect("every device holds a shard").flatten(0, D - 1)
        })
        .collect();
    let totals = match reduction {
        Reduction::Sum => sums(parts)?,
        Reduction::Max | Reduction::Min => extremes(parts, reduction)?,
    };
    let total = |device: &Device| {
        let place = places.iter().position(|place| place == device);
        totals[place.expect("it is one of the places")].clone().reshape(dims)
    };
    Ok(devices.iter().map(total).collect())
}

/// A row for every device, filled by a sum; then each device has them all.
fn extremes(parts: Vec<Tensor<1>>, reduction: Reduction) -> Result<Vec<Tensor<1>>> {
    let (rows, values) = (parts.len(), parts[0].dims()[0]);
    let table = |(row, part): (usize, Tensor<1>)| {
        let zeros =
            |rows: usize| Tensor::<1>::zeros([rows * values], (&part.device(), part.dtype()));
        let around =
            [(row > 0).then(|| zeros(row)), (row + 1 < rows).then(|| zeros(rows - 1 - row))];
        let [before, after] = around;
        Tensor::cat([before, Some(part.clone()), after].into_iter().flatten().collect(), 0)
    };
    let tables = sums(parts.into_iter().enumerate().map(table).collect())?;
    let extreme = |table: Tensor<1>| {
        let rows = (0..rows).map(|row| table.clone().narrow(0, row * values, values));
        rows.reduce(|a, b| reduction.combine(a, b)).expect("there is a device")
    };
    Ok(tables.into_iter().map(extreme).collect())
}
