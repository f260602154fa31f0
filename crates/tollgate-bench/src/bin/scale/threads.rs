//! Threads on one table, beside what the machine can do.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use tollgate::{KeyedLimiter, Rate, TokenBucket};
use tollgate_testkit::Random;

use crate::Report;
use crate::measure::{nanos_since, now, stay_on_core, thread_waits};

/// Rounds of each contender. They take turns. The median of the quiet rounds counts: the host of a virtual machine moves its cores
/// about, and the fastest round of each contender would be of another placement.
const ROUNDS: usize = 21;

/// The largest part of a quiet round that its threads waited for a core. Threads that take turns on one core do not contend for
/// memory, so such a round says nothing about two threads.
const QUIET: f64 = 0.05;

/// A contender: the number of its threads, and the work of one of them: calls, from a sequence of random numbers.
struct Contender<'a> {
    threads: usize,
    work: &'a Work<'a>,
}

type Work<'a> = dyn Fn(usize, usize, &mut Random) + Sync + 'a;

/// A contender for each number of threads of each work, in this order.
fn contenders<'a>(works: &[(&'a Work<'a>, &[usize])]) -> Vec<Contender<'a>> {
    let each = |&(work, threads): &(&'a Work<'a>, &[usize])| {
        threads.iter().map(|&threads| Contender { threads, work }).collect::<Vec<_>>()
    };
    works.iter().flat_map(each).collect()
}

/// The measurement of one round.
struct Round {
    is_quiet: bool,
    speed: f64, // millions of calls per second of wall time, all threads together
}

/// Returns two things. The first is the speed of each contender in its median quiet round: millions of calls per
/// second of wall time, all threads together. The second is the median result of [`handoff`], which runs after each
/// round.
fn race(contenders: &[Contender<'_>], calls: usize) -> (Vec<f64>, f64) {
    let mut handoffs = Vec::new();
    let mut rounds: Vec<Vec<Round>> = contenders.iter().map(|_| Vec::new()).collect();
    for seed in 0..ROUNDS {
        for (contender, rounds) in contenders.iter().zip(&mut rounds) {
            rounds.push(round(contender, calls / contender.threads, seed));
        }
        handoffs.push(handoff());
    }
    let busy = rounds.iter().filter(|rounds| !rounds.iter().any(|round| round.is_quiet)).count();
    if busy > 0 {
        eprintln!(
            "the machine was busy in all rounds of {busy} contenders: the speeds of 2 threads mean little"
        );
    }
    handoffs.sort_by(f64::total_cmp);
    (rounds.iter().map(|rounds| median_speed(rounds)).collect(), handoffs[ROUNDS / 2])
}

/// The nanoseconds that a cache line takes from one core to the other. It takes about 25 ns between cores of one
/// chip, which share a cache. The host of a virtual machine may also give it cores of two chips, and then it takes
/// about 180 ns.
fn handoff() -> f64 {
    const HANDOFFS: u64 = 20_000;
    let (line, epoch) = (Line(AtomicU64::new(0)), now());
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let line = &line.0;
            scope.spawn(move || {
                stay_on_core(thread as usize);
                for turn in (thread..HANDOFFS).step_by(2) {
                    while line.load(Relaxed) != turn {
                        std::hint::spin_loop();
                    }
                    line.store(turn + 1, Relaxed);
                }
            });
        }
    });
    nanos_since(epoch) as f64 / HANDOFFS as f64
}

fn median_speed(rounds: &[Round]) -> f64 {
    let has_quiet = rounds.iter().any(|round| round.is_quiet);
    let counts = rounds.iter().filter(|round| round.is_quiet || !has_quiet);
    let mut speeds: Vec<f64> = counts.map(|round| round.speed).collect();
    speeds.sort_by(f64::total_cmp);
    speeds[speeds.len() / 2]
}

/// Measures from the first start of a thread to the last end.
fn round(Contender { threads, work }: &Contender<'_>, calls: usize, seed: usize) -> Round {
    let (ready, epoch) = (AtomicUsize::new(0), now());
    let run = |thread: usize| {
        stay_on_core(thread);
        let mut random = Random::new((seed * 100 + threads * 10 + thread) as u64);
        work(thread, calls, &mut random); // every contender begins with caches of its own
        // Waiting in this way costs less than a wake-up, which would be measured.
        ready.fetch_add(1, Relaxed);
        while ready.load(Relaxed) < *threads {
            std::thread::yield_now();
        }
        let (waits, start) = (thread_waits(), nanos_since(epoch));
        work(thread, calls, &mut random);
        (start, nanos_since(epoch), thread_waits() - waits)
    };
    let times: Vec<(u64, u64, u64)> = std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..*threads).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no request is denied")).collect()
    });
    let start = times.iter().map(|(start, ..)| *start).min().unwrap_or(0);
    let wall = (times.iter().map(|(_, end, _)| *end).max().unwrap_or(0) - start) as f64;
    let waits: u64 = times.iter().map(|(.., waits)| waits).sum();
    // More threads than cores always wait.
    let has_cores = std::thread::available_parallelism().is_ok_and(|cores| *threads <= cores.get());
    let is_quiet = !has_cores || waits as f64 <= QUIET * wall * *threads as f64;
    Round { is_quiet, speed: (calls * threads) as f64 * 1000.0 / wall }
}

/// A number of its own cache line.
#[repr(align(64))]
struct Line(AtomicU64);

fn lines(bytes: usize) -> Vec<Line> {
    (0..(bytes / 64).max(1)).map(|_| Line(AtomicU64::new(0))).collect()
}

fn add(lines: &[Line], random: &mut Random) {
    lines[random.below(lines.len() as u64) as usize].0.fetch_add(1, Relaxed);
}

/// Writes a random cache line without a lock or an atomic exchange. Any table that threads share does at least this.
fn write(lines: &[Line], random: &mut Random) {
    let line = &lines[random.below(lines.len() as u64) as usize].0;
    line.store(line.load(Relaxed) + 1, Relaxed);
}

/// A bucket that nobody empties, and that stays in use because it fills slowly.
fn rule() -> TokenBucket {
    TokenBucket::new(Rate::per_hour(10).expect("valid"), 10_000_000).expect("valid")
}

/// A larger bucket, for the key that every plan charges.
fn shared_rule() -> TokenBucket {
    TokenBucket::new(Rate::per_hour(10_000).expect("valid"), 1_000_000_000).expect("valid")
}

/// Four limits per plan: one with a key for everybody, three with a key per user.
struct Plans {
    global: KeyedLimiter,
    others: [KeyedLimiter; 3],
    users: u64,
}

const USERS: u64 = 100_000;

impl Plans {
    fn new(users: u64) -> Self {
        let global = KeyedLimiter::new(shared_rule());
        let others = [(); 3].map(|()| global.another(rule()));
        let plans = Self { global, others, users };
        (0..users).for_each(|user| plans.check(user));
        plans
    }

    fn check(&self, user: u64) {
        let [a, b, c] = &self.others;
        let plan = [self.global.ask("everybody"), a.ask(&user), b.ask(&user), c.ask(&user)];
        assert!(KeyedLimiter::check_all(plan).0.is_allowed());
    }

    fn run(&self, calls: usize, random: &mut Random) {
        (0..calls).for_each(|_| self.check(random.below(self.users)));
    }
}

pub(crate) fn shared_key(report: &mut Report) {
    let plans = Plans::new(USERS);
    let own = [(); 2].map(|()| Plans::new(USERS / 2)); // together as much memory
    let (lines, shared) = (lines(plans.global.stats().bytes), Line(AtomicU64::new(0)));
    let adds = |_, calls, random: &mut Random| {
        for _ in 0..calls {
            shared.0.fetch_add(1, Relaxed);
            (0..3).for_each(|_| add(&lines, random));
        }
    };
    let together = |_, calls, random: &mut Random| plans.run(calls, random);
    let apart = |thread: usize, calls, random: &mut Random| own[thread].run(calls, random);
    let writes = |thread: usize, calls, random: &mut Random| {
        for _ in 0..calls {
            own[thread].check(random.below(USERS / 2));
            write(std::slice::from_ref(&shared), random);
            (0..3).for_each(|_| write(&lines, random));
        }
    };
    let (speeds, handoff) = race(
        &contenders(&[(&together, &[1, 2, 8]), (&apart, &[1, 2]), (&adds, &[1, 2]), (&writes, &[1, 2])]),
        80_000,
    );
    let what = "threads on a plan of 4 limits, one with a shared key";
    report.add(
        "the machine: a cache line from one core to the other, shared key",
        "2 threads",
        handoff,
        "ns",
        "",
    );
    for (threads, speed) in [("1 thread", 0), ("2 threads", 1), ("8 threads", 2)] {
        report.add(what, threads, speeds[speed], "M plans/s", "");
    }
    let ratio = "the same, by the speed of 1 thread";
    report.add(ratio, "2 threads", speeds[1] / speeds[0], "x", "1.7");
    report.add(ratio, "8 threads", speeds[2] / speeds[0], "x", "as 2 threads");
    report.add(
        "peer: 2 threads with a limiter and half of the users each",
        "2 threads",
        speeds[4] / speeds[3],
        "x",
        "the ceiling",
    );
    let peer = "peer: atomic adds, 1 on a shared cache line and 3 on random ones of the table's size";
    report.add(peer, "2 threads", speeds[6] / speeds[5], "x", "the price of shared memory");
    let peer = "peer: a limiter each, and plain writes of 1 shared cache line and 3 random ones per plan";
    report.add(peer, "2 threads", speeds[8] / speeds[7], "x", "the most for shared keys");
}

const KEYS: u64 = 1_000_000;

pub(crate) fn distinct_keys(report: &mut Report) {
    let made = |keys| {
        let limiter = KeyedLimiter::new(rule());
        for key in 0..keys {
            let _ = limiter.check(&key);
        }
        limiter
    };
    let check = |limiter: &KeyedLimiter, keys, calls, random: &mut Random| {
        for _ in 0..calls {
            assert!(limiter.check(&random.below(keys)).is_allowed());
        }
    };
    let (limiter, own) = (made(KEYS), [(); 2].map(|()| made(KEYS / 2))); // together as much memory
    let lines = lines(limiter.stats().bytes);
    let together = |_, calls, random: &mut Random| check(&limiter, KEYS, calls, random);
    let apart = |thread: usize, calls, random: &mut Random| check(&own[thread], KEYS / 2, calls, random);
    let adds = |_, calls, random: &mut Random| (0..calls).for_each(|_| add(&lines, random));
    let writes = |thread: usize, calls, random: &mut Random| {
        for _ in 0..calls {
            check(&own[thread], KEYS / 2, 1, random);
            write(&lines, random);
        }
    };
    let (speeds, handoff) = race(
        &contenders(&[(&together, &[1, 2]), (&apart, &[1, 2]), (&adds, &[1, 2]), (&writes, &[1, 2])]),
        400_000,
    );
    let what = "threads on distinct keys, 1 M keys";
    report.add(
        "the machine: a cache line from one core to the other, 1 M keys",
        "2 threads",
        handoff,
        "ns",
        "",
    );
    report.add(what, "1 thread", speeds[0], "M checks/s", "");
    report.add(what, "2 threads", speeds[1], "M checks/s", "");
    report.add(
        "the same, by the speed of 1 thread, 1 M keys",
        "2 threads",
        speeds[1] / speeds[0],
        "x",
        "1.8",
    );
    let peer = "peer: 2 threads with a limiter and half of the keys each, 1 M keys";
    report.add(peer, "2 threads", speeds[3] / speeds[2], "x", "the ceiling");
    let peer = "peer: an atomic add on a random cache line of the table's size, 1 M keys";
    report.add(peer, "2 threads", speeds[5] / speeds[4], "x", "the price of shared memory");
    let peer = "peer: a limiter each, and a plain write of a random shared cache line per check, 1 M keys";
    report.add(peer, "2 threads", speeds[7] / speeds[6], "x", "the most for shared keys");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_rounds_count_only_if_there_is_no_quiet_one() {
        let round = |is_quiet, speed| Round { is_quiet, speed };
        let quiet = [round(true, 3.0), round(false, 9.0), round(true, 2.0), round(true, 1.0)];
        assert!((median_speed(&quiet) - 2.0).abs() < 1e-9);
        assert!((median_speed(&[round(false, 9.0)]) - 9.0).abs() < 1e-9);
    }
}
