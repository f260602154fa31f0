//! Ready-made requests, each with what to look at: the stories of the playground page and of the animations in the documentation.

use std::sync::LazyLock;

use serde::Serialize;
use serde_json::{Value, json};
use tollgate_core::AlgorithmKind::{FixedWindow, LeakyBucket, SlidingCounter, SlidingLog, TokenBucket};

use super::{MOST_ARRIVALS, PlaygroundReply};
use crate::random::Random;
use crate::scenario::{BUILT_IN, built_in};

/// A ready-made request.
///
/// ```
/// use tollgate_lab::playground::{PlaygroundRequest, play, stories};
///
/// for story in stories() {
///     let request: PlaygroundRequest = serde_json::from_value(story.request.clone())?;
///     assert!(story.moment < play(&request, &mut || true)?.duration, "{}", story.name);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Story {
    /// Its name in links and file names.
    pub name: &'static str,
    /// What happens.
    pub title: &'static str,
    /// What to look at when the story stops.
    pub look: [&'static str; 2],
    /// The second of the timeline at which there is most to see.
    pub moment: f64,
    /// The body of `POST /v1/playground`.
    pub request: Value,
    /// What the reply shows, in one sentence with its numbers.
    #[serde(skip)]
    pub(super) finding: fn(&PlaygroundReply) -> String,
}

/// The ready-made requests, in the order in which the page offers them. They are the same in every run.
pub fn stories() -> &'static [Story] {
    static STORIES: LazyLock<[Story; 5]> = LazyLock::new(|| {
        [app_open(), boundary_attack(), driver_location(), noisy_neighbour(), retry_storm()]
    });
    &*STORIES
}

/// A scenario of the lab that is small enough for the playground, with the numbers that it is made for.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct PlayableScenario {
    /// Its name, as `scenario` of a request takes it.
    pub name: &'static str,
    /// What happens.
    pub about: &'static str,
    /// How much it lets pass per window.
    pub limit: u64,
    /// The window, in seconds.
    pub window: f64,
    /// `global` where all clients share a state, or else `client`.
    pub by: &'static str,
}

/// The scenarios of the lab that have few enough arrivals.
pub fn playable_scenarios() -> &'static [PlayableScenario] {
    static SCENARIOS: LazyLock<Vec<PlayableScenario>> = LazyLock::new(|| {
        let playable = |(name, about): (&'static str, &'static str)| {
            let scenario = built_in(name)?;
            let is_small = scenario.events().take(MOST_ARRIVALS + 1).count() <= MOST_ARRIVALS;
            is_small.then_some(PlayableScenario {
                name,
                about,
                limit: scenario.limit.limit,
                window: scenario.limit.window.as_nanos() as f64 / 1e9,
                by: if scenario.is_global { "global" } else { "client" },
            })
        };
        BUILT_IN.into_iter().filter_map(playable).collect()
    });
    &SCENARIOS
}

/// Arrivals of a story, in milliseconds.
#[derive(Debug, Default)]
struct Arrivals(Vec<(u64, &'static str)>);

impl Arrivals {
    /// Calls of a client, evenly spread from one time to another.
    fn even(mut self, client: &'static str, count: u64, from: u64, until: u64) -> Self {
        self.0.extend((0..count).map(|number| (from + number * (until - from) / count, client)));
        self
    }

    /// `each` calls of every client, at random times.
    fn random(mut self, clients: &[&'static str], each: u64, from: u64, until: u64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        for client in clients {
            self.0.extend((0..each).map(|_| (from + random.below(until - from), *client)));
        }
        self
    }

    fn request(mut self, rules: Value) -> Value {
        self.0.sort_by_key(|(at, _)| *at);
        let arrivals = self.0.iter().map(|(at, client)| json!({"at": *at as f64 / 1e3, "client": client}));
        json!({"rules": rules, "arrivals": arrivals.collect::<Vec<_>>()})
    }
}

fn app_open() -> Story {
    let arrivals = Arrivals::default()
        .even("app", 6, 1000, 1060)
        .even("app", 3, 2400, 4500)
        .even("app", 6, 6000, 6060)
        .even("app", 2, 6900, 8000)
        .even("script", 36, 9000, 12_000);
    Story {
        name: "app-open",
        title: "An app opens with six calls at once",
        look: [
            "Opening the app makes six calls within 60 ms, which is normal: the bucket holds 10 tokens and lets all of them pass.",
            "The limits of 3 per second deny three of the six, although the app makes less than 2 calls per second on average.",
        ],
        moment: 1.06,
        finding: |reply| {
            let [bucket, window] = [0, 1].map(|rule: usize| {
                reply.rules[rule].decisions.allowed.iter().take(6).filter(|allowed| **allowed).count()
            });
            format!("Six calls at once: the token bucket passes {bucket}, a limit of 3 per second {window}")
        },
        request: arrivals.request(json!([
            {(TokenBucket.name()): {"rate": "3/s", "burst": 10}},
            {(FixedWindow.name()): {"limit": 3, "window": "1s"}},
            {(SlidingLog.name()): {"limit": 3, "window": "1s"}},
        ])),
    }
}

fn boundary_attack() -> Story {
    let mut arrivals = Arrivals::default().even("attacker", 2, 7500, 9500);
    for edge in [5000, 15_000] {
        arrivals = arrivals.even("attacker", 14, edge - 980, edge).even("attacker", 14, edge, edge + 980);
    }
    Story {
        name: "boundary-attack",
        title: "A burst around the edge of a window",
        look: [
            "The count of the fixed window returns to 0 at second 5, so the attacker gets two full limits within two seconds.",
            "The sliding log lets nothing of the second half through, the token bucket 2, the sliding counter 1: they remember what passed before the edge.",
        ],
        moment: 5.98,
        finding: |reply| {
            let [fixed, log] = [0, 2].map(|rule: usize| reply.rules[rule].most);
            format!("10 per 5 s: the fixed window passes {fixed} around its edge, the sliding log {log}")
        },
        request: arrivals.request(json!([
            {(FixedWindow.name()): {"limit": 10, "window": "5s"}},
            {(TokenBucket.name()): {"rate": "10/5s", "burst": 10}},
            {(SlidingLog.name()): {"limit": 10, "window": "5s"}},
            {(SlidingCounter.name()): {"limit": 10, "window": "5s"}},
        ])),
    }
}

const DRIVERS: [&str; 10] =
    ["car 1", "car 2", "car 3", "car 4", "car 5", "car 6", "car 7", "car 8", "car 9", "car 10"];

fn driver_location() -> Story {
    let arrivals = Arrivals::default()
        .random(&DRIVERS, 3, 0, 2000, 11)
        .random(&DRIVERS, 18, 2000, 5000, 12)
        .random(&DRIVERS, 9, 5000, 11_000, 13);
    Story {
        name: "driver-location",
        title: "A flood of location updates for a database that takes 30 per second",
        look: [
            "For three seconds the cars send twice what the database takes: the queue fills, delays each update, and denies only when it is full.",
            "The database gets at most one update every 33 ms from the queue, but up to 74 per second from the token bucket and 42 from the fixed window.",
        ],
        moment: 3.7,
        finding: |reply| {
            let [queue, bucket] = [0, 1].map(|rule: usize| reply.rules[rule].most);
            format!("The queue passes at most {queue} updates per second, the token bucket {bucket}")
        },
        request: arrivals.request(json!([
            {(LeakyBucket.name()): {"rate": "30/s", "queue": 50}},
            {(TokenBucket.name()): {"rate": "30/s", "burst": 50}},
            {(FixedWindow.name()): {"limit": 30, "window": "1s"}},
        ])),
    }
}

fn noisy_neighbour() -> Story {
    let arrivals = Arrivals::default()
        .random(&["quiet 1", "quiet 2", "quiet 3", "quiet 4"], 12, 0, 12_000, 21)
        .even("noisy", 80, 2000, 10_000);
    Story {
        name: "noisy-neighbour",
        title: "One client asks for far more than its share",
        look: [
            "With one bucket for everybody, the noisy client empties it, and calls of the four quiet clients are denied.",
            "With a bucket per client, the quiet clients lose nothing, and only the noisy client is limited.",
        ],
        moment: 6.0,
        finding: |reply| {
            let quiet = |client: u32| reply.clients[client as usize] != "noisy";
            let [shared, own] = [0, 1].map(|rule: usize| denied(reply, rule, quiet));
            let calls = reply.arrivals.client.iter().filter(|client| quiet(**client)).count();
            format!(
                "One bucket for everybody denies {shared} of {calls} quiet calls, a bucket per client {own}"
            )
        },
        request: arrivals.request(json!([
            {"name": "one bucket for everybody", (TokenBucket.name()): {"rate": "6/s", "burst": 10}},
            {"name": "a bucket per client", (TokenBucket.name()): {"rate": "2/s", "burst": 4}, "by": "client"},
        ])),
    }
}

const CLIENTS: [&str; 20] = [
    "client 1",
    "client 2",
    "client 3",
    "client 4",
    "client 5",
    "client 6",
    "client 7",
    "client 8",
    "client 9",
    "client 10",
    "client 11",
    "client 12",
    "client 13",
    "client 14",
    "client 15",
    "client 16",
    "client 17",
    "client 18",
    "client 19",
    "client 20",
];

fn retry_storm() -> Story {
    let mut arrivals = Arrivals::default().random(&CLIENTS, 1, 0, 12_000, 31);
    for (at, seed) in [(2000, 32), (3000, 33), (5000, 34), (9000, 35)] {
        arrivals = arrivals.random(&CLIENTS, 1, at, at + 300, seed);
    }
    Story {
        name: "retry-storm",
        title: "Twenty clients retry after the same 1, 2 and 4 seconds",
        look: [
            "All clients lose an answer in second 2 and retry at the same times: a full token bucket passes a whole wave at once, and the fixed window passes half of it.",
            "Only the queue spreads a wave over two seconds: no call of the first wave is lost, and the backend gets at most 10 per second.",
        ],
        moment: 3.3,
        finding: |reply| {
            let [queue, bucket] = [0, 1].map(|rule: usize| reply.rules[rule].most);
            format!("Retries at once: the queue passes {queue} per second, the token bucket {bucket}")
        },
        request: arrivals.request(json!([
            {(LeakyBucket.name()): {"rate": "10/s", "queue": 20}},
            {(TokenBucket.name()): {"rate": "10/s", "burst": 20}},
            {(FixedWindow.name()): {"limit": 10, "window": "1s"}},
            {(SlidingCounter.name()): {"limit": 10, "window": "1s"}},
        ])),
    }
}

/// How many arrivals of some clients a rule denies.
fn denied(reply: &PlaygroundReply, rule: usize, is_of: impl Fn(u32) -> bool) -> usize {
    let decisions = reply.rules[rule].decisions.allowed.iter().zip(&reply.arrivals.client);
    decisions.filter(|(allowed, client)| !**allowed && is_of(**client)).count()
}
