//! Ranks that are threads of one process: how the others are tested without MPI.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use super::ranks::Ranks;
use ffdp_image::error::{Error, Result};

/// How long a thread may be silent.
const PATIENCE: Duration = Duration::from_secs(300);

/// One of several threads that share a run. One that ends takes its ends of the channels with it: those that
/// wait for it get an error.
#[derive(Debug)]
pub struct Threads {
    rank: usize,
    hosts: Vec<String>,
    /// To and from every rank.
    to: Vec<Sender<Vec<u8>>>,
    from: Vec<Mutex<Receiver<Vec<u8>>>>,
    /// The first that has ended: others end because of it.
    ended: Arc<OnceLock<usize>>,
}

impl Drop for Threads {
    fn drop(&mut self) {
        // Only the first counts.
        let _ = self.ended.set(self.rank);
    }
}

impl Threads {
    /// So many ranks, one for each thread.
    ///
    /// # Panics
    /// For none.
    pub fn new(count: usize) -> Vec<Self> {
        assert!(count > 0, "threads: at least one rank is needed");
        let mut to: Vec<Vec<_>> = (0..count).map(|_| Vec::new()).collect();
        let mut from: Vec<Vec<_>> = (0..count).map(|_| Vec::new()).collect();
        for sender in &mut to {
            for receivers in &mut from {
                let (send, receive) = channel();
                sender.push(send);
                receivers.push(Mutex::new(receive));
            }
        }
        let hosts = vec!["this host".to_string(); count];
        let ended = Arc::new(OnceLock::new());
        let ends = to.into_iter().zip(from).enumerate();
        let rank = |(rank, (to, from))| {
            let (hosts, ended) = (hosts.clone(), ended.clone());
            Self { rank, hosts, to, from, ended }
        };
        ends.map(rank).collect()
    }

    fn gone(&self, rank: usize) -> Error {
        let first = self.ended.get().copied().unwrap_or(rank);
        self.lost(first, "its thread has ended".to_string())
    }

    fn send(&self, rank: usize, bytes: Vec<u8>) -> Result<()> {
        self.to[rank].send(bytes).map_err(|_| self.gone(rank))
    }

    fn receive(&self, rank: usize) -> Result<Vec<u8>> {
        let from = self.from[rank].lock().expect("only this rank receives");
        from.recv_timeout(PATIENCE).map_err(|reason| match reason {
            RecvTimeoutError::Disconnected => self.gone(rank),
            RecvTimeoutError::Timeout => {
                self.lost(rank, format!("it was silent for {} s", PATIENCE.as_secs()))
            }
        })
    }

    fn others(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.count()).filter(|rank| *rank != self.rank)
    }
}

impl Ranks for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn hosts(&self) -> &[String] {
        &self.hosts
    }

    fn all_gather(&self, numbers: &[f64]) -> Result<Vec<f64>> {
        let mine: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.others().try_for_each(|rank| self.send(rank, mine.clone()))?;
        let mut all = Vec::with_capacity(self.count() * numbers.len());
        for rank in 0..self.count() {
            let bytes = if rank == self.rank { mine.clone() } else { self.receive(rank)? };
            assert_eq!(
                bytes.len(),
                mine.len(),
                "all_gather: {} sent another length",
                self.name(rank)
            );
            let number = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().expect("8 of them"));
            all.extend(bytes.chunks_exact(8).map(number));
        }
        Ok(all)
    }

    fn broadcast(&self, bytes: Vec<u8>) -> Result<Vec<u8>> {
        if self.rank > 0 {
            return self.receive(0);
        }
        self.others().try_for_each(|rank| self.send(rank, bytes.clone()))?;
        Ok(bytes)
    }

    fn exchange(
        &self,
        sends: Vec<(usize, Vec<u8>)>,
        receives: &[(usize, usize)],
    ) -> Result<Vec<Vec<u8>>> {
        sends.into_iter().try_for_each(|(rank, bytes)| self.send(rank, bytes))?;
        let receive = |&(rank, length): &(usize, usize)| {
            let bytes = self.receive(rank)?;
            assert_eq!(bytes.len(), length, "exchange: {} sent another length", self.name(rank));
            Ok(bytes)
        };
        receives.iter().map(receive).collect()
    }
}
