//! Every key of the policy file, what it takes and what it means.
//!
//! One table for all who must know them: the reader, which refuses what does not stand here, the JSON schema and
//! `docs/policy.md`.
#![deny(clippy::wildcard_enum_match_arm, reason = "a new algorithm must be handled in every match")]

use tollgate::AlgorithmKind;

/// A key of a section.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) takes: Takes,
    pub(crate) text: &'static str,
}

/// What may stand behind a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Takes {
    Text,
    /// A whole number, also as `10k`.
    Count,
    /// A number between 0 and 1.
    Fraction,
    /// `5/s`, also with ` burst 10`.
    Rate,
    /// `5/s`, where a burst would have no effect.
    PlainRate,
    /// `500ms`.
    Time,
    /// `1GiB`.
    Bytes,
    /// `10x`.
    Factor,
    /// `true` or `false`.
    Flag,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A list of such.
    List(&'static Takes),
    /// One such, or a list of them.
    OneOrMore(&'static Takes),
    /// Such under names of the writer's choice.
    Named(&'static Takes),
    Section(&'static [Key]),
    /// One of these.
    Either(&'static [Takes]),
    /// Anything at all.
    Any,
}

use Takes::{
    Any, Bytes, Count, Either, Factor, Flag, Fraction, List, Named, OneOrMore, PlainRate, Rate, Section,
    Text, Time, Word,
};

const fn key(name: &'static str, takes: Takes, text: &'static str) -> Key {
    Key { name, takes, text }
}

pub(crate) const POLICY: &[Key] = &[
    key("listen", Section(LISTEN), "Where to listen. A listener left out is off."),
    key("tls", Section(TLS), "A certificate for all listeners."),
    key(
        "resp_password_file",
        Text,
        "A file with the password that RESP clients must give; without one, anybody may ask.",
    ),
    key("admin", Section(ADMIN), "Who may change things at run time."),
    key(
        "dashboard",
        Flag,
        "Whether the HTTP listener serves the dashboard at `/` and the playground at `/playground`. Default: `on`.",
    ),
    key("headers", Section(HEADERS), "Which headers answers carry."),
    key("store", Either(&[Word(&["memory"]), Section(STORE)]), "Where the state of keys is kept."),
    key("identity", Section(IDENTITY), "Where the gateway, forward-auth and tower take attributes from."),
    key("tiers", Named(&Section(TIER)), "Classes of tenants, such as price plans."),
    key("default_tier", Text, "The tier of tenants that have none."),
    key("tenants", Named(&Section(TENANT)), "Tenants that differ from the rest."),
    key(
        "tenants_file",
        Text,
        "A file with more tenants: one `tenant,tier` per line, which may go on with `,limit:field=value`.",
    ),
    key(
        "costs",
        List(&Section(COST)),
        "What requests cost: the first that matches, else 1. A cost sent by the caller wins.",
    ),
    key("limits", List(&Section(LIMIT)), "The limits, in the order they are told to callers."),
    key("envoy", Section(ENVOY), "How Envoy is answered."),
    key("gateway", Section(GATEWAY), "A reverse proxy in front of an application."),
    key(
        "adaptive_rates",
        Section(ADAPTIVE_RATES),
        "One multiplier on every rate while the upstream is overloaded.",
    ),
    key("record", Section(RECORD), "Writes every decision to a file, as a line of JSON."),
    key(
        "telemetry",
        Section(TELEMETRY),
        "Exports traces and metrics to an OpenTelemetry collector. Needs the cargo feature `otlp`, which is on by default.",
    ),
];

pub(crate) const LISTEN: &[Key] = &[
    key(
        "http",
        Text,
        "Decision API, forward-auth, metrics, health. 127.0.0.1:8080 if there is no `listen:` at all.",
    ),
    key(
        "grpc",
        Text,
        "Envoy's rate limit service v3, gRPC health and reflection. 127.0.0.1:8081 if there is no `listen:` at all.",
    ),
    key(
        "resp",
        Text,
        "The protocol of Redis: `CL.THROTTLE`, as redis-cell has it, and `TOLLGATE.CHECK`. 127.0.0.1:6380 if there is no `listen:` at all.",
    ),
    key(
        "gateway",
        Text,
        "The reverse proxy; only with a `gateway:` section. 127.0.0.1:8000 if there is one and no `listen:` at all.",
    ),
    key(
        "max_connections",
        Count,
        "The most connections of all listeners. When it is reached, the longest idle ones are closed. Default: three quarters of the hard limit of open files (`ulimit -Hn`).",
    ),
    key(
        "max_connections_per_address",
        Count,
        "The most connections of one peer address (IPv6: of one /64). Addresses in `trusted_proxies` are exempt. Default: half of `max_connections`.",
    ),
    key(
        "idle",
        Time,
        "How long a connection to `grpc` may be without a call. Tollgate sends GOAWAY after 1 to 1.5 times this. Default: `5m`.",
    ),
    key(
        "hosts",
        List(&Text),
        "Names without ports by which callers may reach an HTTP listener that is bound to the loopback, besides `localhost` and loopback addresses, and whose web pages may make calls. Default: none.",
    ),
];

pub(crate) const TLS: &[Key] =
    &[key("cert_file", Text, "The certificate chain, PEM."), key("key_file", Text, "Its private key, PEM.")];

pub(crate) const ADMIN: &[Key] = &[key("token_file", Text, "A file with the token that admin calls carry.")];

pub(crate) const HEADERS: &[Key] = &[
    key("ietf", Word(&["draft-08", "draft-07", "draft-06", "off"]), "`RateLimit` headers of that draft."),
    key(
        "x_ratelimit",
        Word(&["epoch", "delta", "off"]),
        "`X-RateLimit-*`, with the reset as Unix time or in seconds from now.",
    ),
    key(
        "upstream",
        Word(&["replace", "keep"]),
        "Whose `RateLimit`, `RateLimit-*`, `X-RateLimit-*` and `Retry-After` headers clients of the gateway get. With `replace`, a header of the gateway replaces that of the application. With `keep`, the application's headers stay, and the gateway adds none of the same family (`RateLimit…`, `X-RateLimit-…`, `Retry-After`). Default: `replace`. A denial of the gateway always has the gateway's headers.",
    ),
];

pub(crate) const STORE: &[Key] = &[
    key("memory", Section(MEMORY), "In this process."),
    key("redis", Section(REDIS), "In Redis or Valkey, shared by several processes."),
];

pub(crate) const MEMORY: &[Key] = &[
    key("max_keys", Count, "The most keys remembered at once: 10000000 unless told."),
    key(
        "max_bytes",
        Either(&[Bytes, Word(&["unlimited"])]),
        "The most bytes they may take, at least 256KiB. Rules that callers send have a quarter of it. Default: `1GiB`, or a quarter of the memory of the machine (or of the cgroup) where that is less.",
    ),
    key(
        "when_full",
        Word(&["evict", "deny", "allow"]),
        "What becomes of a new key when all places are in use: one that loses little makes way (`evict`, unless told), it is denied, or let through uncounted.",
    ),
    key(
        "persist",
        Section(&[key("path", Text, "The directory the state is kept in.")]),
        "Keeps long quotas over a restart. Not built yet.",
    ),
];

pub(crate) const REDIS: &[Key] = &[
    key("url", Text, "One server: `redis://host:port/database`, or `rediss://` for TLS."),
    key("urls", List(&Text), "Several: of a cluster, or Sentinels."),
    key("cluster", Flag, "Whether they are a cluster."),
    key(
        "sentinel",
        Section(&[
            key("master", Text, "The name of the master."),
            key("username", Text, "Who we are to the Sentinels, if they ask."),
            key("password_file", Text, "The file with the password for the Sentinels, which have their own."),
        ]),
        "Whether they are Sentinels, and of whom.",
    ),
    key("username", Text, "The ACL user to be; the default user unless told."),
    key("password_file", Text, "The file with the password."),
    key(
        "tls",
        Section(&[
            key("ca_file", Text, "The certificates to trust: the system's unless told."),
            key("cert_file", Text, "Our own certificate, if the servers ask for one."),
            key("key_file", Text, "Its private key."),
        ]),
        "Certificates for `rediss://`.",
    ),
    key(
        "mode",
        Word(&["exact", "lease"]),
        "`exact` asks the store for each request. `lease` draws grants of units from the store and decides by them in this process. Default: `exact`.",
    ),
    key("deadline", Time, "How long an answer may take: 5ms unless told."),
    key(
        "on_error",
        Word(ON_ERROR),
        "What is decided when there is none: the request passes (`allow`, unless told), is denied, or is decided by this process's share of each rate (`local`), which starts empty.",
    ),
    key(
        "nodes",
        Count,
        "Among how many processes rates are divided by `local`: counted in the store unless told.",
    ),
    key(
        "lease",
        Section(&[key(
            "sync",
            Time,
            "How long a grant should last at the present demand: 10ms to 5s. Default: `100ms`.",
        )]),
        "For `mode: lease`.",
    ),
];

pub(crate) const ON_ERROR: &[&str] = &["allow", "deny", "local"];

pub(crate) const IDENTITY: &[Key] = &[
    key(
        "tenant",
        Text,
        "The header it is taken from, such as `header.x-api-key`. Without it forward-auth knows no tenant.",
    ),
    key(
        "user",
        Text,
        "The header it is taken from, such as `header.x-user-id`. Without it forward-auth knows no user.",
    ),
    key("client_ip", Section(CLIENT_IP), "Gives the attribute `ip`."),
];

pub(crate) const CLIENT_IP: &[Key] = &[
    key(
        "trusted_proxies",
        List(&Text),
        "Networks of your proxies: what they say of the original request is believed. Without it nobody is, and `forward-auth` sees only the connection.",
    ),
    key(
        "trusted_hops",
        Count,
        "How many proxies stand before this service, where their networks are not known.",
    ),
    key(
        "header",
        Word(&["xff", "forwarded", "x-real-ip", "cf-connecting-ip"]),
        "The one header in which they tell it.",
    ),
    key("ipv6_prefix", Count, "How many bits of an IPv6 address make a client: 48 to 128, 64 unless told."),
];

pub(crate) const TIER: &[Key] = &[
    key("weight", Count, "Its share in the fair queue: 1 unless told."),
    key("shed", Count, "How hard adaptive rates press: 0 exempt, 1 normal (unless told), 2 first."),
];

pub(crate) const TENANT: &[Key] = &[
    key("tier", Text, "Its tier."),
    key("weight", Count, "Its share in the fair queue, instead of its tier's."),
    key(
        "limits",
        Named(&Section(NUMBERS)),
        "Numbers of its own, by limit. What is left out comes from its tier, then from the limit.",
    ),
];

const TRAILING_SLASH: &[&str] = &["exact", "any"];

pub(crate) const MATCH: &[Key] = &[
    key(
        "method",
        OneOrMore(&Text),
        "The request's method, in capitals: `POST`. The gateway, forward-auth and tower read `post` as `POST`.",
    ),
    key(
        "path",
        OneOrMore(&Text),
        "The request's path, from its first slash; `*` stands for any run of characters.",
    ),
    key("ignore_case", Flag, "Whether `path` matches in any case: `/LOGIN` is `/login`. Default: `false`."),
    key(
        "trailing_slash",
        Word(TRAILING_SLASH),
        "Whether a slash at the end of a path counts. `any`: `/login/` is `/login`. Default: `exact`.",
    ),
    key(
        "host",
        OneOrMore(&Text),
        "The request's host, in any case. Without a port, it matches every port of the host. The ports 80, 443 and none are the same.",
    ),
    key("tenant", OneOrMore(&Text), "The tenant."),
    key("user", OneOrMore(&Text), "The user."),
    key("ip", OneOrMore(&Text), "The client's address."),
    key("tier", OneOrMore(&Text), "The tenant's tier."),
    key("attributes", Named(&OneOrMore(&Text)), "Any other attributes, by name."),
];

pub(crate) const COST: &[Key] = &[
    key("match", Section(MATCH), "The requests it is of."),
    key("cost", Count, "What they cost. 0 is free."),
];

/// The keys of a limit, with one for each algorithm.
pub(crate) const LIMIT: &[Key] = &limit_keys();

const fn limit_keys()
-> [Key; LIMIT_BEFORE_ALGORITHMS.len() + AlgorithmKind::ALL.len() + LIMIT_AFTER_ALGORITHMS.len()] {
    let mut keys = [LIMIT_BEFORE_ALGORITHMS[0]; _];
    let (before, algorithms) = (LIMIT_BEFORE_ALGORITHMS.len(), AlgorithmKind::ALL.len());
    let mut place = 0;
    while place < keys.len() {
        keys[place] = if place < before {
            LIMIT_BEFORE_ALGORITHMS[place]
        } else if place < before + algorithms {
            of_algorithm(AlgorithmKind::ALL[place - before])
        } else {
            LIMIT_AFTER_ALGORITHMS[place - before - algorithms]
        };
        place += 1;
    }
    keys
}

/// The key of a limit that chooses an algorithm.
const fn of_algorithm(kind: AlgorithmKind) -> Key {
    let text = match kind {
        AlgorithmKind::TokenBucket => "A rate with bursts.",
        AlgorithmKind::LeakyBucket => "A rate at an even pace: requests are held back.",
        AlgorithmKind::FixedWindow => "A count per window.",
        AlgorithmKind::SlidingLog => "A count in any span of the window, exactly.",
        AlgorithmKind::SlidingCounter => "The same, nearly, for many keys.",
        AlgorithmKind::BurstCredits => "A rate with bursts that are saved up.",
        AlgorithmKind::Concurrency => "How many at once.",
    };
    key(kind.name(), Section(settings(kind)), text)
}

/// The keys in the map of an algorithm.
pub(crate) const fn settings(kind: AlgorithmKind) -> &'static [Key] {
    match kind {
        AlgorithmKind::TokenBucket => BUCKET,
        AlgorithmKind::LeakyBucket => QUEUE,
        AlgorithmKind::FixedWindow => FIXED_WINDOW,
        AlgorithmKind::SlidingLog => SLIDING_LOG,
        AlgorithmKind::SlidingCounter => SLIDING_COUNTER,
        AlgorithmKind::BurstCredits => BURST_CREDITS,
        AlgorithmKind::Concurrency => CONCURRENCY,
    }
}

const LIMIT_BEFORE_ALGORITHMS: &[Key] = &[
    key("name", Text, "Its name, in answers and headers."),
    key(
        "match",
        Section(MATCH),
        "The requests it applies to: all that is given must match, a list means any of. Without it, all.",
    ),
    key(
        "key",
        List(&Text),
        "What it counts by: attributes, `a|b` for the first that is there. `[]` is one key for everybody.",
    ),
    key(
        "descriptor",
        Section(DESCRIPTOR),
        "Instead of `match` and `key`: the Envoy descriptor it applies to, found as envoyproxy/ratelimit does. Without an algorithm, the descriptor is known and nobody counts it.",
    ),
    key("unlimited", Flag, "Of a descriptor without an algorithm: tells Envoy that there is no end of it."),
];

const LIMIT_AFTER_ALGORITHMS: &[Key] = &[
    key(
        "tiers",
        Named(&Section(NUMBERS)),
        "The same rule with other numbers, by tier; fields left out keep the limit's.",
    ),
    key("shadow", Flag, "Own state, charged as if it alone decided; never denies, never touches the others."),
    key(
        "max_wait",
        Time,
        "Holds a request instead of refusing it, if its turn comes within this time. For buckets.",
    ),
    key("max_waiting", Count, "At most so many at once: 1000 unless told."),
    key(
        "when_missing",
        Word(&["share", "skip", "deny"]),
        "What a request without an attribute of the key does: share one key with all that lack it (unless told), skip this limit, or be denied.",
    ),
    key("count_denied", Flag, "Whether denied requests count, too, whoever denied them. For `fixed_window`."),
    key("on_error", Word(ON_ERROR), "What is decided when the store gives no answer."),
    key("mode", Word(&["exact"]), "`exact`: the store decides each request, also where its mode is `lease`."),
];

/// Keys of a limit that are planned and not built, each with what works today.
pub(crate) const NOT_BUILT: &[(&str, &str)] = &[
    ("quota", "use `fixed_window`, for example `fixed_window: { limit: 100000, window: 30d }`"),
    ("count_when", "leave it out: every request that a limit allows counts; `count_denied` adds denied ones"),
];

pub(crate) const DESCRIPTOR: &[Key] = &[
    key("domain", Text, "The domain that Envoy's filter names."),
    key(
        "entries",
        List(&Section(ENTRY)),
        "Its entries, in order. Each is looked up by its exact value first, then by values with a `*` in the order of the file, then by its key alone; there is no way back.",
    ),
    key("name", Text, "What Envoy is told it is called."),
    key("replaces", List(&Text), "Those of these names do not count in a request that this one applies to."),
    key("quota_mode", Flag, "Of the limits of a request that say so, one with room is enough."),
    key("blocked", Flag, "Nothing passes, whatever the numbers say."),
    key("detailed_metric", Flag, "A metric for every value of every entry, up to a bound."),
    key("metadata", Any, "Told to Envoy with `dynamic_metadata`."),
];

pub(crate) const ENTRY: &[Key] = &[
    key(
        "key",
        Text,
        "Its key. Key and value are compared as one string, `key_value`. So a `*` in the key matches any run of characters, also across the key and its value.",
    ),
    key(
        "value",
        Text,
        "Its value, in which `*` stands for any run of characters. Without it, every value has a count of its own.",
    ),
    key("share_threshold", Flag, "All values that match the `*` share one count."),
    key("value_to_metric", Flag, "A metric for every value, up to a bound."),
];

pub(crate) const ENVOY: &[Key] = &[
    key("shadow_mode", Flag, "Denies nothing; each descriptor still tells what it would have been."),
    key("quota_mode", Flag, "As if every descriptor said `quota_mode`."),
    key("dynamic_metadata", Flag, "Tells Envoy what was asked and the `metadata` of what passed."),
    key("response_headers", Flag, "Whether Envoy is given headers for the client: true unless told."),
];

const BUCKET: &[Key] = &[
    key("rate", Rate, "How fast tokens come."),
    key("burst", Count, "How many it holds: the tokens of one period unless told, at least 1."),
];

const QUEUE: &[Key] =
    &[key("rate", PlainRate, "How fast requests leave."), key("queue", Count, "How many may be in it.")];

const FIXED_WINDOW: &[Key] = &[
    key("limit", Count, "How many in each window. 0 denies every request."),
    key("window", Time, "How long it is."),
    key(
        "align",
        Word(&["epoch", "first"]),
        "Whether windows begin on the minute (`epoch`, unless told), or with a key's first request.",
    ),
];

const SLIDING_LOG: &[Key] = &[
    key("limit", Count, "How many in any span of the window. 0 denies every request."),
    key("window", Time, "How long it is."),
    key(
        "exact_up_to",
        Count,
        "A larger limit uses a strict `sliding_counter` of 32 buckets instead, which bounds the memory per key. `tollgate check` warns of it. Default: `10000`.",
    ),
];

const SLIDING_COUNTER: &[Key] = &[
    key("limit", Count, "How many in any span of the window, about. 0 denies every request."),
    key("window", Time, "How long it is."),
    key("buckets", Count, "Into how many parts the window is cut: 1 unless told."),
    key(
        "mode",
        Word(&["interpolate", "strict", "lenient"]),
        "How the part that is leaving weighs: by what is left of it (`interpolate`, unless told), wholly, not at all.",
    ),
];

const BURST_CREDITS: &[Key] = &[
    key("rate", PlainRate, "The rate in the long run."),
    key("peak", Either(&[Factor, PlainRate]), "The rate in bursts, or how many times the other it is."),
    key("burst_for", Time, "How long full credits hold the peak."),
    key("credits", Count, "How many credits can be saved up, instead of `burst_for`."),
];

const CONCURRENCY: &[Key] = &[
    key(
        "limit",
        Count,
        "How many slots there are. A request takes as many as it costs. 0 denies every request.",
    ),
    key("lease", Time, "After which a permit that was not given back is free: never unless told."),
];

/// The numbers of all algorithms: which of them fit is the limit's algorithm to say.
pub(crate) const NUMBERS: &[Key] = &[
    key("rate", Rate, "Of a token bucket, a leaky bucket or burst credits."),
    key("burst", Count, "Of a token bucket."),
    key("queue", Count, "Of a leaky bucket."),
    key("limit", Count, "Of a window or a concurrency limit. 0 denies every request."),
    key("window", Time, "Of a window."),
    key("peak", Either(&[Factor, PlainRate]), "Of burst credits."),
    key("burst_for", Time, "Of burst credits."),
    key("credits", Count, "Of burst credits."),
    key("lease", Time, "Of a concurrency limit."),
];

pub(crate) const GATEWAY: &[Key] = &[
    key("upstream", OneOrMore(&Text), "The application, or several of it, such as `http://127.0.0.1:9000`."),
    key(
        "concurrency",
        Section(SLOTS),
        "How many requests the application gets at once; unbounded if left out.",
    ),
    key("fair_queue", Section(FAIR_QUEUE), "How requests wait for it, and who is next."),
    key("timeouts", Section(TIMEOUTS), "How long is waited for whom."),
    key("max_body", Bytes, "The largest body of a request; 1GiB unless told."),
];

pub(crate) const SLOTS: &[Key] = &[
    key("max", Count, "The most."),
    key("min", Count, "The fewest, where it adapts."),
    key("adaptive", Word(&["gradient", "aimd", "vegas"]), "Finds the number by how requests fare."),
];

pub(crate) const FAIR_QUEUE: &[Key] = &[
    key(
        "by",
        Text,
        "The attribute that tells tenants apart. Without a `fair_queue`, whoever comes first is next.",
    ),
    key("per_key", Count, "The most of one tenant that wait; 50 unless told."),
    key("max_wait", Time, "How long a request waits at most; 2s unless told."),
    key(
        "work",
        Word(&["time", "cost"]),
        "What is shared: the time that requests take, or what `costs` says of them. `cost` where the policy has `costs`.",
    ),
];

pub(crate) const TIMEOUTS: &[Key] = &[
    key("connect", Time, "For the application to accept a connection; 2s unless told."),
    key("answer", Time, "For it to begin its answer, and then for every piece of it; 60s unless told."),
    key(
        "idle",
        Time,
        "For the next request of a client, and for each piece of a body. While `min_upload_rate` applies, a client that is too slow on average has less. Default: `60s`.",
    ),
    key(
        "grace",
        Time,
        "How long a client may send or read nothing at first. A client below `min_upload_rate` or `min_download_rate` uses this time up gradually. Default: `10s`.",
    ),
    key(
        "min_upload_rate",
        Either(&[Bytes, Word(&["off"])]),
        "Bytes per second that a client must send on average while it owes the body of a request. Default: `4KiB`.",
    ),
    key(
        "min_download_rate",
        Either(&[Bytes, Word(&["off"])]),
        "Bytes per second that a client must read on average while an answer waits for it. Default: `16KiB`.",
    ),
];

pub(crate) const ADAPTIVE_RATES: &[Key] = &[
    key(
        "high",
        Time,
        "A queueing delay of the gateway above which rates go down. `PUT /v1/pressure` has marks of its own.",
    ),
    key("low", Time, "One below which they go up again."),
    key("floor", Fraction, "The least the multiplier can be."),
];

pub(crate) const TELEMETRY: &[Key] = &[
    key(
        "otlp",
        Text,
        "The base URL of a collector that accepts OTLP over HTTP, such as `http://127.0.0.1:4318`. The service adds `/v1/traces` and `/v1/metrics`.",
    ),
    key(
        "sample",
        Fraction,
        "The share of the requests without a `traceparent` that are traced. All requests with a sampled `traceparent` are traced. In total, at most 1000 requests per second are traced. Default: `0.01`.",
    ),
    key("interval", Time, "The time between two exports of metrics, 1s to 1h. Default: `60s`."),
];

pub(crate) const RECORD: &[Key] = &[
    key("path", Text, "The file. It is created with mode 0600: only the user of the service may read it."),
    key("max_bytes", Bytes, "How large a file may become. Default: `1GiB`."),
    key(
        "max_files",
        Count,
        "The most files, 1 to 1000. With 1, recording ends when the file is full. Above 1, a full file becomes `path.1`, the one before it `path.2`, and the oldest is overwritten. Default: `1`.",
    ),
];
