//! Numbers that are waited for.

use burn::Tensor;
use burn::tensor::Transaction;
use ffdp_image::error::{Error, Result};

use super::transfer::to_device;

/// The values of all tensors, one after the other, read at once: every reading waits for the device, and joining them
/// there would be a launch for each. On several devices they travel to the first one's. `what` is said in errors.
pub(crate) fn read_together(what: &str, numbers: Vec<Tensor<1>>) -> Result<Vec<f64>> {
    let device = numbers[0].device();
    let register = |all: Transaction, number| all.register(to_device(number, &device));
    let read = numbers.into_iter().fold(Transaction::default(), register).try_execute();
    let read = read.map_err(|reason| Error::device(format!("reading {what}"), reason))?;
    Ok(read.iter().flat_map(|data| data.iter::<f64>()).collect())
}
