//! What the benchmarks share: how they measure, and the peers behind one face.

use std::time::Instant;

/// A contender: decides a request of cost 1 on a key. The key is a `String`, since some peers must be asked
/// with the type they keep.
pub type Contender = dyn Fn(&String) -> bool + Sync;

/// Nanoseconds a decision takes: the median of several rounds, and the spread between the fastest and the
/// slowest.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Of all rounds.
    pub median: f64,
    /// Of the fastest round.
    pub least: f64,
    /// Of the slowest round.
    pub most: f64,
}

impl Figure {
    fn of(mut rounds: Vec<f64>) -> Self {
        rounds.sort_by(f64::total_cmp);
        let last = rounds.len() - 1;
        Self { median: rounds[last / 2], least: rounds[0], most: rounds[last] }
    }
}

/// Rounds of each contender. They take turns, so that a busy moment of the machine meets all of them.
pub const ROUNDS: usize = 7;

/// Measures contenders side by side: each thread asks `order` of `keys` in a sequence of its own.
pub fn race(contenders: &[(&str, Box<Contender>)], keys: &[String], orders: &[Vec<u32>]) -> Vec<Figure> {
    for (_, limiter) in contenders {
        for key in keys {
            std::hint::black_box(limiter(key));
        }
    }
    let mut rounds = vec![Vec::new(); contenders.len()];
    for _ in 0..ROUNDS {
        for (i, (_, limiter)) in contenders.iter().enumerate() {
            rounds[i].push(round(limiter, keys, orders));
        }
    }
    rounds.into_iter().map(Figure::of).collect()
}

/// Nanoseconds of wall time a decision, all threads together.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn round(limiter: &Contender, keys: &[String], orders: &[Vec<u32>]) -> f64 {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for order in orders {
            scope.spawn(move || {
                for &i in order {
                    std::hint::black_box(limiter(&keys[i as usize]));
                }
            });
        }
    });
    let decisions: usize = orders.iter().map(Vec::len).sum();
    start.elapsed().as_nanos() as f64 / decisions as f64
}

/// A contender that makes so many calls.
pub type Calls = dyn FnMut(u32);

/// The calls in a loop of their own, so that nothing but them is measured.
pub fn calls<T>(mut call: impl FnMut() -> T + 'static) -> Box<Calls> {
    Box::new(move |n| (0..n).for_each(|_| _ = std::hint::black_box(call())))
}

/// Nanoseconds a call of each takes on one thread. They take turns as in [`race`].
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
pub fn repeat(contenders: &mut [(&str, Box<Calls>)], calls: u32) -> Vec<Figure> {
    let mut rounds = vec![Vec::new(); contenders.len()];
    for _ in 0..ROUNDS {
        for (i, (_, contender)) in contenders.iter_mut().enumerate() {
            let start = Instant::now();
            contender(calls);
            rounds[i].push(start.elapsed().as_nanos() as f64 / f64::from(calls));
        }
    }
    rounds.into_iter().map(Figure::of).collect()
}
