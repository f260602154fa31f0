//! Commands of Redis that this server does not have, each with a hint at what to do instead.

const TRANSACTIONS: &str = "Send a pipeline without a transaction; in redis-py: pipeline(transaction=False).";
const VALUES: &str = "This server stores no values. CL.THROTTLE key max_burst count period and \
                      TOLLGATE.CHECK attribute value ... decide and count in one step.";
const SCRIPTS: &str =
    "This server runs no scripts. CL.THROTTLE and TOLLGATE.CHECK decide and count in one step.";
const WATCHES: &str =
    "There is nothing to watch: CL.THROTTLE and TOLLGATE.CHECK decide and count in one step.";
const MESSAGES: &str = "This server publishes no messages.";
const EXPIRY: &str = "A key expires when its bucket is full again. TTL shows when; DEL forgets the key now.";
const LISTS: &str = "Keys cannot be listed. DBSIZE counts them; EXISTS and TTL look at one.";
const FLUSHES: &str = "DEL forgets the keys that it names.";
const SINGLE: &str = "This is a single server. It is not part of a cluster and has no sentinel or replica.";
const STATISTICS: &str = "GET /metrics on the HTTP listener has the statistics.";
const SETTINGS: &str = "The policy file has the settings; `resp_password_file` sets the password.";
const CELL: &str = "Use CL.THROTTLE key max_burst count period [quantity].";

/// Commands, and the hint for them.
const HINTS: [(&[&str], &str); 11] = [
    (
        &[
            "get",
            "set",
            "setex",
            "psetex",
            "setnx",
            "mget",
            "mset",
            "getset",
            "getdel",
            "getex",
            "append",
            "strlen",
            "incr",
            "incrby",
            "incrbyfloat",
            "decr",
            "decrby",
            "increx",
            "hget",
            "hset",
            "hmget",
            "hmset",
            "hgetall",
            "hdel",
            "hincrby",
            "zadd",
            "zcard",
            "zcount",
            "zrange",
            "zrangebyscore",
            "zrem",
            "zremrangebyscore",
            "zscore",
            "lpush",
            "rpush",
            "lpop",
            "rpop",
            "llen",
            "lrange",
            "sadd",
            "srem",
            "smembers",
            "type",
        ],
        VALUES,
    ),
    (&["eval", "eval_ro", "evalsha", "evalsha_ro", "fcall", "fcall_ro", "function", "script"], SCRIPTS),
    (&["watch", "unwatch"], WATCHES),
    (
        &[
            "subscribe",
            "psubscribe",
            "ssubscribe",
            "unsubscribe",
            "punsubscribe",
            "sunsubscribe",
            "publish",
            "spublish",
            "pubsub",
            "monitor",
        ],
        MESSAGES,
    ),
    (&["expire", "pexpire", "expireat", "pexpireat", "expiretime", "pexpiretime", "persist"], EXPIRY),
    (&["keys", "scan", "randomkey"], LISTS),
    (&["flushall", "flushdb"], FLUSHES),
    (&["cluster", "asking", "readonly", "readwrite", "sentinel", "replicaof", "wait"], SINGLE),
    (&["slowlog", "latency", "memory", "object"], STATISTICS),
    (&["acl"], SETTINGS),
    (&["throttle"], CELL),
];

/// What `MULTI` gets.
pub(super) fn refused_multi() -> String {
    format!("ERR MULTI is not supported, and the commands up to EXEC are not run. {TRANSACTIONS}")
}

/// What commands after a refused `MULTI` get.
pub(super) fn not_run() -> String {
    format!("ERR not run, because MULTI was refused. {TRANSACTIONS}")
}

/// What `EXEC` after a refused `MULTI` gets.
pub(super) fn aborted() -> String {
    format!("EXECABORT Transaction discarded because of previous errors. {TRANSACTIONS}")
}

/// The hint for a command that this server does not have.
pub(super) fn hint(command: &[u8]) -> Option<&'static str> {
    let is_meant = |name: &&str| command.eq_ignore_ascii_case(name.as_bytes());
    HINTS.iter().find(|(names, _)| names.iter().any(is_meant)).map(|(_, hint)| *hint)
}
