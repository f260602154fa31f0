use std::path::Path;
use std::time::Duration;

use tollgate::Clock;
use tollgate_policy::Policy;
use tollgate_testkit::Counting;

use super::*;
use crate::reload::Reloader;

const POLICY: &str = "limits: [{ name: per-user, key: [user], token_bucket: { rate: 1/min, burst: 2 } }]";

/// A service on a manual clock, and a connection to it.
struct Talk {
    service: Arc<Service>,
    session: Session,
    workspace: Workspace,
}

impl Talk {
    fn new() -> Self {
        Self::with(Policy::read(Path::new("test.yaml"), POLICY).unwrap())
    }

    /// To a service with a password.
    fn locked() -> Self {
        let file = std::env::temp_dir().join(format!("tollgate-resp-password-{}", std::process::id()));
        std::fs::write(&file, "se cret\n").unwrap();
        Self::with(Policy { resp_password_file: Some(file.display().to_string()), ..Policy::default() })
    }

    fn with(policy: Policy) -> Self {
        let reloader = Reloader::new(crate::source::Source::default(), policy.clone());
        let service = Arc::new(Service::with_clock(policy, reloader, None, Clock::manual()).unwrap());
        let session = Session::new(7, ([127, 0, 0, 1], 5000).into(), &service);
        Self { service, session, workspace: Workspace::default() }
    }

    /// What comes back for what is sent, and how much of that was whole requests.
    fn send(&mut self, input: &[u8]) -> (Vec<u8>, Answered) {
        let (mut input, mut out) = (input.to_vec(), Vec::new());
        let now = self.service.engine.clock().now();
        let answered = self.session.answer(
            &self.service,
            now,
            &mut input,
            &mut self.workspace,
            &mut out,
            &mut Later::default(),
        );
        (out, answered)
    }

    /// The answer to a line, in which quotes are allowed.
    fn line(&mut self, line: &str) -> String {
        let (out, answered) = self.send(format!("{line}\r\n").as_bytes());
        assert_eq!(answered.consumed, line.len() + 2, "{line}");
        String::from_utf8_lossy(&out).into_owned()
    }

    fn expect(&mut self, rows: &[(&str, &str)]) {
        for (line, expected) in rows {
            assert_eq!(self.line(line), *expected, "{line}");
        }
    }
}

/// Five integers.
fn five(values: [i64; 5]) -> String {
    let values = values.map(|value| format!(":{value}\r\n"));
    format!("*5\r\n{}", values.concat())
}

#[test]
fn cl_throttle_answers_as_redis_cell_does() {
    let mut talk = Talk::new();
    let rows: [(u64, &str, [i64; 5]); 13] = [
        (0, "CL.THROTTLE k 4 1 1 6", [1, 5, 5, -1, 0]),
        (0, "cl.throttle k 4 1 1 1", [0, 5, 4, -1, 1]),
        (0, "CL.THROTTLE k 4 1 1 1", [0, 5, 3, -1, 2]),
        (0, "CL.THROTTLE k 4 1 1", [0, 5, 2, -1, 3]),
        (0, "CL.THROTTLE k 4 1 1", [0, 5, 1, -1, 4]),
        (0, "CL.THROTTLE k 4 1 1", [0, 5, 0, -1, 5]),
        (0, "CL.THROTTLE k 4 1 1", [1, 5, 0, 1, 5]),
        (0, "CL.THROTTLE k 4 1 1 0", [0, 5, 0, -1, 5]),
        (3000, "CL.THROTTLE k 4 1 1", [0, 5, 2, -1, 3]),
        (3100, "CL.THROTTLE k 4 1 1", [0, 5, 1, -1, 4]),
        (3100, "CL.THROTTLE u 15 30 60", [0, 16, 15, -1, 2]),
        (3100, "CL.THROTTLE u 15 30 60 15", [0, 16, 0, -1, 32]),
        (3100, "CL.THROTTLE u 15 30 60", [1, 16, 0, 2, 32]),
    ];
    let mut now = 0;
    for (at, line, expected) in rows {
        talk.service.engine.clock().advance(Duration::from_millis(at - now));
        now = at;
        assert_eq!(talk.line(line), five(expected), "{line} at {at} ms");
    }
    // In the other version too.
    talk.line("HELLO 3");
    assert_eq!(talk.line("CL.THROTTLE u 15 30 60"), five([1, 16, 0, 2, 32]));
}

#[test]
fn rates_that_do_not_divide_are_never_early() {
    let mut talk = Talk::new();
    assert_eq!(talk.line("CL.THROTTLE k 2 3 1 3"), five([0, 3, 0, -1, 1]));
    for (nanos, limited) in [(333_333_333, 1), (1, 0), (333_333_332, 1), (1, 0), (333_333_333, 0)] {
        talk.service.engine.clock().advance(Duration::from_nanos(nanos));
        let answer = talk.line("CL.THROTTLE k 2 3 1");
        assert!(answer.starts_with(&format!("*5\r\n:{limited}\r\n")), "{nanos}: {answer}");
    }
}

#[test]
fn a_look_makes_no_key_and_del_forgets_one() {
    let mut talk = Talk::new();
    talk.expect(&[
        ("CL.THROTTLE k 4 1 1 0", &five([0, 5, 5, -1, 0])),
        ("DBSIZE", ":0\r\n"),
        ("CL.THROTTLE k 4 1 1 5", &five([0, 5, 0, -1, 5])),
        ("DBSIZE", ":1\r\n"),
        ("DEL k l", ":1\r\n"),
        ("DEL k", ":0\r\n"),
        ("CL.THROTTLE k 4 1 1 5", &five([0, 5, 0, -1, 5])),
    ]);
}

#[test]
fn cl_throttle_says_what_is_wrong_with_a_call() {
    let usage = "-ERR Cell error: Store error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]\r\n";
    Talk::new().expect(&[
        ("CL.THROTTLE", usage),
        ("CL.THROTTLE k 15 30", usage),
        ("CL.THROTTLE k 15 30 60 1 2", usage),
        ("CL.THROTTLE k x 30 60", "-ERR Cell error: Store error: Couldn't parse as integer: x\r\n"),
        ("CL.THROTTLE k 15 1.5 60", "-ERR Cell error: Store error: Couldn't parse as integer: 1.5\r\n"),
        (
            "CL.THROTTLE k 15 30 9223372036854775808",
            "-ERR Cell error: Store error: Couldn't parse as integer: 9223372036854775808\r\n",
        ),
        (
            "CL.THROTTLE k 15 30 60 \"\\r\\n\"",
            "-ERR Cell error: Store error: Couldn't parse as integer:   \r\n",
        ),
        ("CL.THROTTLE k 15 0 60", "-ERR Cell error: Store error: Zero rates are not supported\r\n"),
        ("CL.THROTTLE k 15 30 0", "-ERR Cell error: Store error: Zero rates are not supported\r\n"),
        ("CL.THROTTLE k -1 30 60", "-ERR Cell error: max_burst must not be negative, and is -1\r\n"),
        ("CL.THROTTLE k 15 -30 60", "-ERR Cell error: count per period must not be negative, and is -30\r\n"),
        ("CL.THROTTLE k 15 30 -60", "-ERR Cell error: period must not be negative, and is -60\r\n"),
        ("CL.THROTTLE k 15 30 60 -1", "-ERR Cell error: quantity must not be negative, and is -1\r\n"),
    ]);
    let mut talk = Talk::new();
    for line in ["k 9223372036854775807 1 60", "k 1 1 9223372036854775807", "k 1 9223372036854775807 1"] {
        let answer = talk.line(&format!("CL.THROTTLE {line}"));
        assert!(answer.starts_with("-ERR Cell error: ") && answer.ends_with("\r\n"), "{line}: {answer}");
    }
    assert_eq!(talk.line("DBSIZE"), ":0\r\n");
}

#[test]
fn commands_answer_as_clients_expect() {
    Talk::new().expect(&[
        ("PING", "+PONG\r\n"),
        ("ping hello", "$5\r\nhello\r\n"),
        ("PING a b", "-ERR wrong number of arguments for 'ping' command\r\n"),
        ("ECHO hi", "$2\r\nhi\r\n"),
        ("ECHO", "-ERR wrong number of arguments for 'echo' command\r\n"),
        ("SELECT 0", "+OK\r\n"),
        ("SELECT 1", "-ERR DB index is out of range\r\n"),
        ("SELECT x", "-ERR value is not an integer or out of range\r\n"),
        ("CLIENT SETINFO LIB-NAME redis-py", "+OK\r\n"),
        ("CLIENT GETNAME", "$-1\r\n"),
        ("CLIENT SETNAME me", "+OK\r\n"),
        ("CLIENT GETNAME", "$2\r\nme\r\n"),
        ("CLIENT SETNAME \"a b\"", "-ERR Client names cannot contain spaces, newlines or special characters.\r\n"),
        ("CLIENT NO-EVICT on", "+OK\r\n"),
        ("CLIENT NO-TOUCH on", "+OK\r\n"),
        ("CLIENT ID", ":7\r\n"),
        ("CLIENT ID x", "-ERR wrong number of arguments for 'client|id' command\r\n"),
        ("CLIENT TRACKING on", "-ERR this server sends no notifications\r\n"),
        ("CLIENT MAINT_NOTIFICATIONS on", "-ERR this server sends no notifications\r\n"),
        ("CLIENT NOTHING x", "-ERR unknown subcommand 'NOTHING'. Try CLIENT HELP.\r\n"),
        ("CONFIG HELP", "*1\r\n+get\r\n"),
        ("CLIENT HELP", "*8\r\n+getname\r\n+id\r\n+info\r\n+list\r\n+no-evict\r\n+no-touch\r\n+setinfo\r\n+setname\r\n"),
        ("COMMAND HELP", "*4\r\n+count\r\n+docs\r\n+info\r\n+list\r\n"),
        ("COMMAND NOTHING", "-ERR unknown subcommand 'NOTHING'. Try COMMAND HELP.\r\n"),
        ("COMMAND COUNT", ":24\r\n"),
        ("COMMAND DOCS", "*0\r\n"),
        ("COMMAND INFO get", "*1\r\n$-1\r\n"),
        (
            "COMMAND INFO CL.THROTTLE",
            "*1\r\n*10\r\n$11\r\ncl.throttle\r\n:-5\r\n*1\r\n+fast\r\n:1\r\n:1\r\n:1\r\n*0\r\n*0\r\n*0\r\n*0\r\n",
        ),
        ("CONFIG GET save", "*2\r\n$4\r\nsave\r\n$0\r\n\r\n"),
        ("CONFIG GET appendonly", "*2\r\n$10\r\nappendonly\r\n$2\r\nno\r\n"),
        ("CONFIG GET other", "*0\r\n"),
        ("CONFIG SET a b", "-ERR unknown subcommand 'SET'. Try CONFIG HELP.\r\n"),
        ("AUTH pass", "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?\r\n"),
        ("AUTH default pass", "+OK\r\n"),
        ("AUTH other pass", "-WRONGPASS invalid username-password pair or user is disabled.\r\n"),
        ("NOTHING key", "-ERR unknown command 'NOTHING', with args beginning with: 'key' \r\n"),
        ("\"a\\r\\nb\" x y", "-ERR unknown command 'a  b', with args beginning with: 'x' 'y' \r\n"),
        ("", ""),
        ("QUIT", "+OK\r\n"),
    ]);
    let mut talk = Talk::new();
    assert!(talk.line("COMMAND").starts_with("*24\r\n*10\r\n$11\r\ncl.throttle\r\n"));
    assert!(talk.line("COMMAND LIST").starts_with("*24\r\n$11\r\ncl.throttle\r\n"));
    let info = talk.line("INFO");
    assert!(info.contains("\r\nredis_version:7.4.0\r\n") && info.contains("\r\nloading:0\r\n"), "{info}");
    assert!(info.contains("\r\nrole:master\r\n"), "{info}");
    let long = "x".repeat(300);
    let shown = "x".repeat(128);
    let expected = format!("-ERR unknown command '{shown}', with args beginning with: '{shown}' \r\n");
    assert_eq!(talk.line(&format!("{long} {long} {long}")), expected);
    assert!(talk.line("TIME").starts_with("*2\r\n$10\r\n"));
}

const HELLO: &str = "$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.4.0\r\n$5\r\nproto\r\n:V\r\n$2\r\nid\r\n:7\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n";

#[test]
fn hello_chooses_the_version() {
    let (two, three) =
        (format!("*14\r\n{}", HELLO.replace('V', "2")), format!("%7\r\n{}", HELLO.replace('V', "3")));
    Talk::new().expect(&[
        ("HELLO", &two),
        ("HELLO 4", "-NOPROTO unsupported protocol version\r\n"),
        ("HELLO 1", "-NOPROTO unsupported protocol version\r\n"),
        ("HELLO x", "-ERR Protocol version is not an integer or out of range\r\n"),
        ("HELLO 3 FOO", "-ERR Syntax error in HELLO option 'FOO'\r\n"),
        ("HELLO 3 AUTH a", "-ERR Syntax error in HELLO option 'AUTH'\r\n"),
        ("HELLO 3 AUTH a b", "-WRONGPASS invalid username-password pair or user is disabled.\r\n"),
        ("CLIENT GETNAME", "$-1\r\n"), // still in the old version
        ("HELLO 3 SETNAME me AUTH default x", &three),
        ("HELLO", &three),
        ("CLIENT GETNAME", "$2\r\nme\r\n"),
        ("CONFIG GET other", "%0\r\n"),
        ("COMMAND INFO get", "*1\r\n_\r\n"),
        ("HELLO 2", &two),
        ("COMMAND INFO get", "*1\r\n$-1\r\n"),
        ("HELLO 3", &three),
        ("RESET", "+RESET\r\n"),
        ("CLIENT GETNAME", "$-1\r\n"),
    ]);
}

#[test]
fn a_password_is_asked_for() {
    let no = "-NOAUTH Authentication required.\r\n";
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    let mut talk = Talk::locked();
    let hello = talk.line("HELLO 3");
    assert!(
        hello.starts_with("-NOAUTH HELLO must be called with the client already authenticated, "),
        "{hello}"
    );
    talk.expect(&[
        ("PING", no),
        ("CL.THROTTLE k 15 30 60", no),
        ("TOLLGATE.CHECK user bob", no),
        ("DEL k", no),
        ("NOTHING", "-ERR unknown command 'NOTHING', with args beginning with: \r\n"),
        ("AUTH secret", wrong),
        ("AUTH \"se cret\\n\"", wrong),
        ("AUTH other \"se cret\"", wrong),
        ("AUTH a b c", "-ERR syntax error\r\n"),
        ("PING", no),
        ("AUTH \"se cret\"", "+OK\r\n"),
        ("PING", "+PONG\r\n"),
        ("RESET", "+RESET\r\n"),
        ("PING", no),
        ("AUTH default \"se cret\"", "+OK\r\n"),
        ("CL.THROTTLE k 15 30 60", &five([0, 16, 15, -1, 2])),
        ("RESET", "+RESET\r\n"),
    ]);
    assert!(talk.line("HELLO 3 AUTH default \"se cret\"").starts_with("%7\r\n"));
    assert_eq!(talk.line("PING"), "+PONG\r\n");
    // Those who have not given it may send little, and are told so.
    let (answer, _) = Talk::locked().send(b"*11\r\n");
    assert_eq!(answer, b"-ERR Protocol error: unauthenticated multibulk length\r\n");
    let (answer, _) = Talk::locked().send(b"*1\r\n$16385\r\n");
    assert_eq!(answer, b"-ERR Protocol error: unauthenticated bulk length\r\n");
    let (answer, _) = Talk::locked().send(&[&b"AUTH a b c d e f g h i j"[..], b"\r\n"].concat());
    assert_eq!(answer, b"-ERR Protocol error: unauthenticated multibulk length\r\n");
    let (answer, _) = Talk::locked().send(&[b"AUTH ", &[b'x'; 16_385][..], b"\r\n"].concat());
    assert_eq!(answer, b"-ERR Protocol error: unauthenticated bulk length\r\n");
}

#[test]
fn tollgate_check_decides_by_the_policy() {
    let mut talk = Talk::new();
    let answer = |allowed: u8, reason: &str, retry: &str, left: u8, reset: u32, null: &str| {
        let reason =
            if reason.is_empty() { null.to_owned() } else { format!("${}\r\n{reason}", reason.len()) };
        let retry = if retry.is_empty() { null } else { retry };
        format!(
            "$7\r\nallowed\r\n:{allowed}\r\n$6\r\nreason\r\n{reason}\r\n$14\r\nretry_after_ms\r\n{retry}\r\n$8\r\ndelay_ms\r\n:0\r\n\
             $8\r\ncapacity\r\n:2\r\n$9\r\nremaining\r\n:{left}\r\n$14\r\nreset_after_ms\r\n:{reset}\r\n$5\r\nlimit\r\n$8\r\nper-user\r\n"
        )
    };
    let two = |answer: String| format!("*16\r\n{answer}");
    talk.expect(&[
        ("TOLLGATE.CHECK user bob", &two(answer(1, "", "", 1, 60_000, "$-1"))),
        ("TOLLGATE.CHECK user bob COST 0", &two(answer(1, "", "", 1, 60_000, "$-1"))),
        ("TOLLGATE.CHECK user bob path /x cost 2", &two(answer(0, "rate", ":60000", 1, 60_000, "$-1"))),
        ("TOLLGATE.CHECK user bob COST 3", &two(answer(0, "cost_exceeds_limit", "", 1, 60_000, "$-1"))),
        ("TOLLGATE.CHECK cost 7 user eve", &two(answer(1, "", "", 1, 60_000, "$-1"))), // an attribute of that name
        (
            "TOLLGATE.CHECK user",
            "-ERR an attribute without a value: TOLLGATE.CHECK attribute value ... [COST n]\r\n",
        ),
        ("TOLLGATE.CHECK user bob COST x", "-ERR COST is not an integer from 0 on\r\n"),
        ("TOLLGATE.CHECK user bob COST -1", "-ERR COST is not an integer from 0 on\r\n"),
        ("TOLLGATE.CHECK user \"\\xff\"", "-ERR an attribute is not UTF-8\r\n"),
    ]);
    talk.line("HELLO 3");
    talk.service.engine.clock().advance(Duration::from_micros(500));
    let denied = answer(0, "cost_exceeds_limit", "", 1, 60_000, "_");
    assert_eq!(talk.line("TOLLGATE.CHECK user bob COST 3"), format!("%8\r\n{denied}"));
    let many: String = (0..65).map(|i| format!(" a{i} b")).collect();
    assert_eq!(talk.line(&format!("TOLLGATE.CHECK{many}")), "-ERR more than 64 attributes\r\n");
    let long = "x".repeat(4097);
    let answer = talk.line(&format!("TOLLGATE.CHECK user {long}"));
    assert_eq!(answer, "-ERR an attribute is longer than 4096 bytes, which are the most\r\n");
}

#[test]
fn where_no_limit_applies_none_is_told() {
    let answer = Talk::with(Policy::default()).line("TOLLGATE.CHECK");
    assert_eq!(
        answer,
        "*16\r\n$7\r\nallowed\r\n:1\r\n$6\r\nreason\r\n$-1\r\n$14\r\nretry_after_ms\r\n$-1\r\n$8\r\ndelay_ms\r\n:0\r\n$8\r\ncapacity\r\n$-1\r\n\
         $9\r\nremaining\r\n$-1\r\n$14\r\nreset_after_ms\r\n$-1\r\n$5\r\nlimit\r\n$-1\r\n"
    );
}

#[test]
fn web_pages_are_hung_up_on() {
    for line in ["POST / HTTP/1.1", "Host: localhost", "post x"] {
        let mut talk = Talk::new();
        let (answer, _) = talk.send(format!("PING\r\n{line}\r\nPING\r\n").as_bytes());
        assert_eq!((&answer[..], talk.session.is_closing), (&b"+PONG\r\n"[..], true), "{line}");
    }
}

#[test]
fn after_what_cannot_be_understood_nothing_is_answered() {
    let mut talk = Talk::new();
    let (answer, _) = talk.send(b"PING\r\nCL.THROTTLE k 4 1 1\r\n*1\r\n:5\r\nPING\r\n");
    let expected =
        format!("+PONG\r\n{}-ERR Protocol error: expected '$', got ':'\r\n", five([0, 5, 4, -1, 1]));
    assert_eq!((String::from_utf8(answer).unwrap(), talk.session.is_closing), (expected, true));
    // A request that is too long as a whole, though no part of it is.
    let bulk = [&b"$65536\r\n"[..], &[b'x'; 65536], b"\r\n"].concat();
    let mut talk = Talk::new();
    let input = [&b"*100\r\n"[..], &bulk.repeat(16)].concat();
    assert_eq!(talk.send(&input).0, b"-ERR Protocol error: too big request\r\n");
}

/// Requests of every kind, one after the other.
fn pipeline() -> Vec<u8> {
    let mut input = Vec::new();
    for i in 0..3 {
        input.extend_from_slice(
            b"*5\r\n$11\r\nCL.THROTTLE\r\n$4\r\na\r\nb\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n",
        );
        input.extend_from_slice(
            b"*6\r\n$11\r\ncl.throttle\r\n$1\r\nk\r\n$1\r\n4\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\n2\r\n",
        );
        if i == 1 {
            input.extend_from_slice(
                b"PING\r\n\r\n*0\r\nset \"a b\" 'c'\n*2\r\n$4\r\nECHO\r\n$0\r\n\r\n*1\r\n$5\r\nHELLO\r\n",
            );
        }
        input.extend_from_slice(b"CL.THROTTLE k x 1 1\r\n*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n");
    }
    input
}

#[test]
fn however_requests_are_cut_the_answers_are_the_same() {
    let input = pipeline();
    let (expected, answered) = Talk::new().send(&input);
    assert_eq!(answered, Answered { consumed: input.len(), until: 1 });
    for cut in 0..=input.len() {
        let mut talk = Talk::new();
        let (mut answer, first) = talk.send(&input[..cut]);
        // It is not looked at before it is long enough.
        assert!(first.consumed <= cut && first.consumed + first.until > cut, "{cut}: {first:?}");
        let (rest, last) = talk.send(&input[first.consumed..]);
        answer.extend(rest);
        assert_eq!(answer, expected, "cut at {cut}");
        assert_eq!(first.consumed + last.consumed, input.len());
    }
    // And byte by byte.
    let (mut talk, mut pending, mut answer) = (Talk::new(), Vec::new(), Vec::new());
    for &byte in &input {
        pending.push(byte);
        let (part, answered) = talk.send(&pending);
        answer.extend(part);
        pending.drain(..answered.consumed);
    }
    assert_eq!(answer, expected);
}

#[test]
fn much_is_sent_before_more_is_answered() {
    let mut talk = Talk::new();
    let echo = [&b"*2\r\n$4\r\nECHO\r\n$60000\r\n"[..], &[b'x'; 60_000], b"\r\n"].concat();
    let input = echo.repeat(10);
    let (mut at, mut rounds) = (0, 0);
    while at < input.len() {
        let (answer, answered) = talk.send(&input[at..]);
        assert!(answer.len() < MUCH_TO_SEND + 64 * 1024 + 100, "{}", answer.len());
        at += answered.consumed;
        rounds += 1;
        assert!(at == input.len() || answered.until == 0, "there is more to answer");
    }
    assert_eq!(rounds, 2);
}

#[test]
fn a_call_allocates_nothing() {
    let mut talk = Talk::new();
    let mut input = Vec::new();
    for i in 0..40 {
        let key = format!("user:{}", i % 7);
        input.extend(
            format!(
                "*5\r\n$11\r\nCL.THROTTLE\r\n${}\r\n{key}\r\n$4\r\n1000\r\n$2\r\n30\r\n$2\r\n60\r\n",
                key.len()
            )
            .into_bytes(),
        );
    }
    let (mut copy, mut out) = (input.clone(), Vec::with_capacity(1 << 16));
    let mut round = || {
        copy.copy_from_slice(&input);
        out.clear();
        let now = talk.service.engine.clock().now();
        let answered = talk.session.answer(
            &talk.service,
            now,
            &mut copy,
            &mut talk.workspace,
            &mut out,
            &mut Later::default(),
        );
        assert_eq!(answered.consumed, input.len());
    };
    round(); // the first makes room for its keys, its rule and its arguments
    let before = Counting::allocations();
    (0..10).for_each(|_| round());
    assert_eq!(Counting::allocations() - before, 0);
}

const CL_THROTTLE: &str = "CL.THROTTLE k 4 1 3600";

/// The beginning of each answer to lines that come together.
fn together(talk: &mut Talk, lines: &[&str]) -> Vec<String> {
    let input: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    let (out, _) = talk.send(input.as_bytes());
    let text = String::from_utf8(out).unwrap();
    text.lines().map(|line| line.split(' ').take(3).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn commands_after_a_refused_multi_are_not_run_up_to_exec() {
    let mut talk = Talk::new();
    let lines = ["MULTI", CL_THROTTLE, "TOLLGATE.CHECK user u", "DEL k", "MULTI", "GET x", "EXEC", "DBSIZE"];
    let answers = together(&mut talk, &lines);
    let expected = [
        "-ERR MULTI is",
        "-ERR not run,",
        "-ERR not run,",
        "-ERR not run,",
        "-ERR not run,",
        "-ERR not run,",
        "-EXECABORT Transaction discarded",
        ":0",
    ];
    assert_eq!(answers, expected);
    assert_eq!(talk.line(CL_THROTTLE), five([0, 5, 4, -1, 3600]), "nothing was charged");
    let error = talk.line("MULTI");
    assert!(error.contains("pipeline(transaction=False)"), "{error}");
}

#[test]
fn discard_and_reset_and_quit_end_a_refused_transaction() {
    for (end, answer) in [("DISCARD", "+OK\r\n"), ("RESET", "+RESET\r\n")] {
        let mut talk = Talk::new();
        talk.line("MULTI");
        talk.line(CL_THROTTLE);
        assert_eq!(talk.line(end), answer);
        assert_eq!(talk.line(CL_THROTTLE), five([0, 5, 4, -1, 3600]), "{end}");
        assert_eq!(talk.line("EXEC"), "-ERR EXEC without MULTI\r\n");
        assert_eq!(talk.line("DISCARD"), "-ERR DISCARD without MULTI\r\n");
    }
    let mut talk = Talk::new();
    talk.line("MULTI");
    assert_eq!(talk.line("QUIT"), "+OK\r\n");
    assert!(talk.session.is_closing);
}

/// A client may read the error and never send `EXEC`. Its connection works again after a while.
#[test]
fn a_refused_transaction_ends_after_ten_seconds() {
    let mut talk = Talk::new();
    talk.line("MULTI");
    talk.service.engine.clock().advance(Duration::from_nanos(9_999_999_999));
    assert!(talk.line(CL_THROTTLE).starts_with("-ERR not run"));
    talk.service.engine.clock().advance(Duration::from_nanos(1));
    assert_eq!(talk.line(CL_THROTTLE), five([0, 5, 4, -1, 3600]));
    assert_eq!(talk.line("EXEC"), "-ERR EXEC without MULTI\r\n");
}

#[test]
fn a_client_without_the_password_begins_no_transaction() {
    let mut talk = Talk::locked();
    assert_eq!(talk.line("MULTI"), "-NOAUTH Authentication required.\r\n");
    assert_eq!(talk.line("AUTH \"se cret\""), "+OK\r\n");
    assert_eq!(talk.line(CL_THROTTLE), five([0, 5, 4, -1, 3600]));
}

#[test]
fn ttl_is_the_time_until_the_bucket_is_full() {
    let mut talk = Talk::new();
    talk.expect(&[
        ("TTL k", ":-2\r\n"),
        ("PTTL k", ":-2\r\n"),
        ("EXISTS k", ":0\r\n"),
        ("DBSIZE", ":0\r\n"), // a look makes no key
        ("CL.THROTTLE k 4 1 3600 2", &five([0, 5, 3, -1, 7200])),
        ("TTL k", ":7200\r\n"),
        ("PTTL k", ":7200000\r\n"),
        ("CL.THROTTLE third 2 3 1", &five([0, 3, 2, -1, 1])),
        ("PTTL third", ":334\r\n"), // rounded up
        ("TTL third", ":1\r\n"),
        ("EXISTS k third l k", ":3\r\n"),
        ("CL.THROTTLE k 4 1 3600 0", &five([0, 5, 3, -1, 7200])), // and changes none
        ("CL.THROTTLE far 0 1 1000000000", &five([0, 1, 0, -1, 1_000_000_000])),
        ("TTL far", ":1000000000\r\n"),
        ("UNLINK k far", ":2\r\n"),
        ("TTL k", ":-2\r\n"),
        ("TTL", "-ERR wrong number of arguments for 'ttl' command\r\n"),
    ]);
    talk.service.engine.clock().advance(Duration::from_millis(334));
    talk.expect(&[("TTL third", ":-2\r\n"), ("EXISTS third", ":0\r\n")]);
}

#[test]
fn commands_of_redis_that_are_missing_get_a_hint() {
    let mut talk = Talk::new();
    for (line, hint) in [
        ("GET x", "CL.THROTTLE"),
        ("set x 1", "stores no values"),
        ("INCR x", "TOLLGATE.CHECK"),
        ("EVAL 'return 1' 0", "runs no scripts"),
        ("EVALSHA abc 0", "runs no scripts"),
        ("SCRIPT LOAD x", "runs no scripts"),
        ("WATCH x", "nothing to watch"),
        ("UNWATCH", "nothing to watch"),
        ("SUBSCRIBE news", "publishes no messages"),
        ("EXPIRE x 1", "DEL forgets"),
        ("SCAN 0", "DBSIZE"),
        ("CLUSTER SLOTS", "single server"),
        ("CLIENT KILL ID 3", "cannot close"),
        ("CLIENT TRACKING ON", "no notifications"),
        ("CLIENT MAINT_NOTIFICATIONS ON", "no notifications"),
        ("THROTTLE k 1 1 1", "CL.THROTTLE"),
    ] {
        let answer = talk.line(line);
        assert!(answer.starts_with("-ERR ") && answer.contains(hint), "{line}: {answer}");
        assert_eq!(answer.matches("\r\n").count(), 1, "{line}: {answer}");
    }
}

#[test]
fn clients_learn_about_their_own_connection() {
    let mut talk = Talk::new();
    let info = "id=7 addr=127.0.0.1:5000 name= flags=N db=0 user=default resp=2\n";
    let bulk = format!("${}\r\n{info}\r\n", info.len());
    talk.expect(&[
        ("CLIENT INFO", &bulk),
        ("CLIENT LIST", &bulk),
        ("CLIENT NO-EVICT ON", "+OK\r\n"),
        ("CLIENT NO-TOUCH ON", "+OK\r\n"),
        ("ROLE", "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"),
    ]);
    talk.line("CLIENT SETNAME me");
    assert!(talk.line("CLIENT INFO").contains(" name=me "));
}
