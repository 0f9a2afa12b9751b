//! The processes that share a run, and the three ways in which they talk.

use std::fmt::Debug;

use super::super::exchange::Reduction;
use crate::error::{Error, Result};

/// A process among those that share a run: `rank` of `count`, from 0.
///
/// All methods that talk are called by all ranks, in the same order: each waits for the others. A rank that is
/// gone is an error that names it.
pub trait Ranks: Debug + Send + Sync {
    /// Its number.
    fn rank(&self) -> usize;

    /// The name of every rank, for messages: that of its host.
    fn hosts(&self) -> &[String];

    /// The numbers of all ranks, as many of each, one rank's after the other's.
    ///
    /// # Errors
    /// [`Error::LostRank`].
    fn all_gather(&self, numbers: &[f64]) -> Result<Vec<f64>>;

    /// The bytes of rank 0; those of the others do not matter.
    ///
    /// # Errors
    /// [`Error::LostRank`].
    fn broadcast(&self, bytes: Vec<u8>) -> Result<Vec<u8>>;

    /// Sends bytes to other ranks, at most once to each, and receives so many from others, in the order of
    /// `receives`. The two sides know of each other: what one sends, the other receives.
    ///
    /// # Errors
    /// [`Error::LostRank`].
    fn exchange(
        &self,
        sends: Vec<(usize, Vec<u8>)>,
        receives: &[(usize, usize)],
    ) -> Result<Vec<Vec<u8>>>;

    /// How many there are.
    fn count(&self) -> usize {
        self.hosts().len()
    }

    /// A rank as messages name it.
    fn name(&self, rank: usize) -> String {
        format!("rank {rank} of {} on {}", self.count(), self.hosts()[rank])
    }

    /// That `rank` is gone, and what is known of it.
    fn lost(&self, rank: usize, reason: String) -> Error {
        Error::LostRank { rank: self.name(rank), reason }
    }
}

/// Numbers of all ranks combined one by one, in the order of the ranks: the same bits on all of them.
pub(super) fn combine(ranks: &dyn Ranks, mine: &[f64], reduction: Reduction) -> Result<Vec<f64>> {
    let all = ranks.all_gather(mine)?;
    let mut rows = all.chunks_exact(mine.len().max(1));
    let mut total = rows.next().unwrap_or_default().to_vec();
    for row in rows {
        for (total, value) in total.iter_mut().zip(row) {
            *total = match reduction {
                Reduction::Sum => *total + value,
                Reduction::Max => total.max(*value),
                Reduction::Min => total.min(*value),
            };
        }
    }
    Ok(total)
}

/// What every rank has to say about its start: nothing, or why it cannot go on. If any cannot, none does, and
/// all tell the same: of which rank it is, unless it is that of all.
///
/// # Errors
/// The error of the first rank that has one; [`Error::OnRank`] on the others and where only some have one.
pub fn agree<T>(ranks: &dyn Ranks, mine: Result<T>) -> Result<T> {
    let failed = ranks.all_gather(&[f64::from(u8::from(mine.is_err()))])?;
    let Some(first) = failed.iter().position(|failed| *failed != 0.0) else { return mine };
    let text = mine.as_ref().err().map(Error::to_string).unwrap_or_default();
    // One message is enough.
    let lengths = ranks.all_gather(&[text.len() as f64])?;
    let length = lengths[first] as usize;
    let (me, count) = (ranks.rank(), ranks.count());
    let message = match me == first {
        true => {
            let others = (0..count).filter(|rank| *rank != me);
            ranks.exchange(others.map(|rank| (rank, text.clone().into_bytes())).collect(), &[])?;
            text
        }
        false => {
            let bytes = ranks.exchange(Vec::new(), &[(first, length)])?.remove(0);
            String::from_utf8_lossy(&bytes).into_owned()
        }
    };
    match mine {
        Err(error) if failed.iter().all(|failed| *failed != 0.0) => Err(error),
        _ => Err(Error::OnRank { rank: ranks.name(first), message }),
    }
}
