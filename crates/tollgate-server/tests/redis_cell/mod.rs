//! `CL.THROTTLE` compared with redis-cell, call by call. redis-cell is loaded into a real Redis server.
//!
//! crates.io has version 0.2.2 of redis-cell. Later versions are on GitHub only. Their source computes decisions by the same
//! formula. These replies differ:
//!
//! | | 0.2.2 | later |
//! |---|---|---|
//! | seconds in replies | rounded down | rounded up, without a remainder below 1 ms |
//! | errors | `Cell error: …` | `Cell error: Store error: …` |
//! | a count or a period of zero | accepted | `Zero rates are not supported` |
//!
//! The tests run 0.2.2 only.

mod module;

use std::collections::HashSet;
use std::time::Duration;

use tollgate_testkit::{Random, RedisClient, Reply, is_long};

use self::module::RedisCell;
use crate::service::resp::RespService;
use crate::service::{eventually, timed};

const SECOND: i64 = 1_000_000_000;
const MILLISECOND: i64 = 1_000_000;

/// The numbers of one call. The time per token is a whole number of milliseconds.
#[derive(Clone, Copy, Debug)]
struct Call {
    max_burst: i64,
    count: i64,
    period: i64,
    quantity: Option<i64>,
}

impl Call {
    fn send(&self, client: &mut RedisClient, key: &str) {
        let Self { max_burst, count, period, quantity } = *self;
        let mut arguments = vec!["CL.THROTTLE".to_owned(), key.to_owned()];
        arguments.extend([max_burst, count, period].into_iter().chain(quantity).map(|it| it.to_string()));
        client.send(&arguments).unwrap();
    }

    fn limit(&self) -> i64 {
        self.max_burst + 1
    }

    fn quantity(&self) -> i64 {
        self.quantity.unwrap_or(1)
    }

    /// Equal for calls that mean the same, such as 1 token per second and 7 tokens per 7 seconds.
    fn meaning(&self) -> [i64; 3] {
        [self.limit(), self.interval(), self.quantity()]
    }

    /// Nanoseconds per token.
    fn interval(&self) -> i64 {
        self.period * SECOND / self.count
    }
}

/// The five integers of a reply.
#[track_caller]
fn five(reply: &Reply) -> [i64; 5] {
    let integers: Vec<i64> = reply.array().iter().map(Reply::integer).collect();
    integers.try_into().unwrap_or_else(|_| panic!("not five integers: {reply:?}"))
}

/// The reply that Tollgate gives where redis-cell gives this one, both without rounding.
///
/// Tollgate never limits a call with quantity 0. redis-cell limits it where other numbers have charged more than the present
/// limit holds.
fn expected(call: &Call, theirs: [i64; 5]) -> [i64; 5] {
    let [_, limit, remaining, _, reset_after] = theirs;
    if call.quantity() == 0 { [0, limit, remaining, -1, reset_after] } else { theirs }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap()
}

/// A quantity: often the default of 1, sometimes 0 or more than the limit.
fn random_quantity(random: &mut Random, limit: i64) -> Option<i64> {
    match random.below(4) {
        0 => None,
        1 => Some(1),
        2 => Some(signed(random.below(4))),
        _ => Some(signed(random.below(limit.unsigned_abs() + 3))),
    }
}

/// Numbers by which each token takes a whole number of seconds, at most 11 days.
fn whole_seconds(random: &mut Random) -> Call {
    let count = signed(random.between(1, 60));
    let period = count * signed(random.log_uniform(1, 1_000_000));
    let max_burst = signed(random.log_uniform(0, 1_000)) - i64::from(random.chance(1, 2));
    let max_burst = max_burst.max(0);
    Call { max_burst, count, period, quantity: random_quantity(random, max_burst + 1) }
}

/// Calls for one key. Now and then the numbers change, as they do when a limit is changed.
fn random_calls(random: &mut Random, numbers: impl Fn(&mut Random) -> Call, length: usize) -> Vec<Call> {
    let mut calls = vec![numbers(random)];
    while calls.len() < length {
        let mut call = if random.chance(1, 6) { numbers(random) } else { calls[calls.len() - 1] };
        call.quantity = random_quantity(random, call.limit());
        calls.push(call);
    }
    calls
}

/// The replies to calls that are sent before the first reply is read.
fn replies(client: &mut RedisClient, key: &str, calls: &[Call]) -> Vec<Reply> {
    calls.iter().for_each(|call| call.send(client, key));
    calls.iter().map(|_| client.receive().unwrap()).collect()
}

/// Repeats something until it takes less than 900 ms of real time. Each attempt gets its number, and makes its own keys.
fn without_a_stall<T>(mut attempt: impl FnMut(usize) -> T) -> T {
    const ATTEMPTS: usize = 10;
    let result = (0..ATTEMPTS).find_map(|number| {
        let (took, result) = timed(|| attempt(number));
        (took < Duration::from_millis(900)).then_some(result)
    });
    result.unwrap_or_else(|| panic!("the machine stalled in each of {ATTEMPTS} attempts"))
}

/// The clock of redis-cell stands still, and all waits are whole seconds. Tollgate rounds up. So the replies of a sequence
/// that takes Tollgate less than a second are equal.
#[test]
fn throttle_replies_as_redis_cell_does() {
    const LENGTH: usize = 30;
    let Some(cell) = RedisCell::start() else { return };
    let service = RespService::start("limits: []");
    let (mut theirs, mut ours) = (cell.server.client(), RedisClient::connect(service.address).unwrap());
    let sequences = if is_long() { 3000 } else { 300 };
    for seed in 0..sequences {
        let calls = random_calls(&mut Random::new(seed), whole_seconds, LENGTH);
        let by_cell = replies(&mut theirs, &format!("key{seed}"), &calls);
        let replied = without_a_stall(|attempt| replies(&mut ours, &format!("key{seed}-{attempt}"), &calls));
        for (place, ((call, by_cell), replied)) in calls.iter().zip(by_cell).zip(replied).enumerate() {
            let expected = expected(call, five(&by_cell));
            assert_eq!(five(&replied), expected, "seed {seed}, call {place} of {calls:#?}");
        }
    }
}

/// Numbers by which each token takes a whole number of milliseconds.
fn whole_milliseconds(random: &mut Random) -> Call {
    let (count, period) = *random.pick(&[
        (1, 1),
        (2, 1),
        (4, 1),
        (5, 2),
        (8, 3),
        (10, 1),
        (30, 60),
        (40, 1),
        (1000, 1),
        (1000, 7),
        (7, 7),
        (16, 3600),
        (1, 86_400),
    ]);
    let max_burst = signed(random.below(12));
    Call { max_burst, count, period, quantity: random_quantity(random, max_burst + 1) }
}

/// Up to three tokens' time, often none, in whole milliseconds.
fn random_pause(random: &mut Random, call: &Call) -> i64 {
    let interval = call.interval();
    match random.below(5) {
        0 | 1 => 0,
        2 => interval * signed(random.below(4)),
        3 => MILLISECOND,
        _ => signed(random.below((3 * interval / MILLISECOND).unsigned_abs())) * MILLISECOND,
    }
}

/// The exact retry_after and reset_after of redis-cell, in nanoseconds. The arrival time is the one that it had stored before.
fn exact_waits(call: &Call, is_limited: bool, arrival_time: Option<i64>, now: i64) -> [Option<i64>; 2] {
    let debt = arrival_time.map_or(0, |at| (at - now).max(0));
    let cost = call.interval() * call.quantity();
    if !is_limited {
        return [None, Some(debt + cost)];
    }
    let excess = debt + cost - call.interval() * call.limit();
    [(call.quantity() <= call.limit()).then_some(excess), Some(debt)]
}

/// Here Tollgate keeps its states in the same Redis server and by the same clock, so that time can pass in any steps.
#[test]
fn throttle_over_redis_replies_as_redis_cell_does_while_time_passes() {
    const LENGTH: usize = 30;
    let Some(mut cell) = RedisCell::start() else { return };
    let url = cell.server.url();
    let service = RespService::start(&format!(
        "store: {{ redis: {{ url: '{url}', deadline: 10s, on_error: deny }} }}\nlimits: []"
    ));
    let mut http = service.service.connect();
    eventually("the store is up", || http.get("/readyz").body == "ok\n");
    let (mut theirs, mut ours) = (cell.server.client(), RedisClient::connect(service.address).unwrap());
    let sequences = if is_long() { 1000 } else { 100 };
    for seed in 0..sequences {
        let random = &mut Random::new(seed);
        let key = format!("key{seed}");
        // Tollgate repeats a denial for up to a second of real time without a call to Redis, while the clock here may move.
        // So a call that was denied is not sent again.
        let mut denied = HashSet::new();
        for call in random_calls(random, whole_milliseconds, LENGTH) {
            if denied.contains(&call.meaning()) {
                continue;
            }
            cell.advance(random_pause(random, &call));
            let stored = theirs.command(&["GET", &key]);
            let arrival_time = (!stored.is_null()).then(|| stored.integer());
            call.send(&mut theirs, &key);
            call.send(&mut ours, &key);
            let (by_cell, replied) = (five(&theirs.receive().unwrap()), five(&ours.receive().unwrap()));
            let [limited, limit, remaining, ..] = by_cell;
            let waits = exact_waits(&call, limited == 1, arrival_time, cell.now());
            let rounded = |round: fn(i64) -> i64| {
                let [retry_after, reset_after] = waits.map(|wait| wait.map_or(-1, round));
                [limited, limit, remaining, retry_after, reset_after]
            };
            let context = format!("seed {seed}, {call:?}, {waits:?} ns");
            assert_eq!(by_cell, rounded(|wait| wait / SECOND), "redis-cell rounds down: {context}");
            let expected = expected(&call, rounded(|wait| (wait + SECOND - 1) / SECOND));
            assert_eq!(replied, expected, "Tollgate rounds up: {context}");
            if replied[0] == 1 {
                denied.insert(call.meaning());
            }
        }
    }
}

/// Commands, the reply of Tollgate, and the reply of redis-cell. The clock of redis-cell stands still.
const DIFFERENCES: [(&str, &str, &str); 18] = [
    // Seconds are rounded up, and not down.
    ("slow 0 1000 3600999", "0 1 0 -1 3601", "0 1 0 -1 3600"),
    ("slow 0 1000 3600999", "1 1 0 3601 3601", "1 1 0 3600 3600"),
    // A third of a second is exact, and not cut to whole nanoseconds: three tokens take a second.
    ("third 2 3 1 3", "0 3 0 -1 1", "0 3 0 -1 0"),
    // The remaining tokens are not computed in whole microseconds.
    ("fast 9 3000000 1", "0 10 9 -1 1", "0 10 9223372036854775807 -1 0"),
    // A call with quantity 0 is never limited.
    ("peek 4 1 3600 5", "0 5 0 -1 18000", "0 5 0 -1 18000"),
    ("peek 1 1 3600 0", "0 2 0 -1 18000", "1 2 0 10800 18000"),
    // Errors have a code, and the words of later versions of redis-cell.
    (
        "k 1 1",
        "ERR Cell error: Store error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]",
        "Cell error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]",
    ),
    (
        "k x 1 1",
        "ERR Cell error: Store error: Couldn't parse as integer: x",
        "Cell error: Couldn't parse as integer: x",
    ),
    (
        "k 1 1 1 1.5",
        "ERR Cell error: Store error: Couldn't parse as integer: 1.5",
        "Cell error: Couldn't parse as integer: 1.5",
    ),
    // Numbers that make no sense are refused.
    ("k 4 0 1", "ERR Cell error: Store error: Zero rates are not supported", "1 5 1 -1 0"),
    ("k 4 1 0", "ERR Cell error: Store error: Zero rates are not supported", "0 5 0 -1 0"),
    ("k -1 1 1", "ERR Cell error: max_burst must not be negative, and is -1", "1 0 0 -1 0"),
    ("k 4 -1 1", "ERR Cell error: count per period must not be negative, and is -1", "1 5 0 -1 0"),
    ("k 4 1 -1", "ERR Cell error: period must not be negative, and is -1", "1 5 0 -1 0"),
    // redis-cell takes a negative quantity as a refund, if there is something to refund.
    (
        "new 4 1 3600 -1",
        "ERR Cell error: quantity must not be negative, and is -1",
        "Cell error: Error while setting key expire",
    ),
    ("old 4 1 3600 2", "0 5 3 -1 7200", "0 5 3 -1 7200"),
    ("old 4 1 3600 -1", "ERR Cell error: quantity must not be negative, and is -1", "0 5 4 -1 3600"),
    // Numbers that overflow 64 bits are refused.
    (
        "large 9223372036854775807 1 1",
        "ERR Cell error: the burst of 9223372036854775808 is too large; with the other numbers as they are, give at most \
         4611686018",
        "1 -9223372036854775808 0 -1 0",
    ),
];

/// The replies to all commands of the table, whose keys get a prefix.
fn replies_in_words(client: &mut RedisClient, prefix: &str) -> Vec<String> {
    let reply = |(arguments, ..): (&str, &str, &str)| {
        let command = format!("CL.THROTTLE {prefix}{arguments}");
        let reply = client.command(&command.split(' ').collect::<Vec<_>>());
        let integers = || five(&reply).map(|integer| integer.to_string()).join(" ");
        reply.error().map_or_else(integers, str::to_owned)
    };
    DIFFERENCES.into_iter().map(reply).collect()
}

#[test]
fn throttle_differs_from_redis_cell_only_on_purpose() {
    let Some(cell) = RedisCell::start() else { return };
    let service = RespService::start("limits: []");
    let (mut theirs, mut ours) = (cell.server.client(), RedisClient::connect(service.address).unwrap());
    let by_cell = replies_in_words(&mut theirs, "");
    let replied = without_a_stall(|attempt| replies_in_words(&mut ours, &attempt.to_string()));
    for ((replied, by_cell), difference) in replied.iter().zip(&by_cell).zip(DIFFERENCES) {
        assert_eq!((difference.0, &**replied, &**by_cell), difference);
    }
    // redis-cell panics at the next two, which ends the Redis server.
    let refused = ours.command(&["CL.THROTTLE", "k", "1", "1", "9223372036854775807"]);
    assert_eq!(
        refused.error(),
        Some(
            "ERR Cell error: the rate's period of 9223372036854775807s is too long; \
             give at most 4611686018.427387904s (146 years)"
        )
    );
    let not_utf_8 = ours.command(&[&b"CL.THROTTLE"[..], b"\xff\x00", b"4", b"1", b"3600"]);
    assert_eq!(five(&not_utf_8), [0, 5, 4, -1, 3600]);
}
