//! Where the images of a group come from, and how they are read ahead.

use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use ffdp_image::error::Result;
use ffdp_image::image::{LabelMap, Volume};

/// The images of a group. Each is read several times, and released between.
pub trait Images: Sync {
    /// How many there are.
    fn count(&self) -> usize;

    /// What reports call one of them; names differ.
    fn name(&self, index: usize) -> String;

    /// What another image in the place of this one would not have: a run goes on from what an earlier one has found of an
    /// image that has the same. Its name, unless there is more to distinguish it by, as the time of its file.
    fn version(&self, index: usize) -> String {
        self.name(index)
    }

    /// The image with this number, from 0. Called from a thread that reads ahead.
    ///
    /// # Errors
    /// Those of the file behind it: the image is then left out, and the others are worked on.
    fn read(&self, index: usize) -> Result<Subject>;
}

/// An image, and the labels of its voxels.
#[derive(Clone, Debug, PartialEq)]
pub struct Subject {
    /// The intensities.
    pub image: Volume,
    /// Labels on the grid of the image.
    pub labels: Option<LabelMap>,
}

/// Images in memory with their names.
impl Images for Vec<(String, Subject)> {
    fn count(&self) -> usize {
        self.len()
    }

    fn name(&self, index: usize) -> String {
        self[index].0.clone()
    }

    fn read(&self, index: usize) -> Result<Subject> {
        Ok(self[index].1.clone())
    }
}

/// An image by its number, as it was read.
type Ahead = (usize, Result<Subject>);

/// Stack of a thread that registers: operations on tensors are nested.
const STACK_BYTES: usize = 16 << 20;

/// Reads images in this order and shows each, while the next is read.
pub(crate) fn each_ahead(
    images: &dyn Images,
    order: &[usize],
    mut each: impl FnMut(usize, Result<Subject>) -> Result<()>,
) -> Result<()> {
    thread::scope(|scope| {
        let read = reader(scope, images, order);
        for (index, subject) in read {
            each(index, subject)?;
        }
        Ok(())
    })
}

/// The same by several workers, each of which takes the next image that is read. The first error ends all.
pub(crate) fn each_ahead_by<W: Sync>(
    workers: &[W],
    images: &dyn Images,
    order: &[usize],
    each: impl Fn(&W, usize, Result<Subject>) -> Result<()> + Sync,
) -> Result<()> {
    if let [worker] = workers {
        return each_ahead(images, order, |index, subject| each(worker, index, subject));
    }
    let read: Mutex<Option<Receiver<Ahead>>> = Mutex::new(None);
    let read = || read.lock().unwrap_or_else(PoisonError::into_inner);
    let next = || read().as_ref().and_then(|read| read.recv().ok());
    let work = |worker: &W| {
        while let Some((index, subject)) = next() {
            if let Err(error) = each(worker, index, subject) {
                // The others end after what they have in hand.
                read().take();
                return Err(error);
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        *read() = Some(reader(scope, images, order));
        let work = &work;
        let spawn = |worker| {
            let thread = thread::Builder::new().stack_size(STACK_BYTES);
            thread.spawn_scoped(scope, move || work(worker)).expect("the system has threads")
        };
        let threads: Vec<_> = workers.iter().map(spawn).collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.collect::<Vec<Result<()>>>().into_iter().collect()
    })
}

/// A thread that reads one image ahead of who receives them, and ends with the receiver.
fn reader<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    images: &'scope dyn Images,
    order: &'scope [usize],
) -> Receiver<Ahead> {
    let (send, receive) = sync_channel(0);
    scope.spawn(move || {
        for &index in order {
            if send.send((index, images.read(index))).is_err() {
                return;
            }
        }
    });
    receive
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ffdp_image::error::Error;
    use ffdp_image::image::Geometry;

    use super::*;

    struct Numbered;

    impl Images for Numbered {
        fn count(&self) -> usize {
            9
        }

        fn name(&self, index: usize) -> String {
            index.to_string()
        }

        fn read(&self, index: usize) -> Result<Subject> {
            if index == 3 {
                return Err(Error::invalid("a broken image", index, "none"));
            }
            let grid = Geometry::new([1; 3], [1.0; 3])?;
            Ok(Subject { image: Volume::new(vec![index as f32], grid)?, labels: None })
        }
    }

    #[test]
    fn every_image_is_shown_once_by_any_number_of_workers() {
        let order = [8, 1, 3, 0, 7, 2];
        for workers in [vec![()], vec![(); 3]] {
            let (sum, broken) = (AtomicUsize::new(0), AtomicUsize::new(0));
            each_ahead_by(&workers, &Numbered, &order, |(), index, subject| {
                match subject {
                    Ok(subject) => assert_eq!(subject.image.data, [index as f32]),
                    Err(_) => _ = broken.fetch_add(1, Ordering::SeqCst),
                }
                sum.fetch_add(index, Ordering::SeqCst);
                Ok(())
            })
            .expect("no worker fails");
            assert_eq!((sum.into_inner(), broken.into_inner()), (21, 1));
        }
    }

    #[test]
    fn an_error_ends_all_workers() {
        for workers in [vec![()], vec![(); 3]] {
            let order: Vec<usize> = (0..9).collect();
            let failed =
                each_ahead_by(&workers, &Numbered, &order, |(), _, subject| subject.map(|_| ()));
            assert!(failed.expect_err("one is broken").to_string().contains("a broken image"));
        }
    }
}
