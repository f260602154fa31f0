//! The commands of the lab, as they are used: the real binary, real logs, real files.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::service::{Directory, Service, repository, tollgate};

/// The logs beside the project. Where they are not, tests of them say so.
fn shipped(name: &str) -> Option<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data").join(name);
    if file.is_file() {
        return Some(file.to_str().unwrap().to_owned());
    }
    tollgate_testkit::skip(format_args!("the access log {} is not there", file.display()));
    None
}

/// What a command prints, if it goes well.
fn printed(arguments: &[&str]) -> String {
    let output = tollgate(arguments);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {told}");
    String::from_utf8(output.stdout).unwrap()
}

fn json_of(arguments: &[&str]) -> Value {
    let text = printed(arguments);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {text}"))
}

/// What a command refuses, and how.
fn refused(arguments: &[&str]) -> String {
    let output = tollgate(arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
    assert!(output.stdout.is_empty(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_replay_tells_the_same_json_everywhere() {
    let directory = Directory::new();
    let rows: String = (0..30).map(|number| format!("10.0.0.{},{}\n", number % 2, number)).collect();
    let log = directory.write("log.csv", &format!("ip,ts\n{rows}broken\n"));
    let told = json_of(&["replay", text(&log), "--limit", "10", "--window", "60s", "--json"]);
    let result = |allowed: u64, clients: u64| json!({"allowed": allowed, "denied": 30 - allowed, "allowed_cost": allowed, "clients_denied": clients});
    let expected = json!({"requests": 30, "malformed": 1, "results": {
        "token_bucket": result(28, 2), "leaky_bucket": result(28, 2), "fixed_window": result(20, 2),
        "sliding_log": result(20, 2), "sliding_counter": result(20, 2),
    }});
    assert_eq!(told, expected);
    let order: Vec<&String> = told["results"].as_object().unwrap().keys().collect();
    assert_eq!(order, ["token_bucket", "leaky_bucket", "fixed_window", "sliding_log", "sliding_counter"]);
    let global =
        json_of(&["replay", text(&log), "--limit", "10", "--window", "60s", "--by", "global", "--json"]);
    assert_eq!(global["results"]["sliding_log"]["allowed"], 10);
    let named = json_of(&["replay", text(&log), "--limit", "10", "--window", "60s", "--json", "--top", "1"]);
    assert_eq!(named["results"]["sliding_log"]["most_denied"], json!([{"client": "10.0.0.0", "denied": 5}]));
    // And for people.
    let table = printed(&["replay", text(&log), "--limit", "10", "--window", "60s"]);
    assert!(
        table.starts_with(
            "30 requests of 2 clients in 29.0 s, beside a line that is none; 10 in 1min for each\n"
        ),
        "{table}"
    );
    assert!(table.contains("10.0.0.1"), "{table}");
}

#[test]
fn every_decision_can_be_listed() {
    let directory = Directory::new();
    let log = directory.write("log.csv", "ip,ts\nb,2\na,1\na,1.5\n");
    let list =
        |more: &[&str]| printed(&[&["replay", text(&log), "--limit", "1", "--window", "10s"], more].concat());
    assert_eq!(
        list(&["--decisions", "sliding_log"]),
        "time\tclient\tcost\tverdict\tretry_after\tdelay\n\
         1.000000000\ta\t1\tallowed\t\t\n\
         1.500000000\ta\t1\tdenied\t9.500000000\t\n\
         2.000000000\tb\t1\tallowed\t\t\n"
    );
    let lines = list(&["--decisions", "leaky_bucket", "--json"]);
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        lines[1],
        json!({"time": "1.500000000", "client": "a", "cost": 1, "allowed": false, "retry_after": 9.5, "delay": 0.0})
    );
    assert_eq!(lines.len(), 3);
}

/// What the service has decided, the lab decides again, event for event: to the nanosecond of each wait.
#[test]
fn a_recorded_run_replays_to_the_same_decisions() {
    // Bursts that let some hundreds pass also where all are sent in a moment.
    let limits = "limits:
  - { name: bucket, key: [user], token_bucket: { rate: 700/s, burst: 150 } }
  - { name: awkward, key: [tenant], token_bucket: { rate: 7777/9s, burst: 400 } }
  - { name: queue, match: { path: /queue }, key: [], leaky_bucket: { rate: 300/s, queue: 40 } }
  - { name: patient, match: { path: /patient }, key: [user], token_bucket: { rate: 50/s, burst: 2 }, max_wait: 100ms, max_waiting: 3 }
  - { name: window, match: { path: /window }, key: [tenant], fixed_window: { limit: 20, window: 100ms } }
  - { name: log, match: { path: /log }, key: [user], sliding_log: { limit: 5, window: 100ms } }
  - { name: counter, match: { path: /counter }, key: [user], sliding_counter: { limit: 5, window: 100ms } }
  - { name: credits, match: { path: /credits }, key: [tenant], burst_credits: { rate: 50/s, peak: 4x, credits: 100 } }
  - { name: watching, shadow: true, key: [user], sliding_counter: { limit: 3, window: 50ms, buckets: 5, mode: strict } }
  - { name: per-key, descriptor: { domain: d, entries: [{ key: k }] }, fixed_window: { limit: 30, window: 1s } }
costs: [{ match: { method: POST }, cost: 3 }]
";
    let mut service = Service::start(&format!("record: {{ path: ./decisions.log }}\n{limits}"));
    let policy = service.directory.write("policy.yaml", limits);
    let threads = (0..4_u64).map(|thread| {
        let mut client = service.connect();
        std::thread::spawn(move || {
            let mut random = tollgate_testkit::Random::new(thread);
            for _ in 0..700 {
                let paths = ["/queue", "/patient", "/window", "/log", "/counter", "/credits", "/other"];
                let path = paths[random.below(7) as usize];
                let user = format!("user \"{}\"", random.below(5));
                let attributes = json!({"path": path, "user": user, "tenant": format!("t{}", random.below(2)),
                                        "method": if random.below(4) == 0 { "POST" } else { "GET" }});
                let asked = match random.below(8) {
                    0 => json!({"attributes": attributes, "cost": random.below(12)}),
                    1 => {
                        let entries = json!([{"key": "k", "value": user}]);
                        let descriptors =
                            json!({"domain": "d", "descriptors": [{"entries": entries}], "hitsAddend": 2});
                        assert!([200, 429].contains(&client.post("/json", &descriptors).status));
                        continue;
                    }
                    _ => json!({"attributes": attributes}),
                };
                assert_eq!(client.post("/v1/check", &asked).status, 200);
            }
        })
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    service.process.signal("TERM");
    assert!(service.process.wait().success());
    let record = service.directory.path("decisions.log");
    let told = json_of(&["replay", text(&record), "--policy", text(&policy), "--json"]);
    assert_eq!(told["recorded"], json!({"compared": 2800, "differ": 0, "first": []}), "{told}");
    let (allowed, denied) = (told["allowed"].as_u64().unwrap(), told["denied"].as_u64().unwrap());
    assert!(allowed > 300 && denied > 300 && allowed + denied == 2800, "{told}");
    // It would be noticed: with other numbers the decisions are others.
    let other = service.directory.write("other.yaml", &limits.replace("limit: 5,", "limit: 6,"));
    let told = json_of(&["replay", text(&record), "--policy", text(&other), "--json"]);
    assert!(told["recorded"]["differ"].as_u64().unwrap() > 0, "{told}");
    assert!(told["recorded"]["first"][0].as_str().unwrap().contains("recorded as"), "{told}");
    // It is a log like any other, too.
    let told = json_of(&[
        "replay",
        text(&record),
        "--limit",
        "5",
        "--window",
        "1s",
        "--client-column",
        "user",
        "--json",
    ]);
    assert_eq!(told["requests"], 2800);
}

#[test]
fn a_policy_can_be_tried_on_an_access_log() {
    let directory = Directory::new();
    let line = |second: u64, host: &str, request: &str| {
        format!(
            "{host} - - [17/May/2015:10:05:{second:02} +0000] \"{request} HTTP/1.1\" 200 5 \"-\" \"agent\"\n"
        )
    };
    let lines: String = (0..10).map(|second| line(second, "10.0.0.1", "POST /a/../login?x")).collect();
    let log = directory.write(
        "access.log",
        &(lines + &line(11, "2001:db8::1", "GET /") + &line(12, "2001:db8::2", "GET /")),
    );
    let policy = directory.write(
        "policy.yaml",
        "limits:\n  - { name: login, match: { method: POST, path: /login }, key: [ip], fixed_window: { limit: 3, window: 60s } }\n  \
         - { name: all, key: [ip], sliding_log: { limit: 1, window: 60s }, match: { path: / } }\n",
    );
    let told = json_of(&["replay", text(&log), "--policy", text(&policy), "--json", "--top", "9"]);
    assert_eq!((&told["allowed"], &told["denied"]), (&json!(4), &json!(8)));
    // Addresses of one network of IPv6 are one, as for the service.
    assert_eq!(told["most_denied"][0], json!({"limit": "login", "key": "10.0.0.1", "denied": 7}));
    assert_eq!(told["most_denied"][1], json!({"limit": "all", "key": "2001:db8::/64", "denied": 1}));
    let listed = printed(&["replay", text(&log), "--policy", text(&policy), "--decisions", "policy"]);
    assert_eq!(listed.lines().count(), 13, "{listed}");
}

/// The suggestion, put in force and replayed, leaves as many clients alone as was asked for.
#[test]
fn advice_on_the_shipped_logs_is_kept() {
    let directory = Directory::new();
    for (log, more) in [
        ("nasa-http-1995-07-01.tsv.gz", &[][..]),
        ("nginx-site-2022-09.log.gz", &[]),
        ("elastic-apache-2015-05.log.gz", &[]),
        ("edgar-2017-06-30.csv.gz", &[]),
        ("azure-llm-2023-conv.csv.gz", &["--by", "global", "--cost-column", "ContextTokens+GeneratedTokens"]),
    ] {
        let Some(file) = shipped(log) else { return };
        for untouched in ["99.9%", "99%", "0.9", "50%"] {
            let arguments = [&["advise", &file, "--untouched", untouched], more].concat();
            let policy = directory.write("suggested.yaml", &printed(&arguments));
            let told = json_of(&[&arguments[..], &["--json"]].concat());
            let clients = told["groups"][0]["clients"].as_u64().unwrap();
            printed(&["check", text(&policy)]);
            let costs = more.get(2..).unwrap_or_default();
            let replay = ["replay", &file, "--policy", text(&policy), "--json", "--top", "1000000"];
            let replayed = json_of(&[&replay[..], costs].concat());
            let denied = replayed["most_denied"].as_array().unwrap().len() as f64;
            let share: f64 = match untouched.strip_suffix('%') {
                Some(percent) => percent.parse::<f64>().unwrap() / 100.0,
                None => untouched.parse().unwrap(),
            };
            assert!(
                denied <= (1.0 - share) * clients as f64 + 1e-9,
                "{log} {untouched}: {denied} of {clients}"
            );
            assert_eq!(told["groups"][0]["suggestion"]["denied"], replayed["denied"], "{log} {untouched}");
        }
    }
}

/// Clients are told apart by the policy as they were when it was made.
#[test]
fn advice_counts_by_what_it_has_counted() {
    let directory = Directory::new();
    let record = |user: u64, at: u64| {
        let attributes = json!({"user": format!("u{user}"), "ip": "10.0.0.1"});
        format!(
            "{}\n",
            json!({"time": format!("{at}.5"), "attributes": attributes, "cost": 1, "allowed": true})
        )
    };
    let rows =
        |row: &dyn Fn(u64, u64) -> String| (0..300_u64).map(|at| row(at % 10, at / 10)).collect::<String>();
    let cases: [(String, &[&str], &str); 6] = [
        (
            format!("client,ip,ts\n{}", rows(&|client, at| format!("c{client},10.0.0.1,{at}\n"))),
            &[],
            "client",
        ),
        (format!("host,ts\n{}", rows(&|client, at| format!("h{client},{at}\n"))), &[], "ip"),
        (
            format!("Foo,ip,ts\n{}", rows(&|client, at| format!("c{client},10.0.0.1,{at}\n"))),
            &["--client-column", "foo"],
            "Foo",
        ),
        (rows(&record), &[], "user"),
        (
            rows(&|client, at| format!("10.0.0.1 - u{client} [{at}] \"GET / HTTP/1.1\" 200 5\n")),
            &["--client-column", "user"],
            "user",
        ),
        (format!("ip,ts\n{}", rows(&|client, at| format!("2001:db8::{client},{at}\n"))), &[], "ip"),
    ];
    for (text_of_log, more, key) in cases {
        let log = directory.write("log", &text_of_log);
        let policy = directory.write("suggested.yaml", &printed(&[&["advise", text(&log)], more].concat()));
        let written = std::fs::read_to_string(&policy).unwrap();
        assert!(written.contains(&format!("key: [\"{key}\"]")), "{written}");
        let told = json_of(&["replay", text(&log), "--policy", text(&policy), "--json"]);
        assert_eq!((&told["requests"], &told["denied"]), (&json!(300), &json!(0)), "{key}: {written}");
    }
}

#[test]
fn advice_on_odd_names_is_a_policy_that_check_accepts() {
    let directory = Directory::new();
    let odd =
        ["*", "b*", "${HOME}", "${NOPE}", "\u{7f}", "\u{fffe}", "a: b", "#c", "'", "é", "-", "[x]", "~"];
    let rows: String = odd.iter().map(|name| format!("a,1,{name}\n")).collect();
    let log = directory.write("log.csv", &format!("ip,ts,group\n{rows}a,1,\"quoted \"\"x\"\"\"\n"));
    let policy = directory.write("suggested.yaml", &printed(&["advise", text(&log), "--group", "group"]));
    let table = printed(&["check", text(&policy)]);
    assert!(table.contains("8 limits"), "{table}"); // those that a policy could not match are left out
    let told = json_of(&["replay", text(&log), "--policy", text(&policy), "--json"]);
    assert_eq!(told["denied"], 0, "{told}");
    for untouched in ["0", "0%", "100%", "1"] {
        printed(&["advise", text(&log), "--untouched", untouched]);
    }
}

/// A share may be written either way.
#[test]
fn advice_takes_a_share_and_a_percentage_for_the_same() {
    let directory = Directory::new();
    let rows: String = (0..1000).map(|client| format!("c{client},1\n")).collect();
    let log = directory.write("log.csv", &format!("ip,ts\n{rows}{}", "busy,1\n".repeat(50)));
    let suggested = |untouched: &str| {
        json_of(&["advise", text(&log), "--untouched", untouched, "--json"])["groups"].clone()
    };
    assert_eq!(suggested("99.9%"), suggested("0.999"));
    assert_eq!(suggested("99.9%")[0]["suggestion"]["clients_denied"], 1);
}

/// What comes through a pipe comes once.
#[test]
fn an_unordered_log_from_a_pipe_is_replayed_whole() {
    use std::io::Write as _;
    let rows: String = (0..20_000_u64).map(|at| format!("a,{}\n", if at == 5000 { 1 } else { at })).collect();
    let mut command = std::process::Command::new(crate::service::TOLLGATE);
    command.args(["replay", "/dev/stdin", "--limit", "10", "--window", "60s", "--json"]);
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(format!("ip,ts\n{rows}").as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&told["requests"], &told["malformed"]), (&json!(20_000), &json!(0)));
    assert!(String::from_utf8(output.stderr).unwrap().contains("sorted"));
}

#[test]
fn a_full_or_closed_output_is_no_panic() {
    let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") else {
        return tollgate_testkit::skip("this machine has no /dev/full");
    };
    for command in [&["simulate"][..], &["simulate", "--json"]] {
        let output = std::process::Command::new(crate::service::TOLLGATE)
            .args(command)
            .stdout(full.try_clone().unwrap())
            .output()
            .unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.starts_with("standard output: "), "{told}");
    }
}

#[test]
fn what_a_policy_says_of_costs_is_told() {
    let directory = Directory::new();
    let log = directory.write("log", "a - - [1] \"POST / HTTP/1.1\" 200 5\n");
    let policy = directory.write(
        "policy.yaml",
        "costs: [{ match: { method: POST }, cost: 10 }]\nlimits: [{ name: l, key: [ip], token_bucket: { rate: 1/s, burst: 20 } }]\n",
    );
    let told = json_of(&["replay", text(&log), "--policy", text(&policy), "--json"]);
    assert_eq!(told["allowed_cost"], 10);
    let error = refused(&["replay", text(&log), "--policy", text(&policy), "--attribute", "tenant=nope"]);
    assert!(error.contains("`nope`"), "{error}");
}

#[test]
fn wrong_usage_is_told_apart_from_wrong_files() {
    for arguments in [
        &["replay", "l", "--limit", "1", "--window", "1s", "--decisions", "nope"][..],
        &["replay", "l", "--policy", "p", "--by", "global"],
        &["simulate", "--algorithm", "nope"],
        &["simulate", "cloudflare", "--share", "2"],
        &["simulate", "cluster", "--scheme", "nope"],
        &["simulate", "cluster", "--fault", "partition@5s"],
        &["simulate", "cluster", "--rtt", "soon"],
        &["advise", "l", "--untouched", "2"],
        &["advise", "l", "--key", ""],
    ] {
        assert_eq!(tollgate(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn advice_by_route_is_a_policy_that_check_accepts() {
    let Some(file) = shipped("elastic-apache-2015-05.log.gz") else { return };
    let directory = Directory::new();
    let policy = directory
        .write("suggested.yaml", &printed(&["advise", &file, "--group", "route", "--untouched", "99%"]));
    let table = printed(&["check", text(&policy)]);
    assert!(table.contains("path /blog or /blog/*") && table.contains("20 limits"), "{table}");
    let error = refused(&["advise", &file, "--group", "nothing-such"]);
    assert!(error.contains("`nothing-such`"), "{error}");
}

#[test]
fn scenarios_run_side_by_side() {
    let told = json_of(&["simulate", "boundary-attack", "--json"]);
    let overshoot = |name: &str| told["results"][name]["worst_overshoot"].as_u64().unwrap();
    assert_eq!(overshoot("fixed_window"), 100);
    assert_eq!(
        [overshoot("sliding_log"), overshoot("sliding_counter_strict"), overshoot("leaky_bucket")],
        [0; 3]
    );
    assert_eq!(told["requests"], 1390);
    let directory = Directory::new();
    for scenario in ["app-open", "steady", "spike", "step", "noisy-neighbour", "retry-storm"] {
        let plot = directory.path("plot.svg");
        let table = printed(&["simulate", scenario, "--plot", text(&plot)]);
        assert!(table.starts_with(scenario) && table.contains("sliding_counter_strict"), "{table}");
        require_svg(&std::fs::read_to_string(&plot).unwrap());
    }
    let own = printed(&["simulate", text(&repository("examples/scenario.yaml"))]);
    assert!(own.contains("SHOPPERS") && own.contains("71 "), "{own}");
    let told = json_of(&["simulate", "cloudflare", "--share", "0.001", "--json"]);
    assert_eq!((&told["sources"], &told["worst_case"]), (&json!(270), &json!(1999)));
}

/// Tags that are opened are closed, in order.
fn require_svg(svg: &str) {
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
    let mut open = Vec::new();
    for tag in svg.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').unwrap();
        assert!(!tag.contains("NaN") && !tag.contains("inf"), "{tag}");
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name)),
            None if tag.ends_with('/') => {}
            None => open.push(tag.split(' ').next().unwrap()),
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn scenarios_that_make_no_sense_are_refused() {
    let directory = Directory::new();
    let begin = "limit: 10\nwindow: 1s\nfor: 10s\n";
    for (file, expected) in [
        ("limit: 10\n", "window"),
        (&*format!("{begin}clients: []\n"), "nobody"),
        (&format!("{begin}clients: [{{ name: a }}]\n"), "`rate: 5/s`"),
        (&format!("{begin}clients: [{{ name: a, rate: 5/s, burst: 3 }}]\n"), "clients `a`"),
        (&format!("{begin}clients: [{{ name: a, rate: often }}]\n"), "write a rate as"),
        (&format!("{begin}clients: [{{ name: a, rate: 5/s, cuont: 3 }}]\n"), "cuont"),
        (&format!("{begin}clients: [{{ name: a, rate: 5/s, count: 0 }}]\n"), "`count` is 1 to"),
        (
            &format!("{begin}clients: [{{ name: a, rate: 5/s }}, {{ name: a, rate: 5/s, count: 2 }}]\n"),
            "the same",
        ),
        (&format!("{begin}clients: [{{ name: a, every: 0s }}]\n"), "`every` is longer than no time"),
        (&format!("{begin}clients: [{{ name: a, rate: 10000000k/s }}]\n"), "requests"),
        (&format!("{begin}clients: [{{ name: a, rate: 5/s, from: 5s, until: 4s }}]\n"), "never ask"),
        ("limit: 1\nwindow: 1s\nfor: 0s\nclients: [{ name: a, rate: 5/s }]\n", "`for` is longer"),
        ("limit: 1\nwindow: 1s\nfor: 213503d\nclients: [{ name: a, rate: 5/s }]\n", "a year at the most"),
        ("limit: 0\nwindow: 1s\nfor: 10s\nclients: [{ name: a, rate: 5/s }]\n", "0 tokens"),
    ] {
        let scenario = directory.write("scenario.yaml", file);
        let error = refused(&["simulate", text(&scenario)]);
        assert!(error.contains(expected), "{file}: {error}");
    }
    printed(&["simulate", "app-open", "--seed", "18446744073709551615"]);
    let error = refused(&["simulate", "soak", "--clients", "18446744073709551615"]);
    assert!(error.contains("10000000 is the most"), "{error}");
    let error = refused(&["simulate", "--seed", "5", "cluster"]);
    assert!(error.contains("`simulate cluster`"), "{error}");
    let error = refused(&["simulate", "boundary-atack"]);
    assert!(error.contains("boundary-attack"), "{error}");
}

/// Short enough for a test: 20 000 requests per second for two seconds, and each kind of fault.
const CLUSTER: [&str; 12] = [
    "simulate",
    "cluster",
    "--duration",
    "2s",
    "--skew",
    "0.4",
    "--loss",
    "0.01",
    "--fault",
    "partition@500ms+100ms:1",
    "--fault",
    "failover@1s+50ms",
];

#[test]
fn a_cluster_gives_the_same_bytes_for_the_same_seed() {
    let json = |seed| printed(&[&CLUSTER[..], &["--json", "--seed", seed]].concat());
    let text = json("7");
    assert_eq!(text, json("7"));
    assert_ne!(text, json("8"));
    let found: Value = serde_json::from_str(&text).unwrap();
    let run = &found["runs"][0];
    assert_eq!(
        (&run["nodes"], &run["rate"], &run["burst"], &run["seed"]),
        (&json!(4), &json!(1000), &json!(1000), &json!(7))
    );
    assert_eq!(run["faults"], json!(["partition@500ms+100ms:1", "failover@1s+50ms"]));
    assert_eq!(run["lease_span_bound"], 500);
    let schemes: Vec<&String> = run["schemes"].as_object().unwrap().keys().collect();
    assert_eq!(schemes, ["lease", "exact", "static_split", "report_after_spend", "refuse_and_wait"]);
    for (name, scheme) in run["schemes"].as_object().unwrap() {
        let count = |key: &str| scheme[key].as_u64().unwrap();
        let ends = count("admitted") + count("denied") + count("unanswered") + count("undecided");
        assert_eq!(Some(ends), run["requests"].as_u64(), "{name}: {scheme}");
        let calls = &scheme["calls"];
        let call = |key: &str| calls[key].as_u64().unwrap();
        let sum = call("draws") + call("exact_checks") + call("returns") + call("reports");
        assert_eq!(sum, call("total"), "{name}: {scheme}");
    }
}

#[test]
fn a_cluster_is_shown_as_tables_and_plots() {
    let directory = Directory::new();
    let plot = directory.path("plot.svg");
    let table = printed(&[&CLUSTER[..], &["--plot", text(&plot)]].concat());
    assert!(table.starts_with("4 nodes and ") && table.contains("(bound 500)"), "{table}");
    assert!(
        table.contains("40.00 % of the demand at node 0, 1.00 % of the messages lost, partition@500ms"),
        "{table}"
    );
    for scheme in ["lease", "exact", "static_split", "report_after_spend", "refuse_and_wait"] {
        assert_eq!(table.matches(&format!("\n{scheme} ")).count(), 4, "{table}");
    }
    let svg = std::fs::read_to_string(&plot).unwrap();
    require_svg(&svg);
    assert!(svg.contains("4 nodes: leases use ") && svg.contains("failover@1s+50ms"), "{svg}");
    // Several numbers of nodes are one table and one plot.
    let several = [
        "simulate",
        "cluster",
        "--duration",
        "1s",
        "--nodes",
        "1,10,100",
        "--scheme",
        "lease",
        "--scheme",
        "exact",
    ];
    let table = printed(&[&several[..], &["--plot", text(&plot)]].concat());
    let rows = table.lines().filter(|line| line.contains(" exact "));
    let nodes: Vec<&str> = rows.filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(nodes, ["1", "10", "100"], "{table}");
    require_svg(&std::fs::read_to_string(&plot).unwrap());
    let found = json_of(&[&several[..], &["--json"]].concat());
    assert_eq!(found["runs"].as_array().unwrap().len(), 3);
}

#[test]
fn a_cluster_out_of_bounds_is_refused_with_the_bound() {
    for (arguments, expected) in [
        (&["--nodes", "4,20k"][..], "the number of nodes is 1 to 10000"),
        (&["--burst", "3"], "a burst of 3 cannot be leased: it is at least 16"),
        (&["--rate", "1M"], "100000000 is the most: take a lower rate"),
        (&["--fault", "crash@1s:4"], "fault `crash@1s:4`: nodes are 0 to 3"),
        (&["--fault", "pause@1m+1s"], "fault `pause@1min+1s`: it starts before the run ends"),
        (&["--overload", "nan"], "the overload is above 0"),
        (&["--nodes", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"], "--nodes has 17 numbers, and 16 is the most"),
    ] {
        let error = refused(&[&["simulate", "cluster"], arguments].concat());
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}

#[test]
fn a_policy_is_held_to_its_tests() {
    let policy = repository("examples/ridehailing.yaml");
    let told = printed(&["test", text(&policy), text(&repository("examples/ridehailing.tests.yaml"))]);
    assert!(told.ends_with("5 passed, 0 failed\n"), "{told}");

    let directory = Directory::new();
    let run = |requests: &str| {
        let tests =
            directory.write("tests.yaml", &format!("tests:\n  - name: a promise\n    requests:\n{requests}"));
        let output = tollgate(&["test", text(&policy), text(&tests)]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    };
    let admin = "attributes: { tenant: globex, path: /api/admin/x }";
    for (requests, expected) in [
        (
            format!("      - {{ {admin}, times: 11, expect: allowed }}\n"),
            "tests.yaml:4: request 11 of 11: expected allowed, and it is denied by `admin`",
        ),
        (format!("      - {{ {admin}, expect: denied }}\n"), "expected denied, and it is allowed"),
        (
            format!("      - {{ {admin}, expect: allowed, limit: admin, remaining: 3 }}\n"),
            "expected remaining 3, and it is 9",
        ),
        (
            format!(
                "      - {{ {admin}, times: 10, expect: allowed }}\n      - {{ {admin}, expect: denied, retry_after: 1s }}\n"
            ),
            "tests.yaml:5: expected retry_after 1s, and it is 1min",
        ),
        (format!("      - {{ {admin}, expect: denied, limit: adnim }}\n"), "the policy has no limit `adnim`"),
        (
            format!(
                "      - {{ at: 5s, {admin}, expect: allowed }}\n      - {{ at: 4s, {admin}, expect: allowed }}\n"
            ),
            "time does not go back",
        ),
        (format!("      - {{ {admin}, expects: allowed }}\n"), "expects"),
    ] {
        let told = run(&requests);
        assert!(told.contains(expected), "{requests}: {told}");
    }
}

#[test]
fn what_cannot_be_read_is_refused_with_file_and_line() {
    let directory = Directory::new();
    let file = |name: &str, bytes: &[u8]| -> PathBuf {
        let file = directory.path(name);
        std::fs::write(&file, bytes).unwrap();
        file
    };
    for (log, place) in [
        (file("empty", b""), "empty:1: "),
        (file("binary", &[0, 255, 1, 254, 10, 0, 1, 2]), "binary:1: "),
        (file("truncated", &[0x1f, 0x8b, 8, 0, 0, 0]), "truncated:1: "),
        (file("year-0", b"ip,ts\na,0000-01-01 00:00:00\n"), "year-0:2: "),
        (file("long", "y".repeat(10 << 20).as_bytes()), "long:1: "),
        (file("columns", b"who,when\na,1\n"), "columns:1: "),
        (directory.path("nowhere"), "nowhere: "),
    ] {
        for command in
            [&["replay", text(&log), "--limit", "1", "--window", "1s"][..], &["advise", text(&log)]]
        {
            let error = refused(command);
            assert!(error.contains(place) && !error.contains("panicked"), "{command:?}: {error}");
        }
    }
    let usage = tollgate(&["replay", "some.log", "--limit", "0", "--window", "1s"]);
    assert_eq!(usage.status.code(), Some(2), "{usage:?}");
    let usage = tollgate(&["replay", "some.log"]);
    assert_eq!(usage.status.code(), Some(2), "{usage:?}");
}

/// A log tells seconds, and the window is hardly more.
#[test]
fn a_window_close_to_the_times_of_the_log_is_warned_of() {
    let directory = Directory::new();
    let log = directory.write("log.csv", &format!("ip,ts\n{}", "a,1\n".repeat(10)));
    for (window, warns) in [("5s", true), ("10s", false), ("1min", false)] {
        let output = tollgate(&["replay", text(&log), "--limit", "1", "--window", window, "--json"]);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(told.contains("warning: the log tells times to 1s"), warns, "{window}: {told}");
    }
}

/// Access-log lines, one per second, with these fields before their times.
fn access_log(prefixes: &[&str]) -> String {
    let line = |(second, prefix): (usize, &&str)| {
        format!(
            "{prefix} [17/May/2015:10:05:{second:02} +0000] \"GET /a HTTP/1.1\" 200 5 \"-\" \"An \\\"agent\\\"\"\n"
        )
    };
    prefixes.iter().enumerate().map(line).collect()
}

/// The client of every request, in the order of their times, and what the command reports beside them.
fn replayed_clients(log: &Path, more: &[&str]) -> (Vec<String>, String) {
    let replay =
        ["replay", text(log), "--limit", "1", "--window", "60s", "--decisions", "sliding_log", "--json"];
    let output = tollgate(&[&replay[..], more].concat());
    let remarks = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{more:?}: {remarks}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let client =
        |line: &str| serde_json::from_str::<Value>(line).unwrap()["client"].as_str().unwrap().to_owned();
    (lines.lines().map(client).collect(), remarks)
}

#[test]
fn a_virtual_host_is_not_counted_as_a_client() {
    let directory = Directory::new();
    for vhost in ["example.com:443", "example.com"] {
        let lines = ["203.0.113.9 - -", "2001:db8::1 - alice", "203.0.113.9 - john doe"];
        let lines = lines.map(|line| format!("{vhost} {line}"));
        let log = directory.write("access.log", &access_log(&lines.each_ref().map(String::as_str)));
        let (clients, remarks) = replayed_clients(&log, &[]);
        assert_eq!(clients, ["203.0.113.9", "2001:db8::1", "203.0.113.9"]);
        assert_eq!(remarks, "3 requests: the client is the second field of the line\n");
        let (users, _) = replayed_clients(&log, &["--client-column", "user"]);
        assert_eq!(users, ["", "alice", "john doe"]);
        let advice = tollgate(&["advise", text(&log), "--json"]);
        assert_eq!(String::from_utf8(advice.stderr).unwrap(), remarks);
        let advice: Value = serde_json::from_slice(&advice.stdout).unwrap();
        assert_eq!((&advice["requests"], &advice["groups"][0]["clients"]), (&json!(3), &json!(2)));
    }
    let log = directory.write("access.log", &access_log(&["203.0.113.9 - -", "crawler.example.net - -"]));
    let (clients, remarks) = replayed_clients(&log, &[]);
    assert_eq!(
        (clients, remarks),
        (["203.0.113.9", "crawler.example.net"].map(str::to_owned).to_vec(), String::new())
    );
}

#[test]
fn a_log_with_two_possible_clients_is_refused_until_one_is_chosen() {
    let directory = Directory::new();
    let log =
        directory.write("access.log", &access_log(&["203.0.113.9 10.0.0.1 - -", "203.0.113.8 10.0.0.1 - -"]));
    for command in [&["replay", text(&log), "--limit", "1", "--window", "1s"][..], &["advise", text(&log)]] {
        let error = refused(command);
        assert!(
            error.contains("access.log:1: ") && error.contains("--client-field 1 or --client-field 2"),
            "{error}"
        );
        assert!(error.contains("field 1, `203.0.113.9`") && error.contains("field 2, `10.0.0.1`"), "{error}");
        printed(&[command, &["--by", "global"]].concat());
    }
    assert_eq!(replayed_clients(&log, &["--client-field", "1"]).0, ["203.0.113.9", "203.0.113.8"]);
    assert_eq!(replayed_clients(&log, &["--client-field", "2"]).0, ["10.0.0.1", "10.0.0.1"]);
    for wrong in
        [["--client-field", "0"], ["--client-field", "3"], ["--trusted-hops", "0"], ["--trusted-hops", "33"]]
    {
        let usage = tollgate(&[&["advise", text(&log)], &wrong[..]].concat());
        assert_eq!(usage.status.code(), Some(2), "{usage:?}");
    }
}

#[test]
fn the_client_in_a_list_of_addresses_follows_the_trusted_proxies() {
    let directory = Directory::new();
    let lines = [
        "6.6.6.6, 203.0.113.9, 10.0.0.1 - -",
        "203.0.113.9,10.0.0.2 - -",
        "unknown, 203.0.113.8, 10.0.0.1 - -",
    ];
    let log = directory.write("access.log", &access_log(&lines));
    for command in [&["replay", text(&log), "--limit", "1", "--window", "1s"][..], &["advise", text(&log)]] {
        let error = refused(command);
        assert!(error.contains("access.log:1: ") && error.contains("--trusted-hops"), "{error}");
        assert!(error.contains("`6.6.6.6`") && error.contains("`10.0.0.1`"), "{error}");
    }
    let (clients, remarks) = replayed_clients(&log, &["--trusted-hops", "2"]);
    assert_eq!(clients, ["203.0.113.9", "203.0.113.9", "203.0.113.8"]);
    assert!(remarks.starts_with("3 requests: the client is taken from a list of addresses"), "{remarks}");
    assert_eq!(replayed_clients(&log, &["--trusted-hops", "1"]).0, ["10.0.0.1", "10.0.0.2", "10.0.0.1"]);
    // A policy has its own rule.
    let limits = "limits: [{ name: each, key: [ip], fixed_window: { limit: 1, window: 1h } }]\n";
    let policy = |identity: &str| directory.write("policy.yaml", &format!("{identity}{limits}"));
    let trusting = policy("identity: { client_ip: { trusted_proxies: [10.0.0.0/8] } }\n");
    let results = json_of(&["replay", text(&log), "--policy", text(&trusting), "--json", "--top", "9"]);
    assert_eq!(results["most_denied"], json!([{"limit": "each", "key": "203.0.113.9", "denied": 1}]));
    let error = refused(&["replay", text(&log), "--policy", text(&policy(""))]);
    assert!(error.contains("identity.client_ip"), "{error}");
}

#[test]
fn a_record_without_its_beginning_names_the_reason_for_differences() {
    let limits = "limits: [{ name: each, key: [user], token_bucket: { rate: 1/h, burst: 3 } }]\n";
    let mut service = Service::start(&format!("record: {{ path: ./decisions.log }}\n{limits}"));
    let policy = service.directory.write("policy.yaml", limits);
    let mut client = service.connect();
    for _ in 0..6 {
        assert_eq!(client.post("/v1/check", &json!({"attributes": {"user": "a"}})).status, 200);
    }
    drop(client);
    service.process.signal("TERM");
    assert!(service.process.wait().success());
    let whole = service.directory.path("decisions.log");
    let records = std::fs::read_to_string(&whole).unwrap();
    let rest: String = records.lines().skip(3).map(|line| format!("{line}\n")).collect();
    let rest = service.directory.write("rest.log", &rest);
    let recorded =
        |log: &Path| json_of(&["replay", text(log), "--policy", text(&policy), "--json"])["recorded"].clone();
    assert_eq!(recorded(&whole), json!({"compared": 6, "differ": 0, "first": []}));
    let results = recorded(&rest);
    assert_eq!((&results["compared"], &results["differ"]), (&json!(3), &json!(3)));
    let reason = results["possible_reason"].as_str().unwrap();
    assert!(
        reason.contains("decisions before the first record are missing") && reason.contains("max_files"),
        "{results}"
    );
    let table = printed(&["replay", text(&rest), "--policy", text(&policy)]);
    assert!(table.contains(reason), "{table}");
    // Records that the policy decides more strictly have another reason.
    let stricter = service.directory.write("stricter.yaml", &limits.replace("burst: 3", "burst: 1"));
    let results = json_of(&["replay", text(&whole), "--policy", text(&stricter), "--json"]);
    assert!(
        results["recorded"]["differ"].as_u64().unwrap() > 0
            && results["recorded"]["possible_reason"].is_null(),
        "{results}"
    );
}
