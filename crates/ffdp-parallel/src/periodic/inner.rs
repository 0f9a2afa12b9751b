//! Numbers of periodic volumes, on the host.

use burn::Tensor;

use super::PeriodicGrid;
use crate::exchange::Reduction;
use crate::sharded::Sharded;
use ffdp_burn::ops::inner_product;
use ffdp_image::error::{Error, Result};

impl PeriodicGrid {
    /// `sum a b` over all values of two volumes `[N, C, D, H, W]` off the tape, the same bits on all ranks: sums of
    /// shards by [`inner_product`](inner_product()), added in f64. Waits for the devices.
    ///
    /// # Errors
    /// [`Invalid`](Error::Invalid) for different shapes or other cuts, [`Error::Device`] when a sum cannot be read,
    /// [`Error::LostRank`].
    pub fn inner_product(&self, a: &Sharded, b: &Sharded) -> Result<f64> {
        self.check("inner_product", a, None)?;
        self.check("inner_product", b, Some(a.dims()[1]))?;
        let pairs = a.shards().iter().zip(b.shards());
        // All devices are at it before one is waited for.
        let sums: Vec<Tensor<1>> =
            pairs.map(|(a, b)| inner_product(a.clone(), b.clone())).collect();
        let read = |sum: Tensor<1>| {
            let values = sum.try_into_vec_as::<f64>();
            let values = values.map_err(|reason| Error::device("reading an inner product", reason));
            Ok(values?[0])
        };
        let sum = sums.into_iter().map(read).sum::<Result<f64>>()?;
        Ok(self.holders.combine_numbers(&[sum], Reduction::Sum)?[0])
    }
}
