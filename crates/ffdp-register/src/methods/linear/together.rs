//! Searches side by side: one alone leaves a device idle while it waits for thirteen numbers.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::channel;
use std::thread;

use ffdp_image::error::Result;

use super::motion::Map;
use super::search::Judged;
use crate::pair::AlignedPair;

/// What a search says.
enum Said<T> {
    /// It waits for the loss of a map.
    Asked(Map),
    /// What it has found, or its panic.
    Found(thread::Result<Result<T>>),
}

/// Searches at the same time, at most: each has a thread.
pub(super) const AT_ONCE: usize = 64;

/// What `run` makes of each of `starts`, in their order. Each runs on a thread of its own, which only computes in f64, until it
/// asks for a loss; once all have asked, the losses of their maps are found in one batch on this thread.
///
/// # Errors
/// That of the images, or that of the first search that ends with one.
pub(super) fn together<S: Send, T: Send>(
    aligned: &AlignedPair,
    starts: Vec<S>,
    run: impl Fn(S, Judged) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let (mut starts, mut found) = (starts.into_iter(), Vec::new());
    while starts.len() > 0 {
        found.extend(at_once(aligned, starts.by_ref().take(AT_ONCE).collect(), &run)?);
    }
    Ok(found)
}

fn at_once<S: Send, T: Send>(
    aligned: &AlignedPair,
    starts: Vec<S>,
    run: &(impl Fn(S, Judged) -> Result<T> + Sync),
) -> Result<Vec<T>> {
    let grids = aligned.pair.grids.each_ref();
    thread::scope(|scope| {
        let (say, hear) = channel();
        let begin = |(k, start): (usize, S)| {
            let (answer, answers) = channel();
            let say = say.clone();
            scope.spawn(move || {
                let judge = |map: &Map| {
                    let asked = say.send((k, Said::Asked(*map)));
                    asked.expect("whoever answers hears until all have ended");
                    Ok(answers.recv().expect("every question is answered"))
                };
                let images = Judged { grids, judge: Box::new(judge) };
                let ended = catch_unwind(AssertUnwindSafe(|| run(start, images)));
                // Nobody hears after a panic of whoever answers.
                let _ = say.send((k, Said::Found(ended)));
            });
            answer
        };
        let answers: Vec<_> = starts.into_iter().enumerate().map(begin).collect();
        let mut found: Vec<Option<Result<T>>> = answers.iter().map(|_| None).collect();
        let (mut at_work, mut asked, mut failure) = (answers.len(), Vec::new(), None);
        while at_work > 0 {
            match hear.recv().expect("this thread could speak as well") {
                (k, Said::Asked(map)) => asked.push((k, map)),
                (k, Said::Found(ended)) => {
                    found[k] = Some(ended.unwrap_or_else(|panic| resume_unwind(panic)));
                    at_work -= 1;
                }
            }
            if asked.len() < at_work {
                continue;
            }
            asked.sort_by_key(|(k, _)| *k);
            let (who, maps): (Vec<_>, Vec<_>) = asked.drain(..).unzip();
            // Infinitely bad maps end the searches.
            let lost = || vec![(f64::INFINITY, [[0.0; 4]; 3]); maps.len()];
            let losses = match failure {
                None => aligned.gradients(&maps).unwrap_or_else(|error| {
                    failure = Some(error);
                    lost()
                }),
                Some(_) => lost(),
            };
            for (k, loss) in who.into_iter().zip(losses) {
                // A search that waits is there.
                let _ = answers[k].send(loss);
            }
        }
        match failure {
            Some(error) => Err(error),
            None => found.into_iter().map(|found| found.expect("all have ended")).collect(),
        }
    })
}
