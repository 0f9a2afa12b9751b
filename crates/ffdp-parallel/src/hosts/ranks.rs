//! The processes that share a run, and the three ways in which they talk.

use std::fmt::{Debug, Display};

use super::super::exchange::Reduction;
use ffdp_image::error::{Error, Result};

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

    /// How many ranks of lower number share this one's host.
    fn before_on_host(&self) -> usize {
        before_on_host(self.hosts(), self.rank())
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

fn before_on_host(hosts: &[String], rank: usize) -> usize {
    hosts[..rank].iter().filter(|host| **host == hosts[rank]).count()
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

/// What every rank has to say before it goes on with the others: nothing, or why it cannot. If one cannot, none does,
/// and all receive the same.
///
/// # Errors
/// [`Error::OnRank`], on all ranks, with the message of the first that has one; [`Error::LostRank`].
pub fn agree<T, E: Display>(ranks: &dyn Ranks, mine: Result<T, E>) -> Result<T> {
    let text = mine.as_ref().err().map(E::to_string).unwrap_or_default();
    let failed = f64::from(u8::from(mine.is_err()));
    // Whether, and how long the message is.
    let all = ranks.all_gather(&[failed, text.len() as f64])?;
    let all: Vec<[f64; 2]> = all.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect();
    let Some(first) = all.iter().position(|[failed, _]| *failed != 0.0) else {
        let Ok(mine) = mine else { unreachable!("a rank knows of its own failure") };
        return Ok(mine);
    };
    let others = (0..ranks.count()).filter(|rank| *rank != ranks.rank());
    let message = match ranks.rank() == first {
        true => {
            let sends = others.map(|rank| (rank, text.clone().into_bytes()));
            ranks.exchange(sends.collect(), &[])?;
            text
        }
        false => {
            let bytes = ranks.exchange(Vec::new(), &[(first, all[first][1] as usize)])?.remove(0);
            String::from_utf8_lossy(&bytes).into_owned()
        }
    };
    let rank = match all.iter().all(|[failed, _]| *failed != 0.0) {
        true => "every rank".to_string(),
        false => ranks.name(first),
    };
    Err(Error::OnRank { rank, message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_counted_on_each_host() {
        // In blocks and in turn, as launchers place them.
        for (hosts, expected) in [
            (["a", "a", "b", "b", "b"], [0, 1, 0, 1, 2]),
            (["a", "b", "a", "c", "a"], [0, 0, 1, 0, 2]),
        ] {
            let hosts = hosts.map(str::to_string);
            let found: Vec<usize> = (0..5).map(|rank| before_on_host(&hosts, rank)).collect();
            assert_eq!(found, expected, "{hosts:?}");
        }
    }
}
