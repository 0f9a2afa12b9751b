//! Seeds: one generator per purpose and slab, so that no draw depends on the thread count.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// What a generator's numbers are for; each has its own ChaCha streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Stream {
    Anatomy = 1,
    SubjectWarp,
    KnownWarp,
    Texture,
    Noise,
    Bias,
    Contrast,
}

/// The generator of (`seed`, `stream`, `index`), independent of every other one.
pub(crate) fn generator(seed: u64, stream: Stream, index: u64) -> ChaCha8Rng {
    let mut generator = ChaCha8Rng::seed_from_u64(seed);
    generator.set_stream(((stream as u64) << 48) | index);
    generator
}
